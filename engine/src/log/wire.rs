//! Turns events of a run into their JSON shapes (contract §7, note N9).
//! It refuses to know files and sequence numbers.

use std::collections::BTreeMap;

use policy::outputs::{Document, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::agent::AgentEvent;
use super::operator::{ApprovalOutcome, AskMode, InputWire};
use super::row::RowWire;
use super::turn::TurnWire;
use super::word::{EndingCause, Outcome, Phase, RecoveryClass, TaskStatus};
use crate::score::{Direction, Score};

/// How many writes a run came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCounts {
    /// Made at their systems.
    pub written: u64,
    /// Put into the outbox.
    pub staged: u64,
    /// Whose outcome nobody knows.
    pub unknown: u64,
    /// Refused, by the bound that refused them.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
}

/// One task of a graph that a manifest brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanTask {
    /// Its name.
    pub name: String,
    /// The step of the engine's that it is, or `agent`.
    pub op: String,
    /// The tasks that it waits for, by name.
    pub depends_on: Vec<String>,
    /// Whether the iteration goes on without it when it fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub advisory: bool,
    /// Which of the tasks that it waits for must have passed, where that is not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<String>,
}

/// Why a task was not run (contract §7, `blocked`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedWire {
    /// `required_task_failed`, `budget_ceiling` or `dependency_did_not_pass`.
    pub reason: String,
    /// The required task whose failure ended the iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

/// One line of the session log without its envelope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SessionEvent {
    /// The first line of a process's part of the log.
    Start {
        /// The goal's text.
        goal: String,
        /// The objective's label, under its historic key.
        gate: String,
        /// The agent's model.
        model: String,
        /// The namespace of a deployed run; empty otherwise.
        #[serde(default)]
        namespace: String,
        /// How many iterations may run.
        iters_total: u32,
        /// The cost ceiling in US dollars.
        #[serde(default)]
        max_cost: Option<f64>,
        /// The wall-clock ceiling in seconds.
        #[serde(default)]
        max_secs: Option<f64>,
        /// How long the loop waits for an answer to an ask, in seconds; for ever where it is absent (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_park_secs: Option<f64>,
        /// Which way a score is better (our addition): with it a log can be decided again on its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        direction: Option<Direction>,
        /// Which way a tiebreak is better (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tiebreak_direction: Option<Direction>,
    },
    /// The comparability key of the run (contract §7, `RunIdentity`).
    Identity {
        /// `v1:` and 64 hex digits.
        identity: String,
    },
    /// The loop went to another phase or iteration.
    Phase {
        /// Where it stands.
        phase: Phase,
        /// The iteration, 0 before the first.
        iter: u32,
    },
    /// A remark for a person.
    Note {
        /// The remark.
        msg: String,
    },
    /// The graph that each iteration runs.
    PlanAdmitted {
        /// Counts the graphs of this run, from 1.
        plan_version: u32,
        /// Why this graph.
        reason: String,
        /// The cost ceiling of the graph in US dollars.
        budget_usd: Option<f64>,
        /// The names of its tasks, in order of readiness.
        tasks: Vec<String>,
        /// The tasks themselves, where they are the manifest's (our addition).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        graph: Vec<PlanTask>,
    },
    /// An agent turn begins.
    AgentStart {
        /// Its iteration.
        iter: u32,
        /// The agent task whose turn it is; absent for a proposal (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
    },
    /// A turn of a durable conversation begins (contract §7). Neither cursor nor transcript is in it.
    AgentSession {
        /// The conversation's name.
        session: String,
        /// `start` or `resume`.
        action: String,
        /// Which of its turns, from 1.
        turn: u32,
        /// As in `agent_start` (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
    },
    /// Something a turn's process said.
    Agent {
        /// What it said.
        event: AgentEvent,
        /// As in `agent_start` (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
    },
    /// The agent turn is over and nothing of it runs any more. From here on the turn is paid, and never taken again.
    AgentDone(Box<TurnWire>),
    /// What a turn had used that an engine died in, as a later process found it (our addition).
    AgentLost {
        /// Its iteration.
        iter: u32,
        /// US dollars, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
        /// Tokens read, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_tokens: Option<u64>,
        /// Tokens written, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_tokens: Option<u64>,
    },
    /// The candidate does not build: the agent gets another turn on it, which costs no iteration (our addition).
    Rebuild {
        /// The task that could not make it live.
        task: String,
        /// Its iteration.
        iter: u32,
        /// Counts from 1 in each iteration.
        attempt: u32,
        /// The end of what it printed, which the agent is given.
        output: String,
        /// Wall-clock seconds.
        secs: f64,
    },
    /// A turn died of what carries it and is tried again (our addition).
    Retry {
        /// The task whose turn it was.
        task: String,
        /// The iteration.
        iter: u32,
        /// Which attempt died, from 1.
        attempt: u32,
        /// The class it died of (contract §7, `transport`).
        transport: String,
        /// One line for a person.
        note: String,
        /// How long the next attempt waits, in seconds.
        wait_secs: f64,
    },
    /// Something decided that no further iteration will start (our addition).
    Ending {
        /// What it was.
        cause: EndingCause,
        /// What the run waited for then: `setup`, `task`, `record`, `wait`, `snapshot`, `restore` or `recall`.
        stage: String,
        /// Why, for a person; empty where the cause says it all.
        #[serde(default)]
        reason: String,
    },
    /// How a resumed process classified its predecessor's end (contract §7).
    Recovery {
        /// The class.
        class: RecoveryClass,
        /// The iteration that the interruption touched, 0 where it touched none.
        iter: u32,
        /// The evidence, for a person.
        detail: String,
    },
    /// A task of the graph settled.
    TaskResult {
        /// The task's name.
        task: String,
        /// How it settled.
        status: TaskStatus,
        /// The graph it belongs to.
        plan_version: u32,
        /// `propose`, `agent`, `apply`, `measure` or `decide`.
        task_kind: String,
        /// The iteration.
        iter: u32,
        /// How often it was tried.
        attempts: u32,
        /// What all attempts cost in US dollars, as far as it is known.
        #[serde(default)]
        cost_usd: f64,
        /// Tokens read by all attempts, where that is known (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_tokens: Option<u64>,
        /// Tokens written by all attempts, where that is known (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_tokens: Option<u64>,
        /// The score, for a measurement.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metric: Option<Score>,
        /// The reading of a measurement, the verdict of a decision, the recorded candidate of a proposal, the result of an
        /// agent task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// What stood in the workspace after an agent task, recorded (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recorded: Option<Value>,
        /// One line for a person.
        note: String,
        /// Wall-clock seconds.
        secs: f64,
        /// What the last attempt died on, where the status is `transport`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        transport: Option<String>,
        /// Why it was not run, where the status is `blocked`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blocked: Option<BlockedWire>,
    },
    /// An iteration is settled.
    Row {
        /// Its record.
        row: Box<RowWire>,
        /// Whether it met the win condition.
        solved: bool,
    },
    /// The agent gave up (note N10, `ESCALATION.json`).
    Escalation {
        /// The agent's own category.
        category: String,
        /// Why.
        reason: String,
        /// What it bases that on.
        evidence: Value,
    },
    /// The run took up an input of an operator's (our addition).
    Input(Box<InputWire>),
    /// The agent asked for what only an operator can grant (contract §7).
    ApprovalWait {
        /// What is asked for.
        handle: String,
        /// The agent's name for the request.
        trace_id: String,
        /// Whether the loop waits.
        mode: AskMode,
    },
    /// The ask has its answer (contract §7).
    ApprovalResolved {
        /// Which.
        outcome: ApprovalOutcome,
        /// Why, for a person.
        reason: String,
    },
    /// Scores are measured against another baseline from here on (note N9).
    Segment {
        /// A hash over goal, objective and regime.
        fingerprint: String,
        /// The best candidate's score in the new regime.
        baseline_score: Option<Score>,
        /// The regime's label.
        regime: String,
        /// The key of the rescope in the ledger (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// What has been spent so far.
    Budget {
        /// US dollars.
        spent: f64,
        /// Seconds since the run began, without those in which no process of it lived.
        elapsed_secs: f64,
        /// Tokens read, where that is known (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_tokens: Option<u64>,
        /// Tokens written, where that is known (our addition).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_tokens: Option<u64>,
    },
    /// The result of the run.
    Summary {
        /// The objective's label, under its historic key.
        gate: String,
        /// The best score.
        best_score: Option<Score>,
        /// The baseline's score.
        baseline_score: Option<Score>,
        /// Iterations settled, the baseline aside.
        iterations: u32,
        /// How many of them were kept.
        kept: u32,
        /// The snapshot token of the best.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        best_snap: Option<String>,
        /// The number of the last line of the audit file, where a broker answered for sandboxes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        egress_seq: Option<u64>,
        /// SHA-256 of that line, in hex.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        egress_head: Option<String>,
        /// How many attempts of sandboxes to reach something were allowed, the self-test's aside.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        egress_allowed: Option<u64>,
        /// How many were denied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        egress_denied: Option<u64>,
        /// The writes to the outside, where the run could make any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outputs: Option<OutputCounts>,
    },
    /// The bounds of the run's writes (note N4).
    Outputs {
        /// As the broker was handed them.
        bounds: Document,
    },
    /// A write that its bound refused (contract §1.9); the broker writes it.
    OutputRefused {
        /// Which bound, and why.
        #[serde(flatten)]
        refusal: Refusal,
        /// The tool.
        tool: String,
        /// The turn.
        turn: String,
    },
    /// Nothing more will run.
    Finished,
    /// The last line of a run that ended on purpose.
    Shutdown {
        /// How it ended.
        outcome: Outcome,
        /// Why, for a person.
        reason: String,
    },
    /// A kind that this build does not know; readers pass over it.
    #[serde(other, skip_serializing)]
    Unknown,
}

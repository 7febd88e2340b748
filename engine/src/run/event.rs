//! Turns what came back from the world into values that `step` can fold.
//! It refuses to know how any of it was found out.

use std::time::Duration;

use serde_json::Value;

use super::graph::TaskId;
use crate::agent::{Escalation, Usage};
use crate::control::Arrival;
use crate::judge::Reading;
use crate::log::{AskWire, FrozenHash};

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Time since the run began.
    pub at: Duration,
    /// What happened.
    pub kind: EventKind,
}

/// What can happen to a run.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// The workspace stands at its baseline commit.
    Ready,
    /// A task came to its end.
    Task(Box<TaskEnd>),
    /// The world kept the workspace as it is, under this token, or did not.
    Snapshotted(Result<String, String>),
    /// The world went back to the best, or did not.
    Restored(Result<(), String>),
    /// The candidate of the open iteration was found again, or was not.
    Recalled(Result<Box<Candidate>, String>),
    /// The pause before another attempt is over.
    Waited,
    /// What the running turn has used so far, as its harness tells it.
    Spending(Usage),
    /// What the turn has used that the engine before died in.
    Charged(Usage),
    /// Another process takes the run up from here.
    Resumed {
        /// Whether the one before ended on purpose.
        closed: bool,
    },
    /// An input of an operator's, which is recorded.
    Admitted(Box<Arrival>),
    /// A hold is over.
    Released {
        /// Whether nobody was heard for as long as the loop waits.
        timed_out: bool,
    },
    /// An operator asked for the end.
    Interrupted(Interrupt),
    /// `--max-time` is over.
    OutOfTime,
}

/// How urgently an operator asked for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Settle the running iteration, then end.
    Stop,
    /// End what runs now, put the workspace back, then end.
    Abort,
}

/// What a task brought back.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskEnd {
    /// Which task.
    pub task: TaskId,
    /// What it is worth.
    pub report: TaskReport,
    /// Names of processes that outlived their command and were ended.
    pub killed: Vec<String>,
    /// Frozen files that had been changed and were put back before the task ran.
    pub frozen_restored: Vec<String>,
    /// Wall-clock seconds.
    pub secs: f64,
}

/// What a task of each kind is worth.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskReport {
    /// A turn of an agent that is over, of a proposal or an agent task; what it left is recorded next.
    Turned(Box<TurnReport>),
    /// What the turn left, recorded.
    Recorded {
        /// What stands in the workspace after it.
        candidate: Box<Candidate>,
    },
    /// `apply_cmd`, or nothing where the pack has none.
    Applied {
        /// Why the candidate could not be made live.
        failure: Option<String>,
    },
    /// `apply_cmd` said that the candidate does not build (note N11).
    Unbuilt {
        /// The end of what it printed.
        output: String,
    },
    /// `measure_cmd`.
    Measured {
        /// What it said.
        reading: Reading,
        /// The frozen files before and after it.
        frozen: Vec<FrozenHash>,
        /// The end of what it printed, where the reading is invalid; empty otherwise.
        shown: String,
    },
    /// The engine could not run the task at all; the run ends.
    Broken {
        /// Why.
        reason: String,
    },
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnReport {
    /// Why the turn counts as failed; such a candidate is not measured.
    pub failure: Option<String>,
    /// The transport class it died on, where what carries it failed.
    pub transport: Option<String>,
    /// For how long what carries it takes no other turn, where it said so.
    pub retry_after: Option<Duration>,
    /// What it used.
    pub usage: Usage,
    /// The agent's own account of its candidate, `CANDIDATE.md`.
    pub account: String,
    /// The agent gave up.
    pub escalation: Option<Escalation>,
    /// The agent asks for what only an operator can grant.
    pub ask: Option<AskWire>,
    /// The result that an agent task left.
    pub result: Option<Value>,
    /// Whether the agent had its prompt.
    pub started: bool,
    /// What it left that was not taken in, with the reason.
    pub dropped: Vec<String>,
}

/// The workspace after a turn, against the best.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Candidate {
    /// The commit that holds it; `None` where it could not be recorded.
    pub commit: Option<String>,
    /// Why it cannot be a candidate.
    pub refused: Option<String>,
    /// Whether its tree differs from the best's.
    pub changed: bool,
    /// The patch, cut at 200 kB.
    pub diff: String,
    /// The summary of the whole patch.
    pub diffstat: String,
    /// Paths that did not become part of it, with the reason.
    pub dropped: Vec<String>,
}

//! Turns the history of a run into the one value that decides what comes next.
//! It refuses to know clocks, files and processes: everything it holds came in an event or the plan.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::graph::{Graph, Settled, TaskId};
use super::operator::Operator;
use crate::admission::Key;
use crate::agent::{Brief, Recent, Usage};
use crate::decide::{Rule, Standing};
use crate::judge::{Known, Reading};
use crate::log::{Outcome, Phase, RowWire, TaskStatus};
use crate::score::Score;

/// How many settled iterations are remembered for the agent.
const RECENT_MAX: usize = 200;

/// What does not change while a run lasts.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// The graph of each iteration.
    pub graph: Graph,
    /// The universal rule's directions.
    pub rule: Rule,
    /// The objective's label.
    pub objective: String,
    /// How many iterations may run after the baseline.
    pub iterations: u32,
    /// The ceiling in US dollars, finite and more than nothing.
    pub max_cost: Option<f64>,
    /// The goal's text.
    pub goal: String,
    /// How long the loop waits for an answer to an ask; for ever where there is none.
    pub max_park: Option<Duration>,
}

/// The best kept candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// Its scalars.
    pub standing: Standing,
    /// The world's token for it.
    pub token: String,
    /// The iteration that brought it, 0 for the baseline.
    pub iter: u32,
}

/// What the run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The workspace is being set up.
    SettingUp,
    /// A task runs.
    Task(TaskId),
    /// What a turn left is recorded.
    Recording(TaskId),
    /// The next attempt of a turn is not due yet.
    Waiting,
    /// An operator, or an ask of the agent's, keeps the next iteration from beginning.
    Held,
    /// The workspace goes back to the candidate of the open iteration, or that which another process left is looked for.
    Recalling,
    /// The world keeps the candidate.
    Snapshotting,
    /// The world goes back to the best.
    Restoring,
    /// The run has its outcome.
    Over,
}

impl Stage {
    /// The token of `ending`.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Stage::SettingUp => "setup",
            Stage::Task(_) => "task",
            Stage::Recording(_) => "record",
            Stage::Waiting => "wait",
            Stage::Held => "hold",
            Stage::Recalling => "recall",
            Stage::Snapshotting => "snapshot",
            Stage::Restoring => "restore",
            Stage::Over => "over",
        }
    }
}

/// Why no further iteration will start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// An operator asked for it.
    Stop,
    /// An operator asked for it at once.
    Abort,
    /// `--max-time` is over.
    OutOfTime,
    /// The agent gave up, for this reason.
    Escalated(String),
    /// The judge declared the win.
    Solved,
    /// Turns stopped making a difference, in this way.
    Stalled(String),
}

/// Where a run was left that another process takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// No iteration is open, or no turn of the open one has passed: the workspace goes back to the best.
    AtBest,
    /// A turn passed and is recorded, and another one is to come: the workspace goes back to what was recorded.
    Midway,
    /// A turn ended, and what it left stands in the workspace unrecorded.
    Unrecorded(TaskId),
    /// A candidate is recorded and has no reading.
    Unmeasured,
    /// A candidate is to be kept.
    Unkept,
}

/// The iteration that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Iteration {
    /// How its tasks have settled.
    pub settled: Settled,
    /// When it began.
    pub began: Duration,
    /// Its row so far.
    pub row: RowWire,
    /// What the judge said.
    pub reading: Option<Reading>,
    /// What it becomes if the snapshot holds.
    pub keeping: Option<Standing>,
    /// What its agent tasks and proposals came to, as its tasks are told of each other.
    pub outputs: Vec<(TaskId, Value)>,
    /// How many attempts of the turn that runs were begun.
    pub attempts: u32,
    /// How many engines died in it.
    pub deaths: u32,
    /// How often its change did not build and was given back.
    pub rebuilds: u32,
    /// What the last of those builds printed, while the change stands in the workspace.
    pub unbuilt: Option<String>,
    /// How its turn failed, between its end and the recording of what it left.
    pub turn: Option<TurnEnded>,
    /// What the attempts of the turn that runs have used.
    pub used: Usage,
    /// Their seconds.
    pub secs: f64,
    /// How many US dollars the running attempt may use.
    pub reserved: Option<f64>,
    /// The steers in the prompt of the running attempt that no attempt before it had.
    pub carried: Vec<(Key, String)>,
    /// The steers that attempts before it had.
    pub told: Vec<String>,
    /// The rescope that it measures a baseline for, and its regime; it is no iteration of the agent's then.
    pub rebase: Option<(Key, String)>,
}

impl Iteration {
    /// One that begins.
    #[must_use]
    pub fn new(began: Duration, row: RowWire) -> Iteration {
        Iteration {
            settled: Settled::default(),
            began,
            row,
            reading: None,
            keeping: None,
            outputs: Vec::new(),
            attempts: 0,
            deaths: 0,
            rebuilds: 0,
            unbuilt: None,
            turn: None,
            used: Usage::default(),
            secs: 0.0,
            reserved: None,
            carried: Vec::new(),
            told: Vec::new(),
            rebase: None,
        }
    }
}

/// What decides about a turn that is over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnEnded {
    /// Why it counts as failed.
    pub failure: Option<String>,
    /// What it died of, where what carries it failed.
    pub transport: Option<String>,
    /// Whether the agent gave up.
    pub escalated: bool,
    /// The result that an agent task left.
    pub result: Option<Value>,
}

/// How many iterations were settled in which way, the baseline aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Kept.
    pub kept: u32,
    /// Discarded with a valid reading.
    pub discarded: u32,
    /// Discarded without one.
    pub invalid: u32,
}

impl Counts {
    /// All of them.
    #[must_use]
    pub fn total(self) -> u32 {
        self.kept.saturating_add(self.discarded).saturating_add(self.invalid)
    }
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// What does not change.
    pub terms: Terms,
    /// What it waits for.
    pub stage: Stage,
    /// The phase last told.
    pub phase: Phase,
    /// The iteration last begun.
    pub iter: u32,
    /// The iteration that runs.
    pub current: Option<Iteration>,
    /// The best so far.
    pub best: Option<Best>,
    /// The baseline's score.
    pub baseline_score: Option<Score>,
    /// The baseline's `detail.total`.
    pub baseline_total: Option<Score>,
    /// Why no further iteration will start; the first reason stands, but that an abort takes the place of a stop.
    pub ending: Option<Ending>,
    /// How the iterations were settled.
    pub counts: Counts,
    /// The last settled iterations, oldest first.
    pub recent: Arc<VecDeque<Recent>>,
    /// What all turns have used.
    pub used: Usage,
    /// How many turns in a row died of what carries them.
    pub dead_turns: u32,
    /// How many turns in a row changed nothing.
    pub idle_turns: u32,
    /// Whether what the last turn that was begun has used is counted.
    pub charged: bool,
    /// Whether it was told that a turn did not say what it cost.
    pub unpriced: bool,
    /// How long the next turn is to wait, after one that died.
    pub pause: Option<Duration>,
    /// Where the process before left it, until this one takes it up.
    pub left: Option<Left>,
    /// What operators want of it.
    pub operator: Operator,
    /// The outcome, once there is one.
    pub outcome: Option<Outcome>,
}

impl State {
    /// A run that has not begun.
    #[must_use]
    pub fn new(terms: Terms) -> State {
        State {
            terms,
            stage: Stage::SettingUp,
            phase: Phase::Starting,
            iter: 0,
            current: None,
            best: None,
            baseline_score: None,
            baseline_total: None,
            ending: None,
            counts: Counts::default(),
            recent: Arc::default(),
            used: Usage::default(),
            dead_turns: 0,
            idle_turns: 0,
            charged: true,
            unpriced: false,
            pause: None,
            left: None,
            operator: Operator::default(),
            outcome: None,
        }
    }

    /// What the judge may know.
    #[must_use]
    pub fn known(&self) -> Known {
        Known {
            baseline_score: self.baseline_score,
            baseline_total: self.baseline_total,
            best_score: self.best.as_ref().map(|best| best.standing.score),
        }
    }

    /// What the agent is told.
    #[must_use]
    pub fn brief(&self) -> Brief {
        Brief {
            iter: self.iter,
            iters_total: self.iterations(),
            objective: self.terms.objective.clone(),
            direction: self.terms.rule.direction,
            baseline: self.baseline_score,
            best: self.best.as_ref().map(|best| (best.standing.score, best.iter)),
            recent: self.recent.clone(),
            cost_left: self.cost_left(),
            unbuilt: self.current.as_ref().and_then(|current| current.unbuilt.clone()),
            regime: self.operator.regime.clone(),
            steer: String::new(),
        }
    }

    /// How many iterations may run after the baseline.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.operator.ceiling(|budget| budget.iterations).unwrap_or(self.terms.iterations)
    }

    /// The ceiling in US dollars.
    #[must_use]
    pub fn max_cost(&self) -> Option<f64> {
        self.operator.ceiling(|budget| budget.max_cost).or(self.terms.max_cost)
    }

    /// How many US dollars may still be used, never less than nothing; `None` without a ceiling.
    #[must_use]
    pub fn cost_left(&self) -> Option<f64> {
        self.max_cost().map(|most| (most - self.spent()).max(0.0))
    }

    /// US dollars that were used, as far as it is known.
    #[must_use]
    pub fn spent(&self) -> f64 {
        self.used.cost_usd.unwrap_or(0.0)
    }

    /// Whether a turn of the open iteration has passed, so that its candidate is recorded.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        let passed = |current: &Iteration| {
            let good = |id| current.settled.status(id).is_some_and(TaskStatus::is_good);
            self.terms.graph.turns().any(good)
        };
        self.iter > 0
            && self.current.as_ref().is_some_and(|current| current.rebase.is_none() && passed(current))
    }

    /// Whether what runs now should end early.
    #[must_use]
    pub fn hurried(&self) -> bool {
        matches!(self.ending, Some(Ending::Abort | Ending::OutOfTime))
    }

    /// Adds a settled iteration to what the next prompt tells.
    pub fn remember(&mut self, row: &RowWire) {
        // Shared with a turn's brief only while that turn is begun.
        let recent = Arc::make_mut(&mut self.recent);
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(Recent {
            iter: row.iter,
            decision: row.decision,
            score: row.score,
            note: row.note.clone(),
        });
    }
}

//! Turns the history of a run into the one value that decides what comes next.
//! It refuses to know clocks, files and processes: everything it holds came in an event or the plan.

use std::collections::VecDeque;
use std::time::Duration;

use super::graph::{Graph, Settled, TaskId};
use crate::agent::{Brief, Recent};
use crate::decide::{Rule, Standing};
use crate::judge::{Known, Reading};
use crate::log::{Outcome, Phase, RowWire};
use crate::score::Score;

/// How many settled iterations a prompt is told of.
const RECENT_MAX: usize = 8;

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
    /// The world keeps the candidate.
    Snapshotting,
    /// The world goes back to the best.
    Restoring,
    /// The run has its outcome.
    Over,
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
    pub recent: VecDeque<Recent>,
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
            recent: VecDeque::new(),
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
            iters_total: self.terms.iterations,
            objective: self.terms.objective.clone(),
            direction: self.terms.rule.direction,
            baseline: self.baseline_score,
            best: self.best.as_ref().map(|best| (best.standing.score, best.iter)),
            recent: self.recent.iter().cloned().collect(),
        }
    }

    /// Whether what runs now should end early.
    #[must_use]
    pub fn hurried(&self) -> bool {
        matches!(self.ending, Some(Ending::Abort | Ending::OutOfTime))
    }

    /// Adds a settled iteration to what the next prompt tells.
    pub fn remember(&mut self, row: &RowWire) {
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Recent {
            iter: row.iter,
            decision: row.decision,
            score: row.score,
            note: row.note.clone(),
        });
    }
}

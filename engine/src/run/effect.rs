//! Turns what `step` wants done into values that a shell can carry out.
//! It refuses to know how anything is done.

use std::time::Duration;

use super::graph::TaskId;
use crate::admission::{Key, Settlement};
use crate::agent::{Brief, Upstream};
use crate::control::Arrival;
use crate::judge::Known;
use crate::log::{Durability, Outcome, SessionEvent};

/// Something the shell must do, in the order given.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append a line to the session log.
    Log(Box<SessionEvent>, Durability),
    /// Start the one job that may run; it answers with one event.
    Run(Job),
    /// End the running job early; it still answers.
    Cancel,
    /// Record how an input came to its end.
    Settle {
        /// Its key.
        key: Key,
        /// How.
        outcome: Settlement,
        /// One line for a person.
        note: String,
    },
    /// Record the grant of an ask, then take it up as an input, and settle the approval.
    Grant {
        /// The key of the approval.
        by: Key,
        /// The rescope that the grant is.
        grant: Arrival,
    },
    /// The wall-clock ceiling is another one.
    Deadline {
        /// Seconds since the run began.
        secs: f64,
    },
    /// Nothing more will be asked: write the report and the last line.
    Finish {
        /// How the run ended.
        outcome: Outcome,
        /// Why, for a person.
        reason: String,
    },
}

/// Work that takes time.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// The turn of a proposal. Answers `Task`.
    Propose {
        /// Which task.
        task: TaskId,
        /// What the prompt says of the run.
        brief: Brief,
    },
    /// The turn of an agent task. Answers `Task`.
    Agent {
        /// Which task.
        task: TaskId,
        /// Its name.
        name: String,
        /// What the run's memory tells.
        brief: Brief,
        /// What the tasks that it waited for came to.
        upstream: Vec<Upstream>,
    },
    /// The recording of what a turn left, which changes nothing when it is done again. Answers `Task`.
    Record {
        /// Which task.
        task: TaskId,
        /// The iteration whose candidate it is.
        iter: u32,
    },
    /// `apply_cmd`. Answers `Task`.
    Apply {
        /// Which task.
        task: TaskId,
    },
    /// `measure_cmd`. Answers `Task`.
    Measure {
        /// Which task.
        task: TaskId,
        /// The numbers it may know.
        known: Known,
    },
    /// Keep the workspace as it is. Answers `Snapshotted`.
    Snapshot,
    /// Go back to a token. Answers `Restored`.
    Restore {
        /// The token of the best.
        token: String,
    },
    /// Find the candidate of an iteration again that another process left open. Answers `Recalled`.
    Recall {
        /// The iteration; 0 is the baseline, which is no turn's.
        iter: u32,
        /// The token of the best that it is compared with; none before there is one.
        best: Option<String>,
        /// Whether the workspace is to hold the candidate's files; else it holds them already.
        files: bool,
    },
    /// Wait for whoever holds the loop, until the job is cancelled. Answers `Released`.
    Hold {
        /// When nobody is waited for any longer.
        until: Option<Duration>,
    },
    /// Let time pass. Answers `Waited`.
    Wait {
        /// How long.
        pause: Duration,
    },
}

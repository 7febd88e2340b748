//! Turns a tally into `state/report.json`. It refuses to know how the file is written.

use std::path::Path;

use serde::Serialize;

use super::tally::{Brief, Tally};
use crate::log::{Outcome, OutputCounts};
use crate::score::Score;

/// The whole run for a script. Version 1: fields may be added, none changes its meaning.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// The shape's version.
    pub version: u32,
    /// How the run ended.
    pub outcome: Outcome,
    /// Why, for a person.
    pub reason: &'a str,
    /// The comparability key (contract §7).
    pub identity: Option<&'a str>,
    /// The objective's label.
    pub objective: &'a str,
    /// The baseline's score.
    pub baseline_score: Option<Score>,
    /// The best score.
    pub best_score: Option<Score>,
    /// The snapshot token of the best.
    pub best_snap: Option<&'a str>,
    /// Iterations settled, the baseline aside.
    pub iterations: usize,
    /// How many of them were kept.
    pub kept: usize,
    /// Seconds since the run began.
    pub elapsed_secs: f64,
    /// The session log.
    pub session_log: &'a Path,
    /// The workspace, at the best unless the outcome is `error`.
    pub workspace: &'a Path,
    /// The writes to the outside, where there could be any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<&'a OutputCounts>,
    /// Each settled iteration, the baseline first.
    pub rows: &'a [Brief],
}

impl<'a> Report<'a> {
    /// A report of a run that came to an outcome, with its log and its workspace.
    #[must_use]
    pub fn new(
        tally: &'a Tally,
        (outcome, reason): (Outcome, &'a str),
        elapsed_secs: f64,
        (session_log, workspace): (&'a Path, &'a Path),
    ) -> Report<'a> {
        Report {
            version: 1,
            outcome,
            reason,
            identity: tally.identity.as_deref(),
            objective: &tally.objective,
            baseline_score: tally.baseline,
            best_score: tally.best,
            best_snap: tally.best_snap.as_deref(),
            iterations: tally.settled(),
            kept: tally.kept(),
            elapsed_secs,
            session_log,
            workspace,
            outputs: tally.outputs.as_ref(),
            rows: &tally.rows,
        }
    }
}

//! Turns the lines of a session log into the little that a report needs of them.
//! It refuses to know where a report goes.

use serde::Serialize;

use crate::log::{Decision, Outcome, OutputCounts, Phase, RowWire, SessionEvent};
use crate::score::Score;

/// The longest note kept of one iteration, in characters.
const NOTE_MAX: usize = 200;

/// One settled iteration, as a report tells it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Brief {
    /// The iteration, 0 for the baseline.
    pub iter: u32,
    /// How it was settled.
    pub decision: Decision,
    /// Its score.
    pub score: Option<Score>,
    /// Whether it met the win condition.
    pub solved: bool,
    /// One line of why, cut.
    pub note: String,
    /// Wall-clock seconds.
    pub secs: f64,
    /// What an operator should know of the iteration besides its score: files that were put back, processes that were
    /// ended, paths that were left out, a tree that is the best's.
    pub marks: Vec<String>,
    /// The commit that holds the candidate.
    pub candidate: Option<String>,
    /// The snapshot token, where it was kept.
    pub kept_snap: Option<String>,
}

/// What a report needs of a run so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    /// The objective's label.
    pub objective: String,
    /// How many iterations there may be.
    pub iters_total: u32,
    /// Where the loop stands.
    pub phase: Phase,
    /// The iteration last begun.
    pub iter: u32,
    /// The comparability key.
    pub identity: Option<String>,
    /// The settled iterations, in order.
    pub rows: Vec<Brief>,
    /// The baseline's score.
    pub baseline: Option<Score>,
    /// The best score.
    pub best: Option<Score>,
    /// The snapshot token of the best.
    pub best_snap: Option<String>,
    /// How many attempts of sandboxes to reach something were allowed and denied, where there were sandboxes.
    pub egress: Option<(u64, u64)>,
    /// The writes to the outside, where there could be any.
    pub outputs: Option<OutputCounts>,
    /// How it ended, and why.
    pub outcome: Option<(Outcome, String)>,
}

/// How many marks of one sort a report names.
const MARKS_MAX: usize = 3;

fn marks(row: &RowWire) -> Vec<String> {
    let mut marks = Vec::new();
    let sorts = [("put back", &row.frozen_restored), ("ended", &row.killed), ("left out", &row.dropped)];
    for (what, names) in sorts.into_iter().filter(|(_, names)| !names.is_empty()) {
        let named = names.iter().take(MARKS_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if names.len() > MARKS_MAX { ", …" } else { "" };
        marks.push(format!("{what} {named}{more}"));
    }
    if row.unchanged {
        marks.push("nothing was changed".to_owned());
    }
    marks
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            objective: String::new(),
            iters_total: 0,
            phase: Phase::Starting,
            iter: 0,
            identity: None,
            rows: Vec::new(),
            baseline: None,
            best: None,
            best_snap: None,
            egress: None,
            outputs: None,
            outcome: None,
        }
    }
}

impl Tally {
    /// Takes in one line.
    pub fn see(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Start { gate, iters_total, .. } => {
                self.objective.clone_from(gate);
                self.iters_total = *iters_total;
            }
            SessionEvent::Identity { identity } => self.identity = Some(identity.clone()),
            SessionEvent::Phase { phase, iter } => (self.phase, self.iter) = (*phase, *iter),
            SessionEvent::Row { row, solved } => {
                if let Some(token) = &row.kept_snap {
                    self.best = row.score;
                    self.best_snap = Some(token.clone());
                    if row.decision == Decision::Baseline {
                        self.baseline = row.score;
                    }
                }
                self.rows.push(Brief {
                    iter: row.iter,
                    decision: row.decision,
                    score: row.score,
                    solved: *solved,
                    note: row.note.chars().take(NOTE_MAX).collect(),
                    secs: row.secs,
                    marks: marks(row),
                    candidate: row.candidate.clone(),
                    kept_snap: row.kept_snap.clone(),
                });
            }
            SessionEvent::Segment { baseline_score, .. } => {
                (self.baseline, self.best) = (*baseline_score, *baseline_score);
            }
            SessionEvent::Summary { egress_allowed, egress_denied, outputs, .. } => {
                self.egress = egress_allowed.zip(*egress_denied);
                self.outputs.clone_from(outputs);
            }
            SessionEvent::Shutdown { outcome, reason } => self.outcome = Some((*outcome, reason.clone())),
            _ => {}
        }
    }

    /// How many iterations after the baseline were kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.rows.iter().filter(|row| row.decision == Decision::Keep).count()
    }

    /// How many iterations after the baseline have settled.
    #[must_use]
    pub fn settled(&self) -> usize {
        self.rows.iter().filter(|row| row.iter > 0).count()
    }
}

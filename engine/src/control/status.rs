//! Turns the lines of a session log and a ledger into where a run stands, for whoever asks (contract §7, §7.1).
//! It refuses to know whether the run is live: the same fold serves a live one and one that is over.

use std::path::Path;

use serde::Serialize;

use crate::admission::{Book, Input};
use crate::log::{Decision, LogReader, Outcome, Phase, SessionEvent};
use crate::score::Score;

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The phase last told.
    pub phase: Phase,
    /// The iteration last begun.
    pub iter: u32,
    /// How many there may be.
    pub iters_total: u32,
    /// How many have settled, the baseline aside.
    pub settled: u32,
    /// How many of them were kept.
    pub kept: u32,
    /// The objective's label.
    pub objective: String,
    /// The baseline's score.
    pub baseline_score: Option<Score>,
    /// The best score.
    pub best_score: Option<Score>,
    /// US dollars, as of the last row.
    pub spent: f64,
    /// The ceiling on them.
    pub max_cost: Option<f64>,
    /// Seconds since the run began, as of the last row.
    pub elapsed_secs: f64,
    /// The ceiling on them.
    pub max_secs: Option<f64>,
    /// The ask that waits for an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// The regime that scores are measured in, once there was a rescope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regime: Option<String>,
    /// The sequence number of the last line of the log.
    pub seq: u64,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why it ended so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The inputs that the run owes, oldest first.
    pub owed: Vec<Owed>,
}

/// An ask of the agent's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// What was asked for.
    pub handle: String,
    /// The agent's name for the request.
    pub trace_id: String,
    /// `block` or `continue`.
    pub mode: &'static str,
}

/// An input without a settlement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Owed {
    /// Its key.
    pub key: String,
    /// Its command.
    pub input: &'static str,
}

impl Default for Status {
    fn default() -> Status {
        Status {
            phase: Phase::Starting,
            iter: 0,
            iters_total: 0,
            settled: 0,
            kept: 0,
            objective: String::new(),
            baseline_score: None,
            best_score: None,
            spent: 0.0,
            max_cost: None,
            elapsed_secs: 0.0,
            max_secs: None,
            waiting: None,
            regime: None,
            seq: 0,
            outcome: None,
            reason: None,
            owed: Vec::new(),
        }
    }
}

impl Status {
    /// Where the run of a log stands that a process before this one wrote; what cannot be read tells nothing.
    pub(super) fn of(log: &Path) -> Status {
        let mut status = Status::default();
        for entry in LogReader::open(log).into_iter().flatten().flatten() {
            status.see(entry.seq.unwrap_or_default(), &entry.event);
        }
        status
    }

    /// Takes in one line of the session log.
    pub fn see(&mut self, seq: u64, event: &SessionEvent) {
        self.seq = self.seq.max(seq);
        if !matches!(event, SessionEvent::Shutdown { .. }) {
            // Only the last line ends a run; what follows it belongs to a process that took the run up again.
            (self.outcome, self.reason) = (None, None);
        }
        match event {
            SessionEvent::Start { gate, iters_total, max_cost, max_secs, .. } => {
                self.objective.clone_from(gate);
                self.iters_total = *iters_total;
                (self.max_cost, self.max_secs) = (*max_cost, *max_secs);
            }
            SessionEvent::Phase { phase, iter } => (self.phase, self.iter) = (*phase, *iter),
            SessionEvent::Row { row, .. } => {
                if row.iter > 0 {
                    self.settled = self.settled.saturating_add(1);
                }
                if row.kept_snap.is_some() {
                    self.best_score = row.score;
                }
                match row.decision {
                    Decision::Baseline => self.baseline_score = row.score,
                    Decision::Keep => self.kept = self.kept.saturating_add(1),
                    _ => {}
                }
            }
            SessionEvent::Budget { spent, elapsed_secs, .. } => {
                (self.spent, self.elapsed_secs) = (*spent, *elapsed_secs);
            }
            SessionEvent::ApprovalWait { handle, trace_id, mode } => {
                let (handle, trace_id, mode) = (handle.clone(), trace_id.clone(), mode.token());
                self.waiting = Some(Waiting { handle, trace_id, mode });
            }
            SessionEvent::ApprovalResolved { .. } => self.waiting = None,
            SessionEvent::Segment { baseline_score, regime, .. } => {
                (self.baseline_score, self.best_score) = (*baseline_score, *baseline_score);
                self.regime = Some(regime.clone());
            }
            SessionEvent::Shutdown { outcome, reason } => {
                (self.outcome, self.reason) = (Some(*outcome), Some(reason.clone()));
            }
            _ => {}
        }
    }

    /// The same with what a ledger says: what is owed, and the ceilings that took the place of the first ones.
    #[must_use]
    pub fn with(mut self, book: &Book) -> Status {
        self.owed.clear();
        for (key, input) in book.owed() {
            if let Input::SetBudget(budget) = input {
                self.max_cost = budget.max_cost.or(self.max_cost);
                self.max_secs = budget.max_secs.or(self.max_secs);
                self.iters_total = budget.iterations.unwrap_or(self.iters_total);
            }
            self.owed.push(Owed { key: key.to_string(), input: input.command().token() });
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Budget, Key, Line};
    use crate::log::RowWire;

    #[test]
    fn a_run_stands_where_its_lines_say() {
        let mut status = Status::default();
        let score = |value| Score::new(value);
        let row = |iter, decision, value, kept: bool| SessionEvent::Row {
            row: Box::new(RowWire {
                score: score(value),
                kept_snap: kept.then(|| "t".to_owned()),
                ..RowWire::new(iter, decision)
            }),
            solved: false,
        };
        let lines = [
            SessionEvent::Phase { phase: Phase::Baseline, iter: 0 },
            row(0, Decision::Baseline, 1.0, true),
            row(1, Decision::Keep, 2.0, true),
            row(2, Decision::Discard, 0.5, false),
            SessionEvent::Phase { phase: Phase::Paused, iter: 2 },
            SessionEvent::Shutdown { outcome: Outcome::Stopped, reason: "enough".into() },
        ];
        for (at, line) in (1..).zip(&lines) {
            status.see(at, line);
        }
        assert_eq!((status.phase, status.iter, status.seq), (Phase::Paused, 2, 6));
        assert_eq!((status.settled, status.kept), (2, 1));
        assert_eq!((status.baseline_score, status.best_score), (score(1.0), score(2.0)));
        assert_eq!(status.outcome, Some(Outcome::Stopped));
        status.see(7, &SessionEvent::Note { msg: "resumed".into() });
        assert_eq!(status.outcome, None, "a resumed run is not over");
    }

    #[test]
    fn ceilings_of_the_ledger_take_the_place_of_the_first_ones() {
        let mut book = Book::default();
        let key = Key::chosen("b").unwrap();
        let budget = Input::SetBudget(Budget { iterations: Some(9), ..Budget::default() });
        book.see(Line::Admitted { key, input: Some(budget) });
        let status = Status { iters_total: 3, max_secs: Some(1.0), ..Status::default() }.with(&book);
        assert_eq!((status.iters_total, status.max_secs), (9, Some(1.0)));
        assert_eq!(status.owed, [Owed { key: "b".into(), input: "set-budget" }]);
    }
}

//! Turns a decided iteration into its row, and the workspace's way to the best (contract §4, §5, §7).
//! It refuses to know why the iteration was decided so.

use super::Fold;
use crate::log::{Decision, Durability, EndingCause, Outcome, RowWire, SessionEvent};
use crate::run::effect::Job;
use crate::run::settling::NOT_KEPT;
use crate::run::state::{Best, Ending, Iteration, Stage};

impl Fold {
    pub(super) fn snapshotted(&mut self, result: Result<String, String>) {
        let kept = self
            .state
            .current
            .as_ref()
            .and_then(|current| Some((current.keeping?, current.reading.clone()?)));
        let (token, (standing, reading)) = match (result, kept) {
            (Ok(token), Some(kept)) => (token, kept),
            (Ok(_), None) => return self.discard("nothing was to be kept".to_owned()),
            (Err(why), _) => return self.discard(format!("{NOT_KEPT}{why}")),
        };
        let iter = self.state.iter;
        if iter == 0 {
            self.state.baseline_score = Some(standing.score);
            self.state.baseline_total = reading.total();
        } else {
            self.state.counts.kept = self.state.counts.kept.saturating_add(1);
        }
        if reading.solved {
            self.state.ending = Some(Ending::Solved);
        }
        self.state.best = Some(Best { standing, token: token.clone(), iter });
        if let Some(mut current) = self.state.current.take() {
            current.row.decision = if iter == 0 { Decision::Baseline } else { Decision::Keep };
            current.row.kept_snap = Some(token);
            // The decision is on the disk already; the next durable line takes this one along.
            self.write_row(current, reading.solved, Durability::Buffered);
        }
        self.end_or_go_on();
    }

    /// Discards the candidate for a reason of the engine's.
    pub(super) fn discard(&mut self, why: String) {
        if let Some(current) = &mut self.state.current {
            current.row.note = why;
        }
        self.settle_row();
    }

    /// Writes the row of a discarded candidate, then goes back to the best.
    pub(super) fn settle_row(&mut self) {
        let Some(mut current) = self.state.current.take() else { return };
        if let Some(rebase) = current.rebase.take() {
            return self.not_rebased(rebase, &current.row.note);
        }
        self.count_discard(&mut current);
        let note = current.row.note.clone();
        self.write_row(current, false, Durability::Durable);
        match &self.state.best {
            Some(best) => {
                let token = best.token.clone();
                self.run(Stage::Restoring, Job::Restore { token });
            }
            None if self.state.ending.is_some() => self.end_or_go_on(),
            None => self.finish(Outcome::Error, format!("the baseline cannot be scored: {note}")),
        }
    }

    /// Counts an iteration that is not kept; a baseline is none.
    pub(super) fn count_discard(&mut self, current: &mut Iteration) {
        let invalid = !current.reading.as_ref().is_some_and(|reading| reading.valid);
        if self.state.iter == 0 {
            current.row.decision = Decision::BaselineSkipped;
            return;
        }
        let counts = &mut self.state.counts;
        let count = if invalid { &mut counts.invalid } else { &mut counts.discarded };
        *count = count.saturating_add(1);
    }

    pub(super) fn write_row(&mut self, current: Iteration, solved: bool, durability: Durability) {
        let elapsed = self.at.saturating_sub(current.began).as_secs_f64();
        let row = RowWire { secs: elapsed, ..current.row };
        if row.iter > 0 {
            self.state.remember(&row);
        }
        self.log(SessionEvent::Row { row: Box::new(row), solved }, durability);
        let used = self.state.used;
        let budget = SessionEvent::Budget {
            spent: self.state.spent(),
            elapsed_secs: self.at.as_secs_f64(),
            input_tokens: used.input_tokens,
            output_tokens: used.output_tokens,
        };
        self.log(budget, Durability::Buffered);
    }

    pub(super) fn restored(&mut self, result: Result<(), String>) {
        match result {
            // An iteration that is still open had a turn that is to be tried again.
            Ok(()) if self.state.current.is_some() => {
                if let Some(current) = &mut self.state.current {
                    // What did not build is gone.
                    current.unbuilt = None;
                }
                self.dispatch();
            }
            Ok(()) => self.end_or_go_on(),
            Err(why) => {
                let reason = format!("the workspace could not be put back: {why}");
                self.log_ending(EndingCause::Broken, why);
                self.finish(Outcome::Error, reason);
            }
        }
    }
}

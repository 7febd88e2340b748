//! Turns a settled iteration, a ceiling or an operator's wish into the next iteration or the end (contract §4, §7).
//! It refuses to know how an iteration was settled.

use super::Fold;
use crate::agent::Usd;
use crate::log::{Durability, EndingCause, Outcome, Phase, SessionEvent};
use crate::run::effect::Effect;
use crate::run::event::Interrupt;
use crate::run::state::{Ending, Stage};

impl Fold {
    /// The head of an iteration: the next one begins here, or the run ends.
    pub(super) fn end_or_go_on(&mut self) {
        if self.state.best.is_none() && self.state.ending.is_none() {
            return self.begin(0);
        }
        let next = self.state.counts.total().saturating_add(1);
        let left = next <= self.state.iterations();
        let (outcome, reason) = match &self.state.ending {
            Some(Ending::Solved) => (Outcome::Solved, "the judge declared the win".to_owned()),
            Some(Ending::Escalated(why)) => (Outcome::Escalated, why.clone()),
            Some(Ending::Abort) => (Outcome::Stopped, "aborted by the operator".to_owned()),
            Some(Ending::Stop) => (Outcome::Stopped, "stopped by the operator".to_owned()),
            _ if !left => (Outcome::Finished, "all iterations were run".to_owned()),
            Some(Ending::Stalled(why)) => (Outcome::Stalled, why.clone()),
            Some(Ending::OutOfTime) => {
                (Outcome::Budget, "the wall-clock ceiling refused the next iteration".to_owned())
            }
            None => match self.refused_by_cost(next) {
                Some(why) => (Outcome::Budget, why),
                None => return self.head(next),
            },
        };
        self.finish(outcome, reason);
    }

    /// Why the cost ceiling refuses the turn of an iteration.
    fn refused_by_cost(&self, iter: u32) -> Option<String> {
        let most = self.state.max_cost()?;
        let spent = self.state.spent();
        (spent >= most).then(|| {
            let (spent, most) = (Usd(spent), Usd(most));
            format!("the cost ceiling refused the turn of iteration {iter}: ${spent} of ${most} are spent")
        })
    }

    pub(super) fn interrupted(&mut self, interrupt: Interrupt) {
        let (ending, cause) = match (interrupt, &self.state.ending) {
            (_, Some(Ending::Abort)) => return,
            (Interrupt::Stop, Some(_)) => return,
            (Interrupt::Stop, None) => (Ending::Stop, EndingCause::Stop),
            (Interrupt::Abort, _) => (Ending::Abort, EndingCause::Abort),
        };
        let aborting = ending == Ending::Abort;
        self.log_ending(cause, String::new());
        self.note(
            if aborting {
                "abort asked for: ending what runs"
            } else {
                "stop asked for: ending after this iteration; once more ends it now"
            }
            .to_owned(),
        );
        self.state.ending = Some(ending);
        if aborting || self.state.stage == Stage::Waiting {
            self.hurry();
        }
        self.release();
    }

    pub(super) fn out_of_time(&mut self) {
        if self.state.ending.is_none() {
            let cause = EndingCause::OutOfTime;
            self.log_ending(cause, String::new());
            self.note("the wall-clock ceiling is reached".to_owned());
            self.state.ending = Some(Ending::OutOfTime);
            self.hurry();
            self.release();
        }
    }

    /// Tells why no further iteration will start.
    pub(super) fn log_ending(&mut self, cause: EndingCause, reason: String) {
        let stage = self.state.stage.token().to_owned();
        self.log(SessionEvent::Ending { cause, stage, reason }, Durability::Buffered);
    }

    /// Ends the running task early. What keeps or puts back the workspace is always let finish.
    fn hurry(&mut self) {
        if matches!(self.state.stage, Stage::Task(_) | Stage::Recording(_) | Stage::Waiting) {
            self.effects.push(Effect::Cancel);
        }
    }

    pub(super) fn finish(&mut self, outcome: Outcome, reason: String) {
        self.close_ask();
        let iter = self.state.iter;
        self.enter(Phase::Finished, iter);
        let best = self.state.best.as_ref();
        let summary = SessionEvent::Summary {
            gate: self.state.terms.objective.clone(),
            best_score: best.map(|best| best.standing.score),
            baseline_score: self.state.baseline_score,
            iterations: self.state.counts.total(),
            kept: self.state.counts.kept,
            best_snap: best.map(|best| best.token.clone()),
            // Filled in when the line is written: by then the audit file may have grown.
            egress_seq: None,
            egress_head: None,
            egress_allowed: None,
            egress_denied: None,
            outputs: None,
        };
        self.log(summary, Durability::Buffered);
        self.log(SessionEvent::Finished, Durability::Buffered);
        self.state.stage = Stage::Over;
        self.state.outcome = Some(outcome);
        self.effects.push(Effect::Finish { outcome, reason });
    }
}

//! Turns inputs of operators, and asks of the agent, into what the loop does at the next head of an iteration (§7.1).
//! It refuses to know how an input arrived: it is recorded already, and settled by its key.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::Fold;
use crate::admission::{Budget, Input, Key, Settlement, told};
use crate::control::Arrival;
use crate::decide::Verdict;
use crate::judge::Reading;
use crate::log::{ApprovalOutcome, AskWire, Decision, Durability, Phase, RowWire, SessionEvent, TaskStatus};
use crate::run::effect::{Effect, Job};
use crate::run::event::Interrupt;
use crate::run::operator::Ask;
use crate::run::state::{Ending, Iteration, Stage};

impl Fold {
    fn settle_input(&mut self, key: Key, outcome: Settlement, note: &str) {
        self.effects.push(Effect::Settle { key, outcome, note: note.to_owned() });
    }

    /// Takes an input up. It stands in the log before anything follows from it.
    pub(super) fn admitted(&mut self, arrival: Arrival) {
        let Arrival { key, input } = arrival;
        let line = told(&key, &input, self.state.stage.token());
        self.log(SessionEvent::Input(Box::new(line)), Durability::Buffered);
        match input {
            Input::Steer { text } => return self.state.operator.steers.push_back((key, text)),
            Input::Approve { handle, regime } => self.approve(key, handle.as_deref(), regime),
            Input::Deny { handle, reason } => self.deny(key, handle.as_deref(), reason),
            Input::Rescope { regime } => self.rescope(key, regime),
            Input::SetBudget(budget) => self.set_budget(key, budget),
            Input::Pause => {
                if let Some(earlier) = self.state.operator.paused.replace(key) {
                    self.settle_input(earlier, Settlement::Superseded, "by a later pause");
                }
            }
            Input::Resume => self.go_on(key),
            Input::Stop => self.end_by(key, Interrupt::Stop),
            Input::Abort => self.end_by(key, Interrupt::Abort),
        }
        // Whoever holds looks again at what for.
        self.release();
    }

    /// Ends a hold early; what follows is decided when it has ended.
    pub(super) fn release(&mut self) {
        if self.state.stage == Stage::Held {
            self.effects.push(Effect::Cancel);
        }
    }

    fn end_by(&mut self, key: Key, interrupt: Interrupt) {
        self.interrupted(interrupt);
        self.settle_input(key, Settlement::Applied, "");
    }

    fn go_on(&mut self, key: Key) {
        match self.state.operator.paused.take() {
            Some(pause) => {
                self.settle_input(pause, Settlement::Applied, "until a resume");
                self.settle_input(key, Settlement::Applied, "");
            }
            None => self.settle_input(key, Settlement::Rejected, "the run is not paused"),
        }
    }

    fn set_budget(&mut self, key: Key, budget: Budget) {
        for covered in self.state.operator.put_in_force(key, budget) {
            self.settle_input(covered, Settlement::Superseded, "by a later budget");
        }
        let left = self.state.cost_left();
        if let (Some(_), true, Some(current)) = (budget.max_cost, self.in_turn(), &mut self.state.current) {
            // The turn that runs is held to it too.
            current.reserved = left;
        }
        if let Some(secs) = budget.max_secs {
            self.effects.push(Effect::Deadline { secs });
        }
    }

    /// Whether a turn of the agent runs.
    fn in_turn(&self) -> bool {
        matches!(self.state.stage, Stage::Task(id) if self.state.terms.graph.is_turn(id))
    }

    fn rescope(&mut self, key: Key, regime: String) {
        if let Some(ask) = &mut self.state.operator.ask {
            ask.granted |= ask.grant_key() == key;
        }
        if let Some((earlier, _)) = self.state.operator.rescope.replace((key, regime)) {
            self.settle_input(earlier, Settlement::Superseded, "by a later rescope");
        }
    }

    /// The open ask that an answer means; where there is none, the answer is rejected.
    fn meant(&mut self, key: &Key, handle: Option<&str>) -> Option<Ask> {
        let why = match &self.state.operator.ask {
            None => "the agent asks for nothing",
            Some(ask) if !ask.is_meant_by(handle) => "the agent asks for something else",
            Some(ask) if ask.granted => "it is granted already",
            Some(ask) => return Some(ask.clone()),
        };
        self.settle_input(key.clone(), Settlement::Rejected, why);
        None
    }

    fn approve(&mut self, key: Key, handle: Option<&str>, regime: Option<String>) {
        let Some(ask) = self.meant(&key, handle) else { return };
        let grant = ask.grant_key();
        let regime = regime.unwrap_or(ask.said.handle);
        let grant = Arrival { key: grant, input: Input::Rescope { regime } };
        self.effects.push(Effect::Grant { by: key, grant });
    }

    fn deny(&mut self, key: Key, handle: Option<&str>, reason: String) {
        if self.meant(&key, handle).is_some() {
            self.resolve(ApprovalOutcome::Denied, reason);
            self.settle_input(key, Settlement::Applied, "");
        }
    }

    /// The agent asks. The same thing again is no other ask; another one takes the place of the first, unless that is
    /// granted already.
    pub(super) fn asked(&mut self, said: AskWire) {
        match &self.state.operator.ask {
            Some(ask) if ask.said == said => return,
            Some(ask) if ask.granted => {
                let msg = format!("the agent asks for {} while {} is granted", said.handle, ask.said.handle);
                return self.note(msg);
            }
            Some(_) => self.resolve(ApprovalOutcome::Denied, "the agent asks for something else".to_owned()),
            None => {}
        }
        let AskWire { mode, trace_id, handle } = said.clone();
        // The turn's line says it too, and is on the disk.
        self.log(SessionEvent::ApprovalWait { handle, trace_id, mode }, Durability::Buffered);
        let operator = &mut self.state.operator;
        operator.asks = operator.asks.saturating_add(1);
        operator.ask = Some(Ask { said, ordinal: operator.asks, granted: false, parked: None });
    }

    fn resolve(&mut self, outcome: ApprovalOutcome, reason: String) {
        self.state.operator.ask = None;
        self.log(SessionEvent::ApprovalResolved { outcome, reason }, Durability::Durable);
    }

    /// At the end of a run an ask is closed, but not by a stop: that answers nothing.
    pub(super) fn close_ask(&mut self) {
        let stopped = matches!(self.state.ending, Some(Ending::Stop | Ending::Abort));
        match &self.state.operator.ask {
            Some(ask) if !stopped && ask.granted => {
                self.resolve(ApprovalOutcome::Granted, "the run ended before it was measured".to_owned());
            }
            Some(_) if !stopped => {
                self.resolve(ApprovalOutcome::Timeout, "the run ended without an answer".to_owned());
            }
            _ => {}
        }
    }

    /// The head of an iteration, where operators are heeded: a rescope is drained, a pause or an ask holds the loop.
    pub(super) fn head(&mut self, next: u32) {
        if let Some(phase) = self.holds() {
            return self.hold(phase);
        }
        match self.state.operator.rescope.take() {
            Some((key, regime)) => self.rebase(key, regime),
            None => self.begin(next),
        }
    }

    /// Why no iteration may begin now, as the phase that tells it.
    fn holds(&self) -> Option<Phase> {
        let operator = &self.state.operator;
        let blocked = operator.ask.as_ref().is_some_and(Ask::blocks);
        let drains = operator.rescope.is_some() && operator.paused.is_none();
        match (blocked, operator.paused.is_some()) {
            (true, _) if !drains => Some(Phase::Parked),
            (false, true) => Some(Phase::Paused),
            _ => None,
        }
    }

    fn hold(&mut self, phase: Phase) {
        self.enter(phase, self.state.iter);
        let (at, most) = (self.at, self.state.terms.max_park);
        let parked = self.state.operator.ask.as_mut().filter(|ask| ask.blocks());
        let until = parked.and_then(|ask| {
            let since = *ask.parked.get_or_insert(at);
            most.map(|most| since.saturating_add(most))
        });
        self.run(Stage::Held, Job::Hold { until });
    }

    /// A hold is over: somebody was heard, or nobody for too long.
    pub(super) fn held(&mut self, timed_out: bool) {
        if timed_out && self.state.operator.ask.as_ref().is_some_and(Ask::blocks) {
            self.resolve(ApprovalOutcome::Timeout, "nobody answered within --max-park".to_owned());
        }
        self.end_or_go_on();
    }

    /// Measures the best again, as the baseline of another regime.
    fn rebase(&mut self, key: Key, regime: String) {
        if self.state.operator.ask.as_ref().is_some_and(|ask| ask.granted) {
            self.resolve(ApprovalOutcome::Granted, format!("the regime is {regime}"));
        }
        let iter = self.state.iter;
        self.enter(Phase::Baseline, iter);
        // It has no row that would tell how long it took.
        let mut current = Iteration::new(Duration::ZERO, RowWire::new(iter, Decision::Baseline));
        current.rebase = Some((key, regime));
        for id in self.state.terms.graph.turns() {
            current.settled.settle(id, TaskStatus::Pass);
        }
        self.state.current = Some(current);
        self.dispatch();
    }

    /// The best has a reading in the new regime: all that is measured from here on is compared with it.
    pub(super) fn rebased(&mut self, reading: &Reading) {
        let Verdict::Keep { standing, solved } = self.state.terms.rule.decide(reading, None) else {
            return self.settle_row();
        };
        let Some((key, regime)) = self.state.current.take().and_then(|current| current.rebase) else {
            return;
        };
        self.state.baseline_score = Some(standing.score);
        self.state.baseline_total = reading.total();
        if let Some(best) = &mut self.state.best {
            best.standing = standing;
        }
        if solved {
            self.state.ending.get_or_insert(Ending::Solved);
        }
        let segment = SessionEvent::Segment {
            fingerprint: fingerprint([&self.state.terms.goal, &self.state.terms.objective, &regime]),
            baseline_score: Some(standing.score),
            regime: regime.clone(),
            key: Some(key.to_string()),
        };
        self.log(segment, Durability::Durable);
        self.state.operator.regime = Some(regime);
        self.settle_input(key, Settlement::Applied, "");
        self.back_to_best();
    }

    /// The best could not be measured in the new regime. Scores stay comparable only with those of the old one, so it
    /// stays. A run that ends owes the rescope to the one that resumes it.
    pub(super) fn not_rebased(&mut self, (key, regime): (Key, String), why: &str) {
        if !self.state.hurried() {
            self.note(format!("no baseline in the regime {regime}, so the old one stays: {why}"));
            self.settle_input(key, Settlement::Rejected, why);
        }
        self.back_to_best();
    }

    fn back_to_best(&mut self) {
        match &self.state.best {
            Some(best) => {
                let token = best.token.clone();
                self.run(Stage::Restoring, Job::Restore { token });
            }
            None => self.end_or_go_on(),
        }
    }

    /// The steers that go into the prompt of the attempt that begins: new ones, and those of the attempts before it.
    pub(super) fn steer(&mut self) -> String {
        let new = self.state.operator.take_steers();
        let Some(current) = &mut self.state.current else { return String::new() };
        let told = current.told.iter().chain(new.iter().map(|(_, text)| text));
        let text = told.cloned().collect::<Vec<_>>().join("\n\n");
        current.carried.extend(new);
        text
    }

    /// A turn is over: what its prompt had is delivered, if it had a prompt.
    pub(super) fn delivered(&mut self, started: bool) {
        let iter = self.state.iter;
        let Some(current) = &mut self.state.current else { return };
        let carried = std::mem::take(&mut current.carried);
        if !started {
            return self.state.operator.give_back(carried);
        }
        current.told.extend(carried.iter().map(|(_, text)| text.clone()));
        for (key, _) in carried {
            self.settle_input(key, Settlement::Applied, &format!("iteration {iter}"));
        }
    }
}

/// SHA-256 over parts, each with its length.
fn fingerprint(parts: [&str; 3]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v1:{hex}")
}

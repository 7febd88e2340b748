//! Turns where another process left a run into the class of its end and what this one does first (contract §7, `recovery`).
//! It refuses to read anything: the state was folded from the log by the same steps.

use super::Fold;
use crate::agent::Usage;
use crate::log::{Durability, Phase, RecoveryClass, SessionEvent};
use crate::run::effect::Job;
use crate::run::event::Candidate;
use crate::run::graph::{Next, Op};
use crate::run::settling::LOST;
use crate::run::state::{Ending, Left, Stage, State};

/// An iteration in which so many engines died is settled without another attempt.
const DEATHS: u32 = 2;

impl Fold {
    /// Another process takes the run up. What its predecessor was told by an operator or a ceiling is over with it; a
    /// win stands.
    pub(super) fn resumed(&mut self, closed: bool) {
        let class = class(&self.state, closed);
        let detail = detail(&self.state, class);
        let iter = match class {
            RecoveryClass::CleanExit | RecoveryClass::DiedBetweenIterations => 0,
            _ => self.state.iter,
        };
        self.log(SessionEvent::Recovery { class, iter, detail }, Durability::Durable);
        // A baseline of another regime is measured anew.
        self.state.current.take_if(|current| current.rebase.is_some());
        let left = left(&self.state);
        let state = &mut self.state;
        if let (Some(current), true) = (&mut state.current, left != Some(Left::Unkept)) {
            // One that ended on purpose never came to it.
            current.deaths = current.deaths.saturating_add(u32::from(!closed));
            current.reserved = None;
        }
        if state.ending != Some(Ending::Solved) {
            state.ending = None;
        }
        (state.dead_turns, state.idle_turns, state.pause) = (0, 0, None);
        // What is owed arrives again from the ledger.
        state.operator.forget();
        if let Some(current) = &mut state.current {
            current.carried.clear();
        }
        (state.left, state.stage, state.phase, state.outcome) =
            (left, Stage::SettingUp, Phase::Preflight, None);
    }

    /// What a turn said it had used before its engine died was spent in its own iteration; once, however many engines
    /// find it.
    pub(super) fn charged(&mut self, usage: Usage) {
        if !matches!(self.state.left, Some(Left::AtBest | Left::Midway))
            || self.state.charged
            || usage.is_unknown()
        {
            return;
        }
        self.state.charged = true;
        self.state.used = self.state.used.plus(usage);
        if let Some(current) = &mut self.state.current {
            current.used = current.used.plus(usage);
            current.row.cost_usd = Usage::new(current.row.cost_usd, None, None).plus(usage).cost_usd;
        }
        let Usage { cost_usd, input_tokens, output_tokens } = usage;
        let iter = self.state.iter;
        let line = SessionEvent::AgentLost { iter, cost_usd, input_tokens, output_tokens };
        self.log(line, Durability::Durable);
    }

    /// The workspace is open: the first thing to do in it.
    pub(super) fn take_up(&mut self, left: Left) {
        let iter = self.state.iter;
        let best = self.state.best.as_ref().map(|best| best.token.clone());
        if self.state.current.is_some() {
            self.enter(self.phase_of(iter), iter);
        }
        if self.state.current.as_ref().is_some_and(|current| current.deaths >= DEATHS && iter > 0) {
            return self.discard("the engine died in it more than once".to_owned());
        }
        let spent = self.state.cost_left().is_some_and(|left| left <= 0.0);
        if left == Left::AtBest && self.state.current.is_some() && iter > 0 && spent {
            self.state.left = None;
            return self.discard("nothing is left under the cost ceiling for its turn again".to_owned());
        }
        let files = matches!(left, Left::Unmeasured | Left::Midway);
        match (left, best) {
            (Left::AtBest, Some(token)) => {
                self.state.left = None;
                self.run(Stage::Restoring, Job::Restore { token });
            }
            (Left::AtBest, None) => self.end_or_go_on(),
            (_, best) => {
                self.state.left = Some(left);
                self.run(Stage::Recalling, Job::Recall { iter, best, files });
            }
        }
    }

    /// Takes the workspace back to what stood there before the turn that failed, which another one goes on from.
    pub(super) fn go_back(&mut self) {
        let best = self.state.best.as_ref().map(|best| best.token.clone());
        match best {
            best if self.state.is_midway() => {
                self.state.left = Some(Left::Midway);
                let iter = self.state.iter;
                self.run(Stage::Recalling, Job::Recall { iter, best, files: true });
            }
            Some(token) => self.run(Stage::Restoring, Job::Restore { token }),
            None => self.dispatch(),
        }
    }

    /// The open iteration's candidate was found again, or it is lost.
    pub(super) fn recalled(&mut self, result: Result<Box<Candidate>, String>) {
        let left = self.state.left.take();
        let found = match (result, left) {
            (Ok(found), _) => found,
            (Err(why), _) => return self.discard(format!("{LOST}{why}")),
        };
        match left {
            Some(Left::Unrecorded(task)) => self.record(task),
            Some(Left::Unkept) => {
                self.take_in(*found);
                self.run(Stage::Snapshotting, Job::Snapshot);
            }
            Some(Left::Midway) => {
                self.take_in(*found);
                self.dispatch();
            }
            _ => {
                self.take_in(*found);
                self.forget_measurement();
                self.dispatch();
            }
        }
    }

    /// The patch is not in the log before the row is; git has it.
    fn take_in(&mut self, found: Candidate) {
        if let Some(current) = &mut self.state.current
            && found.commit.is_some()
        {
            current.row.candidate = found.commit;
            current.row.diff = found.diff;
            current.row.diffstat = found.diffstat;
        }
    }

    /// What made the candidate live is done again with the measurement: nobody knows what is left of it.
    fn forget_measurement(&mut self) {
        let graph = &self.state.terms.graph;
        let is_turns = |name: &str| graph.tasks().any(|(_, task)| task.op.is_turn() && task.name == name);
        if let Some(current) = &mut self.state.current {
            current.settled.retain(|id| graph.is_turn(id));
            current.row.evidence.retain(|evidence| is_turns(&evidence.task));
        }
    }
}

/// Where the run was left; `None` where the loop had not begun.
fn left(state: &State) -> Option<Left> {
    let before_the_turn = if state.is_midway() { Left::Midway } else { Left::AtBest };
    match state.stage {
        Stage::SettingUp | Stage::Recalling => state.left,
        Stage::Task(id) if state.terms.graph.is_turn(id) => Some(before_the_turn),
        Stage::Recording(id) => Some(Left::Unrecorded(id)),
        Stage::Task(_) if state.current.is_some() => Some(Left::Unmeasured),
        Stage::Task(_) => Some(Left::AtBest),
        Stage::Snapshotting => Some(Left::Unkept),
        Stage::Waiting | Stage::Restoring => Some(before_the_turn),
        Stage::Held | Stage::Over => Some(Left::AtBest),
    }
}

/// How a process left the run, as contract §7 classifies it.
fn class(state: &State, closed: bool) -> RecoveryClass {
    if closed {
        return RecoveryClass::CleanExit;
    }
    if state.best.is_none() {
        return RecoveryClass::DiedInBaseline;
    }
    if state.stage == Stage::Held && state.phase == Phase::Parked {
        return RecoveryClass::DiedAwaitingApproval;
    }
    if state.current.as_ref().is_some_and(|current| current.rebase.is_some()) {
        return RecoveryClass::DiedInBaseline;
    }
    match (state.current.is_some(), left(state)) {
        (true, Some(Left::AtBest | Left::Midway | Left::Unrecorded(_))) if in_agent_task(state) => {
            RecoveryClass::DiedInPlanTask
        }
        (true, Some(Left::Unmeasured | Left::Unkept)) => RecoveryClass::DiedDeciding,
        (true, _) => RecoveryClass::DiedMidTurn,
        (false, _) => RecoveryClass::DiedBetweenIterations,
    }
}

/// Whether the next turn of the open iteration, or the one that ran, is an agent task's.
fn in_agent_task(state: &State) -> bool {
    let (graph, current) = (&state.terms.graph, state.current.as_ref());
    let next = current.and_then(|current| graph.next(&current.settled));
    let id = match (state.stage, state.left, next) {
        (Stage::Task(id) | Stage::Recording(id), ..) | (_, Some(Left::Unrecorded(id)), _) => id,
        (_, _, Some(Next::Run(id) | Next::Blocked(id))) => id,
        _ => return false,
    };
    graph.task(id).is_some_and(|task| task.op == Op::Agent)
}

/// The evidence, for a person.
fn detail(state: &State, class: RecoveryClass) -> String {
    let settled = state.counts.total();
    let what = match (class, left(state)) {
        (RecoveryClass::CleanExit, _) => "the log ends with `shutdown`",
        (RecoveryClass::DiedInBaseline, _) if state.best.is_none() => "no baseline was kept",
        (RecoveryClass::DiedInBaseline, _) => "the baseline of another regime was being measured",
        (RecoveryClass::DiedAwaitingApproval, _) => "an ask had no answer",
        (_, Some(Left::Unrecorded(_))) => "the turn was over, and its candidate not recorded",
        (_, Some(Left::Unmeasured)) => "the candidate was recorded, and has no reading",
        (_, Some(Left::Unkept)) => "the decision to keep was written, and its row was not",
        (RecoveryClass::DiedMidTurn, _) => "the turn was begun, and its end was not written",
        (RecoveryClass::DiedInPlanTask, _) => "an agent task was to be done, and had not settled",
        _ => "no iteration was open",
    };
    format!("{what}; {settled} iterations were settled")
}

//! Turns a state and an event into the next state and what must be done: the one loop (contract §4, §7).
//! It refuses to do anything itself.

mod end;
mod operator;
mod resume;
mod settle;
mod task;
mod turn;

use std::time::Duration;

use super::effect::{Effect, Job};
use super::event::{Event, EventKind};
use super::graph::{Next, Op};
use super::state::{Iteration, Stage, State};
use crate::judge::Known;
use crate::log::{Decision, Durability, Phase, RowWire, SessionEvent, TaskStatus};

pub(super) use turn::report;

/// The graph's version; a run has one graph.
pub const PLAN_VERSION: u32 = 1;

/// Folds one event. An event that does not answer what the run waits for changes nothing.
#[must_use]
pub fn step(state: State, event: Event) -> (State, Vec<Effect>) {
    let mut fold = Fold { state, at: event.at, effects: Vec::new() };
    match (fold.state.stage, event.kind) {
        (_, EventKind::Resumed { closed }) => fold.resumed(closed),
        (Stage::Over, _) => {}
        (_, EventKind::Interrupted(interrupt)) => fold.interrupted(interrupt),
        (_, EventKind::OutOfTime) => fold.out_of_time(),
        (_, EventKind::Admitted(arrival)) => fold.admitted(*arrival),
        (Stage::Held, EventKind::Released { timed_out }) => fold.held(timed_out),
        (Stage::SettingUp, EventKind::Charged(usage)) => fold.charged(usage),
        (Stage::SettingUp, EventKind::Ready) => fold.ready(),
        (Stage::Task(id) | Stage::Recording(id), EventKind::Task(end)) if end.task == id => {
            fold.task_ended(*end);
        }
        (Stage::Task(_), EventKind::Spending(usage)) => fold.spending(usage),
        (Stage::Waiting, EventKind::Waited) => fold.waited(),
        (Stage::Snapshotting, EventKind::Snapshotted(result)) => fold.snapshotted(result),
        (Stage::Restoring, EventKind::Restored(result)) => fold.restored(result),
        (Stage::Recalling, EventKind::Recalled(result)) => fold.recalled(result),
        _ => {}
    }
    (fold.state, fold.effects)
}

struct Fold {
    state: State,
    at: Duration,
    effects: Vec<Effect>,
}

impl Fold {
    fn log(&mut self, event: SessionEvent, durability: Durability) {
        self.effects.push(Effect::Log(Box::new(event), durability));
    }

    fn note(&mut self, msg: String) {
        self.log(SessionEvent::Note { msg }, Durability::Buffered);
    }

    /// Tells phase and iteration, once each time the pair changes.
    fn enter(&mut self, phase: Phase, iter: u32) {
        if (self.state.phase, self.state.iter) != (phase, iter) {
            self.state.phase = phase;
            self.state.iter = iter;
            self.log(SessionEvent::Phase { phase, iter }, Durability::Buffered);
        }
    }

    fn run(&mut self, stage: Stage, job: Job) {
        self.state.stage = stage;
        self.effects.push(Effect::Run(job));
    }

    /// The workspace is there: the loop begins, or goes on where another process left it.
    fn ready(&mut self) {
        match self.state.left.take() {
            Some(left) => self.take_up(left),
            None if self.state.ending.is_some() => self.end_or_go_on(),
            None => {
                self.admit();
                self.begin(0);
            }
        }
    }

    fn admit(&mut self) {
        let tasks = self.state.terms.graph.tasks().map(|(_, task)| task.name.clone()).collect();
        let admitted = SessionEvent::PlanAdmitted {
            plan_version: PLAN_VERSION,
            reason: self.state.terms.graph.reason().to_owned(),
            budget_usd: self.state.max_cost(),
            tasks,
            graph: self.state.terms.graph.told(),
        };
        self.log(admitted, Durability::Buffered);
    }

    /// Starts an iteration. The baseline has no turns: what there is was proposed by the setup.
    fn begin(&mut self, iter: u32) {
        self.enter(self.phase_of(iter), iter);
        let row = RowWire::new(iter, if iter == 0 { Decision::Baseline } else { Decision::Discard });
        let mut current = Iteration::new(self.at, row);
        if iter == 0 {
            for id in self.state.terms.graph.turns() {
                current.settled.settle(id, TaskStatus::Pass);
            }
        }
        self.state.current = Some(current);
        self.dispatch();
    }

    /// What the judge may know: of a baseline, also that of another regime, nothing.
    fn known(&self) -> Known {
        let rebase = self.state.current.as_ref().is_some_and(|current| current.rebase.is_some());
        if rebase { Known::default() } else { self.state.known() }
    }

    /// The phase in which an iteration's tasks run.
    fn phase_of(&self, iter: u32) -> Phase {
        match iter {
            0 => Phase::Baseline,
            _ if self.state.dead_turns >= turn::DISTRESSED => Phase::Distressed,
            _ => Phase::Iteration,
        }
    }

    /// Runs the next ready task of the iteration.
    fn dispatch(&mut self) {
        let Some(current) = &self.state.current else { return };
        if self.state.hurried() {
            return self.discard("ended before it was measured".to_owned());
        }
        let id = match self.state.terms.graph.next(&current.settled) {
            Some(Next::Run(id)) => id,
            Some(Next::Blocked(id)) => return self.blocked(id),
            None => return self.discard("no task of the iteration is ready".to_owned()),
        };
        let Some(op) = self.state.terms.graph.task(id).map(|task| task.op) else { return };
        let job = match op {
            Op::Propose | Op::Agent => return self.begin_turn(id, op),
            Op::Apply => Job::Apply { task: id },
            Op::Measure => Job::Measure { task: id, known: self.known() },
            Op::Decide => return self.decide(id),
        };
        self.run(Stage::Task(id), job);
    }
}

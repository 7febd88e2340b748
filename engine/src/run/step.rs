//! Turns a state and an event into the next state and what must be done: the one loop (contract §4, §7).
//! It refuses to do anything itself.

use std::time::Duration;

use serde_json::json;

use super::effect::{Effect, Job};
use super::event::{Event, EventKind, Interrupt, TaskEnd, TaskReport};
use super::graph::{Op, Settled, TaskId};
use super::settling::{Settling, told};
use super::state::{Best, Ending, Iteration, Stage, State};
use crate::decide::Verdict;
use crate::judge::Reading;
use crate::log::{Decision, Durability, Evidence, Outcome, Phase, RowWire, SessionEvent, TaskStatus};

/// The graph's version; a run has one graph.
pub const PLAN_VERSION: u32 = 1;

/// Folds one event. An event that does not answer what the run waits for changes nothing.
#[must_use]
pub fn step(state: State, event: Event) -> (State, Vec<Effect>) {
    let mut fold = Fold { state, at: event.at, effects: Vec::new() };
    match (fold.state.stage, event.kind) {
        (Stage::Over, _) => {}
        (_, EventKind::Interrupted(interrupt)) => fold.interrupted(interrupt),
        (_, EventKind::OutOfTime) => fold.out_of_time(),
        (Stage::SettingUp, EventKind::Ready) => fold.ready(),
        (Stage::Task(id), EventKind::Task(end)) if end.task == id => fold.task_ended(*end),
        (Stage::Snapshotting, EventKind::Snapshotted(result)) => fold.snapshotted(result),
        (Stage::Restoring, EventKind::Restored(result)) => fold.restored(result),
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

    fn note(&mut self, msg: &str) {
        self.log(SessionEvent::Note { msg: msg.to_owned() }, Durability::Buffered);
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

    fn ready(&mut self) {
        if self.state.ending.is_some() {
            return self.end_or_go_on();
        }
        let tasks = self.state.terms.graph.tasks().map(|(_, task)| task.name.clone()).collect();
        let admitted = SessionEvent::PlanAdmitted {
            plan_version: PLAN_VERSION,
            reason: "the built-in graph".to_owned(),
            budget_usd: None,
            tasks,
        };
        self.log(admitted, Durability::Buffered);
        self.begin(Phase::Baseline, 0);
    }

    /// Starts an iteration. The baseline has nothing to propose: what there is was proposed by the setup.
    fn begin(&mut self, phase: Phase, iter: u32) {
        self.enter(phase, iter);
        let mut settled = Settled::default();
        if iter == 0 {
            for (id, task) in self.state.terms.graph.tasks() {
                if task.op == Op::Propose {
                    settled.settle(id, TaskStatus::Pass);
                }
            }
        }
        let row = RowWire::new(iter, if iter == 0 { Decision::Baseline } else { Decision::Discard });
        self.state.current = Some(Iteration { settled, began: self.at, row, reading: None, keeping: None });
        self.dispatch();
    }

    /// Runs the next ready task of the iteration.
    fn dispatch(&mut self) {
        let Some(current) = &self.state.current else { return };
        if self.state.hurried() {
            return self.discard("ended before it was measured".to_owned());
        }
        let Some(id) = self.state.terms.graph.ready(&current.settled) else {
            return self.discard("no task of the iteration is ready".to_owned());
        };
        let Some(op) = self.state.terms.graph.task(id).map(|task| task.op) else { return };
        let job = match op {
            Op::Propose => {
                let iter = self.state.iter;
                self.log(SessionEvent::AgentStart { iter }, Durability::Buffered);
                Job::Propose { task: id, brief: self.state.brief() }
            }
            Op::Apply => Job::Apply { task: id },
            Op::Measure => Job::Measure { task: id, known: self.state.known() },
            Op::Decide => return self.decide(id),
        };
        self.run(Stage::Task(id), job);
    }

    fn task_ended(&mut self, end: TaskEnd) {
        let TaskEnd { task, report, killed, frozen_restored, secs } = end;
        if let Some(current) = &mut self.state.current {
            current.row.killed.extend(killed);
            current.row.frozen_restored.extend(frozen_restored);
        }
        match report {
            TaskReport::Proposed { failure, transport, candidate, escalation } => {
                self.log(SessionEvent::AgentDone, Durability::Buffered);
                let refused = candidate.refused.clone();
                if let Some(current) = &mut self.state.current {
                    current.row.unchanged = candidate.commit.is_some() && !candidate.changed;
                    current.row.diff = candidate.diff;
                    current.row.diffstat = candidate.diffstat;
                    current.row.candidate = candidate.commit;
                    current.row.candidate_md = candidate.account;
                    current.row.dropped = candidate.dropped;
                }
                if let Some(escalation) = escalation {
                    let reason = escalation.reason.clone();
                    let line = SessionEvent::Escalation {
                        category: escalation.category,
                        reason: escalation.reason,
                        evidence: escalation.evidence,
                    };
                    self.log(line, Durability::Durable);
                    self.state.ending.get_or_insert(Ending::Escalated(reason));
                    return self.fail(task, secs, "the agent escalated".to_owned());
                }
                match (transport, failure) {
                    (Some(class), failure) => self.died_of(class, task, secs, failure.unwrap_or_default()),
                    (None, failure) => self.pass_or_fail(task, secs, failure.or(refused)),
                }
            }
            TaskReport::Applied { failure } => self.pass_or_fail(task, secs, failure),
            TaskReport::Measured { reading, shown } => self.measured(task, secs, reading, &shown),
            TaskReport::Broken { reason } => self.broken(task, secs, reason),
        }
    }

    /// What carries the turn failed: the iteration is settled without a measurement, as no fault of the agent's.
    fn died_of(&mut self, class: String, task: TaskId, secs: f64, why: String) {
        let how =
            Settling { transport: Some(class), ..Settling::new(TaskStatus::Transport, why.clone(), secs) };
        self.settle(task, how, Durability::Buffered);
        if let Some(current) = &mut self.state.current {
            current.row.decision = Decision::InfraDead;
        }
        self.discard(why);
    }

    /// The engine could not carry a task out. The iteration gets its row; nothing more is done to the workspace, since
    /// whatever stood in the way may still be there.
    fn broken(&mut self, task: TaskId, secs: f64, reason: String) {
        self.settle(task, Settling::new(TaskStatus::Fail, reason.clone(), secs), Durability::Buffered);
        if let Some(mut current) = self.state.current.take() {
            current.row.note.clone_from(&reason);
            self.count_discard(&mut current);
            self.write_row(current, false, Durability::Durable);
        }
        self.finish(Outcome::Error, reason);
    }

    fn pass_or_fail(&mut self, task: TaskId, secs: f64, failure: Option<String>) {
        match failure {
            Some(why) => self.fail(task, secs, why),
            None => {
                self.settle(task, Settling::new(TaskStatus::Pass, String::new(), secs), Durability::Buffered);
                self.dispatch();
            }
        }
    }

    /// A required task failed: the candidate is discarded without a measurement.
    fn fail(&mut self, task: TaskId, secs: f64, why: String) {
        self.settle(task, Settling::new(TaskStatus::Fail, why.clone(), secs), Durability::Buffered);
        self.discard(why);
    }

    fn measured(&mut self, task: TaskId, secs: f64, reading: Reading, shown: &str) {
        let status = if reading.valid { TaskStatus::Pass } else { TaskStatus::Fail };
        let how = Settling {
            metric: reading.score,
            output: told(&reading, shown),
            ..Settling::new(status, reading.summary(), secs)
        };
        self.settle(task, how, Durability::Buffered);
        if let Some(current) = &mut self.state.current {
            let row = &mut current.row;
            row.score = reading.score;
            row.tiebreak = reading.tiebreak;
            row.total = reading.total();
            row.note = reading.summary();
            row.detail.clone_from(&reading.detail);
            current.reading = Some(reading);
        }
        match status {
            TaskStatus::Pass => self.dispatch(),
            _ => self.settle_row(),
        }
    }

    /// Settles a task of the iteration and tells how.
    fn settle(&mut self, id: TaskId, how: Settling, durability: Durability) {
        let Some(task) = self.state.terms.graph.task(id).cloned() else { return };
        let Settling { status, note, secs, metric, output, transport } = how;
        if let Some(current) = &mut self.state.current {
            current.settled.settle(id, status);
            if task.op != Op::Decide {
                let disposition = status.token().to_owned();
                current.row.evidence.push(Evidence {
                    task: task.name.clone(),
                    disposition,
                    note: note.clone(),
                });
            }
        }
        let line = SessionEvent::TaskResult {
            task: task.name,
            status,
            plan_version: PLAN_VERSION,
            task_kind: task.op.token().to_owned(),
            iter: self.state.iter,
            attempts: 1,
            cost_usd: 0.0,
            metric,
            output,
            note,
            secs,
            transport,
        };
        self.log(line, durability);
    }

    /// The universal rule. What it says is on the disk before anything follows from it.
    fn decide(&mut self, id: TaskId) {
        let Some(reading) = self.state.current.as_ref().and_then(|current| current.reading.clone()) else {
            return self.discard("nothing was measured".to_owned());
        };
        let best = self.state.best.as_ref().map(|best| best.standing);
        match self.state.terms.rule.decide(&reading, best) {
            Verdict::Keep { standing, solved } => {
                if let Some(current) = &mut self.state.current {
                    current.keeping = Some(standing);
                }
                let how = Settling {
                    metric: Some(standing.score),
                    output: Some(json!({ "keep": true, "solved": solved })),
                    ..Settling::new(TaskStatus::Pass, String::new(), 0.0)
                };
                self.settle(id, how, Durability::Durable);
                self.run(Stage::Snapshotting, Job::Snapshot);
            }
            Verdict::Discard => self.settle_row(),
        }
    }

    fn snapshotted(&mut self, result: Result<String, String>) {
        let kept = self
            .state
            .current
            .as_ref()
            .and_then(|current| Some((current.keeping?, current.reading.clone()?)));
        let (token, (standing, reading)) = match (result, kept) {
            (Ok(token), Some(kept)) => (token, kept),
            (Ok(_), None) => return self.discard("nothing was to be kept".to_owned()),
            (Err(why), _) => return self.discard(format!("the snapshot failed, so nothing is kept: {why}")),
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
    fn discard(&mut self, why: String) {
        if let Some(current) = &mut self.state.current {
            current.row.note = why;
        }
        self.settle_row();
    }

    /// Writes the row of a discarded candidate, then goes back to the best.
    fn settle_row(&mut self) {
        let Some(mut current) = self.state.current.take() else { return };
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
    fn count_discard(&mut self, current: &mut Iteration) {
        let invalid = !current.reading.as_ref().is_some_and(|reading| reading.valid);
        if self.state.iter == 0 {
            current.row.decision = Decision::BaselineSkipped;
            return;
        }
        let counts = &mut self.state.counts;
        let count = if invalid { &mut counts.invalid } else { &mut counts.discarded };
        *count = count.saturating_add(1);
    }

    fn write_row(&mut self, current: Iteration, solved: bool, durability: Durability) {
        let elapsed = self.at.saturating_sub(current.began).as_secs_f64();
        let row = RowWire { secs: elapsed, ..current.row };
        if row.iter > 0 {
            self.state.remember(&row);
        }
        self.log(SessionEvent::Row { row: Box::new(row), solved }, durability);
        let elapsed_secs = self.at.as_secs_f64();
        self.log(SessionEvent::Budget { spent: 0.0, elapsed_secs }, Durability::Buffered);
    }

    fn restored(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => self.end_or_go_on(),
            Err(why) => self.finish(Outcome::Error, format!("the workspace could not be put back: {why}")),
        }
    }

    /// After a settled iteration: the next one, or the end.
    fn end_or_go_on(&mut self) {
        let left = self.state.counts.total() < self.state.terms.iterations;
        let (outcome, reason) = match &self.state.ending {
            Some(Ending::Solved) => (Outcome::Solved, "the judge declared the win".to_owned()),
            Some(Ending::Escalated(why)) => (Outcome::Escalated, why.clone()),
            Some(Ending::Abort) => (Outcome::Stopped, "aborted by the operator".to_owned()),
            Some(Ending::Stop) => (Outcome::Stopped, "stopped by the operator".to_owned()),
            Some(Ending::OutOfTime) if left => {
                (Outcome::Budget, "the wall-clock ceiling refused the next iteration".to_owned())
            }
            _ if !left => (Outcome::Finished, "all iterations were run".to_owned()),
            _ => {
                let next = self.state.counts.total().saturating_add(1);
                return self.begin(Phase::Iteration, next);
            }
        };
        self.finish(outcome, reason);
    }

    fn interrupted(&mut self, interrupt: Interrupt) {
        let ending = match (interrupt, &self.state.ending) {
            (_, Some(Ending::Abort)) => return,
            (Interrupt::Stop, Some(_)) => return,
            (Interrupt::Stop, None) => Ending::Stop,
            (Interrupt::Abort, _) => Ending::Abort,
        };
        let aborting = ending == Ending::Abort;
        self.note(if aborting {
            "abort asked for: ending what runs"
        } else {
            "stop asked for: ending after this iteration; once more ends it now"
        });
        self.state.ending = Some(ending);
        if aborting {
            self.hurry();
        }
    }

    fn out_of_time(&mut self) {
        if self.state.ending.is_none() {
            self.note("the wall-clock ceiling is reached");
            self.state.ending = Some(Ending::OutOfTime);
            self.hurry();
        }
    }

    /// Ends the running task early. What keeps or puts back the workspace is always let finish.
    fn hurry(&mut self) {
        if matches!(self.state.stage, Stage::Task(_)) {
            self.effects.push(Effect::Cancel);
        }
    }

    fn finish(&mut self, outcome: Outcome, reason: String) {
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

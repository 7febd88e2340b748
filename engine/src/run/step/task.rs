//! Turns what a task of an iteration brought back into how it settled, and the next task (contract §3, §4).
//! It refuses to know how a row is written.

use serde_json::json;

use super::{Fold, PLAN_VERSION};
use crate::agent::with_last_line;
use crate::decide::Verdict;
use crate::judge::Reading;
use crate::log::{Durability, EndingCause, Evidence, FrozenHash, Outcome, SessionEvent, TaskStatus};
use crate::run::effect::Job;
use crate::run::event::{TaskEnd, TaskReport};
use crate::run::graph::{Op, Settled, TaskId};
use crate::run::settling::{Settling, told};
use crate::run::state::Stage;

/// How often a candidate that does not build is given back in one iteration (note N11).
const REBUILDS: u32 = 2;

impl Fold {
    pub(super) fn task_ended(&mut self, end: TaskEnd) {
        let TaskEnd { task, report, killed, frozen_restored, secs } = end;
        let ended = (killed, frozen_restored);
        if let Some(current) = &mut self.state.current {
            current.row.killed.extend(ended.0.iter().cloned());
            current.row.frozen_restored.extend(ended.1.iter().cloned());
        }
        match report {
            TaskReport::Turned(turn) => self.turned(task, secs, (*turn, ended)),
            TaskReport::Recorded { candidate } => self.candidate_recorded(task, secs, *candidate),
            TaskReport::Applied { failure } => self.pass_or_fail(task, secs, failure),
            TaskReport::Unbuilt { output } => self.unbuilt(task, secs, output),
            TaskReport::Measured { reading, frozen, shown } => {
                self.measured(task, secs, (reading, frozen), &shown);
            }
            TaskReport::Broken { reason } => self.broken(task, secs, reason),
        }
    }

    /// The engine could not carry a task out. The iteration gets its row; nothing more is done to the workspace, since
    /// whatever stood in the way may still be there.
    fn broken(&mut self, task: TaskId, secs: f64, reason: String) {
        self.log_ending(EndingCause::Broken, reason.clone());
        self.settle(task, Settling::new(TaskStatus::Fail, reason.clone(), secs), Durability::Buffered);
        // A baseline of another regime has no row.
        if let Some(mut current) = self.state.current.take().filter(|current| current.rebase.is_none()) {
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

    /// The candidate does not build. The agent gets the output and another turn on the tree as it left it, which costs no
    /// iteration; a few times at most.
    fn unbuilt(&mut self, task: TaskId, secs: f64, output: String) {
        let iter = self.state.iter;
        let ending = self.state.ending.is_some();
        let affordable = self.state.cost_left().is_none_or(|left| left > 0.0);
        let name = self.state.terms.graph.task(task).map(|task| task.name.clone()).unwrap_or_default();
        match &mut self.state.current {
            // The best that is measured in another regime is no turn's work to mend.
            Some(current)
                if iter > 0
                    && current.rebase.is_none()
                    && !ending
                    && affordable
                    && current.rebuilds < REBUILDS =>
            {
                current.rebuilds = current.rebuilds.saturating_add(1);
                current.unbuilt = Some(output.clone());
                current.settled = Settled::default();
                current.outputs.clear();
                current.row.evidence.clear();
                let attempt = current.rebuilds;
                let line = SessionEvent::Rebuild { task: name, iter, attempt, output, secs };
                self.log(line, Durability::Buffered);
                self.dispatch();
            }
            _ => {
                let why = "apply_cmd says that the candidate does not build (exit code 75)";
                self.fail(task, secs, with_last_line(why, output.as_bytes()));
            }
        }
    }

    fn measured(
        &mut self,
        task: TaskId,
        secs: f64,
        (reading, frozen): (Reading, Vec<FrozenHash>),
        shown: &str,
    ) {
        let status = if reading.valid { TaskStatus::Pass } else { TaskStatus::Fail };
        let how = Settling {
            metric: reading.score,
            output: told(&reading, &frozen, shown),
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
            row.frozen = frozen;
            current.reading = Some(reading);
        }
        match status {
            TaskStatus::Pass => self.dispatch(),
            _ => self.settle_row(),
        }
    }

    /// Settles a task of the iteration and tells how.
    pub(super) fn settle(&mut self, id: TaskId, how: Settling, durability: Durability) {
        let Some(task) = self.state.terms.graph.task(id).cloned() else { return };
        let Settling { status, note, secs, metric, output, recorded, transport, blocked } = how;
        let mut attempts = u32::from(blocked.is_none());
        let mut used = crate::agent::Usage::default();
        if let Some(current) = &mut self.state.current {
            current.settled.settle(id, status);
            if task.op.is_turn() {
                attempts = std::mem::take(&mut current.attempts);
                used = std::mem::take(&mut current.used);
                current.secs = 0.0;
                current.outputs.extend(output.clone().map(|output| (id, output)));
            }
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
            attempts,
            cost_usd: used.cost_usd.unwrap_or(0.0),
            input_tokens: used.input_tokens,
            output_tokens: used.output_tokens,
            metric,
            output,
            recorded,
            note,
            secs,
            transport,
            blocked,
        };
        self.log(line, durability);
    }

    /// The universal rule. What it says is on the disk before anything follows from it.
    pub(super) fn decide(&mut self, id: TaskId) {
        let Some(reading) = self.state.current.as_ref().and_then(|current| current.reading.clone()) else {
            return self.discard("nothing was measured".to_owned());
        };
        if self.state.current.as_ref().is_some_and(|current| current.rebase.is_some()) {
            return self.rebased(&reading);
        }
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
}

//! Turns an agent turn that is to run, runs, or is over into what follows from it (contract §6, note N10).
//! It refuses to know what carried the turn.

use std::time::Duration;

use driver::TransportClass;

use super::Fold;
use crate::agent::task::standing;
use crate::agent::{Brief, Escalation, Upstream, Usage, Usd};
use crate::log::{Decision, Durability, EscalationWire, Phase, SessionEvent, TaskStatus, TurnWire};
use crate::manifest::Join;
use crate::run::effect::{Effect, Job};
use crate::run::event::{Candidate, TurnReport};
use crate::run::graph::{Op, TaskId};
use crate::run::settling::{Settling, recorded};
use crate::run::state::{Ending, Iteration, Stage, TurnEnded};

/// After so many dead turns in a row the run is distressed.
pub(super) const DISTRESSED: u32 = 2;
/// After so many in a row that died, or that changed nothing, it is stalled.
const STALLED: u32 = 3;
/// How often the turn of one iteration is attempted.
const ATTEMPTS: u32 = 2;
/// The longest pause between two attempts that nobody asked for.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The longest pause that a provider may ask for.
const RESET_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl Fold {
    /// Starts a turn, or the pause before it.
    pub(super) fn begin_turn(&mut self, task: TaskId, op: Op) {
        let attempts = self.state.current.as_ref().map_or(0, |current| current.attempts);
        if attempts > 0 && self.state.ending.is_some() {
            return self.waited();
        }
        if self.is_too_dear() {
            let note = "the cost ceiling refused its turn: nothing of it is left".to_owned();
            return self.not_run(task, Settling::blocked("budget_ceiling", None, note));
        }
        if let Some(pause) = self.state.pause.take() {
            return self.run(Stage::Waiting, Job::Wait { pause });
        }
        let iter = self.state.iter;
        let left = self.state.cost_left();
        self.state.charged = false;
        if let Some(current) = &mut self.state.current {
            current.attempts = current.attempts.saturating_add(1);
            // The whole of what is left, since only one turn runs at a time; what it does not use is free again.
            current.reserved = left;
        }
        let name = self.name(task);
        let named = (op == Op::Agent).then(|| name.clone());
        self.log(SessionEvent::AgentStart { iter, task: named }, Durability::Buffered);
        if op == Op::Agent {
            let (brief, upstream) = (self.state.brief(), self.upstream(task));
            return self.run(Stage::Task(task), Job::Agent { task, name, brief, upstream });
        }
        let steer = self.steer();
        let brief = Brief { steer, ..self.state.brief() };
        self.run(Stage::Task(task), Job::Propose { task, brief });
    }

    /// Whether the turns before this one of the iteration have used all that there was.
    fn is_too_dear(&self) -> bool {
        let Some(current) = &self.state.current else { return false };
        let is_first = self.state.terms.graph.turns().all(|id| current.settled.status(id).is_none());
        !is_first && self.state.cost_left().is_some_and(|left| left <= 0.0)
    }

    /// What the tasks came to that an agent task waited for: all of them, or those that passed.
    fn upstream(&self, id: TaskId) -> Vec<Upstream> {
        let graph = &self.state.terms.graph;
        let (Some(task), Some(current)) = (graph.task(id), &self.state.current) else { return Vec::new() };
        let one = |id: &TaskId| {
            let task = graph.task(*id)?.name.clone();
            let status = current.settled.status(*id)?;
            let said = current.row.evidence.iter().rev().find(|evidence| evidence.task == task);
            let note = said.map(|evidence| evidence.note.clone()).unwrap_or_default();
            let output = current.outputs.iter().rev().find(|(of, _)| of == id);
            Some(Upstream { task, status, note, output: output.map(|(_, output)| output.clone()) })
        };
        let all = task.depends_on.iter().filter_map(one);
        all.filter(|task_of| task.join != Join::Passed || task_of.status == TaskStatus::Pass).collect()
    }

    fn name(&self, task: TaskId) -> String {
        self.state.terms.graph.task(task).map(|task| task.name.clone()).unwrap_or_default()
    }

    /// A task that cannot run, because too few of those that it waited for have passed.
    pub(super) fn blocked(&mut self, task: TaskId) {
        let note = "too few of the tasks that it waits for have passed".to_owned();
        self.not_run(task, Settling::blocked("dependency_did_not_pass", None, note));
    }

    fn not_run(&mut self, task: TaskId, how: Settling) {
        let note = how.note.clone();
        self.settle(task, how, Durability::Buffered);
        self.go_on_after(task, (TaskStatus::Blocked, note));
    }

    /// A pause is over. Whoever ended it early wants no other attempt.
    pub(super) fn waited(&mut self) {
        if self.state.ending.is_none() {
            return self.dispatch();
        }
        if let Some(current) = &mut self.state.current
            && current.attempts > 0
        {
            current.row.decision = Decision::InfraDead;
        }
        self.discard("ended before its turn was tried again".to_owned());
    }

    /// A turn that passes what was reserved for it is ended.
    pub(super) fn spending(&mut self, usage: Usage) {
        let Some(current) = &mut self.state.current else { return };
        let Some((reserved, cost)) = current.reserved.zip(usage.cost_usd) else { return };
        if cost > reserved {
            current.reserved = None;
            let (cost, reserved) = (Usd(cost), Usd(reserved));
            self.note(format!("the turn has used ${cost}, of ${reserved} that were left: ending it"));
            self.effects.push(Effect::Cancel);
        }
    }

    /// A turn is over. That is on the disk before anything else is done, so that it is never taken again.
    pub(super) fn turned(&mut self, task: TaskId, secs: f64, (turn, ended): (TurnReport, Ended)) {
        let mut line = wire(&turn, self.state.current.as_ref(), (secs, ended));
        let of = self.state.terms.graph.task(task);
        line.task = of.filter(|task| task.op == Op::Agent).map(|task| task.name.clone());
        let advisory = of.is_some_and(|task| !task.required);
        self.log(SessionEvent::AgentDone(Box::new(line)), Durability::Durable);
        self.state.charged = true;
        self.state.used = self.state.used.plus(turn.usage);
        if self.state.max_cost().is_some() && turn.usage.cost_usd.is_none() && !self.state.unpriced {
            self.state.unpriced = true;
            self.note(
                "warning: the turn did not say what it cost, so the cost ceiling cannot hold it".to_owned(),
            );
        }
        let TurnReport { failure, transport, retry_after, usage, account, .. } = turn;
        let TurnReport { escalation, ask, result, started, dropped, .. } = turn;
        self.delivered(started);
        if let Some(ask) = ask {
            self.asked(ask);
        }
        let Some(current) = &mut self.state.current else { return };
        current.used = current.used.plus(usage);
        current.secs += secs;
        current.reserved = None;
        current.row.cost_usd = Usage::new(current.row.cost_usd, None, None).plus(usage).cost_usd;
        if !account.is_empty() {
            current.row.candidate_md = account;
        }
        current.row.dropped.extend(dropped);
        let escalated = escalation.is_some();
        let over = TurnEnded { failure, transport: transport.clone(), escalated, result };
        let left_nothing = advisory && !over.standing(None).0.is_good();
        current.turn = Some(over);
        if let Some(Escalation { category, reason, evidence }) = escalation {
            self.state.ending.get_or_insert(Ending::Escalated(reason.clone()));
            // The turn's line says it too, and is on the disk.
            self.log(SessionEvent::Escalation { category, reason, evidence }, Durability::Buffered);
        }
        match transport {
            Some(class) if self.turn_died(&class, retry_after) => return self.try_again(task, class),
            None => {
                self.state.dead_turns = 0;
                self.enter(Phase::Iteration, self.state.iter);
            }
            Some(_) => {}
        }
        match left_nothing {
            true => self.unrecorded(task),
            false => self.record(task),
        }
    }

    /// An advisory turn failed: nothing that it left becomes part of the candidate.
    fn unrecorded(&mut self, task: TaskId) {
        let Some(current) = &mut self.state.current else { return };
        let turn = current.turn.take().unwrap_or_default();
        let (status, why) = turn.standing(None);
        let (output, transport, secs) = (turn.result, turn.transport, current.secs);
        let how = Settling { output, transport, ..Settling::new(status, why.clone(), secs) };
        self.settle(task, how, Durability::Buffered);
        self.go_on_after(task, (status, why));
    }

    pub(super) fn record(&mut self, task: TaskId) {
        let iter = self.state.iter;
        self.run(Stage::Recording(task), Job::Record { task, iter });
    }

    /// Counts a turn that died of what carries it. Whether the iteration is worth another attempt.
    fn turn_died(&mut self, class: &str, retry_after: Option<Duration>) -> bool {
        self.state.dead_turns = self.state.dead_turns.saturating_add(1);
        let dead = self.state.dead_turns;
        let patience = patience(class);
        let backoff = patience.unwrap_or(PAUSE_MAX).saturating_mul(1 << dead.saturating_sub(1).min(6));
        let reset = retry_after.unwrap_or_default().min(RESET_MAX);
        self.state.pause = Some(backoff.min(PAUSE_MAX).max(reset));
        if dead >= STALLED {
            let why = format!("{dead} turns in a row died of what carries them, the last one of `{class}`");
            self.state.ending.get_or_insert(Ending::Stalled(why));
        }
        let attempts = self.state.current.as_ref().map_or(0, |current| current.attempts);
        let affordable = self.state.cost_left().is_none_or(|left| left > 0.0);
        let again = patience.is_some() && attempts < ATTEMPTS && affordable && self.state.ending.is_none();
        if dead == DISTRESSED {
            self.enter(Phase::Distressed, self.state.iter);
        }
        again
    }

    /// The workspace goes back to the best, and then the turn is tried again.
    fn try_again(&mut self, task: TaskId, class: String) {
        let name = self.name(task);
        let current = self.state.current.as_mut();
        let (attempt, turn) = current.map_or((0, None), |current| (current.attempts, current.turn.take()));
        let note = turn.and_then(|turn| turn.failure).unwrap_or_default();
        let wait_secs = self.state.pause.unwrap_or_default().as_secs_f64();
        let iter = self.state.iter;
        let line = SessionEvent::Retry { task: name, iter, attempt, transport: class, note, wait_secs };
        self.log(line, Durability::Buffered);
        self.go_back();
    }

    /// What a turn left is recorded.
    pub(super) fn candidate_recorded(&mut self, task: TaskId, secs: f64, candidate: Candidate) {
        let told = recorded(&candidate);
        let Candidate { commit, refused, changed, diff, diffstat, dropped } = candidate;
        let of = self.state.terms.graph.task(task);
        let (is_agents, required) = of.map_or((false, true), |task| (task.op == Op::Agent, task.required));
        let Some(current) = &mut self.state.current else { return };
        let turn = current.turn.take().unwrap_or_default();
        let (status, why) = turn.standing(refused);
        let said = &mut current.row.dropped;
        let new: Vec<String> = dropped.into_iter().filter(|dropped| !said.contains(dropped)).collect();
        said.splice(0..0, new);
        if required || status.is_good() {
            current.row.unchanged = commit.is_some() && !changed;
            current.row.diff = diff;
            current.row.diffstat = diffstat;
            current.row.candidate = commit;
        }
        let secs = current.secs + secs;
        let (output, recorded) = if is_agents { (turn.result, Some(told)) } else { (Some(told), None) };
        let transport = turn.transport;
        let how = Settling { transport, output, recorded, ..Settling::new(status, why.clone(), secs) };
        self.settle(task, how, Durability::Buffered);
        self.go_on_after(task, (status, why));
    }

    /// A turn settled so, or a task was not run: the next task, or the end of the candidate.
    fn go_on_after(&mut self, id: TaskId, (status, why): (TaskStatus, String)) {
        let graph = &self.state.terms.graph;
        let Some(task) = graph.task(id).cloned() else { return };
        let Some(current) = &mut self.state.current else { return };
        let discards = task.required && !status.is_good();
        let (idle, was_run) = (current.row.unchanged, status != TaskStatus::Blocked);
        let turns_are_over = discards || !graph.has_turns_left(&current.settled);
        if discards && status == TaskStatus::Transport {
            // No fault of the agent's.
            current.row.decision = Decision::InfraDead;
        } else if turns_are_over && task.op.is_turn() {
            self.count_idle(idle);
        }
        match (discards, status.is_good()) {
            (true, _) => {
                let why =
                    if task.op == Op::Propose && was_run { why } else { format!("`{}`: {why}", task.name) };
                self.block_agents(&task.name);
                self.discard(why);
            }
            (false, false) if was_run => self.go_back(),
            _ => self.dispatch(),
        }
    }

    /// The agent tasks that are left are not run, since this required task failed.
    fn block_agents(&mut self, failed: &str) {
        let Some(current) = &self.state.current else { return };
        let graph = &self.state.terms.graph;
        let left = graph.tasks().filter(|(id, _)| current.settled.status(*id).is_none());
        let left: Vec<TaskId> = left.filter(|(_, task)| task.op == Op::Agent).map(|(id, _)| id).collect();
        for id in left {
            let note = format!("the required task `{failed}` failed");
            let how = Settling::blocked("required_task_failed", Some(failed.to_owned()), note);
            self.settle(id, how, Durability::Buffered);
        }
    }

    /// A turn that changed nothing is measured like any other; too many in a row end the run.
    fn count_idle(&mut self, idle: bool) {
        self.state.idle_turns = if idle { self.state.idle_turns.saturating_add(1) } else { 0 };
        if self.state.idle_turns >= STALLED {
            let why = format!("{} turns in a row changed nothing", self.state.idle_turns);
            self.state.ending.get_or_insert(Ending::Stalled(why));
        }
    }
}

impl TurnEnded {
    /// How its task settles, and why; `refused` is why what it left is no candidate.
    fn standing(&self, refused: Option<String>) -> (TaskStatus, String) {
        match (self, refused) {
            (TurnEnded { transport: Some(_), failure, .. }, _) => {
                (TaskStatus::Transport, failure.clone().unwrap_or_default())
            }
            (TurnEnded { escalated: true, .. }, _) => (TaskStatus::Fail, "the agent escalated".to_owned()),
            (TurnEnded { failure: Some(why), .. }, _) => (TaskStatus::Fail, why.clone()),
            (_, Some(why)) => (TaskStatus::Fail, why),
            (TurnEnded { result: Some(result), .. }, _) => standing(result),
            _ => (TaskStatus::Pass, String::new()),
        }
    }
}

/// How long to wait before a turn that died of this class is tried again, the first time; `None` where it would only
/// die again.
fn patience(class: &str) -> Option<Duration> {
    match TransportClass::parse(class)? {
        TransportClass::Provider => Some(Duration::from_secs(5)),
        TransportClass::Gateway
        | TransportClass::Sandbox
        | TransportClass::Agent
        | TransportClass::Workspace => Some(Duration::from_secs(1)),
        TransportClass::Command | TransportClass::Other => None,
    }
}

/// Processes that a turn left and that were ended, and frozen files that were put back after it.
type Ended = (Vec<String>, Vec<String>);

/// The line of a turn; its iteration has what its prompt had.
fn wire(turn: &TurnReport, current: Option<&Iteration>, (secs, ended): (f64, Ended)) -> TurnWire {
    let (killed, frozen_restored) = ended;
    let carried = current.filter(|_| turn.started).into_iter().flat_map(|current| &current.carried);
    let escalation = turn
        .escalation
        .clone()
        .map(|Escalation { category, reason, evidence }| EscalationWire { category, reason, evidence });
    TurnWire {
        failure: turn.failure.clone(),
        transport: turn.transport.clone(),
        retry_after_secs: turn.retry_after.map(|after| after.as_secs_f64()),
        cost_usd: turn.usage.cost_usd,
        input_tokens: turn.usage.input_tokens,
        output_tokens: turn.usage.output_tokens,
        candidate_md: turn.account.clone(),
        escalation,
        ask: turn.ask.clone(),
        delivered: carried.map(|(key, _)| key.to_string()).collect(),
        unstarted: !turn.started,
        task: None,
        result: turn.result.clone(),
        killed,
        frozen_restored,
        dropped: turn.dropped.clone(),
        secs,
    }
}

/// What [`wire`] told.
pub(in crate::run) fn report(line: TurnWire) -> TurnReport {
    let escalation = line.escalation.map(|EscalationWire { category, reason, evidence }| Escalation {
        category,
        reason,
        evidence,
    });
    let after = line.retry_after_secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    TurnReport {
        failure: line.failure,
        transport: line.transport,
        retry_after: after,
        usage: Usage::new(line.cost_usd, line.input_tokens, line.output_tokens),
        account: line.candidate_md,
        escalation,
        ask: line.ask,
        result: line.result,
        started: !line.unstarted,
        dropped: line.dropped,
    }
}

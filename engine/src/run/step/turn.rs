//! Turns an agent turn that is to run, runs, or is over into what follows from it (contract §6, note N10).
//! It refuses to know what carried the turn.

use std::time::Duration;

use driver::TransportClass;

use super::Fold;
use crate::agent::{Brief, Escalation, Usage, Usd};
use crate::log::{Decision, Durability, EscalationWire, Phase, SessionEvent, TaskStatus, TurnWire};
use crate::run::effect::{Effect, Job};
use crate::run::event::{Candidate, TurnReport};
use crate::run::graph::TaskId;
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
    pub(super) fn propose(&mut self, task: TaskId) {
        let attempts = self.state.current.as_ref().map_or(0, |current| current.attempts);
        if attempts > 0 && self.state.ending.is_some() {
            return self.waited();
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
        self.log(SessionEvent::AgentStart { iter }, Durability::Buffered);
        let steer = self.steer();
        let brief = Brief { steer, ..self.state.brief() };
        self.run(Stage::Task(task), Job::Propose { task, brief });
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
    pub(super) fn proposed(&mut self, task: TaskId, secs: f64, turn: TurnReport) {
        let line = wire(&turn, self.state.current.as_ref(), secs);
        self.log(SessionEvent::AgentDone(Box::new(line)), Durability::Durable);
        self.state.used = self.state.used.plus(turn.usage);
        if self.state.max_cost().is_some() && turn.usage.cost_usd.is_none() && !self.state.unpriced {
            self.state.unpriced = true;
            self.note(
                "warning: the turn did not say what it cost, so the cost ceiling cannot hold it".to_owned(),
            );
        }
        let TurnReport { failure, transport, retry_after, usage, account, escalation, ask, started, dropped } =
            turn;
        self.delivered(started);
        if let Some(ask) = ask {
            self.asked(ask);
        }
        let Some(current) = &mut self.state.current else { return };
        current.used = current.used.plus(usage);
        current.secs += secs;
        current.reserved = None;
        current.row.cost_usd = current.used.cost_usd;
        current.row.candidate_md = account;
        current.row.dropped = dropped;
        current.turn =
            Some(TurnEnded { failure, transport: transport.clone(), escalated: escalation.is_some() });
        if let Some(Escalation { category, reason, evidence }) = escalation {
            self.state.ending.get_or_insert(Ending::Escalated(reason.clone()));
            // The turn's line says it too, and is on the disk.
            self.log(SessionEvent::Escalation { category, reason, evidence }, Durability::Buffered);
        }
        match transport {
            Some(class) if self.turn_died(&class, retry_after) => self.try_again(task, class),
            None => {
                self.state.dead_turns = 0;
                self.enter(Phase::Iteration, self.state.iter);
                self.record(task);
            }
            Some(_) => self.record(task),
        }
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
        let name = self.state.terms.graph.task(task).map(|task| task.name.clone()).unwrap_or_default();
        let current = self.state.current.as_mut();
        let (attempt, turn) = current.map_or((0, None), |current| (current.attempts, current.turn.take()));
        let note = turn.and_then(|turn| turn.failure).unwrap_or_default();
        let wait_secs = self.state.pause.unwrap_or_default().as_secs_f64();
        let iter = self.state.iter;
        let line = SessionEvent::Retry { task: name, iter, attempt, transport: class, note, wait_secs };
        self.log(line, Durability::Buffered);
        match &self.state.best {
            Some(best) => {
                let token = best.token.clone();
                self.run(Stage::Restoring, Job::Restore { token });
            }
            None => self.dispatch(),
        }
    }

    /// What a turn left is recorded.
    pub(super) fn candidate_recorded(&mut self, task: TaskId, secs: f64, candidate: Candidate) {
        let output = recorded(&candidate);
        let Candidate { commit, refused, changed, diff, diffstat, dropped } = candidate;
        let Some(current) = &mut self.state.current else { return };
        current.row.unchanged = commit.is_some() && !changed;
        current.row.diff = diff;
        current.row.diffstat = diffstat;
        current.row.candidate = commit;
        let mut all = dropped;
        all.append(&mut current.row.dropped);
        current.row.dropped = all;
        let idle = current.row.unchanged;
        let turn = current.turn.take().unwrap_or_default();
        let secs = current.secs + secs;
        let (status, why) = match (&turn, refused) {
            (TurnEnded { transport: Some(_), failure, .. }, _) => {
                (TaskStatus::Transport, failure.clone().unwrap_or_default())
            }
            (TurnEnded { escalated: true, .. }, _) => (TaskStatus::Fail, "the agent escalated".to_owned()),
            (TurnEnded { failure: Some(why), .. }, _) => (TaskStatus::Fail, why.clone()),
            (_, Some(why)) => (TaskStatus::Fail, why),
            _ => (TaskStatus::Pass, String::new()),
        };
        let died = turn.transport.is_some();
        let how = Settling {
            transport: turn.transport,
            output: Some(output),
            ..Settling::new(status, why.clone(), secs)
        };
        self.settle(task, how, Durability::Buffered);
        if !died {
            self.count_idle(idle);
        }
        if died && let Some(current) = &mut self.state.current {
            // No fault of the agent's.
            current.row.decision = Decision::InfraDead;
        }
        if status == TaskStatus::Pass { self.dispatch() } else { self.discard(why) }
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

/// The line of a turn; its iteration has what its prompt had, and what was ended and put back after it.
fn wire(turn: &TurnReport, current: Option<&Iteration>, secs: f64) -> TurnWire {
    let row = current.map(|current| &current.row);
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
        killed: row.map(|row| row.killed.clone()).unwrap_or_default(),
        frozen_restored: row.map(|row| row.frozen_restored.clone()).unwrap_or_default(),
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
        started: !line.unstarted,
        dropped: line.dropped,
    }
}

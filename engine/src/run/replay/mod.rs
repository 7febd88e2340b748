//! Turns the lines of a session log into the state that the run was in, by the same steps that wrote them (contract §7).
//! It refuses to decide anything: each line must be what `step` says, or it is the first divergence.

mod agree;
mod infer;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::effect::Effect;
use super::event::{Event, EventKind};
use super::graph::Graph;
use super::state::{State, Terms};
use super::step::step;
use crate::admission::Settled;
use crate::decide::Rule;
use crate::log::{Entry, Outcome, Phase, PlanTask, SessionEvent};
use crate::score::Direction;

/// The first line that does not follow from those before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("follow the log at line {line}{}: {why}", seq.map(|seq| format!(" (seq {seq})")).unwrap_or_default())]
pub struct Divergence {
    /// Counts the readable lines, from 1.
    pub line: u64,
    /// Its sequence number, where it has one.
    pub seq: Option<u64>,
    /// What was expected there, and what stands there.
    pub why: String,
}

/// What a log has said so far. At most one step ahead of it: a step's lines are expected until they are seen.
#[derive(Debug)]
pub struct Replay {
    graph: Graph,
    /// For logs that do not say which way scores get better.
    rule: Option<Rule>,
    /// None before the first `start`, and while a step is made.
    state: Option<State>,
    expected: VecDeque<SessionEvent>,
    closed: bool,
    identity: Option<String>,
    goal: Option<String>,
    max_time: Option<Duration>,
    settled: Settled,
    lines: u64,
    /// The sequence number of the last line that had one.
    seq: Option<u64>,
    /// The inputs that were taken up.
    heard: BTreeSet<String>,
    times: Times,
    /// When the last line was written, as it says.
    last: String,
}

/// A log that was read to its end.
#[derive(Debug)]
pub struct Replayed {
    /// Where the run stands.
    pub state: State,
    /// Lines that follow from those that are there, and were not written.
    pub unwritten: Vec<SessionEvent>,
    /// Whether its last process ended on purpose.
    pub closed: bool,
    /// How long its processes lived, in all.
    pub elapsed: Duration,
    /// The last identity that was told.
    pub identity: Option<String>,
    /// The goal's text.
    pub goal: String,
    /// The wall-clock ceiling.
    pub max_time: Option<Duration>,
    /// The inputs that were settled by what the log says, whether the ledger knows it or not.
    pub settled: Settled,
    /// The keys of the inputs that were taken up.
    pub heard: BTreeSet<String>,
    /// Readable lines.
    pub lines: u64,
    /// The number of the last one; 0 where none has one.
    pub seq: u64,
}

/// Counts the time in which a process of the run lived, by the time stamps of its lines.
#[derive(Debug, Default)]
struct Times {
    /// When the process began, and what was counted before it.
    began: Option<(Timestamp, Duration)>,
    at: Duration,
}

impl Times {
    fn begin(&mut self, now: Option<Timestamp>) {
        self.began = now.map(|now| (now, self.at));
    }

    /// Never goes back, whatever the machine's clock did.
    fn see(&mut self, now: Option<Timestamp>) {
        if let (Some(now), Some((began, before))) = (now, self.began) {
            let lived = Duration::try_from(now.duration_since(began)).unwrap_or_default();
            self.at = self.at.max(before.saturating_add(lived));
        }
    }
}

impl Replay {
    /// Begins before the first line. `rule` is for logs of before they said which way scores get better.
    #[must_use]
    pub fn new(graph: Graph, rule: Option<Rule>) -> Replay {
        Replay {
            graph,
            rule,
            state: None,
            expected: VecDeque::new(),
            closed: false,
            identity: None,
            goal: None,
            max_time: None,
            settled: Settled::new(),
            lines: 0,
            seq: None,
            heard: BTreeSet::new(),
            times: Times::default(),
            last: String::new(),
        }
    }

    /// Where the run stands after what was seen; none before the first line of a run.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// [`Divergence`] when it does not follow.
    pub fn see(&mut self, entry: &Entry) -> Result<(), Divergence> {
        self.lines = self.lines.saturating_add(1);
        let told = self.counts(entry).and_then(|()| self.follows(entry));
        if let Some(ts) = &entry.ts {
            self.last.clone_from(ts);
        }
        told.map_err(|why| Divergence { line: self.lines, seq: entry.seq, why })
    }

    /// Lines are numbered one by one. Those of before there were numbers have none.
    fn counts(&mut self, entry: &Entry) -> Result<(), String> {
        let Some(seq) = entry.seq else { return Ok(()) };
        match self.seq.replace(seq) {
            Some(before) => agree::same("seq", &before.saturating_add(1), &seq),
            None => Ok(()),
        }
    }

    fn follows(&mut self, entry: &Entry) -> Result<(), String> {
        match &entry.event {
            SessionEvent::Agent { .. }
            | SessionEvent::AgentSession { .. }
            | SessionEvent::Note { .. }
            | SessionEvent::Outputs { .. }
            | SessionEvent::OutputRefused { .. }
            | SessionEvent::Unknown => Ok(()),
            SessionEvent::Start { .. } => {
                self.times.see(parsed(&self.last));
                self.times.begin(stamp(entry));
                self.start(&entry.event)
            }
            SessionEvent::Identity { identity } => {
                self.identity = Some(identity.clone());
                Ok(())
            }
            SessionEvent::Phase { phase: Phase::Starting | Phase::Preflight, .. } => Ok(()),
            SessionEvent::Shutdown { outcome, .. } => {
                self.times.see(stamp(entry));
                self.closed = true;
                self.ends(*outcome)
            }
            // A process that cannot set the workspace up says so without a step.
            SessionEvent::Finished if !matches!(self.expected.front(), Some(SessionEvent::Finished)) => {
                Ok(())
            }
            SessionEvent::Recovery { .. } => {
                self.times.see(stamp(entry));
                self.expected.clear();
                self.advance(EventKind::Resumed { closed: self.closed });
                self.closed = false;
                self.match_or_infer(entry)
            }
            SessionEvent::PlanAdmitted { graph, .. } if !graph.is_empty() => {
                self.admit(graph).and_then(|()| self.match_or_infer(entry))
            }
            SessionEvent::Input(input) => {
                self.heard.insert(input.key.clone());
                self.match_or_infer(entry)
            }
            _ => self.match_or_infer(entry),
        }
    }

    /// The last line of a process: the outcome is the loop's, or that of one that did not come so far.
    fn ends(&mut self, outcome: Outcome) -> Result<(), String> {
        if let Some(missing) = self.expected.front() {
            return Err(format!("a `{}` was to come, and a `shutdown` came", infer::name(missing)));
        }
        match self.state.as_ref().and_then(|state| state.outcome) {
            Some(decided) => agree::same("outcome", &decided, &outcome),
            None if matches!(outcome, Outcome::Error | Outcome::Stopped | Outcome::Budget) => Ok(()),
            None => {
                let why = "nothing before it ends the run, and the outcome is";
                Err(format!("{why} {}", outcome.token()))
            }
        }
    }

    /// Takes up the graph that the run's manifest brought.
    fn admit(&mut self, told: &[PlanTask]) -> Result<(), String> {
        let graph = Graph::of_log(told).ok_or("its graph is none that can be run")?;
        self.graph = graph.clone();
        if let Some(state) = &mut self.state {
            state.terms.graph = graph;
        }
        Ok(())
    }

    fn start(&mut self, start: &SessionEvent) -> Result<(), String> {
        let SessionEvent::Start { goal, gate, iters_total, max_cost, max_secs, max_park_secs, .. } = start
        else {
            return Ok(());
        };
        let rule = rule_of(start).or(self.rule);
        let rule = rule.ok_or("it does not say which way a score is better")?;
        let terms = Terms {
            graph: self.graph.clone(),
            rule,
            objective: gate.clone(),
            iterations: *iters_total,
            max_cost: *max_cost,
            goal: goal.clone(),
            max_park: max_park_secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok()),
        };
        self.goal = Some(goal.clone());
        self.max_time = max_secs.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        match &mut self.state {
            Some(state) => state.terms = terms,
            None => self.state = Some(State::new(terms)),
        }
        Ok(())
    }

    /// A line is the next that a step wrote, or it tells what happened, and a step is made of that.
    fn match_or_infer(&mut self, entry: &Entry) -> Result<(), String> {
        // No line follows more than a few silent steps.
        for _ in 0..8 {
            if let Some(expected) = self.expected.pop_front() {
                return agree::agree(&expected, &entry.event);
            }
            let state = self.state.as_ref().ok_or("the log does not begin with `start`")?;
            let kind = infer::infer(state, &entry.event)?;
            self.times.see(stamp(entry));
            self.advance(kind);
        }
        Err("it follows from nothing".to_owned())
    }

    fn advance(&mut self, kind: EventKind) {
        let Some(state) = self.state.take() else { return };
        let (state, effects) = step(state, Event { at: self.times.at, kind });
        self.state = Some(state);
        for effect in effects {
            match effect {
                Effect::Log(event, _) if !matches!(*event, SessionEvent::Note { .. }) => {
                    self.expected.push_back(*event);
                }
                Effect::Settle { key, outcome, note } => self.settled.push((key, outcome, note)),
                _ => {}
            }
        }
    }

    /// Ends after the last line; none where no run was begun.
    #[must_use]
    pub fn finish(mut self) -> Option<Replayed> {
        self.times.see(parsed(&self.last));
        let over = self.state.as_ref()?.outcome.is_some();
        // What said that something begins stands before what settled it in the same step.
        let owed = self.expected.iter().rposition(|event| is_owed(event, over));
        let unwritten =
            self.expected.into_iter().take(owed.map_or(0, |last| last.saturating_add(1))).collect();
        Some(Replayed {
            state: self.state?,
            unwritten,
            closed: self.closed,
            elapsed: self.times.at,
            identity: self.identity,
            goal: self.goal.unwrap_or_default(),
            max_time: self.max_time,
            settled: self.settled,
            heard: self.heard,
            lines: self.lines,
            seq: self.seq.unwrap_or_default(),
        })
    }
}

/// What a `start` says of the rule; logs of before it did say nothing.
#[must_use]
pub fn rule_of(start: &SessionEvent) -> Option<Rule> {
    let SessionEvent::Start { direction, tiebreak_direction, .. } = start else { return None };
    let direction: Direction = (*direction)?;
    Some(Rule { direction, tiebreak: tiebreak_direction.unwrap_or(direction) })
}

fn stamp(entry: &Entry) -> Option<Timestamp> {
    parsed(entry.ts.as_ref()?)
}

fn parsed(ts: &str) -> Option<Timestamp> {
    ts.parse().ok()
}

/// Whether a line that follows and was not written must still be: what settled something must, with all before it; what
/// said last that something begins is said again when it does.
fn is_owed(event: &SessionEvent, over: bool) -> bool {
    match event {
        SessionEvent::Phase { .. } | SessionEvent::AgentStart { .. } => false,
        SessionEvent::Summary { .. } | SessionEvent::Finished => !over,
        _ => true,
    }
}

//! `step` against the rules of contract §4 and §7, under random histories.

use std::time::Duration;

use proptest::prelude::*;

mod agents;

use super::graph::{Op, TaskId};
use super::replay::{Replay, Replayed};
use super::state::{Ending, Left, Stage};
use super::*;
use crate::admission::{Admission, Book, Budget, Input, Key, Line, Owed, Settlement, owed};
use crate::agent::{Escalation, Usage};
use crate::control::Arrival;
use crate::decide::{Rule, Standing, Verdict};
use crate::judge::{Fault, Known, Reading};
use crate::log::{
    ApprovalOutcome, AskMode, AskWire, Decision, Durability, Entry, FrozenHash, Outcome, Phase, PlanTask,
    RowWire, SessionEvent,
};
use crate::score::{Direction, Score};

fn terms(iterations: u32, direction: Direction) -> Terms {
    Terms {
        graph: Graph::autoresearch(),
        rule: Rule { direction, tiebreak: direction },
        objective: "score".to_owned(),
        iterations,
        max_cost: None,
        goal: "up".to_owned(),
        max_park: Some(Duration::from_secs(5)),
    }
}

/// One answer of a world that does as it likes.
#[derive(Debug, Clone)]
pub(super) enum Move {
    Good,
    Fail,
    Reading {
        score: i8,
        tiebreak: Option<i8>,
        solved: bool,
        valid: bool,
    },
    Escalate,
    /// The turn dies of what carries it.
    Die,
    /// The turn changes nothing.
    Idle,
    /// The candidate does not build.
    Unbuilt,
    /// The engine dies, and another one goes on.
    Crash,
    Stop,
    Abort,
    OutOfTime,
    Stale,
    /// The turn leaves an ask.
    Ask(AskMode, u8),
    /// An operator says something.
    Say(Input),
}

fn one() -> impl Strategy<Value = Move> {
    let reading = (
        any::<i8>(),
        proptest::option::of(any::<i8>()),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(score, tiebreak, solved, valid)| Move::Reading { score, tiebreak, solved, valid });
    prop_oneof![
        10 => Just(Move::Good),
        2 => Just(Move::Fail),
        10 => reading,
        1 => Just(Move::Escalate),
        1 => Just(Move::Die),
        1 => Just(Move::Idle),
        1 => Just(Move::Unbuilt),
        1 => Just(Move::Crash),
        1 => Just(Move::Stop),
        1 => Just(Move::Abort),
        1 => Just(Move::OutOfTime),
        2 => Just(Move::Stale),
    ]
}

/// A graph with agent tasks before and after the proposal, each of which may be advisory and waits for some of the turns
/// before it; or the built-in one.
fn graphs() -> impl Strategy<Value = Graph> {
    let task = |name: String, op: &str, depends_on, advisory, join: u8| PlanTask {
        name,
        op: op.to_owned(),
        depends_on,
        advisory,
        join: [None, Some("passed"), Some("settled")][usize::from(join)].map(str::to_owned),
    };
    let agent = (any::<bool>(), 0u8..3, any::<u8>());
    (proptest::collection::vec(agent, 0..5), 0usize..5, any::<u8>()).prop_map(move |(agents, at, of)| {
        let mut told: Vec<PlanTask> = Vec::new();
        let some = |told: &[PlanTask], mask: u8| -> Vec<String> {
            let picked = told.iter().enumerate().filter(|(at, _)| mask & (1 << at) != 0);
            picked.map(|(_, task)| task.name.clone()).collect()
        };
        if agents.is_empty() {
            return Graph::autoresearch();
        }
        let at = at.min(agents.len());
        for (number, (advisory, join, mask)) in agents.into_iter().enumerate() {
            if number == at {
                told.push(task("p".into(), "propose", some(&told, of), false, 2));
            }
            told.push(task(format!("t{number}"), "agent", some(&told, mask), advisory, join));
        }
        if !told.iter().any(|task| task.name == "p") {
            told.push(task("p".into(), "propose", some(&told, of), false, 2));
        }
        let waited = [some(&told, of / 2), vec!["p".into()]].concat();
        told.push(task("a".into(), "apply", waited, false, 0));
        told.push(task("m".into(), "measure", vec!["a".into()], false, 0));
        told.push(task("d".into(), "decide", vec!["m".into()], false, 0));
        Graph::of_log(&told).unwrap()
    })
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    proptest::collection::vec(one(), 0..200)
}

/// Histories with operators, and an agent that asks.
fn attended() -> impl Strategy<Value = Vec<Move>> {
    let handle = || proptest::option::weighted(0.3, (0u8..3).prop_map(|at| format!("h{at}")));
    let label = || "[a-c]";
    let input = prop_oneof![
        4 => "[a-z]{1,4}".prop_map(|text| Input::Steer { text }),
        4 => (handle(), proptest::option::of(label())).prop_map(|(handle, regime)| Input::Approve { handle, regime }),
        2 => handle().prop_map(|handle| Input::Deny { handle, reason: "no".to_owned() }),
        2 => label().prop_map(|regime| Input::Rescope { regime }),
        1 => (0.1..9.0).prop_map(|secs| Input::SetBudget(Budget { max_secs: Some(secs), ..Budget::default() })),
        2 => Just(Input::Pause),
        2 => Just(Input::Resume),
    ];
    let mode = prop_oneof![Just(AskMode::Block), Just(AskMode::Continue)];
    let one = prop_oneof![
        3 => one(),
        6 => Just(Move::Good),
        2 => (mode, 0u8..3).prop_map(|(mode, at)| Move::Ask(mode, at)),
        6 => input.prop_map(Move::Say),
    ];
    proptest::collection::vec(one, 0..120)
}

fn reading(score: i8, tiebreak: Option<i8>, solved: bool, valid: bool) -> Reading {
    let finite = |value: i8| Score::new(f64::from(value));
    let mut reading = Reading::faulty(&Fault::NoScore);
    reading.fault = None;
    Reading { valid, score: finite(score), tiebreak: tiebreak.and_then(finite), solved, ..reading }
}

/// How a turn that is answered went.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Went {
    Well,
    Badly,
    Escalated,
    Died,
    Idle,
    Unbuilt,
    Asked(AskMode, u8),
}

/// Runs a history to its end and keeps what was said and done.
struct Played {
    state: State,
    lines: Vec<(SessionEvent, Durability)>,
    /// The log, with what each step left: how many lines there are after it, and the state then.
    log: Vec<Entry>,
    after: Vec<(usize, State)>,
    jobs: Vec<Job>,
    finishes: Vec<Outcome>,
    outstanding: Option<Job>,
    /// The readings that were measured, by iteration.
    readings: Vec<(u32, Reading)>,
    /// Those that became the baseline of another regime.
    rebases: Vec<Reading>,
    /// The ledger.
    pub(super) book: Book,
    /// Turns that came to an end of their own, by iteration and task.
    turns: Vec<(u32, TaskId)>,
    /// What all turns cost.
    charged: f64,
    clock: u64,
    /// When this process began, and what was counted before.
    began: (u64, Duration),
}

impl Played {
    fn new(terms: Terms) -> Played {
        let mut played = Played {
            state: State::new(terms),
            lines: Vec::new(),
            log: Vec::new(),
            after: Vec::new(),
            jobs: Vec::new(),
            finishes: Vec::new(),
            outstanding: None,
            readings: Vec::new(),
            rebases: Vec::new(),
            book: Book::default(),
            turns: Vec::new(),
            charged: 0.0,
            clock: 0,
            began: (0, Duration::ZERO),
        };
        played.write(&start(&played.state.terms));
        played
    }

    /// Appends a line, as it reads after it was written.
    fn write(&mut self, event: &SessionEvent) {
        let ts = jiff::Timestamp::from_second(i64::try_from(self.clock).unwrap()).unwrap().to_string();
        let event = serde_json::from_slice(&serde_json::to_vec(event).unwrap()).unwrap();
        self.log.push(Entry { seq: None, ts: Some(ts), event });
    }

    fn send(&mut self, kind: EventKind) {
        self.clock += 1;
        let was_over = self.state.stage == Stage::Over && !matches!(kind, EventKind::Resumed { .. });
        let at = self.began.1 + Duration::from_secs(self.clock - self.began.0);
        let (before, (state, effects)) = (self.state.clone(), step(self.state.clone(), Event { at, kind }));
        assert!(!was_over || effects.is_empty(), "an effect after the end: {effects:?}");
        self.state = state;
        let mut granted = Vec::new();
        // A baseline of another regime decides nothing about a candidate.
        let rebasing = before.current.as_ref().is_some_and(|current| current.rebase.is_some());
        let mut decided = rebasing
            || self.state.left.is_some()
            || self.lines.iter().any(|(line, _)| matches!(line, SessionEvent::Recovery { .. }));
        for effect in effects {
            match effect {
                Effect::Log(event, durability) => {
                    decided |= durability == Durability::Durable;
                    self.write(&event);
                    self.lines.push((*event, durability));
                }
                Effect::Run(job) => {
                    let follows = matches!(job, Job::Snapshot | Job::Restore { .. });
                    assert!(!follows || decided, "{job:?} before its decision was durable");
                    assert!(self.outstanding.is_none(), "a second job while {:?} runs", self.outstanding);
                    self.outstanding = Some(job.clone());
                    self.jobs.push(job);
                }
                Effect::Cancel => assert!(self.outstanding.is_some(), "nothing to cancel"),
                Effect::Finish { outcome, .. } => self.finishes.push(outcome),
                Effect::Settle { key, outcome, note } => self.settle(key, outcome, note),
                Effect::Grant { by, grant } => {
                    if self.book.ask(&grant.key, &grant.input).unwrap() == Admission::New {
                        granted.push(grant);
                    }
                    self.settle(by, Settlement::Applied, String::new());
                }
                Effect::Deadline { .. } => {}
            }
        }
        self.after.push((self.log.len(), self.state.clone()));
        for grant in granted {
            self.admit(grant);
        }
    }

    fn settle(&mut self, key: Key, outcome: Settlement, note: String) {
        assert_eq!(self.book.standing(&key), Some(None), "{key} is settled twice, or was never admitted");
        self.book.see(Line::Settled { key, outcome, note });
    }

    fn admit(&mut self, arrival: Arrival) {
        self.book.see(Line::Admitted { key: arrival.key.clone(), input: Some(arrival.input.clone()) });
        self.send(EventKind::Admitted(Box::new(arrival)));
    }

    /// An operator says something.
    pub(super) fn say(&mut self, input: Input) {
        if self.state.stage == Stage::Over {
            // Nobody is heard any more.
            return;
        }
        let key = Key::known(format!("k{}", self.clock));
        self.admit(Arrival { key, input });
    }

    /// Answers the outstanding job.
    fn answer(&mut self, went: Went, with: Option<Reading>) {
        let Some(job) = self.outstanding.take() else { return };
        let mut rebase = None;
        let good = went != Went::Badly;
        let failure = (!good).then(|| "failed".to_owned());
        let iter = self.state.iter;
        let end = |task, report| {
            EventKind::Task(Box::new(TaskEnd {
                task,
                report,
                killed: vec![],
                frozen_restored: vec![],
                secs: 1.0,
            }))
        };
        let kind = match job {
            Job::Propose { task, .. } | Job::Agent { task, .. } => {
                self.charged += 0.25;
                if went != Went::Died {
                    self.turns.push((iter, task));
                }
                let escalation = (went == Went::Escalated).then(|| Escalation {
                    category: "blocked".into(),
                    reason: "no way on".into(),
                    evidence: serde_json::Value::Null,
                });
                let transport = (went == Went::Died).then(|| "provider".to_owned());
                let usage = Usage::new(Some(0.25), None, Some(3));
                let idle = if went == Went::Idle { "idle" } else { "" };
                let account = idle.to_owned();
                let ask = match went {
                    Went::Asked(mode, at) => {
                        Some(AskWire { mode, trace_id: format!("t{at}"), handle: format!("h{at}") })
                    }
                    _ => None,
                };
                // A turn that died may have had its prompt, or not.
                let started = went != Went::Died || self.clock.is_multiple_of(2);
                let of = self.state.terms.graph.task(task).map(|task| task.op);
                let result = (of == Some(Op::Agent)).then(|| match went {
                    Went::Idle => serde_json::json!({ "status": "skipped" }),
                    Went::Unbuilt => serde_json::json!({ "status": "fail", "reason": "no" }),
                    _ => serde_json::json!({ "at": iter }),
                });
                let report = TurnReport {
                    result,
                    failure,
                    transport,
                    escalation,
                    usage,
                    account,
                    ask,
                    started,
                    dropped: vec![],
                    retry_after: None,
                };
                end(task, TaskReport::Turned(Box::new(report)))
            }
            Job::Record { task, iter } => {
                let changed = self.state.current.as_ref().is_none_or(|at| at.row.candidate_md.is_empty());
                let candidate =
                    Candidate { commit: Some(format!("c{iter}")), changed, ..Candidate::default() };
                end(task, TaskReport::Recorded { candidate: Box::new(candidate) })
            }
            Job::Recall { .. } if !good => EventKind::Recalled(Err("gone".into())),
            Job::Recall { .. } => EventKind::Recalled(Ok(Box::default())),
            Job::Wait { .. } => EventKind::Waited,
            Job::Hold { until } => EventKind::Released { timed_out: until.is_some() && !good },
            Job::Apply { task } if went == Went::Unbuilt => {
                end(task, TaskReport::Unbuilt { output: "no such name".into() })
            }
            Job::Apply { task } => end(task, TaskReport::Applied { failure }),
            Job::Measure { task, .. } => {
                let reading = with.unwrap_or_else(|| Reading::faulty(&Fault::NoObject));
                if self.state.current.as_ref().is_some_and(|current| current.rebase.is_some()) {
                    rebase = Some(reading.clone());
                } else {
                    self.readings.push((iter, reading.clone()));
                }
                let frozen = vec![FrozenHash { path: "m".into(), before: "a".into(), after: None }];
                end(task, TaskReport::Measured { reading, frozen, shown: String::new() })
            }
            Job::Snapshot => {
                EventKind::Snapshotted(if good { Ok(format!("t{iter}")) } else { Err("full".into()) })
            }
            Job::Restore { .. } => EventKind::Restored(if good { Ok(()) } else { Err("gone".into()) }),
        };
        let segments = |played: &Played| {
            played.lines.iter().filter(|(line, _)| matches!(line, SessionEvent::Segment { .. })).count()
        };
        let before = segments(self);
        self.send(kind);
        if segments(self) > before {
            self.rebases.extend(rebase);
        }
    }

    /// The engine dies with what it did not write, and another one goes on from the log.
    fn crash(&mut self, lost: usize) {
        let kept = self.log.len().saturating_sub(lost).max(1);
        self.log.truncate(kept);
        let replayed = replay(&self.log);
        self.outstanding = None;
        self.finishes.clear();
        self.clock += 1;
        self.began = (self.clock, replayed.elapsed);
        let terms = self.state.terms.clone();
        self.write(&start(&terms));
        for line in replayed.unwritten {
            self.write(&line);
        }
        self.lines = self.log.iter().map(|entry| (entry.event.clone(), Durability::Durable)).collect();
        self.state = replayed.state;
        self.state.terms = terms;
        self.send(EventKind::Resumed { closed: replayed.closed });
        let Owed { again, closed } = owed(&self.book, &replayed.settled);
        for (key, outcome, note) in closed {
            self.settle(key, outcome, note);
        }
        for (key, input) in again {
            self.send(EventKind::Admitted(Box::new(Arrival { key, input })));
        }
        // A turn that was begun had said what it used, or had not; the file stays where the engine dies once more.
        if self.state.charged || self.clock.is_multiple_of(2) {
            let before = matches!(self.state.left, Some(Left::AtBest | Left::Midway));
            let new = !self.state.charged && before;
            self.charged += if new { 0.25 } else { 0.0 };
            self.send(EventKind::Charged(Usage::new(Some(0.25), None, Some(3))));
        }
        self.send(EventKind::Ready);
    }

    fn play(&mut self, moves: &[Move]) {
        self.send(EventKind::Ready);
        for one in moves {
            match one {
                Move::Good => self.answer(Went::Well, Some(reading(0, None, false, true))),
                Move::Fail => self.answer(Went::Badly, None),
                Move::Reading { score, tiebreak, solved, valid } => {
                    self.answer(Went::Well, Some(reading(*score, *tiebreak, *solved, *valid)));
                }
                Move::Escalate => self.answer(Went::Escalated, Some(reading(1, None, false, true))),
                Move::Die => self.answer(Went::Died, Some(reading(1, None, false, true))),
                Move::Idle => self.answer(Went::Idle, Some(reading(1, None, false, true))),
                Move::Unbuilt => self.answer(Went::Unbuilt, Some(reading(1, None, false, true))),
                Move::Crash => self.crash(0),
                Move::Stop => self.send(EventKind::Interrupted(Interrupt::Stop)),
                Move::Abort => self.send(EventKind::Interrupted(Interrupt::Abort)),
                Move::OutOfTime => self.send(EventKind::OutOfTime),
                Move::Ask(mode, at) => {
                    self.answer(Went::Asked(*mode, *at), Some(reading(1, None, false, true)));
                }
                Move::Say(input) => self.say(input.clone()),
                Move::Stale => {
                    // What the run does not wait for must change nothing.
                    let before = self.state.clone();
                    let kind = match before.stage {
                        Stage::Snapshotting => EventKind::Restored(Ok(())),
                        _ => EventKind::Snapshotted(Ok("stale".into())),
                    };
                    self.send(kind);
                    assert_eq!(before, self.state);
                }
            }
        }
        // Let it come to its end: nothing but bad answers from here on.
        self.send(EventKind::Interrupted(Interrupt::Stop));
        for _ in 0..48 {
            self.answer(Went::Well, None);
        }
    }

    fn rows(&self) -> Vec<&RowWire> {
        self.lines
            .iter()
            .filter_map(|(event, _)| match event {
                SessionEvent::Row { row, .. } => Some(row.as_ref()),
                _ => None,
            })
            .collect()
    }
}

/// The first line of a process.
fn start(terms: &Terms) -> SessionEvent {
    SessionEvent::Start {
        goal: "up".to_owned(),
        gate: terms.objective.clone(),
        model: String::new(),
        namespace: String::new(),
        iters_total: terms.iterations,
        max_cost: terms.max_cost,
        max_secs: None,
        max_park_secs: terms.max_park.map(|most| most.as_secs_f64()),
        direction: Some(terms.rule.direction),
        tiebreak_direction: Some(terms.rule.tiebreak),
    }
}

/// Folds a log that must follow from itself.
#[track_caller]
fn replay(log: &[Entry]) -> Replayed {
    let mut replay = Replay::new(Graph::autoresearch(), None);
    for entry in log {
        replay.see(entry).unwrap_or_else(|error| panic!("{error}: {:?}\n{log:#?}", entry.event));
    }
    replay.finish().unwrap()
}

/// Replays the universal rule over the readings and compares it with the rows.
fn check_rule(played: &Played) {
    let mut best: Option<Standing> = None;
    let rule = played.state.terms.rule;
    let mut rebased = played.rebases.iter().filter_map(|reading| match rule.decide(reading, None) {
        Verdict::Keep { standing, .. } => Some(standing),
        Verdict::Discard => None,
    });
    for (event, _) in &played.lines {
        let row = match event {
            SessionEvent::Row { row, .. } => row,
            SessionEvent::Segment { .. } => {
                best = rebased.next();
                continue;
            }
            _ => continue,
        };
        let reading =
            played.readings.iter().rev().find(|(iter, _)| *iter == row.iter).map(|(_, reading)| reading);
        let verdict =
            reading.map_or(Verdict::Discard, |reading| played.state.terms.rule.decide(reading, best));
        match row.decision {
            Decision::Keep | Decision::Baseline => {
                let Verdict::Keep { standing, .. } = verdict else {
                    panic!("kept against the rule: {row:?}")
                };
                assert!(row.kept_snap.is_some());
                best = Some(standing);
            }
            _ => {
                assert!(row.kept_snap.is_none());
                if row.decision == Decision::BaselineSkipped {
                    continue;
                }
                let failed_snapshot = row.note.contains("snapshot");
                let not_decided = row.note.contains("ended before")
                    || row.note.contains("the engine died")
                    || row.note.contains("found again");
                assert!(
                    matches!(verdict, Verdict::Discard) || failed_snapshot || not_decided,
                    "discarded against the rule: {row:?}"
                );
            }
        }
    }
    assert_eq!(best, played.state.best.as_ref().map(|best| best.standing));
}

/// Contract §7 and §7.1: asks are brackets, a steer is delivered once, and what is settled took effect as it says.
fn check_operators(played: &Played) {
    let mut open = false;
    let mut delivered = Vec::new();
    for (event, _) in &played.lines {
        match event {
            SessionEvent::ApprovalWait { .. } => assert!(!std::mem::replace(&mut open, true), "a second ask"),
            SessionEvent::ApprovalResolved { outcome, .. } => {
                assert!(std::mem::take(&mut open), "{outcome:?} of no ask");
                let stopped = matches!(played.finishes.last(), Some(Outcome::Stopped));
                let at_end = played.lines.iter().any(|(line, _)| matches!(line, SessionEvent::Finished));
                assert!(*outcome != ApprovalOutcome::Timeout || at_end || stopped);
            }
            SessionEvent::AgentDone(turn) => delivered.extend(turn.delivered.clone()),
            _ => {}
        }
    }
    let stopped = matches!(played.state.ending, Some(Ending::Stop | Ending::Abort));
    assert!(!open || stopped, "an ask is left open without a stop");
    assert_eq!(open, played.state.operator.ask.is_some());
    let before = delivered.len();
    delivered.sort();
    delivered.dedup();
    assert_eq!(before, delivered.len(), "a steer was delivered twice");
    for key in &delivered {
        assert_eq!(played.book.standing(&Key::known(key.clone())), Some(Some(Settlement::Applied)));
    }
    // What is owed is what a resumed run takes up again.
    for (key, input) in played.book.owed() {
        let operator = &played.state.operator;
        let held = match input {
            Input::Steer { .. } => {
                operator.steers.iter().any(|(at, _)| at == key)
                    || stopped
                    || played.finishes == [Outcome::Error]
            }
            Input::Pause => operator.paused.as_ref() == Some(key),
            Input::SetBudget(_) => operator.budgets.iter().any(|(at, _)| at == key),
            Input::Rescope { .. } => true,
            _ => false,
        };
        assert!(held, "{input:?} is owed, and the run does not know of it");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_rules(moves in prop_oneof![moves().boxed(), attended().boxed()], iterations in 0u32..6, lower in any::<bool>(), graph in graphs()) {
        let direction = if lower { Direction::Lower } else { Direction::Higher };
        let mut played = Played::new(Terms { graph, ..terms(iterations, direction) });
        played.play(&moves);

        // It ends exactly once, and waits for nothing then.
        prop_assert_eq!(played.finishes.len(), 1, "{:?}", played.state);
        prop_assert_eq!(played.state.stage, Stage::Over);
        prop_assert!(played.outstanding.is_none());

        // One row an iteration, in order, and the counts agree with them. A baseline that failed may be tried again.
        let failed = |row: &&RowWire| row.decision == Decision::BaselineSkipped;
        let mut rows = played.rows();
        while rows.len() > 1 && rows.first().is_some_and(failed) {
            rows.remove(0);
        }
        let iters: Vec<u32> = rows.iter().map(|row| row.iter).collect();
        let expect: Vec<u32> = (0..).take(iters.len()).collect();
        prop_assert_eq!(&iters, &expect);
        let settled = u32::try_from(iters.iter().filter(|iter| **iter > 0).count()).unwrap();
        let broken_restore = played.finishes == [Outcome::Error];
        prop_assert_eq!(played.state.counts.total(), settled);
        prop_assert!(settled <= iterations);

        // No turn that ended was taken again, and each was charged once.
        for turn @ (iter, _) in &played.turns {
            let taken = played.turns.iter().filter(|taken| *taken == turn).count();
            let given_back = played.lines.iter().filter(|(line, _)| {
                matches!(line, SessionEvent::Rebuild { iter: at, attempt, .. } if at == iter && *attempt <= 2)
            });
            prop_assert!(taken <= given_back.count() + 1);
        }
        prop_assert_eq!(played.state.spent().to_bits(), played.charged.to_bits());

        // Each measurement of an iteration happened at most once.
        let mut measured: Vec<u32> = played.readings.iter().map(|(iter, _)| *iter).filter(|iter| *iter > 0).collect();
        let before = measured.len();
        measured.dedup();
        prop_assert_eq!(before, measured.len());

        check_rule(&played);
        check_operators(&played);

        // A phase is told once each time it changes.
        let phases: Vec<(Phase, u32)> = played.lines.iter().filter_map(|(event, _)| match event {
            SessionEvent::Phase { phase, iter } => Some((*phase, *iter)),
            SessionEvent::Recovery { .. } => Some((Phase::Preflight, 0)),
            _ => None,
        }).collect();
        let phases: Vec<(Phase, u32)> = phases.into_iter().fold(Vec::new(), |mut told, phase| {
            if phase.0 != Phase::Preflight || told.last() != Some(&phase) {
                told.push(phase);
            }
            told
        });
        prop_assert!(phases.windows(2).all(|pair| pair.first() != pair.last()));
        prop_assert_eq!(phases.last().map(|(phase, _)| *phase), Some(Phase::Finished));

        // Whoever asked for the end is named by the outcome, unless the world broke first.
        match (&played.state.ending, played.finishes.first()) {
            (_, Some(Outcome::Error)) => prop_assert!(broken_restore),
            (Some(Ending::Solved), outcome) => prop_assert_eq!(outcome, Some(&Outcome::Solved)),
            (Some(Ending::Escalated(_)), outcome) => prop_assert_eq!(outcome, Some(&Outcome::Escalated)),
            (Some(Ending::Abort | Ending::Stop), outcome) => prop_assert_eq!(outcome, Some(&Outcome::Stopped)),
            (Some(Ending::OutOfTime), outcome) => {
                let refused = settled < iterations;
                prop_assert_eq!(outcome == Some(&Outcome::Budget), refused, "budget only when work was refused");
            }
            (Some(Ending::Stalled(_)), outcome) => {
                prop_assert_eq!(outcome == Some(&Outcome::Stalled), settled < iterations);
            }
            (None, outcome) => prop_assert_eq!(outcome, Some(&Outcome::Finished)),
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn the_replay_of_every_prefix_is_the_state_that_was(moves in prop_oneof![moves().boxed(), attended().boxed()], iterations in 0u32..5, graph in graphs()) {
        let mut played = Played::new(Terms { graph, ..terms(iterations, Direction::Higher) });
        played.play(&moves);
        let mut seen = 0;
        for (lines, state) in &played.after {
            // A step that says nothing is made when the next line shows it.
            if *lines > seen {
                let replayed = replay(&played.log[..*lines]);
                prop_assert_eq!(&replayed.state, state, "after {} lines of {:#?}", lines, &played.log[..*lines]);
                prop_assert!(replayed.unwritten.is_empty());
                seen = *lines;
            }
        }
    }

    #[test]
    fn a_log_that_lost_its_end_is_gone_on_with(moves in moves(), iterations in 1u32..5, lost in 1usize..12, graph in graphs()) {
        let mut played = Played::new(Terms { graph, ..terms(iterations, Direction::Higher) });
        played.play(&moves);
        played.crash(lost);
        for _ in 0..400 {
            played.answer(Went::Well, Some(reading(3, None, false, true)));
        }
        prop_assert_eq!(played.state.stage, Stage::Over);
        let mut iters: Vec<u32> = played.rows().iter().map(|row| row.iter).filter(|iter| *iter > 0).collect();
        let before = iters.len();
        iters.dedup();
        prop_assert_eq!(before, iters.len(), "a row twice: {:?}", iters);
        prop_assert_eq!(u32::try_from(before).unwrap(), played.state.counts.total());
        replay(&played.log);
    }
}

/// A run whose baseline is kept, with its first turn running.
fn in_its_first_turn(terms: Terms) -> Played {
    let mut played = Played::new(terms);
    played.send(EventKind::Ready);
    played.answer(Went::Well, None);
    played.answer(Went::Well, Some(reading(1, None, false, true)));
    played.answer(Went::Well, None);
    assert!(matches!(played.outstanding, Some(Job::Propose { .. })));
    played
}

fn cancels(played: &mut Played, kind: EventKind) -> bool {
    let at = Duration::from_secs(played.clock);
    let (state, effects) = step(played.state.clone(), Event { at, kind });
    played.state = state;
    effects.contains(&Effect::Cancel)
}

#[test]
fn a_turn_that_passes_what_was_left_is_ended_once() {
    let with_ceiling = Terms { max_cost: Some(1.0), ..terms(3, Direction::Higher) };
    let mut played = in_its_first_turn(with_ceiling);
    let Some(Job::Propose { brief, .. }) = &played.outstanding else { panic!() };
    assert_eq!(brief.cost_left, Some(1.0));
    let used = |cost| EventKind::Spending(Usage::new(Some(cost), None, None));
    assert!(!cancels(&mut played, used(1.0)));
    assert!(cancels(&mut played, used(1.25)));
    assert!(!cancels(&mut played, used(1.5)), "it is asked once");
    assert!(!cancels(&mut in_its_first_turn(terms(3, Direction::Higher)), used(9e9)));
}

#[test]
fn a_dead_turn_waits_as_long_as_its_class_or_its_provider_asks_for() {
    for (class, reset, expect) in [
        ("provider", None, Some(5)),
        ("provider", Some(90), Some(90)),
        ("provider", Some(9_000_000), Some(86_400)),
        ("gateway", None, Some(1)),
        ("sandbox", Some(0), Some(1)),
        ("command", None, None),
        ("of another build", None, None),
    ] {
        let mut played = in_its_first_turn(terms(3, Direction::Higher));
        let Some(Job::Propose { task, .. }) = played.outstanding.take() else { panic!() };
        let report = Box::new(TurnReport {
            failure: Some("died".into()),
            transport: Some(class.into()),
            retry_after: reset.map(Duration::from_secs),
            ..TurnReport::default()
        });
        let (killed, frozen_restored) = (Vec::new(), Vec::new());
        let report = TaskReport::Turned(report);
        played.send(EventKind::Task(Box::new(TaskEnd { task, report, killed, frozen_restored, secs: 1.0 })));
        if expect.is_none() {
            assert!(matches!(played.outstanding, Some(Job::Record { .. })), "{class}");
            continue;
        }
        played.answer(Went::Well, None);
        assert_eq!(
            played.outstanding,
            expect.map(|secs| Job::Wait { pause: Duration::from_secs(secs) }),
            "{class}"
        );
    }
}

#[test]
fn three_dead_turns_in_a_row_stall_the_run_and_two_distress_it() {
    let mut played = in_its_first_turn(terms(9, Direction::Higher));
    for _ in 0..40 {
        played.answer(Went::Died, Some(reading(1, None, false, true)));
    }
    assert_eq!(played.finishes, [Outcome::Stalled]);
    assert_eq!(played.rows().iter().filter(|row| row.decision == Decision::InfraDead).count(), 2);
    let phases = played
        .lines
        .iter()
        .filter(|(line, _)| matches!(line, SessionEvent::Phase { phase: Phase::Distressed, .. }));
    assert_eq!(phases.count(), 2, "once in each of the two iterations");
}

#[test]
fn what_superseded_a_grant_before_the_engine_died_grants_the_ask_of_the_one_that_resumes() {
    let mut played = in_its_first_turn(terms(2, Direction::Higher));
    played.answer(Went::Asked(AskMode::Block, 0), None);
    while !matches!(played.outstanding, Some(Job::Hold { .. })) {
        played.answer(Went::Well, Some(reading(0, None, false, true)));
    }
    let approve = |regime: Option<&str>| Input::Approve { handle: None, regime: regime.map(str::to_owned) };
    played.say(approve(None));
    played.say(Input::Rescope { regime: "a".into() });
    played.crash(0);
    assert!(played.state.operator.ask.as_ref().is_some_and(|ask| ask.granted), "{:?}", played.state.operator);
    played.say(approve(Some("b")));
    while played.state.stage != Stage::Over {
        played.answer(Went::Well, Some(reading(0, None, false, true)));
    }
    assert_eq!(played.state.operator.regime.as_deref(), Some("a"));
    check_operators(&played);
}

#[test]
fn a_best_that_does_not_build_in_another_regime_is_no_turn_of_the_agent() {
    let mut played = in_its_first_turn(terms(2, Direction::Higher));
    let key = Key::known(format!("k{}", played.clock));
    played.say(Input::Rescope { regime: "a".into() });
    while played.jobs.iter().filter(|job| matches!(job, Job::Apply { .. })).count() < 3 {
        played.answer(Went::Well, Some(reading(0, None, false, true)));
    }
    assert!(played.state.current.as_ref().is_some_and(|current| current.rebase.is_some()));
    played.answer(Went::Unbuilt, None);
    assert!(matches!(played.outstanding, Some(Job::Restore { .. })), "{:?}", played.outstanding);
    assert_eq!(played.state.operator.regime, None);
    assert_eq!(played.book.standing(&key), Some(Some(Settlement::Rejected)));
}

#[test]
fn a_failed_agent_is_not_measured_as_if_it_had_run() {
    let mut played = Played::new(terms(1, Direction::Higher));
    played.send(EventKind::Ready);
    played.answer(Went::Well, None);
    played.answer(Went::Well, Some(reading(1, None, false, true)));
    played.answer(Went::Well, None);
    let measured = played.readings.len();
    played.answer(Went::Badly, None);
    played.answer(Went::Well, None);
    assert!(matches!(played.outstanding, Some(Job::Restore { .. })), "{:?}", played.outstanding);
    assert_eq!(played.readings.len(), measured);
    assert_eq!(played.rows().last().unwrap().decision, Decision::Discard);
}

#[test]
fn a_failed_snapshot_aborts_the_keep_and_goes_back() {
    let mut played = Played::new(terms(1, Direction::Higher));
    played.send(EventKind::Ready);
    played.answer(Went::Well, None);
    played.answer(Went::Well, Some(reading(1, None, false, true)));
    played.answer(Went::Well, None);
    played.answer(Went::Well, None);
    played.answer(Went::Well, None);
    played.answer(Went::Well, None);
    played.answer(Went::Well, Some(reading(2, None, false, true)));
    assert_eq!(played.outstanding, Some(Job::Snapshot));
    played.answer(Went::Badly, None);
    assert_eq!(played.outstanding, Some(Job::Restore { token: "t0".into() }));
    let row = *played.rows().last().unwrap();
    assert_eq!(row.decision, Decision::Discard);
    assert!(row.note.starts_with("the snapshot failed"), "{}", row.note);
}

#[test]
fn a_failed_restore_stops_the_run() {
    let mut played = Played::new(terms(5, Direction::Higher));
    played.send(EventKind::Ready);
    played.answer(Went::Well, None);
    played.answer(Went::Well, Some(reading(1, None, false, true)));
    played.answer(Went::Well, None);
    played.answer(Went::Badly, None);
    played.answer(Went::Well, None);
    played.answer(Went::Badly, None);
    assert_eq!(played.finishes, [Outcome::Error]);
}

#[test]
fn a_solved_baseline_ends_the_run_without_a_turn() {
    let mut played = Played::new(terms(5, Direction::Higher));
    played.send(EventKind::Ready);
    played.answer(Went::Well, None);
    played.answer(Went::Well, Some(reading(1, None, true, true)));
    played.answer(Went::Well, None);
    assert_eq!(played.finishes, [Outcome::Solved]);
    assert!(!played.jobs.iter().any(|job| matches!(job, Job::Propose { .. })));
}

#[test]
fn the_judge_knows_no_numbers_before_the_baseline_and_all_after_it() {
    let mut played = Played::new(terms(1, Direction::Higher));
    played.send(EventKind::Ready);
    played.answer(Went::Well, None);
    let Some(Job::Measure { known, .. }) = &played.outstanding else { panic!() };
    assert_eq!(*known, Known::default());
    played.answer(Went::Well, Some(reading(7, None, false, true)));
    played.answer(Went::Well, None);
    played.answer(Went::Well, None);
    played.answer(Went::Well, None);
    played.answer(Went::Well, None);
    let Some(Job::Measure { known, .. }) = &played.outstanding else { panic!() };
    assert_eq!(known.best_score, Score::new(7.0));
    assert_eq!(known.baseline_score, Score::new(7.0));
}

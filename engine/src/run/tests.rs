//! `step` against the rules of contract §4 and §7: a run whose world is played, one history each; `histories` has random ones.

use std::time::Duration;

mod agents;
mod histories;

use histories::check_operators;

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

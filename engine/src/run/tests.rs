//! `step` against the rules of contract §4 and §7, under random histories.

use std::time::Duration;

use proptest::prelude::*;

use super::state::{Ending, Stage};
use super::*;
use crate::agent::Escalation;
use crate::decide::{Rule, Standing, Verdict};
use crate::judge::{Fault, Known, Reading};
use crate::log::{Decision, Durability, Outcome, Phase, RowWire, SessionEvent};
use crate::score::{Direction, Score};

fn terms(iterations: u32, direction: Direction) -> Terms {
    Terms {
        graph: Graph::autoresearch(),
        rule: Rule { direction, tiebreak: direction },
        objective: "score".to_owned(),
        iterations,
    }
}

/// One answer of a world that does as it likes.
#[derive(Debug, Clone)]
enum Move {
    Good,
    Fail,
    Reading { score: i8, tiebreak: Option<i8>, solved: bool, valid: bool },
    Escalate,
    Stop,
    Abort,
    OutOfTime,
    Stale,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let reading = (
        any::<i8>(),
        proptest::option::of(any::<i8>()),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(score, tiebreak, solved, valid)| Move::Reading { score, tiebreak, solved, valid });
    let one = prop_oneof![
        10 => Just(Move::Good),
        2 => Just(Move::Fail),
        10 => reading,
        1 => Just(Move::Escalate),
        1 => Just(Move::Stop),
        1 => Just(Move::Abort),
        1 => Just(Move::OutOfTime),
        2 => Just(Move::Stale),
    ];
    proptest::collection::vec(one, 0..200)
}

fn reading(score: i8, tiebreak: Option<i8>, solved: bool, valid: bool) -> Reading {
    let finite = |value: i8| Score::new(f64::from(value));
    let mut reading = Reading::faulty(&Fault::NoScore);
    reading.fault = None;
    Reading { valid, score: finite(score), tiebreak: tiebreak.and_then(finite), solved, ..reading }
}

/// Runs a history to its end and keeps what was said and done.
struct Played {
    state: State,
    lines: Vec<(SessionEvent, Durability)>,
    jobs: Vec<Job>,
    finishes: Vec<Outcome>,
    outstanding: Option<Job>,
    /// The readings that were measured, by iteration.
    readings: Vec<(u32, Reading)>,
    clock: u64,
}

impl Played {
    fn new(terms: Terms) -> Played {
        Played {
            state: State::new(terms),
            lines: Vec::new(),
            jobs: Vec::new(),
            finishes: Vec::new(),
            outstanding: None,
            readings: Vec::new(),
            clock: 0,
        }
    }

    fn send(&mut self, kind: EventKind) {
        self.clock += 1;
        let was_over = self.state.stage == Stage::Over;
        let (state, effects) = step(self.state.clone(), Event { at: Duration::from_secs(self.clock), kind });
        assert!(!was_over || effects.is_empty(), "an effect after the end: {effects:?}");
        self.state = state;
        let mut decided = false;
        for effect in effects {
            match effect {
                Effect::Log(event, durability) => {
                    decided |= durability == Durability::Durable;
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
            }
        }
    }

    /// Answers the outstanding job.
    fn answer(&mut self, good: bool, with: Option<Reading>, escalate: bool) {
        let Some(job) = self.outstanding.take() else { return };
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
            Job::Propose { task, .. } => {
                let escalation = escalate.then(|| Escalation {
                    category: "blocked".into(),
                    reason: "no way on".into(),
                    evidence: serde_json::Value::Null,
                });
                let candidate =
                    Box::new(Candidate { commit: Some(format!("c{iter}")), ..Candidate::default() });
                end(task, TaskReport::Proposed { failure, transport: None, candidate, escalation })
            }
            Job::Apply { task } => end(task, TaskReport::Applied { failure }),
            Job::Measure { task, .. } => {
                let reading = with.unwrap_or_else(|| Reading::faulty(&Fault::NoObject));
                self.readings.push((iter, reading.clone()));
                end(task, TaskReport::Measured { reading, shown: String::new() })
            }
            Job::Snapshot => {
                EventKind::Snapshotted(if good { Ok(format!("t{iter}")) } else { Err("full".into()) })
            }
            Job::Restore { .. } => EventKind::Restored(if good { Ok(()) } else { Err("gone".into()) }),
        };
        self.send(kind);
    }

    fn play(&mut self, moves: &[Move]) {
        self.send(EventKind::Ready);
        for one in moves {
            match one {
                Move::Good => self.answer(true, Some(reading(0, None, false, true)), false),
                Move::Fail => self.answer(false, None, false),
                Move::Reading { score, tiebreak, solved, valid } => {
                    self.answer(true, Some(reading(*score, *tiebreak, *solved, *valid)), false);
                }
                Move::Escalate => self.answer(true, Some(reading(1, None, false, true)), true),
                Move::Stop => self.send(EventKind::Interrupted(Interrupt::Stop)),
                Move::Abort => self.send(EventKind::Interrupted(Interrupt::Abort)),
                Move::OutOfTime => self.send(EventKind::OutOfTime),
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
        for _ in 0..16 {
            self.answer(true, None, false);
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

/// Replays the universal rule over the readings and compares it with the rows.
fn check_rule(played: &Played) {
    let mut best: Option<Standing> = None;
    for row in played.rows() {
        let reading = played.readings.iter().find(|(iter, _)| *iter == row.iter).map(|(_, reading)| reading);
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
                let failed_snapshot = row.note.contains("snapshot");
                let not_decided = row.note.contains("ended before");
                assert!(
                    matches!(verdict, Verdict::Discard) || failed_snapshot || not_decided,
                    "discarded against the rule: {row:?}"
                );
            }
        }
    }
    assert_eq!(best, played.state.best.as_ref().map(|best| best.standing));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_rules(moves in moves(), iterations in 0u32..6, lower in any::<bool>()) {
        let direction = if lower { Direction::Lower } else { Direction::Higher };
        let mut played = Played::new(terms(iterations, direction));
        played.play(&moves);

        // It ends exactly once, and waits for nothing then.
        prop_assert_eq!(played.finishes.len(), 1, "{:?}", played.state);
        prop_assert_eq!(played.state.stage, Stage::Over);
        prop_assert!(played.outstanding.is_none());

        // One row an iteration, in order, and the counts agree with them.
        let iters: Vec<u32> = played.rows().iter().map(|row| row.iter).collect();
        let expect: Vec<u32> = (0..).take(iters.len()).collect();
        prop_assert_eq!(&iters, &expect);
        let settled = u32::try_from(iters.iter().filter(|iter| **iter > 0).count()).unwrap();
        let broken_restore = played.finishes == [Outcome::Error];
        prop_assert_eq!(played.state.counts.total(), settled);
        prop_assert!(settled <= iterations);

        // Each measurement of an iteration happened at most once.
        let mut measured: Vec<u32> = played.readings.iter().map(|(iter, _)| *iter).collect();
        let before = measured.len();
        measured.dedup();
        prop_assert_eq!(before, measured.len());

        check_rule(&played);

        // A phase is told once each time it changes.
        let phases: Vec<(Phase, u32)> = played.lines.iter().filter_map(|(event, _)| match event {
            SessionEvent::Phase { phase, iter } => Some((*phase, *iter)),
            _ => None,
        }).collect();
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
            (None, outcome) => prop_assert_eq!(outcome, Some(&Outcome::Finished)),
        }
    }
}

#[test]
fn a_failed_agent_is_not_measured_as_if_it_had_run() {
    let mut played = Played::new(terms(1, Direction::Higher));
    played.send(EventKind::Ready);
    played.answer(true, None, false);
    played.answer(true, Some(reading(1, None, false, true)), false);
    played.answer(true, None, false);
    let measured = played.readings.len();
    played.answer(false, None, false);
    assert!(matches!(played.outstanding, Some(Job::Restore { .. })), "{:?}", played.outstanding);
    assert_eq!(played.readings.len(), measured);
    assert_eq!(played.rows().last().unwrap().decision, Decision::Discard);
}

#[test]
fn a_failed_snapshot_aborts_the_keep_and_goes_back() {
    let mut played = Played::new(terms(1, Direction::Higher));
    played.send(EventKind::Ready);
    played.answer(true, None, false);
    played.answer(true, Some(reading(1, None, false, true)), false);
    played.answer(true, None, false);
    played.answer(true, None, false);
    played.answer(true, None, false);
    played.answer(true, Some(reading(2, None, false, true)), false);
    assert_eq!(played.outstanding, Some(Job::Snapshot));
    played.answer(false, None, false);
    assert_eq!(played.outstanding, Some(Job::Restore { token: "t0".into() }));
    let row = *played.rows().last().unwrap();
    assert_eq!(row.decision, Decision::Discard);
    assert!(row.note.starts_with("the snapshot failed"), "{}", row.note);
}

#[test]
fn a_failed_restore_stops_the_run() {
    let mut played = Played::new(terms(5, Direction::Higher));
    played.send(EventKind::Ready);
    played.answer(true, None, false);
    played.answer(true, Some(reading(1, None, false, true)), false);
    played.answer(true, None, false);
    played.answer(false, None, false);
    played.answer(false, None, false);
    assert_eq!(played.finishes, [Outcome::Error]);
}

#[test]
fn a_solved_baseline_ends_the_run_without_a_turn() {
    let mut played = Played::new(terms(5, Direction::Higher));
    played.send(EventKind::Ready);
    played.answer(true, None, false);
    played.answer(true, Some(reading(1, None, true, true)), false);
    played.answer(true, None, false);
    assert_eq!(played.finishes, [Outcome::Solved]);
    assert!(!played.jobs.iter().any(|job| matches!(job, Job::Propose { .. })));
}

#[test]
fn the_judge_knows_no_numbers_before_the_baseline_and_all_after_it() {
    let mut played = Played::new(terms(1, Direction::Higher));
    played.send(EventKind::Ready);
    played.answer(true, None, false);
    let Some(Job::Measure { known, .. }) = &played.outstanding else { panic!() };
    assert_eq!(*known, Known::default());
    played.answer(true, Some(reading(7, None, false, true)), false);
    played.answer(true, None, false);
    played.answer(true, None, false);
    played.answer(true, None, false);
    let Some(Job::Measure { known, .. }) = &played.outstanding else { panic!() };
    assert_eq!(known.best_score, Score::new(7.0));
    assert_eq!(known.baseline_score, Score::new(7.0));
}

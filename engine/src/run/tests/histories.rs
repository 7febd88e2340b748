//! Random histories of runs against the rules of contract §4, §7 and §7.1, and their logs folded again.

use proptest::prelude::*;

use super::*;

/// One answer of a world that does as it likes.
#[derive(Debug, Clone)]
enum Move {
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

impl Played {
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
pub(super) fn check_operators(played: &Played) {
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

//! Iterations with agent tasks, one history each.

use super::*;
use crate::log::RecoveryClass;

/// `plan`, `invent`, `critic` (advisory), `refine` (of those that passed), apply, measure, decide.
fn graph() -> Graph {
    let task = |name: &str, op: &str, depends_on: &[&str], advisory, join: Option<&str>| PlanTask {
        name: name.to_owned(),
        op: op.to_owned(),
        depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
        advisory,
        join: join.map(str::to_owned),
    };
    let told = [
        task("plan", "agent", &[], false, None),
        task("invent", "propose", &["plan"], false, None),
        task("critic", "agent", &["invent"], true, None),
        task("refine", "agent", &["invent", "critic"], false, Some("passed")),
        task("deploy", "apply", &["refine"], false, None),
        task("bench", "measure", &["deploy"], false, None),
        task("choose", "decide", &["bench"], false, None),
    ];
    Graph::of_log(&told).unwrap()
}

/// A run whose baseline is kept, with `plan` of the first iteration running.
fn begun(max_cost: Option<f64>) -> Played {
    begun_with(graph(), max_cost)
}

fn begun_with(graph: Graph, max_cost: Option<f64>) -> Played {
    let mut played = Played::new(Terms { graph, max_cost, ..terms(2, Direction::Higher) });
    played.send(EventKind::Ready);
    played.answer(Went::Well, None);
    played.answer(Went::Well, Some(reading(1, None, false, true)));
    played.answer(Went::Well, None);
    played
}

/// The agent task that runs.
#[track_caller]
fn running(played: &Played) -> (&str, Vec<(&str, &str)>) {
    let Some(Job::Agent { name, upstream, .. }) = &played.outstanding else {
        panic!("{:?}", played.outstanding)
    };
    (name, upstream.iter().map(|one| (one.task.as_str(), one.status.token())).collect())
}

/// Turn and recording.
fn well(played: &mut Played) {
    played.answer(Went::Well, None);
    assert!(matches!(played.outstanding, Some(Job::Record { .. })), "{:?}", played.outstanding);
    played.answer(Went::Well, None);
}

/// How the tasks of an iteration settled, in order, with the reason of those that were not run.
fn settled(played: &Played, iter: u32) -> Vec<String> {
    let told = played.lines.iter().filter_map(|(line, _)| match line {
        SessionEvent::TaskResult { task, status, iter: at, blocked, .. } if *at == iter => {
            let why = blocked.as_ref().map(|blocked| format!(" {}", blocked.reason)).unwrap_or_default();
            Some(format!("{task} {}{why}", status.token()))
        }
        _ => None,
    });
    told.collect()
}

#[test]
fn each_task_runs_at_its_place_and_is_told_what_it_waited_for() {
    let mut played = begun(None);
    assert_eq!(running(&played), ("plan", vec![]));
    well(&mut played);
    assert!(matches!(played.outstanding, Some(Job::Propose { .. })));
    well(&mut played);
    assert_eq!(running(&played), ("critic", vec![("invent", "pass")]));
    well(&mut played);
    assert_eq!(running(&played), ("refine", vec![("invent", "pass"), ("critic", "pass")]));
    let Some(Job::Agent { upstream, .. }) = &played.outstanding else { panic!() };
    assert_eq!(upstream[0].output.as_ref().unwrap()["candidate"], "c1");
    assert_eq!(upstream[1].output.as_ref().unwrap()["at"], 1);
    well(&mut played);
    played.answer(Went::Well, None);
    played.answer(Went::Well, Some(reading(2, None, false, true)));
    played.answer(Went::Well, None);
    let row = *played.rows().last().unwrap();
    assert_eq!((row.decision, row.cost_usd), (Decision::Keep, Some(1.0)));
    let names: Vec<&str> = row.evidence.iter().map(|evidence| evidence.task.as_str()).collect();
    assert_eq!(names, ["plan", "invent", "critic", "refine", "deploy", "bench"]);
    let costs = played.lines.iter().filter_map(|(line, _)| match line {
        SessionEvent::TaskResult { cost_usd, iter: 1, .. } => Some(*cost_usd),
        _ => None,
    });
    assert_eq!(costs.sum::<f64>().to_bits(), 1.0f64.to_bits(), "the tasks' costs add up to the row's");
}

#[test]
fn an_advisory_failure_is_taken_back_and_the_iteration_goes_on() {
    for (went, status) in [(Went::Badly, "fail"), (Went::Unbuilt, "fail")] {
        let mut played = begun(None);
        well(&mut played);
        well(&mut played);
        played.answer(went, None);
        let back = Job::Recall { iter: 1, best: Some("t0".into()), files: true };
        assert_eq!(played.outstanding, Some(back));
        played.answer(Went::Well, None);
        assert_eq!(running(&played), ("refine", vec![("invent", "pass")]), "only what passed is told");
        well(&mut played);
        assert!(matches!(played.outstanding, Some(Job::Apply { .. })));
        let expected = ["plan pass", "invent pass", &format!("critic {status}"), "refine pass"];
        assert_eq!(settled(&played, 1), expected);
    }
}

#[test]
fn a_required_failure_discards_the_candidate_and_names_the_task() {
    let mut played = begun(None);
    well(&mut played);
    well(&mut played);
    played.answer(Went::Idle, None);
    played.answer(Went::Well, None);
    assert_eq!(running(&played).0, "refine", "one that had nothing to do is in nobody's way");
    played.answer(Went::Badly, None);
    played.answer(Went::Well, None);
    assert_eq!(played.outstanding, Some(Job::Restore { token: "t0".into() }));
    assert_eq!(settled(&played, 1), ["plan pass", "invent pass", "critic skipped", "refine fail"]);
    let row = *played.rows().last().unwrap();
    assert_eq!((row.decision, row.note.as_str()), (Decision::Discard, "`refine`: failed"));
    assert_eq!(row.candidate.as_deref(), Some("c1"));

    let mut played = begun(None);
    played.answer(Went::Badly, None);
    played.answer(Went::Well, None);
    let expected =
        ["plan fail", "critic blocked required_task_failed", "refine blocked required_task_failed"];
    assert_eq!(settled(&played, 1), expected);
}

#[test]
fn a_task_that_was_killed_is_taken_again_on_what_was_recorded_and_nothing_before_it() {
    let mut played = begun(None);
    well(&mut played);
    well(&mut played);
    assert_eq!(running(&played).0, "critic");
    let before = played.turns.clone();
    played.crash(0);
    let Some((SessionEvent::Recovery { class, iter, .. }, _)) =
        played.lines.iter().find(|(line, _)| matches!(line, SessionEvent::Recovery { .. }))
    else {
        panic!()
    };
    assert_eq!((*class, *iter), (RecoveryClass::DiedInPlanTask, 1));
    assert_eq!(played.outstanding, Some(Job::Recall { iter: 1, best: Some("t0".into()), files: true }));
    played.answer(Went::Well, None);
    assert_eq!(running(&played), ("critic", vec![("invent", "pass")]));
    assert_eq!(played.turns, before);

    // Before anything of the iteration was recorded the workspace goes back to the best.
    let mut played = begun(None);
    played.crash(0);
    assert_eq!(played.outstanding, Some(Job::Restore { token: "t0".into() }));
    played.answer(Went::Well, None);
    assert_eq!(running(&played).0, "plan");

    // One whose turn was over is recorded, and not taken again.
    let mut played = begun(None);
    played.answer(Went::Well, None);
    played.crash(0);
    assert_eq!(played.outstanding, Some(Job::Recall { iter: 1, best: Some("t0".into()), files: false }));
    played.answer(Went::Well, None);
    assert!(matches!(played.outstanding, Some(Job::Record { .. })));
}

#[test]
fn a_dead_turn_of_a_task_is_tried_again_on_what_was_recorded() {
    let mut played = begun(None);
    well(&mut played);
    well(&mut played);
    played.answer(Went::Died, None);
    assert!(matches!(played.outstanding, Some(Job::Recall { files: true, .. })));
    played.answer(Went::Well, None);
    assert!(matches!(played.outstanding, Some(Job::Wait { .. })));
    played.answer(Went::Well, None);
    assert_eq!(running(&played).0, "critic");
    played.answer(Went::Died, None);
    played.answer(Went::Well, None);
    assert_eq!(settled(&played, 1).last().unwrap(), "critic transport");
    assert!(
        matches!(played.outstanding, Some(Job::Wait { .. })),
        "refine waits as any turn after a dead one"
    );
}

#[test]
fn a_ceiling_that_is_used_up_keeps_a_task_from_running() {
    // Two turns of 0.25 each use all of it.
    let mut played = begun(Some(0.5));
    well(&mut played);
    let Some(Job::Propose { brief, .. }) = &played.outstanding else { panic!() };
    assert_eq!(brief.cost_left, Some(0.25));
    well(&mut played);
    let expected =
        ["plan pass", "invent pass", "critic blocked budget_ceiling", "refine blocked budget_ceiling"];
    assert_eq!(settled(&played, 1), expected);
    let row = *played.rows().last().unwrap();
    assert_eq!(row.note, "`refine`: the cost ceiling refused its turn: nothing of it is left");
    played.answer(Went::Well, None);
    assert_eq!(played.finishes, [Outcome::Budget]);
}

#[test]
fn a_join_of_nothing_that_passed_is_blocked() {
    let task = |name: &str, op: &str, depends_on: &str, advisory: bool| PlanTask {
        name: name.to_owned(),
        op: op.to_owned(),
        depends_on: Some(depends_on.to_owned()).filter(|name| !name.is_empty()).into_iter().collect(),
        advisory,
        join: (name == "refine").then(|| "passed".to_owned()),
    };
    let graph = Graph::of_log(&[
        task("invent", "propose", "", false),
        task("critic", "agent", "invent", true),
        task("refine", "agent", "critic", false),
        task("deploy", "apply", "refine", false),
        task("bench", "measure", "deploy", false),
        task("choose", "decide", "bench", false),
    ]);
    let mut played = begun_with(graph.unwrap(), None);
    well(&mut played);
    played.answer(Went::Badly, None);
    played.answer(Went::Well, None);
    let expected = ["invent pass", "critic fail", "refine blocked dependency_did_not_pass"];
    assert_eq!(settled(&played, 1), expected);
    assert_eq!(played.rows().last().unwrap().decision, Decision::Discard);
}

#[test]
fn an_iteration_that_nothing_can_run_in_is_gone_on_with_from_the_middle_of_its_lines() {
    let task = |name: &str, op: &str, depends_on: &[&str], join: Option<&str>| PlanTask {
        name: name.to_owned(),
        op: op.to_owned(),
        depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
        advisory: false,
        join: join.map(str::to_owned),
    };
    let told = [
        task("nothing", "agent", &[], Some("passed")),
        task("invent", "propose", &[], None),
        task("deploy", "apply", &["invent"], None),
        task("bench", "measure", &["deploy"], None),
        task("choose", "decide", &["bench"], None),
    ];
    let graph = Graph::of_log(&told).unwrap();
    for lost in 0..12 {
        let mut played = begun_with(graph.clone(), None);
        while played.state.stage != Stage::Over {
            played.answer(Went::Well, Some(reading(2, None, false, true)));
        }
        assert_eq!(settled(&played, 1)[0], "nothing blocked dependency_did_not_pass");
        played.crash(lost);
        while played.state.stage != Stage::Over {
            played.answer(Went::Well, Some(reading(2, None, false, true)));
        }
        assert_eq!(replay(&played.log).state.counts.total(), 2, "{lost} lines were lost");
    }
}

/// `invent`, `critic` (advisory), and the engine's steps, however `critic` settles.
fn looked_at() -> Graph {
    let task = |name: &str, op: &str, depends_on: &[&str]| PlanTask {
        name: name.to_owned(),
        op: op.to_owned(),
        depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
        advisory: name == "critic",
        join: (name == "deploy").then(|| "settled".to_owned()),
    };
    let told = [
        task("invent", "propose", &[]),
        task("critic", "agent", &["invent"]),
        task("deploy", "apply", &["invent", "critic"]),
        task("bench", "measure", &["deploy"]),
        task("choose", "decide", &["bench"]),
    ];
    Graph::of_log(&told).unwrap()
}

#[test]
fn a_ceiling_that_is_used_up_costs_no_candidate_that_a_dead_engine_left() {
    // The turns are over, and the workspace was on its way back from the one that failed.
    let mut played = begun_with(looked_at(), Some(0.5));
    well(&mut played);
    played.answer(Went::Badly, None);
    assert!(matches!(played.outstanding, Some(Job::Recall { .. })));
    played.crash(0);
    played.answer(Went::Well, None);
    assert!(matches!(played.outstanding, Some(Job::Apply { .. })), "{:?}", played.outstanding);

    // What the killed turn had used was the last of it.
    let mut played = begun_with(looked_at(), Some(0.5));
    well(&mut played);
    assert_eq!(running(&played).0, "critic");
    played.clock += played.clock % 2;
    played.crash(0);
    assert_eq!(played.state.spent().to_bits(), 0.5f64.to_bits());
    played.answer(Went::Well, None);
    assert!(matches!(played.outstanding, Some(Job::Apply { .. })), "{:?}", played.outstanding);
    assert_eq!(settled(&played, 1), ["invent pass", "critic blocked budget_ceiling"]);
    let last = played.lines.iter().rev().find_map(|(line, _)| match line {
        SessionEvent::TaskResult { task, attempts, cost_usd, .. } if task == "critic" => {
            Some((*attempts, *cost_usd))
        }
        _ => None,
    });
    assert_eq!(last, Some((1, 0.25)), "what it had used is its own");
}

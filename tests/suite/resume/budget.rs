//! Ceilings, turns that die of what carries them, and turns that change nothing.

use serde_json::Value;

use super::{killed_at, noting, turns};
use crate::support::{COUNT, Pack};

fn costing(usd: &str) -> Pack {
    Pack::new(
        &format!(
            "echo '{{\"cost_usd\": {usd}}}' > \"$CRUCIBLE_USAGE\"; echo \"left $CRUCIBLE_COST_LEFT\" >> ../left; {}",
            noting()
        ),
        COUNT,
        "",
    )
}

#[test]
fn row_65_a_turn_is_refused_when_the_ceiling_is_reached_and_each_is_told_what_is_left() {
    let pack = costing("0.4");
    let ran = pack.run(&["--iterations", "9", "--max-cost", "1"]);
    ran.ended("budget", 10);
    assert_eq!(turns(&pack), 3);
    let spent = ran.events("budget").last().unwrap()["spent"].as_f64().unwrap();
    assert!(spent <= 1.2 + 1e-9, "{spent}");
    let reason = ran.log.last().unwrap()["reason"].as_str().unwrap();
    assert!(reason.contains("iteration 4"), "{reason}");
    let left: Vec<f64> = pack.read("left").lines().map(|line| line[5..].parse().unwrap()).collect();
    assert!(left.len() == 3 && (left[0] - 1.0).abs() < 1e-9 && (left[2] - 0.2).abs() < 1e-9, "{left:?}");
    let more = pack.run(&["--resume", "--max-cost", "1.5"]);
    more.ended("budget", 10);
    assert_eq!(turns(&pack), 4, "one more turn was affordable");
}

#[test]
fn what_an_interrupted_turn_had_used_is_spent_in_its_own_iteration_before_it_is_tried_again() {
    let usage = "echo '{\"cost_usd\": 0.4, \"output_tokens\": 7}' > \"$CRUCIBLE_USAGE\"; echo \"$CRUCIBLE_COST_LEFT\" >> ../left";
    let agent = format!("{usage}; {}; [ -e ../go ] || {{ touch ../begun; sleep 1000; }}", noting());
    let pack = Pack::new(&agent, COUNT, "");
    killed_at(&pack, &["--iterations", "2", "--max-cost", "1.5"], "begun");
    pack.write("go", "");
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!(pack.read("left").lines().collect::<Vec<_>>(), ["1.5", "1.1", "0.7"]);
    let lost: Vec<&Value> = ran.events("agent_lost").collect();
    assert_eq!((lost.len(), &lost[0]["iter"], &lost[0]["cost_usd"]), (1, &1.into(), &0.4.into()));
    let costs: Vec<&Value> = ran.rows().into_iter().skip(1).map(|row| &row["cost_usd"]).collect();
    assert_eq!(costs, [&Value::from(0.8), &Value::from(0.4)]);
    assert_eq!(ran.events("budget").last().unwrap()["output_tokens"], 21);
    assert_eq!(pack.run(&["replay", "state/session.jsonl"]).code(), 0);

    // After two deaths it is still that iteration's, and where nothing is left there is no other turn.
    for (ceiling, kills) in [("1.5", 2), ("0.4", 1)] {
        let pack = Pack::new(&agent, COUNT, "");
        killed_at(&pack, &["--iterations", "1", "--max-cost", ceiling], "begun");
        for _ in 1..kills {
            std::fs::remove_file(pack.path("begun")).unwrap();
            killed_at(&pack, &["--resume"], "begun");
        }
        pack.write("go", "");
        let ran = pack.run(&["--resume"]);
        ran.ended("finished", 0);
        assert_eq!((turns(&pack), ran.decisions().len()), (kills, 2));
        let cost = ran.rows()[1]["cost_usd"].as_f64().unwrap();
        assert!((cost - 0.4 * kills as f64).abs() < 1e-9, "{cost}");
    }
}

#[test]
fn row_67_a_run_that_was_over_anyway_did_not_end_by_its_budget() {
    let pack = costing("0.5");
    pack.run(&["--iterations", "2", "--max-cost", "1"]).ended("finished", 0);
}

#[test]
fn a_usage_that_is_none_costs_nothing_and_is_named() {
    let pack = Pack::new(&format!("ln -s /etc/passwd \"$CRUCIBLE_USAGE\"; {}", noting()), COUNT, "");
    let ran = pack.run(&["--iterations", "1", "--max-cost", "1"]);
    ran.ended("finished", 0);
    let dropped = ran.rows()[1]["dropped"].to_string();
    assert!(dropped.contains("crucible-usage"), "{dropped}");
    assert_eq!(pack.git(&["ls-files", ".crucible-usage.json"]), "");
    for bad in ["0", "-1", "nan", "inf"] {
        let ran = Pack::counter().run(&["--iterations", "1", &format!("--max-cost={bad}")]);
        assert_eq!(ran.code(), 2, "{bad}: {}", ran.stderr());
    }
}

#[test]
fn row_71_a_run_whose_turns_change_nothing_is_stalled_and_one_that_tries_is_not() {
    let pack = Pack::new("echo turn >> ../turns", COUNT, "");
    let ran = pack.run(&["--iterations", "9"]);
    ran.ended("stalled", 13);
    assert_eq!(turns(&pack), 3);
    assert_eq!(ran.rows().len(), 4);
    let trying = Pack::new("echo turn >> ../turns; echo junk > try-$(wc -l < ../turns)", COUNT, "");
    trying.run(&["--iterations", "5"]).ended("finished", 0);
    assert_eq!(turns(&trying), 5);
}

#[test]
fn turns_that_die_of_what_carries_them_are_tried_again_and_end_the_run_as_stalled() {
    // The sandbox cannot show a host path that is gone: every turn dies of the sandbox.
    let pack = Pack::new(&noting(), COUNT, "");
    let gone = pack.path("shown");
    std::fs::create_dir(&gone).unwrap();
    let manifest = pack.read("crucible.toml").replace(
        "backend = \"command\"\n",
        &format!(
            "backend = \"openshell\"\nharness = \"command\"\nopenshell = {{ inherit_defaults = false, read_only_paths = [{:?}] }}\n",
            gone.display().to_string()
        ),
    );
    pack.write("crucible.toml", &manifest);
    let judge = format!("rm -rf ../shown\n{COUNT}");
    pack.write("measure.sh", &judge);
    let ran = pack.run(&["--iterations", "9"]);
    ran.ended("stalled", 13);
    assert_eq!(ran.decisions(), ["baseline", "infra-dead", "infra-dead"], "{}", ran.stderr());
    let retries: Vec<&Value> = ran.events("retry").collect();
    assert_eq!(retries.len(), 1);
    assert!(retries[0]["wait_secs"].as_f64().unwrap() >= 1.0, "{}", retries[0]);
    assert!(ran.events("phase").any(|line| line["phase"] == "distressed"));
    let attempts: Vec<u64> = ran
        .events("task_result")
        .filter(|line| line["status"] == "transport")
        .map(|line| line["attempts"].as_u64().unwrap())
        .collect();
    assert_eq!(attempts, [2, 1]);
}

#[test]
fn what_a_turn_had_used_is_charged_once_wherever_its_engine_dies_at_the_end_of_the_turn() {
    let agent = format!("echo '{{\"cost_usd\": 0.25}}' > \"$CRUCIBLE_USAGE\"; {}", noting());
    // Which of the points of a run without a death stand around the line of the turn.
    let pack = Pack::new(&agent, COUNT, "");
    let run = |pack: &Pack, at: &str| {
        let mut command = pack.command(&["--iterations", "1"]);
        command.env("CRUCIBLE_CRASH_LOG", pack.path("points")).env("CRUCIBLE_CRASH_AT", at);
        command.output().unwrap();
    };
    run(&pack, "");
    let lines = pack.log().iter().position(|line| line["kind"] == "agent_done").unwrap();
    let points = pack.read("points");
    let points: Vec<&str> = points.lines().collect();
    let (done, _) =
        points.iter().enumerate().filter(|(_, point)| **point == "log: before a line").nth(lines).unwrap();
    let ended = points[..done].iter().rposition(|point| *point == "command: after its end").unwrap();
    // A line that is cut is another test's.
    for at in (ended..done + 8).filter(|at| points[*at] != "log: in a line") {
        let pack = Pack::new(&agent, COUNT, "");
        run(&pack, &(at + 1).to_string());
        assert!(!pack.log_text().contains("\"shutdown\""), "it died at point {at}");
        let ran = pack.run(&["--resume"]);
        ran.ended("finished", 0);
        let spent = ran.events("budget").last().unwrap()["spent"].as_f64().unwrap();
        let turns = turns(&pack);
        assert!((spent - 0.25 * turns as f64).abs() < 1e-9, "{spent} by {turns} turns, at {}", points[at]);
        assert!(!pack.exists("workspace/.crucible-usage.json"));
        assert_eq!(pack.run(&["replay", "state/session.jsonl"]).code(), 0);
    }
}

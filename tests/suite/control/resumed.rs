//! Contract §7.1: what a resumed run owes to operators, and what it does not do again.

use serde_json::json;

use super::live::Live;

#[test]
fn a_steer_whose_turn_was_killed_stands_in_the_prompt_of_the_turn_that_is_taken_again() {
    let live = Live::start(&["--iterations", "2"]);
    live.turn();
    live.ok(&["steer", "be faster", "--id", "s"]);
    live.go();
    live.turn();
    assert!(live.prompt(2).contains("be faster"));
    live.kill();
    assert_eq!(live.settlements(), [], "that turn came to no end");
    let live = live.again(&["--resume"]);
    live.turn();
    assert!(live.prompt(1).contains("be faster"), "{}", live.prompt(1));
    live.go();
    live.end().ended("finished", 0);
    assert_eq!(live.settlements(), [("steer".to_owned(), "applied".to_owned())]);
    let admitted = live.ledger().iter().filter(|line| line["kind"] == "admitted").count();
    assert_eq!(admitted, 1);
}

#[test]
fn a_steer_that_was_delivered_is_not_delivered_again_though_its_settlement_was_lost() {
    let live = Live::start(&["--iterations", "2"]);
    live.turn();
    live.ok(&["steer", "be faster", "--id", "s"]);
    live.ok(&["pause"]);
    live.go();
    live.until_phase("paused");
    live.ok(&["resume"]);
    live.turn();
    live.ok(&["pause", "--id", "p"]);
    live.ok(&["budget", "--iterations", "3", "--id", "b"]);
    live.go();
    live.until(&|line| line["kind"] == "phase" && line["phase"] == "paused" && line["iter"] == 2);
    live.kill();
    // As if the engine had died before it settled the steer.
    let kept: Vec<String> = live
        .pack
        .read("state/admissions.jsonl")
        .lines()
        .filter(|line| !(line.contains("\"settled\"") && line.contains("\"s\"")))
        .map(|line| format!("{line}\n"))
        .collect();
    live.pack.write("state/admissions.jsonl", &kept.concat());
    let live = live.again(&["--resume"]);
    live.until(&|line| line["kind"] == "recovery");
    let status = || serde_json::from_str::<serde_json::Value>(&live.ok(&["status", "--json"])).unwrap();
    live.until(&|line| line["kind"] == "input" && line["key"] == "p" && line["stage"] == "setup");
    assert_eq!(status()["iters_total"], 3, "the ceiling is the operator's");
    let steer =
        live.ledger().into_iter().find(|line| line["kind"] == "settled" && line["key"] == "s").unwrap();
    assert_eq!((&steer["outcome"], &steer["note"]), (&json!("applied"), &json!("iteration 2")));
    live.ok(&["resume"]);
    live.turn();
    assert!(!live.prompt(1).contains("be faster"), "{}", live.prompt(1));
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep", "keep"]);
}

#[test]
fn a_stop_that_the_engine_did_not_live_to_heed_is_superseded_by_a_resume() {
    let live = Live::start(&["--iterations", "1"]);
    live.turn();
    live.kill();
    live.pack.write(
        "state/admissions.jsonl",
        "{\"v\":1,\"kind\":\"admitted\",\"key\":\"x\",\"input\":\"stop\"}\n",
    );
    let live = live.again(&["--resume"]);
    live.turn();
    live.go();
    live.end().ended("finished", 0);
    assert_eq!(live.settlements(), [("stop".to_owned(), "superseded".to_owned())]);
}

#[test]
fn a_steer_file_that_was_taken_and_not_recorded_is_read_by_the_next_engine() {
    let live = Live::start(&["--iterations", "1"]);
    live.turn();
    live.kill();
    live.pack.write(".STEER.md.taken", "half-way\n");
    let live = live.again(&["--resume"]);
    live.turn();
    assert!(live.prompt(1).contains("half-way"), "{}", live.prompt(1));
    live.go();
    live.end().ended("finished", 0);
    assert!(!live.pack.exists(".STEER.md.taken"));
}

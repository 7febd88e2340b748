//! Contract §7, `approval_wait` and `approval_resolved`: what the agent asks for, and how it is answered.

use serde_json::{Value, json};

use super::live::Live;
use crate::support::Ran;

/// The brackets of a run: each ask, and each answer.
fn brackets(ran: &Ran) -> Vec<String> {
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or("-").to_owned();
    let lines = ran.log.iter().filter_map(|line| match line["kind"].as_str() {
        Some("approval_wait") => Some(format!("wait {} {}", text(line, "handle"), text(line, "mode"))),
        Some("approval_resolved") => Some(text(line, "outcome")),
        Some("segment") => Some(format!("segment {} {}", text(line, "regime"), line["baseline_score"])),
        _ => None,
    });
    lines.collect()
}

#[test]
fn an_ask_that_blocks_parks_the_loop_until_it_is_granted_and_then_measures_a_new_baseline() {
    let live = Live::start(&["--iterations", "2"]);
    live.turn();
    live.ask("block", "gpu");
    live.go();
    live.until_phase("parked");
    let status: Value = serde_json::from_str(&live.ok(&["status", "--json"])).unwrap();
    assert_eq!(status["waiting"], json!({ "handle": "gpu", "trace_id": "t-gpu", "mode": "block" }));
    assert!(live.ok(&["status"]).contains("the agent asks for gpu (block, t-gpu)"));
    live.ok(&["approve", "--handle", "tpu", "--id", "wrong one"]);
    live.ok(&["approve", "--handle", "gpu", "--id", "yes"]);
    live.turn();
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert_eq!(brackets(&ran), ["wait gpu block", "granted", "segment gpu 1.0"]);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep"]);
    let settled: Vec<(String, String)> = live.settlements();
    let pair = |input: &str, outcome: &str| (input.to_owned(), outcome.to_owned());
    assert_eq!(
        settled,
        [pair("approve", "rejected"), pair("approve", "applied"), pair("rescope", "applied")]
    );
    let grant = live.ledger().into_iter().find(|line| line["input"] == "rescope").unwrap();
    assert!(grant["key"].as_str().unwrap().starts_with("crucible:grant:1:"), "{grant}");
    assert_eq!(
        live.phases(),
        [
            "starting 0",
            "preflight 0",
            "baseline 0",
            "iteration 1",
            "parked 1",
            "baseline 1",
            "iteration 2",
            "finished 2"
        ]
    );
    assert!(!live.pack.exists("workspace/PROVISIONING_PENDING.json"));
    let replay = live.say(&["replay", "state/session.jsonl"]);
    assert_eq!(replay.code(), 0, "{}{}", replay.stdout(), replay.stderr());
}

#[test]
fn an_ask_that_does_not_block_is_waited_for_by_nobody() {
    let live = Live::start(&["--iterations", "2"]);
    live.turn();
    live.ask("continue", "gpu");
    live.go();
    live.turn();
    live.ok(&["deny", "--reason", "none left"]);
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert_eq!(brackets(&ran), ["wait gpu continue", "denied"]);
    let resolved = ran.events("approval_resolved").next().unwrap();
    assert_eq!(resolved["reason"], "none left");
    assert!(!live.phases().iter().any(|phase| phase.starts_with("parked")));
}

#[test]
fn an_ask_that_nobody_answers_is_closed_at_the_end_or_when_the_loop_waited_long_enough() {
    let live = Live::start(&["--iterations", "1"]);
    live.turn();
    live.ask("continue", "gpu");
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert_eq!(brackets(&ran), ["wait gpu continue", "timeout"]);

    let live = Live::start(&["--iterations", "2", "--max-park", "1ms"]);
    live.turn();
    live.ask("block", "gpu");
    live.go();
    live.turn();
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert_eq!(brackets(&ran), ["wait gpu block", "timeout"]);
    assert!(live.phases().contains(&"parked 1".to_owned()));
}

#[test]
fn an_answer_to_nothing_is_rejected() {
    let live = Live::start(&["--iterations", "1"]);
    live.turn();
    live.ok(&["approve"]);
    live.ok(&["deny"]);
    live.ok(&["resume"]);
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert!(brackets(&ran).is_empty());
    assert!(live.settlements().iter().all(|(_, outcome)| outcome == "rejected"));
    assert_eq!(live.settlements().len(), 3);
}

#[test]
fn a_stop_leaves_the_ask_open_and_a_resumed_run_waits_for_it_again() {
    let live = Live::start(&["--iterations", "2"]);
    live.turn();
    live.ask("block", "gpu");
    live.go();
    live.until_phase("parked");
    live.ok(&["stop"]);
    let ran = live.end();
    ran.ended("stopped", 11);
    assert_eq!(brackets(&ran), ["wait gpu block"]);
    let live = live.again(&["--resume"]);
    live.until(&|line| line["kind"] == "recovery");
    live.until_parked_again();
    live.ok(&["approve"]);
    live.turn();
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert_eq!(brackets(&ran), ["wait gpu block", "granted", "segment gpu 1.0"]);
}

#[test]
fn a_grant_that_was_recorded_and_not_drained_is_not_asked_for_again() {
    let live = Live::start(&["--iterations", "2"]);
    live.turn();
    live.ask("block", "gpu");
    live.go();
    live.until_phase("parked");
    live.kill();
    // The engine died between the record of the grant and the head of the iteration.
    let ask = live.pack.log().into_iter().find(|line| line["kind"] == "approval_wait").unwrap();
    let key =
        engine::admission::grant_key(1, ask["trace_id"].as_str().unwrap(), ask["handle"].as_str().unwrap());
    let ledger = format!(
        "{{\"v\":1,\"kind\":\"admitted\",\"key\":\"yes\",\"input\":\"approve\"}}\n\
         {{\"v\":1,\"kind\":\"admitted\",\"key\":\"{key}\",\"input\":\"rescope\",\"regime\":\"big\"}}\n"
    );
    live.pack.write("state/admissions.jsonl", &ledger);
    let live = live.again(&["--resume"]);
    live.turn();
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert_eq!(brackets(&ran), ["wait gpu block", "granted", "segment big 1.0"]);
    let pair = |input: &str| (input.to_owned(), "applied".to_owned());
    assert_eq!(live.settlements(), [pair("approve"), pair("rescope")]);
    assert_eq!(live.pack.run(&["replay", "state/session.jsonl"]).code(), 0);
}

#[test]
fn an_approval_whose_grant_was_not_recorded_is_superseded_and_the_run_waits_on() {
    let live = Live::start(&["--iterations", "2"]);
    live.turn();
    live.ask("block", "gpu");
    live.go();
    live.until_phase("parked");
    live.kill();
    let recovered = "{\"v\":1,\"kind\":\"admitted\",\"key\":\"yes\",\"input\":\"approve\"}\n";
    live.pack.write("state/admissions.jsonl", recovered);
    let live = live.again(&["--resume"]);
    live.until_parked_again();
    assert_eq!(live.settlements(), [("approve".to_owned(), "superseded".to_owned())]);
    let class = live.pack.log().into_iter().find(|line| line["kind"] == "recovery").unwrap();
    assert_eq!(class["class"], "died_awaiting_approval");
    live.ok(&["deny"]);
    live.turn();
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert_eq!(brackets(&ran), ["wait gpu block", "denied"]);
}

impl Live {
    /// Reads the log until a process that took the run up waits for the ask.
    fn until_parked_again(&self) {
        let resumed = std::cell::Cell::new(false);
        self.until(&|line| {
            resumed.set(resumed.get() || line["kind"] == "recovery");
            resumed.get() && line["kind"] == "phase" && line["phase"] == "parked"
        });
    }
}

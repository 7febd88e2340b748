//! Contract §7.1: what operators say to a live run, and what stands in the ledger after it.

mod approvals;
mod live;
mod load;
mod resumed;

use std::os::unix::fs::PermissionsExt;

use live::Live;
use serde_json::{Value, json};

use crate::support::{COUNT, Pack, RAISE};

#[test]
fn a_steer_stands_in_the_next_prompt_once_and_is_settled_then() {
    let live = Live::start(&["--iterations", "3"]);
    live.turn();
    let told = live.ok(&["steer", "be faster", "--id", "pr:1"]);
    assert_eq!(told, "steer: taken in as pr:1\n");
    assert_eq!(live.ok(&["steer", "be faster", "--id", "pr:1"]), "steer: delivered before as pr:1\n");
    let conflict = live.say(&["steer", "be slower", "--id", "pr:1"]);
    assert_eq!(conflict.code(), 1);
    assert!(conflict.stderr().contains("idempotency conflict"), "{}", conflict.stderr());
    assert_eq!(live.ledger().len(), 1, "written before it takes effect, and once");
    live.go();
    live.turn();
    assert!(live.prompt(2).contains("be faster"), "{}", live.prompt(2));
    live.go();
    live.turn();
    assert_eq!(
        live.ok(&["steer", "be faster", "--id", "pr:1"]),
        "steer: delivered before as pr:1, and applied\n"
    );
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    for without in [1, 3] {
        assert!(!live.prompt(without).contains("faster"), "turn {without}");
    }
    let ledger = live.ledger();
    assert_eq!(ledger.len(), 2);
    let [admitted, settled] = [&ledger[0], &ledger[1]];
    assert_eq!(
        (
            &admitted["v"],
            &admitted["kind"],
            &admitted["key"],
            &admitted["input"],
            &admitted["text"],
            &admitted["seq"]
        ),
        (&json!(1), &json!("admitted"), &json!("pr:1"), &json!("steer"), &json!("be faster"), &json!(1))
    );
    assert_eq!(
        (&settled["kind"], &settled["key"], &settled["outcome"], &settled["note"]),
        (&json!("settled"), &json!("pr:1"), &json!("applied"), &json!("iteration 2"))
    );
    assert!(admitted["ts"].is_string() && settled["ts"].is_string());
    let done: Vec<&Value> = ran.events("agent_done").filter(|line| line.get("delivered").is_some()).collect();
    assert_eq!(done.len(), 1);
}

#[test]
fn what_is_written_into_the_steer_file_stands_in_the_next_prompt_where_the_method_has_a_place_for_it() {
    let pack = live::pack();
    pack.write("method.md", "steer<{{STEER}}>");
    pack.write(
        "crucible.toml",
        &pack.read("crucible.toml").replace("[judge]", "method_prompt = \"method.md\"\n[judge]"),
    );
    pack.write("STEER.md", "from the file\n");
    let live = Live::of(pack, &["--iterations", "2"]);
    live.turn();
    assert_eq!(live.prompt(1), "steer<from the file>");
    assert!(!live.pack.exists("STEER.md"), "it is taken");
    live.pack.write("elsewhere.md", "not this one");
    live.go();
    live.turn();
    assert_eq!(live.prompt(2), "steer<>");
    live.go();
    live.end().ended("finished", 0);
    assert_eq!(live.settlements(), [("steer".to_owned(), "applied".to_owned())]);
}

#[test]
fn a_pause_holds_the_loop_between_iterations_and_a_resume_lets_it_go_on() {
    let live = Live::start(&["--iterations", "2"]);
    live.turn();
    live.ok(&["pause"]);
    live.go();
    live.until_phase("paused");
    let status: Value = serde_json::from_str(&live.ok(&["status", "--json"])).unwrap();
    assert_eq!(
        (&status["live"], &status["phase"], &status["iter"]),
        (&json!(true), &json!("paused"), &json!(1))
    );
    assert_eq!(status["owed"][0]["input"], "pause");
    assert!(live.ok(&["status"]).starts_with("live: paused, iteration 1 of 2\n"));
    live.ok(&["resume"]);
    live.turn();
    live.go();
    live.end().ended("finished", 0);
    let pair = |input: &str| (input.to_owned(), "applied".to_owned());
    assert_eq!(live.settlements(), [pair("pause"), pair("resume")]);
    assert_eq!(live.phases().iter().filter(|phase| *phase == "paused 1").count(), 1);
}

#[test]
fn a_stop_ends_after_the_iteration_and_an_abort_at_once() {
    let live = Live::start(&["--iterations", "5"]);
    live.turn();
    live.ok(&["stop"]);
    live.go();
    let ran = live.end();
    ran.ended("stopped", 11);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    assert_eq!(live.settlements(), [("stop".to_owned(), "applied".to_owned())]);

    let live = Live::start(&["--iterations", "5"]);
    live.turn();
    live.ok(&["abort"]);
    let ran = live.end();
    ran.ended("stopped", 11);
    assert_eq!(ran.decisions(), ["baseline", "discard"]);
    assert_eq!(live.pack.read("workspace/counter.txt"), "0\n");
}

#[test]
fn a_run_is_found_by_its_manifest_as_it_finds_its_state() {
    let live = Live::start(&["--iterations", "3"]);
    live.turn();
    let manifest = live.pack.path("crucible.toml").display().to_string();
    let elsewhere = tempfile::tempdir().unwrap();
    let from_elsewhere = |args: &[&str]| {
        let output = crate::support::binary().args(args).current_dir(elsewhere.path()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (code, text) = from_elsewhere(&["status", "--manifest", &manifest]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("live: iteration, iteration 1 of 3\n"), "{text}");
    assert!(text.contains("best 0 (baseline 0), 0 of 0 kept\n"), "{text}");
    let (code, text) = from_elsewhere(&["stop", "--manifest", &manifest]);
    assert_eq!(code, Some(0), "{text}");
    live.go();
    live.end().ended("stopped", 11);
    let (code, text) = from_elsewhere(&["stop"]);
    assert_eq!(code, Some(16), "{text}");
    let told =
        text.contains("no run is live there") && text.contains("--manifest") && text.contains("--state-dir");
    assert!(told && !text.contains("os error"), "{text}");
    let (code, text) = from_elsewhere(&["audit", "--manifest", &manifest]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("find an audit file in") && text.contains("--manifest"), "{text}");
    assert!(text.contains("only a run with backend = \"openshell\" writes one"), "{text}");
}

#[test]
fn a_log_that_lost_an_input_which_acted_does_not_follow() {
    let live = Live::start(&["--iterations", "2"]);
    live.turn();
    live.ok(&["steer", "be faster", "--id", "pr:1"]);
    live.go();
    live.turn();
    live.go();
    live.end().ended("finished", 0);
    assert_eq!(live.say(&["replay"]).code(), 0);
    assert_eq!(live.say(&["replay", "state/session.jsonl", "--state-dir", "state"]).code(), 2);
    let text = live.pack.read("state/session.jsonl");
    let input = |line: &&str| line.contains("\"kind\":\"input\"");
    let first = text.lines().find(input).unwrap().to_owned();
    // Without its number, as a log of before there were numbers.
    let bare = |line: &str| {
        let mut line: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
        line.remove("seq");
        Value::Object(line).to_string()
    };
    let less: Vec<String> = text.lines().filter(|line| *line != first).map(bare).collect();
    live.pack.write("state/less.jsonl", &less.join("\n"));
    let found = live.say(&["replay", "state/less.jsonl"]);
    assert_eq!(found.code(), 1, "{}", found.stdout());
    let told = "says that the input pr:1 was applied, and no `input` line takes it up";
    assert!(found.stderr().contains(told), "{}", found.stderr());
}

#[test]
fn a_pause_is_ended_by_a_stop() {
    let live = Live::start(&["--iterations", "5"]);
    live.turn();
    live.ok(&["pause"]);
    live.go();
    live.until_phase("paused");
    live.ok(&["stop"]);
    live.end().ended("stopped", 11);
}

#[test]
fn a_budget_takes_the_place_of_the_command_lines_at_once() {
    let live = Live::start(&["--iterations", "9"]);
    live.turn();
    live.ok(&["budget", "--iterations", "7", "--id", "seven"]);
    live.ok(&["budget", "--iterations", "1", "--id", "one"]);
    let status: Value = serde_json::from_str(&live.ok(&["status", "--json"])).unwrap();
    assert_eq!(status["iters_total"], 1);
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    assert_eq!(live.settlements(), [("set-budget".to_owned(), "superseded".to_owned())]);

    let live = Live::start(&["--iterations", "9"]);
    live.turn();
    live.ok(&["budget", "--max-time", "1ms"]);
    live.end().ended("budget", 10);
}

#[test]
fn a_rescope_measures_the_best_again_and_later_scores_are_compared_with_that() {
    // In the regime of the test a score is a hundred less, from when the file is there.
    let judge = "n=$(cat counter.txt); [ -e \"$SYNC/regime\" ] && n=$((n - 100)); echo \"{\\\"valid\\\": true, \\\"score\\\": $n}\"\n";
    let pack = live::pack_with(judge);
    let live = Live::of(pack, &["--iterations", "2"]);
    live.turn();
    live.ok(&["rescope", "c=48"]);
    live.pack.write("sync/regime", "");
    live.go();
    live.turn();
    assert!(live.prompt(2).contains("Regime: c=48."), "{}", live.prompt(2));
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    // The first candidate is measured in the new regime before anybody said so, and loses.
    assert_eq!(ran.decisions(), ["baseline", "discard", "keep"]);
    let segment = ran.events("segment").next().unwrap();
    assert_eq!((&segment["baseline_score"], &segment["regime"]), (&json!(-100.0), &json!("c=48")));
    assert!(segment["fingerprint"].as_str().unwrap().starts_with("v1:"));
    assert_eq!(live.settlements(), [("rescope".to_owned(), "applied".to_owned())]);
    assert_eq!(
        live.phases(),
        ["starting 0", "preflight 0", "baseline 0", "iteration 1", "baseline 1", "iteration 2", "finished 2"]
    );
    let replay = live.say(&["replay", "state/session.jsonl"]);
    assert_eq!(replay.code(), 0, "{}{}", replay.stdout(), replay.stderr());
}

#[test]
fn a_regime_that_cannot_be_measured_is_rejected_and_the_old_one_stays() {
    let judge = "[ -e \"$SYNC/regime\" ] && { rm \"$SYNC/regime\"; exit 1; }; printf '{\"valid\": true, \"score\": %s}\\n' \"$(cat counter.txt)\"\n";
    let live = Live::of(live::pack_with(judge), &["--iterations", "2"]);
    live.turn();
    live.ok(&["pause"]);
    live.go();
    live.until_phase("paused");
    live.pack.write("sync/regime", "");
    live.ok(&["rescope", "c=48"]);
    live.ok(&["resume"]);
    live.turn();
    live.go();
    let ran = live.end();
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep"]);
    assert_eq!(ran.events("segment").count(), 0);
    assert!(live.settlements().contains(&("rescope".to_owned(), "rejected".to_owned())));
}

#[test]
fn without_a_live_run_status_and_tail_read_the_log_and_the_rest_says_so() {
    let pack = Pack::counter();
    for args in [&["status"][..], &["tail"], &["pause"]] {
        let ran = pack.run(args);
        assert_eq!(ran.code(), 16, "{args:?}: {}", ran.stderr());
    }
    pack.run(&["--iterations", "2"]).ended("finished", 0);
    let status = pack.run(&["status"]);
    assert_eq!(status.code(), 0, "{}", status.stderr());
    assert!(
        status.stdout().starts_with("finished: all iterations were run\nbest 2 (baseline 0), 2 of 2 kept\n"),
        "{}",
        status.stdout()
    );
    let tail = pack.run(&["tail"]);
    assert_eq!(tail.stdout().lines().count(), 10);
    assert!(tail.stdout().lines().last().unwrap().contains("shutdown"), "{}", tail.stdout());
    let raw = pack.run(&["tail", "--json", "--from", "1"]);
    assert_eq!(raw.stdout(), pack.log_text());
    for args in [&["pause"][..], &["steer", "x"], &["approve"], &["budget", "--iterations", "3"]] {
        let ran = pack.run(args);
        assert_eq!(ran.code(), 16, "{args:?}");
        assert!(ran.stderr().contains("no run is live"), "{}", ran.stderr());
    }
}

#[test]
fn a_tail_that_follows_has_every_line_to_the_last_one() {
    let live = Live::start(&["--iterations", "1"]);
    live.turn();
    let mut follow = live.pack.command(&["tail", "--follow", "--json", "--from", "1"]).spawn().unwrap();
    live.go();
    live.end().ended("finished", 0);
    let mut text = String::new();
    std::io::Read::read_to_string(follow.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert!(follow.wait().unwrap().success());
    assert_eq!(text, live.pack.log_text());
}

#[test]
fn over_tcp_operators_show_the_token() {
    let pack = live::pack();
    pack.write("token", "secret\n");
    pack.write("wrong", "guess\n");
    let args = ["--iterations", "1", "--control-addr", "127.0.0.1:0", "--control-token-file", "token"];
    let live = Live::of(pack, &args);
    live.turn();
    let note = live.pack.log().into_iter().find_map(|line| {
        line["msg"].as_str()?.strip_prefix("operators are heard at ")?.strip_suffix(" too").map(str::to_owned)
    });
    let address = note.unwrap();
    let at =
        |token: &str, cmd: &str| live.say(&[cmd, "--control-addr", &address, "--control-token-file", token]);
    let refused = at("wrong", "stop");
    assert_eq!(refused.code(), 1, "{}", refused.stderr());
    assert_eq!(at("token", "status").code(), 0);
    assert_eq!(live.ledger().len(), 0);
    live.go();
    live.end().ended("finished", 0);
    let open = Pack::counter();
    open.write("token", "secret\n");
    let ran = open.run(&["--control-addr", "0.0.0.0:0", "--control-token-file", "token"]);
    assert_eq!(ran.code(), 1, "{}", ran.stderr());
    assert!(ran.stderr().contains("no loopback address"), "{}", ran.stderr());
    assert_eq!(open.run(&["--control-addr", "127.0.0.1:0"]).code(), 2, "never without a token");
}

#[test]
fn socket_and_ledger_are_the_owners_alone_and_the_ledger_goes_with_its_run() {
    let live = Live::start(&["--iterations", "1"]);
    live.turn();
    for name in ["control.sock", "admissions.jsonl"] {
        let mode = live.pack.path("state").join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    live.ok(&["steer", "x", "--id", "first run's"]);
    live.go();
    live.end().ended("finished", 0);
    assert!(!live.pack.exists("state/control.sock"), "nobody listens any more");
    assert_eq!(live.ledger().len(), 1, "no turn was left that could have been steered");
    let ran = live.again(&["--iterations", "1"]);
    ran.turn();
    ran.go();
    ran.end().ended("finished", 0);
    assert_eq!(ran.ledger().len(), 0);
    assert!(!ran.prompt(1).contains("operator"), "{}", ran.prompt(1));
}

#[test]
fn the_agents_memory_outlives_a_discard_and_is_in_no_candidate() {
    let pack = Pack::new(
        "cat RESULTS.md > \"$MEMORY.$(ls \"$MEMORY\".* 2>/dev/null | wc -l)\"; echo junk > junk.txt",
        "echo '{\"valid\": true, \"score\": 0, \"note\": \"no better\"}'\n",
        "",
    );
    let memory = pack.path("memory");
    let output = pack.command(&["--iterations", "3"]).env("MEMORY", &memory).output().unwrap();
    assert!(output.status.success());
    assert!(!pack.read("memory.0").contains("- 1:"));
    assert!(
        pack.read("memory.2").ends_with("- 1: discarded, 0 (no better)\n- 2: discarded, 0 (no better)\n"),
        "{}",
        pack.read("memory.2")
    );
    let candidate =
        pack.log().iter().find_map(|line| line["row"]["candidate"].as_str().map(str::to_owned)).unwrap();
    let files = pack.git(&["ls-tree", "-r", "--name-only", &candidate]);
    assert!(files.contains("junk.txt") && !files.contains("RESULTS"), "{files}");
}

#[test]
fn a_memory_of_the_repositorys_own_is_left_alone() {
    let pack = Pack::new(RAISE, COUNT, "");
    pack.write("start/RESULTS.md", "ours\n");
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    assert_eq!(pack.read("workspace/RESULTS.md"), "ours\n");
    let said = ran.events("note").filter(|line| line["msg"].as_str().unwrap().contains("RESULTS.md")).count();
    assert_eq!(said, 1);
}

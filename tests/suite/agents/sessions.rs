//! Durable conversations: what a turn goes on from, wherever it runs and however the one before it ended.

use std::fmt::Write as _;

use serde_json::json;

use super::*;

#[test]
fn two_turns_are_one_conversation_and_make_the_same_tree_everywhere() {
    if !installed() {
        return;
    }
    let argv = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '[c]anary-key' > argv.txt";
    let step = format!("{RAISE}; {argv}; true");
    let mut trees = Vec::new();
    for way in WAYS {
        let model = Model::replies(&turn(&step));
        let pack = pack(way, &model, "goal = \"raise the counter\"", SESSION);
        let ran = run(&pack, &model, &["--iterations", "2"]);
        ran.ended("finished", 0);
        assert_eq!(ran.decisions(), ["baseline", "keep", "keep"], "{way:?}");
        assert_eq!(sessions_of(&ran), [("start".to_owned(), 1), ("resume".to_owned(), 2)], "{way:?}");
        assert_eq!(pack.read("workspace/argv.txt"), "0\n", "{way:?}: the key is no argument");
        trees.push(pack.git(&["rev-parse", "HEAD^{tree}"]));
        assert_eq!(golden(&model), GOLDEN, "{way:?}");
        assert_eq!(holding(&pack.path("."), KEY), Vec::<String>::new(), "{way:?}: the key is in no file");
        nothing_private_is_told(&pack, &ran);
        let tokens: Vec<_> = ran.events("agent_done").map(|done| done["input_tokens"].as_u64()).collect();
        assert_eq!(tokens, [Some(2000), Some(2000)], "{way:?}: each turn pays for itself only");
    }
    assert!(trees.iter().all(|tree| *tree == trees[0]), "{trees:?}");
}

/// What every tool must be told: the whole method and goal first, then only what is new.
const GOLDEN: &str = "\
1: Improve the code in this directory.

Goal: raise the counter

Make one change that could bring the goal nearer, and leave the tree as you want it measured. It is kept if its score is
better than the best so far, and taken back if not.

What happened so far:
Iteration 1 of 2. The objective is `score`; higher is better.
Baseline: 0.
Best so far: 0, from the baseline.
3: The next iteration. The files are as the best candidate left them: what was discarded is not in them. Make the next change, by the same method and for the same goal.

Iteration 2 of 2. The objective is `score`; higher is better.
Baseline: 0.
Best so far: 1, from iteration 1.
Recent iterations:
- 1: kept, 1
";

/// What the prompts of a run say, by the number of the request that brings them; each request holds those before it.
fn golden(model: &Model) -> String {
    let requests = model.requests();
    assert_eq!(requests.len(), 4);
    let mut text = String::new();
    for at in [0, 2] {
        let _ = writeln!(text, "{}: {}", at + 1, last_words(&requests[at]).trim());
    }
    for (at, request) in requests.iter().enumerate() {
        let body = request["body"].to_string();
        assert_eq!(body.matches("Goal: raise the counter").count(), 1, "request {at} has the goal once");
        assert_eq!(body.contains("The next iteration."), at >= 2, "request {at}");
    }
    text
}

/// Cursor and transcript are in the private directory only.
fn nothing_private_is_told(pack: &Pack, ran: &Ran) {
    let ledger: Value = serde_json::from_str(&pack.read("state/agent/sessions.json")).unwrap();
    let cursor = ledger["sessions"][0]["cursor"].as_str().unwrap();
    let id = cursor.split(':').nth(1).unwrap();
    let found = holding(&pack.path("."), id);
    assert!(!found.is_empty() && found.iter().all(|path| path.contains("/state/agent/")), "{found:?}");
    assert!(!ran.stdout().contains(id) && !ran.stderr().contains(id));
}

#[test]
fn a_conversation_goes_on_after_the_engine_was_killed_at_any_event() {
    if !installed() {
        return;
    }
    for way in WAYS {
        for mark in ["\"init\"", "\"step\":\"use\"", "\"type\":\"result\""] {
            let slow = json!([{ "text": "I raise it.", "run": RAISE }, { "text": "Done.", "delay_ms": 300 }]);
            let model = Model::replies(&slow);
            let pack = pack(way, &model, "", SESSION);
            let mut child = command(&pack, &model, &["--iterations", "1"]).spawn().unwrap();
            while !pack.log_text().contains(mark) && child.try_wait().unwrap().is_none() {
                std::thread::yield_now();
            }
            let _ = child.kill();
            child.wait().unwrap();
            let left = pack.path("state/agent/live/solver").exists();
            let ran = run(&pack, &model, &["--iterations", "1", "--resume"]);
            assert_eq!(ran.outcome(), "finished", "{way:?} {mark}: {}{}", ran.stdout(), ran.stderr());
            let last = sessions_of(&ran).last().cloned();
            assert!(last.is_some(), "{way:?} {mark}");
            if way.backend == "local" && left && mark == "\"type\":\"result\"" {
                // What the killed turn had said by then was on the disk, and is gone on with.
                assert_eq!(last.unwrap().0, "resume", "{way:?} {mark}");
            }
            assert!(!pack.path("state/agent/live/solver").exists(), "{way:?} {mark}");
        }
    }
}

/// All that stands in the files below a directory, which may come and go meanwhile.
fn saved(dir: &Path) -> String {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let text = |path: PathBuf| match path.is_dir() {
        true => saved(&path),
        false => std::fs::read_to_string(path).unwrap_or_default(),
    };
    entries.map(text).collect()
}

#[test]
fn a_first_turn_that_was_killed_in_its_sandbox_is_gone_on_with() {
    if !installed() {
        return;
    }
    for way in [WAYS[1], WAYS[3]] {
        let model = Model::start(&json!([{
            "replies": [{ "text": "I look first.", "run": "echo seen-$((40 + 2))" }, { "text": "never said", "delay_ms": 60_000 }],
            "then": { "text": "Done." },
        }]));
        let pack = pack(way, &model, "goal = \"raise the counter\"", SESSION);
        let mut child = command(&pack, &model, &["--iterations", "1"]).spawn().unwrap();
        while !saved(&pack.path("state/agent/live")).contains("seen-42")
            && child.try_wait().unwrap().is_none()
        {
            std::thread::yield_now();
        }
        assert!(!pack.exists("state/agent/solver.jsonl"), "{way:?}: no turn has ended");
        let _ = child.kill();
        child.wait().unwrap();
        let asked = model.requests().len();
        let ran = run(&pack, &model, &["--iterations", "1", "--resume"]);
        ran.ended("finished", 0);
        let begun = [("start".to_owned(), 1), ("resume".to_owned(), 1)];
        assert_eq!(sessions_of(&ran), begun, "{way:?}: {}", pack.log_text());
        // The model is told what it had said and done, and what is new; the goal stands in what was said.
        let request = model.requests()[asked].clone();
        let body = request["body"].to_string();
        assert!(body.contains("I look first.") && body.contains("seen-42"), "{way:?}: {body}");
        assert!(!last_words(&request).contains("raise the counter"), "{way:?}: {body}");
        assert_eq!(body.matches("Goal: raise the counter").count(), 1, "{way:?}: {body}");
        let ledger = pack.read("state/agent/sessions.json");
        assert!(ledger.contains("\"turns\":1"), "{way:?}: {ledger}");
        assert!(!pack.exists("state/agent/live/solver"), "{way:?}");
    }
}

#[test]
fn a_good_turn_whose_transcript_was_deleted_fails_and_the_cursor_stays() {
    if !installed() {
        return;
    }
    for way in WAYS {
        let kept = if way.harness == "claude" { "~/.claude/projects" } else { "~/.codex/sessions" };
        // A file in the directory's place, though the tool may make the directory anew meanwhile. Codex runs no `rm -f`.
        let spoil = format!(
            "{RAISE}; if [ \"$(cat counter.txt)\" = 2 ]; then until [ -f {kept} ]; do rm -r {kept}; touch {kept}; done; fi"
        );
        let model = Model::replies(&turn(&spoil));
        let pack = pack(way, &model, "", SESSION);
        let ran = run(&pack, &model, &["--iterations", "3"]);
        let ledger = pack.read("state/agent/sessions.json");
        assert!(ledger.contains("\"turns\":1"), "{way:?}: {ledger}");
        let row = ran.rows()[2].clone();
        assert_ne!(row["decision"], "keep", "{way:?}: {row}");
        let actions: Vec<_> =
            sessions_of(&ran).into_iter().map(|(action, turn)| format!("{action} {turn}")).collect();
        assert_eq!(actions[..2], ["start 1", "resume 2"], "{way:?}");
        assert!(actions[2..].iter().all(|action| action == "resume 2"), "{way:?}: {actions:?}");
    }
}

#[test]
fn a_working_directory_of_any_length_is_resumed_in() {
    if !installed() {
        return;
    }
    let model = Model::replies(&turn(RAISE));
    for way in [WAYS[0], WAYS[1]] {
        let pack = pack(way, &model, "", SESSION);
        let deep = format!("{}/{}", "d".repeat(150), "e".repeat(220));
        let manifest = pack.read("crucible.toml");
        pack.write(
            "crucible.toml",
            &manifest.replace("[workspace]\n", &format!("[workspace]\ndir = \"{deep}\"\n")),
        );
        let ran = run(&pack, &model, &["--iterations", "2"]);
        assert_eq!(ran.decisions(), ["baseline", "keep", "keep"], "{way:?}: {}", ran.stderr());
        assert_eq!(sessions_of(&ran)[1].0, "resume", "{way:?}");
    }
}

#[test]
fn runs_at_the_same_time_keep_their_conversations_apart() {
    if !installed() {
        return;
    }
    let lane = |name: &str| json!({ "when": format!("goal {name}"), "replies": turn(&format!("echo {name} >> who.txt; {RAISE}")) });
    let model = Model::start(&json!([lane("ada"), lane("bob"), lane("eve")]));
    std::thread::scope(|scope| {
        for (name, way) in [("ada", WAYS[0]), ("bob", WAYS[1]), ("eve", WAYS[2])] {
            let model = &model;
            scope.spawn(move || {
                let pack = pack(way, model, &format!("goal = \"goal {name}\""), SESSION);
                let ran = run(&pack, model, &["--iterations", "2"]);
                assert_eq!(ran.decisions(), ["baseline", "keep", "keep"], "{way:?}: {}", ran.stderr());
                assert_eq!(pack.read("workspace/who.txt"), format!("{name}\n{name}\n"));
            });
        }
    });
}

/// Tasks of agents around a proposal; `plan` and `refine` belong to its conversation.
const TASKS: &str = r#"
[[workflow.task]]
name = "plan"
kind = "agent"
prompt = "PLAN it."
session = "solver"
[[workflow.task]]
name = "critic"
kind = "agent"
prompt = "CRITIC: look at it."
depends_on = ["propose"]
CONFIGURED
[[workflow.task]]
name = "refine"
kind = "agent"
prompt = "REFINE it."
session = "solver"
depends_on = ["critic"]
"#;

/// The graph with its tasks; `configured` is what the critic has of its own.
fn with_tasks(configured: &str) -> String {
    let graph = SESSION.replace("op = \"propose\"", "op = \"propose\"\ndepends_on = [\"plan\"]");
    let graph = graph.replace("depends_on = [\"propose\"]", "depends_on = [\"refine\"]");
    format!("{graph}{}", TASKS.replace("CONFIGURED", configured))
}

/// A turn that leaves a result, after a command.
fn task(run: &str) -> Vec<Value> {
    turn(&format!("{run}; echo '{{\"ok\": true}}' > PLAN_TASK_RESULT.json")).as_array().unwrap().clone()
}

#[test]
fn tasks_go_on_with_the_conversation_of_the_proposals_and_others_have_their_own() {
    if !installed() {
        return;
    }
    let flag = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c -e '--effort [l]ow' > effort.txt; true";
    let replies = [task("true"), turn(RAISE).as_array().unwrap().clone(), task(flag), task(RAISE)].concat();
    let way = WAYS[0];
    let model = Model::replies(&json!(replies));
    let graph = with_tasks("model = \"model-2\"\neffort = \"low\"");
    let pack = pack(way, &model, "goal = \"raise the counter\"", &graph);
    let ran = run(&pack, &model, &["--iterations", "1"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"], "{}", ran.rows()[1]);
    assert_eq!(pack.read("workspace/counter.txt"), "2\n");
    assert_eq!(pack.read("workspace/effort.txt"), "1\n", "the tool has the flag");
    let told: Vec<String> = ran
        .events("agent_session")
        .map(|line| format!("{} {} {}", line["task"], line["action"], line["turn"]))
        .collect();
    assert_eq!(told, ["\"plan\" \"start\" 1", "null \"resume\" 2", "\"refine\" \"resume\" 3"]);

    let requests = model.requests();
    assert_eq!(requests.len(), 8);
    let first = last_words(&requests[0]);
    assert!(first.contains("Goal: raise the counter") && first.contains("PLAN it."), "{first}");
    assert!(last_words(&requests[2]).contains("The next iteration."), "the conversation knows the method");
    for (at, request) in requests.iter().enumerate() {
        let body = request["body"].to_string();
        let is_critics = at == 4 || at == 5;
        assert_eq!(body.matches("Goal: raise the counter").count(), usize::from(!is_critics), "request {at}");
        assert_eq!(body.contains("PLAN it."), !is_critics, "request {at}");
        let asked = if is_critics { "model-2" } else { "model-1" };
        assert_eq!(request["body"]["model"], asked, "request {at}");
    }
    let refine = last_words(&requests[6]);
    assert!(
        refine.contains("REFINE it.") && refine.contains("- `critic`: pass\n  {\"ok\":true}"),
        "{refine}"
    );
    nothing_private_is_told(&pack, &ran);
}

#[test]
fn a_task_may_have_another_harness_and_its_model_here_and_in_a_sandbox() {
    if !installed() {
        return;
    }
    for backend in ["local", "openshell"] {
        let way = Way { harness: "claude", backend };
        let replies =
            [task("true"), turn(RAISE).as_array().unwrap().clone(), task("true"), task(RAISE)].concat();
        let model = Model::replies(&json!(replies));
        let graph = with_tasks("harness = \"codex\"\nmodel = \"model-2\"");
        let secrets = declared(Way { harness: "codex", backend });
        let pack = pack(way, &model, "goal = \"raise the counter\"", &format!("{graph}{secrets}"));
        let ran = run(&pack, &model, &["--iterations", "1"]);
        ran.ended("finished", 0);
        assert_eq!(ran.decisions(), ["baseline", "keep"], "{backend}: {}", ran.rows()[1]);
        let inits: Vec<String> = ran
            .events("agent")
            .filter(|line| line["event"]["type"] == "init")
            .map(|line| format!("{} {}", line["task"], line["event"]["harness"]))
            .collect();
        let of = |task: &str| inits.iter().find(|init| init.starts_with(task)).cloned();
        assert_eq!(of("\"critic\"").as_deref(), Some("\"critic\" \"codex\""), "{backend}: {inits:?}");
        assert_eq!(of("\"refine\"").as_deref(), Some("\"refine\" \"claude\""), "{backend}: {inits:?}");
        let asked: Vec<_> = model.requests().iter().map(|request| request["body"]["model"].clone()).collect();
        assert_eq!(asked[4..6], [json!("model-2"), json!("model-2")], "{backend}: {asked:?}");
    }
}

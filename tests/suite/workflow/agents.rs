//! Agent tasks of a graph: their order, what they are told, what they leave, and what becomes of a candidate when one fails.

use serde_json::{Value, json};

use crate::resume::{class, killed_at};
use crate::support::{COUNT, Pack, RAISE, Ran};

/// A proposal, an advisory look at it, a task that goes on from both, and the engine's steps.
const GRAPH: &str = r#"
[workflow]
result = "choose"
[[workflow.task]]
name = "deploy"
kind = "engine"
op = "apply"
depends_on = ["refine"]
[[workflow.task]]
name = "bench"
kind = "engine"
op = "measure"
depends_on = ["deploy"]
[[workflow.task]]
name = "choose"
kind = "engine"
op = "decide"
source = "bench"
depends_on = ["bench"]
[[workflow.task]]
name = "refine"
kind = "agent"
prompt = "REFINE what is there."
depends_on = ["invent", "critic"]
join = "passed"
emits = ["seen"]
[[workflow.task]]
name = "critic"
kind = "agent"
prompt = "CRITIC: what could be better?"
depends_on = ["invent"]
required = false
[[workflow.task]]
name = "invent"
kind = "engine"
op = "propose"
"#;

/// A result with the field that `refine` promises.
const SEEN: &str = "echo '{\"seen\": \"all\"}' > PLAN_TASK_RESULT.json";

/// What looks like a result, and is none: no task left it.
const STALE: &str = "echo '{\"seen\": \"stale\"}' > PLAN_TASK_RESULT.json";

/// A command that does one thing for each task, which it knows by its prompt; all of them note that they ran.
fn agent(critic: &str, refine: &str) -> String {
    format!(
        "prompt=$(cat); case \"$prompt\" in \
         CRITIC*) echo critic >> ../ran; {critic};; \
         REFINE*) echo refine >> ../ran; echo \"$prompt\" > ../refine-prompt; {refine};; \
         *) echo invent >> ../ran; {STALE}; {RAISE};; esac"
    )
}

/// The tasks of an iteration as they settled.
fn settled(ran: &Ran, iter: u64) -> Vec<String> {
    let lines = ran.events("task_result").filter(|line| line["iter"] == iter);
    lines
        .map(|line| format!("{} {}", line["task"].as_str().unwrap(), line["status"].as_str().unwrap()))
        .collect()
}

fn replays(pack: &Pack) {
    let replayed = pack.run(&["replay", "state/session.jsonl"]);
    assert_eq!(replayed.code(), 0, "{}", replayed.stderr());
}

#[test]
fn tasks_run_in_order_are_told_what_came_before_and_leave_one_candidate() {
    let critic = "echo '{\"advice\": \"ten more\"}' > PLAN_TASK_RESULT.json; echo looked > notes.txt; \
                  echo '{\"cost_usd\": 0.25}' > \"$CRUCIBLE_USAGE\"";
    let refine = format!("n=$(cat counter.txt); echo $((n + 10)) > counter.txt; echo said; {SEEN}");
    let pack = Pack::new(&agent(critic, &refine), COUNT, GRAPH);
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep"]);
    assert_eq!(pack.read("workspace/counter.txt"), "22\n");
    assert_eq!(pack.read("ran"), "invent\ncritic\nrefine\n".repeat(2));
    let all = ["invent pass", "critic pass", "refine pass", "deploy pass", "bench pass", "choose pass"];
    assert_eq!(settled(&ran, 1), all);
    assert_eq!(settled(&ran, 0), ["deploy pass", "bench pass", "choose pass"], "the baseline has no turns");

    let prompt = pack.read("refine-prompt");
    assert!(prompt.starts_with("REFINE what is there.\n"), "{prompt}");
    assert!(prompt.contains("- `critic`: pass\n  {\"advice\":\"ten more\"}\n"), "{prompt}");
    assert!(prompt.contains("- `invent`: pass\n  {\"candidate\":\""), "{prompt}");
    assert!(prompt.contains("to the file PLAN_TASK_RESULT.json") && prompt.contains("the fields `seen`."));

    // What all of them changed is the candidate, and no result is part of it.
    let files = pack.git(&["ls-tree", "--name-only", "HEAD"]);
    assert!(files.contains("notes.txt") && !files.contains("PLAN_TASK_RESULT.json"), "{files}");
    assert!(!pack.exists("workspace/PLAN_TASK_RESULT.json"));
    let row = ran.rows()[1];
    assert!(
        row["diff"].as_str().unwrap().contains("+11") && row["diff"].as_str().unwrap().contains("+looked")
    );
    assert_eq!(row["cost_usd"], 0.25);
    let of = |task: &str| {
        let mut lines =
            ran.events("task_result").filter(move |line| line["task"] == task && line["iter"] == 1);
        lines.next().unwrap().clone()
    };
    assert_eq!((&of("critic")["cost_usd"], &of("critic")["attempts"]), (&json!(0.25), &json!(1)));
    assert_eq!(
        (&of("critic")["task_kind"], &of("critic")["output"]["advice"]),
        (&json!("agent"), &json!("ten more"))
    );
    assert_eq!(of("invent")["cost_usd"], 0.0);

    // Each line of a turn says whose it is; those of a proposal are as they always were.
    for kind in ["agent_start", "agent_done"] {
        let tasks: Vec<Value> = ran.events(kind).take(3).map(|line| line["task"].clone()).collect();
        assert_eq!(tasks, [Value::Null, json!("critic"), json!("refine")], "{kind}");
    }
    let said = ran.events("agent").find(|line| line["event"]["text"] == "said\n").unwrap();
    assert_eq!(said["task"], "refine");
    replays(&pack);
}

#[test]
fn a_failure_of_an_advisory_task_is_taken_back_and_one_of_a_required_task_discards() {
    let fails = "echo half > notes.txt; echo 99 > counter.txt; echo broke; exit 3";
    let pack = Pack::new(&agent(fails, SEEN), COUNT, GRAPH);
    let ran = pack.run(&["--iterations", "1"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    assert_eq!(settled(&ran, 1)[1], "critic fail");
    assert_eq!(pack.read("workspace/counter.txt"), "1\n");
    assert!(!pack.exists("workspace/notes.txt"));
    let prompt = pack.read("refine-prompt");
    assert!(prompt.contains("`invent`") && !prompt.contains("`critic`"), "{prompt}");
    replays(&pack);

    let pack = Pack::new(&agent(SEEN, fails), COUNT, GRAPH);
    let ran = pack.run(&["--iterations", "1"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "discard"]);
    let row = ran.rows()[1];
    assert_eq!(row["note"], "`refine`: the agent ended with exit code 3 (broke)");
    assert!(row["diff"].as_str().unwrap().contains("+99"), "what it left is to be seen");
    assert_eq!(pack.read("workspace/counter.txt"), "0\n");
    replays(&pack);
}

#[test]
fn a_result_that_is_missing_malformed_a_link_or_broken_in_its_promise_fails_the_task() {
    for (refine, expected) in [
        ("true", "`refine`: it left no result: there is no PLAN_TASK_RESULT.json"),
        (
            "echo '[1]' > PLAN_TASK_RESULT.json",
            "its result cannot be read: PLAN_TASK_RESULT.json: it is no JSON object",
        ),
        ("ln -s ../measure.sh PLAN_TASK_RESULT.json", "its result cannot be read: PLAN_TASK_RESULT.json"),
        (
            "head -c 70000 /dev/zero > PLAN_TASK_RESULT.json",
            "its result cannot be read: PLAN_TASK_RESULT.json",
        ),
        (
            "echo '{\"other\": 1}' > PLAN_TASK_RESULT.json",
            "`refine`: its result lacks `seen`, which its `emits` promises",
        ),
        (
            "echo '{\"seen\": 1, \"status\": \"fail\", \"reason\": \"no way\"}' > PLAN_TASK_RESULT.json",
            "`refine`: it says that it failed: no way",
        ),
    ] {
        let pack = Pack::new(&agent(SEEN, refine), COUNT, GRAPH);
        let ran = pack.run(&["--iterations", "1"]);
        ran.ended("finished", 0);
        assert_eq!(ran.decisions(), ["baseline", "discard"], "{refine}");
        let note = ran.rows()[1]["note"].as_str().unwrap().to_owned();
        assert!(note.contains(expected), "{refine}: {note}");
        assert!(!pack.exists("workspace/PLAN_TASK_RESULT.json"), "{refine}");
        replays(&pack);
    }
}

#[test]
fn a_task_that_is_skipped_is_in_nobodys_way_and_one_that_cannot_run_is_blocked() {
    let skips = "echo '{\"status\": \"skipped\", \"reason\": \"no code\"}' > PLAN_TASK_RESULT.json";
    let all = GRAPH.replace("join = \"passed\"\n", "").replace("required = false\n", "");
    let pack = Pack::new(&agent(skips, SEEN), COUNT, &all);
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    assert_eq!(settled(&ran, 1)[1..3], ["critic skipped", "refine pass"]);
    assert!(pack.read("refine-prompt").contains("- `critic`: skipped (no code)"));

    let only = GRAPH.replace("depends_on = [\"invent\", \"critic\"]", "depends_on = [\"critic\"]");
    let pack = Pack::new(&agent("exit 1", SEEN), COUNT, &only);
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(settled(&ran, 1), ["invent pass", "critic fail", "refine blocked"]);
    let blocked = ran.events("task_result").find(|line| line["status"] == "blocked").unwrap();
    assert_eq!(blocked["blocked"], json!({ "reason": "dependency_did_not_pass" }));
    assert_eq!(ran.decisions(), ["baseline", "discard"]);
    replays(&pack);
}

#[test]
fn a_ceiling_holds_within_an_iteration_too() {
    let spend = "echo '{\"cost_usd\": 0.5}' > \"$CRUCIBLE_USAGE\"";
    let pack = Pack::new(&agent(&format!("{spend}; {SEEN}"), SEEN), COUNT, GRAPH);
    let ran = pack.run(&["--iterations", "3", "--max-cost", "0.5"]);
    ran.ended("budget", 10);
    assert_eq!(settled(&ran, 1), ["invent pass", "critic pass", "refine blocked"]);
    assert_eq!(pack.read("ran"), "invent\ncritic\n");
    let blocked = ran.events("task_result").find(|line| line["status"] == "blocked").unwrap();
    assert_eq!((&blocked["blocked"]["reason"], &blocked["attempts"]), (&json!("budget_ceiling"), &json!(0)));
    replays(&pack);
}

#[test]
fn a_run_that_was_killed_in_a_task_pays_nothing_before_it_twice() {
    let critic = format!(
        "[ -e ../go ] || {{ echo half > notes.txt; {SEEN}; touch ../there; sleep 1000; }}; \
         [ ! -e PLAN_TASK_RESULT.json ] || exit 7; {SEEN}"
    );
    let pack = Pack::new(&agent(&critic, SEEN), COUNT, GRAPH);
    killed_at(&pack, &["--iterations", "1"], "there");
    pack.write("go", "");
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!(class(&ran), "died_in_plan_task");
    assert_eq!(pack.read("ran"), "invent\ncritic\ncritic\nrefine\n");
    assert_eq!(settled(&ran, 1)[1], "critic pass", "the result of the killed turn is not there any more");
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    assert!(!pack.exists("workspace/notes.txt"), "what the killed turn left is taken back");
    assert!(ran.rows()[1]["diff"].as_str().unwrap().contains("+1"), "{}", ran.rows()[1]);
    replays(&pack);

    // Another graph is no graph to go on with.
    let pack = Pack::new(&agent("touch ../there; sleep 1000", SEEN), COUNT, GRAPH);
    killed_at(&pack, &["--iterations", "1"], "there");
    let manifest = pack.read("crucible.toml").replace("required = false\n", "");
    pack.write("crucible.toml", &manifest.replace("join = \"passed\"\n", ""));
    let ran = pack.run(&["--resume"]);
    assert_ne!(ran.code(), 0);
    assert!(
        ran.stderr().contains("[workflow] is not the graph of tasks that it was begun with"),
        "{}",
        ran.stderr()
    );
}

/// The same pack with its agent in a sandbox.
fn sandboxed(pack: &Pack) {
    let manifest = pack.read("crucible.toml");
    let sandbox =
        "backend = \"openshell\"\nharness = \"command\"\nopenshell = { inherit_defaults = false }\n";
    pack.write("crucible.toml", &manifest.replace("backend = \"command\"\n", sandbox));
}

#[test]
fn a_task_in_a_sandbox_sees_the_candidate_as_changes_of_the_best_after_a_resume_too() {
    let see = "git status --porcelain > seen.txt; git diff --cached --quiet || echo staged >> seen.txt; \
               git diff HEAD >> seen.txt 2>&1";
    let critic = format!("{see}; [ \"$(cat wait.txt)\" = no ] || sleep 1000; {SEEN}");
    let agent = format!(
        "prompt=$(cat); case \"$prompt\" in CRITIC*) {critic};; REFINE*) {SEEN};; *) echo new > new.txt; {RAISE};; esac"
    );
    let pack = Pack::new(&agent, COUNT, GRAPH);
    pack.write("start/wait.txt", "no\n");
    sandboxed(&pack);
    let ran = pack.run(&["--iterations", "1"]);
    ran.ended("finished", 0);
    let seen = pack.read("workspace/seen.txt");
    assert!(seen.starts_with(" M counter.txt\n?? new.txt\n") && seen.contains("+1"), "{seen}");

    let pack = Pack::new(&agent, COUNT, GRAPH);
    pack.write("start/wait.txt", "yes\n");
    sandboxed(&pack);
    let mut engine = pack.command(&["--iterations", "1"]).spawn().unwrap();
    while !pack.log_text().contains("\"task\":\"critic\"") {
        assert!(engine.try_wait().unwrap().is_none(), "{}", pack.log_text());
        std::thread::yield_now();
    }
    engine.kill().unwrap();
    engine.wait().unwrap();
    let manifest = pack.read("crucible.toml");
    pack.write("crucible.toml", &manifest.replace("[ \\\"$(cat wait.txt)\\\" = no ]", "true"));
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!(class(&ran), "died_in_plan_task");
    assert_eq!(pack.read("workspace/seen.txt"), seen);
}

#[test]
fn a_task_runs_in_a_sandbox_of_its_own_like_a_proposal() {
    let look = "touch /tmp/left; ls /tmp/left ../ran 2>&1 | wc -l > seen.txt; env | grep -c SECRET_OF_HOST >> seen.txt; ";
    let agent = format!(
        "prompt=$(cat); case \"$prompt\" in CRITIC*) {look} {SEEN};; REFINE*) ls /tmp/left >> seen.txt 2>/dev/null; {SEEN};; *) {RAISE};; esac"
    );
    let pack = Pack::new(&agent, COUNT, GRAPH);
    sandboxed(&pack);
    let output = pack.command(&["--iterations", "1"]).env("SECRET_OF_HOST", "x").output().unwrap();
    let ran = Ran { output, log: pack.log() };
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"], "{}", ran.rows()[1]);
    assert_eq!(settled(&ran, 1)[..3], ["invent pass", "critic pass", "refine pass"]);
    let seen = pack.read("workspace/seen.txt");
    assert_eq!(seen.split_whitespace().collect::<Vec<_>>(), ["2", "0"], "each turn has a sandbox of its own");
}

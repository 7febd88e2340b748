//! Contract §1.3 and note N16: a run whose iteration is the manifest's own graph of tasks.

mod agents;

use crate::support::{COUNT, Pack, RAISE};

/// The four steps under other names, in another order than they run in.
const RENAMED: &str = r#"
[workflow]
result = "keep-if-better"
[[workflow.task]]
name = "keep-if-better"
kind = "engine"
op = "decide"
source = "benchmark"
depends_on = ["benchmark"]
[[workflow.task]]
name = "benchmark"
kind = "engine"
op = "measure"
depends_on = ["deploy"]
[[workflow.task]]
name = "deploy"
kind = "engine"
op = "apply"
depends_on = ["invent"]
[[workflow.task]]
name = "invent"
kind = "engine"
op = "propose"
"#;

#[test]
fn an_iteration_runs_the_manifests_tasks_in_the_order_of_what_they_wait_for() {
    let pack = Pack::new(RAISE, COUNT, RENAMED);
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep"]);
    let admitted = ran.events("plan_admitted").next().unwrap();
    assert_eq!(admitted["reason"], "the manifest's [workflow]");
    assert_eq!(admitted["tasks"], serde_json::json!(["invent", "deploy", "benchmark", "keep-if-better"]));
    let settled: Vec<_> = ran
        .events("task_result")
        .filter(|line| line["iter"] == 1)
        .map(|line| (line["task"].as_str().unwrap(), line["task_kind"].as_str().unwrap()))
        .collect();
    let expected =
        [("invent", "propose"), ("deploy", "apply"), ("benchmark", "measure"), ("keep-if-better", "decide")];
    assert_eq!(settled, expected);
    let replayed = pack.run(&["replay", "state/session.jsonl"]);
    assert_eq!(replayed.code(), 0, "{}", replayed.stderr());
    let check = pack.run(&["check", "--no-run"]).stdout();
    let tasks: Vec<_> = check.lines().filter_map(|line| line.strip_prefix("task         ")).collect();
    let expected = [
        "invent, propose",
        "deploy, apply, after invent",
        "benchmark, measure, after deploy",
        "keep-if-better, decide, after benchmark",
    ];
    assert_eq!(tasks, expected, "{check}");
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_is_spent() {
    let critic =
        "[[workflow.task]]\nname = \"critic\"\nkind = \"agent\"\nprompt = \"p\"\ndepends_on = [\"invent\"]\n";
    let session = RENAMED.replace("op = \"propose\"", "op = \"propose\"\nsession = \"solver\"");
    for (workflow, code, expected) in [
        (
            format!("{RENAMED}{critic}isolation = \"worktree\"\n"),
            3,
            "isolation = \"worktree\" is not in this build",
        ),
        (format!("{RENAMED}{critic}effort = \"high\"\n"), 2, "the harness \"command\" has no flag for it"),
        (format!("{RENAMED}{critic}harness = \"codex\"\n"), 2, "choose a model for the harness \"codex\""),
        (
            format!("{RENAMED}{critic}session = \"s\"\n"),
            2,
            "keep the session `s`: it needs agent.session.persist",
        ),
        (
            RENAMED.replace("depends_on = [\"invent\"]", "depends_on = [\"invnet\"]"),
            3,
            "did you mean `invent`?",
        ),
        (session, 2, "keep the session `solver`: it needs agent.session.persist"),
    ] {
        let pack = Pack::new(RAISE, COUNT, &workflow);
        let ran = pack.run(&["--iterations", "1"]);
        assert_eq!(ran.code(), code, "{}", ran.stderr());
        assert!(ran.stderr().contains(expected), "{}", ran.stderr());
        assert!(!pack.exists("state") && !pack.exists("workspace"));
    }
}

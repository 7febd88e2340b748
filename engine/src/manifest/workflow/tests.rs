//! Graphs, good and bad, and what is said about them.

use super::super::{Harness, Manifest, ModelName};
use super::TaskKind;

/// A task as `name kind dependencies`, with more keys behind.
fn task(name: &str, kind: &str, depends_on: &[&str], more: &str) -> String {
    let kind = match kind {
        "propose" | "apply" | "measure" | "grade" | "decide" => format!("kind = \"engine\"\nop = \"{kind}\""),
        kind => format!("kind = \"{kind}\""),
    };
    format!("[[workflow.task]]\nname = \"{name}\"\n{kind}\ndepends_on = {depends_on:?}\n{more}\n")
}

fn manifest(head: &str, tasks: &[String]) -> String {
    format!(
        "[repo]\npath = \".\"\n[agent]\nbackend = \"command\"\nagent_cmd = \"a\"\n[judge]\nmeasure_cmd = \"m\"\ndirection = \
         \"lower\"\n[workflow]\n{head}\n{}",
        tasks.concat()
    )
}

fn four() -> Vec<String> {
    vec![
        task("p", "propose", &[], ""),
        task("a", "apply", &["p"], ""),
        task("m", "measure", &["a"], ""),
        task("d", "decide", &["m"], "source = \"m\""),
    ]
}

fn with(more: &[String]) -> String {
    said("result = \"d\"", &[four(), more.to_vec()].concat())
}

/// Every mistake, a line each, without its place.
fn said(head: &str, tasks: &[String]) -> String {
    let text = manifest(head, tasks);
    let errors = Manifest::parse("c.toml", &text).expect_err(&text);
    let lines = errors.diagnostics().iter().map(|found| {
        let related: String = found.related.iter().map(|(_, label)| format!(" ({label})")).collect();
        format!("{}{related}", found.message)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_four_tasks_are_read_in_any_order_and_with_a_session() {
    let mut tasks = four();
    tasks.reverse();
    let text = manifest("result = \"d\"", &tasks)
        .replace("op = \"propose\"", "op = \"propose\"\nsession = \"solver\"");
    let workflow =
        Manifest::parse("c.toml", &text).unwrap_or_else(|errors| panic!("{errors}")).workflow.unwrap();
    assert_eq!(workflow.tasks.len(), 4);
    assert_eq!(workflow.result.as_str(), "d");
    assert_eq!(workflow.proposers_session().unwrap().as_str(), "solver");
    assert!(
        Manifest::parse("c.toml", &manifest("result = \"d\"", &four()))
            .unwrap()
            .workflow
            .unwrap()
            .proposers_session()
            .is_none()
    );
}

#[test]
fn each_task_is_judged_alone() {
    insta::assert_snapshot!(with(&[
        task("-x", "command", &[], "command = \"c\""),
        task("no command", "command", &[], ""),
        task("e", "evaluate", &[], "command = \"c\"\nthreshold = 1"),
        task("i", "evaluate", &[], "command = \"c\"\nthreshold = inf\ndirection = \"lower\""),
        task("t", "top_k", &[], "k = 0"),
        task("g", "agent", &[], "prompt = \"p\"\ncommand = \"c\"\nsource = \"m\""),
        task("o", "apply", &[], "source = \"m\"\nisolation = \"worktree\""),
        task("s", "decide", &[], ""),
        task("w", "walk", &[], "join = \"some\"\nstage = \"end\"\nneed = \"x\""),
    ]), @r#"
    `-x` is no name of a task: it has letters, digits, `.`, `-` and `_`, at most 64, and begins with a letter or digit
    `no command` is no name of a task: it has letters, digits, `.`, `-` and `_`, at most 64, and begins with a letter or digit
    `threshold` and `direction` of an evaluate task are there together or not at all
    [workflow.task].threshold is not a finite number
    the task `t` has no `direction`, which top_k must have
    [workflow.task].k is zero
    `command` does not go with kind = "agent"
    `source` does not go with kind = "agent"
    `source` does not go with op = "apply"
    `isolation` does not go with kind = "engine"
    the task `s` has no `source`, which decide must have
    `walk` is no kind of a workflow
    `some` is no join of a workflow
    `end` is no stage of a workflow
    unknown key `need` in [workflow.task]
    "#);
}

#[test]
fn names_are_known_and_no_two_tasks_share_one() {
    insta::assert_snapshot!(with(&[task("p", "command", &["mm"], "command = \"c\"")]), @r#"
    two tasks are named `p` (the first one)
    `p`: kind = "command" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    depends_on names `mm`, and no task has that name
    "#);
    insta::assert_snapshot!(said("result = \"dd\"", &four()), @r#"
    [workflow].result names `dd`, and no task has that name
    "#);
    insta::assert_snapshot!(said("", &[]), @r#"
    [workflow].result is missing
    [workflow].task is missing
    "#);
    insta::assert_snapshot!(said("result = \"d\"\ntask = 3", &[]), @r#"
    the workflow has 0 tasks: it has 1 to 256
    [workflow].task is an integer: it must be an array of tables
    "#);
}

#[test]
fn what_goes_round_is_named_by_its_way() {
    let mut tasks = four();
    tasks[0] = task("p", "propose", &["m"], "");
    insta::assert_snapshot!(said("result = \"d\"", &tasks), @r#"
    `p`: waiting for `m`, which is no turn, is not in this build, which records the candidate when all turns are over, and then applies it
    the tasks wait for each other: a -> p -> m -> a
    "#);
    tasks[0] = task("p", "propose", &["p"], "");
    insta::assert_snapshot!(said("result = \"d\"", &tasks), @r#"
    the tasks wait for each other: p -> p
    "#);
}

#[test]
fn sources_are_waited_for_and_of_the_right_kind() {
    let mut tasks = four();
    tasks[3] = task("d", "decide", &["a"], "source = \"m\"");
    insta::assert_snapshot!(said("result = \"d\"", &tasks), @r#"
    `d` takes its source from `m` without depending on it
    "#);
    tasks[3] = task("d", "decide", &["a"], "source = \"a\"");
    insta::assert_snapshot!(said("result = \"d\"", &tasks), @r#"
    `d` takes its source from `a`, which is no measure or grade
    `a` depends on no task of op = "apply", so what it scores is no candidate
    "#);
    insta::assert_snapshot!(said("result = \"m\"", &four()), @r#"
    [workflow].result is `m`, which is no decide task
    "#);
    tasks[3] = task("d", "decide", &["m"], "source = \"m\"");
    tasks[1] = task("a", "apply", &[], "");
    insta::assert_snapshot!(said("result = \"d\"", &tasks), @r#"
    `m` depends on no task of op = "propose", so what it scores is no candidate
    "#);
}

#[test]
fn a_required_task_does_not_hang_on_an_advisory_one() {
    let advisory = task("c", "command", &["p"], "command = \"c\"\nrequired = false");
    let blocked = task("x", "command", &["y"], "command = \"c\"");
    let between = |join: &str| task("y", "command", &["c"], &format!("command = \"c\"\njoin = \"{join}\""));
    insta::assert_snapshot!(with(&[advisory.clone(), blocked.clone(), between("all")]), @r#"
    `c`: kind = "command" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    `c`: required = false is not in this build, which discards a candidate whose engine's step failed
    the required task `x` depends on the advisory task `c`, whose failure would block it (the advisory one)
    `x`: kind = "command" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    the required task `y` depends on the advisory task `c`, whose failure would block it (the advisory one)
    `y`: kind = "command" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    "#);
    insta::assert_snapshot!(with(&[advisory, blocked, between("passed")]), @r#"
    `c`: kind = "command" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    `c`: required = false is not in this build, which discards a candidate whose engine's step failed
    `x`: kind = "command" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    `y`: kind = "command" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    "#);
}

#[test]
fn a_session_is_one_line_of_turns_under_one_configuration() {
    let agent = |name: &str, depends_on: &[&str], more: &str| {
        task(name, "agent", depends_on, &format!("prompt = \"p\"\nsession = \"s\"\n{more}"))
    };
    insta::assert_snapshot!(with(&[agent("x", &["p"], ""), agent("y", &["p"], ""), agent("z", &["x", "y"], "model = \"m\"")]), @r#"
    `x` and `y` share the session `s`, and neither waits for the other
    `x` and `z` share the session `s`, and their model differs
    `y` and `z` share the session `s`, and their model differs
    "#);
    insta::assert_snapshot!(with(&[agent("x", &["p"], "isolation = \"worktree\""), agent("y", &["x"], "")]), @r#"
    `x`: isolation = "worktree" is not in this build, which runs agent tasks one at a time, in the candidate's files
    the session `s` is shared, and `x` is isolated: what it did would be lost
    "#);
    insta::assert_snapshot!(with(&[task("x", "command", &[], "command = \"c\"\nsession = \"s\"")]), @r#"
    `x`: kind = "command" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    `session` of `x`: only an agent task and a propose have turns
    "#);
    let mut tasks = four();
    tasks[0] = task("p", "propose", &[], "session = \"s\"");
    tasks.push(agent("x", &["p"], "effort = \"high\""));
    insta::assert_snapshot!(said("result = \"d\"", &tasks), @r#"
    `p` and `x` share the session `s`, and their effort differs
    "#);
}

#[test]
fn a_score_that_was_declared_away_cannot_be_asked_for() {
    insta::assert_snapshot!(with(&[
        task("e", "evaluate", &[], "command = \"c\"\nemits = [\"pass\"]\nthreshold = 2.5\ndirection = \"lower\""),
        task("g", "grade", &["e"], "source = \"e\""),
        task("t", "top_k", &["e"], "k = 2\ndirection = \"higher\""),
        task("j", "command", &[], "command = \"c\"\njoin = \"settled\""),
    ]), @r#"
    `e` needs a score from `e`, whose `emits` does not name `score`
    `e`: kind = "evaluate" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    `g` needs a score from `e`, whose `emits` does not name `score`
    `g`: op = "grade" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    `t` needs a score from `e`, whose `emits` does not name `score`
    `t`: kind = "top_k" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    `j` joins what it depends on, and depends on nothing
    `j`: kind = "command" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    "#);
}

#[test]
fn agent_tasks_are_read_with_what_is_theirs() {
    let more = "prompt = \"p\"\nharness = \"codex\"\nmodel = \"m\"\neffort = \"high\"\nrequired = false\nemits = [\"score\"]";
    let plan = task("plan", "agent", &[], "prompt = \"first\"");
    let critic = task("critic", "agent", &["p"], more);
    let refine = task("refine", "agent", &["p", "critic"], "prompt = \"q\"\njoin = \"passed\"");
    let mut tasks = [four(), vec![plan, critic, refine]].concat();
    tasks[1] = task("a", "apply", &["p", "refine"], "");
    let text = manifest("result = \"d\"", &tasks);
    let workflow =
        Manifest::parse("c.toml", &text).unwrap_or_else(|errors| panic!("{errors}")).workflow.unwrap();
    let agents: Vec<_> = workflow.agents().map(|task| (task.name.value.as_str(), task.required)).collect();
    assert_eq!(agents, [("plan", true), ("critic", false), ("refine", true)]);
    let kind = &workflow.tasks[5].kind;
    let expected = TaskKind::Agent {
        prompt: "p".into(),
        harness: Some(Harness::Codex),
        model: Some(ModelName::parse("m").unwrap()),
        effort: Some("high"),
    };
    assert_eq!(*kind, expected);
}

#[test]
fn an_agent_task_that_cannot_be_run_is_refused_with_the_reason() {
    insta::assert_snapshot!(with(&[
        task("late", "agent", &["a"], "prompt = \"p\""),
        task("later", "agent", &["m", "late"], "prompt = \"p\"\nisolation = \"worktree\""),
    ]), @r#"
    `late`: waiting for `a`, which is no turn, is not in this build, which records the candidate when all turns are over, and then applies it
    `later`: waiting for `m`, which is no turn, is not in this build, which records the candidate when all turns are over, and then applies it
    `later`: isolation = "worktree" is not in this build, which runs agent tasks one at a time, in the candidate's files
    "#);
    insta::assert_snapshot!(with(&[
        task("other", "agent", &["p"], "prompt = \"p\"\nharness = \"hermes\"\neffort = \"most\"\nmodel = \"a b\""),
        task("mute", "agent", &["p"], ""),
    ]), @r#"
    `hermes` is no harness of a workflow
    `most` is no effort of a workflow
    [agent].model holds a blank or a control character
    the task `mute` has no `prompt`, which agent must have
    "#);
}

#[test]
fn what_this_build_does_not_run_is_refused_by_name() {
    insta::assert_snapshot!(with(&[
        task("again", "measure", &["a"], "needs = \"gpu\""),
        task("later", "command", &[], "command = \"c\"\nstage = \"epilogue\"\nrequired = false"),
    ]), @r#"
    `again`: a second measure is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    `again`: needs = "gpu" is not in this build, which offers no capability
    `later`: kind = "command" is not in this build, which runs agent tasks, and one each of the engine's steps propose, apply, measure and decide
    `later`: stage = "epilogue" is not in this build, which runs iterations only
    `later`: required = false is not in this build, which discards a candidate whose engine's step failed
    "#);
    for lane in ["custom", "playbook"] {
        let said = said(&format!("type = \"{lane}\"\nresult = \"d\""), &four());
        let expected = format!(
            "[workflow].type = \"{lane}\" is not in this build, which runs the loop of \"autoresearch\" only"
        );
        assert_eq!(said, expected);
    }
}

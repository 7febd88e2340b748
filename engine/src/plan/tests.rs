//! Packs and command lines, and the run they make.

use std::fs;

use tempfile::TempDir;

use policy::egress::{Declared, Egress};

use super::*;
use crate::manifest::{SandboxLimits, TrafficLimits};
use crate::pack::FileError;

const PACK: &str = "[repo]\npath = \"up\"\nref = \"main\"\n[agent]\nbackend = \"command\"\nagent_cmd = \"a\"\n\
                    [judge]\nmeasure_cmd = \"m\"\ndirection = \"lower\"\n";

fn load(text: &str) -> (TempDir, Pack) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("crucible.toml");
    fs::write(&path, text).unwrap();
    fs::write(dir.path().join("j"), "judge").unwrap();
    let pack = Pack::load(&path).unwrap();
    (dir, pack)
}

fn in_place() -> String {
    PACK.replace("\"up\"", "\".\"") + "[workspace]\ndir = \".\"\n"
}

fn resolve(text: &str, change: impl FnOnce(&Path, &mut Overrides)) -> Result<RunPlan, PlanError> {
    let (dir, pack) = load(text);
    let mut overrides = Overrides::default();
    change(&pack.manifest_dir, &mut overrides);
    let plan = RunPlan::resolve(pack, &overrides);
    drop(dir);
    plan
}

#[test]
fn a_bare_pack_resolves_to_the_contracts_paths_and_defaults() {
    let plan = resolve(PACK, |_, _| {}).unwrap();
    let root = &plan.manifest_dir;
    assert!(root.is_absolute());
    assert_eq!(plan.state_dir, root.join("state"));
    assert_eq!(plan.workspace_dir, root.join("workspace"));
    let reference = GitRef::parse("main").ok();
    assert_eq!(plan.repo, RepoPlan::Path { path: root.join("up"), reference });
    assert_eq!(plan.repo_written, "up");
    assert_eq!(plan.limits, Limits { iterations: 20, max_time: None, max_cost: None, max_park: None });
    assert_eq!(plan.agent.goal, "make `score` as measured lower than it is");
    for slot in ["{{GOAL}}", "{{STATUS}}", "{{STEER}}"] {
        assert_eq!(plan.agent.method.matches(slot).count(), 1, "{slot}");
    }
    assert!(!plan.in_place && plan.setup.is_none());
}

#[test]
fn the_command_line_beats_the_manifest() {
    let text = PACK.replace("agent_cmd", "goal = \"manifest\"\nagent_cmd");
    assert_eq!(resolve(&text, |_, _| {}).unwrap().agent.goal, "manifest");
    let plan = resolve(&text, |root, overrides| {
        fs::write(root.join("g"), "file").unwrap();
        overrides.goal_file = Some(root.join("g"));
        overrides.iterations = Some(3);
        overrides.max_time = Some(Duration::from_secs(9));
        overrides.state_dir = Some(root.join("deep/er"));
    });
    let plan = plan.unwrap();
    assert_eq!(plan.agent.goal, "file");
    assert_eq!(
        plan.limits,
        Limits { iterations: 3, max_time: Some(Duration::from_secs(9)), max_cost: None, max_park: None }
    );
    assert_eq!(plan.state_dir, plan.manifest_dir.join("deep/er"));
    let plan = resolve(&text, |_, overrides| overrides.goal = Some("line".into())).unwrap();
    assert_eq!(plan.agent.goal, "line");
}

#[test]
fn contradictions_of_the_command_line_have_their_own_errors() {
    let refused = |change: fn(&Path, &mut Overrides)| resolve(PACK, change).unwrap_err();
    let two = refused(|_, o| (o.goal, o.goal_file) = (Some("a".into()), Some("b".into())));
    assert!(matches!(two, PlanError::TwoGoals));
    assert!(matches!(refused(|_, o| o.goal = Some(" \n".into())), PlanError::EmptyGoal));
    let missing = refused(|root, o| o.goal_file = Some(root.join("gone")));
    assert!(matches!(missing, PlanError::GoalFile(FileError::Missing { .. })));
    assert!(matches!(refused(|_, o| o.iterations = Some(0)), PlanError::NoIterations));
    assert!(matches!(refused(|_, o| o.max_time = Some(Duration::ZERO)), PlanError::NoTime));
    for bad in ["state", "./x", "/a/../b"] {
        let plan = resolve(PACK, |_, o| o.state_dir = Some(bad.into()));
        assert!(matches!(plan, Err(PlanError::StateDirRelative(_))), "{bad}");
    }
}

#[test]
fn state_and_workspace_do_not_lie_in_each_other() {
    let state = |below: &'static str| {
        resolve(PACK, move |root, overrides| overrides.state_dir = Some(root.join(below)))
    };
    assert!(matches!(state("workspace/s"), Err(PlanError::StateInWorkspace { .. })));
    assert!(matches!(state("workspace"), Err(PlanError::WorkspaceInState { .. })));
    let above = resolve(PACK, |root, overrides| overrides.state_dir = Some(root.to_owned()));
    assert!(matches!(above, Err(PlanError::WorkspaceInState { .. })));
    assert!(state("workspace-state").is_ok());
}

#[test]
fn a_workspace_is_not_made_from_itself() {
    for path in ["workspace", "workspace/x", "./state", "state/archive"] {
        let plan = resolve(&PACK.replace("\"up\"", &format!("\"{path}\"")), |_, _| {});
        assert!(matches!(plan, Err(PlanError::RepoInside(_))), "{path}");
    }
}

#[test]
fn debug_output_of_a_plan_holds_no_variable() {
    let plan = resolve(&format!("{PACK}[agent.env]\nTOKEN = \"hunter2\"\n"), |_, _| {}).unwrap();
    let shown = format!("{plan:?}");
    assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_link_does_not_hide_where_the_state_is() {
    let plan = resolve(PACK, |root, overrides| {
        fs::create_dir(root.join("workspace")).unwrap();
        std::os::unix::fs::symlink("workspace", root.join("link")).unwrap();
        overrides.state_dir = Some(root.join("link/state"));
    });
    assert!(matches!(plan, Err(PlanError::StateInWorkspace { .. })));
}

#[test]
fn in_place_the_state_lies_in_the_workspace_and_nothing_is_injected_into_it() {
    let plan = resolve(&in_place(), |_, _| {}).unwrap();
    assert!(plan.in_place);
    assert_eq!(plan.workspace_dir, plan.manifest_dir);
    assert_eq!(plan.state_dir, plan.manifest_dir.join("state"));
    let path = plan.manifest_dir.clone();
    assert!(matches!(plan.repo, RepoPlan::Path { path: found, .. } if found == path));
    let text = in_place() + "inject = [{ src = \"j\", dst = \"state/x\" }]\n";
    assert!(matches!(resolve(&text, |_, _| {}), Err(PlanError::InjectInState(_))));
}

#[test]
fn the_identity_depends_on_what_is_measured_and_not_on_the_command_line() {
    let identity = |text: &str, base: &str| resolve(text, |_, _| {}).unwrap().identity(base);
    let first = identity(PACK, "abc");
    assert_eq!(first, identity(PACK, "abc"));
    assert_ne!(first, identity(PACK, "abd"));
    assert_ne!(first, identity(&PACK.replace("lower", "higher"), "abc"));
    assert_ne!(first, identity(&format!("{PACK}[workspace]\ninject = [\"j\"]\n"), "abc"));
    let other = resolve(PACK, |_, overrides| overrides.goal = Some("x".into())).unwrap();
    assert_eq!(first, other.identity("abc"));
}

#[test]
fn a_sandbox_is_planned_with_what_the_manifest_says_and_shows_nothing_private() {
    let sandboxed = |keys: &str| {
        let text = PACK.replace("\"command\"", "\"openshell\"\nharness = \"command\"");
        format!("{text}[agent.openshell]\ninherit_defaults = false\n{keys}")
    };
    assert_eq!(resolve(PACK, |_, _| {}).unwrap().agent.sandbox, None);
    let plan = resolve(
        &sandboxed(
            "read_only_paths = [\"/usr/lib//\"]\nlimits = { cpus = 2, egress = { connections = 8, idle_timeout = \"1.5s\", head_size = \"2K\" } }",
        ),
        |_, _| {},
    );
    let limits = SandboxLimits { cpu_millis: 2000, ..SandboxLimits::default() };
    let traffic =
        TrafficLimits { connections: 8, idle_timeout: 1500, head_size: 2048, ..TrafficLimits::default() };
    let expected = SandboxPlan {
        plumbing: Vec::new(),
        relays: Vec::new(),
        relay_dir: plan.as_ref().unwrap().manifest_dir.clone(),
        broker: None,
        read_only_paths: vec!["/usr/lib".into()],
        declared: Declared::default(),
        admitted: Vec::new(),
        egress: Egress::resolve(&Declared::default(), &[]),
        certificates: None,
        limits,
        traffic,
    };
    assert_eq!(plan.unwrap().agent.sandbox, Some(expected));

    let dir = TempDir::new().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    std::os::unix::fs::symlink(&root, root.join("link")).unwrap();
    for (shown, private) in
        [("", true), ("workspace", true), ("state/x", true), ("link", true), ("tool", false)]
    {
        let path = root.join(shown);
        fs::write(root.join("crucible.toml"), sandboxed(&format!("read_only_paths = [{path:?}]"))).unwrap();
        let plan = RunPlan::resolve(Pack::load(&root.join("crucible.toml")).unwrap(), &Overrides::default());
        assert_eq!(matches!(plan, Err(PlanError::Shown { .. })), private, "{shown}: {plan:?}");
        assert_eq!(plan.is_ok(), !private, "{shown}");
    }
}

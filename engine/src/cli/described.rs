//! Turns a resolved plan into what it means, a line each, for a person (contract §9, `check`).
//! It refuses to look at anything but the plan, and shows no value.

use policy::exposure::{self, Exposure};

use crate::manifest::Harness;
use crate::pack::Certificates;
use crate::plan::{Model, RepoPlan, RunPlan, SandboxPlan};
use crate::report::plain;
use crate::run::{Graph, Task};

/// The bounds and the disclosure. Without tools there is nothing that the bounds could bound.
pub(super) fn disclosed(plan: &RunPlan, exposure: &Exposure) -> String {
    let tools = plan.agent.sandbox.as_ref().is_some_and(|sandbox| sandbox.broker.is_some());
    let mut lines = exposure::rendered(exposure);
    if !tools {
        lines.retain(|(name, _)| *name != "output");
        lines.insert(0, ("output", "none: no tools are granted".to_owned()));
    }
    labelled(&lines)
}

/// What the manifest means, a line each.
pub(super) fn describe(plan: &RunPlan) -> String {
    let repo = match &plan.repo {
        RepoPlan::Path { path, reference }
            if !plan.in_place && !path.join(".git").exists() && reference.is_none() =>
        {
            format!("{} (a plain directory: it is copied as it is)", path.display())
        }
        _ if plan.in_place => format!("{} (in place)", plan.workspace_dir.display()),
        RepoPlan::Url { url, reference } => format!("{url}{}", at(reference.as_ref())),
        RepoPlan::Path { path, reference } => format!("{}{}", path.display(), at(reference.as_ref())),
    };
    let mut lines = vec![
        ("manifest", plan.manifest_path.display().to_string()),
        ("repository", repo),
        ("workspace", plan.workspace_dir.display().to_string()),
        ("state", plan.state_dir.display().to_string()),
    ];
    lines.extend(plan.setup.as_ref().map(|setup| ("setup_cmd", setup.command.to_string())));
    for inject in &plan.injects {
        let how = if inject.frozen { "frozen" } else { "once" };
        lines.push((
            "inject",
            format!("{} -> {} ({how}, {} bytes)", inject.src.display(), inject.dst, inject.size),
        ));
    }
    lines.push(("goal", plan.agent.goal.lines().next().unwrap_or_default().to_owned()));
    lines.push(("agent", carried(plan)));
    lines.extend(plan.agent.command.iter().map(|command| ("agent_cmd", command.to_string())));
    lines.extend(model(&plan.agent.model));
    lines.extend(plan.agent.sandbox.iter().flat_map(trust).map(|line| ("trust", line)));
    let relayed = plan.agent.sandbox.iter().flat_map(|sandbox| &sandbox.relays);
    lines.extend(relayed.filter(|relay| relay.runs_commands()).map(|relay| {
        let when = "at the start of a run and before each turn, and not by `check`";
        ("relay", format!("{} is made by a command on this host, {when}", relay.dest))
    }));
    lines.extend(plan.world.apply_cmd.as_ref().map(|command| ("apply_cmd", command.to_string())));
    if let Some((snapshot, restore)) = &plan.world.snapshot_restore {
        lines.push(("snapshot_cmd", snapshot.to_string()));
        lines.push(("restore_cmd", restore.to_string()));
    }
    lines.push(("measure_cmd", plan.judge.measure_cmd.to_string()));
    if plan.judge.confined.is_some() {
        lines.push(("judge", "confined: measure and apply in a sandbox without any network".to_owned()));
    }
    if let Some(controls) = &plan.judge.selftest {
        lines.push(("good_cmd", controls.good_cmd.to_string()));
        lines.push(("bad_cmd", controls.bad_cmd.to_string()));
    }
    lines.extend(
        plan.workflow.iter().flat_map(|workflow| tasks(&Graph::of(workflow))).map(|line| ("task", line)),
    );
    lines.push(("objective", format!("{}, {} is better", plan.judge.objective, plan.judge.direction)));
    labelled(&lines)
}

pub(super) fn labelled(lines: &[(&'static str, String)]) -> String {
    lines.iter().map(|(name, text)| format!("{name:<13}{}\n", plain(text))).collect()
}

/// The tasks of an iteration, a line each.
fn tasks(graph: &Graph) -> Vec<String> {
    let line = |task: &Task| {
        let kind = task.op.token();
        let kind = if task.name == kind { String::new() } else { format!(", {kind}") };
        let before: Vec<_> =
            task.depends_on.iter().filter_map(|id| Some(graph.task(*id)?.name.as_str())).collect();
        let before =
            if before.is_empty() { String::new() } else { format!(", after {}", before.join(" and ")) };
        let may_fail = if task.required { "" } else { ", may fail" };
        format!("{}{kind}{before}{may_fail}", task.name)
    };
    graph.tasks().map(|(_, task)| line(task)).collect()
}

/// What runs in a turn, and where.
fn carried(plan: &RunPlan) -> String {
    let place = if plan.agent.sandbox.is_some() { "in a sandbox" } else { "on this host" };
    format!("{} {place}", plan.agent.model.harness)
}

/// Which model turns use and who said so, without a value. A command that no document binds to one has none.
fn model(model: &Model) -> Vec<(&'static str, String)> {
    let used = model.harness != Harness::Command || model.binding.is_some();
    let mut lines: Vec<_> = used.then(|| ("model", model.name.to_string())).into_iter().collect();
    lines.extend(model.told().into_iter().map(|line| ("inference", line)));
    lines.extend(
        model.ambient.iter().map(|known| ("inference", format!("`{}` of the environment", known.name))),
    );
    if used && lines.len() == 1 {
        let none = "none: neither CRUCIBLE_INFERENCE nor a variable of this environment names a model's key";
        lines.push(("inference", none.to_owned()));
    }
    lines
}

/// What a turn's sandbox trusts beside the system's certificates, a line for each.
pub(super) fn trust(sandbox: &SandboxPlan) -> Vec<String> {
    let certificates = sandbox.certificates.iter();
    let line = |certificates: &Certificates, print: &String| {
        format!("{}  sha256 {print}", certificates.path().display())
    };
    certificates.flat_map(|all| all.fingerprints().iter().map(move |print| line(all, print))).collect()
}

fn at<T: std::fmt::Display>(reference: Option<&T>) -> String {
    reference.map_or(String::new(), |reference| format!(" at {reference}"))
}

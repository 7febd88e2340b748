//! Turns a pack into what it means and what is wrong with it, without an agent turn (contract §9, `check`).
//! It refuses to touch the pack's own workspace and state: what it runs, it runs in a scratch copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::egress::rendered;
use policy::exposure::Exposure;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::args::CheckArgs;
use super::controls::{Means, Tried, test};
use super::described::{describe, disclosed, trust};
use super::egress::warnings;
use super::error::{CliError, absolute, render};
use super::exit::Exit;
use super::judged::editable;
use super::run::{load, print, purpose, runtime};
use crate::agent::relay::{RelayFault, Relays};
use crate::judge::{Bench, Ground, Known, Measured};
use crate::pack::Pack;
use crate::plan::{Inference, Overrides, RepoPlan, RunPlan};
use crate::report::plain;
use crate::run::begin::{RunError, broker, enclosure, gateway, ground, measure, runner, self_test, spec};
use crate::run::statedir::SESSION_FILE;
use crate::run::tail::{self, LogEnd};
use crate::run::turns::{keys, relays};
use crate::sys::env::Environment;
use crate::sys::fs::{RelPath, Root, copy_tree, create_private_dir};
use crate::sys::keeper::Keeper;
use crate::sys::signal::Interrupts;
use crate::world::{CLAIM_FILE, PackRunner, Recorded, Setup, Workspace};

/// What `check` found, for a script.
#[derive(Debug, Default, Serialize)]
pub(super) struct Findings {
    /// What would make a run fail.
    pub(super) errors: Vec<String>,
    /// What makes a measurement less worth than it seems.
    pub(super) warnings: Vec<String>,
    /// The bounds and the disclosure, as `plan exposure` prints them.
    exposure: Option<Exposure>,
    /// The layers that a turn's sandbox has here, a line each; empty where the agent runs on the host.
    layers: Vec<String>,
    /// The resolved list of what a turn's sandbox reaches, a line each with its source.
    egress: Vec<String>,
    /// What it trusts beside the system's certificates: the file, and the SHA-256 of each certificate in it, a line each.
    trust: Vec<String>,
    /// The one reading, where one was taken.
    reading: Option<crate::judge::Reading>,
    /// What the judge said of its two controls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selftest: Option<Means>,
}

/// Checks a pack.
///
/// # Errors
/// Mistakes of the manifest, and what kept the check itself from being made. What it found is an exit code.
pub fn check(args: &CheckArgs) -> Result<Exit, CliError> {
    match look(args) {
        // A script reads its findings where it reads all others.
        Err(error) if args.json => {
            tell(args, &Findings { errors: vec![render(&error)], ..Findings::default() })?;
            Ok(error.exit())
        }
        done => done,
    }
}

fn look(args: &CheckArgs) -> Result<Exit, CliError> {
    let env = Environment::of_this_process();
    let runtime = runtime()?;
    let inference = Inference::of(&env)?;
    let manifest = absolute(&args.manifest.manifest)?;
    let pack = load(&manifest, None, &env, &runtime)?;
    let mut findings = Findings::default();
    findings.warnings.extend(pack.thawed.iter().map(ToString::to_string));
    findings.warnings.extend(pack.manifest.warnings().iter().map(|warning| warning.message.clone()));
    let mut plan = RunPlan::resolve(pack, &Overrides { inference, ..purpose(&args.purpose) })?;
    let tool = plan.equip(env.value("PATH"));
    findings.warnings.extend(tool.err().map(|error| format!("the first turn would fail to {error}")));
    let exposure = plan.exposure();
    findings.warnings.extend(plan.remarks());
    findings.warnings.extend(exposure.undeclared().map(|name| {
        format!("the agent gets `{name}`, and no [[capabilities.secret]] says what it authorises: it is disclosed as undeclared")
    }));
    findings.errors.extend(plan.refusals(&env).iter().map(|refusal| format!("failed to {refusal}")));
    findings
        .warnings
        .extend(keys(&plan, &env).err().map(|error| format!("the first turn would fail to {error}")));
    let lints = warnings(&plan).into_iter();
    findings.warnings.extend(lints.map(|lint| format!("{}: {}", lint.subject, lint.message)));
    findings.trust = plan.agent.sandbox.iter().flat_map(trust).collect();
    findings.egress = plan.agent.sandbox.iter().flat_map(|sandbox| rendered(&sandbox.egress)).collect();
    if !args.json {
        print(&disclosed(&plan, &exposure))?;
        print(&describe(&plan))?;
    }
    findings.exposure = Some(exposure);
    look_at_places(&plan, &mut findings);
    look_at_relays(&plan, &env, &mut findings);
    if args.no_run {
        if let RepoPlan::Path { path, .. } = &plan.repo {
            warn_of_editable(&plan, path, &mut findings);
        }
    } else {
        runtime.block_on(measure_once(&plan, &env, &mut findings))?;
    }
    tell(args, &findings)?;
    Ok(if findings.errors.is_empty() { Exit::Ok } else { Exit::Check })
}

/// What stands where the run would put its workspace and its state.
fn look_at_places(plan: &RunPlan, findings: &mut Findings) {
    if matches!(tail::read(&plan.state_dir.join(SESSION_FILE)), Ok(LogEnd::Open)) {
        let state = plan.state_dir.display();
        findings
            .errors
            .push(format!("{state} holds a run that did not end: `crucible --fresh` puts it away"));
    }
    let shown = plan.agent.sandbox.iter().flat_map(|sandbox| &sandbox.read_only_paths);
    for path in shown.filter(|path| !path.exists()) {
        findings.errors.push(format!("{} is not there, so no sandbox can show it", path.display()));
    }
    let occupied = std::fs::read_dir(&plan.workspace_dir).is_ok_and(|mut entries| entries.next().is_some());
    if occupied && !plan.in_place && !plan.state_dir.join(CLAIM_FILE).exists() {
        let workspace = plan.workspace_dir.display();
        findings.errors.push(format!(
            "{workspace} is not empty and no run of this state directory made it: move it away, or name another [workspace].dir"
        ));
    }
}

/// What is to be put into each turn's sandbox and cannot be made. No command is run for it.
fn look_at_relays(plan: &RunPlan, env: &Environment, findings: &mut Findings) {
    for fault in relays(plan, env).iter().flat_map(Relays::unmade) {
        let text = format!("failed to {}", crate::sys::chain(&fault));
        match fault {
            RelayFault::File { .. } if plan.setup.is_some() => {
                findings.warnings.push(format!("{text}; a run can begin only if setup_cmd makes it"));
            }
            _ => findings.errors.push(text),
        }
    }
}

fn warn_of_editable(plan: &RunPlan, tree: &Path, findings: &mut Findings) {
    let frozen: Vec<PathBuf> = plan
        .injects
        .iter()
        .filter(|inject| inject.frozen)
        .map(|inject| inject.dst.as_path().to_owned())
        .collect();
    for path in editable(plan.judge.measure_cmd.as_str(), tree, &frozen) {
        findings.warnings.push(format!(
            "the agent can edit {}, which measure_cmd names: put it beside the manifest and add it to [workspace].inject",
            path.display()
        ));
    }
}

/// Gives up at the first signal: what is dropped then ends its commands and takes its scratch directory away.
async fn unless_interrupted<T>(
    interrupts: &mut Interrupts,
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    tokio::select! {
        done = work => done,
        _ = interrupts.next() => Err(CliError::Interrupted),
    }
}

/// A workspace that was set up for a look at it, with all that it takes to run the judge in it.
struct Laid {
    plan: RunPlan,
    runner: PackRunner,
    workspace: Workspace,
    ground: Ground,
    /// Goes after all that lives in it.
    gateway: Option<driver::Gateway>,
    scratch: tempfile::TempDir,
}

/// Sets a scratch workspace up, measures it once, and takes all of it away again.
async fn measure_once(plan: &RunPlan, env: &Environment, findings: &mut Findings) -> Result<(), CliError> {
    let mut interrupts =
        Interrupts::listen().map_err(|source| CliError::Io { doing: "listen to signals", source })?;
    let laid = unless_interrupted(&mut interrupts, lay(plan, env, findings)).await?;
    let Some(mut laid) = laid else { return Ok(()) };
    unless_interrupted(&mut interrupts, look_once(&mut laid, findings)).await?;
    let Laid { plan, runner, workspace, ground, gateway, scratch } = laid;
    let frozen = workspace.frozen();
    let tested = match &plan.judge.selftest {
        None => {
            let msg =
                "nothing shows that the judge tells good from bad: declare two controls in [judge.selftest]";
            findings.warnings.push(msg.to_owned());
            Ok(())
        }
        // A failed baseline has been told, and no control could say more.
        Some(_) if !findings.errors.is_empty() => Ok(()),
        Some(controls) => {
            let bench =
                Bench { keeper: runner.keeper.clone(), ground, measure: measure(&plan, &runner.env), frozen };
            test(controls, &plan, Tried { bench, runner, workspace }, &mut interrupts, findings).await
        }
    };
    drop((gateway, scratch));
    tested
}

/// Makes the scratch workspace. None where that failed, which is a finding.
async fn lay(plan: &RunPlan, env: &Environment, findings: &mut Findings) -> Result<Option<Laid>, CliError> {
    let scratch = tempfile::Builder::new().prefix("crucible-check-").tempdir().map_err(scratch_failed)?;
    let plan = in_scratch(plan, scratch.path())?;
    create_private_dir(&plan.state_dir).map_err(scratch_failed)?;
    let made = match (&plan.agent.sandbox, &plan.judge.confined) {
        (Some(_), _) => Some(broker(&plan, env).and_then(|broker| gateway(&plan.state_dir, &broker))),
        (None, Some(_)) => Some(enclosure(&plan.state_dir)),
        (None, None) => None,
    };
    let gateway = match made.transpose() {
        Ok(gateway) => gateway,
        Err(error) => {
            findings.errors.push(format!("failed to {}", crate::sys::chain(&error)));
            None
        }
    };
    findings.layers = gateway.as_ref().map(|gateway| gateway.layers().to_vec()).unwrap_or_default();
    let client = match &gateway {
        Some(gateway) => Some(driver::Client::unix(gateway.socket()).await.map_err(RunError::Gateway)?),
        None => None,
    };
    if let Some(client) = &client {
        try_ways(&plan, client, findings).await;
    }
    let keeper = Arc::new(Keeper::start().await?);
    if plan.judge.confined.is_some() && client.is_none() {
        return Ok(None);
    }
    let ground = ground(&plan, &keeper, client.as_ref())?;
    let runner = runner(&plan, env, &keeper);
    let spec = spec(&plan, env, "check".to_owned());
    match Setup::new(&spec, &runner).run().await {
        Ok(workspace) => Ok(Some(Laid { plan, runner, workspace, ground, gateway, scratch })),
        Err(error) => {
            findings.errors.push(format!("the setup failed to {}", crate::sys::chain(&error)));
            Ok(None)
        }
    }
}

/// Measures the pristine workspace once.
async fn look_once(laid: &mut Laid, findings: &mut Findings) -> Result<(), CliError> {
    let Laid { plan, runner, workspace, ground, .. } = laid;
    warn_of_editable(plan, workspace.path(), findings);
    let measured =
        measure(plan, &runner.env).run(ground, Known::default(), &CancellationToken::new()).await?;
    judge_of(measured, findings);
    if let Ok(Recorded::Candidate(left)) = workspace.record(1).await
        && left.changed
    {
        findings.warnings.push(format!(
            "the judge leaves files in the workspace that no ignore rule covers, and that would be kept with a candidate:\n{}",
            left.diff.stat.trim_end()
        ));
    }
    Ok(())
}

/// Tries every way out of a sandbox with the plan's list, with a name that no list has.
async fn try_ways(plan: &RunPlan, client: &driver::Client, findings: &mut Findings) {
    let Some(sandbox) = &plan.agent.sandbox else { return };
    match self_test(client, sandbox).await {
        Ok(()) => findings.layers.push("egress: the canary was refused by every way out".to_owned()),
        Err(error) => findings.errors.push(format!("failed to {}", crate::sys::chain(&error))),
    }
}

fn judge_of(measured: Measured, findings: &mut Findings) {
    let Measured { reading, shown, objects, ended } = measured;
    if objects > 1 {
        findings.warnings.push(format!(
            "{objects} lines of the judge's output start with `{{`: only the last one counts, so no log line may look like a reading"
        ));
    }
    if ended.ended_early.is_none() && !ended.killed.is_empty() {
        let names = ended.killed.join(", ");
        findings.warnings.push(format!("the judge left processes behind, which were ended: {names}"));
    }
    if !reading.valid {
        let mut text = format!("the pristine workspace cannot be scored: {}", reading.summary());
        for line in shown.lines() {
            text.push_str("\n    ");
            text.push_str(line);
        }
        findings.errors.push(text);
    }
    findings.reading = Some(reading);
}

/// The same plan, with its workspace and state in a scratch directory.
fn in_scratch(plan: &RunPlan, scratch: &Path) -> Result<RunPlan, CliError> {
    if plan.setup.is_some() {
        // A setup_cmd names the workspace by its own words, relative to the manifest: it gets a copy of that directory.
        let copy = scratch.join("pack");
        create_private_dir(&copy).map_err(scratch_failed)?;
        let left_out = [&plan.state_dir, &plan.workspace_dir];
        let mut wanted =
            |path: &RelPath, _| !left_out.iter().any(|out| plan.manifest_dir.join(path.as_path()) == **out);
        let (from, to) = (Root::open(&plan.manifest_dir), Root::open(&copy));
        copy_tree(&from.map_err(scratch_failed)?, &to.map_err(scratch_failed)?, &mut wanted)
            .map_err(scratch_failed)?;
        let name = plan.manifest_path.file_name().unwrap_or_default();
        let pack = Pack::load(&copy.join(name))?;
        let overrides = Overrides { state_dir: Some(scratch.join("state")), ..Overrides::default() };
        let copied = RunPlan::resolve(pack, &overrides)?;
        return Ok(RunPlan { agent: plan.agent.clone(), ..copied });
    }
    let mut plan = plan.clone();
    if plan.in_place {
        plan.repo = RepoPlan::Path { path: plan.manifest_dir.clone(), reference: None };
        plan.in_place = false;
    }
    plan.state_dir = scratch.join("state");
    plan.workspace_dir = scratch.join("workspace");
    Ok(plan)
}

fn scratch_failed(error: impl std::error::Error + Send + Sync + 'static) -> CliError {
    CliError::Scratch(Box::new(error))
}

fn tell(args: &CheckArgs, findings: &Findings) -> Result<(), CliError> {
    if args.json {
        let json = serde_json::to_string_pretty(findings)
            .map_err(|error| CliError::Io { doing: "encode the findings", source: error.into() })?;
        return print(&format!("{json}\n"));
    }
    let mut text = String::new();
    if let Some(reading) = &findings.reading {
        let score = reading.score.map_or("none".to_owned(), |score| score.to_string());
        let told = format!("{score} {}", plain(&reading.summary()));
        text.push_str(&format!("{:<13}{}\n", "score", told.trim_end()));
    }
    if let Some(Means { good, bad }) = findings.selftest {
        text.push_str(&format!("{:<13}good {good}, bad {bad}\n", "selftest"));
    }
    for layer in &findings.layers {
        text.push_str(&format!("{:<13}{}\n", "layer", plain(layer)));
    }
    for (what, findings) in [("warning", &findings.warnings), ("error", &findings.errors)] {
        for finding in findings {
            for (at, line) in finding.lines().enumerate() {
                let head = if at == 0 { format!("{what}: ") } else { "  ".to_owned() };
                text.push_str(&format!("{head}{}\n", plain(line)));
            }
        }
    }
    text.push_str(match (findings.errors.is_empty(), args.no_run) {
        (true, true) => "ok, nothing was run\n",
        (true, false) => "ok\n",
        (false, _) => "not ok\n",
    });
    print(&text)
}

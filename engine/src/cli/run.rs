//! Turns the options of a run into a run, its text and its exit code (contract §9).
//! It refuses to know how a run works.

use std::io::{IsTerminal, Write};

use super::args::{PurposeArgs, RunArgs};
use super::bases::GitBases;
use super::error::{CliError, absolute};
use super::exit::Exit;
use super::operator;
use super::resumed::{self, Resumed, with_given};
use crate::admission::Budget;
use crate::log::{Decision, Outcome};
use crate::pack::Pack;
use crate::plan::{Inference, Overrides, RepoPlan, RunPlan};
use crate::report::ending::{Places, ending};
use crate::report::{Progress, Report, Tally, Ui};
use crate::run::begin::RunError;
use crate::run::conduct::{Conducted, Given, conduct};
use crate::run::statedir::{StateDir, StateError};
use crate::sys::clock::Clock;
use crate::sys::env::Environment;
use crate::sys::lock::SoleUse;

/// Runs the loop.
///
/// # Errors
/// [`CliError`]; a run that came to an outcome is an exit code, not an error.
pub fn run(args: &RunArgs) -> Result<Exit, CliError> {
    if let Some(flag) = args.absent.given() {
        return Err(CliError::Absent(flag.to_owned()));
    }
    let clock = Clock::start();
    let env = Environment::of_this_process();
    let runtime = runtime()?;
    let manifest = absolute(&args.manifest.manifest)?;
    let columns = std::io::stderr().is_terminal().then(columns);
    let mut progress = Progress::new(args.ui, Box::new(std::io::stderr()), columns);
    let mut found = None;
    if args.resume {
        let given = args.state_dir.as_deref().map(absolute).transpose()?;
        found = resumed::find(&resumed::state_dir(&manifest, given.as_deref()), &mut progress)?;
    }
    let named = Budget {
        max_cost: args.max_cost,
        max_secs: args.max_time.map(|time| time.as_secs_f64()),
        iterations: args.iterations,
    };
    let args = &found.as_ref().map_or_else(|| args.clone(), |found| with_given(args, &found.replayed));
    let (plan, mut remarks) = plan(args, &manifest, &env, &runtime)?;
    if args.resume && found.is_none() {
        remarks.push("there is no run to resume here: a new one begins".to_owned());
    }
    let (state, resumed) = match found {
        Some(Resumed { state, replayed }) => (state, Some(replayed)),
        None => {
            // Before the earlier run is put away: a wrong path must not cost what it left.
            if let (false, RepoPlan::Path { path, .. }) = (plan.in_place, &plan.repo)
                && !path.is_dir()
            {
                return Err(CliError::NoUpstream(path.clone()));
            }
            // A log without one whole line is of no run, and goes where earlier runs go.
            let fresh = args.fresh || args.resume;
            (StateDir::claim(&plan.state_dir, fresh, clock.now_utc()).map_err(RunError::from)?, None)
        }
    };
    // Two state directories may name one repository to work in: only one of them at a time.
    let _sole =
        plan.in_place.then(|| SoleUse::of(&plan.workspace_dir)).transpose().map_err(StateError::from)?;
    let control = args
        .control_addr
        .map(|address| Ok::<_, CliError>((address, operator::token(args.control_token_file.clone())?)));
    let given = Given { env, progress, clock, remarks, control: control.transpose()?, named, resumed };
    let conducted = runtime.block_on(conduct(&plan, &state, given))?;
    tell(args, &plan, &state, &conducted)?;
    Ok(exit(&conducted))
}

/// One runtime for the whole process.
///
/// # Errors
/// When the system gives none.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(|source| CliError::Io { doing: "start the runtime", source })
}

/// Resolves the pack and the command line. The remarks are for the log.
fn plan(
    args: &RunArgs,
    manifest: &std::path::Path,
    env: &Environment,
    runtime: &tokio::runtime::Runtime,
) -> Result<(RunPlan, Vec<String>), CliError> {
    let overrides = Overrides {
        inference: Inference::of(env)?,
        goal: args.goal.clone(),
        goal_file: args.goal_file.as_deref().map(absolute).transpose()?,
        state_dir: args.state_dir.as_deref().map(absolute).transpose()?,
        iterations: args.iterations,
        max_time: args.max_time,
        max_cost: args.max_cost,
        max_park: args.max_park,
        steer: args.steer.as_deref().map(absolute).transpose()?,
        ..purpose(&args.purpose)
    };
    let pack = load(manifest, overrides.state_dir.as_deref(), env, runtime)?;
    let thawed = pack.thawed.iter().map(|thawed| format!("warning: {thawed}"));
    let own = pack.manifest.warnings().iter().map(|warning| format!("warning: {}", warning.message));
    let mut remarks: Vec<String> = thawed.chain(own).collect();
    let mut plan = RunPlan::resolve(pack, &overrides)?;
    plan.equip(env.value("PATH"))?;
    let refusals = plan.refusals(env);
    if !refusals.is_empty() {
        return Err(CliError::Refused(refusals));
    }
    remarks.extend(plan.remarks().iter().map(|remark| format!("warning: {remark}")));
    remarks.extend(plan.agent.model.told().into_iter().map(|line| format!("inference: {line}")));
    for task in &plan.agent.tasks {
        let replaced = task.model.replaced.iter();
        remarks.extend(replaced.map(|what| format!("inference: in the task `{}` {what}", task.name)));
    }
    Ok((plan, remarks))
}

/// What a run is for, as the plan takes it.
pub(super) fn purpose(args: &PurposeArgs) -> Overrides {
    Overrides {
        params: args.params.clone(),
        item: args.item.clone(),
        unenforced_egress: args.unenforced_egress,
        ..Overrides::default()
    }
}

/// Loads the pack as frozen as it can be.
pub(super) fn load(
    manifest: &std::path::Path,
    state_dir: Option<&std::path::Path>,
    env: &Environment,
    runtime: &tokio::runtime::Runtime,
) -> Result<Pack, CliError> {
    let state_dir = resumed::state_dir(manifest, state_dir);
    let bases = GitBases { runtime, env, manifest, state_dir };
    Ok(Pack::load_frozen(manifest, &bases)?)
}

/// The width of the terminal on standard error.
fn columns() -> usize {
    terminal_size::terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| usize::from(width.0))
}

/// What a run tells at its end, on standard output.
fn tell(args: &RunArgs, plan: &RunPlan, state: &StateDir, conducted: &Conducted) -> Result<(), CliError> {
    let (log, report) = (state.session_log(), state.report());
    let tally = conducted.progress.tally();
    let text = if args.json {
        let ended = (conducted.ended.outcome, conducted.ended.reason.as_str());
        let whole = Report::new(tally, ended, conducted.elapsed.as_secs_f64(), (&log, &plan.workspace_dir));
        let json = serde_json::to_string_pretty(&whole)
            .map_err(|error| CliError::Io { doing: "encode the report", source: error.into() })?;
        format!("{json}\n")
    } else if args.ui == Ui::Headless {
        return Ok(());
    } else {
        ending(
            tally,
            Places { workspace: &plan.workspace_dir, session_log: &log, report: &report },
            !conducted.progress.tells_rows(),
        )
    };
    print(&text)
}

/// Writes to standard output; a reader that went away is no failure.
pub(super) fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|source| CliError::Io { doing: "write to standard output", source }),
    }
}

fn exit(conducted: &Conducted) -> Exit {
    let no_baseline = |tally: &Tally| tally.rows.iter().any(|row| row.decision == Decision::BaselineSkipped);
    match conducted.ended.outcome {
        Outcome::Error if no_baseline(conducted.progress.tally()) => Exit::Baseline,
        outcome => Exit::of(outcome),
    }
}

/// So that the error type of a claimed directory is seen from here.
impl From<StateError> for CliError {
    fn from(error: StateError) -> CliError {
        CliError::Run(error.into())
    }
}

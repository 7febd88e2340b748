//! Turns a resolved plan and a state directory into a run from its first log line to its last, or from where another
//! process left it (contract §7). It refuses to know the command line.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::begin::{self, RunError};
use super::bridge::Bridge;
use super::effect::Effect;
use super::event::{Event, EventKind};
use super::graph::Graph;
use super::hands::Hands;
use super::provision::Carrier;
use super::replay::Replayed;
use super::shell::{Ended, Shell, until};
use super::state::{State, Terms};
use super::statedir::{StateDir, run_name};
use super::steer_file::SteerFile;
use super::step::step;
use super::turns::{callers, keys, relays};
use crate::admission::ledger::SET_UP_STOPPED;
use crate::admission::{Budget, Ledger, Settlement, owed};
use crate::agent::{Sessions, results};
use crate::control::{self, Control};
use crate::decide::Rule;
use crate::log::{Durability, LogError, Outcome, Phase, SessionEvent};
use crate::plan::RunPlan;
use crate::report::{Progress, Report};
use crate::sys::chain;
use crate::sys::clock::Clock;
use crate::sys::env::Environment;
use crate::sys::fault::point;
use crate::sys::fs::{PrivateFile, private_file};
use crate::sys::keeper::{Keeper, end_marked};
use crate::sys::signal::Interrupts;
use crate::world::{
    Chain, CommandWorld, DomainCommands, Facts, GitWorld, PackRunner, Setup, Spec, Workspace, World,
};

/// What a run is given besides its plan.
#[derive(Debug)]
pub struct Given {
    /// This process's environment.
    pub env: Environment,
    /// What a person sees.
    pub progress: Progress,
    /// Began with the run.
    pub clock: Clock,
    /// Remarks that were made before there was a log.
    pub remarks: Vec<String>,
    /// A loopback address to let operators in at as well, and the token that they must show.
    pub control: Option<(SocketAddr, String)>,
    /// What another process left, where the run goes on.
    pub resumed: Option<Box<Replayed>>,
    /// The ceilings that the command line of a resume names anew.
    pub named: Budget,
}

/// A run that came to an outcome.
#[derive(Debug)]
pub struct Conducted {
    /// How it ended.
    pub ended: Ended,
    /// What a person saw, and the tally of it.
    pub progress: Progress,
    /// How long it took.
    pub elapsed: Duration,
}

/// Runs a plan from its first log line to its last.
///
/// # Errors
/// [`RunError`]; where a log could be begun, its last line says so too.
pub async fn conduct(plan: &RunPlan, state_dir: &StateDir, given: Given) -> Result<Conducted, RunError> {
    let Given { env, progress, clock, remarks, control, named, resumed } = given;
    if resumed.as_ref().is_some_and(|resumed| is_of_another_graph(plan, &resumed.state)) {
        return Err(RunError::OtherGraph);
    }
    let interrupts = Interrupts::listen().map_err(RunError::Signals)?;
    let (tell, told) = mpsc::unbounded_channel();
    let clock = clock.after(resumed.as_ref().map(|resumed| resumed.elapsed).unwrap_or_default());
    let seq = resumed.as_ref().map_or(0, |resumed| resumed.seq);
    let log = state_dir.open_log(clock)?.counting_on(seq);
    let ledger = Ledger::open(&state_dir.ledger(), clock)?;
    let owed = resumed.as_ref().map(|resumed| owed(ledger.book(), &resumed.settled));
    let owed = owed.unwrap_or_default().beside(&named);
    let config = control::Config { socket: state_dir.socket(), log: state_dir.session_log(), tcp: control };
    let control = Control::start(config, ledger)?;
    let address = control.tcp();
    let mut shell = Shell {
        log,
        bridge: Bridge::new(control, SteerFile::new(plan.steer.clone())),
        progress,
        clock,
        interrupts,
        told,
        deadline: plan.limits.max_time,
        control: state_dir.control(),
        writes: None,
        broker: None,
    };
    let identity = resumed.as_ref().and_then(|resumed| resumed.identity.clone());
    let state = open(plan, resumed, &env, &mut shell).await?;
    let unsettled = shell.bridge.take_up(owed).await;
    let listens = address.map(|address| format!("operators are heard at {address} too"));
    let archived =
        state_dir.archived().map(|path| format!("an earlier run was put away in {}", path.display()));
    for msg in archived.into_iter().chain(listens).chain(unsettled).chain(remarks) {
        shell.write(&SessionEvent::Note { msg }, Durability::Buffered)?;
    }
    shell.write(&SessionEvent::Phase { phase: Phase::Preflight, iter: 0 }, Durability::Buffered)?;
    let ran = prepare_and_run(plan, state_dir, Prepared { env, tell, state, identity }, &mut shell).await;
    shell.bridge.refuse();
    // The child is gone before the last line says that nothing of the run is left.
    drop(shell.broker.take());
    let ended = match ran {
        Ok(ended) => ended,
        Err(RunError::Log(error)) => return Err(error.into()),
        Err(error) => {
            let reason = format!("failed to {}", chain(&error));
            shell.write(&SessionEvent::Finished, Durability::Buffered)?;
            close(plan, state_dir, &mut shell, Outcome::Error, &reason)?;
            return Err(error);
        }
    };
    if shell.progress.tally().phase != Phase::Finished {
        // It ended before the loop began, which would have said so.
        shell.write(&SessionEvent::Finished, Durability::Buffered)?;
    }
    close(plan, state_dir, &mut shell, ended.outcome, &ended.reason)?;
    Ok(Conducted { ended, progress: shell.progress, elapsed: shell.clock.monotonic() })
}

/// The first lines of this process: those that its predecessor owes come before it takes anything up.
async fn open(
    plan: &RunPlan,
    resumed: Option<Box<Replayed>>,
    env: &Environment,
    shell: &mut Shell,
) -> Result<State, LogError> {
    shell.write(&start(plan), Durability::Durable)?;
    shell.write(&SessionEvent::Phase { phase: Phase::Starting, iter: 0 }, Durability::Buffered)?;
    let Some(resumed) = resumed else { return Ok(State::new(terms(plan))) };
    let Replayed { mut state, unwritten, closed, lines, elapsed, .. } = *resumed;
    let chain = Chain::open(&plan.state_dir.join("git"), env);
    for mut line in unwritten {
        fill_in(&mut line, &state, &chain).await;
        shell.write(&line, Durability::Buffered)?;
    }
    let msg = format!("resumed from {lines} lines, after {:.1}s of the run", elapsed.as_secs_f64());
    shell.write(&SessionEvent::Note { msg }, Durability::Buffered)?;
    state.terms = terms(plan);
    let event = Event { at: shell.clock.monotonic(), kind: EventKind::Resumed { closed } };
    let (state, effects) = step(state, event);
    for effect in effects {
        if let Effect::Log(event, durability) = effect {
            shell.write(&event, durability)?;
        }
    }
    Ok(state)
}

/// The patch of a row that was not written: the lines before it do not have it, and git does. One that git lost stays
/// empty.
async fn fill_in(line: &mut SessionEvent, state: &State, chain: &Chain) {
    let SessionEvent::Row { row, .. } = line else { return };
    let Some((best, candidate)) = state.best.as_ref().zip(row.candidate.as_ref()) else { return };
    if let Ok(diff) = chain.patch(&best.token, candidate).await {
        (row.diff, row.diffstat) = (diff.text, diff.stat);
    }
}

/// What is ready before the workspace is.
struct Prepared {
    env: Environment,
    tell: mpsc::UnboundedSender<SessionEvent>,
    state: State,
    /// What the process before called the run's identity.
    identity: Option<String>,
}

/// Everything between the first lines and the last. What it starts has ended when it returns.
async fn prepare_and_run(
    plan: &RunPlan,
    state_dir: &StateDir,
    prepared: Prepared,
    shell: &mut Shell,
) -> Result<Ended, RunError> {
    let Prepared { env, tell, state, identity } = prepared;
    let mark = state_dir.mark()?;
    end_leftovers(&mark, shell)?;
    // Whether a key and a sandbox can be had is known before anything is cloned or spent.
    keys(plan, &env)?;
    let sessions = Sessions::open(state_dir.path()).map_err(RunError::Sessions)?;
    shell.broker = plan.agent.sandbox.as_ref().map(|_| begin::mediating(plan, &env)).transpose()?;
    let gateway = match (&shell.broker, &plan.judge.confined) {
        (Some(broker), _) => Some(begin::gateway(state_dir.path(), broker)?),
        (None, Some(_)) => Some(begin::enclosure(state_dir.path())?),
        (None, None) => None,
    };
    if let Some(gateway) = &gateway {
        let msg = format!("layers of the sandbox:\n{}", gateway.layers().join("\n"));
        shell.write(&SessionEvent::Note { msg }, Durability::Buffered)?;
    }
    if shell.broker.is_some() {
        shell.writes = Some(plan.state_dir.clone());
        let bounds = plan.outputs.document();
        shell.write(&SessionEvent::Outputs { bounds }, Durability::Buffered)?;
    }
    let client = match &gateway {
        Some(gateway) => Some(driver::Client::unix(gateway.socket()).await.map_err(RunError::Gateway)?),
        None => None,
    };
    if let (Some(sandbox), Some(client)) = (&plan.agent.sandbox, &client) {
        begin::self_test(client, sandbox).await?;
    }
    let keeper = Arc::new(Keeper::start().await?.with_mark(mark));
    let runner = begin::runner(plan, &env, &keeper);
    let ground = begin::ground(plan, &keeper, client.as_ref())?;
    let carrier = gateway.as_ref().zip(client).zip(shell.broker.as_deref());
    let carrier = carrier.map(|((gateway, client), broker)| Carrier {
        client,
        broker,
        layers: gateway.layers().to_vec(),
    });
    let relays = relays(plan, &env);
    let callers = callers(plan, (&env, relays.as_ref()), &sessions, carrier.as_ref())?;
    let spec = begin::spec(plan, &env, run_name(shell.clock.now_utc()));
    let ready = async {
        let workspace = workspace(&spec, &runner, state.left.is_some()).await?;
        // What no turn could have is known before any is paid. Each makes it anew.
        if let Some(relays) = &relays {
            relays.make(&keeper, &CancellationToken::new()).await?;
        }
        Ok::<_, RunError>(workspace)
    };
    let workspace = tokio::select! {
        workspace = ready => workspace?,
        _ = shell.interrupts.next() => return Ok(stopped(Outcome::Stopped, SET_UP_STOPPED)),
        end = shell.bridge.end() => {
            if let Err(msg) = shell.bridge.settle(end.key, Settlement::Applied, SET_UP_STOPPED.to_owned()).await {
                shell.write(&SessionEvent::Note { msg }, Durability::Buffered)?;
            }
            return Ok(stopped(Outcome::Stopped, SET_UP_STOPPED));
        }
        () = until(shell.deadline, &shell.clock) => {
            return Ok(stopped(Outcome::Budget, "the wall-clock ceiling was reached during the setup"));
        }
    };
    tell_identity(plan, &workspace, identity, shell)?;
    let theirs = workspace.facts().has_results();
    let files = (workspace.frozen(), results::Results::new(theirs));
    let tools =
        begin::tools(plan, &runner.env, (&keeper, ground), (callers, sessions), files, tell, shell.clock);
    let world_runner = PackRunner { timeout: Some(plan.world.timeout), ..runner };
    let domain = plan.world.snapshot_restore.as_ref().map(|(snapshot, restore)| DomainCommands {
        snapshot_cmd: snapshot.to_string(),
        restore_cmd: restore.to_string(),
    });
    let ended = match domain {
        None => loop_on(shell, state, Hands::new(tools, GitWorld::new(workspace))).await,
        domain => {
            loop_on(shell, state, Hands::new(tools, CommandWorld::new(workspace, world_runner, domain))).await
        }
    };
    if plan.in_place && !theirs {
        results::remove(&plan.workspace_dir);
    }
    ended
}

/// Ends what an engine that died in this state directory left running.
fn end_leftovers(mark: &str, shell: &mut Shell) -> Result<(), RunError> {
    let killed = end_marked(mark).map_err(RunError::Leftovers)?;
    if killed.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = killed.iter().map(ToString::to_string).collect();
    let msg = format!("ended what an engine that died had left running: {}", names.join(", "));
    Ok(shell.write(&SessionEvent::Note { msg }, Durability::Buffered)?)
}

/// The workspace as an earlier process set it up, or a new one. A run whose loop began has no other than its own.
async fn workspace(spec: &Spec, runner: &PackRunner, begun: bool) -> Result<Workspace, RunError> {
    let there = Facts::read(&spec.place.state_dir).map_err(RunError::Setup)?.is_some();
    if begun || there {
        return Workspace::open(&spec.place).await.map_err(RunError::Setup);
    }
    Setup::new(spec, runner).run().await.map_err(RunError::Setup)
}

/// Tells what makes the scores comparable, and warns where they need not be comparable with those before.
fn tell_identity(
    plan: &RunPlan,
    workspace: &Workspace,
    before: Option<String>,
    shell: &mut Shell,
) -> Result<(), LogError> {
    let identity = plan.identity(workspace.facts().base.as_str()).to_string();
    shell.write(&SessionEvent::Identity { identity: identity.clone() }, Durability::Durable)?;
    match before.filter(|before| *before != identity) {
        Some(before) => {
            let msg = format!(
                "warning: the identity of this run was {before}, and the pack's is another now: scores of before and \
                 after need not be comparable"
            );
            shell.write(&SessionEvent::Note { msg }, Durability::Buffered)
        }
        None => Ok(()),
    }
}

async fn loop_on<W: World>(shell: &mut Shell, state: State, hands: Hands<W>) -> Result<Ended, RunError> {
    Ok(shell.run(state, hands).await?)
}

fn stopped(outcome: Outcome, reason: &str) -> Ended {
    Ended { outcome, reason: reason.to_owned() }
}

/// The report, and then the last line of the log.
fn close(
    plan: &RunPlan,
    state_dir: &StateDir,
    shell: &mut Shell,
    outcome: Outcome,
    reason: &str,
) -> Result<(), LogError> {
    let shutdown = SessionEvent::Shutdown { outcome, reason: reason.to_owned() };
    let (log, path) = (state_dir.session_log(), state_dir.report());
    let elapsed = shell.clock.monotonic().as_secs_f64();
    let report = Report::new(shell.progress.tally(), (outcome, reason), elapsed, (&log, &plan.workspace_dir));
    if let Err(why) = write_report(&report, &path) {
        shell.write(&SessionEvent::Note { msg: format!("failed to {why}") }, Durability::Buffered)?;
    }
    shell.write(&shutdown, Durability::Durable)
}

fn write_report(report: &Report<'_>, path: &Path) -> Result<(), String> {
    use std::io::Write;
    let text = serde_json::to_vec_pretty(report).map_err(|error| format!("encode the report: {error}"))?;
    point("report: before it is written");
    let mut file = private_file(path, PrivateFile::Truncate).map_err(|error| chain(&error))?;
    file.write_all(&text).map_err(|error| format!("write {}: {error}", path.display()))
}

fn start(plan: &RunPlan) -> SessionEvent {
    SessionEvent::Start {
        goal: plan.agent.goal.clone(),
        gate: plan.judge.objective.to_string(),
        model: plan.agent.model.name.to_string(),
        namespace: String::new(),
        iters_total: plan.limits.iterations,
        max_cost: plan.limits.max_cost,
        max_secs: plan.limits.max_time.map(|time| time.as_secs_f64()),
        max_park_secs: plan.limits.max_park.map(|most| most.as_secs_f64()),
        direction: Some(plan.judge.direction),
        tiebreak_direction: Some(plan.judge.tiebreak_direction),
    }
}

fn graph(plan: &RunPlan) -> Graph {
    plan.workflow.as_ref().map_or_else(Graph::autoresearch, Graph::of)
}

/// Whether a run has begun to work on other tasks than the plan's.
fn is_of_another_graph(plan: &RunPlan, state: &State) -> bool {
    (state.current.is_some() || state.best.is_some()) && state.terms.graph != graph(plan)
}

fn terms(plan: &RunPlan) -> Terms {
    Terms {
        graph: graph(plan),
        rule: Rule { direction: plan.judge.direction, tiebreak: plan.judge.tiebreak_direction },
        objective: plan.judge.objective.to_string(),
        iterations: plan.limits.iterations,
        max_cost: plan.limits.max_cost,
        goal: plan.agent.goal.clone(),
        max_park: plan.limits.max_park,
    }
}

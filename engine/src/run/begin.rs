//! Turns a resolved plan and a state directory into a run from its first log line to its last (contract §7).
//! It refuses to know the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use broker::launch::{Launch, Parent, ParentError, Secrets};
use driver::network::PROGRAM;
use driver::trial::{self, Trial};
use driver::turn::Exit;
use policy::capability::Uncovered;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::egress::{Broker, EgressError, SELF_TEST};
use super::graph::Graph;
use super::hands::{Apply, Hands, Tools, Turn};
use super::mediate;
use super::provision::{self, Carrier};
use super::shell::{Ended, Shell, until};
use super::state::{State, Terms};
use super::statedir::{AUDIT_FILE, StateDir, StateError, run_name};
use crate::agent::Template;
use crate::agent::tools::Tokens;
use crate::decide::Rule;
use crate::judge::Measure;
use crate::log::{Durability, LogError, Outcome, Phase, SessionEvent};
use crate::plan::{RepoPlan, RunPlan, SandboxPlan};
use crate::report::{Progress, Report};
use crate::sys::chain;
use crate::sys::clock::Clock;
use crate::sys::env::Environment;
use crate::sys::fs::{PrivateFile, private_file};
use crate::sys::keeper::{Keeper, KeeperError};
use crate::sys::signal::Interrupts;
use crate::world::{
    CommandWorld, DomainCommands, GitWorld, Inject, PackRunner, Place, Setup, Source, Spec, World, WorldError,
};

/// How long the self-test may take.
const TRIAL: Duration = Duration::from_secs(60);

/// Why a run did not come to an outcome, or never began.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The workspace could not be set up.
    #[error("set up the workspace")]
    Setup(#[source] WorldError),
    /// The log could not be written: nothing further was done.
    #[error("go on without a log")]
    Log(#[from] LogError),
    /// No sandbox can be had here: a required layer is missing.
    #[error("make sandboxes")]
    Sandbox(#[source] driver::GatewayError),
    /// The gateway does not answer.
    #[error("reach the gateway")]
    Gateway(#[source] driver::TurnError),
    /// The canary got out, or a way out is not whole.
    #[error("prove that a sandbox has no way out but the broker:\n{0}")]
    SelfTest(String),
    /// The host's own proxy.
    #[error(transparent)]
    Proxy(ParentError),
    /// Nobody answers for the sandboxes.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// Something would reach the agent that nothing discloses.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; and to "))]
    Uncovered(Vec<Uncovered>),
    /// The operator's systems for the run's writes.
    #[error(transparent)]
    Systems(#[from] mediate::SystemsError),
    /// No token for a turn.
    #[error("make a token")]
    Token(#[source] std::io::Error),
    /// Pack commands cannot be run here.
    #[error("run the pack's commands")]
    Keeper(#[from] KeeperError),
    /// The operator's signals cannot be heard.
    #[error("listen to signals")]
    Signals(#[source] std::io::Error),
}

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
    let Given { env, progress, clock, remarks } = given;
    let interrupts = Interrupts::listen().map_err(RunError::Signals)?;
    let (tell, told) = mpsc::unbounded_channel();
    let mut shell = Shell {
        log: state_dir.open_log(clock)?,
        progress,
        clock,
        interrupts,
        told,
        deadline: plan.limits.max_time,
        control: state_dir.control(),
        writes: None,
        broker: None,
    };
    shell.write(&start(plan), Durability::Durable)?;
    shell.write(&SessionEvent::Phase { phase: Phase::Starting, iter: 0 }, Durability::Buffered)?;
    let archived =
        state_dir.archived().map(|path| format!("an earlier run was put away in {}", path.display()));
    for msg in archived.into_iter().chain(remarks) {
        shell.write(&SessionEvent::Note { msg }, Durability::Buffered)?;
    }
    shell.write(&SessionEvent::Phase { phase: Phase::Preflight, iter: 0 }, Durability::Buffered)?;
    let ran = prepare_and_run(plan, state_dir, &env, tell, &mut shell).await;
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

/// Everything between the first lines and the last. What it starts has ended when it returns.
async fn prepare_and_run(
    plan: &RunPlan,
    state_dir: &StateDir,
    env: &Environment,
    tell: mpsc::UnboundedSender<SessionEvent>,
    shell: &mut Shell,
) -> Result<Ended, RunError> {
    // Whether a sandbox can be had is known before anything is cloned or spent.
    shell.broker = plan.agent.sandbox.as_ref().map(|_| mediating(plan, env)).transpose()?;
    let gateway = shell.broker.as_ref().map(|broker| gateway(state_dir.path(), broker)).transpose()?;
    if let Some(gateway) = &gateway {
        let msg = format!("layers of the sandbox:\n{}", gateway.layers().join("\n"));
        shell.write(&SessionEvent::Note { msg }, Durability::Buffered)?;
        shell.writes = Some(plan.state_dir.clone());
        let bounds = plan.outputs.document();
        shell.write(&SessionEvent::Outputs { bounds }, Durability::Buffered)?;
    }
    let client = match &gateway {
        Some(gateway) => Some(driver::Client::unix(gateway.socket()).await.map_err(RunError::Gateway)?),
        None => None,
    };
    if let (Some(sandbox), Some(client)) = (&plan.agent.sandbox, &client) {
        self_test(client, sandbox).await?;
    }
    let keeper = Arc::new(Keeper::start().await?);
    let runner = runner(plan, env, &keeper);
    let carrier = gateway.as_ref().zip(client).zip(shell.broker.as_deref());
    let carrier = carrier.map(|((gateway, client), broker)| Carrier {
        client,
        broker,
        layers: gateway.layers().to_vec(),
    });
    let turn = provision::turn(plan, env, &runner.env, carrier)?;
    let spec = spec(plan, env, run_name(shell.clock.now_utc()));
    let workspace = tokio::select! {
        workspace = Setup::new(&spec, &runner).run() => workspace.map_err(RunError::Setup)?,
        _ = shell.interrupts.next() => return Ok(stopped(Outcome::Stopped, "stopped by the operator during the setup")),
        () = until(shell.deadline, &shell.clock) => {
            return Ok(stopped(Outcome::Budget, "the wall-clock ceiling was reached during the setup"));
        }
    };
    let identity = plan.identity(workspace.facts().base.as_str()).to_string();
    shell.write(&SessionEvent::Identity { identity }, Durability::Durable)?;
    let frozen = workspace.frozen();
    let tools = tools(plan, &runner.env, &keeper, turn, frozen, tell, shell.clock);
    let state = State::new(terms(plan));
    let world_runner = PackRunner { timeout: Some(plan.world.timeout), ..runner };
    let domain = plan.world.snapshot_restore.as_ref().map(|(snapshot, restore)| DomainCommands {
        snapshot_cmd: snapshot.to_string(),
        restore_cmd: restore.to_string(),
    });
    match domain {
        None => loop_on(shell, state, Hands::new(tools, GitWorld::new(workspace))).await,
        domain => {
            loop_on(shell, state, Hands::new(tools, CommandWorld::new(workspace, world_runner, domain))).await
        }
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
    let mut file = private_file(path, PrivateFile::Truncate).map_err(|error| chain(&error))?;
    file.write_all(&text).map_err(|error| format!("write {}: {error}", path.display()))
}

fn start(plan: &RunPlan) -> SessionEvent {
    SessionEvent::Start {
        goal: plan.agent.goal.clone(),
        gate: plan.judge.objective.to_string(),
        model: plan.agent.model.to_string(),
        namespace: String::new(),
        iters_total: plan.limits.iterations,
        max_cost: None,
        max_secs: plan.limits.max_time.map(|time| time.as_secs_f64()),
    }
}

fn terms(plan: &RunPlan) -> Terms {
    Terms {
        graph: Graph::autoresearch(),
        rule: Rule { direction: plan.judge.direction, tiebreak: plan.judge.tiebreak_direction },
        objective: plan.judge.objective.to_string(),
        iterations: plan.limits.iterations,
    }
}

/// How commands of the pack are run on this host: with the engine's environment but its own names and what only the broker may
/// hold (note N12).
pub fn runner(plan: &RunPlan, env: &Environment, keeper: &Arc<Keeper>) -> PackRunner {
    PackRunner {
        keeper: keeper.clone(),
        env: env.without_reserved(plan.broker_held()),
        timeout: plan.setup.as_ref().map(|setup| setup.timeout),
        cancel: CancellationToken::new(),
    }
}

/// What the setup is told.
pub fn spec(plan: &RunPlan, env: &Environment, run: String) -> Spec {
    let (source, reference) = match (&plan.setup, &plan.repo) {
        (Some(setup), _) => (Source::Command(setup.command.to_string()), None),
        (None, _) if plan.in_place => (Source::InPlace, None),
        (None, RepoPlan::Url { url, reference }) => (Source::Url(url.to_string()), reference.as_ref()),
        (None, RepoPlan::Path { path, reference }) => (Source::Local(path.clone()), reference.as_ref()),
    };
    let inside = |path: &PathBuf| path.strip_prefix(&plan.workspace_dir).ok().map(PathBuf::from);
    let own = [plan.state_dir.clone(), plan.manifest_dir.join("STEER.md")];
    let place = Place {
        state_dir: plan.state_dir.clone(),
        workspace: plan.workspace_dir.clone(),
        own: own.iter().filter_map(inside).collect(),
        env: env.clone(),
    };
    let mut injects: Vec<Inject> = plan
        .injects
        .iter()
        .map(|inject| Inject {
            src: inject.src.clone(),
            dst: inject.dst.as_path().to_owned(),
            frozen: inject.frozen,
            mode: if inject.executable { 0o755 } else { 0o644 },
            sha256: inject.sha256,
        })
        .collect();
    if plan.manifest_frozen
        && let Some(dst) = inside(&plan.manifest_path)
    {
        let sha256 = Sha256::digest(plan.manifest.text()).into();
        injects.push(Inject { src: plan.manifest_path.clone(), dst, frozen: true, mode: 0o644, sha256 });
    }
    Spec {
        run,
        place,
        manifest_dir: plan.manifest_dir.clone(),
        source,
        reference: reference.map(ToString::to_string),
        history: plan.history,
        injects,
        user_env: env.clone(),
    }
}

fn tools(
    plan: &RunPlan,
    env: &Environment,
    keeper: &Arc<Keeper>,
    turn: Turn,
    frozen: crate::world::FrozenFiles,
    tell: mpsc::UnboundedSender<SessionEvent>,
    clock: Clock,
) -> Tools {
    let apply = plan.world.apply_cmd.as_ref();
    Tools {
        keeper: keeper.clone(),
        workspace: plan.workspace_dir.clone(),
        env: env.clone(),
        turn,
        method: Template::new(&plan.agent.method),
        goal: plan.agent.goal.clone(),
        apply: apply
            .map(|command| Apply { apply_cmd: command.to_string(), timeout: Some(plan.world.timeout) }),
        measure: measure(plan, env),
        frozen,
        tell,
        clock,
    }
}

/// Starts the gateway that makes the run's sandboxes. It goes with the value, and every sandbox with it.
///
/// # Errors
/// When a required layer is missing, with the remedy (note N15).
pub fn gateway(state_dir: &Path, broker: &Arc<Broker>) -> Result<driver::Gateway, RunError> {
    let config = driver::GatewayConfig { state_dir: state_dir.to_owned() };
    driver::Gateway::networked(config, broker.clone()).map_err(RunError::Sandbox)
}

/// Prepares the broker that answers for the run's sandboxes. It goes with the value.
///
/// # Errors
/// When the host's proxy cannot be used.
pub fn broker(plan: &RunPlan, env: &Environment) -> Result<Arc<Broker>, RunError> {
    let launch = launch(plan, env).map_err(RunError::Proxy)?;
    let audit = plan.state_dir.join(AUDIT_FILE);
    Ok(Arc::new(Broker::start(launch, audit, None, Tokens::default())?))
}

/// The same for a run, whose writes go through it (contract §1.9).
fn mediating(plan: &RunPlan, env: &Environment) -> Result<Arc<Broker>, RunError> {
    let (writes, projection) = mediate::mediated(plan, env)?;
    let launch = Launch { writes: Some(writes), ..launch(plan, env).map_err(RunError::Proxy)? };
    let tokens = Tokens::default();
    // A token that nobody is told: the self-test sees that without it there are no tools.
    tokens.begin(SELF_TEST).map_err(RunError::Token)?;
    let audit = plan.state_dir.join(AUDIT_FILE);
    Ok(Arc::new(Broker::start(launch, audit, Some(&projection), tokens)?))
}

/// What the broker's child is told: the host's own way out, and what no record may show.
///
/// # Errors
/// A proxy URL that cannot be used.
pub fn launch(plan: &RunPlan, env: &Environment) -> Result<Launch, ParentError> {
    let text = |names: [&str; 2]| {
        let values = names.into_iter().filter_map(|name| env.value(name)).filter_map(|value| value.to_str());
        values.map(str::to_owned).find(|value| !value.is_empty())
    };
    let parent = text(["https_proxy", "HTTPS_PROXY"]);
    let parent = parent.map(|url| Parent::from_url(&url, |bytes| STANDARD.encode(bytes))).transpose()?;
    let held = plan.broker_held().filter_map(|name| env.value(name)?.to_str().map(str::to_owned));
    let given = plan.agent.env.values().map(|value| value.reveal().to_owned());
    let secrets = given.chain(held.filter(|value| !value.is_empty())).collect();
    let no_proxy = text(["no_proxy", "NO_PROXY"]).unwrap_or_default();
    Ok(Launch { parent, no_proxy, secrets: Secrets(secrets), ..Launch::default() })
}

/// Tries every way out of a sandbox with a name that no policy lists: nothing is begun unless each refuses it.
///
/// # Errors
/// What passed or was not there, a line for each way.
pub async fn self_test(client: &driver::Client, sandbox: &SandboxPlan) -> Result<(), RunError> {
    let own = sandbox.broker.as_ref().map(|url| url.target.to_string());
    let trial = Trial {
        name: SELF_TEST.to_owned(),
        egress: sandbox.egress.document(),
        limits: sandbox.limits,
        command: [PROGRAM, "broker", "probe"].map(str::to_owned).into_iter().chain(own).collect(),
        timeout: Some(TRIAL),
    };
    match trial::run(client, trial).await {
        Ok((Exit::Code(0), _)) => Ok(()),
        Ok((_, said)) => Err(RunError::SelfTest(said.trim_end().to_owned())),
        Err(error) => Err(RunError::SelfTest(chain(&error))),
    }
}

/// The judge of a plan, in its workspace.
pub fn measure(plan: &RunPlan, env: &Environment) -> Measure {
    Measure {
        measure_cmd: plan.judge.measure_cmd.to_string(),
        cwd: plan.workspace_dir.clone(),
        env: env.clone(),
        timeout: Some(plan.judge.timeout),
    }
}

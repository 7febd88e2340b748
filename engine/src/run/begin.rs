//! Turns a resolved plan into what a run is made of: its commands, its judge, its sandboxes, its workspace's specification.
//! It refuses to know in which order a run uses them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use broker::launch::{Launch, ParentError};
use policy::capability::Uncovered;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::hands::{AgentTask, Apply, Caller, Tools};
use super::mediate;
use super::replay::Divergence;
use super::statedir::StateError;
use super::steer_file;
use crate::admission::LedgerError;
use crate::agent::relay::RelayFault;
use crate::agent::{Results, Sessions, Template};
use crate::control::ControlError;
use crate::egress::{AUDIT_FILE, Broker, Canary, EgressError, SELF_TEST, Tokens, TrialError, try_canary};
use crate::judge::{Confined, Ground, Measure};
use crate::log::{LogError, ReadError, SessionEvent};
use crate::manifest::Harness;
use crate::plan::{KeyError, Model, RepoPlan, RunPlan, SandboxPlan};
use crate::sys::clock::Clock;
use crate::sys::env::Environment;
use crate::sys::keeper::{Keeper, KeeperError};
use crate::world::{FrozenFiles, Inject, PackRunner, Place, Source, Spec, WorldError};

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
    #[error(transparent)]
    SelfTest(#[from] TrialError),
    /// The host's own proxy.
    #[error(transparent)]
    Proxy(ParentError),
    /// Nobody answers for the sandboxes.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// Something would reach the agent that nothing discloses.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; and to "))]
    Uncovered(Vec<Uncovered>),
    /// What is to be put into each turn's sandbox cannot be made.
    #[error(transparent)]
    Relay(#[from] RelayFault),
    /// The operator's systems for the run's writes.
    #[error(transparent)]
    Systems(#[from] mediate::SystemsError),
    /// No token for a turn.
    #[error("make a token")]
    Token(#[source] std::io::Error),
    /// Operators cannot be heard.
    #[error("let operators control the run")]
    Control(#[from] ControlError),
    /// What operators say cannot be recorded.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Pack commands cannot be run here.
    #[error("run the pack's commands")]
    Keeper(#[from] KeeperError),
    /// The model's key is not there.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A harness without a driver here.
    #[error("run the harness \"{0}\": this build does not have it")]
    Harness(Harness),
    /// The private directory of agents' tools.
    #[error("keep what agents' tools remember")]
    Sessions(#[source] crate::sys::fs::FsError),
    /// The log cannot be read, so nothing can go on from it.
    #[error("resume the run")]
    Unreadable(#[source] ReadError),
    /// The log does not follow from itself.
    #[error("resume the run: {path} was changed, or written by another build")]
    Diverged {
        /// The log.
        path: PathBuf,
        /// Where.
        source: Divergence,
    },
    /// The manifest's tasks are not those that the log tells of.
    #[error("resume the run: [workflow] is not the graph of tasks that it was begun with")]
    OtherGraph,
    /// What a dead engine left running cannot be ended.
    #[error("end what an engine that died left running")]
    Leftovers(#[source] std::io::Error),
    /// No gateway for the judge's sandbox.
    #[error("confine the judge: there is no gateway")]
    Unconfined,
    /// The operator's signals cannot be heard.
    #[error("listen to signals")]
    Signals(#[source] std::io::Error),
}

/// How commands of the pack are run on this host: with the engine's environment but its own names, every model's key, and what
/// only the broker may hold (note N12).
pub fn runner(plan: &RunPlan, env: &Environment, keeper: &Arc<Keeper>) -> PackRunner {
    PackRunner {
        keeper: keeper.clone(),
        env: pack_env(plan, env),
        timeout: plan.setup.as_ref().map(|setup| setup.timeout),
        cancel: CancellationToken::new(),
    }
}

/// What commands of the pack see of the engine's environment.
pub(super) fn pack_env(plan: &RunPlan, env: &Environment) -> Environment {
    let keys = plan.agent.models().flat_map(Model::hidden_from_pack);
    env.without_reserved(keys.chain(plan.broker_held()))
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
    let own = [plan.state_dir.clone(), plan.steer.clone(), steer_file::aside(&plan.steer)];
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

/// What the jobs of a run need.
pub(super) fn tools(
    plan: &RunPlan,
    env: &Environment,
    (keeper, ground): (&Arc<Keeper>, Ground),
    ((proposer, tasks), sessions): ((Caller, BTreeMap<String, AgentTask>), Sessions),
    (frozen, results): (FrozenFiles, Results),
    tell: mpsc::UnboundedSender<SessionEvent>,
    clock: Clock,
) -> Tools {
    let apply = plan.world.apply_cmd.as_ref();
    Tools {
        keeper: keeper.clone(),
        workspace: plan.workspace_dir.clone(),
        env: env.clone(),
        proposer,
        tasks,
        sessions,
        method: Template::new(&plan.agent.method),
        goal: plan.agent.goal.clone(),
        apply: apply
            .map(|command| Apply { apply_cmd: command.to_string(), timeout: Some(plan.world.timeout) }),
        ground,
        measure: measure(plan, env),
        toolbox: plan.agent.toolbox.clone(),
        frozen,
        results,
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

/// Starts a gateway for sandboxes without any way out.
///
/// # Errors
/// As for [`gateway`].
pub fn enclosure(state_dir: &Path) -> Result<driver::Gateway, RunError> {
    let config = driver::GatewayConfig { state_dir: state_dir.to_owned() };
    driver::Gateway::embedded(config).map_err(RunError::Sandbox)
}

/// Where the judge of a plan runs: in a sandbox where it is confined, else on this host.
///
/// # Errors
/// When it is to be confined and there is no gateway: it never runs on this host instead.
pub fn ground(
    plan: &RunPlan,
    keeper: &Arc<Keeper>,
    client: Option<&driver::Client>,
) -> Result<Ground, RunError> {
    let Some(confined) = &plan.judge.confined else { return Ok(Ground::Host(keeper.clone())) };
    Ok(Ground::Confined(Box::new(Confined {
        client: client.ok_or(RunError::Unconfined)?.clone(),
        read_only_paths: confined.read_only_paths.clone(),
        limits: confined.limits,
    })))
}

/// Prepares the broker that answers for the run's sandboxes. It goes with the value.
///
/// # Errors
/// When the host's proxy cannot be used.
pub fn broker(plan: &RunPlan, env: &Environment) -> Result<Arc<Broker>, RunError> {
    let audit = plan.state_dir.join(AUDIT_FILE);
    Ok(Arc::new(Broker::start(launch(plan, env)?, audit, None, Tokens::default())?))
}

/// The same for a run, whose writes go through it (contract §1.9).
pub(super) fn mediating(plan: &RunPlan, env: &Environment) -> Result<Arc<Broker>, RunError> {
    let (writes, projection) = mediate::mediated(plan, env)?;
    let launch = Launch { writes: Some(writes), ..launch(plan, env)? };
    let tokens = Tokens::default();
    // A token that nobody is told: the self-test sees that without it there are no tools.
    tokens.begin(SELF_TEST).map_err(RunError::Token)?;
    let audit = plan.state_dir.join(AUDIT_FILE);
    Ok(Arc::new(Broker::start(launch, audit, Some(&projection), tokens)?))
}

/// What the broker's child is told: the host's own way out, what bounds traffic, and what no record may show.
///
/// # Errors
/// A proxy URL that cannot be used.
pub fn launch(plan: &RunPlan, env: &Environment) -> Result<Launch, RunError> {
    let sandbox = plan.agent.sandbox.as_ref();
    let limits = sandbox.map(|sandbox| sandbox.traffic).unwrap_or_default();
    let own = plan.agent.env.values().map(|value| value.reveal().to_owned());
    let held = plan.broker_held().filter_map(|name| env.value(name)?.to_str().map(str::to_owned));
    let secrets = own
        .chain(plan.agent.models().flat_map(|model| model.secrets(env)))
        .chain(held)
        .filter(|value| !value.is_empty())
        .collect();
    let launch = crate::egress::launch(env, limits, secrets).map_err(RunError::Proxy)?;
    Ok(Launch { ca: sandbox.and_then(SandboxPlan::ca), ..launch })
}

/// Tries every way out of a plan's sandbox, and looks at what its programs are told to trust: nothing is begun unless each
/// way refuses a name that no list has, and each variable leads to the right bundle.
///
/// # Errors
/// What passed or was not there, a line for each way and each variable.
pub async fn self_test(client: &driver::Client, sandbox: &SandboxPlan) -> Result<(), RunError> {
    let canary = Canary {
        egress: sandbox.egress.document(),
        limits: sandbox.limits,
        certificates: sandbox.ca(),
        own: sandbox.broker.as_ref().map(|url| url.target.to_string()),
    };
    Ok(try_canary(client, canary).await?)
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

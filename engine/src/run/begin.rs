//! Turns a resolved plan into what a run is made of: its commands, its judge, its sandboxes, its workspace's specification.
//! It refuses to know in which order a run uses them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use broker::launch::{Launch, Parent, ParentError, Secrets};
use driver::network::PROGRAM;
use driver::trial::{self, Trial};
use driver::turn::Exit;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::egress::{Broker, EgressError, SELF_TEST};
use super::hands::{Apply, Tools, Turn};
use super::replay::Divergence;
use super::statedir::{AUDIT_FILE, StateError};
use crate::agent::{Sessions, Template};
use crate::judge::{Confined, Ground, Measure};
use crate::log::{LogError, ReadError, SessionEvent};
use crate::manifest::Harness;
use crate::plan::{KeyError, RepoPlan, RunPlan, SandboxPlan};
use crate::sys::chain;
use crate::sys::clock::Clock;
use crate::sys::env::Environment;
use crate::sys::keeper::{Keeper, KeeperError};
use crate::world::{Inject, PackRunner, Place, Source, Spec, WorldError};

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

/// How commands of the pack are run on this host: with the engine's environment but its own names and keys (note N12).
pub fn runner(plan: &RunPlan, env: &Environment, keeper: &Arc<Keeper>) -> PackRunner {
    PackRunner {
        keeper: keeper.clone(),
        env: env.without_reserved(plan.agent.model.hidden_from_pack()),
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

/// What the jobs of a run need.
pub(super) fn tools(
    plan: &RunPlan,
    env: &Environment,
    (keeper, ground): (&Arc<Keeper>, Ground),
    (turn, sessions): (Turn, Sessions),
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
        sessions,
        session: plan.agent.session.clone(),
        method: Template::new(&plan.agent.method),
        goal: plan.agent.goal.clone(),
        apply: apply
            .map(|command| Apply { apply_cmd: command.to_string(), timeout: Some(plan.world.timeout) }),
        ground,
        measure: measure(plan, env),
        toolbox: plan.agent.toolbox.clone(),
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
    let launch = launch(plan, env).map_err(RunError::Proxy)?;
    let audit = plan.state_dir.join(AUDIT_FILE);
    Ok(Arc::new(Broker::start(launch, audit).map_err(RunError::Egress)?))
}

/// What the broker's child is told: the host's own way out, and what no record may show.
fn launch(plan: &RunPlan, env: &Environment) -> Result<Launch, ParentError> {
    let text = |names: [&str; 2]| {
        let values = names.into_iter().filter_map(|name| env.value(name)).filter_map(|value| value.to_str());
        values.map(str::to_owned).find(|value| !value.is_empty())
    };
    let parent = text(["https_proxy", "HTTPS_PROXY"]);
    let parent = parent.map(|url| Parent::from_url(&url, |bytes| STANDARD.encode(bytes))).transpose()?;
    let own = plan.agent.env.values().map(|value| value.reveal().to_owned());
    let secrets = own.chain(plan.agent.model.secrets(env)).collect();
    let no_proxy = text(["no_proxy", "NO_PROXY"]).unwrap_or_default();
    Ok(Launch { parent, no_proxy, secrets: Secrets(secrets), ..Launch::default() })
}

/// Tries every way out of a sandbox with a name that no policy lists: nothing is begun unless each refuses it.
///
/// # Errors
/// What passed or was not there, a line for each way.
pub async fn self_test(client: &driver::Client, sandbox: &SandboxPlan) -> Result<(), RunError> {
    let trial = Trial {
        name: SELF_TEST.to_owned(),
        egress: sandbox.egress.document(),
        limits: sandbox.limits,
        command: [PROGRAM, "broker", "probe"].map(str::to_owned).to_vec(),
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

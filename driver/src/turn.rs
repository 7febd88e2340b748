//! Turns one agent turn into create, ready, relay, exec, sync back and delete, each undone when a later one fails.
//! It refuses to know what the turn is for and how its result is judged.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use crate::exec::{Exit, Stream};
use crate::{
    client::{Client, SandboxSpec, SyncedBack},
    error::{Step, TurnError},
    exec::{ExecEvent, ExecSpec, Running},
    limits::Limits,
    wire::config::DriverConfig,
};

mod fetch;
mod looks;

pub use looks::Looks;

/// How long the sandbox may take to be ready.
pub(crate) const READY: Duration = Duration::from_secs(30);
/// How long one relayed file may take.
const RELAY: Duration = Duration::from_secs(30);

/// Everything that one turn needs.
#[derive(Debug, Clone, Default)]
pub struct TurnSpec {
    /// The sandbox's name: a DNS label of at most 19 characters, unique while the turn runs.
    pub name: String,
    /// The host directory that the turn works on; it stands in the sandbox as `/sandbox/<its name>`.
    pub workspace: PathBuf,
    /// A git directory shown as the workspace's `.git` (N11). Without one the sandbox sees no `.git` at all.
    pub repository: Option<PathBuf>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Added to the sandbox's own small environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// An absolute directory in the sandbox; the workspace when absent.
    pub workdir: Option<String>,
    /// What the command reads.
    pub stdin: Vec<u8>,
    /// Files put into the sandbox before the command runs (N16).
    pub relays: Vec<Relay>,
    /// Host paths joined to the sandbox's view, read and execute (N11).
    pub read_only_paths: Vec<PathBuf>,
    /// What the sandbox may use.
    pub limits: Limits,
    /// What it may reach; without it the sandbox has no way out at all, and nobody to ask.
    pub egress: Option<policy::egress::Document>,
    /// Certificates that it trusts beside the system's, in PEM.
    pub certificates: Option<String>,
    /// After this long the command is killed, and what it changed comes back.
    pub timeout: Option<Duration>,
    /// After this long without output likewise.
    pub idle_timeout: Option<Duration>,
    /// When this is cancelled likewise: nothing more is wanted of the command.
    pub enough: CancellationToken,
    /// Files that are brought out beside the workspace's changes, once the command is over.
    pub fetch: Option<Fetch>,
    /// Who wants to see them before that, while the command runs.
    pub looks: Option<Looks>,
    /// Layers to leave out; only a build for tests of the layers knows any, every other refuses them.
    pub weaken: Vec<String>,
}

/// One file that is put into the sandbox. It may not lie in the workspace: there it would come back.
#[derive(Clone)]
pub struct Relay {
    /// An absolute path in the sandbox, below its home or `/tmp`.
    pub dest: String,
    /// What stands in it.
    pub content: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Relay {{ dest: {:?}, {} bytes }}", self.dest, self.content.len())
    }
}

/// Which files are brought out of a sandbox beside the workspace's changes. What is in them is hostile data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// An absolute directory in the sandbox.
    pub directory: String,
    /// A file's name, with the wildcards of a shell. At most six directories down.
    pub name: String,
    /// So many bytes together, at most.
    pub max: usize,
}

/// One file that was brought out.
#[derive(Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Relative to [`Fetch::directory`], as the sandbox tells it.
    pub path: PathBuf,
    /// What stood in it.
    pub content: Vec<u8>,
}

impl std::fmt::Debug for Fetched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fetched {{ path: {:?}, {} bytes }}", self.path, self.content.len())
    }
}

/// Why the command is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Itself,
    /// The turn's time was up.
    TimedOut,
    /// It wrote nothing for too long.
    Idle,
    /// Nothing more was wanted of it.
    Enough,
}

/// How a turn ended; what changed is in the workspace by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// How the command ended.
    pub exit: Exit,
    /// Why.
    pub ended: Ended,
    /// What changed in the workspace, sorted by path.
    pub changed: Vec<Change>,
    /// What the command made that did not come back, and why.
    pub dropped: Vec<Dropped>,
    /// Processes that were alive when the command was over.
    pub killed: Vec<Killed>,
    /// Limits that were hit: `memory`, `processes`, `disk`, `tmp`.
    pub limits_hit: Vec<String>,
    /// The layers that were in force, one line each.
    pub layers: Vec<String>,
    /// The files of [`TurnSpec::fetch`], sorted by path, or why there are none.
    pub fetched: Result<Vec<Fetched>, String>,
}

/// One path of the workspace that differs from before, relative to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// What happened there.
    pub kind: ChangeKind,
}

/// What happened to one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It was made or written.
    Written,
    /// It was deleted.
    Deleted,
}

/// One path that did not come back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dropped {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Why it stayed behind.
    pub reason: String,
}

/// One process that outlived the command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Killed {
    /// Its number inside the sandbox.
    pub pid: u32,
    /// Its name, as the kernel has it.
    pub name: String,
}

/// Runs one turn in a sandbox of its own and takes it away again, whatever happens.
///
/// `sink` gets the output as it comes. A cancelled turn leaves the workspace as it was; one that ran out of time
/// brings back what was done until then and says so in `ended`. Contract §6.
///
/// # Errors
/// Whatever step failed, with its transport class; the workspace is as it was.
pub async fn run(
    client: &Client,
    spec: TurnSpec,
    cancel: CancellationToken,
    sink: &mut (dyn FnMut(Stream, &[u8]) + Send),
) -> Result<TurnEnd, TurnError> {
    let name = spec.name.clone();
    let sandbox = Guard::new(client.clone(), name);
    let result = match until_over(client, spec, &cancel, sink).await {
        Ok((over, fetched)) => {
            sync_back(client, sandbox.name(), &cancel).await.map(|back| turn_end(over, fetched, back))
        }
        Err(error) => Err(error),
    };
    let deleted = sandbox.delete().await;
    let end = result?;
    deleted?;
    Ok(end)
}

/// How a command ended, and why.
type Over = (Exit, Ended);

/// The steps until the command is over, which a cancelled turn leaves where it is.
async fn until_over(
    client: &Client,
    spec: TurnSpec,
    cancel: &CancellationToken,
    sink: &mut (dyn FnMut(Stream, &[u8]) + Send),
) -> Result<(Over, Result<Vec<Fetched>, String>), TurnError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(TurnError::Cancelled),
        result = steps(client, spec, sink) => result,
    }
}

async fn steps(
    client: &Client,
    spec: TurnSpec,
    sink: &mut (dyn FnMut(Stream, &[u8]) + Send),
) -> Result<(Over, Result<Vec<Fetched>, String>), TurnError> {
    let name = spec.name.clone();
    relays_stay_out(&spec)?;
    client.create(&sandbox_spec(&spec)).await?;
    within(Step::Ready, READY, client.ready(&name)).await?;
    for relay in &spec.relays {
        within(Step::Relay, RELAY, put(client, &name, relay)).await?;
    }
    let clock = Clock::new(spec.timeout, spec.idle_timeout);
    let command =
        ExecSpec { command: spec.command, workdir: spec.workdir, stdin: spec.stdin, ..ExecSpec::default() };
    let running = client.exec(&name, command, Step::Exec).await?;
    let command = async {
        tokio::select! {
            biased;
            over = follow(running, clock, sink) => over,
            // Dropped, the command is killed.
            () = spec.enough.cancelled() => Ok((KILLED, Ended::Enough)),
        }
    };
    let over = match (&spec.looks, &spec.fetch) {
        (Some(looks), Some(fetch)) => looks.during(command, || fetch::fetch(client, &name, fetch)).await?,
        _ => command.await?,
    };
    let fetched = match &spec.fetch {
        Some(fetch) => fetch::fetch(client, &name, fetch).await,
        None => Ok(Vec::new()),
    };
    Ok((over, fetched))
}

/// Brings the changes back. Cancelled meanwhile, the gateway takes back what it did, unless it was done already: only
/// it knows, and a second call tells.
async fn sync_back(client: &Client, name: &str, cancel: &CancellationToken) -> Result<SyncedBack, TurnError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        result = client.sync_back(name, false) => return result,
    }
    match client.sync_back(name, true).await {
        Ok(back) if back.applied => Ok(back),
        _ => Err(TurnError::Cancelled),
    }
}

fn turn_end((exit, ended): Over, fetched: Result<Vec<Fetched>, String>, back: SyncedBack) -> TurnEnd {
    let SyncedBack { changed, dropped, killed, limits_hit, layers, applied: _ } = back;
    TurnEnd { exit, ended, changed, dropped, killed, limits_hit, layers, fetched }
}

fn sandbox_spec(spec: &TurnSpec) -> SandboxSpec {
    SandboxSpec {
        name: spec.name.clone(),
        request_id: spec.name.clone(),
        environment: spec.env.clone(),
        config: DriverConfig {
            workspace: Some(spec.workspace.clone()),
            repository: spec.repository.clone(),
            read_only_paths: spec.read_only_paths.clone(),
            limits: spec.limits,
            egress: spec.egress.clone(),
            certificates: spec.certificates.clone(),
            weaken: spec.weaken.clone(),
        },
    }
}

pub(crate) async fn within<T>(
    step: Step,
    limit: Duration,
    work: impl Future<Output = Result<T, TurnError>>,
) -> Result<T, TurnError> {
    tokio::time::timeout(limit, work).await.map_err(|_| TurnError::Slow { step, limit })?
}

/// The turn's two limits.
pub(crate) struct Clock {
    end: Option<Instant>,
    idle: Option<Duration>,
}

impl Clock {
    pub(crate) fn new(timeout: Option<Duration>, idle: Option<Duration>) -> Self {
        Self { end: timeout.and_then(|limit| Instant::now().checked_add(limit)), idle }
    }

    /// The next point at which something ends, and what it means.
    fn deadline(&self, last_output: Instant) -> Option<(Instant, Ended)> {
        let idle = self.idle.and_then(|limit| last_output.checked_add(limit)).map(|at| (at, Ended::Idle));
        let end = self.end.map(|at| (at, Ended::TimedOut));
        [end, idle].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

/// How a command ends that is not wanted any more.
const KILLED: Exit = Exit::Signal(9);

/// Passes output on until the command is over or its time is; then dropping `running` kills it.
pub(crate) async fn follow(
    mut running: Running,
    clock: Clock,
    sink: &mut (dyn FnMut(Stream, &[u8]) + Send),
) -> Result<(Exit, Ended), TurnError> {
    let mut last_output = Instant::now();
    loop {
        let event = match clock.deadline(last_output) {
            None => running.next().await?,
            Some((at, ended)) => match tokio::time::timeout_at(at, running.next()).await {
                Ok(event) => event?,
                Err(_) => return Ok((KILLED, ended)),
            },
        };
        match event {
            ExecEvent::Output(stream, data) => {
                sink(stream, &data);
                last_output = Instant::now();
            }
            ExecEvent::Exit { exit, timed_out: false } => return Ok((exit, Ended::Itself)),
            ExecEvent::Exit { exit, timed_out: true } => return Ok((exit, Ended::TimedOut)),
        }
    }
}

/// A relayed file in the workspace would come back with the changes.
fn relays_stay_out(spec: &TurnSpec) -> Result<(), TurnError> {
    let name = spec.workspace.file_name().unwrap_or_default();
    let inside = std::path::Path::new("/sandbox").join(name);
    let place = |dest: &str| {
        let path = std::path::Path::new(dest);
        let plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
        path.is_absolute() && plain && !path.starts_with(&inside)
    };
    match spec.relays.iter().find(|relay| !place(&relay.dest)) {
        None => Ok(()),
        Some(relay) => Err(TurnError::Spec(format!(
            "put a relayed file at {}: it is not an absolute path outside the workspace",
            relay.dest
        ))),
    }
}

/// Writes one file through the sandbox's own shell, so that it belongs to who reads it.
async fn put(client: &Client, sandbox: &str, relay: &Relay) -> Result<(), TurnError> {
    const SCRIPT: &str =
        "set -eu; umask 077; mkdir -p -- \"$(dirname -- \"$1\")\"; cat > \"$1\"; chmod \"$2\" \"$1\"";
    let mode = format!("{:o}", relay.mode & 0o777);
    let command = ["/bin/sh", "-c", SCRIPT, "relay", &relay.dest, &mode].map(str::to_owned).to_vec();
    let spec = ExecSpec {
        command,
        workdir: Some("/".to_owned()),
        stdin: relay.content.clone(),
        ..ExecSpec::default()
    };
    let running = client.exec(sandbox, spec, Step::Relay).await?;
    let mut said = Vec::new();
    let clock = Clock::new(None, None);
    let (exit, _) = follow(running, clock, &mut |_, data| said.extend_from_slice(data)).await?;
    if exit == Exit::Code(0) {
        return Ok(());
    }
    let message = format!("{}: {}", relay.dest, String::from_utf8_lossy(&said).trim());
    Err(TurnError::Call { step: Step::Relay, class: crate::error::TransportClass::Agent, message })
}

/// Deletes the sandbox: in order when asked, in the background when the turn is dropped.
pub(crate) struct Guard {
    client: Client,
    name: Option<String>,
}

impl Guard {
    pub(crate) fn new(client: Client, name: String) -> Self {
        Self { client, name: Some(name) }
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(crate) async fn delete(mut self) -> Result<(), TurnError> {
        // The name is taken only after the call, so that being dropped meanwhile still deletes.
        let result = match &self.name {
            Some(name) => self.client.delete(name).await,
            None => Ok(()),
        };
        self.name = None;
        result
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let (Some(name), Ok(runtime)) = (self.name.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let client = self.client.clone();
        runtime.spawn(async move {
            // Nobody is left to tell; a sandbox that stays is taken by the gateway's end.
            drop(client.delete(&name).await);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_of_the_two_limits_ends_the_turn() {
        let now = Instant::now();
        let seconds = Duration::from_secs;
        let ended = |timeout, idle, last: u64| {
            let clock = Clock { end: timeout, idle };
            clock.deadline(now + seconds(last)).map(|(_, ended)| ended)
        };
        assert_eq!(ended(None, None, 0), None);
        assert_eq!(ended(Some(now + seconds(10)), Some(seconds(3)), 0), Some(Ended::Idle));
        assert_eq!(ended(Some(now + seconds(10)), Some(seconds(3)), 8), Some(Ended::TimedOut));
    }
}

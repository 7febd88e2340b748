//! Turns a configuration into a running sandbox, runs commands in it, and ends it with nothing left.
//! It refuses to know gRPC and who asked.

use std::{
    collections::BTreeMap,
    ffi::CString,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Component, Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

use super::{
    cgroup::{Cgroup, Cgroups},
    error::GatewayError,
    link::{Ending, Link},
    mount::{HOME, SANDBOX},
    namespace::{self, Identity, Namespaces, OwnerMaps},
    protocol::{Exec, Setup, Source, Workspace, WorkspaceMode},
    way::{Outlet, WayOut},
    weaken::{Layer, Weaken},
};
use crate::{
    limits::Limits,
    network::Network,
    transfer::{self, Origin, SyncOutcome},
    turn::Killed,
    wire::config::DriverConfig,
};

/// How long a sandbox may take to stand.
const SETUP: Duration = Duration::from_secs(20);
/// How long the list of what is alive may take before everything is killed without one.
const LIST: Duration = Duration::from_secs(2);

/// What every sandbox of one gateway shares.
#[derive(Debug)]
pub(crate) struct Host {
    /// An empty directory that new roots are built on, each in a mount namespace of its own.
    pub(crate) root: PathBuf,
    /// Where a sync stages, when it is on the workspace's file system.
    pub(crate) staging: PathBuf,
    /// What no path given to a sandbox may show.
    pub(crate) state: PathBuf,
    pub(crate) cgroups: Cgroups,
    pub(crate) owners: OwnerMaps,
    /// Who answers for the ways out; without anybody there are none.
    pub(crate) network: Option<Arc<dyn Network>>,
}

/// A sandbox that is asked for.
pub(crate) struct Wanted<'a> {
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) config: &'a DriverConfig,
    pub(crate) environment: BTreeMap<String, String>,
}

/// One running sandbox.
pub(crate) struct Sandbox {
    link: Link,
    namespaces: Mutex<Option<Namespaces>>,
    cgroup: Mutex<Cgroup>,
    changes: Mutex<Option<OwnedFd>>,
    scratch: Mutex<Option<OwnedFd>>,
    mode: WorkspaceMode,
    origin: Option<Origin>,
    environment: BTreeMap<String, String>,
    /// Whoever answers for the ways out, until they are taken away.
    outlet: tokio::sync::Mutex<Option<Outlet>>,
    workdir: String,
    next: AtomicU64,
    pub(crate) layers: Vec<String>,
}

/// A started command.
pub(crate) struct Command {
    pub(crate) id: u64,
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) ended: oneshot::Receiver<Ending>,
}

/// What is to run.
#[derive(Debug, Default)]
pub(crate) struct CommandSpec {
    pub(crate) argv: Vec<String>,
    pub(crate) workdir: String,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) terminal: Option<(u16, u16)>,
}

/// What a sandbox left.
pub(crate) struct Remains {
    pub(crate) killed: Vec<Killed>,
    pub(crate) hits: Vec<String>,
}

/// Mounts that the gateway prepared, beside the message that names them.
struct Prepared {
    setup: Setup,
    fds: Vec<OwnedFd>,
    origin: Option<Origin>,
    workdir: String,
    notes: Vec<String>,
}

impl Sandbox {
    /// Makes a sandbox and waits until it stands. `gone` is called when its first process ends.
    pub(crate) async fn start(
        host: &Host,
        wanted: Wanted<'_>,
        gone: impl FnOnce() + Send + 'static,
    ) -> Result<Self, GatewayError> {
        let Wanted { id, name, config, environment } = wanted;
        let way = config.egress.as_ref().map(|policy| WayOut::plan(host, policy)).transpose()?;
        let weaken = Weaken::parse(&config.weaken).map_err(GatewayError::Refused)?;
        let mut prepared = prepare(host, config)?;
        if let Some(way) = &way {
            prepared.setup.ways = Some(way.ways());
            prepared.setup.program = program(host, &mut prepared)?;
        }
        let limits = if weaken.off(Layer::Limits) { Limits::unlimited() } else { config.limits };
        let cgroup =
            host.cgroups.create(id, &limits).map_err(GatewayError::io("make the sandbox's cgroup"))?;
        prepared.setup.rlimits = !host.cgroups.works();
        let join = cgroup.to_join().map_err(GatewayError::io("open the sandbox's cgroup"))?;
        let identity = if prepared.setup.apart { Identity::Apart } else { Identity::Own };
        let (namespaces, socket) = namespace::spawn(identity, &join, &weaken)?;
        cgroup.add(namespaces.pid).map_err(GatewayError::io("move the sandbox into its cgroup"))?;
        let link = Link::new(socket, gone).map_err(GatewayError::io("watch the sandbox's socket"))?;
        let fds: Vec<BorrowedFd<'_>> = prepared.fds.iter().map(AsFd::as_fd).collect();
        let ready = timeout(SETUP, link.setup(prepared.setup, &fds)).await;
        let ready =
            ready.map_err(|_| GatewayError::Died(format!(" (no answer in {} s)", SETUP.as_secs())))??;
        let mut layers = ready.layers;
        let outlet = match way {
            None => None,
            Some(way) => {
                let (outlet, note) = way.open((id, name), ready.sockets, ready.inside).await?;
                layers.push(note);
                Some(outlet)
            }
        };
        layers.extend(prepared.notes);
        layers.push(host.cgroups.describe());
        Ok(Self {
            link,
            namespaces: Mutex::new(Some(namespaces)),
            cgroup: Mutex::new(cgroup),
            changes: Mutex::new(ready.changes),
            scratch: Mutex::new(ready.scratch),
            mode: ready.mode,
            origin: prepared.origin,
            environment,
            outlet: tokio::sync::Mutex::new(outlet),
            workdir: prepared.workdir,
            next: AtomicU64::new(1),
            layers,
        })
    }

    /// Starts a command on three descriptors, or on a terminal of its own.
    pub(crate) async fn exec(
        &self,
        spec: CommandSpec,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Command, GatewayError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut environment = base_environment(spec.terminal.is_some());
        environment.extend(self.environment.clone());
        environment.extend(spec.environment);
        if let Some(outlet) = &*self.outlet.lock().await {
            // These are ours whatever the sandbox or the command was given.
            environment.extend(outlet.environment());
        }
        let workdir = if spec.workdir.is_empty() { self.workdir.clone() } else { spec.workdir };
        let exec = Exec {
            exec: id,
            argv: spec.argv,
            env: environment.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
            workdir,
            terminal: spec.terminal,
        };
        let (terminal, ended) = self.link.exec(exec, fds).await?;
        Ok(Command { id, terminal, ended })
    }

    /// Kills one command.
    pub(crate) async fn kill(&self, command: u64) {
        self.link.kill(command).await;
    }

    /// Ends every process inside, and tells which were alive and which limits were hit. Safe to repeat.
    pub(crate) async fn end(&self) -> Result<Remains, GatewayError> {
        let alive = timeout(LIST, self.link.alive()).await.unwrap_or_default();
        let taken = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut namespaces) = taken {
            namespaces.end_soon().await.map_err(GatewayError::io("end the sandbox's processes"))?;
            // Its mounts go in a task of their own, which the gateway's end waits for.
            tokio::task::spawn_blocking(move || drop(namespaces));
        }
        // Nothing runs inside any more that could ask for something, so all that was asked is known.
        if let Some(outlet) = self.outlet.lock().await.take() {
            outlet.close().await?;
        }
        let killed = alive.into_iter().map(|(pid, name)| Killed { pid, name }).collect();
        Ok(Remains { killed, hits: self.hits() })
    }

    fn hits(&self) -> Vec<String> {
        let cgroup = self.cgroup.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hits: Vec<String> = cgroup.hits().into_iter().map(str::to_owned).collect();
        let full =
            |fd: &OwnedFd| nix::sys::statvfs::fstatvfs(fd).is_ok_and(|stat| stat.blocks_available() == 0);
        for (name, held) in [("disk", &self.changes), ("tmp", &self.scratch)] {
            if held.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(full) {
                hits.push(name.to_owned());
            }
        }
        hits
    }

    /// Removes what is left of an ended sandbox: its cgroup and its changes.
    pub(crate) fn remove(&self) -> Result<(), GatewayError> {
        for held in [&self.changes, &self.scratch] {
            *held.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        let mut cgroup = self.cgroup.lock().unwrap_or_else(PoisonError::into_inner);
        cgroup.remove().map_err(GatewayError::io("remove the sandbox's cgroup"))
    }

    /// Brings the changes of an ended sandbox to its workspace, or with `discard` only names them.
    pub(crate) async fn sync(
        &self,
        staging: &Path,
        discard: bool,
        cancel: Arc<std::sync::atomic::AtomicBool>,
    ) -> Result<SyncOutcome, GatewayError> {
        let held =
            self.changes.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(OwnedFd::try_clone);
        let changes = held.transpose().map_err(GatewayError::io("hold the changes"))?;
        let (Some(origin), Some(changes)) = (self.origin.clone(), changes) else {
            return Ok(SyncOutcome::default());
        };
        let (staging, mode) = (staging.to_owned(), self.mode);
        let job = move || match mode {
            WorkspaceMode::None => Ok(SyncOutcome::default()),
            WorkspaceMode::Overlay => transfer::sync_overlay(&changes, &origin, &staging, discard, &cancel),
            WorkspaceMode::Copy => transfer::sync_copy(&changes, &origin, &staging, discard, &cancel),
        };
        let done = tokio::task::spawn_blocking(job).await;
        let done =
            done.map_err(|error| GatewayError::io("bring the changes back")(io::Error::other(error)))?;
        done.map_err(|error| GatewayError::Workspace(error.to_string()))
    }
}

fn base_environment(terminal: bool) -> BTreeMap<String, String> {
    let term = if terminal { "xterm-256color" } else { "dumb" };
    [
        ("HOME", HOME),
        ("LANG", "C.UTF-8"),
        ("LOGNAME", "sandbox"),
        ("OPENSHELL_SANDBOX", "1"),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("SHELL", "/bin/bash"),
        ("TERM", term),
        ("TMPDIR", "/tmp"),
        ("USER", "sandbox"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn prepare(host: &Host, config: &DriverConfig) -> Result<Prepared, GatewayError> {
    if let Some(name) = config.limits.missing() {
        return Err(GatewayError::Refused(format!("make a sandbox: its limit {name} is zero")));
    }
    let mut prepared = Prepared {
        setup: Setup {
            root: host.root.clone(),
            limits: config.limits,
            apart: Identity::can_be_apart(),
            weaken: config.weaken.clone(),
            ..Setup::default()
        },
        fds: Vec::new(),
        origin: None,
        workdir: SANDBOX.to_owned(),
        notes: Vec::new(),
    };
    if let Some(path) = &config.workspace {
        workspace(host, path, config.repository.as_deref(), &mut prepared)?;
    }
    for path in &config.read_only_paths {
        let path = read_only(host, path)?;
        let owner = owner(&path)?;
        let source = source(host, path, owner, true, &mut prepared);
        prepared.setup.read_only.push(source);
    }
    Ok(prepared)
}

/// Fills in the workspace. As root its owner becomes the agent, or the agent the owner where that cannot be.
fn workspace(
    host: &Host,
    path: &Path,
    repository: Option<&Path>,
    prepared: &mut Prepared,
) -> Result<(), GatewayError> {
    let refuse = |why: &str| GatewayError::Workspace(format!("use the workspace {}: {why}", path.display()));
    let real = fs::canonicalize(path).map_err(|error| refuse(&error.to_string()))?;
    let name =
        real.file_name().and_then(|name| name.to_str()).ok_or_else(|| refuse("its name is not UTF-8"))?;
    let name = name.to_owned();
    if Path::new(SANDBOX).join(&name) == Path::new(HOME) {
        return Err(refuse("the name home is taken by the agent's home"));
    }
    let origin = Origin::open(&real, &host.staging).map_err(|error| refuse(&error.to_string()))?;
    let origin = if repository.is_some() { origin.showing_repository() } else { origin };
    let owner = (origin.owner().0, origin.owner().1);
    let tree = source(host, real.clone(), owner, false, prepared);
    if prepared.setup.apart && !tree.passed {
        prepared.setup.apart = false;
        let note = "user: the agent is the gateway's own user on the host, for the workspace's file system takes no id map";
        prepared.notes.push(note.to_owned());
    }
    let repository = match repository {
        None => None,
        Some(path) => {
            let real = fs::canonicalize(path).map_err(|error| refuse(&format!("its repository: {error}")))?;
            // It is the engine's, whoever owns the workspace.
            let owner = self::owner(&real)?;
            Some(source(host, real, owner, false, prepared))
        }
    };
    // The gateway's own socket is in its state, where it must not be reached from inside.
    let state = host.state.strip_prefix(&real).ok().map(Path::to_owned);
    if state.as_deref() == Some(Path::new("")) {
        return Err(refuse("it is the gateway's own state directory"));
    }
    let shows_git = repository.is_none() && fs::symlink_metadata(real.join(".git")).is_ok();
    let git = shows_git.then(|| PathBuf::from(".git")).into_iter();
    let origin = origin.hiding(state.clone());
    prepared.workdir = format!("{SANDBOX}/{name}");
    prepared.setup.workspace = Some(Workspace {
        name,
        source: tree,
        mode: origin.mode(),
        repository,
        hidden: git.chain(state).collect(),
    });
    prepared.origin = Some(origin);
    Ok(())
}

/// This binary, where it still stands where it was started from.
fn program(host: &Host, prepared: &mut Prepared) -> Result<Option<Source>, GatewayError> {
    let Some(path) = std::env::current_exe().ok().filter(|path| path.exists()) else { return Ok(None) };
    let owner = owner(&path)?;
    Ok(Some(source(host, path, owner, false, prepared)))
}

fn owner(path: &Path) -> Result<(u32, u32), GatewayError> {
    let meta = fs::metadata(path).map_err(GatewayError::io(format!("look at {}", path.display())))?;
    Ok((meta.uid(), meta.gid()))
}

/// The mounts at a path: held and mapped here as root, else named for the sandbox to take by itself.
fn source(host: &Host, path: PathBuf, owner: (u32, u32), recursive: bool, prepared: &mut Prepared) -> Source {
    let mapped = match (prepared.setup.apart, CString::new(path.as_os_str().as_bytes())) {
        (true, Ok(c_path)) => host.owners.tree(&c_path, owner, recursive).ok(),
        _ => None,
    };
    let passed = mapped.is_some();
    prepared.fds.extend(mapped);
    Source { path, passed }
}

/// Checks one path that the operator adds to the view, and resolves its links.
fn read_only(host: &Host, path: &Path) -> Result<PathBuf, GatewayError> {
    let refuse = |why: &str| GatewayError::Refused(format!("show {} in a sandbox: {why}", path.display()));
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(refuse("it is not an absolute path without `..`"));
    }
    let real = fs::canonicalize(path).map_err(|error| refuse(&error.to_string()))?;
    if real != path {
        return Err(refuse(&format!("it goes through a link; name {}", real.display())));
    }
    let taken = ["/proc", "/sys", "/dev", "/run", "/sandbox", "/etc", "/boot", "/var/tmp", "/var/run"];
    if real == Path::new("/") || taken.iter().any(|taken| real.starts_with(taken)) {
        return Err(refuse("a sandbox has its own there"));
    }
    if host.state.starts_with(&real) {
        return Err(refuse("the gateway's own state is in it"));
    }
    Ok(real)
}

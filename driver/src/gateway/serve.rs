//! Turns a state directory into a gateway that listens: its own thread and runtime, a lock, a mark, and a socket.
//! It refuses to know the calls.

use std::{
    fs::{self, File},
    io,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::{
    StreamExt,
    wrappers::{TcpListenerStream, UnixListenerStream},
};
use tokio_util::sync::CancellationToken;

use super::{
    authority::Tamed,
    cgroup::Cgroups,
    error::GatewayError,
    namespace::OwnerMaps,
    sandbox::{Host, Sandbox, Wanted},
    service::{Service, Shared},
    socket,
    store::Store,
};
use crate::{
    network::Network,
    transfer,
    wire::{
        config::DriverConfig, openshell::v1::open_shell_server::OpenShellServer,
        workspace::workspace_server::WorkspaceServer,
    },
};

/// What the wire takes as one message.
const LARGEST_MESSAGE: usize = 1 << 20;
/// How long open calls have when the gateway stops.
const GRACE: Duration = Duration::from_millis(500);
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What an embedded gateway needs.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// A directory of this run alone, made with mode 0700 when absent. Its `gateway` subdirectory is the gateway's.
    pub state_dir: PathBuf,
}

/// What a gateway on its own needs (`crucible gateway serve`).
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// As for the embedded one.
    pub state_dir: PathBuf,
    /// Where to listen instead of `<state_dir>/gateway/socket`.
    pub socket: Option<PathBuf>,
    /// A loopback address to listen on as well, with the bearer token that every caller there must have.
    pub tcp: Option<(SocketAddr, String)>,
}

/// A gateway that runs in this process. Dropping it ends every sandbox and the thread that serves it.
#[derive(Debug)]
pub struct Gateway {
    socket: PathBuf,
    layers: Vec<String>,
    tcp: Option<SocketAddr>,
    stop: CancellationToken,
    thread: Option<JoinHandle<Result<(), GatewayError>>>,
}

impl Gateway {
    /// Starts a gateway in this process, after a first sandbox has shown that every required layer is there (N15).
    /// Blocks for some milliseconds; needs no runtime.
    ///
    /// # Errors
    /// `Layer` or `Setup` when a required layer is missing, with the remedy; `Busy` when another has the directory.
    pub fn embedded(config: GatewayConfig) -> Result<Self, GatewayError> {
        Self::start(ServeConfig { state_dir: config.state_dir, socket: None, tcp: None }, None)
    }

    /// The same, with somebody who answers for the ways out of sandboxes that have an `egress`. Without one such a
    /// sandbox is refused.
    ///
    /// # Errors
    /// As for [`Gateway::embedded`].
    pub fn networked(config: GatewayConfig, network: Arc<dyn Network>) -> Result<Self, GatewayError> {
        Self::start(ServeConfig { state_dir: config.state_dir, socket: None, tcp: None }, Some(network))
    }

    /// A gateway on its own: where to listen is the caller's to say. Blocks as the others do.
    ///
    /// # Errors
    /// As for [`Gateway::embedded`].
    pub fn start(config: ServeConfig, network: Option<Arc<dyn Network>>) -> Result<Self, GatewayError> {
        let stop = CancellationToken::new();
        let (ready, started) = std::sync::mpsc::channel();
        let stopped = stop.clone();
        // Sandboxes die with the thread that cloned them, so it is one of the gateway's own that lives as long as it.
        let thread = std::thread::Builder::new().name("gateway".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(GatewayError::io("start the gateway's runtime"))?;
            let result = runtime.block_on(run(config, network, stopped, &ready));
            runtime.shutdown_timeout(Duration::from_secs(5));
            result
        });
        let thread = thread.map_err(GatewayError::io("start the gateway's thread"))?;
        match started.recv() {
            Ok(Started { socket, layers, tcp }) => {
                Ok(Self { socket, layers, tcp, stop, thread: Some(thread) })
            }
            Err(_) => Err(match thread.join() {
                Ok(Err(error)) => error,
                _ => GatewayError::Died(" with the gateway's thread".to_owned()),
            }),
        }
    }

    /// The Unix socket that it listens on.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The TCP address that it listens on, if any.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// The layers that its sandboxes have, one line each; one that is degraded says so.
    #[must_use]
    pub fn layers(&self) -> &[String] {
        &self.layers
    }

    /// Waits until it serves no more, by whatever that is; [`Gateway::stop`] then tells what it was.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Ends every sandbox and waits until nothing is left.
    ///
    /// # Errors
    /// Whatever could not be removed.
    pub fn stop(mut self) -> Result<(), GatewayError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), GatewayError> {
        self.stop.cancel();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(GatewayError::Died(" with the gateway's thread".to_owned())))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // What could not be removed is swept by its mark at the next start.
        drop(self.join());
    }
}

struct Started {
    socket: PathBuf,
    layers: Vec<String>,
    tcp: Option<SocketAddr>,
}

/// The gateway's directories, and the lock that says they are this process's.
struct State {
    gateway: PathBuf,
    staging: PathBuf,
    root: PathBuf,
    mark: String,
    _lock: Flock<File>,
}

impl State {
    fn open(state_dir: &Path) -> Result<Self, GatewayError> {
        let make = |dir: PathBuf| {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
            made.map_err(GatewayError::io(format!("make {}", dir.display())))?;
            Ok::<_, GatewayError>(dir)
        };
        make(state_dir.to_owned())?;
        let state_dir = fs::canonicalize(state_dir).map_err(GatewayError::io("find the state directory"))?;
        let gateway = make(state_dir.join("gateway"))?;
        let lock = File::options().create(true).truncate(false).write(true).open(gateway.join("lock"));
        let lock = lock.map_err(GatewayError::io("open the gateway's lock"))?;
        let lock =
            Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|_| GatewayError::Busy(state_dir))?;
        Ok(Self {
            staging: make(gateway.join("staging"))?,
            root: make(gateway.join("root"))?,
            mark: mark(&gateway.join("mark")).map_err(GatewayError::io("keep the gateway's mark"))?,
            gateway,
            _lock: lock,
        })
    }
}

/// What stands in the name of every cgroup of this state directory, and of no other.
fn mark(path: &Path) -> io::Result<String> {
    use std::hash::{BuildHasher, RandomState};
    match fs::read_to_string(path) {
        Ok(mark) if mark.starts_with("crucible-") && !mark.contains(['/', '\n']) => Ok(mark),
        _ => {
            let mark = format!("crucible-{:016x}", RandomState::new().hash_one(path));
            fs::write(path, &mark)?;
            Ok(mark)
        }
    }
}

async fn run(
    config: ServeConfig,
    network: Option<Arc<dyn Network>>,
    stop: CancellationToken,
    ready: &std::sync::mpsc::Sender<Started>,
) -> Result<(), GatewayError> {
    let (tcp, token) = match config.tcp {
        Some((address, _)) if !address.ip().is_loopback() => {
            return Err(GatewayError::Refused(format!("listen on {address}: it is not a loopback address")));
        }
        Some((_, token)) if token.is_empty() => {
            return Err(GatewayError::Refused("listen on TCP: the bearer token is empty".to_owned()));
        }
        Some((address, token)) => (
            Some(TcpListener::bind(address).await.map_err(GatewayError::io(format!("listen on {address}")))?),
            Some(token),
        ),
        None => (None, None),
    };
    let state = State::open(&config.state_dir)?;
    transfer::recover(&state.staging).map_err(|error| GatewayError::Workspace(error.to_string()))?;
    let host = Host {
        root: state.root.clone(),
        staging: state.staging.clone(),
        state: state.gateway.parent().unwrap_or(&state.gateway).to_owned(),
        cgroups: Cgroups::probe(&state.mark),
        owners: OwnerMaps::default(),
        network,
    };
    host.cgroups.sweep();
    let layers = probe(&host).await?;
    let path = config.socket.unwrap_or_else(|| state.gateway.join("socket"));
    let listener =
        socket::listen(&path).map_err(GatewayError::io(format!("listen at {}", path.display())))?;
    let shared = Shared { host, store: Store::default(), staging: state.staging.clone(), token };
    let service = Service(Arc::new(shared));
    let tcp_address = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
    // A caller that is gone already stops the gateway by its drop.
    drop(ready.send(Started { socket: path.clone(), layers, tcp: tcp_address }));
    let serving = async { tokio::try_join!(unix(&service, listener, &stop), loopback(&service, tcp, &stop)) };
    let serving = std::pin::pin!(serving);
    let served = until_stopped(serving, &service, &stop).await;
    drop(fs::remove_file(&path));
    served
}

/// Serves until told to stop, then ends every sandbox; calls that are open after that get a moment to notice.
async fn until_stopped(
    mut serving: std::pin::Pin<&mut impl Future<Output = Result<((), ()), tonic::transport::Error>>>,
    service: &Service,
    stop: &CancellationToken,
) -> Result<(), GatewayError> {
    let failed = tokio::select! {
        served = &mut serving => Some(served),
        () = stop.cancelled() => None,
    };
    stop.cancel();
    let ended = end_all(service).await;
    let served = match failed {
        Some(served) => served,
        // A watcher may keep its call open for ever; it ends with the runtime.
        None => tokio::time::timeout(GRACE, serving).await.unwrap_or(Ok(((), ()))),
    };
    served.map_err(GatewayError::Serve)?;
    ended
}

/// A first sandbox, which shows what this host gives.
async fn probe(host: &Host) -> Result<Vec<String>, GatewayError> {
    let config = DriverConfig::default();
    let wanted = Wanted { id: "probe", name: "probe", config: &config, environment: Default::default() };
    let sandbox = Sandbox::start(host, wanted, || {}).await?;
    sandbox.end().await?;
    sandbox.remove()?;
    Ok(sandbox.layers.clone())
}

type Served = Result<(), tonic::transport::Error>;

fn router(service: &Service) -> tonic::transport::server::Router {
    let shell = OpenShellServer::new(service.clone()).max_decoding_message_size(LARGEST_MESSAGE);
    tonic::transport::Server::builder()
        .http2_adaptive_window(Some(true))
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(shell)
        .add_service(WorkspaceServer::new(service.clone()))
}

async fn unix(service: &Service, listener: UnixListener, stop: &CancellationToken) -> Served {
    let own = UnixListenerStream::new(listener).filter(|peer| peer.as_ref().map_or(true, socket::is_own));
    let tamed = own.map(|peer| peer.map(Tamed::new));
    router(service).serve_with_incoming_shutdown(tamed, stop.cancelled()).await
}

async fn loopback(service: &Service, listener: Option<TcpListener>, stop: &CancellationToken) -> Served {
    match listener {
        None => Ok(()),
        Some(listener) => {
            router(service)
                .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop.cancelled())
                .await
        }
    }
}

async fn end_all(service: &Service) -> Result<(), GatewayError> {
    let mut result = Ok(());
    for record in service.0.store.all() {
        result = result.and(service.end(&record).await);
    }
    result
}

//! Turns a run into a socket that operators can speak to (contract §7.1). It refuses to know the loop, which hands in
//! lines and takes out inputs. It lives on a thread of its own, so that no client's doing is ever waited for.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::unistd::geteuid;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::conversation::{Shared, converse};
use super::desk::{Arrival, Desk, Ends, Office};
use super::limits::{CLIENTS_MAX, EXHAUSTED, GRACE, QUIET};
use super::seats::Seats;
use super::status::Status;
use crate::admission::Ledger;
use crate::log::SessionEvent;
use crate::sys::socket;

/// The socket's name in a state directory.
pub const SOCKET_FILE: &str = "control.sock";
/// The ledger's name in a state directory.
pub const ADMISSIONS_FILE: &str = "admissions.jsonl";

/// Where a control server listens.
#[derive(Debug, Clone)]
pub struct Config {
    /// The Unix socket, mode 0600.
    pub socket: PathBuf,
    /// `session.jsonl`, which is there already.
    pub log: PathBuf,
    /// A loopback address as well, and the token that every client there must show.
    pub tcp: Option<(SocketAddr, String)>,
}

/// Why there is no control server.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The Unix socket.
    #[error("listen at {path}")]
    Unix {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The TCP socket.
    #[error("listen at {address}")]
    Tcp {
        /// As asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The address can be reached from elsewhere.
    #[error("listen at {0}: it is no loopback address")]
    NotLoopback(SocketAddr),
    /// The token is empty, which would let everybody in.
    #[error("listen on TCP: the token is empty")]
    NoToken,
    /// No thread or no runtime for it.
    #[error("start the control server")]
    Start(#[source] io::Error),
}

/// A control server, as the loop sees it. It goes with this value.
#[derive(Debug)]
pub struct Control {
    office: Office,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    status: watch::Sender<Status>,
    ending: watch::Sender<bool>,
    over: CancellationToken,
    thread: Option<JoinHandle<()>>,
    socket: PathBuf,
    tcp: Option<SocketAddr>,
}

impl Control {
    /// Listens, and serves from then on. `ledger` is the run's; what it owes is not handed out again.
    ///
    /// # Errors
    /// When a socket cannot be had: a run that cannot be controlled is not begun.
    pub fn start(config: Config, ledger: Ledger) -> Result<Control, ControlError> {
        let Config { socket: path, log, tcp } = config;
        let bound = tcp.as_ref().map(|(address, token)| bind(*address, token)).transpose()?;
        let unix = socket::listen(&path).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let unix = unix.map_err(|source| ControlError::Unix { path: path.clone(), source })?;
        let address = bound.as_ref().and_then(|listener| listener.local_addr().ok());
        let (status, watched) = watch::channel(Status::of(&log));
        let (ending, ended) = watch::channel(false);
        let (desk, Ends { counter, office, arrivals }) = Desk::new(ledger, ended);
        let over = CancellationToken::new();
        let token = tcp.map(|(_, token)| Sha256::digest(token).into());
        let shared = Arc::new(Shared { counter, status: watched, log, token, over: over.clone() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ControlError::Start)?;
        let serving = move || {
            runtime.block_on(async {
                let desk = tokio::spawn(desk.run());
                serve(unix, bound, shared).await;
                desk.abort();
            });
            // What a client is still being told ends here.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(serving);
        let thread = Some(thread.map_err(ControlError::Start)?);
        Ok(Control { office, arrivals, status, ending, over, thread, socket: path, tcp: address })
    }

    /// The loop's way to the ledger.
    #[must_use]
    pub fn office(&self) -> &Office {
        &self.office
    }

    /// The TCP address that was bound, where one was asked for.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// The next input. Safe to cancel: what has arrived is not lost.
    pub async fn next(&mut self) -> Option<Arrival> {
        self.arrivals.recv().await
    }

    /// The next input, if one has arrived.
    pub fn arrived(&mut self) -> Option<Arrival> {
        self.arrivals.try_recv().ok()
    }

    /// Tells clients of a line that was written. It never waits.
    pub fn tell(&self, seq: u64, event: &SessionEvent) {
        self.status.send_modify(|status| status.see(seq, event));
    }

    /// From here on no input is taken in: the run would not act on it.
    pub fn refuse(&self) {
        self.ending.send_replace(true);
    }
}

impl Drop for Control {
    /// Ends every client. Who follows the log gets a moment for its last lines.
    fn drop(&mut self) {
        self.refuse();
        self.over.cancel();
        if let Some(thread) = self.thread.take() {
            // It panics only by a fault of its own, which must not hide how the run ended.
            let _ = thread.join();
        }
        let _ = socket::remove(&self.socket);
    }
}

fn bind(address: SocketAddr, token: &str) -> Result<TcpListener, ControlError> {
    if !address.ip().is_loopback() {
        return Err(ControlError::NotLoopback(address));
    }
    if token.is_empty() {
        return Err(ControlError::NoToken);
    }
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|source| ControlError::Tcp { address, source })
}

/// Lets clients in until the run is over.
async fn serve(unix: UnixListener, tcp: Option<TcpListener>, shared: Arc<Shared>) {
    let Ok(unix) = tokio::net::UnixListener::from_std(unix) else { return };
    let tcp = tcp.and_then(|tcp| tokio::net::TcpListener::from_std(tcp).ok());
    let seats = Seats::new(CLIENTS_MAX, QUIET);
    let mut clients = JoinSet::new();
    loop {
        let seated = tokio::select! {
            biased;
            () = shared.over.cancelled() => break,
            Some(_) = clients.join_next() => continue,
            stream = unix.accept() => match stream {
                Ok((stream, _)) if is_own(&stream) => seat(&mut clients, stream, &shared, &seats, true).await,
                Ok(_) => true,
                Err(_) => false,
            },
            stream = accept(tcp.as_ref()) => match stream {
                Ok(stream) => seat(&mut clients, stream, &shared, &seats, false).await,
                Err(_) => false,
            },
        };
        if !seated {
            // No descriptor is left; clients that go give theirs back.
            tokio::time::sleep(EXHAUSTED).await;
        }
    }
    let _ = tokio::time::timeout(GRACE, async { while clients.join_next().await.is_some() {} }).await;
}

/// Waits for a seat. Who comes meanwhile waits in line before the door.
async fn seat<S>(
    clients: &mut JoinSet<()>,
    stream: S,
    shared: &Arc<Shared>,
    seats: &Seats,
    known: bool,
) -> bool
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    tokio::select! {
        biased;
        () = shared.over.cancelled() => {}
        seat = seats.take(known) => {
            clients.spawn(converse(stream, shared.clone(), seat, known));
        }
    }
    true
}

async fn accept(tcp: Option<&tokio::net::TcpListener>) -> io::Result<tokio::net::TcpStream> {
    match tcp {
        Some(tcp) => tcp.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Whether the other end is this process's own user, or root.
fn is_own(stream: &tokio::net::UnixStream) -> bool {
    let own = geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

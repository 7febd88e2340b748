//! Turns the child's descriptor 0 into a broker that serves sandboxes until the other end is gone.
//! It refuses to know who started it, and reads no environment.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use policy::egress::{Ask as Question, Caller, Document, Egress, Process, Way};
use policy::host::{Host, Name, Target};
use policy::no_proxy::NoProxy;
use policy::record::Redactor;
use policy::seam::{CANARY, Role};
use tokio::net::{TcpListener, UdpSocket, UnixStream};
use tokio::time::timeout;

use crate::admit::{Sandbox, Shared};
use crate::audit::Audit;
use crate::begin::{self, Own, WritesError};
use crate::control::{self, Answer, Ask};
use crate::launch::{Launch, VERSION};
use crate::mcp::face::Served;
use crate::net::listen::{Purpose, accept};
use crate::net::names;
use crate::outside::{self, Outside};
use crate::peer::{Inside, Peer};
use crate::privilege;
use crate::project::{Projection, ProjectionError};
use crate::token::Token;
use crate::tools::Fetcher;
use crate::tools::Tools;

/// How long a turn's connections may take to end.
const ENDING: Duration = Duration::from_secs(3);

/// Why the broker cannot serve. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The control socket, or a socket that came over it.
    #[error("use a descriptor that was passed")]
    Io(#[from] io::Error),
    /// No document came.
    #[error("read the launch document: the other end is gone")]
    NoLaunch,
    /// The document is of another build.
    #[error("read the launch document: its version is {0}, not {VERSION}")]
    Version(u32),
    /// A message and its descriptors do not fit.
    #[error("take a message with {0} descriptors, which do not fit it")]
    Descriptors(usize),
    /// A policy that cannot be read.
    #[error(transparent)]
    Policy(#[from] policy::egress::DocumentError),
    /// A target of a role.
    #[error("read the target of a listener: {0:?}")]
    Role(String),
    /// The canary would pass.
    #[error("take a policy that lets {CANARY} through")]
    Canary,
    /// The sandbox is attached, or is not.
    #[error("find the sandbox {0:?} in the state that the message needs")]
    Sandbox(String),
    /// The record of the turn's end.
    #[error("close the turn's record")]
    Audit(#[from] crate::audit::AuditError),
    /// The bounds of the run's writes.
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    /// Bounds without a place to record, or the other way round.
    #[error("take the bounds of the run's writes: {0} without the other")]
    HalfWrites(&'static str),
    /// The chokepoint of writes.
    #[error(transparent)]
    Writes(#[from] WritesError),
    /// A write is asked for where there is no chokepoint, or a write ends that the engine did not begin.
    #[error("find the write {0}")]
    Write(String),
}

/// The sandboxes of one child.
struct Broker {
    shared: Arc<Shared>,
    tools: Option<Arc<Tools>>,
    sandboxes: HashMap<String, Arc<Sandbox>>,
    own: Own,
}

/// The life of the child: descriptor 0 is the control socket.
pub(crate) fn main() -> ExitCode {
    let run = || -> Result<(), ServeError> {
        let stream = std::os::unix::net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        stream.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let layers = privilege::give_up()?;
        // Once, and before anything else runs. The child starts no process that could inherit them.
        let projection = Projection::read(variable)?;
        runtime.block_on(async {
            serve(UnixStream::from_std(stream)?, Arc::new(outside::Host), layers, projection).await
        })
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            // Without anybody to read it the code says enough.
            let _ = writeln!(io::stderr(), "crucible broker: failed to {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the contract hands these variables to this process alone")]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// Takes the launch document, then answers until the other end is gone. Everything ends with it.
///
/// # Errors
/// What keeps it from serving at all; a single message that is refused is answered so.
pub async fn serve(
    stream: UnixStream,
    outside: Arc<dyn Outside>,
    layers: Vec<String>,
    projection: Option<Projection>,
) -> Result<(), ServeError> {
    let (launch, fds) = control::receive::<Launch>(&stream).await?.ok_or(ServeError::NoLaunch)?;
    let (shared, tools) = shared(launch, fds, outside, projection).await?;
    let (shared, own) = (Arc::new(shared), Own::default());
    let mut broker = Broker { shared, tools, sandboxes: HashMap::new(), own };
    control::send(&stream, &Answer::Ready { layers }, &[]).await?;
    while let Some((ask, fds)) = control::receive::<Ask>(&stream).await? {
        let answer =
            broker.answer(ask, fds).await.unwrap_or_else(|error| Answer::Refused { why: error.to_string() });
        control::send(&stream, &answer, &[]).await?;
    }
    for id in broker.sandboxes.keys().cloned().collect::<Vec<_>>() {
        broker.detach(&id).await?;
    }
    Ok(())
}

async fn shared(
    launch: Launch,
    fds: Vec<OwnedFd>,
    outside: Arc<dyn Outside>,
    projection: Option<Projection>,
) -> Result<(Shared, Option<Arc<Tools>>), ServeError> {
    if launch.version != VERSION {
        return Err(ServeError::Version(launch.version));
    }
    let count = fds.len();
    let [audit] = <[OwnedFd; 1]>::try_from(fds).map_err(|_| ServeError::Descriptors(count))?;
    let parent = launch.parent.iter().filter_map(|parent| parent.authorization.clone());
    let systems = launch.writes.iter().flat_map(|writes| writes.systems.secrets());
    let redactor = Redactor::new(launch.secrets.0.iter().cloned().chain(parent).chain(systems));
    let parent = launch.parent.map(|parent| (parent, NoProxy::parse(&launch.no_proxy)));
    let tools = match (launch.writes, projection) {
        (Some(writes), Some(projection)) => {
            let fetcher = Fetcher::new(Arc::clone(&outside), parent.clone(), launch.limits, launch.ca);
            Some(begin::tools(writes, projection, redactor.clone(), fetcher, &launch.limits).await?)
        }
        (None, None) => None,
        (Some(_), None) => return Err(ServeError::HalfWrites("a place to record")),
        (None, Some(_)) => return Err(ServeError::HalfWrites("bounds")),
    };
    let face = tools.clone().map(|tools| -> Arc<dyn crate::admit::Face> { Arc::new(Served(tools)) });
    let shared = Shared {
        audit: Audit::new(File::from(audit), launch.head, launch.durable),
        outside,
        redactor,
        parent,
        limits: launch.limits,
        tolerance: launch.tolerance,
        next: AtomicU64::new(1),
        face,
    };
    Ok((shared, tools))
}

impl Broker {
    async fn answer(&mut self, ask: Ask, fds: Vec<OwnedFd>) -> Result<Answer, ServeError> {
        match ask {
            Ask::Attach { id, turn, policy, sockets, inside, token } => {
                if self.sandboxes.contains_key(&id) {
                    return Err(ServeError::Sandbox(id));
                }
                let (roles, inside) = split(&sockets, fds, inside)?;
                let egress = readable(&policy)?;
                let hash = egress.hash().to_owned();
                let peer = Peer::new(inside, &egress);
                let token = token.map(|token| Token::new(token.reveal()));
                let shared = Arc::clone(&self.shared);
                let sandbox = Arc::new(Sandbox::serving(shared, turn, token, egress, peer));
                let listening = roles.into_iter().map(|(role, fd)| listen(&sandbox, role, fd));
                if let Some(error) = listening.filter_map(Result::err).next() {
                    sandbox.ending.send_replace(true);
                    return Err(error);
                }
                self.sandboxes.insert(id, sandbox);
                Ok(Answer::InForce { policy: hash })
            }
            Ask::Reload { id, policy } => {
                let sandbox = self.sandboxes.get(&id).ok_or(ServeError::Sandbox(id))?;
                let egress = readable(&policy)?;
                let hash = egress.hash().to_owned();
                sandbox.replace(egress);
                Ok(Answer::InForce { policy: hash })
            }
            Ask::Detach { id } => self.detach(&id).await,
            Ask::Head => Ok(Answer::Head(self.shared.audit.head())),
            Ask::Admit(wish) => {
                let tools = self.tools.as_ref().ok_or_else(|| ServeError::Write(wish.tool.clone()))?;
                Ok(self.own.admit(tools, wish).await?)
            }
            Ask::Settle { id, outcome, answer } => {
                let settled = self.own.settle(id, outcome, &answer).await?;
                settled.then_some(Answer::Settled).ok_or_else(|| ServeError::Write(id.to_string()))
            }
        }
    }

    async fn detach(&mut self, id: &str) -> Result<Answer, ServeError> {
        let sandbox = self.sandboxes.remove(id).ok_or_else(|| ServeError::Sandbox(id.to_owned()))?;
        sandbox.ending.send_replace(true);
        // What does not end in time dies with the sandbox, whose sockets are its other end.
        let _ = timeout(ENDING, sandbox.ending.closed()).await;
        let end = sandbox.end()?;
        self.shared.audit.sync().await?;
        Ok(Answer::Detached { end, head: self.shared.audit.head() })
    }
}

type Split = (Vec<(Role, OwnedFd)>, Option<Inside>);

fn split(roles: &[Role], mut fds: Vec<OwnedFd>, inside: bool) -> Result<Split, ServeError> {
    let count = fds.len();
    let wrong = || ServeError::Descriptors(count);
    if count != roles.len() + if inside { 3 } else { 0 } {
        return Err(wrong());
    }
    let rest = fds.split_off(roles.len());
    let inside = match <[OwnedFd; 3]>::try_from(rest) {
        Ok([diag, proc, root]) => Some(Inside { diag, proc, root }),
        Err(_) => None,
    };
    Ok((roles.iter().cloned().zip(fds).collect(), inside))
}

/// Reads a policy, and tries the canary on it by every way (row 26).
fn readable(document: &Document) -> Result<Egress, ServeError> {
    let egress = document.read()?;
    let name = Name::parse(CANARY).map_err(|_| ServeError::Canary)?;
    let programs = Caller::Known(vec![Process::new("/canary")]);
    for (way, port) in [Way::Connect, Way::Forward, Way::Transparent, Way::Loopback]
        .into_iter()
        .flat_map(|way| [(way, 80), (way, 443)])
    {
        let Some(port) = policy::host::Port::new(port) else { continue };
        let target = Target { host: Host::Name(name.clone()), port };
        if egress.decide(&Question { way, target: &target, caller: &programs, method: None }).is_ok() {
            return Err(ServeError::Canary);
        }
    }
    if egress.knows(&Host::Name(name)) { Err(ServeError::Canary) } else { Ok(egress) }
}

/// Serves one socket until the turn ends.
fn listen(sandbox: &Arc<Sandbox>, role: Role, fd: OwnedFd) -> Result<(), ServeError> {
    let target = |text: &str| Target::parse(text).map_err(|_| ServeError::Role(text.to_owned()));
    let purpose = match role {
        Role::NamesUdp => {
            let socket = std::net::UdpSocket::from(fd);
            socket.set_nonblocking(true)?;
            let (sandbox, socket) = (Arc::clone(sandbox), UdpSocket::from_std(socket)?);
            sandbox.clone().spawn(async move { names::udp(sandbox, socket).await });
            return Ok(());
        }
        Role::Proxy => Purpose::Proxy,
        Role::NamesTcp => Purpose::Names,
        Role::Transparent { .. } => Purpose::Transparent,
        Role::Loopback { target: text } => Purpose::Loopback(target(&text)?),
        Role::Own { target: text } => target(&text).map(|_| Purpose::Own)?,
    };
    let listener = std::net::TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    let (sandbox, listener) = (Arc::clone(sandbox), TcpListener::from_std(listener)?);
    sandbox.clone().spawn(async move { accept(sandbox, listener, purpose).await });
    Ok(())
}

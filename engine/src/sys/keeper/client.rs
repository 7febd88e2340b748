//! Turns a pack command into a conversation with a keeper, and that into its exit and its output as it comes.
//! It refuses to know how a keeper finds what a command started.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::pid_t;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use super::conversation::{Conversation, Outcome};
use super::serve::ROLE;
use super::sweep::{Handle, PATIENCE, Swept, roll, sweep};
use super::wire::Report;
use super::{Finished, KeeperError, Killed, PackCommand, Stream};
use crate::sys::env::Environment;
use crate::sys::fault::point;
use crate::sys::pipe::watch;
use crate::sys::process::{OwnChild, command, own_children};

/// How long a keeper may take to say that it is ready.
const LAUNCH: Duration = Duration::from_secs(20);

/// The keepers of this engine: one that is always there, and more while commands overlap.
///
/// Dropping it ends them and waits for that. A [`Keeper::run`] whose future is dropped ends its command too, but only
/// its cancellation token lets one wait for the end.
#[derive(Debug)]
pub struct Keeper {
    exe: PathBuf,
    /// What each command carries as [`MARK`](super::MARK).
    mark: Option<String>,
    idle: Mutex<Vec<Link>>,
    /// Keepers whose future was dropped: they see the end of their socket, and end what they have.
    leaving: Mutex<Vec<Process>>,
}

impl Keeper {
    /// Starts the first keeper from the running binary, whose `main` must ask [`super::role`].
    /// From then on this process adopts orphans below it.
    ///
    /// # Errors
    /// [`KeeperError::Launch`].
    pub async fn start() -> Result<Keeper, KeeperError> {
        Keeper::start_with(Path::new("/proc/self/exe")).await
    }

    /// As [`Keeper::start`], from `exe`: the binary that carries the keeper role, where it is not the running one.
    ///
    /// # Errors
    /// [`KeeperError::Launch`].
    pub async fn start_with(exe: &Path) -> Result<Keeper, KeeperError> {
        let first = Link::launch(exe).await?;
        Ok(Keeper {
            exe: exe.to_owned(),
            mark: None,
            idle: Mutex::new(vec![first]),
            leaving: Mutex::default(),
        })
    }

    /// A keeper whose commands carry `mark`, by which a later engine finds what is left of them.
    #[must_use]
    pub fn with_mark(mut self, mark: String) -> Keeper {
        self.mark = Some(mark);
        self
    }

    /// Runs one command, gives its output to `sink` as it comes, and returns when nothing of what it started is
    /// left. When a limit is reached or `cancel` is cancelled, its process group gets SIGTERM, and half a second later
    /// everything gets SIGKILL.
    ///
    /// # Errors
    /// See [`KeeperError`]; output that came before has been given.
    pub async fn run(
        &self,
        mut command: PackCommand,
        cancel: &CancellationToken,
        sink: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Finished, KeeperError> {
        if let Some(mark) = &self.mark {
            command.env.set(super::MARK, mark);
        }
        point("command: before it is started");
        let link = self.take_link().await?;
        let mut busy = Busy { keeper: self, link: Some(link) };
        let Some(link) = busy.link.as_mut() else { return Err(KeeperError::Died { killed: Vec::new() }) };
        match Conversation::hold(link, command, cancel, sink).await? {
            Outcome::Over(result) => {
                point("command: after its end");
                busy.release();
                result
            }
            Outcome::KeeperGone => Err(KeeperError::Died { killed: busy.bury().await? }),
        }
    }

    /// An idle keeper that still lives, or a new one.
    async fn take_link(&self) -> Result<Link, KeeperError> {
        lock(&self.leaving).retain_mut(|process| !process.has_ended());
        loop {
            let Some(mut link) = lock(&self.idle).pop() else { return Link::launch(&self.exe).await };
            if !link.process.has_ended() {
                return Ok(link);
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        for link in lock(&self.idle).drain(..) {
            // It has nothing below it, so there is nothing it could still do.
            link.process.end(Duration::ZERO);
        }
        for process in lock(&self.leaving).drain(..) {
            process.end(2 * PATIENCE);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A link in use. If it is dropped in use, its keeper sees the end of the socket.
struct Busy<'a> {
    keeper: &'a Keeper,
    link: Option<Link>,
}

impl Busy<'_> {
    fn release(&mut self) {
        lock(&self.keeper.idle).extend(self.link.take());
    }

    /// Makes sure that the keeper is dead, and ends what it left to us. Gives what had to be killed.
    async fn bury(&mut self) -> Result<Vec<Killed>, KeeperError> {
        let Some(link) = self.link.take() else { return Ok(Vec::new()) };
        // Threads of their own for the rare case: the sweep blocks, and must go on if this future is dropped.
        let swept = tokio::task::spawn_blocking(move || {
            link.process.end(Duration::ZERO);
            sweep(|| own_children().clone(), |_| {})
        });
        let Swept { killed, remaining } = swept.await.map_err(io::Error::other)??;
        if remaining.is_empty() {
            Ok(roll(&killed).named)
        } else {
            Err(KeeperError::NotEnded { remaining: roll(&remaining).named })
        }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if let Some(Link { socket, process, .. }) = self.link.take() {
            drop(socket);
            lock(&self.keeper.leaving).push(process);
        }
    }
}

/// One keeper: its process and the socket to it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: AsyncFd<OwnedFd>,
    pub(super) process: Process,
    last_id: u64,
}

impl Link {
    async fn launch(exe: &Path) -> Result<Link, KeeperError> {
        let failed = |source| KeeperError::Launch { exe: exe.to_owned(), source };
        let mut link = Link::spawn(exe).map_err(failed)?;
        let ready = tokio::time::timeout(LAUNCH, link.report()).await;
        match ready.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)? {
            Some(Report::Ready) => Ok(link),
            _ => Err(failed(io::Error::other("it does not carry the keeper role, or could not take it on"))),
        }
    }

    fn spawn(exe: &Path) -> io::Result<Link> {
        prctl::set_child_subreaper(true)?;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let none: [&str; 0] = [];
        // An empty environment, for a process's first one can be read in /proc.
        let mut command = command(exe, none, &Environment::empty());
        command.arg0(ROLE).current_dir("/").stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        point("keeper: before it is started");
        let process = Process::spawn(&mut command)?;
        Ok(Link { socket: watch(ours)?, process, last_id: 0 })
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Waits for the next report; none when the keeper is gone. Safe to cancel.
    pub(super) async fn report(&mut self) -> io::Result<Option<Report>> {
        loop {
            let mut ready = self.socket.readable().await?;
            match ready.try_io(|socket| Report::receive(socket.get_ref().as_fd())) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Ok(report) => return report,
                Err(_would_block) => {}
            }
        }
    }
}

/// A keeper's process. It is listed as the engine's own until it has been reaped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pid: pid_t,
    _own: OwnChild,
}

impl Process {
    fn spawn(command: &mut std::process::Command) -> io::Result<Process> {
        let ((child, pid), own) = OwnChild::register(|| {
            let child = command.spawn()?;
            let pid = pid_t::try_from(child.id()).map_err(io::Error::other)?;
            Ok(((child, pid), pid))
        })?;
        Ok(Process { child, pid, _own: own })
    }

    /// Lets it go on if a command has stopped it.
    pub(super) fn resume(&self) {
        // It is our child and not reaped, so the number is its own.
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGCONT);
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Gives it `patience` to end by itself, then kills it. Blocks.
    fn end(mut self, patience: Duration) {
        if !patience.is_zero() {
            self.resume();
            Handle::open(self.pid).wait(patience);
        }
        // Both fail only when it has been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

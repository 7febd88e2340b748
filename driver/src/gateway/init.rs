//! Turns the first process of new namespaces into a sandbox, and then its gateway's messages into commands that run there.
//! It refuses to know gRPC, the store, and anything of the host once the view stands.

use std::{
    collections::HashMap,
    ffi::{CString, c_int},
    fmt, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    process::ExitCode,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, unshare},
    sys::{
        signal::{SigSet, SigmaskHow, Signal, killpg, sigprocmask},
        signalfd::{SfdFlags, SignalFd},
        stat::{Mode, umask},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Gid, Pid, Uid, setgroups, sethostname, setresgid, setresuid},
};

use super::{
    confine,
    mount::{self, Sources},
    namespace::{INIT_SOCKET, INSIDE_ID},
    outlets, program,
    protocol::{self, Exec, FromInit, Setup, ToInit, WorkspaceMode},
    sys,
    weaken::{Layer, Weaken},
};

/// A step of the setup that failed; travels to the gateway as text.
#[derive(Debug)]
pub(crate) struct Failure {
    step: String,
    reason: String,
}

impl Failure {
    pub(crate) fn new(step: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { step: step.into(), reason: reason.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.reason)
    }
}

/// Names the step that an error of the kernel belongs to.
pub(crate) trait Step<T> {
    fn step(self, step: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Step<T> for Result<T, E> {
    fn step(self, step: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(step, error.to_string()))
    }
}

/// The life of a sandbox's first process: when it ends, so does everything inside.
pub(crate) fn main() -> ExitCode {
    // SAFETY: the parent put the socket there before exec, and nothing else here knows it.
    let mut socket = unsafe { UnixStream::from_raw_fd(INIT_SOCKET) };
    match run(&mut socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let message = FromInit::Failed { step: failure.step, reason: failure.reason };
            // A gateway that is gone needs no message.
            drop(protocol::send(&mut socket, &message, &[]));
            ExitCode::FAILURE
        }
    }
}

fn run(socket: &mut UnixStream) -> Result<(), Failure> {
    nix::fcntl::fcntl(socket.as_fd(), nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))
        .step("keep the socket from commands")?;
    let Some((ToInit::Setup(setup), fds)) = protocol::receive(socket).step("read the setup")? else {
        return Ok(());
    };
    let signals = take_signals()?;
    let Ready { layers, workspace, sockets, held } = become_sandbox(&setup, fds)?;
    let fds: Vec<BorrowedFd<'_>> = held.iter().map(AsFd::as_fd).collect();
    let ready = FromInit::Ready { layers, workspace, sockets };
    protocol::send(socket, &ready, &fds).step("report the sandbox ready")?;
    drop(held);
    Commands { running: HashMap::new() }.serve(socket, &signals)
}

/// Unblocks what the gateway had blocked, and takes the ends of children as readable events.
fn take_signals() -> Result<SignalFd, Failure> {
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&child), None).step("set the signal mask")?;
    SignalFd::with_flags(&child, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .step("watch for ended children")
}

/// What the gateway is told and given once the sandbox stands.
struct Ready {
    layers: Vec<String>,
    workspace: WorkspaceMode,
    /// Which sockets of the ways out there are.
    sockets: Vec<usize>,
    /// The file systems that the gateway keeps, the sockets, and what tells programs apart.
    held: Vec<OwnedFd>,
}

fn become_sandbox(setup: &Setup, fds: Vec<OwnedFd>) -> Result<Ready, Failure> {
    let weaken = Weaken::parse(&setup.weaken).map_err(|reason| Failure::new("leave out a layer", reason))?;
    umask(Mode::from_bits_truncate(0o022));
    let sources = Sources::open(setup, fds)?;
    mount::ground(&setup.root)?;
    become_agent(setup.apart)?;
    unshare(CloneFlags::CLONE_NEWCGROUP).step("make a cgroup namespace")?;
    sethostname("sandbox").step("name the host")?;
    if !weaken.off(Layer::Network) {
        sys::loopback_up().step("bring the loopback interface up")?;
    }
    let view = mount::build(setup, sources, &weaken)?;
    let (sockets, outlets) = match &setup.ways {
        None => (Vec::new(), Vec::new()),
        Some(ways) => outlets::make(ways).step("make the ways out")?,
    };
    let mut layers = vec![
        "namespaces: user, mount, pid, net, ipc, uts, cgroup".to_owned(),
        "view: an allow list, read-only; the network is loopback only".to_owned(),
    ];
    layers.extend(confine::apply(setup, &view.writable, &view.readable, &weaken)?);
    layers.extend(view.notes);
    let held = std::iter::once(view.scratch).chain(view.changes).chain(outlets).collect();
    Ok(Ready { layers, workspace: view.mode, sockets, held })
}

/// Takes on the one user that is mapped, keeps no group of the host, and dies with the gateway.
fn become_agent(apart: bool) -> Result<(), Failure> {
    let (uid, gid) = (Uid::from_raw(INSIDE_ID), Gid::from_raw(INSIDE_ID));
    match setgroups(&[]) {
        // An ordinary user may not leave his groups; they reach nothing that the view does not show.
        Err(nix::Error::EPERM) if !apart => {}
        result => result.step("leave the host's groups")?,
    }
    setresgid(gid, gid, gid).step("become the agent's group")?;
    setresuid(uid, uid, uid).step("become the agent's user")?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0, 0).step("hide from the agent")?;
    let kill =
        libc::c_ulong::try_from(libc::SIGKILL).map_err(|_| Failure::new("name a signal", "out of range"))?;
    sys::prctl(libc::PR_SET_PDEATHSIG, kill, 0).step("die with the gateway")
}

/// The commands that run, by the process that leads each.
struct Commands {
    running: HashMap<Pid, u64>,
}

impl Commands {
    /// Answers the gateway until it goes.
    fn serve(mut self, socket: &mut UnixStream, signals: &SignalFd) -> Result<(), Failure> {
        loop {
            let mut watched = [
                PollFd::new(socket.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut watched, PollTimeout::NONE) {
                Err(nix::Error::EINTR) => continue,
                result => result.step("wait for work")?,
            };
            let [from_gateway, children] = watched.map(|fd| fd.any().unwrap_or(false));
            if children {
                while signals.read_signal().step("read a signal")?.is_some() {}
                self.reap(socket)?;
            }
            if from_gateway {
                let Some((message, fds)) = protocol::receive(socket).step("read a message")? else {
                    return Ok(());
                };
                self.answer(socket, message, fds)?;
            }
        }
    }

    fn answer(&mut self, socket: &mut UnixStream, message: ToInit, fds: Vec<OwnedFd>) -> Result<(), Failure> {
        match message {
            ToInit::Setup(_) => Ok(()),
            ToInit::Exec(exec) => self.start(socket, &exec, fds),
            ToInit::Kill { exec } => {
                for (pid, _) in self.running.iter().filter(|(_, id)| **id == exec) {
                    // A group that ended meanwhile is what was wanted.
                    let _ = killpg(*pid, Signal::SIGKILL);
                }
                Ok(())
            }
            ToInit::List => {
                let processes = alive().unwrap_or_default();
                protocol::send(socket, &FromInit::Alive { processes }, &[]).step("tell what is alive")
            }
        }
    }

    fn start(&mut self, socket: &mut UnixStream, exec: &Exec, fds: Vec<OwnedFd>) -> Result<(), Failure> {
        let id = exec.exec;
        let started = match exec.terminal {
            None => spawn(exec, &fds, None).map(|pid| (pid, None)),
            Some(size) => terminal(size).and_then(|(master, peer)| {
                let pid = spawn(exec, &[], Some(&peer))?;
                Ok((pid, Some(master)))
            }),
        };
        drop(fds);
        match started {
            Ok((pid, master)) => {
                self.running.insert(pid, id);
                let fds: Vec<BorrowedFd<'_>> = master.iter().map(AsFd::as_fd).collect();
                protocol::send(socket, &FromInit::Started { exec: id }, &fds).step("tell that a command runs")
            }
            Err(error) => {
                let message = FromInit::NotStarted { exec: id, reason: error.to_string() };
                protocol::send(socket, &message, &[]).step("tell that a command does not run")
            }
        }
    }

    /// Takes every child that ended, orphans included, and reports the commands among them.
    fn reap(&mut self, socket: &mut UnixStream) -> Result<(), Failure> {
        loop {
            let (pid, code, signal) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, code, 0),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    #[expect(clippy::as_conversions, reason = "a signal is its number")]
                    let number = signal as c_int;
                    (pid, 128 + number, number)
                }
                Ok(WaitStatus::StillAlive) | Err(nix::Error::ECHILD) => return Ok(()),
                Ok(_) | Err(nix::Error::EINTR) => continue,
                Err(error) => return Err(Failure::new("reap children", error.to_string())),
            };
            if let Some(exec) = self.running.remove(&pid) {
                let message = FromInit::Exited { exec, code, signal };
                protocol::send(socket, &message, &[]).step("tell that a command ended")?;
            }
        }
    }
}

/// A pseudo-terminal of the sandbox's own.
fn terminal((cols, rows): (u16, u16)) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_NOCTTY | nix::fcntl::OFlag::O_CLOEXEC;
    let master = nix::fcntl::open("/dev/pts/ptmx", flags, Mode::empty())?;
    let unlock: c_int = 0;
    // SAFETY: the number outlives the call.
    if unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let peer = sys::terminal_peer(master.as_fd())?;
    sys::resize_terminal(&master, cols, rows)?;
    Ok((master, peer))
}

/// Starts a command in a session of its own. An error of exec comes back through a pipe that exec closes.
fn spawn(exec: &Exec, fds: &[OwnedFd], terminal: Option<&OwnedFd>) -> io::Result<Pid> {
    let plan = program::Plan::new(exec)?;
    let (mut report, report_in) = io::pipe()?;
    let standard: [RawFd; 3] = match (terminal, fds) {
        (Some(terminal), _) => [terminal.as_raw_fd(); 3],
        (None, [stdin, stdout, stderr]) => [stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()],
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "three descriptors are needed")),
    };
    // SAFETY: this process has one thread, so the child may do what it likes.
    let pid = match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Child => {
            let error = plan.run(standard, terminal.is_some());
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            drop(io::Write::write_all(&mut { report_in }, &errno.to_ne_bytes()));
            // SAFETY: nothing of the parent's may run in the child any more.
            unsafe { libc::_exit(127) }
        }
        nix::unistd::ForkResult::Parent { child } => child,
    };
    drop(report_in);
    let mut errno = [0; 4];
    match io::Read::read_exact(&mut report, &mut errno) {
        Err(_) => Ok(pid),
        Ok(()) => {
            // The zombie is reaped with the others; nobody asks for it.
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
        }
    }
}

/// What runs beside this process, from the sandbox's own `/proc`.
fn alive() -> io::Result<Vec<(u32, String)>> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if pid == 1 {
            continue;
        }
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((name, state)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") ")) else {
            continue;
        };
        if !state.starts_with('Z') {
            processes.push((pid, name.to_owned()));
        }
    }
    processes.sort_unstable();
    Ok(processes)
}

/// A C string; one with a zero byte inside is an error.
pub(crate) fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "an argument has a zero byte"))
}

//! Turns this process into a keeper: orders come in on a socket, commands run, and reports go out.
//! It refuses to know time limits and output, which are the engine's side.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{SockType, getsockopt, sockopt};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stdin, getpid, getppid, setsid};

use super::Exit;
use super::sweep::{roll, sweep};
use super::wire::{Order, Report, Script};
use crate::sys::clock::Clock;
use crate::sys::process::command;
use crate::sys::signal::restore_defaults_in_child;

/// What the keeper is called in a list of processes, and how the binary knows its role.
pub(super) const ROLE: &str = "crucible-keeper";
/// From the polite signal to the other one.
const GRACE: Duration = Duration::from_millis(500);
/// What an operator's terminal, or a command that signals its parent, could send.
const IGNORED: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
];

/// Plays the keeper to its end if this process was started as one, and gives its exit code. `main` asks this
/// before anything else: a keeper has one thread, no runtime and no command line.
pub fn role() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    let stdin = io::stdin();
    if name != ROLE || getsockopt(&stdin, sockopt::SockType) != Ok(SockType::SeqPacket) {
        return None;
    }
    match prepare().and_then(Server::serve) {
        Ok(()) => Some(ExitCode::SUCCESS),
        // There is nobody to tell but the engine, which sees the socket close.
        Err(_) => Some(ExitCode::FAILURE),
    }
}

/// Leaves the engine's session and descriptors behind.
fn prepare() -> io::Result<Server> {
    // SAFETY: takes no pointer; nothing in this process owns a descriptor above 2 yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
    let socket = fcntl(io::stdin(), FcntlArg::F_DUPFD_CLOEXEC(3))?;
    // SAFETY: F_DUPFD_CLOEXEC has just made it for us.
    let socket = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(socket) };
    dup2_stdin(File::open("/dev/null")?)?;
    setsid()?;
    prctl::set_child_subreaper(true)?;
    // So that no command can read this process's memory, trace it, or take its socket.
    prctl::set_dumpable(false)?;
    for ignored in IGNORED {
        // SAFETY: ignoring a signal runs no code of ours.
        unsafe { nix::sys::signal::signal(ignored, SigHandler::SigIgn) }?;
    }
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&child), None)?;
    let exits = SignalFd::with_flags(&child, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    Ok(Server { socket, exits, clock: Clock::start(), running: None })
}

/// The keeper.
struct Server {
    socket: OwnedFd,
    exits: SignalFd,
    clock: Clock,
    running: Option<Running>,
}

/// The command that it has.
struct Running {
    id: u64,
    main: Pid,
    exit: Option<Exit>,
    /// Set by an `End` that came in time: when patience is over, on the keeper's clock.
    kill_at: Option<Duration>,
}

impl Server {
    /// Until the engine is gone, or something fails that cannot; either way everything is ended.
    fn serve(mut self) -> io::Result<()> {
        let ended = self.take_turns();
        sweep(BTreeSet::new, |_| {})?;
        match ended {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            ended => ended,
        }
    }

    fn take_turns(&mut self) -> io::Result<()> {
        Report::Ready.send(&self.socket)?;
        loop {
            self.wait()?;
            // Before the orders, so that an order to end what has just ended comes too late.
            if self.is_over() {
                self.finish()?;
            }
            if let Some((order, descriptors)) = self.next_order()? {
                self.obey(&order, descriptors)?;
            }
        }
    }

    /// Waits for an order, an exit, or the end of the grace.
    fn wait(&self) -> io::Result<()> {
        let grace = self.running.as_ref().and_then(|running| running.kill_at);
        let timeout = match grace {
            None => PollTimeout::NONE,
            Some(at) => {
                let left = at.saturating_sub(self.clock.monotonic()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut wanted = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.exits.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut wanted, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether the command's main process has ended, or its grace has.
    fn is_over(&mut self) -> bool {
        while let Ok(Some(_)) = self.exits.read_signal() {}
        let now = self.clock.monotonic();
        self.running.as_mut().is_some_and(|running| {
            running.reap();
            running.exit.is_some() || running.kill_at.is_some_and(|at| now >= at)
        })
    }

    /// Ends what is left of the command, then reports.
    fn finish(&mut self) -> io::Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        let mut swept = Default::default();
        if running.reap() {
            swept = sweep(BTreeSet::new, |status| running.note(status))?;
        }
        swept.killed.remove(&running.main.as_raw());
        let id = running.id;
        let report = match running.exit {
            Some(exit) if swept.remaining.is_empty() => {
                let asked = running.kill_at.is_some();
                Report::Finished { id, exit, asked, killed: roll(&swept.killed) }
            }
            _ => Report::NotEnded { id, remaining: roll(&swept.remaining) },
        };
        report.send(&self.socket)
    }

    /// The next order, if one waits; `UnexpectedEof` when the engine is gone.
    fn next_order(&self) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
        let mut socket = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        if poll(&mut socket, PollTimeout::ZERO)? == 0 {
            return Ok(None);
        }
        match Order::receive(&self.socket)? {
            Some(order) => Ok(Some(order)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn obey(&mut self, order: &Order, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        match (order, &mut self.running) {
            (Order::Run { id }, None) => match start(descriptors) {
                Ok(main) => self.running = Some(Running { id: *id, main, exit: None, kill_at: None }),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
                    Report::NotStarted { id: *id, errno }.send(&self.socket)?;
                }
            },
            (Order::End { id }, Some(running)) if running.id == *id && running.kill_at.is_none() => {
                running.kill_at = Some(self.clock.monotonic() + GRACE);
                // The group may be gone already, which the next look will show.
                let _ = killpg(running.main, Signal::SIGTERM);
                let _ = killpg(running.main, Signal::SIGCONT);
            }
            // An order to end what has ended by itself.
            (Order::End { .. }, _) => {}
            (Order::Run { .. }, Some(_)) => return Err(io::ErrorKind::ResourceBusy.into()),
        }
        Ok(())
    }
}

impl Running {
    /// Takes the status of every child that has ended, orphans included. False when no child is left.
    fn reap(&mut self) -> bool {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return true,
                Ok(status) => self.note(status),
                Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn note(&mut self, status: WaitStatus) {
        match status {
            WaitStatus::Exited(pid, code) if pid == self.main => self.exit = Some(Exit::Code(code)),
            WaitStatus::Signaled(pid, signal, _) if pid == self.main => {
                self.exit = Some(Exit::Signal(signal_number(signal)));
            }
            _ => {}
        }
    }
}

#[expect(clippy::as_conversions, reason = "the discriminants of this enum are the numbers of the signals")]
fn signal_number(signal: Signal) -> i32 {
    signal as i32
}

/// Starts a command in a session of its own; the descriptors are those of [`Order::Run`].
fn start(descriptors: Vec<OwnedFd>) -> io::Result<Pid> {
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(io::ErrorKind::InvalidInput);
    let (script, stdout, stderr) = (Script::from_file(&File::from(next()?))?, next()?, next()?);
    let stdin = match next() {
        Ok(stdin) => stdin,
        Err(_) => File::open("/dev/null")?.into(),
    };
    let mut command = command(Path::new("/bin/sh"), ["-c".as_ref(), script.shell.as_os_str()], &script.env);
    command.arg0("sh").current_dir(script.cwd).stdin(stdin).stdout(stdout).stderr(stderr);
    let keeper = getpid();
    // SAFETY: the closure makes async-signal-safe calls only, and this process has one thread anyway.
    unsafe { command.pre_exec(move || become_command(keeper)) };
    let child = command.spawn()?;
    let pid = libc::pid_t::try_from(child.id()).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Pid::from_raw(pid))
}

fn become_command(keeper: Pid) -> io::Result<()> {
    setsid()?;
    restore_defaults_in_child()?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // It may have died before the line above took hold.
    if getppid() == keeper { Ok(()) } else { Err(Errno::ESRCH.into()) }
}

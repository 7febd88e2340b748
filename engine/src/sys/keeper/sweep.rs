//! Turns "everything below this process" into nothing.
//! It refuses to know who asks: a keeper after a command, or the engine after a keeper died.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::{self, pid_t};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::proc::{Process, descendants, look};
use super::wire::Roll;
use super::{Killed, NAMED_AT_MOST};
use crate::sys::clock::Clock;

/// A sweep gives up after this; what then lives cannot be killed.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How long one round waits for one killed process before it looks again.
pub(super) const ROUND: Duration = Duration::from_millis(200);

/// What a sweep did.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// What it killed.
    pub(super) killed: BTreeMap<pid_t, Process>,
    /// What is left, empty unless patience ran out.
    pub(super) remaining: BTreeMap<pid_t, Process>,
}

/// Ends everything below this process except `spared`, and reaps it, giving each status to `reaped`. This process
/// must be a subreaper, so that what is orphaned meanwhile becomes its child and is found in the next round.
///
/// # Errors
/// When `/proc` cannot be read.
pub(super) fn sweep(
    spared: impl Fn() -> BTreeSet<pid_t>,
    mut reaped: impl FnMut(WaitStatus),
) -> io::Result<Swept> {
    let (clock, root) = (Clock::start(), Pid::this().as_raw());
    let mut killed = BTreeMap::new();
    loop {
        let left = descendants(root, &spared())?;
        if left.is_empty() || clock.monotonic() >= PATIENCE {
            return Ok(Swept { killed, remaining: left });
        }
        let found = freeze(root, left, &spared)?;
        for process in found.values().filter(|process| !process.zombie) {
            signal(process.pid, &found, root, Signal::SIGKILL);
            killed.insert(process.pid, process.clone());
        }
        for process in found.values() {
            reap(process, root, &mut reaped);
        }
    }
}

/// Stops processes until a look finds none that is new, so that nothing forks away while the rest is killed.
fn freeze(
    root: pid_t,
    mut found: BTreeMap<pid_t, Process>,
    spared: &impl Fn() -> BTreeSet<pid_t>,
) -> io::Result<BTreeMap<pid_t, Process>> {
    let mut seen = BTreeMap::new();
    // A bomb faster than a look is caught in part by each round of the sweep; its first look is the largest.
    for _ in 0..100 {
        found.retain(|pid, _| !seen.contains_key(pid));
        if found.is_empty() {
            break;
        }
        let fresh: Vec<_> = found.values().filter(|one| !one.zombie).map(|one| one.pid).collect();
        seen.append(&mut found);
        for pid in fresh {
            signal(pid, &seen, root, Signal::SIGSTOP);
        }
        found = descendants(root, &spared())?;
    }
    Ok(seen)
}

/// Signals `pid` if it still is the child of one of `known` or of `root`: the number could have been reused.
fn signal(pid: pid_t, known: &BTreeMap<pid_t, Process>, root: pid_t, signal: Signal) {
    let handle = Handle::open(pid);
    let ours = look(pid).is_some_and(|now| now.parent == root || known.contains_key(&now.parent));
    if ours {
        handle.signal(pid, signal);
    }
}

/// Waits until the process is dead, for one round at most, and takes its status if it is our own child.
fn reap(process: &Process, root: pid_t, reaped: &mut impl FnMut(WaitStatus)) {
    if !process.zombie {
        Handle::open(process.pid).wait(ROUND);
    }
    if process.parent == root {
        // An error means that it is not ours any more, which the next look will show.
        if let Ok(status) = waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG)) {
            reaped(status);
        }
    }
}

/// A pidfd, or nothing where the kernel has none (before 5.3) or the process is gone.
pub(super) struct Handle(Result<OwnedFd, Errno>);

impl Handle {
    pub(super) fn open(pid: pid_t) -> Handle {
        // SAFETY: pidfd_open takes two numbers and makes a descriptor, which closes on exec.
        let made = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) });
        let number = made.and_then(|number| i32::try_from(number).map_err(|_| Errno::EBADF));
        // SAFETY: the kernel has just made it for us.
        Handle(number.map(|number| unsafe { OwnedFd::from_raw_fd(number) }))
    }

    pub(super) fn signal(&self, pid: pid_t, signal: Signal) {
        match &self.0 {
            Ok(handle) => {
                let none = std::ptr::null::<libc::siginfo_t>();
                let (handle, number) = (handle.as_raw_fd(), number(signal));
                // SAFETY: the descriptor is open, and a null siginfo asks for the default one.
                unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle, number, none, 0) };
            }
            Err(Errno::ESRCH) => {}
            Err(_) => {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
    }

    pub(super) fn wait(&self, limit: Duration) {
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
        match &self.0 {
            Ok(handle) => drop(poll(&mut [PollFd::new(handle.as_fd(), PollFlags::POLLIN)], limit)),
            Err(Errno::ESRCH) => {}
            // Without pidfds there is nothing to wait on for a process that is not our child.
            Err(_) => drop(poll(&mut [], 5u8)),
        }
    }
}

#[expect(clippy::as_conversions, reason = "the discriminants of this enum are the numbers of the signals")]
fn number(signal: Signal) -> libc::c_int {
    signal as libc::c_int
}

/// What of `processes` a report says.
pub(super) fn roll(processes: &BTreeMap<pid_t, Process>) -> Roll {
    let mut roll = Roll::default();
    for process in processes.values() {
        roll.count += 1;
        if roll.named.len() < NAMED_AT_MOST {
            roll.named.push(Killed { pid: process.pid, name: process.name.clone() });
        }
    }
    roll
}

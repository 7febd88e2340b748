//! Turns a command into one whose process does not outlive the engine.
//! It refuses to know what the command does.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};

/// Has the kernel kill the process when the thread that starts it ends, which is the engine's only one. A guard that
/// kills on drop is of no use when the engine itself is killed, and a git that hashes on would hold the workspace.
pub(super) fn die_with_this_process(command: &mut Command) {
    let parent = getpid();
    let bind = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // Who died before the line above was seen by nobody.
        if getppid() == parent { Ok(()) } else { Err(io::Error::from(Errno::ESRCH)) }
    };
    // SAFETY: between fork and exec this makes two system calls, takes no lock and allocates nothing.
    unsafe { command.pre_exec(bind) };
}

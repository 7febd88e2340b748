//! Turns a program that the engine trusts, such as git, into its exit and its bounded output.
//! It refuses to know what the program is for; commands of a pack go through [`super::keeper`].

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::libc;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::env::Environment;

mod bound;
mod running;
mod tool;

pub use tool::{Input, Output, ProcessError, Tool, ToolOutput};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// The code as a shell reports it: 128+n for a signal (N15).
    pub fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(number) => 128 + number,
        }
    }

    /// Whether it exited with zero.
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Exit {
        match status.code() {
            Some(code) => Exit::Code(code),
            None => Exit::Signal(status.signal().unwrap_or(0)),
        }
    }
}

/// `exit code 3`, or `signal 9 (SIGKILL)`.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(number) => match Signal::try_from(number) {
                Ok(signal) => write!(f, "signal {number} ({signal})"),
                Err(_) => write!(f, "signal {number}"),
            },
        }
    }
}

/// Marks all descriptors of this process but the standard three as closed on exec, for those that whoever
/// started it left open. To be called first thing in `main`.
pub fn seal_inherited_descriptors() {
    // SAFETY: the call changes a flag on descriptors and takes no pointer. Kernels before 5.11 refuse it,
    // and there an inherited descriptor stays inheritable, which harms nothing of ours.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Closes `/proc/<pid>` of this process, its environment and memory included, to other processes of the same user, and
/// keeps it from leaving a core dump. To be called early in `main`; what is executed later is not affected.
pub fn hide_from_other_processes() {
    // It can only fail for a value that the kernel does not know.
    let _ = nix::sys::prctl::set_dumpable(false);
}

/// The file that `program` names: itself if it has a slash, else the first executable on the `PATH` of `env`.
pub fn find_program(program: &OsStr, env: &Environment) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    std::env::split_paths(env.value("PATH")?)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(program))
        .find(|file| file.is_file() && nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok())
}

/// The children of this process that are the engine's own. A fact about the process, hence one per process:
/// when a keeper dies, what it leaves falls to us, and has to be told apart from these.
static OWN_CHILDREN: Mutex<BTreeSet<libc::pid_t>> = Mutex::new(BTreeSet::new());

/// The pids of the engine's own children. Held while a child is started, so that none is ever unlisted.
pub(super) fn own_children() -> MutexGuard<'static, BTreeSet<libc::pid_t>> {
    OWN_CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One entry of [`own_children`], which goes when the child has been reaped.
#[derive(Debug)]
pub(super) struct OwnChild(libc::pid_t);

impl OwnChild {
    /// Starts a child and lists it in one step. `start` gives the child and its pid.
    pub(super) fn register<T>(
        start: impl FnOnce() -> io::Result<(T, libc::pid_t)>,
    ) -> io::Result<(T, OwnChild)> {
        let mut own = own_children();
        let (child, pid) = start()?;
        own.insert(pid);
        Ok((child, OwnChild(pid)))
    }

    pub(super) fn kill_group(&self) {
        // An answer of "no such group" is what is hoped for.
        let _ = killpg(Pid::from_raw(self.0), Signal::SIGKILL);
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        own_children().remove(&self.0);
    }
}

/// The one place that makes an OS command: exactly this environment.
#[expect(clippy::disallowed_methods, reason = "this is the one place that makes OS commands")]
pub(super) fn command<A: AsRef<OsStr>>(
    program: &Path,
    args: impl IntoIterator<Item = A>,
    env: &Environment,
) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.args(args).env_clear().envs(env.iter());
    command
}

fn shown(program: &OsStr, args: &[OsString]) -> String {
    let first = args.iter().find(|arg| !arg.as_encoded_bytes().starts_with(b"-"));
    match first {
        Some(first) => format!("{} {}", program.display(), first.display()),
        None => program.display().to_string(),
    }
}

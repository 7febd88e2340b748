//! Turns the mark that every pack command of a state directory carries into the end of those that outlived their engine.
//! It refuses to know which engine that was: a mark that is found without one has no owner.
//!
//! An engine that is killed takes its keepers with it, and they take their commands. What is left here is what a killer
//! of both left.

use std::collections::BTreeMap;
use std::io::{self, Read as _};

use nix::libc::pid_t;
use nix::sys::signal::Signal;

use super::Killed;
use super::proc::{Process, all};
use super::sweep::{Handle, PATIENCE, ROUND, roll};
use crate::sys::clock::Clock;

/// The variable that marks what a pack command starts.
pub const MARK: &str = "CRUCIBLE_MARK";

/// The most of an environment that is looked at, in bytes: what the kernel lets a process start with.
const ENVIRON_MAX: u64 = 8 * 1024 * 1024;

/// Kills every process that carries `mark`, and says which they were. The caller knows that no engine of that mark lives.
///
/// # Errors
/// When `/proc` cannot be read, or something that carries the mark cannot be ended.
pub fn end_marked(mark: &str) -> io::Result<Vec<Killed>> {
    let needle = format!("{MARK}={mark}");
    let clock = Clock::start();
    let mut killed = BTreeMap::new();
    loop {
        let found = marked(&needle)?;
        if found.is_empty() {
            return Ok(roll(&killed).named);
        }
        if clock.monotonic() >= PATIENCE {
            let named = roll(&found.into_iter().map(|(process, _)| (process.pid, process)).collect()).named;
            let names: Vec<String> = named.iter().map(Killed::to_string).collect();
            return Err(io::Error::other(format!("{} cannot be ended", names.join(", "))));
        }
        for (process, handle) in &found {
            handle.signal(process.pid, Signal::SIGKILL);
            killed.insert(process.pid, process.clone());
        }
        for (_, handle) in &found {
            handle.wait(ROUND);
        }
    }
}

/// The processes that carry the mark. The handle is older than the look, so that it is of the process looked at.
fn marked(needle: &str) -> io::Result<Vec<(Process, Handle)>> {
    let own = pid_t::try_from(std::process::id()).unwrap_or(0);
    let mut found = Vec::new();
    for process in all()?.into_iter().filter(|process| !process.zombie && process.pid != own) {
        let handle = Handle::open(process.pid);
        if carries(process.pid, needle) {
            found.push((process, handle));
        }
    }
    Ok(found)
}

/// Whether the environment that a process was started with has the mark. One of another user's cannot be read, and has
/// none of ours.
fn carries(pid: pid_t, needle: &str) -> bool {
    let Ok(file) = std::fs::File::open(format!("/proc/{pid}/environ")) else { return false };
    let mut environ = Vec::new();
    // What was read before an error counts: the process may be ending.
    let _ = file.take(ENVIRON_MAX).read_to_end(&mut environ);
    environ.split(|byte| *byte == 0).any(|variable| variable == needle.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sys::env::Environment;

    #[test]
    fn what_carries_the_mark_is_ended_and_nothing_else() {
        let mark = crate::sys::fs::unguessable();
        let sleep = |mark: &str| {
            let env: Environment = [(MARK, mark), ("PATH", "/usr/bin:/bin")].into_iter().collect();
            crate::sys::process::command(Path::new("/bin/sleep"), ["1000"], &env).spawn().unwrap()
        };
        let (mut ours, mut other) = (sleep(&mark), sleep("another"));
        let reaper = std::thread::spawn(move || ours.wait().unwrap());
        // The child has the mark from its exec on, which may not have happened yet.
        let mut named = Vec::new();
        while named.is_empty() {
            named = end_marked(&mark).unwrap();
        }
        assert_eq!(named.len(), 1);
        assert!(!reaper.join().unwrap().success());
        assert!(end_marked(&mark).unwrap().is_empty());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

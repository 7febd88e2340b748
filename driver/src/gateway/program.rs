//! Turns one command into the program that the child of a fork becomes.
//! It refuses to know how it is watched.

use std::{
    ffi::CString,
    io,
    os::fd::{BorrowedFd, RawFd},
};

use nix::{
    sys::signal::{SigSet, SigmaskHow, sigprocmask},
    unistd::{chdir, execve, setsid},
};

use super::{init::c_string, protocol::Exec, sys};

/// Where programs are looked for when the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Everything exec takes, made before the fork.
pub(crate) struct Plan {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    workdir: CString,
}

impl Plan {
    pub(crate) fn new(exec: &Exec) -> io::Result<Self> {
        let program = exec.argv.first().map_or("", String::as_str);
        let path = exec.env.iter().rev().find_map(|pair| pair.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH);
        let candidates = match program.contains('/') {
            true => vec![c_string(program)?],
            false => path
                .split(':')
                .map(|dir| c_string(&format!("{}/{program}", if dir.is_empty() { "." } else { dir })))
                .collect::<io::Result<_>>()?,
        };
        Ok(Self {
            candidates,
            argv: exec.argv.iter().map(|text| c_string(text)).collect::<io::Result<_>>()?,
            env: exec.env.iter().map(|text| c_string(text)).collect::<io::Result<_>>()?,
            workdir: c_string(&exec.workdir)?,
        })
    }

    /// Becomes the program, in the child; only comes back with why it could not.
    pub(crate) fn run(&self, standard: [RawFd; 3], terminal: bool) -> io::Error {
        match self.prepare(standard, terminal) {
            Ok(()) => self.exec(),
            Err(error) => error,
        }
    }

    fn prepare(&self, standard: [RawFd; 3], terminal: bool) -> io::Result<()> {
        setsid()?;
        // The descriptors came in above the standard ones, which are open on /dev/null from the start.
        for (to, from) in (0..).zip(standard) {
            // SAFETY: both numbers are descriptors of this process.
            if unsafe { libc::dup2(from, to) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if terminal {
            // SAFETY: descriptor 0 was just made.
            sys::take_terminal(unsafe { BorrowedFd::borrow_raw(0) })?;
        }
        for signal in 1..=64 {
            // SAFETY: SIG_DFL is always valid; the two that cannot be set answer an error that does not matter.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        Ok(chdir(self.workdir.as_c_str())?)
    }

    /// Tries each place; a file that may not be run is a better reason than one that is missing.
    fn exec(&self) -> io::Error {
        let mut reason = io::Error::from_raw_os_error(libc::ENOENT);
        for candidate in &self.candidates {
            let Err(errno) = execve(candidate, &self.argv, &self.env);
            match errno {
                nix::Error::ENOENT | nix::Error::ENOTDIR => {}
                nix::Error::EACCES => reason = errno.into(),
                other => return other.into(),
            }
        }
        reason
    }
}

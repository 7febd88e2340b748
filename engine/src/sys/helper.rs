//! Turns this binary, executed once more under another name, into a child with a socket and an end that is waited for.
//! It refuses to know what the child does.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use nix::libc::pid_t;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use super::env::Environment;
use super::fault::point;
use super::process::{OwnChild, command};

/// A child of this binary. It is listed as the engine's own until it has been reaped.
///
/// Dropping it kills it; [`Helper::ended`] lets it end by itself.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    /// The child's standard output, on which nothing is ever written: its end is the child's.
    end: Receiver,
    _own: OwnChild,
}

impl Helper {
    /// Starts the child as `name`, with one end of a socket as its standard input, this process's standard error, and no
    /// variables but `env`, which holds no secret: a process's first environment can be read in /proc. To be called within a runtime, by a thread that lives as long as the child should.
    ///
    /// # Errors
    /// Whatever the system refused.
    pub fn start(name: &str, env: &Environment) -> io::Result<(Helper, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let (end, output) = io::pipe()?;
        let none: [&str; 0] = [];
        let mut command = command(Path::new("/proc/self/exe"), none, env);
        // A group of its own: the terminal's signals are the engine's to act on.
        command.arg0(name).current_dir("/").process_group(0);
        command.stdin(OwnedFd::from(theirs)).stdout(OwnedFd::from(output));
        point("helper: before it is started");
        let (child, own) = OwnChild::register(|| {
            let child = command.spawn()?;
            let pid = pid_t::try_from(child.id()).map_err(io::Error::other)?;
            Ok((child, pid))
        })?;
        let end = Receiver::from_owned_fd(OwnedFd::from(end))?;
        Ok((Helper { child, end, _own: own }, ours))
    }

    /// Waits until the child is gone. Safe to cancel.
    pub async fn gone(&mut self) {
        let mut byte = [0; 1];
        // Whatever is read or not, only a child that lives keeps the pipe open without a word.
        while let Ok(1) = self.end.read(&mut byte).await {}
    }

    /// Gives the child `patience` to end by itself, and ends it otherwise.
    pub async fn ended(mut self, patience: Duration) {
        // What did not end in time is killed by the drop.
        let _ = tokio::time::timeout(patience, self.gone()).await;
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Both fail only when it has been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

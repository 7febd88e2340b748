//! Turns a command of a pack into its exit, with nothing left of what it started.
//! It refuses to know what the command is for.
//!
//! A pack command runs code that an agent wrote. It may double-fork, change its session, ignore signals, and hold
//! the output pipe open. So it runs under a keeper: this binary, executed once more as a single-threaded process
//! that is the subreaper of all that the command starts. Whatever is orphaned falls to the keeper, which can
//! therefore enumerate and end it before it says that the command is finished.
//!
//! One keeper runs one command at a time, so that what it owns needs no attribution. Commands that overlap each get
//! a keeper; a keeper that is done waits for the next command.
//!
//! | who dies | what follows |
//! | --- | --- |
//! | the command | the keeper ends what is left and reports |
//! | the engine, by whatever signal | the keeper reads end of file, ends everything, and exits |
//! | the keeper | its command dies with it, all else falls to the engine, which ends it and reports [`KeeperError::Died`] |
//!
//! Not defended: a command of the same user that kills the engine and the keeper in one go.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::env::Environment;
pub use super::process::Exit;

mod client;
mod conversation;
mod leftovers;
mod proc;
mod serve;
mod sweep;
mod wire;

pub use client::Keeper;
pub use leftovers::{MARK, end_marked};
pub use serve::role;

/// At most so many of the processes that had to be killed are named.
pub const NAMED_AT_MOST: usize = 32;

/// What a pack command reads as its standard input.
#[derive(Debug, Default)]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// This file, from where it stands.
    File(File),
}

/// One command of a pack. It runs as `sh -c` in a session of its own, with three descriptors and no other.
#[derive(Debug)]
pub struct PackCommand {
    /// The text for `sh -c`. Linux takes at most 128 KiB of it; more is [`KeeperError::Start`].
    pub shell: String,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Exactly its variables, see [`Environment::without_reserved`].
    pub env: Environment,
    /// Its standard input.
    pub stdin: Stdin,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// How long it may be silent: every output begins this anew.
    pub idle_timeout: Option<Duration>,
}

/// Which of its outputs bytes came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Why a command was ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// [`PackCommand::timeout`].
    Timeout,
    /// [`PackCommand::idle_timeout`].
    Idle,
    /// The token.
    Cancelled,
}

/// A process that outlived its command, or its command's grace, and was killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killed {
    /// Its pid, for the log; it is no longer anybody.
    pub pid: i32,
    /// Its name in the kernel, at most 15 bytes, with control and non-ASCII bytes escaped.
    pub name: String,
}

/// A command that is over, with everything it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How the shell itself ended.
    pub exit: Exit,
    /// Set when the engine ended it. A command that was done before the order reached it has none.
    pub ended_by: Option<EndedBy>,
    /// What had to be killed besides the shell, at most [`NAMED_AT_MOST`] of them.
    pub killed: Vec<Killed>,
    /// How many had to be killed in all.
    pub killed_count: u32,
    /// From the order to the report, sweep included.
    pub elapsed: Duration,
}

impl Finished {
    /// How the engine ended it, as what follows "the command"; `None` when it came to its own end.
    #[must_use]
    pub fn ended_early(&self) -> Option<String> {
        let why = match self.ended_by? {
            EndedBy::Timeout => "ran into its time limit",
            EndedBy::Idle => "said nothing for too long",
            EndedBy::Cancelled => "was ended early",
        };
        Some(format!("{why} after {:.1}s", self.elapsed.as_secs_f64()))
    }

    /// How it failed, as what follows "the command"; `None` when it ended by itself and well.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.ended_early().or_else(|| (!self.exit.success()).then(|| format!("ended with {}", self.exit)))
    }

    /// The names of what had to be killed, and how many more there were.
    #[must_use]
    pub fn killed_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.killed.iter().map(|killed| killed.name.clone()).collect();
        let named = u32::try_from(names.len()).unwrap_or(u32::MAX);
        if self.killed_count > named {
            names.push(format!("{} more", self.killed_count.saturating_sub(named)));
        }
        names
    }
}

/// Why there is no [`Finished`]. None of these is ever a success of the command.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The keeper could not be started, or did not say that it was ready.
    #[error("start the keeper {}", exe.display())]
    Launch {
        /// The binary that was executed.
        exe: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The command could not be started: no such directory, text or environment too large, and the like.
    #[error("start the command in {}", cwd.display())]
    Start {
        /// Its working directory.
        cwd: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The keeper died, or stopped to answer, while the command ran. What it had under it has been ended.
    #[error("keep the command: its keeper died{}", list(killed))]
    Died {
        /// What was found and killed, at most [`NAMED_AT_MOST`] of them.
        killed: Vec<Killed>,
    },
    /// Some of what the command started could not be ended, for it is stuck in the kernel or another user's.
    #[error("end what the command started{}", list(remaining))]
    NotEnded {
        /// What remains, at most [`NAMED_AT_MOST`] of them.
        remaining: Vec<Killed>,
    },
    /// The channel to the keeper or an output pipe failed.
    #[error("talk to the keeper")]
    Io(#[from] io::Error),
}

fn list(processes: &[Killed]) -> String {
    if processes.is_empty() {
        return String::new();
    }
    let names: Vec<_> = processes.iter().map(Killed::to_string).collect();
    format!(" ({})", names.join(", "))
}

/// `sleep[123]`.
impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.name, self.pid)
    }
}

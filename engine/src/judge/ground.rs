//! Turns a command of the judge's side into one that has ended, on this host or in a sandbox without any way out (note N12).
//! It refuses to know what the command's output means.

use std::path::PathBuf;
use std::sync::Arc;

use driver::turn::{self, Ended, TurnEnd, TurnSpec};
use driver::{Client, Limits, TurnError};
use tokio_util::sync::CancellationToken;

use crate::sys::env::Environment;
use crate::sys::keeper::{Finished, Keeper, KeeperError, PackCommand, Stream};

/// What of the engine's environment a confined command is given, beside the engine's own numbers.
const PASSED: [&str; 5] = ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"];
/// The prefix of the engine's own numbers.
const NUMBERS: &str = "CRUCIBLE_";

/// Where measure and apply run.
#[derive(Debug, Clone)]
pub enum Ground {
    /// On this host, below the keeper.
    Host(Arc<Keeper>),
    /// In a sandbox for each command, which is gone when it has ended.
    Confined(Box<Confined>),
}

/// A sandbox for the judge: the workspace as it is, and no network at all.
#[derive(Debug, Clone)]
pub struct Confined {
    /// The gateway to drive.
    pub client: Client,
    /// Host paths that join the sandbox's view.
    pub read_only_paths: Vec<PathBuf>,
    /// What it may use.
    pub limits: Limits,
}

/// A command that has ended, with everything that it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// As a shell reports it: 128+n for a signal (note N15).
    pub code: i32,
    /// How the engine ended it, as what follows "the command".
    pub ended_early: Option<String>,
    /// How it failed, as what follows "the command"; `None` when it ended by itself and well.
    pub failure: Option<String>,
    /// Processes that had to be ended, by name.
    pub killed: Vec<String>,
}

/// Why a command did not run to an end.
#[derive(Debug, thiserror::Error)]
pub enum GroundError {
    /// On this host.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// In a sandbox.
    #[error("confine the command")]
    Sandbox(#[source] TurnError),
}

impl Ground {
    /// Runs one command to its end; nothing of it runs any more when this returns. What it changed in the workspace is there.
    ///
    /// # Errors
    /// [`GroundError`]; a command that failed is a result, not an error.
    pub async fn run(
        &self,
        command: PackCommand,
        cancel: &CancellationToken,
        sink: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<Ran, GroundError> {
        match self {
            Ground::Host(keeper) => Ok(keeper.run(command, cancel, sink).await?.into()),
            Ground::Confined(confined) => confined.run(command, cancel, sink).await,
        }
    }
}

impl Confined {
    async fn run(
        &self,
        command: PackCommand,
        cancel: &CancellationToken,
        sink: &mut (dyn FnMut(Stream, &[u8]) + Send),
    ) -> Result<Ran, GroundError> {
        let repository = command.cwd.join(".git");
        let spec = TurnSpec {
            name: "judge".to_owned(),
            repository: repository.is_dir().then_some(repository),
            workspace: command.cwd,
            command: ["/bin/sh", "-c", &command.shell].map(str::to_owned).to_vec(),
            env: passed(&command.env).collect(),
            read_only_paths: self.read_only_paths.clone(),
            limits: self.limits,
            egress: None,
            timeout: command.timeout,
            idle_timeout: command.idle_timeout,
            ..TurnSpec::default()
        };
        let mut sink = |stream, bytes: &[u8]| match stream {
            turn::Stream::Stdout => sink(Stream::Out, bytes),
            turn::Stream::Stderr => sink(Stream::Err, bytes),
        };
        match turn::run(&self.client, spec, cancel.clone(), &mut sink).await {
            Ok(end) => Ok(end.into()),
            Err(TurnError::Cancelled) => Ok(Ran::cancelled()),
            Err(error) => Err(GroundError::Sandbox(error)),
        }
    }
}

fn passed(env: &Environment) -> impl Iterator<Item = (String, String)> {
    let text = |value: &std::ffi::OsStr| value.to_str().map(str::to_owned);
    env.iter().filter_map(move |(name, value)| {
        let name = text(name)?;
        let wanted = PASSED.contains(&name.as_str()) || name.starts_with(NUMBERS);
        wanted.then_some((name, text(value)?))
    })
}

impl Ran {
    fn cancelled() -> Ran {
        let how = "was ended early".to_owned();
        Ran { code: 137, ended_early: Some(how.clone()), failure: Some(how), killed: Vec::new() }
    }
}

impl From<Finished> for Ran {
    fn from(finished: Finished) -> Ran {
        Ran {
            code: finished.exit.code(),
            ended_early: finished.ended_early(),
            failure: finished.failure(),
            killed: finished.killed_names(),
        }
    }
}

impl From<TurnEnd> for Ran {
    fn from(end: TurnEnd) -> Ran {
        let ended_early = match end.ended {
            Ended::Itself | Ended::Enough => None,
            Ended::TimedOut => Some("ran into its time limit".to_owned()),
            Ended::Idle => Some("said nothing for too long".to_owned()),
        };
        let (code, how) = match end.exit {
            turn::Exit::Code(code) => (code, format!("exit code {code}")),
            turn::Exit::Signal(signal) => (signal.saturating_add(128), format!("signal {signal}")),
        };
        let hit = match end.limits_hit.join(", ") {
            hit if hit.is_empty() => hit,
            hit => format!("; the sandbox's limit on {hit} was hit"),
        };
        let failed = ended_early.clone().or_else(|| (code != 0).then(|| format!("ended with {how}")));
        let killed = end.killed.into_iter().map(|killed| killed.name).collect();
        Ran { code, ended_early, failure: failed.map(|failed| format!("{failed}{hit}")), killed }
    }
}

//! Turns a description of a trusted program into one run of it.
//! It refuses to know the program's language: bytes go in, bytes and an exit come out.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio_util::sync::CancellationToken;

use super::running::Running;
use super::{Environment, Exit, OwnChild, command, find_program, shown};
use crate::sys::fault::point;
use crate::sys::pipe;

/// Captured standard output beyond this is an error, unless [`Output::Capture`] says otherwise.
const CAPTURE_LIMIT: usize = 64 * 1024 * 1024;

/// What a tool reads as its standard input.
#[derive(Debug)]
pub enum Input {
    /// Nothing.
    Null,
    /// These bytes, however many.
    Bytes(Vec<u8>),
    /// This file, from where it stands.
    File(File),
}

/// Where a tool's standard output goes.
#[derive(Debug)]
pub enum Output {
    /// Into [`ToolOutput::stdout`], up to `limit` bytes; one more ends the tool with an error.
    Capture {
        /// Bytes.
        limit: usize,
    },
    /// Straight into this file.
    File(File),
    /// To the sink of [`Tool::run_with`], and nowhere for [`Tool::run`].
    Stream,
}

/// Why a tool gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No such program on the `PATH` it was given.
    #[error("find the program {program}")]
    NotFound {
        /// Its name.
        program: String,
    },
    /// It could not be started.
    #[error("start {program}")]
    Start {
        /// Program and first plain argument.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// Its output could not be read, or its end not be waited for.
    #[error("read from {program}")]
    Io {
        /// Program and first plain argument.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// It ran longer than its limit and was killed.
    #[error("run {program}: still running after {} s, and killed", after.as_secs_f64())]
    Timeout {
        /// Program and first plain argument.
        program: String,
        /// The limit.
        after: Duration,
    },
    /// The token was cancelled, and it was killed.
    #[error("run {program}: cancelled")]
    Cancelled {
        /// Program and first plain argument.
        program: String,
    },
    /// It wrote more than was allowed, and was killed.
    #[error("run {program}: more than {limit} bytes of output")]
    TooMuchOutput {
        /// Program and first plain argument.
        program: String,
        /// The limit.
        limit: usize,
    },
    /// It ended with something else than zero; only [`ToolOutput::checked`] makes this.
    #[error("run {program}: {exit}{}", if stderr.is_empty() { String::new() } else { format!(": {stderr}") })]
    Failed {
        /// Program and first plain argument.
        program: String,
        /// How it ended.
        exit: Exit,
        /// The end of what it wrote to standard error, trimmed, lossy.
        stderr: String,
    },
}

/// What a tool that ran to its end left.
#[derive(Debug)]
pub struct ToolOutput {
    pub(super) program: String,
    /// How it ended.
    pub exit: Exit,
    /// Its standard output, under [`Output::Capture`].
    pub stdout: Vec<u8>,
    /// The last 16 KiB of its standard error.
    pub stderr_tail: Vec<u8>,
}

impl ToolOutput {
    /// Itself when the exit was zero.
    ///
    /// # Errors
    /// [`ProcessError::Failed`] otherwise.
    pub fn checked(self) -> Result<ToolOutput, ProcessError> {
        if self.exit.success() {
            return Ok(self);
        }
        let stderr = String::from_utf8_lossy(&self.stderr_tail).trim().to_owned();
        Err(ProcessError::Failed { program: self.program, exit: self.exit, stderr })
    }
}

/// A program that the engine trusts, to be run any number of times. It runs in a process group of its own, so a
/// terminal's interrupt does not reach it, and the group is killed when the tool exits, when the time is up,
/// when the token is cancelled and when the future is dropped; the program itself also dies with the engine.
#[derive(Debug)]
pub struct Tool {
    program: OsString,
    args: Vec<OsString>,
    cwd: Option<PathBuf>,
    env: Environment,
    input: Input,
    pub(super) output: Output,
    timeout: Option<Duration>,
    cancel: CancellationToken,
}

impl Tool {
    /// `program` with exactly the variables of `env`. A name without a slash is looked for on their `PATH`.
    pub fn new(program: impl Into<OsString>, env: Environment) -> Tool {
        Tool {
            program: program.into(),
            args: Vec::new(),
            cwd: None,
            env,
            input: Input::Null,
            output: Output::Capture { limit: CAPTURE_LIMIT },
            timeout: None,
            cancel: CancellationToken::new(),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Tool {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Tool {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The working directory; the engine's own if never called.
    #[must_use]
    pub fn cwd(mut self, directory: impl Into<PathBuf>) -> Tool {
        self.cwd = Some(directory.into());
        self
    }

    /// Sets one variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Tool {
        self.env.set(name.as_ref(), value.as_ref());
        self
    }

    /// Standard input; nothing if never called.
    #[must_use]
    pub fn input(mut self, input: Input) -> Tool {
        self.input = input;
        self
    }

    /// Standard output; captured up to 64 MiB if never called.
    #[must_use]
    pub fn output(mut self, output: Output) -> Tool {
        self.output = output;
        self
    }

    /// How long it may run; for ever if never called.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Tool {
        self.timeout = Some(limit);
        self
    }

    /// What ends it early.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: CancellationToken) -> Tool {
        self.cancel = cancel;
        self
    }

    /// Runs it to its end. Any exit is a result; see [`ToolOutput::checked`].
    ///
    /// # Errors
    /// See [`ProcessError`]; after each of them the tool's process group is gone.
    pub async fn run(&self) -> Result<ToolOutput, ProcessError> {
        self.run_with(&mut |_| {}).await
    }

    /// As [`Tool::run`], and under [`Output::Stream`] gives standard output to `sink` as it comes.
    ///
    /// # Errors
    /// As [`Tool::run`].
    pub async fn run_with(&self, sink: &mut dyn FnMut(&[u8])) -> Result<ToolOutput, ProcessError> {
        point("tool: before it is started");
        let mut running = self.start()?;
        point("tool: after it is started");
        let limit = self.timeout;
        let outcome = tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(ProcessError::Cancelled { program: self.shown() }),
            after = elapsed(limit) => Err(ProcessError::Timeout { program: self.shown(), after }),
            outcome = running.pump(self, sink) => outcome,
        };
        if outcome.is_err() {
            running.own.kill_group();
            // Killed: its end is a matter of the scheduler, and what it was is no longer of interest.
            let _ = running.child.wait().await;
        }
        outcome
    }

    fn start(&self) -> Result<Running, ProcessError> {
        let program = find_program(&self.program, &self.env)
            .ok_or_else(|| ProcessError::NotFound { program: self.program.display().to_string() })?;
        self.spawn(&program).map_err(|source| ProcessError::Start { program: self.shown(), source })
    }

    fn spawn(&self, program: &Path) -> io::Result<Running> {
        let mut command = command(program, &self.args, &self.env);
        command.process_group(0);
        super::bound::die_with_this_process(&mut command);
        if let Some(directory) = &self.cwd {
            command.current_dir(directory);
        }
        let (stderr, stderr_write) = pipe::pair()?;
        command.stdin(self.input.open()?).stderr(stderr_write);
        let stdout = match &self.output {
            Output::File(file) => {
                command.stdout(file.try_clone()?);
                None
            }
            Output::Capture { .. } | Output::Stream => {
                let (stdout, write) = pipe::pair()?;
                command.stdout(write);
                Some(stdout)
            }
        };
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        let (child, own) = OwnChild::register(|| {
            let child = command.spawn()?;
            let pid = child.id().and_then(|pid| libc::pid_t::try_from(pid).ok());
            Ok((child, pid.ok_or_else(|| io::Error::other("the child has no pid"))?))
        })?;
        Ok(Running { child, own, stdout, stderr })
    }

    pub(super) fn shown(&self) -> String {
        shown(&self.program, &self.args)
    }
}

impl Input {
    fn open(&self) -> io::Result<Stdio> {
        match self {
            Input::Null => Ok(Stdio::null()),
            Input::File(file) => Ok(file.try_clone()?.into()),
            Input::Bytes(bytes) => {
                let mut file = File::from(memfd_create(c"tool-stdin", MFdFlags::MFD_CLOEXEC)?);
                file.write_all(bytes)?;
                file.rewind()?;
                Ok(file.into())
            }
        }
    }
}

async fn elapsed(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            tokio::time::sleep(limit).await;
            limit
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;

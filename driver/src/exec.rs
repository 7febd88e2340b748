//! Turns one command into the gateway's interactive exec, and its events into output and an ending.
//! It refuses to know what the command is for.

use std::{collections::BTreeMap, time::Duration};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{
    client::Client,
    error::{Step, TurnError, call_error},
    wire::{
        default_scope,
        openshell::v1::{self as api, exec_sandbox_event, exec_sandbox_input},
        wire_duration,
    },
};

/// Bytes of standard input in one message; the wire takes at most 1 MiB.
const STDIN_PIECE: usize = 256 * 1024;

/// One command to run in a sandbox.
#[derive(Debug, Clone, Default)]
pub struct ExecSpec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// An absolute directory in the sandbox; the workspace when absent.
    pub workdir: Option<String>,
    /// Added to the sandbox's own environment.
    pub environment: BTreeMap<String, String>,
    /// What the command reads.
    pub stdin: Vec<u8>,
    /// After this long the command is killed.
    pub timeout: Option<Duration>,
    /// Columns and rows of a terminal that it runs on, instead of three pipes.
    pub terminal: Option<(u16, u16)>,
}

/// Which of the two outputs a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// One thing that happened to a running command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    /// It wrote.
    Output(Stream, Vec<u8>),
    /// It ended; nothing follows.
    Exit {
        /// How.
        exit: Exit,
        /// Whether its time was up.
        timed_out: bool,
    },
}

/// A running command. Dropping it kills the command.
#[derive(Debug)]
pub struct Running {
    events: Streaming<api::ExecSandboxEvent>,
    step: Step,
}

impl Client {
    /// Starts a command in the sandbox of this name or id.
    ///
    /// # Errors
    /// `Call` when the sandbox is not ready or refuses it.
    pub async fn exec(&self, sandbox: &str, spec: ExecSpec, step: Step) -> Result<Running, TurnError> {
        let (input, messages) = mpsc::channel(4);
        let start = api::ExecSandboxRequest {
            sandbox: sandbox.to_owned(),
            command: spec.command,
            workdir: spec.workdir.unwrap_or_default(),
            environment: spec.environment.into_iter().collect(),
            tty: spec.terminal.is_some(),
            cols: spec.terminal.map_or(0, |(cols, _)| cols.into()),
            rows: spec.terminal.map_or(0, |(_, rows)| rows.into()),
            execution_timeout: spec.timeout.map(wire_duration),
            workspace_scope: default_scope(),
            ..api::ExecSandboxRequest::default()
        };
        // The task ends with its channel: when all is sent, or when the call is over and nobody reads.
        tokio::spawn(send_input(input, start, spec.stdin));
        let answer = self.shell().exec_sandbox_interactive(ReceiverStream::new(messages)).await;
        let events = answer.map_err(|status| call_error(step, &status))?.into_inner();
        Ok(Running { events, step })
    }
}

async fn send_input(
    input: mpsc::Sender<api::ExecSandboxInput>,
    start: api::ExecSandboxRequest,
    stdin: Vec<u8>,
) {
    use exec_sandbox_input::Payload;
    let message = |payload| api::ExecSandboxInput { payload: Some(payload) };
    if input.send(message(Payload::Start(start))).await.is_err() {
        return;
    }
    for piece in stdin.chunks(STDIN_PIECE) {
        if input.send(message(Payload::Stdin(piece.to_vec()))).await.is_err() {
            return;
        }
    }
}

impl Running {
    /// The next thing that happens.
    ///
    /// # Errors
    /// `Call` when the gateway fails, `NoExit` when its stream ends early.
    pub async fn next(&mut self) -> Result<ExecEvent, TurnError> {
        use exec_sandbox_event::Payload;
        loop {
            let message = self.events.message().await.map_err(|status| call_error(self.step, &status))?;
            match message.ok_or(TurnError::NoExit)?.payload {
                Some(Payload::Stdout(out)) => return Ok(ExecEvent::Output(Stream::Stdout, out.data)),
                Some(Payload::Stderr(out)) => return Ok(ExecEvent::Output(Stream::Stderr, out.data)),
                Some(Payload::Exit(exit)) => return Ok(ended(&exit)),
                None => {}
            }
        }
    }
}

fn ended(wire: &api::ExecSandboxExit) -> ExecEvent {
    let exit = match i32::try_from(wire.signal) {
        Ok(signal) if signal > 0 => Exit::Signal(signal),
        _ => Exit::Code(wire.exit_code),
    };
    ExecEvent::Exit { exit, timed_out: wire.timed_out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_told_from_the_code_that_looks_like_it() {
        let exit =
            |exit_code, signal, timed_out| ended(&api::ExecSandboxExit { exit_code, signal, timed_out });
        assert_eq!(exit(137, 9, false), ExecEvent::Exit { exit: Exit::Signal(9), timed_out: false });
        assert_eq!(exit(137, 0, false), ExecEvent::Exit { exit: Exit::Code(137), timed_out: false });
        assert_eq!(exit(124, 9, true), ExecEvent::Exit { exit: Exit::Signal(9), timed_out: true });
    }
}

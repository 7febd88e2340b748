//! Turns a tool's process into its output and its exit, and ends its group whatever happens.
//! It refuses to know how it was started.

use std::io;

use super::OwnChild;
use super::tool::{Output, ProcessError, Tool, ToolOutput};
use crate::sys::pipe::{CHUNK, Outlet};

/// How much of standard error is kept, from its end.
const STDERR_TAIL: usize = 16 * 1024;

/// A tool that has been started. Its process group goes when this value does.
pub(super) struct Running {
    pub(super) child: tokio::process::Child,
    pub(super) own: OwnChild,
    pub(super) stdout: Option<Outlet>,
    pub(super) stderr: Outlet,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.own.kill_group();
    }
}

impl Running {
    /// Reads its output until it has exited, then ends what it left in its group.
    pub(super) async fn pump(
        &mut self,
        tool: &Tool,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<ToolOutput, ProcessError> {
        let io = |source| ProcessError::Io { program: tool.shown(), source };
        let mut taken = Taken { tool, sink, stdout: Vec::new(), overrun: None, tail: Tail::default() };
        let (mut out, mut err) = (vec![0; CHUNK], vec![0; CHUNK / 8]);
        let status = loop {
            tokio::select! {
                bytes = read(&mut self.stdout, &mut out) => taken.stdout(bytes.map_err(io)?),
                bytes = self.stderr.read(&mut err) => taken.tail.push(bytes.map_err(io)?),
                status = self.child.wait() => break status.map_err(io)?,
            }
            taken.within_limit()?;
        };
        // What it left in its group could hold the pipes open and write on.
        self.own.kill_group();
        if let Some(stdout) = &mut self.stdout {
            stdout.drain(&mut out, |bytes| taken.stdout(bytes)).map_err(io)?;
        }
        self.stderr.drain(&mut err, |bytes| taken.tail.push(bytes)).map_err(io)?;
        taken.within_limit()?;
        Ok(ToolOutput {
            program: tool.shown(),
            exit: status.into(),
            stdout: taken.stdout,
            stderr_tail: taken.tail.finish(),
        })
    }
}

async fn read<'a>(outlet: &mut Option<Outlet>, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    match outlet {
        Some(outlet) => outlet.read(buffer).await,
        None => std::future::pending().await,
    }
}

/// What has been read so far.
struct Taken<'a> {
    tool: &'a Tool,
    sink: &'a mut dyn FnMut(&[u8]),
    stdout: Vec<u8>,
    overrun: Option<usize>,
    tail: Tail,
}

impl Taken<'_> {
    fn stdout(&mut self, bytes: &[u8]) {
        match self.tool.output {
            Output::Capture { limit } if self.stdout.len() + bytes.len() > limit => {
                self.overrun = Some(limit);
            }
            Output::Capture { .. } => self.stdout.extend_from_slice(bytes),
            Output::File(_) | Output::Stream => (self.sink)(bytes),
        }
    }

    fn within_limit(&self) -> Result<(), ProcessError> {
        match self.overrun {
            Some(limit) => Err(ProcessError::TooMuchOutput { program: self.tool.shown(), limit }),
            None => Ok(()),
        }
    }
}

/// The last [`STDERR_TAIL`] bytes of a stream.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > 4 * STDERR_TAIL {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let surplus = self.0.len().saturating_sub(STDERR_TAIL);
        self.0.drain(..surplus);
    }

    fn finish(mut self) -> Vec<u8> {
        self.trim();
        self.0
    }
}

//! Turns a running command's descriptors and its end into the events of an exec stream, and input into its standard input.
//! It refuses to know how the command was started.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::{io::unix::AsyncFd, sync::mpsc};
use tonic::Status;

use super::{
    error::GatewayError,
    sandbox::{Command, CommandSpec, Sandbox},
    service::status_of,
    sys,
};
use crate::wire::openshell::v1::{self as api, exec_sandbox_event::Payload};

/// Bytes of output in one event.
const PIECE: usize = 32 * 1024;
/// Events that a slow reader may be behind before the command waits.
const BEHIND: usize = 16;
/// How long a terminal may be silent after its command before it counts as read to its end.
const LINGER: Duration = Duration::from_millis(200);
/// What a command that ran out of time is reported as.
const TIMED_OUT: i32 = 124;

/// The stream's sending half.
type Events = mpsc::Sender<Result<api::ExecSandboxEvent, Status>>;
/// The stream's receiving half.
pub(crate) type Stream = tokio_stream::wrappers::ReceiverStream<Result<api::ExecSandboxEvent, Status>>;

/// One piece of input.
pub(crate) enum Input {
    /// Bytes for standard input.
    Bytes(Vec<u8>),
    /// The terminal's new size.
    Resize(u16, u16),
}

/// Starts a command, and streams what it does. Standard input ends when `input` does.
pub(crate) async fn start(
    sandbox: Arc<Sandbox>,
    spec: CommandSpec,
    timeout: Option<Duration>,
    input: mpsc::Receiver<Input>,
) -> Result<Stream, GatewayError> {
    let command_has_terminal = spec.terminal.is_some();
    let pipe = || io::pipe().map_err(GatewayError::io("make a pipe"));
    let (command, stdin, outputs) = if command_has_terminal {
        let mut command = sandbox.exec(spec, &[]).await?;
        let gone = || GatewayError::Died(" before it gave a terminal".to_owned());
        let master = command.terminal.take().ok_or_else(gone)?;
        let copy = master.try_clone().map_err(GatewayError::io("copy a descriptor"))?;
        (command, Some(copy), [Some(master), None])
    } else {
        let ((stdin_of, stdin), (stdout, stdout_of), (stderr, stderr_of)) = (pipe()?, pipe()?, pipe()?);
        let command = sandbox.exec(spec, &[stdin_of.as_fd(), stdout_of.as_fd(), stderr_of.as_fd()]).await?;
        (command, Some(stdin.into()), [Some(OwnedFd::from(stdout)), Some(stderr.into())])
    };
    let (events, stream) = mpsc::channel(BEHIND);
    let stdin = stdin.map(nonblocking).transpose().map_err(GatewayError::io("watch standard input"))?;
    let [stdout, stderr] = outputs.map(|fd| fd.map(nonblocking).transpose());
    let watch = GatewayError::io("watch a command's output");
    let (stdout, stderr) = stdout.and_then(|out| Ok((out, stderr?))).map_err(watch)?;
    let feeder = stdin.map(|stdin| tokio::spawn(feed(stdin, input)));
    tokio::spawn(async move {
        Pump { sandbox, command, events, stdout, stderr, timed_out: Arc::default(), command_has_terminal }
            .run(timeout)
            .await;
        if let Some(feeder) = feeder {
            feeder.abort();
        }
    });
    Ok(Stream::new(stream))
}

fn nonblocking(fd: OwnedFd) -> io::Result<AsyncFd<File>> {
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    // SAFETY: the file owns its descriptor and never gives it up while it is registered.
    unsafe { AsyncFd::register(File::from(fd)) }.map_err(Into::into)
}

/// Writes input until it or the command ends.
async fn feed(stdin: AsyncFd<File>, mut input: mpsc::Receiver<Input>) {
    while let Some(piece) = input.recv().await {
        match piece {
            Input::Resize(cols, rows) => {
                // A pipe has no size; a terminal that is gone needs none.
                drop(sys::resize_terminal(stdin.get_ref(), cols, rows));
            }
            Input::Bytes(bytes) => {
                if write_all(&stdin, &bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn write_all(to: &AsyncFd<File>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let write = |mut file: &File| io::Write::write(&mut file, bytes);
        let wrote = to.async_io(tokio::io::Interest::WRITABLE, write).await?;
        bytes = bytes.get(wrote..).unwrap_or_default();
    }
    Ok(())
}

struct Pump {
    sandbox: Arc<Sandbox>,
    command: Command,
    events: Events,
    stdout: Option<AsyncFd<File>>,
    stderr: Option<AsyncFd<File>>,
    timed_out: Arc<AtomicBool>,
    command_has_terminal: bool,
}

impl Pump {
    async fn run(mut self, timeout: Option<Duration>) {
        let watchdog = timeout.map(|limit| {
            let (sandbox, id, flag) = (self.sandbox.clone(), self.command.id, self.timed_out.clone());
            tokio::spawn(async move {
                tokio::time::sleep(limit).await;
                flag.store(true, Ordering::Relaxed);
                sandbox.kill(id).await;
            })
        });
        let gone = self.events.clone();
        let outcome = tokio::select! {
            outcome = self.until_end() => outcome,
            () = gone.closed() => None,
        };
        if let Some(watchdog) = watchdog {
            watchdog.abort();
        }
        match outcome {
            Some(last) => drop(self.events.send(last).await),
            None => self.sandbox.kill(self.command.id).await,
        }
    }

    /// Streams output until the command ends; answers the last event, or nothing when the reader is gone.
    async fn until_end(&mut self) -> Option<Result<api::ExecSandboxEvent, Status>> {
        let mut buffer = vec![0; PIECE];
        let mut other = vec![0; PIECE];
        loop {
            let (payload, is_stdout) = tokio::select! {
                got = read(self.stdout.as_ref(), &mut buffer), if self.stdout.is_some() => (got, true),
                got = read(self.stderr.as_ref(), &mut other), if self.stderr.is_some() => (got, false),
                ended = &mut self.command.ended => {
                    self.drain(&mut buffer).await?;
                    return Some(self.last(ended.ok()));
                }
            };
            match payload {
                Some(data) => self.send(is_stdout, data).await?,
                None if is_stdout => self.stdout = None,
                None => self.stderr = None,
            }
        }
    }

    /// What a command that ended had written; not what its children may still write.
    async fn drain(&mut self, buffer: &mut [u8]) -> Option<()> {
        if self.command_has_terminal {
            // A terminal passes on what was written a moment later, and ends when its last user is gone.
            while let Ok(Some(data)) = tokio::time::timeout(LINGER, read(self.stdout.as_ref(), buffer)).await
            {
                self.send(true, data).await?;
            }
            return Some(());
        }
        for is_stdout in [true, false] {
            let taken = if is_stdout { self.stdout.take() } else { self.stderr.take() };
            let Some(output) = taken else { continue };
            while let Some(data) = read_now(output.get_ref(), buffer) {
                self.send(is_stdout, data).await?;
            }
        }
        Some(())
    }

    async fn send(&self, is_stdout: bool, data: Vec<u8>) -> Option<()> {
        let payload = match is_stdout {
            true => Payload::Stdout(api::ExecSandboxStdout { data }),
            false => Payload::Stderr(api::ExecSandboxStderr { data }),
        };
        self.events.send(Ok(api::ExecSandboxEvent { payload: Some(payload) })).await.ok()
    }

    fn last(&self, ended: Option<(i32, i32)>) -> Result<api::ExecSandboxEvent, Status> {
        let Some((code, signal)) = ended else {
            return Err(status_of(&GatewayError::Died(" while the command ran".to_owned())));
        };
        let timed_out = self.timed_out.load(Ordering::Relaxed) && signal != 0;
        let exit = api::ExecSandboxExit {
            exit_code: if timed_out { TIMED_OUT } else { code },
            signal: u32::try_from(signal).unwrap_or(0),
            timed_out,
        };
        Ok(api::ExecSandboxEvent { payload: Some(Payload::Exit(exit)) })
    }
}

/// Some output; `None` at its end, which a terminal tells by an error.
async fn read(from: Option<&AsyncFd<File>>, buffer: &mut [u8]) -> Option<Vec<u8>> {
    let from = from?;
    let read = |mut file: &File| io::Read::read(&mut file, buffer);
    let got = from.async_io(tokio::io::Interest::READABLE, read).await.ok()?;
    (got > 0).then(|| buffer.get(..got).unwrap_or_default().to_vec())
}

/// Output that is there already.
fn read_now(mut from: &File, buffer: &mut [u8]) -> Option<Vec<u8>> {
    loop {
        match io::Read::read(&mut from, buffer) {
            Ok(0) => return None,
            Ok(got) => return Some(buffer.get(..got).unwrap_or_default().to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

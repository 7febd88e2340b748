//! Turns one command into orders to a keeper, and holds its limits while its output flows.
//! It refuses to know where keepers come from and what becomes of one that is gone.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::client::Link;
use super::sweep::PATIENCE;
use super::wire::{Order, Report, Script};
use super::{EndedBy, Finished, KeeperError, PackCommand, Stdin, Stream};
use crate::sys::pipe::{self, CHUNK, Outlet};

/// How long a keeper that was told to end a command may take: its grace, its sweep, and a margin.
const ANSWER: Duration = PATIENCE.saturating_add(Duration::from_secs(5));

/// How a conversation ended.
pub(super) enum Outcome {
    /// The keeper has reported, and is ready for the next command.
    Over(Result<Finished, KeeperError>),
    /// The keeper is dead or does not answer.
    KeeperGone,
}

/// One command under way.
pub(super) struct Conversation<'a> {
    link: &'a mut Link,
    id: u64,
    cwd: PathBuf,
    out: Outlet,
    err: Outlet,
    limits: Limits,
    sink: &'a mut dyn FnMut(Stream, &[u8]),
}

/// When something has to be done about the command.
struct Limits {
    started: Instant,
    hard: Option<Instant>,
    idle: Option<(Duration, Instant)>,
    /// Why and since when the command is being ended.
    ending: Option<(EndedBy, Instant)>,
}

/// What a look at the limits says.
enum Due {
    End(EndedBy),
    KeeperSilent,
}

/// What happened first.
enum Happening {
    Report(Option<Report>),
    Due(Due),
    Output,
}

impl<'a> Conversation<'a> {
    /// Has the command run, to its end.
    pub(super) async fn hold(
        link: &'a mut Link,
        command: PackCommand,
        cancel: &CancellationToken,
        sink: &'a mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Outcome, KeeperError> {
        match Conversation::begin(link, command, sink)? {
            Some(mut conversation) => conversation.follow(cancel).await,
            None => Ok(Outcome::KeeperGone),
        }
    }

    /// Sends the order; none when the keeper is gone.
    fn begin(
        link: &'a mut Link,
        command: PackCommand,
        sink: &'a mut dyn FnMut(Stream, &[u8]),
    ) -> io::Result<Option<Conversation<'a>>> {
        let script = Script::to_file(&command.shell, &command.cwd, &command.env)?;
        let ((out, out_write), (err, err_write)) = (pipe::pair()?, pipe::pair()?);
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![script.as_fd(), out_write.as_fd(), err_write.as_fd()];
        if let Stdin::File(file) = &command.stdin {
            descriptors.push(file.as_fd());
        }
        let id = link.next_id();
        let order = Order::Run { id };
        if order.send(link.socket.get_ref(), &descriptors).is_err() {
            return Ok(None);
        }
        let limits = Limits::start(command.timeout, command.idle_timeout);
        Ok(Some(Conversation { link, id, cwd: command.cwd, out, err, limits, sink }))
    }

    async fn follow(&mut self, cancel: &CancellationToken) -> Result<Outcome, KeeperError> {
        let (mut out, mut err) = (vec![0; CHUNK], vec![0; CHUNK]);
        // A command may stop its keeper. The kernel tells the parent, and the parent lets it go on.
        let mut stops = signal(SignalKind::child())?;
        let report = loop {
            let happening = tokio::select! {
                biased;
                report = self.link.report() => Happening::Report(report?),
                () = cancel.cancelled(), if self.limits.ending.is_none() => {
                    Happening::Due(Due::End(EndedBy::Cancelled))
                }
                due = self.limits.due() => Happening::Due(due),
                _ = stops.recv() => {
                    self.link.process.resume();
                    continue;
                }
                (stream, bytes) = either(&mut self.out, &mut out, &mut self.err, &mut err) => {
                    (self.sink)(stream, bytes?);
                    Happening::Output
                }
            };
            match happening {
                Happening::Report(report) => break report,
                Happening::Due(Due::KeeperSilent) => break None,
                Happening::Due(Due::End(EndedBy::Idle)) if self.has_unread()? => self.limits.renew(),
                Happening::Due(Due::End(why)) => self.end(why),
                Happening::Output => self.limits.renew(),
            }
        };
        self.out.drain(&mut out, |bytes| (self.sink)(Stream::Out, bytes))?;
        self.err.drain(&mut err, |bytes| (self.sink)(Stream::Err, bytes))?;
        Ok(self.conclude(report))
    }

    /// Whether output waits that a busy engine has not read yet: then the command was not idle.
    fn has_unread(&self) -> io::Result<bool> {
        Ok(self.out.waiting()? > 0 || self.err.waiting()? > 0)
    }

    fn end(&mut self, why: EndedBy) {
        self.limits.ending = Some((why, Instant::now()));
        // If it cannot be sent, the keeper is gone, which the next report says.
        let _ = Order::End { id: self.id }.send(self.link.socket.get_ref(), &[]);
    }

    fn conclude(&self, report: Option<Report>) -> Outcome {
        match report {
            Some(Report::Finished { id, exit, asked, killed }) if id == self.id => {
                let ended_by = self.limits.ending.filter(|_| asked).map(|(why, _)| why);
                let elapsed = self.limits.started.elapsed();
                let (killed, killed_count) = (killed.named, killed.count);
                Outcome::Over(Ok(Finished { exit, ended_by, killed, killed_count, elapsed }))
            }
            Some(Report::NotStarted { id, errno }) if id == self.id => {
                let source = io::Error::from_raw_os_error(errno);
                Outcome::Over(Err(KeeperError::Start { cwd: self.cwd.clone(), source }))
            }
            Some(Report::NotEnded { id, remaining }) if id == self.id => {
                Outcome::Over(Err(KeeperError::NotEnded { remaining: remaining.named }))
            }
            // Anything else is not what our keeper says.
            _ => Outcome::KeeperGone,
        }
    }
}

impl Limits {
    fn start(timeout: Option<Duration>, idle: Option<Duration>) -> Limits {
        let started = Instant::now();
        let hard = timeout.and_then(|limit| started.checked_add(limit));
        let idle = idle.and_then(|limit| Some((limit, started.checked_add(limit)?)));
        Limits { started, hard, idle, ending: None }
    }

    /// Begins the idle limit anew.
    fn renew(&mut self) {
        if let Some((limit, at)) = &mut self.idle {
            *at = Instant::now() + *limit;
        }
    }

    /// Waits until something is due; for ever if there is no limit.
    async fn due(&self) -> Due {
        if let Some((_, since)) = self.ending {
            sleep_until(since + ANSWER).await;
            return Due::KeeperSilent;
        }
        let idle = self.idle.map(|(_, at)| (at, EndedBy::Idle));
        let hard = self.hard.map(|at| (at, EndedBy::Timeout));
        match [idle, hard].into_iter().flatten().min_by_key(|(at, _)| *at) {
            Some((at, why)) => {
                sleep_until(at).await;
                Due::End(why)
            }
            None => std::future::pending().await,
        }
    }
}

/// Waits for bytes from either stream, without a preference.
async fn either<'b>(
    out: &mut Outlet,
    out_buffer: &'b mut [u8],
    err: &mut Outlet,
    err_buffer: &'b mut [u8],
) -> (Stream, io::Result<&'b [u8]>) {
    tokio::select! {
        bytes = out.read(out_buffer) => (Stream::Out, bytes),
        bytes = err.read(err_buffer) => (Stream::Err, bytes),
    }
}

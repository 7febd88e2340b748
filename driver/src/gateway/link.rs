//! Turns the socket to a sandbox's first process into calls that wait for their answers.
//! It refuses to know what a sandbox is.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use tokio::{io::Interest, net::UnixStream, sync::oneshot};

use super::{
    error::GatewayError,
    protocol::{self, Exec, FromInit, ToInit, WorkspaceMode},
};

type Answer<T> = oneshot::Sender<T>;

/// How a command ended: its code, and the signal or zero.
pub(crate) type Ending = (i32, i32);

/// What the sandbox answered to its setup.
pub(crate) struct Ready {
    pub(crate) layers: Vec<String>,
    pub(crate) mode: WorkspaceMode,
    pub(crate) scratch: Option<OwnedFd>,
    pub(crate) changes: Option<OwnedFd>,
    /// The sockets of the ways out, by position in what was asked for.
    pub(crate) sockets: Vec<(usize, OwnedFd)>,
    /// What follows them: the three of `Outlets::inside`.
    pub(crate) inside: Vec<OwnedFd>,
}

#[derive(Default)]
struct Waiting {
    ready: Option<Answer<Result<Ready, (String, String)>>>,
    started: HashMap<u64, Answer<Result<Option<OwnedFd>, String>>>,
    ended: HashMap<u64, Answer<Ending>>,
    alive: Vec<Answer<Vec<(u32, String)>>>,
    closed: bool,
}

/// The gateway's end.
#[derive(Clone)]
pub(crate) struct Link {
    stream: Arc<UnixStream>,
    writing: Arc<tokio::sync::Mutex<()>>,
    waiting: Arc<Mutex<Waiting>>,
}

impl Link {
    /// Takes the socket; answers are read until the other end is gone, then `gone` is called.
    pub(crate) fn new(
        stream: std::os::unix::net::UnixStream,
        gone: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let link = Self {
            stream: Arc::new(UnixStream::from_std(stream)?),
            writing: Arc::default(),
            waiting: Arc::default(),
        };
        let reader = link.clone();
        tokio::spawn(async move {
            // Whatever ended it, every waiter learns that no answer comes.
            while let Ok(Some((message, fds))) = reader.receive().await {
                reader.dispatch(message, fds);
            }
            *reader.waiting() = Waiting { closed: true, ..Waiting::default() };
            gone();
        });
        Ok(link)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let frame = protocol::encode(message)?;
        let _whole = self.writing.lock().await;
        let mut rest = frame.as_slice();
        let mut fds = fds;
        while !rest.is_empty() {
            let send = || protocol::send_with_fds(self.stream.as_fd(), rest, fds);
            let sent = self.stream.async_io(Interest::WRITABLE, send).await?;
            rest = rest.get(sent..).unwrap_or_default();
            fds = &[];
        }
        Ok(())
    }

    async fn receive(&self) -> io::Result<Option<(FromInit, Vec<OwnedFd>)>> {
        let mut head = [0; 4];
        let mut fds = Vec::new();
        if !self.fill(&mut head, &mut fds).await? {
            return Ok(None);
        }
        let mut body = vec![0; protocol::body_length(head)?];
        match self.fill(&mut body, &mut fds).await? {
            true => Ok(Some((protocol::decode(&body)?, fds))),
            false => Ok(None),
        }
    }

    /// Fills the buffer; `false` when the other end is gone first.
    async fn fill(&self, mut buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<bool> {
        while !buffer.is_empty() {
            let receive = || protocol::receive_with_fds(self.stream.as_fd(), buffer);
            let (got, more) = {
                let mut receive = receive;
                self.stream.async_io(Interest::READABLE, &mut receive).await?
            };
            if got == 0 {
                return Ok(false);
            }
            fds.extend(more);
            buffer = buffer.get_mut(got..).unwrap_or_default();
        }
        Ok(true)
    }

    fn dispatch(&self, message: FromInit, fds: Vec<OwnedFd>) {
        let mut waiting = self.waiting();
        let mut fds = fds.into_iter();
        // An answer that nobody waits for any more is dropped, and its descriptors closed.
        match message {
            FromInit::Ready { layers, workspace, sockets } => {
                let scratch = fds.next();
                let changes = if workspace == WorkspaceMode::None { None } else { fds.next() };
                let sockets = sockets.into_iter().zip(fds.by_ref()).collect();
                let ready =
                    Ready { layers, mode: workspace, scratch, changes, sockets, inside: fds.collect() };
                drop(waiting.ready.take().map(|answer| answer.send(Ok(ready))));
            }
            FromInit::Failed { step, reason } => {
                drop(waiting.ready.take().map(|answer| answer.send(Err((step, reason)))));
            }
            FromInit::Started { exec } => {
                drop(waiting.started.remove(&exec).map(|answer| answer.send(Ok(fds.next()))));
            }
            FromInit::NotStarted { exec, reason } => {
                waiting.ended.remove(&exec);
                drop(waiting.started.remove(&exec).map(|answer| answer.send(Err(reason))));
            }
            FromInit::Exited { exec, code, signal } => {
                let _ = waiting.ended.remove(&exec).map(|answer| answer.send((code, signal)));
            }
            FromInit::Alive { processes } => {
                if !waiting.alive.is_empty() {
                    drop(waiting.alive.remove(0).send(processes));
                }
            }
        }
    }

    /// Tells the first process what to become, and waits until it is that.
    pub(crate) async fn setup(
        &self,
        setup: protocol::Setup,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Ready, GatewayError> {
        let (answer, ready) = oneshot::channel();
        self.waiting().ready = Some(answer);
        let sent = self.send(&ToInit::Setup(Box::new(setup)), fds).await;
        sent.map_err(|error| GatewayError::Died(format!(" ({error})")))?;
        match ready.await {
            Ok(Ok(ready)) => Ok(ready),
            Ok(Err((step, reason))) => Err(GatewayError::Setup { step, reason }),
            Err(_) => Err(GatewayError::Died(" before it was set up".to_owned())),
        }
    }

    /// Starts a command; answers its terminal, if it has one, and what will tell its end.
    pub(crate) async fn exec(
        &self,
        exec: Exec,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Option<OwnedFd>, oneshot::Receiver<Ending>), GatewayError> {
        let (answer, started) = oneshot::channel();
        let (ended_in, ended) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.closed {
                return Err(GatewayError::Died(String::new()));
            }
            waiting.started.insert(exec.exec, answer);
            waiting.ended.insert(exec.exec, ended_in);
        }
        let program = exec.argv.first().cloned().unwrap_or_default();
        let sent = self.send(&ToInit::Exec(exec), fds).await;
        sent.map_err(|error| GatewayError::Died(format!(" ({error})")))?;
        match started.await {
            Ok(Ok(terminal)) => Ok((terminal, ended)),
            Ok(Err(reason)) => Err(GatewayError::Command { program, reason }),
            Err(_) => Err(GatewayError::Died(" before it started the command".to_owned())),
        }
    }

    /// Kills a command's process group.
    pub(crate) async fn kill(&self, exec: u64) {
        // A sandbox that is gone has no command either.
        drop(self.send(&ToInit::Kill { exec }, &[]).await);
    }

    /// What is alive beside the first process; nothing, when the sandbox is gone.
    pub(crate) async fn alive(&self) -> Vec<(u32, String)> {
        let (answer, alive) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.closed {
                return Vec::new();
            }
            waiting.alive.push(answer);
        }
        match self.send(&ToInit::List, &[]).await {
            Ok(()) => alive.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

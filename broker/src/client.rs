//! Turns the parent's end of the control socket into calls that wait for their answers.
//! It refuses to start the child: whoever guards children does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use policy::egress::Document;
use policy::outputs::{Outcome, Refusal};
use policy::record::{End, Head};
use policy::seam::Role;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::control::{self, Answer, Ask, Wish};
use crate::launch::Launch;
use crate::systems::Secret;

/// A running child. Dropping it ends the child, which closes every connection.
#[derive(Debug)]
pub struct Client {
    stream: Mutex<UnixStream>,
    /// What the child gave up at its start.
    pub layers: Vec<String>,
}

/// A sandbox with its sockets, made inside its network namespace.
#[derive(Debug)]
pub struct Attachment {
    /// The sandbox.
    pub id: String,
    /// The turn that records name.
    pub turn: String,
    /// What it may reach.
    pub policy: Document,
    /// Its sockets.
    pub sockets: Vec<(Role, OwnedFd)>,
    /// The token with which its programs may call tools; without one nobody may.
    pub token: Option<Secret>,
    /// Its `NETLINK_SOCK_DIAG` socket, `/proc` and root; without them no program can be told.
    pub inside: Option<[OwnedFd; 3]>,
}

/// Why the child did not do what it was asked. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The socket failed, or what came is no answer.
    #[error("speak with the broker")]
    Io(#[from] io::Error),
    /// The child is gone.
    #[error("speak with the broker: it ended")]
    Gone,
    /// It refused.
    #[error("{0}")]
    Refused(String),
    /// It answered something else.
    #[error("understand the broker's answer")]
    Unexpected,
}

impl Client {
    /// Sends the launch document and the audit file, and waits until the child serves.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn launch(
        stream: std::os::unix::net::UnixStream,
        launch: &Launch,
        audit: BorrowedFd<'_>,
    ) -> Result<Self, ClientError> {
        stream.set_nonblocking(true)?;
        let stream = UnixStream::from_std(stream)?;
        control::send(&stream, launch, &[audit]).await?;
        match answer(&stream).await? {
            Answer::Ready { layers } => Ok(Self { stream: Mutex::new(stream), layers }),
            other => Err(unexpected(other)),
        }
    }

    /// Begins a sandbox's turn; answers the hash of the policy in force. The caller's copies of the sockets are closed, so
    /// that they go with the child.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn attach(&self, attachment: Attachment) -> Result<String, ClientError> {
        let Attachment { id, turn, policy, sockets, token, inside } = attachment;
        let (roles, fds): (Vec<Role>, Vec<OwnedFd>) = sockets.into_iter().unzip();
        let ask = Ask::Attach { id, turn, policy, sockets: roles, inside: inside.is_some(), token };
        let all: Vec<BorrowedFd<'_>> = fds.iter().chain(inside.iter().flatten()).map(AsFd::as_fd).collect();
        in_force(self.ask(&ask, &all).await?)
    }

    /// Puts another policy in force; answers its hash.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reload(&self, id: &str, policy: Document) -> Result<String, ClientError> {
        in_force(self.ask(&Ask::Reload { id: id.to_owned(), policy }, &[]).await?)
    }

    /// Ends a sandbox's turn; everything of it is on the disk when this returns.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn detach(&self, id: &str) -> Result<(End, Head), ClientError> {
        match self.ask(&Ask::Detach { id: id.to_owned() }, &[]).await? {
            Answer::Detached { end, head } => Ok((end, head)),
            other => Err(unexpected(other)),
        }
    }

    /// Where the audit file ends.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn head(&self) -> Result<Head, ClientError> {
        match self.ask(&Ask::Head, &[]).await? {
            Answer::Head(head) => Ok(head),
            other => Err(unexpected(other)),
        }
    }

    /// Asks for leave to make a write of the engine's own. A permit's count is on the disk, a refusal's row too.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn admit(&self, wish: Wish) -> Result<Leave, ClientError> {
        match self.ask(&Ask::Admit(wish), &[]).await? {
            Answer::Permit { id, target } => Ok(Leave::Permit(OwnPermit { id, target })),
            Answer::Stored { answer } => Ok(Leave::Stored(answer)),
            Answer::Denied(refusal) => Ok(Leave::Refused(refusal)),
            other => Err(unexpected(other)),
        }
    }

    /// Records what came of a write of the engine's own.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn settle(
        &self,
        permit: OwnPermit,
        outcome: Outcome,
        answer: String,
    ) -> Result<(), ClientError> {
        match self.ask(&Ask::Settle { id: permit.id, outcome, answer }, &[]).await? {
            Answer::Settled => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    async fn ask(&self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<Answer, ClientError> {
        let stream = self.stream.lock().await;
        control::send(&stream, ask, fds).await?;
        answer(&stream).await
    }
}

/// Leave for a write of the engine's own. Only [`Client::admit`] makes one.
///
/// ```compile_fail
/// let permit = broker::client::OwnPermit { id: 1, target: String::new() };
/// ```
#[derive(Debug)]
#[must_use = "a permit that is never settled leaves a write whose outcome is unknown"]
pub struct OwnPermit {
    id: u64,
    target: String,
}

impl OwnPermit {
    /// Where the write goes.
    pub fn target(&self) -> &str {
        &self.target
    }
}

/// What the chokepoint says to a write of the engine's own.
#[derive(Debug)]
pub enum Leave {
    /// It may be made.
    Permit(OwnPermit),
    /// It was made before with the same key; this was answered.
    Stored(String),
    /// The bound says no.
    Refused(Refusal),
}

async fn answer(stream: &UnixStream) -> Result<Answer, ClientError> {
    Ok(control::receive(stream).await?.ok_or(ClientError::Gone)?.0)
}

fn in_force(answer: Answer) -> Result<String, ClientError> {
    match answer {
        Answer::InForce { policy } => Ok(policy),
        other => Err(unexpected(other)),
    }
}

fn unexpected(answer: Answer) -> ClientError {
    match answer {
        Answer::Refused { why } => ClientError::Refused(why),
        _ => ClientError::Unexpected,
    }
}

//! Turns a Unix socket into messages with descriptors: what the engine asks of the child, and what it answers.
//! It refuses to know what the messages do.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use policy::egress::Document;
use policy::outputs::{Kind, Outcome, Refusal};
use policy::record::{End, Head};
use policy::seam::Role;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::systems::Secret;

/// The most descriptors beside one message; the kernel takes 253.
pub const FDS_MAX: usize = 250;
/// The longest message.
const MESSAGE_MAX: usize = 64 * 1024 * 1024;

/// What the engine asks. Each is answered, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// A sandbox's turn begins. Descriptors: its sockets in order; then, with `inside`, its `NETLINK_SOCK_DIAG` socket, its
    /// `/proc` and its root.
    Attach {
        /// The sandbox; unique while attached.
        id: String,
        /// The turn that records name.
        turn: String,
        /// What it may reach.
        policy: Document,
        /// What each socket is for.
        sockets: Vec<Role>,
        /// Whether programs can be told.
        inside: bool,
        /// The token with which its programs may call tools.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<Secret>,
    },
    /// Another policy from now on; open tunnels stay.
    Reload {
        /// The sandbox.
        id: String,
        /// What it may reach.
        policy: Document,
    },
    /// The turn is over: its connections end, its record is closed.
    Detach {
        /// The sandbox.
        id: String,
    },
    /// Where the audit file ends.
    Head,
    /// A write of the engine's own is wanted.
    Admit(Wish),
    /// It ended.
    Settle {
        /// The write.
        id: u64,
        /// What came of it.
        outcome: Outcome,
        /// What a retry with the same key is answered.
        answer: String,
    },
}

/// A write that the engine wants to make itself: a draft pull request, a dispatch of a workflow (contract §1.9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// Its kind.
    pub kind: Kind,
    /// The part of the engine that writes.
    pub tool: String,
    /// Where it goes; absent is where the bound says.
    pub target: Option<String>,
    /// Its idempotency key.
    pub key: Option<String>,
    /// What is written, of which only a hash is kept.
    pub arguments: String,
    /// The turn it falls in.
    pub turn: String,
}

/// What the child answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// The launch document is taken; with what was given up.
    Ready {
        /// Privileges given up, for the table of layers.
        layers: Vec<String>,
    },
    /// The policy with this hash is in force.
    InForce {
        /// The hash.
        policy: String,
    },
    /// The turn is closed.
    Detached {
        /// What it came to.
        end: End,
        /// Where the audit file ends.
        head: Head,
    },
    /// Where the audit file ends.
    Head(Head),
    /// The write may be made, at this target.
    Permit {
        /// The write.
        id: u64,
        /// Where it goes.
        target: String,
    },
    /// It was made before; this was answered.
    Stored {
        /// The answer.
        answer: String,
    },
    /// The bound says no; the row is on the session log.
    Denied(Refusal),
    /// The outcome is on the disk.
    Settled,
    /// It was not done.
    Refused {
        /// Why, as what follows "failed to".
        why: String,
    },
}

/// Sends a message with descriptors beside its first bytes.
///
/// # Errors
/// The socket's, and too many descriptors.
pub async fn send(stream: &UnixStream, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let body = serde_json::to_vec(message).map_err(io::Error::other)?;
    if body.len() > MESSAGE_MAX || fds.len() > FDS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too large"));
    }
    let mut frame = u32::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    let mut sent = stream.async_io(Interest::WRITABLE, || send_once(stream, &frame, fds)).await?;
    while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
        sent += stream.async_io(Interest::WRITABLE, || send_once(stream, rest, &[])).await?;
    }
    Ok(())
}

fn send_once(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(stream.as_fd(), &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives a message and its descriptors; `None` when the other end is gone.
///
/// # Errors
/// The socket's, and what is no message.
pub async fn receive<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut fds = Vec::new();
    let mut head = [0; 4];
    if !fill(stream, &mut head, &mut fds).await? {
        return Ok(None);
    }
    let length = usize::try_from(u32::from_le_bytes(head)).map_err(io::Error::other)?;
    if length > MESSAGE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too large"));
    }
    let mut body = vec![0; length];
    if !fill(stream, &mut body, &mut fds).await? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((serde_json::from_slice(&body).map_err(io::Error::other)?, fds)))
}

/// Fills a buffer; `false` when the other end ended before its first byte.
async fn fill(stream: &UnixStream, buf: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut at = 0;
    while let Some(rest) = buf.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let got = stream.async_io(Interest::READABLE, || receive_once(stream, rest, fds)).await?;
        if got == 0 {
            return if at == 0 { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        at += got;
    }
    Ok(true)
}

fn receive_once(stream: &UnixStream, buf: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(stream.as_fd(), &mut [IoSliceMut::new(buf)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(got.bytes)
}

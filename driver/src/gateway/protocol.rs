//! Turns messages between the gateway and a sandbox's first process into framed bytes with descriptors beside them.
//! It refuses to know what either side does with them.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{IpAddr, SocketAddr},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::limits::Limits;

/// No message is longer; a longer one is an error of the peer.
const LONGEST: u32 = 8 * 1024 * 1024;
/// Descriptors that may travel with one message.
pub(crate) const MOST_FDS: usize = 250;

/// What the gateway tells the first process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToInit {
    /// Build the view and give up all power. Carries the descriptors of the sources that are passed.
    Setup(Box<Setup>),
    /// Run a command. Carries its three standard descriptors, or none when it gets a terminal.
    Exec(Exec),
    /// Kill a command and its process group.
    Kill {
        /// Which one.
        exec: u64,
    },
    /// Tell what is alive.
    List,
}

/// What the first process tells the gateway.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromInit {
    /// Confined, and waiting for commands. Carries the scratch file system, and the workspace's
    /// upper directory or copy, when there is one; then the sockets of its ways out, and the three of `Outlets::inside`.
    Ready {
        /// What is in force, one line each.
        layers: Vec<String>,
        /// How the workspace stands there.
        workspace: WorkspaceMode,
        /// Which of the sockets asked for there are, by position.
        sockets: Vec<usize>,
    },
    /// A step of the setup failed; the process ends.
    Failed {
        /// Which one.
        step: String,
        /// Why.
        reason: String,
    },
    /// The command runs. Carries the terminal's master, when it has one.
    Started {
        /// Which one.
        exec: u64,
    },
    /// The command does not run.
    NotStarted {
        /// Which one.
        exec: u64,
        /// Why.
        reason: String,
    },
    /// The command ended.
    Exited {
        /// Which one.
        exec: u64,
        /// Its exit code, if it exited.
        code: i32,
        /// The signal that ended it, else zero.
        signal: i32,
    },
    /// What is alive beside the first process.
    Alive {
        /// Number and name.
        processes: Vec<(u32, String)>,
    },
}

/// How the workspace is kept apart from the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkspaceMode {
    /// There is none.
    None,
    /// Overlay: the upper directory holds what changed.
    Overlay,
    /// The passed directory is a whole copy.
    Copy,
}

/// What a sandbox is made of.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// An empty directory of the host that the new root is built on.
    pub(crate) root: PathBuf,
    pub(crate) workspace: Option<Workspace>,
    pub(crate) read_only: Vec<Source>,
    pub(crate) limits: Limits,
    /// No cgroup counts: bound memory and processes by rlimits.
    pub(crate) rlimits: bool,
    /// The agent's host user is not the gateway's.
    pub(crate) apart: bool,
    /// The ways out, made before it gives up its power.
    pub(crate) ways: Option<Ways>,
    /// This binary, shown inside so that the ways out can be tried from there.
    pub(crate) program: Option<Source>,
    /// Layers to leave out, in a build for tests of the layers.
    pub(crate) weaken: Vec<String>,
}

/// The sockets that are to stand in the sandbox's network namespace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ways {
    /// Each with whether it is UDP.
    pub(crate) sockets: Vec<(bool, SocketAddr)>,
    /// Addresses that become the namespace's own.
    pub(crate) addresses: Vec<IpAddr>,
    /// The name of the broker's own URL, which leads to loopback.
    pub(crate) own_name: Option<String>,
}

/// The workspace of a sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) name: String,
    pub(crate) source: Source,
    /// Permission bits of its root.
    pub(crate) mode: u32,
    /// What stands as its `.git`.
    pub(crate) repository: Option<Source>,
    /// Paths of it that the sandbox does not see, relative to it.
    pub(crate) hidden: Vec<PathBuf>,
}

/// A host path, and whether its mounts come as a descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) passed: bool,
}

/// One command.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Exec {
    pub(crate) exec: u64,
    pub(crate) argv: Vec<String>,
    /// `NAME=value`, complete.
    pub(crate) env: Vec<String>,
    pub(crate) workdir: String,
    /// Columns and rows of the terminal that it gets instead of three pipes.
    pub(crate) terminal: Option<(u16, u16)>,
}

/// Frames one message: four bytes of length, then JSON.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message).map_err(io::Error::other)?;
    let len = u32::try_from(body.len()).ok().filter(|len| *len <= LONGEST);
    let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))?;
    let mut frame = len.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// Sends the first bytes of a frame together with descriptors; answers how many bytes went.
pub(crate) fn send_with_fds(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let sent =
        sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(sent)
}

/// Receives some bytes and the descriptors beside them; zero bytes is the peer's end.
pub(crate) fn receive_with_fds(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = nix::cmsg_space!([RawFd; MOST_FDS]);
    let mut slices = [IoSliceMut::new(bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            // SAFETY: the kernel made these descriptors for this message.
            fds.extend(raw.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }));
        }
    }
    Ok((message.bytes, fds))
}

/// Reads the length out of a frame's first four bytes.
pub(crate) fn body_length(head: [u8; 4]) -> io::Result<usize> {
    let len = u32::from_le_bytes(head);
    if len > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    usize::try_from(len).map_err(io::Error::other)
}

/// Reads a message out of a frame's body.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    serde_json::from_slice(body).map_err(io::Error::other)
}

/// Sends a message on a blocking socket.
pub(crate) fn send(
    socket: &mut UnixStream,
    message: &impl Serialize,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    use std::os::fd::AsFd;
    let frame = encode(message)?;
    let sent = send_with_fds(socket.as_fd(), &frame, fds)?;
    socket.write_all(frame.get(sent..).unwrap_or_default())
}

/// Receives a message on a blocking socket; `None` when the peer is gone.
pub(crate) fn receive<T: DeserializeOwned>(socket: &mut UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    use std::os::fd::AsFd;
    let mut head = [0; 4];
    let (got, fds) = receive_with_fds(socket.as_fd(), &mut head)?;
    if got == 0 {
        return Ok(None);
    }
    socket.read_exact(head.get_mut(got..).unwrap_or_default())?;
    let mut body = vec![0; body_length(head)?];
    socket.read_exact(&mut body)?;
    Ok(Some((decode(&body)?, fds)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_message_arrives_with_its_descriptors() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        send(&mut ours, &ToInit::Kill { exec: 7 }, &[null.as_fd(), null.as_fd()]).unwrap();
        drop(ours);
        let (message, fds) = receive::<ToInit>(&mut theirs).unwrap().unwrap();
        assert!(matches!(message, ToInit::Kill { exec: 7 }));
        assert_eq!(fds.len(), 2);
        assert!(receive::<ToInit>(&mut theirs).unwrap().is_none());
    }

    #[test]
    fn a_length_beyond_reason_is_refused_before_memory_is_taken() {
        assert!(body_length(u32::MAX.to_le_bytes()).is_err());
    }
}

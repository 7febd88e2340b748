//! Turns orders to a keeper and its reports into packets with descriptors, and back.
//! It refuses to know when which packet is due.
//!
//! Packets keep their boundaries (`SOCK_SEQPACKET`) and are small; a command's text and environment travel in a
//! memory file whose descriptor goes along, so their size is not bounded by the socket.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use super::{Exit, Killed};
use crate::sys::env::Environment;

/// No packet is longer: 32 names of at most 60 bytes fit well.
const PACKET: usize = 4096;
/// Script, stdout, stderr, stdin.
const DESCRIPTORS: usize = 4;

/// What the engine asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Start the command that the descriptors describe: script, stdout, stderr, and stdin if there is one.
    Run { id: u64 },
    /// End it: ask its session, and after a short grace kill everything.
    End { id: u64 },
}

/// What a keeper says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It is ready for orders.
    Ready,
    /// The command did not start.
    NotStarted { id: u64, errno: i32 },
    /// The command is over and nothing of it is left. `asked`: an `End` came before its exit.
    Finished { id: u64, exit: Exit, asked: bool, killed: Roll },
    /// The command is over, and these could not be ended.
    NotEnded { id: u64, remaining: Roll },
}

/// Names, cut at [`super::NAMED_AT_MOST`], and how many there were.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Roll {
    pub(super) named: Vec<Killed>,
    pub(super) count: u32,
}

/// A command as a keeper needs it.
#[derive(Debug, PartialEq)]
pub(super) struct Script {
    pub(super) shell: OsString,
    pub(super) cwd: PathBuf,
    pub(super) env: Environment,
}

impl Script {
    /// Writes it into a new memory file.
    pub(super) fn to_file(shell: &str, cwd: &Path, env: &Environment) -> io::Result<File> {
        let mut bytes = Vec::new();
        put(&mut bytes, shell.as_bytes());
        put(&mut bytes, cwd.as_os_str().as_bytes());
        for (name, value) in env.iter() {
            put(&mut bytes, name.as_bytes());
            put(&mut bytes, value.as_bytes());
        }
        let mut file = File::from(memfd_create(c"script", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(file)
    }

    /// Reads what [`Script::to_file`] wrote, wherever the file stands.
    pub(super) fn from_file(file: &File) -> io::Result<Script> {
        let length = usize::try_from(file.metadata()?.len()).map_err(|_| malformed())?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0)?;
        let mut fields = Fields(&bytes);
        let (shell, cwd) = (fields.text()?, fields.text()?);
        let mut env = Environment::empty();
        while !fields.0.is_empty() {
            env.set(fields.text()?, fields.text()?);
        }
        Ok(Script { shell: shell.to_owned(), cwd: cwd.into(), env })
    }
}

impl Order {
    /// Sends it, with descriptors for a `Run`.
    pub(super) fn send(&self, socket: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (kind, id) = match self {
            Order::Run { id } => (b'R', id),
            Order::End { id } => (b'E', id),
        };
        let mut packet = vec![kind];
        packet.extend(id.to_le_bytes());
        send(socket, &packet, descriptors)
    }

    /// Receives one; none at the end of the stream, which means that the engine is gone.
    pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
        let Some((packet, descriptors)) = receive(socket)? else { return Ok(None) };
        let mut fields = Fields(&packet);
        let (kind, id) = (fields.byte()?, fields.u64()?);
        match kind {
            b'R' => Ok(Some((Order::Run { id }, descriptors))),
            b'E' => Ok(Some((Order::End { id }, descriptors))),
            _ => Err(malformed()),
        }
    }
}

impl Report {
    /// Sends it.
    pub(super) fn send(&self, socket: impl AsFd) -> io::Result<()> {
        let mut packet = Vec::new();
        match self {
            Report::Ready => packet.push(b'r'),
            Report::NotStarted { id, errno } => {
                packet.push(b's');
                packet.extend(id.to_le_bytes());
                packet.extend(errno.to_le_bytes());
            }
            Report::Finished { id, exit, asked, killed } => {
                packet.push(b'f');
                packet.extend(id.to_le_bytes());
                let (how, number) = match exit {
                    Exit::Code(code) => (0, code),
                    Exit::Signal(signal) => (1, signal),
                };
                packet.extend([how, u8::from(*asked)]);
                packet.extend(number.to_le_bytes());
                put_roll(&mut packet, killed);
            }
            Report::NotEnded { id, remaining } => {
                packet.push(b'n');
                packet.extend(id.to_le_bytes());
                put_roll(&mut packet, remaining);
            }
        }
        send(socket, &packet, &[])
    }

    /// Receives one; none at the end of the stream, which means that the keeper is gone.
    pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<Report>> {
        let Some((packet, _)) = receive(socket)? else { return Ok(None) };
        let mut fields = Fields(&packet);
        let report = match fields.byte()? {
            b'r' => Report::Ready,
            b's' => Report::NotStarted { id: fields.u64()?, errno: fields.i32()? },
            b'f' => {
                let (id, how, asked, number) =
                    (fields.u64()?, fields.byte()?, fields.byte()? != 0, fields.i32()?);
                let exit = if how == 0 { Exit::Code(number) } else { Exit::Signal(number) };
                Report::Finished { id, exit, asked, killed: fields.roll()? }
            }
            b'n' => Report::NotEnded { id: fields.u64()?, remaining: fields.roll()? },
            _ => return Err(malformed()),
        };
        Ok(Some(report))
    }
}

fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    // A field longer than 4 GiB could not be executed either: its reader finds the length wrong.
    bytes.extend(u32::try_from(field.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(field);
}

fn put_roll(packet: &mut Vec<u8>, roll: &Roll) {
    packet.extend(roll.count.to_le_bytes());
    for one in &roll.named {
        packet.extend(one.pid.to_le_bytes());
        put(packet, one.name.as_bytes());
    }
}

/// A reader of fields that never looks past the end.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| malformed())
    }

    fn byte(&mut self) -> io::Result<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> io::Result<i32> {
        self.array().map(i32::from_le_bytes)
    }

    fn text(&mut self) -> io::Result<&'a OsStr> {
        let length = usize::try_from(self.u32()?).map_err(|_| malformed())?;
        self.take(length).map(OsStr::from_bytes)
    }

    fn roll(&mut self) -> io::Result<Roll> {
        let mut roll = Roll { named: Vec::new(), count: self.u32()? };
        while !self.0.is_empty() {
            let pid = self.i32()?;
            let name = String::from_utf8_lossy(self.text()?.as_bytes()).into_owned();
            roll.named.push(Killed { pid, name });
        }
        Ok(roll)
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed packet")
}

fn send(socket: impl AsFd, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<RawFd> = descriptors.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let socket = socket.as_fd().as_raw_fd();
    sendmsg::<()>(socket, &[IoSlice::new(packet)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

fn receive(socket: impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut packet = vec![0; PACKET];
    let mut space = nix::cmsg_space!([RawFd; DESCRIPTORS]);
    let (length, descriptors) = {
        let mut parts = [IoSliceMut::new(&mut packet)];
        let socket = socket.as_fd().as_raw_fd();
        let message = recvmsg::<()>(socket, &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
        let mut descriptors = Vec::new();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = control {
                // SAFETY: the kernel has just made these descriptors for us, and nobody else knows them.
                descriptors.extend(raw.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }));
            }
        }
        (message.bytes, descriptors)
    };
    packet.truncate(length);
    Ok(if length == 0 { None } else { Some((packet, descriptors)) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    #[test]
    fn scripts_of_any_bytes_and_size_survive() {
        let mut env = Environment::empty();
        env.set("BIG", "x".repeat(3 << 20)).set("EMPTY", "");
        env.set("BYTES", OsString::from_vec(vec![0xff, b'\n', b'=']));
        let file = Script::to_file("echo é\n", Path::new("/tmp"), &env).unwrap();
        let read = Script::from_file(&file).unwrap();
        assert_eq!(read, Script { shell: "echo é\n".into(), cwd: "/tmp".into(), env });
    }

    #[test]
    fn a_torn_script_is_an_error() {
        let file = Script::to_file("true", Path::new("/"), &Environment::empty()).unwrap();
        let whole = file.metadata().unwrap().len();
        for length in (0..whole).rev() {
            file.set_len(length).unwrap();
            assert!(Script::from_file(&file).is_err(), "{length} of {whole} bytes");
        }
    }

    #[test]
    fn orders_carry_their_descriptors() {
        let (ours, theirs) = pair();
        let (read, write) = nix::unistd::pipe().unwrap();
        Order::Run { id: 7 }.send(&ours, &[write.as_fd()]).unwrap();
        Order::End { id: 7 }.send(&ours, &[]).unwrap();
        drop((ours, write));
        let (order, descriptors) = Order::receive(&theirs).unwrap().unwrap();
        assert_eq!((order, descriptors.len()), (Order::Run { id: 7 }, 1));
        nix::unistd::write(&descriptors[0], b"!").unwrap();
        assert_eq!(nix::unistd::read(&read, &mut [0; 8]).unwrap(), 1);
        assert_eq!(Order::receive(&theirs).unwrap().unwrap().0, Order::End { id: 7 });
        assert!(Order::receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn reports_read_back_as_they_were_sent() {
        let named = (0..32).map(|pid| Killed { pid, name: r"\xff".repeat(15) }).collect();
        let roll = Roll { named, count: 4_000 };
        let (ours, theirs) = pair();
        for report in [
            Report::Ready,
            Report::NotStarted { id: 1, errno: 7 },
            Report::Finished { id: u64::MAX, exit: Exit::Code(-1), asked: true, killed: Roll::default() },
            Report::Finished { id: 2, exit: Exit::Signal(9), asked: false, killed: roll.clone() },
            Report::NotEnded { id: 3, remaining: roll },
        ] {
            report.send(&theirs).unwrap();
            assert_eq!(Report::receive(&ours).unwrap(), Some(report));
        }
    }
}

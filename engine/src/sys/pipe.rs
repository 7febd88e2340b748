//! Turns the write end of a pipe that a child holds into bytes as they come.
//! It refuses to know which stream it is, and never needs an end of file to be done.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How much is read at once: what a pipe holds.
pub(super) const CHUNK: usize = 64 * 1024;

/// The read end of a pipe.
#[derive(Debug)]
pub(super) struct Outlet {
    end: AsyncFd<OwnedFd>,
    ended: bool,
}

/// A pipe: our end, and the end for the child. Both close on exec. Must be called inside the runtime.
pub(super) fn pair() -> io::Result<(Outlet, OwnedFd)> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((Outlet { end: watch(read)?, ended: false }, write))
}

/// Makes a descriptor one whose input can be waited for. Must be called inside the runtime.
pub(super) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open, and stays the same open descriptor, for as long as it lives.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

impl Outlet {
    /// Waits for bytes, and gives at least one. After the end of the stream it waits for ever.
    /// Safe to cancel: what was not returned was not read.
    pub(super) async fn read<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        while !self.ended {
            let mut ready = self.end.readable().await?;
            match ready.try_io(|end| Ok(nix::unistd::read(end.get_ref(), buffer)?)) {
                Ok(Ok(0)) => self.ended = true,
                Ok(Ok(length)) => return Ok(buffer.get(..length).unwrap_or_default()),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
        std::future::pending().await
    }

    /// Gives what is in the pipe at this moment, without waiting. The descriptor may have been passed to a
    /// stranger that goes on writing, so what comes later is not read.
    pub(super) fn drain(&mut self, buffer: &mut [u8], mut sink: impl FnMut(&[u8])) -> io::Result<()> {
        // The runtime's notion of readiness may be older than the data, so it is not asked.
        let mut left = self.waiting()?;
        while left > 0 {
            let limit = left.min(buffer.len());
            let part = buffer.get_mut(..limit).unwrap_or_default();
            match nix::unistd::read(self.end.get_ref(), part) {
                Ok(0) | Err(Errno::EAGAIN) => break,
                Ok(length) => {
                    sink(part.get(..length).unwrap_or_default());
                    left -= length;
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// How many bytes are in the pipe.
    pub(super) fn waiting(&self) -> io::Result<usize> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD writes one int, and `bytes` is one.
        let done = unsafe { libc::ioctl(self.end.get_ref().as_raw_fd(), libc::FIONREAD, &mut bytes) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(usize::try_from(bytes).unwrap_or(0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn drain_takes_what_is_there_while_a_writer_stays() {
        let (mut outlet, write) = pair().unwrap();
        let mut buffer = vec![0; 4];
        nix::unistd::write(&write, b"first second").unwrap();
        assert_eq!(outlet.read(&mut buffer).await.unwrap(), b"firs");
        let mut rest = Vec::new();
        outlet.drain(&mut buffer, |bytes| rest.extend_from_slice(bytes)).unwrap();
        assert_eq!(rest, b"t second");
        outlet.drain(&mut buffer, |_| panic!("the pipe is empty")).unwrap();
        drop(write);
    }
}

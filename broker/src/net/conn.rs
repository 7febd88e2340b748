//! Turns a stream into a stream with what has been read of it and not yet used.
//! It refuses to know what the bytes mean.

use std::io;
use std::time::Duration;

use policy::reason::Reason;
use rustix::net::Shutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How many bytes are read at once.
pub(crate) const CHUNK: usize = 16 * 1024;
/// How long a refused client may take to read its answer.
const LINGER: Duration = Duration::from_secs(2);
/// How much of what a refused client still sends is read away, so that its answer is not lost to a reset.
const DRAIN: usize = 256 * 1024;

/// A stream and its unused bytes.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: TcpStream,
    pub(crate) buf: Vec<u8>,
}

impl Conn {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, buf: Vec::new() }
    }

    /// Reads more bytes; 0 is the other end's end.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        self.buf.reserve(CHUNK.min(4096));
        self.stream.read_buf(&mut self.buf).await
    }

    /// Takes the first bytes away.
    pub(crate) fn consume(&mut self, count: usize) {
        self.buf.drain(..count.min(self.buf.len()));
        if self.buf.is_empty() && self.buf.capacity() > CHUNK {
            self.buf = Vec::new();
        }
    }

    /// Reads until `read` finds what it looks for; `None` when the other end ends first.
    ///
    /// # Errors
    /// What `read` says, or `late` when it takes longer than `limit`.
    pub(crate) async fn until<T, E: From<Reason>>(
        &mut self,
        limit: Duration,
        late: Reason,
        mut read: impl FnMut(&[u8]) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let reading = async {
            loop {
                if let Some(found) = read(&self.buf)? {
                    return Ok(Some(found));
                }
                match self.fill().await {
                    Ok(0) | Err(_) => return Ok(None),
                    Ok(_) => {}
                }
            }
        };
        timeout(limit, reading).await.unwrap_or_else(|_| Err(late.into()))
    }

    /// Sends a last answer, and reads away for a while what the client still sends.
    pub(crate) async fn farewell(mut self, answer: &[u8]) {
        let goodbye = async {
            self.stream.write_all(answer).await?;
            rustix::net::shutdown(&self.stream, Shutdown::Write)?;
            let mut left = DRAIN;
            let mut buf = vec![0; 4096];
            while left > 0 {
                match self.stream.read(&mut buf).await? {
                    0 => break,
                    count => left = left.saturating_sub(count),
                }
            }
            io::Result::Ok(())
        };
        // A client that is gone needs no answer.
        let _ = timeout(LINGER, goodbye).await;
    }
}

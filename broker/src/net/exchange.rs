//! Turns one plain HTTP request of a client into one at its server, and the answer back, both as strict as they came in.
//! It refuses to decide and to dial: it gets a connection that was permitted.

use std::io;
use std::pin::pin;
use std::time::Duration;

use policy::reason::Reason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::conn::{CHUNK, Conn};
use crate::core::body::Body;
use crate::core::fields::Framing;
use crate::core::response;
use crate::limits::Limits;

/// A request as it goes upstream.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: String,
    /// The head, written anew.
    pub(crate) head: Vec<u8>,
    pub(crate) framing: Framing,
    /// Whether the client's connection goes on.
    pub(crate) keep: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Exchanged {
    pub(crate) up: u64,
    pub(crate) down: u64,
    /// Why it is not whole, where it is not.
    pub(crate) reason: Option<Reason>,
    /// Whether a byte of an answer reached the client.
    pub(crate) answered: bool,
    /// Whether the server's connection may be used again: only after everything was read and sent (row 49).
    pub(crate) server_keeps: bool,
    /// Whether the client's may.
    pub(crate) client_keeps: bool,
    /// Whether the server answered before it had the whole request.
    pub(crate) early: bool,
}

/// A direction with its stream, its unread bytes and its limits.
struct Side<'a, 'b> {
    from: ReadHalf<'a>,
    buf: &'b mut Vec<u8>,
    to: WriteHalf<'a>,
    idle: Duration,
    count: u64,
}

/// Sends the request and its body, and brings the answer back while the body still flows.
pub(crate) async fn exchange(
    client: &mut Conn,
    server: &mut Conn,
    out: &Outgoing,
    limits: &Limits,
) -> Exchanged {
    let (client_read, client_write) = client.stream.split();
    let (server_read, server_write) = server.stream.split();
    let idle = Limits::time(limits.idle_timeout);
    let mut up = Side { from: client_read, buf: &mut client.buf, to: server_write, idle, count: 0 };
    let mut down = Side { from: server_read, buf: &mut server.buf, to: client_write, idle, count: 0 };
    let mut answered = false;
    let mut sent = None;
    let received = {
        let mut sending = pin!(up.send(out));
        let mut receiving = pin!(down.receive(out, limits, &mut answered));
        loop {
            tokio::select! {
                result = &mut receiving => break result,
                result = &mut sending, if sent.is_none() => {
                    let broken = matches!(result, Err(reason) if reason != Reason::UpstreamClosed);
                    sent = Some(result);
                    if broken {
                        break Err(result.err().unwrap_or(Reason::BodyMalformed));
                    }
                }
            }
        }
    };
    let whole = matches!(sent, Some(Ok(())));
    let (up, down) = (up.count, down.count);
    match received {
        Ok(keeps) => Exchanged {
            up,
            down,
            reason: None,
            answered,
            server_keeps: keeps && whole,
            client_keeps: out.keep && whole,
            early: !whole,
        },
        Err(reason) => Exchanged { up, down, reason: Some(reason), answered, ..Exchanged::default() },
    }
}

impl Side<'_, '_> {
    async fn send(&mut self, out: &Outgoing) -> Result<(), Reason> {
        self.write(&out.head).await.map_err(|_| Reason::UpstreamClosed)?;
        let ended = self.body(Body::new(out.framing), Reason::BodyMalformed, Reason::UpstreamClosed).await?;
        if ended { Ok(()) } else { Err(Reason::BodyMalformed) }
    }

    /// Passes the answer on; tells whether the server's connection may go on.
    async fn receive(
        &mut self,
        out: &Outgoing,
        limits: &Limits,
        answered: &mut bool,
    ) -> Result<bool, Reason> {
        loop {
            let waiting = self.head(&out.method, Limits::size(limits.head_size));
            let limit = Limits::time(limits.answer_timeout);
            let (length, status, framing, keeps) =
                timeout(limit, waiting).await.map_err(|_| Reason::UpstreamLate)??;
            let head = {
                let read = response::read(self.buf, &out.method, Limits::size(limits.head_size))?;
                let (response, _) = read.ok_or(Reason::UpstreamMalformed)?;
                let mut head = Vec::with_capacity(length + 32);
                response.write(out.keep && framing != Framing::Close, &mut head);
                head
            };
            // An upgrade was never asked for, so a server that switches speaks something that nobody judged.
            if status == 101 {
                return Err(Reason::UpstreamMalformed);
            }
            self.buf.drain(..length);
            *answered |= status >= 200;
            self.write(&head).await.map_err(|_| Reason::Ending)?;
            if status < 200 {
                continue;
            }
            let ended = self.body(Body::new(framing), Reason::UpstreamMalformed, Reason::Ending).await?;
            return if ended { Ok(keeps && self.buf.is_empty()) } else { Err(Reason::UpstreamClosed) };
        }
    }

    /// Reads until a head is whole: its length, status, framing and whether the connection goes on.
    async fn head(&mut self, method: &str, max: usize) -> Result<(usize, u16, Framing, bool), Reason> {
        loop {
            if let Some((head, length)) = response::read(self.buf, method, max)? {
                return Ok((length, head.status, head.framing, head.keeps()));
            }
            if self.fill().await.map_err(|_| Reason::UpstreamClosed)? == 0 {
                return Err(Reason::UpstreamClosed);
            }
        }
    }

    /// Passes a body on; tells whether it came to its end. One that is cut short ends the connection with no terminator
    /// of ours (row 76).
    async fn body(&mut self, mut body: Body, malformed: Reason, broken: Reason) -> Result<bool, Reason> {
        while !body.is_done() {
            if self.buf.is_empty() {
                let read = timeout(self.idle, self.fill()).await.map_err(|_| Reason::Idle)?;
                if matches!(read, Ok(0) | Err(_)) {
                    return Ok(body.is_endless() && read.is_ok());
                }
            }
            let count = body.take(self.buf).map_err(|_| malformed)?;
            let bytes = std::mem::take(self.buf);
            let written = self.write(bytes.get(..count).unwrap_or_default()).await;
            *self.buf = bytes;
            self.buf.drain(..count);
            written.map_err(|_| broken)?;
        }
        Ok(true)
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.buf.reserve(CHUNK);
        self.from.read_buf(self.buf).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.count += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match timeout(self.idle, self.to.write_all(bytes)).await {
            Ok(result) => result,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

//! Turns two streams into one tunnel until both directions have ended, and counts what flows.
//! It refuses to look into the bytes.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use policy::reason::Reason;
use rustix::net::Shutdown;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::admit::Sandbox;
use crate::limits::Limits;

/// The most bytes that are moved at once; one buffer serves every tunnel, so an idle one holds none.
const SCRATCH: usize = 64 * 1024;
/// How many times one direction moves bytes before the other gets its turn.
const TURNS: usize = 16;

thread_local! {
    static SHARED: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH]);
}

/// What flowed, and what ended it where it was not its ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flowed {
    pub(crate) up: u64,
    pub(crate) down: u64,
    pub(crate) reason: Option<Reason>,
}

/// One direction.
#[derive(Debug, Default)]
struct Flow {
    /// Read and not yet written.
    left: Vec<u8>,
    count: u64,
    ended: bool,
    done: bool,
}

/// Moves bytes both ways. `up` is written first: what was read while the tunnel was judged. An end in one direction is
/// passed on and the other stays open (row 82).
pub(crate) async fn splice(client: &TcpStream, server: &TcpStream, up: Vec<u8>, sandbox: &Sandbox) -> Flowed {
    let limits = *sandbox.limits();
    let begun = Instant::now();
    let up = if up.is_empty() { Vec::new() } else { up };
    let mut flows = (Flow { left: up, ..Flow::default() }, Flow::default());
    let mut last = begun;
    let idle = Limits::time(limits.idle_timeout);
    let aged = begun + Limits::time(limits.age);
    let mut clock = std::pin::pin!(sleep_until((begun + idle).min(aged)));
    let moving = poll_fn(|cx| {
        let before = flows.0.count + flows.1.count;
        let ended = moved(cx, &mut flows, client, server);
        let now = flows.0.count + flows.1.count;
        if now > before {
            last = Instant::now();
            if sandbox.bytes.add(now - before) > limits.bytes {
                return Poll::Ready(Some(Reason::TooManyBytes));
            }
        }
        match ended {
            Ok(true) | Err(_) => Poll::Ready(None),
            Ok(false) => watch(cx, clock.as_mut(), last + idle, aged).map(Some),
        }
    });
    let reason = tokio::select! {
        biased;
        () = sandbox.ended() => Some(Reason::Ending),
        reason = moving => reason,
    };
    Flowed { up: flows.0.count, down: flows.1.count, reason }
}

/// Moves what can be moved; tells whether both directions are done.
fn moved(
    cx: &mut Context<'_>,
    flows: &mut (Flow, Flow),
    client: &TcpStream,
    server: &TcpStream,
) -> io::Result<bool> {
    let (up, down) = flows;
    for (flow, from, to) in [(up, client, server), (down, server, client)] {
        if let Poll::Ready(result) = flow.step(cx, from, to) {
            result?;
        }
    }
    Ok(flows.0.done && flows.1.done)
}

/// Waits for the nearer of the two ends; the clock is set anew only when it has rung.
fn watch(cx: &mut Context<'_>, mut clock: Pin<&mut Sleep>, idle: Instant, aged: Instant) -> Poll<Reason> {
    loop {
        ready!(Future::poll(clock.as_mut(), cx));
        let now = Instant::now();
        if now >= aged {
            return Poll::Ready(Reason::Aged);
        }
        if now >= idle {
            return Poll::Ready(Reason::Idle);
        }
        clock.as_mut().reset(idle.min(aged));
    }
}

impl Flow {
    fn step(&mut self, cx: &mut Context<'_>, from: &TcpStream, to: &TcpStream) -> Poll<io::Result<()>> {
        for _ in 0..TURNS {
            if self.done {
                return Poll::Ready(Ok(()));
            }
            if !self.left.is_empty() {
                ready!(self.write_left(cx, to))?;
            } else if self.ended {
                rustix::net::shutdown(to, Shutdown::Write)?;
                self.done = true;
            } else {
                ready!(from.poll_read_ready(cx))?;
                SHARED.with_borrow_mut(|buf| self.pass(buf, from, to))?;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn write_left(&mut self, cx: &mut Context<'_>, to: &TcpStream) -> Poll<io::Result<()>> {
        ready!(to.poll_write_ready(cx))?;
        if let Some(count) = would(to.try_write(&self.left))? {
            self.left.drain(..count);
            self.count += u64::try_from(count).unwrap_or(u64::MAX);
        }
        if self.left.is_empty() {
            self.left = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once and writes it at once; only what the other side does not take is kept.
    fn pass(&mut self, buf: &mut [u8], from: &TcpStream, to: &TcpStream) -> io::Result<()> {
        let Some(count) = would(from.try_read(buf))? else { return Ok(()) };
        self.ended = count == 0;
        let bytes = buf.get(..count).unwrap_or_default();
        let written = if bytes.is_empty() { 0 } else { would(to.try_write(bytes))?.unwrap_or(0) };
        self.count += u64::try_from(written).unwrap_or(u64::MAX);
        self.left = bytes.get(written..).unwrap_or_default().to_vec();
        Ok(())
    }
}

fn would(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

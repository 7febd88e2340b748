//! Turns one connection into requests and their answers, until the client goes or is cut off (contract §7.1).
//! It refuses to know what kind of socket it is, and to keep more of a client than one line and one piece.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf, split,
};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::desk::{Counter, Delivered};
use super::follow::Follow;
use super::limits::{AUTH, FAULTS_MAX, IDLE, LINE_MAX, SLOW};
use super::protocol::{Reply, Request, parse};
use super::seats::Seat;
use super::status::Status;
use crate::admission::{Admission, Input, Key};

/// What every conversation needs.
#[derive(Debug)]
pub struct Shared {
    /// The way to the ledger.
    pub counter: Counter,
    /// Where the run stands. It changes with each line of the log.
    pub status: watch::Receiver<Status>,
    /// `session.jsonl`
    pub log: PathBuf,
    /// The digest of the token, where one is asked for.
    pub token: Option<[u8; 32]>,
    /// The last line of the log is written.
    pub over: CancellationToken,
}

/// Why a conversation ends.
#[derive(Debug)]
enum End {
    /// The client went away, or was told to.
    Gone,
    /// A line was too long.
    TooLong,
    /// Too many lines were no request.
    Faults,
    /// The token is not the one.
    Stranger,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Gone
    }
}

/// Serves one client to its end. `known` is whether it need not show a token.
pub async fn converse<S: AsyncRead + AsyncWrite>(stream: S, shared: Arc<Shared>, seat: Seat, known: bool) {
    let leave = seat.leave.clone();
    let (reader, writer) = split(stream);
    let reader = BufReader::with_capacity(4096, reader);
    let mut talk = Talk { reader, writer, line: Vec::new(), shared, seat, known, faults: 0 };
    tokio::select! {
        biased;
        () = leave.cancelled() => {}
        end = talk.serve() => if let Err(end) = end { talk.part(&end).await },
    }
}

struct Talk<S> {
    reader: BufReader<ReadHalf<S>>,
    writer: WriteHalf<S>,
    line: Vec<u8>,
    shared: Arc<Shared>,
    seat: Seat,
    known: bool,
    faults: u32,
}

impl<S: AsyncRead + AsyncWrite> Talk<S> {
    async fn serve(&mut self) -> Result<(), End> {
        loop {
            let patience = if self.known { IDLE } else { AUTH };
            let over = self.shared.over.clone();
            tokio::select! {
                biased;
                () = over.cancelled() => return Ok(()),
                line = timeout(patience, self.read_line()) => line.map_err(|_| End::Gone)??,
            }
            self.seat.heard();
            let line = std::mem::take(&mut self.line);
            if line.trim_ascii().is_empty() {
                continue;
            }
            match parse(&line) {
                Ok(request) => self.answer(request).await?,
                Err(_) if !self.known => return Err(End::Stranger),
                Err((cmd, error)) => {
                    self.send(&Reply::refused(cmd, error.to_string())).await?;
                    self.faults = self.faults.saturating_add(1);
                    if self.faults >= FAULTS_MAX {
                        return Err(End::Faults);
                    }
                }
            }
        }
    }

    /// Reads up to the next line feed, of a line that is not too long.
    async fn read_line(&mut self) -> Result<(), End> {
        self.line.clear();
        loop {
            let some = self.reader.fill_buf().await?;
            if some.is_empty() {
                return Err(End::Gone);
            }
            let end = some.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(some.len(), |end| end.saturating_add(1));
            self.line.extend_from_slice(some.get(..taken).unwrap_or_default());
            self.reader.consume(taken);
            if self.line.len() > LINE_MAX {
                return Err(End::TooLong);
            }
            if end.is_some() {
                return Ok(());
            }
        }
    }

    async fn answer(&mut self, request: Request) -> Result<(), End> {
        match request {
            Request::Auth { token } => {
                let digest: [u8; 32] = Sha256::digest(token).into();
                // Digests are compared, so that the time it takes tells nothing of the token.
                if self.shared.token.is_some_and(|expected| expected != digest) {
                    return Err(End::Stranger);
                }
                self.known = true;
                self.seat.known();
                self.send(&Reply::done("auth")).await
            }
            _ if !self.known => Err(End::Stranger),
            Request::Status => self.tell_status().await,
            Request::Tail { from, follow } => self.tail(from, follow).await,
            Request::Input { key, input } => self.deliver(key, input).await,
        }
    }

    async fn deliver(&mut self, key: Option<Key>, input: Input) -> Result<(), End> {
        let cmd = input.command().token();
        let reply = match self.shared.counter.deliver(key, input).await {
            Ok(Delivered { key, admission, unrecorded }) => Reply {
                key: (!unrecorded).then(|| key.to_string()),
                dup: admission != Admission::New,
                outcome: match admission {
                    Admission::Again(outcome) => outcome,
                    Admission::New => None,
                },
                unrecorded,
                ..Reply::done(cmd)
            },
            Err(error) => Reply::refused(Some(cmd.to_owned()), error.to_string()),
        };
        self.send(&reply).await
    }

    async fn tell_status(&mut self) -> Result<(), End> {
        let status = self.shared.status.borrow().clone();
        let status = self.shared.counter.complete(status).await.ok_or(End::Gone)?;
        let Ok(Value::Object(fields)) = serde_json::to_value(status) else { return Err(End::Gone) };
        let mut reply = serde_json::Map::new();
        reply.insert("ok".to_owned(), Value::Bool(true));
        reply.insert("cmd".to_owned(), Value::from("status"));
        reply.extend(fields);
        self.send(&reply).await
    }

    /// Sends lines of the log as they stand there. From here on the connection is for nothing else.
    async fn tail(&mut self, from: Option<u64>, follow: bool) -> Result<(), End> {
        let mut status = self.shared.status.clone();
        let next = status.borrow_and_update().seq.saturating_add(1);
        let mut log = match from {
            Some(_) => Follow::at_start(&self.shared.log),
            None => Follow::at_end(&self.shared.log),
        }?;
        self.send(&Reply { from: from.or(Some(next)), ..Reply::done("tail") }).await?;
        if let Some(from) = from {
            while !log.seek(from)? {
                tokio::task::yield_now().await;
            }
        }
        self.seat.follows();
        loop {
            let over = self.shared.over.is_cancelled();
            while let Some(piece) = log.piece()? {
                send(&mut self.writer, piece, SLOW).await?;
            }
            if !follow || over {
                return Err(End::Gone);
            }
            tokio::select! {
                changed = status.changed() => changed.map_err(|_| End::Gone)?,
                () = self.shared.over.cancelled() => {}
                _ = self.reader.fill_buf() => return Err(End::Gone),
            }
        }
    }

    async fn send<T: serde::Serialize>(&mut self, reply: &T) -> Result<(), End> {
        let mut line = serde_json::to_vec(reply).map_err(|_| End::Gone)?;
        line.push(b'\n');
        send(&mut self.writer, &line, SLOW).await
    }

    /// A last word to who is cut off, as far as it is read at once.
    async fn part(&mut self, end: &End) {
        let why = match end {
            End::Gone => return,
            End::TooLong => format!("a line has more than {LINE_MAX} bytes"),
            End::Faults => format!("{FAULTS_MAX} lines were no request"),
            End::Stranger => {
                "the first line must be {\"cmd\":\"auth\",\"token\":…}, with the token".to_owned()
            }
        };
        let _ = self.send(&Reply::refused(None, why)).await;
    }
}

/// Sends a piece to a client that reads it within `patience`.
async fn send(writer: &mut (impl AsyncWrite + Unpin), piece: &[u8], patience: Duration) -> Result<(), End> {
    let sending = async {
        writer.write_all(piece).await?;
        writer.flush().await
    };
    Ok(timeout(patience, sending).await.map_err(|_| End::Gone)??)
}

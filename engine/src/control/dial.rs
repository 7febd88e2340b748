//! Turns a state directory or an address into a connection to the run that is live there (contract §7.1).
//! It refuses to know what is asked.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::server::SOCKET_FILE;
use crate::sys::socket;

/// How long the run may take to answer. It answers from a thread that does nothing else.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const ANSWER_MAX: u64 = 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody listens.
    #[error("reach a run at {place}: no run is live there")]
    NotLive {
        /// The state directory or address.
        place: String,
    },
    /// The connection broke.
    #[error("speak to the run")]
    Io(#[from] io::Error),
    /// What came back is no answer.
    #[error("understand the run's answer")]
    Answer(#[from] serde_json::Error),
    /// The run ended the conversation.
    #[error("get an answer: the run closed the connection")]
    Closed,
    /// The run says no.
    #[error("{}: {why}", .cmd.as_deref().unwrap_or("speak to the run"))]
    Refused {
        /// What was asked for.
        cmd: Option<String>,
        /// Why not.
        why: String,
    },
}

/// Where a run can be spoken to.
#[derive(Debug, Clone)]
pub enum Place {
    /// The socket in a state directory.
    State(PathBuf),
    /// A loopback address, and the token.
    Tcp(SocketAddr, String),
}

/// A connection to a live run.
pub struct Dial {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dial").finish_non_exhaustive()
    }
}

/// That there is no socket, or nobody behind it, is one thing to a person.
fn unreached(place: String, error: io::Error) -> DialError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory => {
            DialError::NotLive { place }
        }
        _ => error.into(),
    }
}

impl Dial {
    /// Connects, and shows the token where there is one.
    ///
    /// # Errors
    /// [`DialError::NotLive`] when nobody listens there.
    pub fn to(place: &Place) -> Result<Dial, DialError> {
        match place {
            Place::State(state_dir) => Dial::unix(&state_dir.join(SOCKET_FILE)),
            Place::Tcp(address, token) => Dial::tcp(*address, token),
        }
    }

    fn unix(path: &Path) -> Result<Dial, DialError> {
        let place = path.parent().unwrap_or(path).display().to_string();
        let stream = socket::connect(path).map_err(|error| unreached(place, error))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let reader: Box<dyn Read + Send> = Box::new(stream.try_clone()?);
        Ok(Dial { reader: BufReader::new(reader), writer: Box::new(stream) })
    }

    fn tcp(address: SocketAddr, token: &str) -> Result<Dial, DialError> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE);
        let stream = stream.map_err(|error| unreached(address.to_string(), error))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let reader: Box<dyn Read + Send> = Box::new(stream.try_clone()?);
        let mut dial = Dial { reader: BufReader::new(reader), writer: Box::new(stream) };
        dial.ask(&json!({ "cmd": "auth", "token": token }))?;
        Ok(dial)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// [`DialError::Refused`] where the run says no.
    pub fn ask(&mut self, request: &Value) -> Result<Value, DialError> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.writer.write_all(&line)?;
        let mut answer = Vec::new();
        (&mut self.reader).take(ANSWER_MAX).read_until(b'\n', &mut answer)?;
        if answer.is_empty() {
            return Err(DialError::Closed);
        }
        let answer: Value = serde_json::from_slice(&answer)?;
        if answer.get("ok") == Some(&Value::Bool(true)) {
            return Ok(answer);
        }
        let text = |name| answer.get(name).and_then(Value::as_str).map(str::to_owned);
        Err(DialError::Refused { cmd: text("cmd"), why: text("error").unwrap_or_default() })
    }

    /// Hands on what comes from here on, as it comes, until the run ends or `take` fails. A run may say nothing for
    /// any length of time.
    ///
    /// # Errors
    /// Of `take`; a connection that breaks is an end.
    pub fn drain(mut self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        loop {
            let piece = match self.reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    continue;
                }
                Err(_) => return Ok(()),
            };
            let length = piece.len();
            if length == 0 {
                return Ok(());
            }
            take(piece)?;
            self.reader.consume(length);
        }
    }
}

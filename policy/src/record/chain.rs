//! Turns records into numbered lines of which each carries the hash of the one before, and a file of them into a proof or a
//! fault. It refuses to know where the lines are kept, and how a file came to end within a line.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Record, Torn};
use crate::egress::hex;

/// The version of a line.
const VERSION: u32 = 1;

/// The end of a chain: what the run's summary keeps, so that lines missing at the end show too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last line; 0 before the first.
    pub seq: u64,
    /// SHA-256 of the last line without its line feed, in hex; 64 zeros before the first.
    pub hash: String,
}

/// The place where the next line goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    head: Head,
}

/// What stands at the start of every line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Line {
    /// The version of the line.
    pub v: u32,
    /// Its number, from 1.
    pub seq: u64,
    /// RFC 3339, UTC.
    pub ts: String,
    /// The hash of the line before.
    pub prev: String,
    /// The kind of record; readers skip those they do not know.
    pub kind: String,
}

/// Where a file departs from what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub kind: FaultKind,
}

/// How a file departs from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// No line of this format: torn or overwritten.
    Unreadable,
    /// This many records are missing before it.
    Missing(u64),
    /// It stands where an earlier one does not belong.
    Reordered,
    /// The line before it is not the one that it follows: that one was altered.
    AlteredBefore,
    /// It tells of torn bytes, and they are not before it.
    NotTorn,
    /// The file ends before, after, or otherwise than the head says.
    Head,
}

/// What a file holds that has no fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Where it ends.
    pub head: Head,
    /// Where writing was cut off within a line, in order.
    pub tears: Vec<Tear>,
}

/// Bytes that are no record because their writer died while it wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tear {
    /// The line that they begin, from 1.
    pub line: usize,
    /// How many they are.
    pub bytes: usize,
    /// Whether the record after them tells of them; otherwise the file ends with them.
    pub told: bool,
}

/// A file that is to be gone on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// What must be appended before anything else, in one write; empty where the file ends in a whole line.
    pub append: Vec<u8>,
    /// Where the file ends after that.
    pub head: Head,
}

impl Default for Chain {
    fn default() -> Self {
        Self { head: Head { seq: 0, hash: "0".repeat(64) } }
    }
}

impl Chain {
    /// Goes on after a head.
    pub fn after(head: Head) -> Self {
        Self { head }
    }

    /// The end so far.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Makes the next line, with its line feed; the chain then ends in it. `ts` is RFC 3339, UTC.
    ///
    /// # Errors
    /// When the record has no JSON form.
    pub fn seal(&mut self, ts: &str, record: &Record) -> Result<Vec<u8>, serde_json::Error> {
        let body = serde_json::to_vec(record)?;
        let seq = self.head.seq.saturating_add(1);
        let mut line = Vec::with_capacity(body.len() + 160);
        line.extend_from_slice(format!("{{\"v\":{VERSION},\"seq\":{seq},\"ts\":").as_bytes());
        serde_json::to_writer(&mut line, ts)?;
        line.extend_from_slice(format!(",\"prev\":\"{}\",", self.head.hash).as_bytes());
        line.extend_from_slice(body.get(1..).unwrap_or_default());
        self.head = Head { seq, hash: hash(&line) };
        line.push(b'\n');
        Ok(line)
    }
}

fn hash(line: &[u8]) -> String {
    hex(&Sha256::digest(line))
}

/// Checks a whole file. With `expected` its last record must be that one.
///
/// # Errors
/// The first fault. Bytes at the end, or told of by the record after them, that a writer can have left that died while it
/// wrote a line are none: they are in the proof.
pub fn verify(text: &[u8], expected: Option<&Head>) -> Result<Proof, Fault> {
    let walk = Walk::through(text)?;
    let line = walk.line;
    let tail = walk.tail.map(|tail| Tear { line: tail.line, bytes: text.len() - tail.start, told: false });
    let proof = Proof { head: walk.chain.head, tears: walk.tears.into_iter().chain(tail).collect() };
    match expected {
        Some(head) if *head != proof.head => Err(Fault { line, kind: FaultKind::Head }),
        _ => Ok(proof),
    }
}

/// Checks a whole file, and says how it is gone on with: a torn end is kept, ended, and told of by a record. `ts` is RFC 3339,
/// UTC.
///
/// # Errors
/// The first fault.
pub fn resume(text: &[u8], ts: &str) -> Result<Resumed, Fault> {
    let Walk { mut chain, tail, line, .. } = Walk::through(text)?;
    let mut append = Vec::new();
    if let Some(tail) = tail {
        let torn = Torn::of(text.get(tail.start..).unwrap_or_default());
        append.push(b'\n');
        // A record of two plain values has a JSON form; without one the file could not be gone on with.
        let sealed = chain.seal(ts, &Record::Torn(torn));
        append.extend(sealed.map_err(|_| Fault { line, kind: FaultKind::Unreadable })?);
    } else if text.last().is_some_and(|last| *last != b'\n') {
        append.push(b'\n');
    }
    Ok(Resumed { append, head: chain.head })
}

/// The lines of a file so far.
#[derive(Default)]
struct Walk {
    chain: Chain,
    /// The line that was looked at last, from 1.
    line: usize,
    tears: Vec<Tear>,
    tail: Option<Tail>,
}

/// Bytes that are no record, up to the place that is looked at.
#[derive(Clone, Copy)]
struct Tail {
    line: usize,
    start: usize,
    /// Whether some of it has a line feed and is no record cut short: no crash at the file's end leaves that.
    odd: bool,
}

impl Walk {
    fn through(text: &[u8]) -> Result<Self, Fault> {
        let mut walk = Self::default();
        let mut start = 0;
        for piece in text.split_inclusive(|byte| *byte == b'\n') {
            walk.line = walk.line.saturating_add(1);
            let whole = piece.strip_suffix(b"\n");
            match read(whole.unwrap_or(piece)) {
                Ok(line) => walk.record(&line, piece, text, start)?,
                Err(unlike) => {
                    let tail = walk.tail.get_or_insert(Tail { line: walk.line, start, odd: false });
                    tail.odd |= unlike == Unlike::Other && whole.is_some();
                }
            }
            start += piece.len();
        }
        match walk.tail {
            Some(Tail { line, odd: true, .. }) => Err(Fault { line, kind: FaultKind::Unreadable }),
            _ => Ok(walk),
        }
    }

    fn fault(&self, kind: FaultKind) -> Fault {
        Fault { line: self.line, kind }
    }

    /// Takes a record that starts at `start`.
    fn record(&mut self, read: &Line, piece: &[u8], text: &[u8], start: usize) -> Result<(), Fault> {
        let next = self.chain.head.seq.saturating_add(1);
        if read.seq > next {
            return Err(self.fault(FaultKind::Missing(read.seq - next)));
        }
        if read.seq < next {
            return Err(self.fault(FaultKind::Reordered));
        }
        if read.prev != self.chain.head.hash {
            return Err(self.fault(FaultKind::AlteredBefore));
        }
        let line = piece.strip_suffix(b"\n").unwrap_or(piece);
        let told = match serde_json::from_slice(line) {
            Ok(Record::Torn(torn)) => Some(torn),
            _ => None,
        };
        match (self.tail.take(), told) {
            (None, None) => {}
            (Some(tail), Some(torn)) => {
                // The line feed before the record is not of what was torn.
                let bytes = text.get(tail.start..start.saturating_sub(1)).unwrap_or_default();
                if Torn::of(bytes) != torn {
                    return Err(self.fault(FaultKind::NotTorn));
                }
                self.tears.push(Tear { line: tail.line, bytes: bytes.len(), told: true });
            }
            (Some(tail), None) => return Err(Fault { line: tail.line, kind: FaultKind::Unreadable }),
            (None, Some(_)) => return Err(self.fault(FaultKind::NotTorn)),
        }
        self.chain.head = Head { seq: read.seq, hash: hash(line) };
        Ok(())
    }
}

/// Why a line is no record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unlike {
    /// It ends too early, as a line that was not written whole does.
    Cut,
    /// It is something else.
    Other,
}

fn read(line: &[u8]) -> Result<Line, Unlike> {
    match serde_json::from_slice::<Line>(line) {
        Ok(read) if read.v == VERSION => Ok(read),
        Err(error) if error.is_eof() => Err(Unlike::Cut),
        _ => Err(Unlike::Other),
    }
}

impl Torn {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX), sha256: hash(bytes) }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("it is no record"),
            Self::Missing(1) => f.write_str("one record is missing before it"),
            Self::Missing(count) => write!(f, "{count} records are missing before it"),
            Self::Reordered => f.write_str("it is out of order"),
            Self::AlteredBefore => f.write_str("the record before it was altered"),
            Self::NotTorn => f.write_str("it tells of torn bytes that are not before it"),
            Self::Head => f.write_str("the file does not end where the run's summary says"),
        }
    }
}

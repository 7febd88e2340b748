//! Turns records into numbered lines of which each carries the hash of the one before, and a file of them into a proof or a
//! fault. It refuses to know where the lines are kept.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Record;
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
    /// The file ends before, after, or otherwise than the head says.
    Head,
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

/// Checks a whole file. With `expected` it must also end there.
///
/// # Errors
/// The first fault.
pub fn verify(text: &[u8], expected: Option<&Head>) -> Result<Head, Fault> {
    let mut chain = Chain::default();
    let mut last = 0;
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..).filter(|_| !text.is_empty()) {
        last = number;
        let fault = |kind| Fault { line: number, kind };
        let read: Line = serde_json::from_slice(line).map_err(|_| fault(FaultKind::Unreadable))?;
        if read.v != VERSION {
            return Err(fault(FaultKind::Unreadable));
        }
        let next = chain.head.seq.saturating_add(1);
        if read.seq > next {
            return Err(fault(FaultKind::Missing(read.seq - next)));
        }
        if read.seq < next {
            return Err(fault(FaultKind::Reordered));
        }
        if read.prev != chain.head.hash {
            return Err(fault(FaultKind::AlteredBefore));
        }
        chain.head = Head { seq: read.seq, hash: hash(line) };
    }
    match expected {
        Some(head) if *head != chain.head => Err(Fault { line: last, kind: FaultKind::Head }),
        _ => Ok(chain.head),
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
            Self::Head => f.write_str("the file does not end where the run's summary says"),
        }
    }
}

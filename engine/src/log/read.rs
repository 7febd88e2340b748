//! Turns the lines of a session log into entries, past torn lines and unknown kinds (contract §7).
//! It refuses to know who wrote them.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::straight;
use super::wire::SessionEvent;

/// One line that could be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its sequence number; logs of before it existed have none.
    pub seq: Option<u64>,
    /// When it was written, RFC 3339 in UTC.
    pub ts: Option<String>,
    /// What it says.
    pub event: SessionEvent,
}

/// Why a log could not be read on.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system refused.
    #[error("read the log {path}")]
    Io {
        /// The log.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// The longest line a reader takes in, in bytes; a longer one is passed over like a torn one.
const LINE_MAX: u64 = 64 * 1024 * 1024;

/// How much is read at once, in bytes.
const CHUNK: usize = 256 * 1024;

/// What every line has, and which kind it is.
#[derive(Deserialize)]
struct Head<'a> {
    v: u32,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default, borrow)]
    ts: Option<Cow<'a, str>>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// Yields each line that is not blank, whole or torn, without NUL bytes before it and space around it.
#[derive(Debug)]
pub struct Lines {
    lines: BufReader<File>,
    path: PathBuf,
    line: Vec<u8>,
}

impl Lines {
    /// Opens a file of lines for reading from its first one.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> Result<Lines, ReadError> {
        let file = File::open(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        Ok(Lines { lines: BufReader::with_capacity(CHUNK, file), path: path.to_owned(), line: Vec::new() })
    }

    /// The next line; none at the end of the file.
    ///
    /// # Errors
    /// When the file cannot be read on.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, ReadError> {
        loop {
            match self.read_line() {
                Ok(false) => return Ok(None),
                Ok(true) if trimmed(&self.line).is_empty() => {}
                Ok(true) => return Ok(Some(trimmed(&self.line))),
                Err(source) => return Err(ReadError::Io { path: self.path.clone(), source }),
            }
        }
    }

    /// Reads up to the next line feed; of a line past the bound only its end is kept, which parses as nothing.
    fn read_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        loop {
            let got = (&mut self.lines).take(LINE_MAX).read_until(b'\n', &mut self.line)?;
            let ended = self.line.last() == Some(&b'\n');
            if got == 0 || ended {
                return Ok(!self.line.is_empty());
            }
            if u64::try_from(self.line.len()).is_ok_and(|length| length >= LINE_MAX) {
                self.line.clear();
                self.line.push(b'?');
            }
        }
    }
}

/// A line without what a crash of the machine can leave before it, a block of NUL bytes.
fn trimmed(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|byte| *byte != 0).unwrap_or(line.len());
    line.get(start..).unwrap_or_default().trim_ascii()
}

/// Yields each readable line; torn, blank and foreign ones are passed over. Of a row it leaves out the patch, the texts and hashes beside
/// it and the judge's detail, and of an agent's line what it said: no fold looks at them, and they are most of a log.
#[derive(Debug)]
pub struct LogReader(Lines);

impl LogReader {
    /// Opens a log for reading from its first line.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> Result<LogReader, ReadError> {
        Ok(LogReader(Lines::open(path)?))
    }

    /// Reads one line in full; `None` for what is not a line of a session log.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Entry> {
        let head: Head<'_> = serde_json::from_slice(line).ok()?;
        if head.v != 1 {
            return None;
        }
        let event = match &*head.kind {
            "agent_done" => SessionEvent::AgentDone(serde_json::from_slice(line).ok()?),
            _ => serde_json::from_slice(line).ok()?,
        };
        Some(Entry { seq: head.seq, ts: head.ts.map(Cow::into_owned), event })
    }
}

impl Iterator for LogReader {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.next_line() {
                Ok(None) => return None,
                Ok(Some(line)) => {
                    if let Some(entry) = straight::entry(line).or_else(|| LogReader::parse(line)) {
                        return Some(Ok(entry));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::BlockedWire;
    use super::*;
    use crate::log::{RowWire, TaskStatus};
    use crate::score::Score;

    fn check(line: &str, expect: Option<&SessionEvent>) {
        assert_eq!(LogReader::parse(line.as_bytes()).map(|entry| entry.event).as_ref(), expect, "{line}");
    }

    #[test]
    fn reads_old_and_new_lines_and_passes_over_the_rest() {
        check(r#"{"v":1,"kind":"note","msg":"x"}"#, Some(&SessionEvent::Note { msg: "x".into() }));
        check(
            r#"{"v":1,"kind":"note","msg":"x","new_field":[1]}"#,
            Some(&SessionEvent::Note { msg: "x".into() }),
        );
        check(r#"{"v":1,"kind":"finished"}"#, Some(&SessionEvent::Finished));
        check(r#"{"v":1,"kind":"a_kind_to_come","x":1}"#, Some(&SessionEvent::Unknown));
        check(r#"{"v":2,"kind":"note","msg":"x"}"#, None);
        check(r#"{"v":1,"kind":"no"#, None);
        check("\0\0\0\0", None);
    }

    #[test]
    fn a_line_is_the_one_that_was_written() {
        let row = SessionEvent::Row {
            row: Box::new(RowWire { score: Score::new(0.5), ..RowWire::new(3, crate::log::Decision::Keep) }),
            solved: true,
        };
        let task = SessionEvent::TaskResult {
            task: "m".into(),
            status: TaskStatus::Pass,
            plan_version: 1,
            task_kind: "measure".into(),
            iter: 3,
            attempts: 2,
            cost_usd: 0.25,
            input_tokens: Some(1),
            output_tokens: Some(2),
            metric: Score::new(0.5),
            output: Some(serde_json::json!({"valid": true})),
            recorded: Some(serde_json::json!({"changed": true})),
            blocked: Some(BlockedWire { reason: "budget_ceiling".into(), task: Some("t".into()) }),
            note: "é\n".into(),
            secs: 1.5,
            transport: Some("provider".into()),
        };
        for event in [row, task] {
            let text = serde_json::to_string(&event).unwrap();
            check(&format!("{{\"v\":1,{}", &text[1..]), Some(&event));
            check(&format!("{},\"v\":1}}", text.strip_suffix('}').unwrap()), Some(&event));
            check(&text.replace("\"v\":1,", ""), None);
        }
    }

    #[test]
    fn a_row_of_before_the_additions_is_read() {
        let line = r#"{"v":1,"kind":"row","row":{"iter":3,"decision":"keep","note":"n","detail":{"a":1},"diff":"d","diffstat":"s","score":2.5,"kept_snap":"abc","evidence":[],"candidate_md":""},"solved":true}"#;
        let Some(SessionEvent::Row { row, solved }) =
            LogReader::parse(line.as_bytes()).map(|entry| entry.event)
        else {
            panic!("not a row")
        };
        assert!(solved);
        assert_eq!(row.score.unwrap().value().to_bits(), 2.5f64.to_bits());
        assert_eq!(row.kept_snap.as_deref(), Some("abc"));
    }
}

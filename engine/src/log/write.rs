//! Turns session events into whole lines at the end of a shared file (contract §7).
//! It refuses to know what the events mean.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use broker::append::Appender;
use serde::Serialize;

use super::wire::SessionEvent;
use crate::sys::clock::{Clock, rfc3339};
use crate::sys::fault::{point, point_after};

/// Whether a line must be on the disk before anything that follows from it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The next durable line takes it along.
    Buffered,
    /// It is on the disk when `append` returns.
    Durable,
}

/// Why a line could not be appended. The file holds no part of it.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system refused.
    #[error("append to the log {path}")]
    Io {
        /// The log.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Somebody took the file away while it was written: what is appended would be read by nobody.
    #[error("append to the log {0}: it was removed or replaced")]
    Replaced(PathBuf),
    /// The event has no JSON form.
    #[error("encode a line of the log")]
    Encode(#[from] serde_json::Error),
}

/// The append end of `session.jsonl`, or of another file with the same envelope. Another process may append to the same file: each line is one write
/// under an exclusive lock, so that lines stay whole and `seq` counts through.
#[derive(Debug)]
pub struct SessionLog {
    lines: Appender,
    path: PathBuf,
    clock: Clock,
}

impl SessionLog {
    /// Takes an open log (read and append), which may hold lines already.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn new(file: File, path: &Path, clock: Clock) -> Result<SessionLog, LogError> {
        let failed = |source| LogError::Io { path: path.to_owned(), source };
        Ok(SessionLog { lines: Appender::new(file).map_err(failed)?, path: path.to_owned(), clock })
    }

    /// Counts on from here where the log's lines, as another writer put them, do not say so much.
    #[must_use]
    pub fn counting_on(mut self, seq: u64) -> SessionLog {
        self.lines.count_on(seq);
        self
    }

    /// Appends one line and returns its sequence number.
    ///
    /// # Errors
    /// When the line could not be written whole; what was written of it is taken back.
    pub fn append(&mut self, event: &SessionEvent, durability: Durability) -> Result<u64, LogError> {
        self.append_line(event, durability)
    }

    /// Appends one line of another kind, a JSON object without its envelope, and returns its sequence number.
    ///
    /// # Errors
    /// As [`SessionLog::append`].
    pub fn append_line<T: Serialize>(&mut self, line: &T, durability: Durability) -> Result<u64, LogError> {
        let body = serde_json::to_vec(line)?;
        self.check_place()?;
        let clock = self.clock;
        point("log: before a line");
        point_after("log: in a line", || {
            let half = body.get(..body.len() / 2).unwrap_or_default();
            let _ = io::Write::write(&mut self.lines.file(), half);
        });
        let appended = self.lines.append(&body, || rfc3339(clock.now_utc()));
        let seq = appended.map_err(|source| self.failed(source))?;
        point("log: after a line");
        if durability == Durability::Durable {
            self.sync()?;
        }
        Ok(seq)
    }

    /// Brings every line that was appended to the disk.
    ///
    /// # Errors
    /// When the disk refuses: what was appended may be lost with the machine.
    pub fn sync(&self) -> Result<(), LogError> {
        self.lines.file().sync_data().map_err(|source| self.failed(source))?;
        point("log: after a flush");
        Ok(())
    }

    /// The file that is written must be the one that a reader finds.
    fn check_place(&self) -> Result<(), LogError> {
        let ours = self.lines.file().metadata().map_err(|source| self.failed(source))?;
        match std::fs::symlink_metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (ours.dev(), ours.ino()) => Ok(()),
            _ => Err(LogError::Replaced(self.path.clone())),
        }
    }

    fn failed(&self, source: io::Error) -> LogError {
        LogError::Io { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::LogReader;
    use super::*;
    use std::fs::OpenOptions;

    fn open(path: &Path) -> SessionLog {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).unwrap();
        SessionLog::new(file, path, Clock::start()).unwrap()
    }

    fn note(msg: &str) -> SessionEvent {
        SessionEvent::Note { msg: msg.to_owned() }
    }

    fn notes(path: &Path) -> Vec<(Option<u64>, String)> {
        LogReader::open(path)
            .unwrap()
            .map(Result::unwrap)
            .filter_map(|entry| match entry.event {
                SessionEvent::Note { msg } => Some((entry.seq, msg)),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn two_writers_share_one_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("session.jsonl");
        let (mut one, mut two) = (open(&path), open(&path));
        for turn in 0..4u64 {
            let log = if turn % 2 == 0 { &mut one } else { &mut two };
            assert_eq!(log.append(&note("x"), Durability::Buffered).unwrap(), turn + 1);
        }
        assert_eq!(notes(&path).iter().filter_map(|(seq, _)| *seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_tail_torn_at_any_byte_is_never_fused_with_the_next_line() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        let mut log = open(&whole);
        log.append(&note("first"), Durability::Durable).unwrap();
        log.append(&note("zweites, é"), Durability::Durable).unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        let first_end = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in first_end..=bytes.len() {
            let path = dir.path().join("torn");
            std::fs::write(&path, &bytes[..cut]).unwrap();
            open(&path).append(&note("after"), Durability::Durable).unwrap();
            let read = notes(&path);
            assert_eq!(read.first().unwrap().1, "first", "cut at {cut}");
            assert_eq!(read.last().unwrap().1, "after", "cut at {cut}");
        }
    }
}

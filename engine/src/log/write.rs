//! Turns session events into whole lines at the end of a shared file (contract §7).
//! It refuses to know what the events mean.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    file: File,
    path: PathBuf,
    clock: Clock,
    /// The sequence number of the last line in the file.
    seq: u64,
    /// The length up to which the file has been looked at.
    seen: u64,
    /// Whether the file ends in a torn line that the next write must not fuse with.
    torn: bool,
}

impl SessionLog {
    /// Takes an open log (read and append), which may hold lines already.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn new(file: File, path: &Path, clock: Clock) -> Result<SessionLog, LogError> {
        let mut log = SessionLog { file, path: path.to_owned(), clock, seq: 0, seen: 0, torn: false };
        log.catch_up().map_err(|source| log.failed(source))?;
        Ok(log)
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
        point("log: before a line");
        let seq = self.append_locked(&body).map_err(|source| self.failed(source))?;
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
        self.file.sync_data().map_err(|source| self.failed(source))?;
        point("log: after a flush");
        Ok(())
    }

    fn append_locked(&mut self, body: &[u8]) -> io::Result<u64> {
        lock(&self.file)?;
        let appended = self.append_alone(body);
        // The lock also goes with the descriptor: a failure here can only be that it is gone already.
        let _ = self.file.unlock();
        appended
    }

    /// Appends while no other process can.
    fn append_alone(&mut self, body: &[u8]) -> io::Result<u64> {
        self.catch_up()?;
        let seq = self.seq.saturating_add(1);
        let mut line = Vec::with_capacity(body.len().saturating_add(80));
        if self.torn {
            line.push(b'\n');
        }
        envelope(&mut line, seq, &self.clock, body)?;
        point_after("log: in a line", || {
            let half = line.get(..line.len() / 2).unwrap_or_default();
            let _ = (&self.file).write(half);
        });
        match (&self.file).write(&line) {
            Ok(count) if count == line.len() => {}
            short => {
                self.file.set_len(self.seen)?;
                return Err(short.err().unwrap_or_else(|| io::ErrorKind::StorageFull.into()));
            }
        }
        self.seen = self.seen.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
        self.torn = false;
        self.seq = seq;
        Ok(seq)
    }

    /// The file that is written must be the one that a reader finds.
    fn check_place(&self) -> Result<(), LogError> {
        let ours = self.file.metadata().map_err(|source| self.failed(source))?;
        match std::fs::symlink_metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (ours.dev(), ours.ino()) => Ok(()),
            _ => Err(LogError::Replaced(self.path.clone())),
        }
    }

    /// Looks at what others appended since.
    fn catch_up(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length == self.seen {
            return Ok(());
        }
        if length < self.seen {
            self.seen = 0;
        }
        let mut scan = Scan::new(self.torn);
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.seen))?;
        let mut chunk = vec![0u8; 64 * 1024];
        let mut left = length - self.seen;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            let got = file.read(chunk.get_mut(..want).unwrap_or_default())?;
            if got == 0 {
                break;
            }
            scan.push(chunk.get(..got).unwrap_or_default());
            left = left.saturating_sub(u64::try_from(got).unwrap_or(u64::MAX));
        }
        self.seq = self.seq.max(scan.last_seq);
        self.torn = scan.torn;
        self.seen = length.saturating_sub(left);
        Ok(())
    }

    fn failed(&self, source: io::Error) -> LogError {
        LogError::Io { path: self.path.clone(), source }
    }
}

/// `{"v":1,"seq":…,"ts":…,` and then the body without its opening brace.
fn envelope(line: &mut Vec<u8>, seq: u64, clock: &Clock, body: &[u8]) -> io::Result<()> {
    write!(line, "{{\"v\":1,\"seq\":{seq},\"ts\":\"{}\",", rfc3339(clock.now_utc()))?;
    line.extend_from_slice(body.get(1..).unwrap_or_default());
    line.push(b'\n');
    Ok(())
}

/// Keeps other processes from appending until it is unlocked or the descriptor is closed.
fn lock(file: &File) -> io::Result<()> {
    loop {
        match file.lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Finds the largest `seq` and a torn end in appended bytes, without keeping more than the head of a line.
struct Scan {
    head: Vec<u8>,
    last_seq: u64,
    torn: bool,
}

const HEAD_MAX: usize = 64;

impl Scan {
    fn new(torn: bool) -> Scan {
        Scan { head: Vec::with_capacity(HEAD_MAX), last_seq: 0, torn }
    }

    fn push(&mut self, chunk: &[u8]) {
        for byte in chunk {
            if *byte == b'\n' {
                self.last_seq = self.last_seq.max(seq_of(&self.head).unwrap_or(0));
                self.head.clear();
                self.torn = false;
            } else {
                self.torn = true;
                let blank = *byte == 0 && self.head.is_empty();
                if !blank && self.head.len() < HEAD_MAX {
                    self.head.push(*byte);
                }
            }
        }
    }
}

/// The sequence number in a line's head as [`envelope`] writes it; lines of other writers have none.
fn seq_of(head: &[u8]) -> Option<u64> {
    let rest = head.strip_prefix(b"{\"v\":1,\"seq\":")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
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

    #[test]
    fn a_full_disk_leaves_no_part_of_a_line() {
        let path = Path::new("/dev/full");
        let file = OpenOptions::new().read(true).append(true).open(path).unwrap();
        let mut log =
            SessionLog { file, path: path.to_owned(), clock: Clock::start(), seq: 0, seen: 0, torn: false };
        let body = serde_json::to_vec(&note("x")).unwrap();
        // The device refuses the write, and refuses to be cut back: either way the caller hears of it.
        assert!(log.append_locked(&body).is_err());
        assert_eq!(log.seq, 0);
    }
}

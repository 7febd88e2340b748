//! Turns bodies of lines into whole, numbered lines at the end of a file that several processes append to (N9).
//! It refuses to know what the lines mean.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The append end of a file of JSON lines. Each line is one write under an exclusive lock, so that lines stay whole and
/// `seq` counts through, whoever writes.
#[derive(Debug)]
pub struct Appender {
    file: File,
    /// The sequence number of the last line in the file.
    seq: u64,
    /// The length up to which the file has been looked at.
    seen: u64,
    /// Whether the file ends in a torn line that the next write must not fuse with.
    torn: bool,
}

impl Appender {
    /// Takes an open file (read and append), which may hold lines already.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        let mut appender = Self { file, seq: 0, seen: 0, torn: false };
        appender.catch_up()?;
        Ok(appender)
    }

    /// Counts on from here where the file's own lines, as another writer put them, do not say so much.
    pub fn count_on(&mut self, seq: u64) {
        self.seq = self.seq.max(seq);
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Appends one line, `{"v":1,"seq":…,"ts":…,` and the body, a JSON object, without its opening brace. `now` is asked
    /// under the lock, so that times are in the order of lines. Answers the line's number.
    ///
    /// # Errors
    /// When the line could not be written whole; what was written of it is taken back.
    pub fn append(&mut self, body: &[u8], now: impl FnOnce() -> String) -> io::Result<u64> {
        lock(&self.file)?;
        let appended = self.append_alone(body, &now());
        // The lock also goes with the descriptor: a failure here can only be that it is gone already.
        let _ = self.file.unlock();
        appended
    }

    /// Appends while no other process can.
    fn append_alone(&mut self, body: &[u8], now: &str) -> io::Result<u64> {
        self.catch_up()?;
        let seq = self.seq.saturating_add(1);
        let mut line = Vec::with_capacity(body.len().saturating_add(80));
        if self.torn {
            line.push(b'\n');
        }
        envelope(&mut line, seq, now, body)?;
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
}

/// `{"v":1,"seq":…,"ts":…,` and then the body without its opening brace.
fn envelope(line: &mut Vec<u8>, seq: u64, now: &str, body: &[u8]) -> io::Result<()> {
    write!(line, "{{\"v\":1,\"seq\":{seq},\"ts\":\"{now}\",")?;
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
    use super::*;

    #[test]
    fn a_full_disk_leaves_no_part_of_a_line() {
        let file = File::options().read(true).append(true).open("/dev/full").unwrap();
        let mut appender = Appender { file, seq: 0, seen: 0, torn: false };
        // The device refuses the write, and refuses to be cut back: either way the caller hears of it.
        assert!(appender.append(b"{}", || "now".to_owned()).is_err());
        assert_eq!(appender.seq, 0);
    }
}

//! Turns a session log that grows into pieces of whole lines from a sequence number on (contract §7.1, `tail`).
//! It refuses to know who reads them: it holds one piece in memory, however slow that is.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::limits::PIECE;
use crate::log::{Lines, ReadError};

/// How much of a line is looked at for its sequence number.
const HEAD: usize = 64;

/// A reader of whole lines.
#[derive(Debug)]
pub struct Follow {
    file: File,
    /// How far it was read; always the start of a line or inside a whole one.
    at: u64,
    /// The end of the last whole line that is known.
    whole: u64,
    piece: Vec<u8>,
}

impl Follow {
    /// Opens the log behind its last whole line.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn at_end(path: &Path) -> io::Result<Follow> {
        let mut follow = Follow { file: File::open(path)?, at: 0, whole: 0, piece: vec![0; PIECE] };
        follow.look()?;
        follow.at = follow.whole;
        Ok(follow)
    }

    /// Opens the log at its beginning, to be brought to a line by [`Follow::seek`].
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn at_start(path: &Path) -> io::Result<Follow> {
        Ok(Follow { at: 0, ..Follow::at_end(path)? })
    }

    /// Looks at one piece for the first line whose number is at least `from`; whether it, or the end, was found.
    /// Lines without a number are passed over.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn seek(&mut self, from: u64) -> io::Result<bool> {
        if self.at >= self.whole {
            return Ok(true);
        }
        let start = self.at;
        self.file.seek(SeekFrom::Start(start))?;
        let got = self.file.read(&mut self.piece)?;
        let piece = self.piece.get(..got).unwrap_or_default();
        let mut here = 0;
        while let Some(line) = piece.get(here..).filter(|line| !line.is_empty()) {
            let end = line.iter().position(|byte| *byte == b'\n');
            let head = line.get(..end.unwrap_or(line.len()).min(HEAD)).unwrap_or_default();
            let cut = end.is_none() && head.len() < HEAD;
            if cut && here > 0 {
                // The head of the line is in the next piece.
                break;
            }
            if seq_of(head).is_some_and(|seq| seq >= from) {
                self.at = start.saturating_add(offset(here));
                return Ok(true);
            }
            match end {
                Some(end) => here = here.saturating_add(end).saturating_add(1),
                None => return self.skip_line(start.saturating_add(offset(got))),
            }
        }
        self.at = start.saturating_add(offset(here));
        Ok(self.at >= self.whole)
    }

    /// Goes behind the line that reaches past `behind`.
    fn skip_line(&mut self, mut behind: u64) -> io::Result<bool> {
        self.file.seek(SeekFrom::Start(behind))?;
        loop {
            let got = self.file.read(&mut self.piece)?;
            let piece = self.piece.get(..got).unwrap_or_default();
            let end = piece.iter().position(|byte| *byte == b'\n');
            behind = behind.saturating_add(offset(end.map_or(got, |end| end.saturating_add(1))));
            if got == 0 || end.is_some() {
                self.at = behind.min(self.whole);
                return Ok(self.at >= self.whole);
            }
        }
    }

    /// The next piece; `None` when there is nothing more for now.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn piece(&mut self) -> io::Result<Option<&[u8]>> {
        if self.at >= self.whole {
            self.look()?;
        }
        let left = usize::try_from(self.whole.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let want = left.min(self.piece.len());
        if want == 0 {
            return Ok(None);
        }
        self.file.seek(SeekFrom::Start(self.at))?;
        let got = self.file.read(self.piece.get_mut(..want).unwrap_or_default())?;
        self.at = self.at.saturating_add(offset(got));
        Ok(self.piece.get(..got).filter(|piece| !piece.is_empty()))
    }

    /// Finds the end of the last whole line: what is behind it is being written, or torn.
    fn look(&mut self) -> io::Result<()> {
        let mut end = self.file.metadata()?.len();
        while end > self.whole {
            let start = end.saturating_sub(offset(self.piece.len())).max(self.whole);
            self.file.seek(SeekFrom::Start(start))?;
            let want = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
            let got = self.file.read(self.piece.get_mut(..want).unwrap_or_default())?;
            let piece = self.piece.get(..got).unwrap_or_default();
            if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
                self.whole = start.saturating_add(offset(at)).saturating_add(1);
                return Ok(());
            }
            end = start;
        }
        Ok(())
    }
}

/// The number of the last line of a log that has one; 0 where none has.
///
/// # Errors
/// When it cannot be read.
pub fn last_seq(path: &Path) -> Result<u64, ReadError> {
    let (mut lines, mut last) = (Lines::open(path)?, 0);
    while let Some(line) = lines.next_line()? {
        last = seq_of(line.get(..HEAD).unwrap_or(line)).unwrap_or(last);
    }
    Ok(last)
}

fn offset(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The number in the head of a line, as the log's writer puts it there.
fn seq_of(head: &[u8]) -> Option<u64> {
    let rest = head.strip_prefix(b"{\"v\":1,\"seq\":")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn line(seq: u64, length: usize) -> String {
        format!("{{\"v\":1,\"seq\":{seq},\"msg\":\"{}\"}}\n", "x".repeat(length))
    }

    fn rest(follow: &mut Follow) -> String {
        let mut text = Vec::new();
        while let Some(piece) = follow.piece().unwrap() {
            assert!(piece.len() <= PIECE);
            text.extend_from_slice(piece);
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_line_from_a_number_on_is_found_whatever_lies_across_the_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for lengths in
            [vec![0, 1, 2], vec![PIECE, 3 * PIECE, 5, PIECE - 40, 7], vec![PIECE - 25; 9], vec![30; 3000]]
        {
            let lines: Vec<String> = (1..).zip(&lengths).map(|(seq, length)| line(seq, *length)).collect();
            std::fs::write(&path, lines.concat()).unwrap();
            let step = (lengths.len() / 7).max(1);
            for from in (0..=lengths.len() + 1).step_by(step) {
                let mut follow = Follow::at_start(&path).unwrap();
                while !follow.seek(u64::try_from(from).unwrap()).unwrap() {}
                let expect = lines.get(from.saturating_sub(1)..).unwrap_or_default().concat();
                assert!(rest(&mut follow) == expect, "from {from} of {}", lengths.len());
            }
        }
    }

    #[test]
    fn a_line_that_is_being_written_is_sent_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, line(1, 5)).unwrap();
        let mut follow = Follow::at_end(&path).unwrap();
        assert_eq!(rest(&mut follow), "");
        assert_eq!(last_seq(&path).unwrap(), 1);
        let mut file = File::options().append(true).open(&path).unwrap();
        let next = line(2, 2 * PIECE);
        let (head, tail) = next.split_at(PIECE + 9);
        file.write_all(head.as_bytes()).unwrap();
        assert_eq!(rest(&mut follow), "");
        file.write_all(tail.as_bytes()).unwrap();
        assert_eq!(rest(&mut follow), next);
    }
}

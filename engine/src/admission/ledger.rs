//! Turns inputs and their settlements into lines of `state/admissions.jsonl`, each written before it counts (§7.1).
//! It refuses to know where inputs come from.

use std::path::Path;

use super::book::{Admission, Book, Refusal, Settlement};
use super::input::{Input, Key};
use super::owed::GRANTED_BEFORE;
use super::wire::Line;
use crate::log::{Durability, Lines, LogError, ReadError, SessionLog};
use crate::sys::clock::Clock;
use crate::sys::fs::{FsError, PrivateFile, private_file, unguessable};

/// The note of a settlement that ended a run before it had a loop to take the input up.
pub const SET_UP_STOPPED: &str = "stopped by the operator during the setup";

/// Why the ledger could not be used, or an input was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file could not be made.
    #[error("open the admission ledger")]
    Open(#[from] FsError),
    /// It could not be read.
    #[error("read the admission ledger")]
    Read(#[from] ReadError),
    /// It could not be written.
    #[error("record the input")]
    Write(#[from] LogError),
    /// A write failed in a way after which nobody knows what the disk holds.
    #[error("record the input: an earlier one may not have reached the disk")]
    Broken,
    /// The input is not taken in.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// What became of a delivered input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Its key, chosen or made.
    pub key: Key,
    /// Whether it is new, or how the earlier one was settled.
    pub admission: Admission,
}

/// The ledger of a run, which one owner writes.
#[derive(Debug)]
pub struct Ledger {
    lines: SessionLog,
    book: Book,
    /// A sync failed: what was written since may not be on the disk, and a later sync would not tell.
    broken: bool,
}

impl Ledger {
    /// Opens the ledger at `path` with mode 0600 and folds what is in it; torn and foreign lines are passed over.
    ///
    /// # Errors
    /// When it cannot be made or read.
    pub fn open(path: &Path, clock: Clock) -> Result<Ledger, LedgerError> {
        let file = private_file(path, PrivateFile::Append)?;
        let book = read(path)?;
        Ok(Ledger { lines: SessionLog::new(file, path, clock)?, book, broken: false })
    }

    /// What is known of each key.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Records an input, if it is new. It may take effect after [`Ledger::sync`]; several may share one.
    ///
    /// # Errors
    /// When it is refused or could not be written: then it must have no effect.
    pub fn admit(&mut self, key: Option<Key>, input: &Input) -> Result<Admitted, LedgerError> {
        let key = key.unwrap_or_else(|| Key::own(&format!("given:{}", unguessable())));
        let admission = self.book.ask(&key, input)?;
        if admission == Admission::New {
            self.write(Line::Admitted { key: key.clone(), input: Some(input.clone()) })?;
        }
        Ok(Admitted { key, admission })
    }

    /// Records how an input came to its end; the first one stands, and a key that was never admitted has none.
    ///
    /// # Errors
    /// When it could not be written.
    pub fn settle(&mut self, key: &Key, outcome: Settlement, note: &str) -> Result<(), LedgerError> {
        match self.book.standing(key) {
            Some(None) => self.write(Line::Settled { key: key.clone(), outcome, note: note.to_owned() }),
            _ => Ok(()),
        }
    }

    fn write(&mut self, line: Line) -> Result<(), LedgerError> {
        if self.broken {
            return Err(LedgerError::Broken);
        }
        self.lines.append_line(&line, Durability::Buffered)?;
        self.book.see(line);
        Ok(())
    }

    /// Brings what was recorded to the disk.
    ///
    /// # Errors
    /// When the disk refuses. Nothing more is recorded from then on.
    pub fn sync(&mut self) -> Result<(), LedgerError> {
        if self.broken {
            return Err(LedgerError::Broken);
        }
        self.lines.sync().map_err(|error| {
            self.broken = true;
            error.into()
        })
    }
}

/// Folds the ledger at `path`, of a run that may be live or long over.
///
/// # Errors
/// When it cannot be read; one that is not there is empty.
pub fn read(path: &Path) -> Result<Book, LedgerError> {
    let mut book = Book::default();
    each(path, |line| book.see(line))?;
    Ok(book)
}

/// The inputs that the ledger at `path` says took effect in a loop that its log must tell of, in the order of their settlement.
///
/// # Errors
/// When it cannot be read; one that is not there is empty.
pub fn applied(path: &Path) -> Result<Vec<Key>, LedgerError> {
    let mut keys = Vec::new();
    each(path, |line| match line {
        Line::Settled { key, outcome: Settlement::Applied, note }
            if ![SET_UP_STOPPED, GRANTED_BEFORE].contains(&note.as_str()) =>
        {
            keys.push(key);
        }
        _ => {}
    })?;
    Ok(keys)
}

/// Hands on each line; torn and foreign ones are passed over.
fn each(path: &Path, mut take: impl FnMut(Line)) -> Result<(), LedgerError> {
    let mut lines = match Lines::open(path) {
        Ok(lines) => lines,
        Err(ReadError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    while let Some(line) = lines.next_line()? {
        if let Some(line) = Line::parse(line) {
            take(line);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn key(text: &str) -> Option<Key> {
        Some(Key::chosen(text).unwrap())
    }

    fn steer(text: &str) -> Input {
        Input::Steer { text: text.into() }
    }

    fn open(path: &Path) -> Ledger {
        Ledger::open(path, Clock::start()).unwrap()
    }

    #[test]
    fn what_was_recorded_is_known_to_the_next_owner_and_nobody_else_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admissions.jsonl");
        let mut ledger = open(&path);
        let first = ledger.admit(key("a"), &steer("é")).unwrap();
        assert_eq!(first.admission, Admission::New);
        let made = ledger.admit(None, &steer("é")).unwrap();
        assert_ne!(made.key, first.key);
        ledger.settle(&first.key, Settlement::Applied, "iteration 1").unwrap();
        ledger.settle(&first.key, Settlement::Rejected, "too late").unwrap();
        ledger.sync().unwrap();
        drop(ledger);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut ledger = open(&path);
        let again = ledger.admit(key("a"), &steer("é")).unwrap();
        assert_eq!(again.admission, Admission::Again(Some(Settlement::Applied)));
        assert!(matches!(ledger.admit(key("a"), &steer("e")), Err(LedgerError::Refused(Refusal::Conflict))));
        assert_eq!(ledger.book().owed().map(|(key, _)| key).collect::<Vec<_>>(), [&made.key]);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3, "a refusal writes nothing");
    }

    #[test]
    fn a_ledger_torn_at_any_byte_takes_the_next_input_whole() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        let mut ledger = open(&whole);
        ledger.admit(key("a"), &steer("first")).unwrap();
        ledger.admit(key("b"), &steer("zweites, é")).unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        let first_end = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in first_end..=bytes.len() {
            let path = dir.path().join("torn");
            std::fs::write(&path, &bytes[..cut]).unwrap();
            open(&path).admit(key("c"), &steer("after")).unwrap();
            let book = read(&path).unwrap();
            let keys: Vec<&str> = book.owed().map(|(key, _)| key.as_str()).collect();
            assert!(keys == ["a", "c"] || keys == ["a", "b", "c"], "cut at {cut}: {keys:?}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_not_admitted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admissions.jsonl");
        let mut ledger = open(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(ledger.admit(key("a"), &steer("x")), Err(LedgerError::Write(_))));
        assert_eq!(ledger.book().owed().count(), 0);
        assert_eq!(ledger.book().standing(&Key::chosen("a").unwrap()), None);
    }
}

//! Turns the record of a run's writes into what a person is told of them (contract §1.9).
//! It refuses to decide about a write: the broker's chokepoint does.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use broker::writes::outbox::{self, Standing};
use policy::outputs::{Document, Ended, Entry, Intent, Outcome, Refusal};
use serde::{Deserialize, Serialize};

use super::statedir::{OUTBOX, OUTPUTS_FILE, SESSION_FILE};
use crate::log::{Entry as Line, LogReader, OutputCounts, ReadError, SessionEvent};
use crate::sys::fs::{FsError, read_bounded};

/// The most that is read of a record.
const MOST: u64 = 4 << 30;

/// One write of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Write {
    /// When it was admitted.
    pub ts: String,
    /// What was admitted.
    #[serde(flatten)]
    pub intent: Intent,
    /// What came of it; absent while it is being made.
    pub outcome: Option<Outcome>,
    /// Where it stands in the outbox, where it was staged.
    pub outbox: Option<Standing>,
}

/// One refusal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refused {
    /// When.
    pub ts: String,
    /// The turn.
    pub turn: String,
    /// The tool.
    pub tool: String,
    /// Which bound, and why.
    #[serde(flatten)]
    pub refusal: Refusal,
}

/// Everything that is known of a run's writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Writes {
    /// The bounds, where the run's log has them.
    pub bounds: Option<Document>,
    /// In the order in which they were admitted.
    pub writes: Vec<Write>,
    /// In the order of the log.
    pub refused: Vec<Refused>,
}

/// A line with its time.
#[derive(Deserialize)]
struct Timed<T> {
    #[serde(default)]
    ts: String,
    #[serde(flatten)]
    what: T,
}

impl Writes {
    /// Reads what a state directory holds of them. What is not there is none.
    ///
    /// # Errors
    /// A file that is there and cannot be read.
    pub fn read(state: &Path) -> Result<Writes, FsError> {
        let record = match read_bounded(&state.join(OUTPUTS_FILE), MOST) {
            Err(FsError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let mut writes = Writes::default();
        for line in record.split(|byte| *byte == b'\n') {
            match serde_json::from_slice::<Timed<Entry>>(line) {
                Ok(Timed { ts, what: Entry::Intent(intent) }) => {
                    writes.writes.push(Write { ts, intent, outcome: None, outbox: None });
                }
                Ok(Timed { what: Entry::Ended(ended), .. }) => writes.end(&ended),
                // Torn by a crash.
                Err(_) => {}
            }
        }
        for entry in log(&state.join(SESSION_FILE))? {
            let Line { ts, event, .. } = entry.map_err(failed)?;
            match event {
                SessionEvent::OutputRefused { refusal, tool, turn } => {
                    writes.refused.push(Refused { ts: ts.unwrap_or_default(), turn, tool, refusal });
                }
                SessionEvent::Outputs { bounds } => writes.bounds = Some(bounds),
                _ => {}
            }
        }
        for write in &mut writes.writes {
            // An outbox that cannot be looked at says nothing of where a write stands.
            let found = outbox::find(&state.join(OUTBOX), write.intent.id).ok().flatten();
            write.outbox = found.map(|(standing, _)| standing);
        }
        Ok(writes)
    }

    fn end(&mut self, ended: &Ended) {
        let write = self.writes.iter_mut().find(|write| write.intent.id == ended.id);
        if let Some(write) = write {
            write.outcome = Some(ended.outcome);
        }
    }

    /// How many there are of each sort.
    #[must_use]
    pub fn counts(&self) -> OutputCounts {
        let of = |outcome| {
            let count = self.writes.iter().filter(|write| write.outcome == Some(outcome)).count();
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        let mut refused: BTreeMap<String, u64> = BTreeMap::new();
        for row in &self.refused {
            let count = refused.entry(row.refusal.bound.clone()).or_default();
            *count = count.saturating_add(1);
        }
        let open = self.writes.iter().filter(|write| write.outcome.is_none()).count();
        let unknown = of(Outcome::Unknown).saturating_add(u64::try_from(open).unwrap_or(u64::MAX));
        OutputCounts { written: of(Outcome::Done), staged: of(Outcome::Staged), unknown, refused }
    }
}

/// The lines of a session log; one that is not there has none.
fn log(path: &Path) -> Result<impl Iterator<Item = Result<Line, ReadError>>, FsError> {
    match LogReader::open(path) {
        Ok(lines) => Ok(Some(lines).into_iter().flatten()),
        Err(ReadError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Ok(None.into_iter().flatten())
        }
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: ReadError) -> FsError {
    let ReadError::Io { path, source } = error;
    FsError::Io { what: "read", path, source }
}

/// The counts of a run; `None` where its record cannot be read.
#[must_use]
pub fn counts(state: &Path) -> Option<OutputCounts> {
    Some(Writes::read(state).ok()?.counts())
}

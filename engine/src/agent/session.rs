//! Turns the name of a durable conversation into what a turn of it goes on from, and the turn into what the next one will
//! (contract §1.3, note N12). It refuses to know what was said: a transcript is checked, moved and never shown.
//!
//! The ledger and the transcripts are the engine's alone: files of mode 0600 in a directory of mode 0700, from creation.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::harness::{Conversation, Home};
use crate::manifest::Harness as Name;
use crate::sys::fs::{
    FsError, Obstacles, RelPath, Root, WriteOptions, create_private_dir, read_bounded, unguessable,
};

mod live;

pub use crate::manifest::SessionName;
pub use live::{Live, transcripts};

/// The largest transcript that is kept, in bytes.
pub const TRANSCRIPT_MAX: usize = 64 << 20;
const LEDGER: &str = "sessions.json";
const LEDGER_MAX: u64 = 1 << 20;
const VERSION: u32 = 1;

/// The private directory of a run's conversations, `state/agent`.
#[derive(Debug, Clone)]
pub struct Sessions {
    dir: PathBuf,
}

/// Why a conversation cannot go on. Reads as what follows "failed to". No part of a transcript is in it, and no cursor.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The file system.
    #[error("keep the session `{name}`")]
    Fs {
        /// The session.
        name: SessionName,
        /// What was in the way.
        source: FsError,
    },
    /// The ledger is not what was written.
    #[error("read the ledger of sessions: it is damaged; `--fresh` begins without it")]
    Ledger,
    /// A turn that ended well and left nothing to go on from.
    #[error("keep the session `{name}`: its turn left {why}")]
    Lost {
        /// The session.
        name: SessionName,
        /// `no transcript`, or what is wrong with it.
        why: String,
    },
}

/// A transcript, and where in the directory of transcripts its tool looks for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Transcript {
    /// Relative to [`Home::transcripts`].
    pub path: PathBuf,
    /// What was said.
    pub content: Vec<u8>,
}

impl fmt::Debug for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transcript {{ {} bytes }}", self.content.len())
    }
}

/// A turn of a conversation before it is taken.
#[derive(Debug, Clone)]
pub struct Begun {
    name: SessionName,
    harness: Name,
    /// How the harness names the conversation.
    id: String,
    /// What it goes on from; none where it begins.
    transcript: Option<Transcript>,
    completed: u32,
}

/// What a turn of a conversation left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// Every transcript that was found.
    pub transcripts: Vec<Transcript>,
    /// Why none could be looked for.
    pub fault: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ledger {
    version: u32,
    sessions: Vec<Entry>,
}

/// What is known of a conversation: nothing of what was said.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// Harness, conversation and transcript's place, for nobody to read but [`Entry::cursor`].
    cursor: String,
    turns: u32,
}

impl Entry {
    fn cursor(&self) -> Option<(&str, &str, &Path)> {
        let (harness, rest) = self.cursor.split_once(':')?;
        let (id, path) = rest.split_once(':')?;
        Some((harness, id, Path::new(path)))
    }
}

impl Begun {
    /// `start` or `resume`, as the log tells it.
    #[must_use]
    pub fn action(&self) -> &'static str {
        if self.transcript.is_some() { "resume" } else { "start" }
    }

    /// Which turn of the conversation it is, from 1.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.completed.saturating_add(1)
    }

    /// Whose turn it is.
    #[must_use]
    pub fn name(&self) -> &SessionName {
        &self.name
    }

    /// As a harness is asked for it.
    #[must_use]
    pub fn conversation(&self) -> Conversation<'_> {
        match &self.transcript {
            Some(transcript) => Conversation::Resume(&self.id, &transcript.content),
            None => Conversation::Start(&self.id),
        }
    }

    /// What it goes on from.
    #[must_use]
    pub fn transcript(&self) -> Option<&Transcript> {
        self.transcript.as_ref()
    }
}

impl Sessions {
    /// Opens the conversations of a state directory, making their directory.
    ///
    /// # Errors
    /// When it cannot be made private.
    pub fn open(state_dir: &Path) -> Result<Sessions, FsError> {
        let dir = state_dir.join(super::PRIVATE);
        create_private_dir(&dir)?;
        Ok(Sessions { dir })
    }

    /// Begins a turn: it resumes where a transcript that is not empty exists, and starts anew where none does. What a turn
    /// that was killed with its engine left, or had said when it was last looked at, is taken first.
    ///
    /// # Errors
    /// [`SessionError::Ledger`], [`SessionError::Fs`].
    pub fn begin(&self, name: &SessionName, harness: Name, home: &Home) -> Result<Begun, SessionError> {
        self.salvage(name, harness, home)?;
        let ledger = self.read()?;
        let entry = ledger.sessions.iter().find(|entry| entry.name == name.as_str());
        let completed = entry.map_or(0, |entry| entry.turns);
        let cursor = entry.and_then(Entry::cursor).filter(|(of, ..)| *of == harness.token());
        let kept = cursor.and_then(|(_, id, path)| {
            let content = read_bounded(&self.transcript(name), limit()).ok()?;
            let is_its = (home.conversation_of)(path).as_deref() == Some(id) && (home.belongs)(id, &content);
            is_its.then(|| (id.to_owned(), Transcript { path: path.to_owned(), content }))
        });
        let (id, transcript) = match kept {
            Some((id, transcript)) => (id, Some(transcript)),
            None => (uuid(), None),
        };
        Ok(Begun { name: name.clone(), harness, id, transcript, completed })
    }

    /// Ends a turn. `good` is whether it ended well, `told` the conversation's name where the harness gave it one. The
    /// transcript is on the disk before the cursor moves; where there is none the cursor stays. What was saved of the turn
    /// while it ran goes, unless it failed and left nothing better.
    ///
    /// # Errors
    /// [`SessionError::Lost`] where a good turn left no transcript; then it counts as failed.
    pub fn end(
        &self,
        begun: &Begun,
        home: &Home,
        (good, told): (bool, Option<&str>),
        left: &Left,
    ) -> Result<(), SessionError> {
        let id = told.unwrap_or(&begun.id);
        match pick(id, home, left) {
            Ok(transcript) => {
                self.keep(&begun.name, begun.harness, (id, transcript), u32::from(good))?;
                self.forget(&begun.name)
            }
            Err(_) if !good => Ok(()),
            Err(why) => {
                self.forget(&begun.name)?;
                Err(SessionError::Lost { name: begun.name.clone(), why })
            }
        }
    }

    /// Takes the transcript that a turn left in its live directory when the engine died, and removes the rest. A transcript
    /// only grows: a shorter one than is kept was seen before that one was.
    fn salvage(&self, name: &SessionName, harness: Name, home: &Home) -> Result<(), SessionError> {
        let left = self.live(name.as_str()).left(home);
        let known = self.read()?.sessions.into_iter().find(|entry| entry.name == name.as_str());
        let known = known.as_ref().and_then(Entry::cursor).map(|(_, id, _)| id.to_owned());
        let found = left.transcripts.iter().filter_map(|transcript| {
            let id = (home.conversation_of)(&transcript.path)?;
            let is_its = known.as_ref().is_none_or(|known| *known == id);
            (is_its && (home.belongs)(&id, &transcript.content)).then_some((id, transcript))
        });
        let kept = known.as_ref().and_then(|_| self.transcript(name).metadata().ok());
        let kept = kept.and_then(|kept| usize::try_from(kept.len()).ok());
        let found = found.max_by_key(|(_, transcript)| transcript.content.len());
        if let Some((id, transcript)) = found.filter(|(_, found)| Some(found.content.len()) > kept) {
            self.keep(name, harness, (&id, transcript), 0)?;
        }
        self.forget(name)
    }

    fn forget(&self, name: &SessionName) -> Result<(), SessionError> {
        let removed = self.live(name.as_str()).remove();
        removed.map_err(|source| SessionError::Fs { name: name.clone(), source })
    }

    fn keep(
        &self,
        name: &SessionName,
        harness: Name,
        (id, transcript): (&str, &Transcript),
        more: u32,
    ) -> Result<(), SessionError> {
        let cursor = format!("{}:{id}:{}", harness.token(), transcript.path.display());
        self.write(name, &format!("{name}.jsonl"), &transcript.content)?;
        let mut ledger = self.read()?;
        match ledger.sessions.iter_mut().find(|entry| entry.name == name.as_str()) {
            Some(entry) => {
                entry.cursor = cursor;
                entry.turns = entry.turns.saturating_add(more);
            }
            None => ledger.sessions.push(Entry { name: name.to_string(), cursor, turns: more }),
        }
        ledger.version = VERSION;
        let text = serde_json::to_vec(&ledger).map_err(|_| SessionError::Ledger)?;
        self.write(name, LEDGER, &text)
    }

    /// A place for a turn under this name: where its tool works on this host, or what it says in a sandbox is saved.
    #[must_use]
    pub fn live(&self, name: &str) -> Live {
        Live::new(self.dir.join("live").join(name))
    }

    /// A place for a turn that belongs to no conversation: the name of none begins with a dot.
    #[must_use]
    pub fn live_alone(&self) -> Live {
        self.live(".turn")
    }

    fn transcript(&self, name: &SessionName) -> PathBuf {
        self.dir.join(format!("{name}.jsonl"))
    }

    fn read(&self) -> Result<Ledger, SessionError> {
        let path = self.dir.join(LEDGER);
        if path.symlink_metadata().is_err() {
            return Ok(Ledger::default());
        }
        let bytes = read_bounded(&path, LEDGER_MAX).map_err(|_| SessionError::Ledger)?;
        let ledger: Ledger = serde_json::from_slice(&bytes).map_err(|_| SessionError::Ledger)?;
        if ledger.version == VERSION { Ok(ledger) } else { Err(SessionError::Ledger) }
    }

    fn write(&self, name: &SessionName, file: &str, bytes: &[u8]) -> Result<(), SessionError> {
        let failed = |source| SessionError::Fs { name: name.clone(), source };
        // INVARIANT: a session's name is a file's name.
        let Ok(path) = RelPath::parse(file) else { return Err(SessionError::Ledger) };
        let options = WriteOptions { mode: 0o600, durable: true, obstacles: Obstacles::Refuse };
        let root = Root::open(&self.dir).map_err(failed)?;
        root.write_atomic(&path, &mut &*bytes, options).map_err(failed)
    }
}

fn limit() -> u64 {
    u64::try_from(TRANSCRIPT_MAX).unwrap_or(u64::MAX)
}

/// The transcript of a conversation among those that were found, or why there is none.
fn pick<'a>(id: &str, home: &Home, left: &'a Left) -> Result<&'a Transcript, String> {
    if let Some(fault) = &left.fault {
        return Err(format!("a transcript that cannot be brought out: {fault}"));
    }
    let is_its = |transcript: &&Transcript| (home.conversation_of)(&transcript.path).as_deref() == Some(id);
    let mut its = left.transcripts.iter().filter(is_its);
    match (its.next(), its.next()) {
        (None, _) => Err("no transcript".to_owned()),
        (Some(_), Some(_)) => Err("more than one transcript".to_owned()),
        (Some(one), None) if one.content.is_empty() => Err("an empty transcript".to_owned()),
        (Some(one), None) if one.content.len() > TRANSCRIPT_MAX => {
            Err(format!("a transcript of more than {TRANSCRIPT_MAX} bytes"))
        }
        (Some(one), None) if !(home.belongs)(id, &one.content) => {
            Err("a transcript that is not this session's".to_owned())
        }
        (Some(one), None) => Ok(one),
    }
}

/// A new name for a conversation, as a random UUID.
fn uuid() -> String {
    let digits: Vec<char> = unguessable().chars().collect();
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default().iter().collect::<String>();
    format!("{}-{}-4{}-a{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

#[cfg(test)]
mod tests;

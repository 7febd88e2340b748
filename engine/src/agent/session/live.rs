//! Turns a private directory of this host into the home of one turn's tool, and what the tool left in it into transcripts.
//! It refuses to know which of them is whose.

use std::path::{Path, PathBuf};

use super::super::harness::Home;
use super::{Left, TRANSCRIPT_MAX, Transcript, limit};
use crate::sys::fs::{FsError, Obstacles, RelPath, Root, WriteOptions, create_private_dir};

/// So deep are transcripts looked for.
const DEPTH_MAX: usize = 6;

/// The home of a tool on this host while its turn runs.
#[derive(Debug, Clone)]
pub struct Live {
    dir: PathBuf,
}

impl Live {
    pub(super) fn new(dir: PathBuf) -> Live {
        Live { dir }
    }

    /// Makes it anew, empty but for the transcript that the turn goes on from, which nobody else can read at any time.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn furnish(&self, home: &Home, transcript: Option<&Transcript>) -> Result<&Path, FsError> {
        self.remove()?;
        if let Some(above) = self.dir.parent() {
            create_private_dir(above)?;
        }
        create_private_dir(&self.dir)?;
        create_private_dir(&self.config(home))?;
        if let Some(transcript) = transcript {
            self.put(home, transcript)?;
        }
        Ok(&self.dir)
    }

    /// Saves what a turn elsewhere has said so far, in the place of what it had said before: whole, or not at all. Of
    /// several transcripts the longest that is a conversation's is taken.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn save(&self, home: &Home, transcripts: &[Transcript]) -> Result<(), FsError> {
        let is_ones = |transcript: &&Transcript| {
            let id = (home.conversation_of)(&transcript.path);
            id.is_some_and(|id| (home.belongs)(&id, &transcript.content))
        };
        let longest = transcripts.iter().filter(is_ones).max_by_key(|transcript| transcript.content.len());
        let Some(transcript) = longest else { return Ok(()) };
        let at = self.config(home).join(home.transcripts).join(&transcript.path);
        if at.symlink_metadata().is_ok() {
            return self.put(home, transcript);
        }
        // It is the only one there.
        self.furnish(home, Some(transcript)).map(drop)
    }

    fn put(&self, home: &Home, Transcript { path, content }: &Transcript) -> Result<(), FsError> {
        let path = Path::new(home.directory).join(home.transcripts).join(path);
        let mut above = self.dir.clone();
        for name in path.parent().into_iter().flat_map(Path::components) {
            above.push(name);
            create_private_dir(&above)?;
        }
        let options = WriteOptions { mode: 0o600, durable: false, obstacles: Obstacles::Refuse };
        // INVARIANT: a conversation's transcript has a place of plain names.
        let Ok(path) = RelPath::parse(&path) else { return Ok(()) };
        Root::open(&self.dir)?.write_atomic(&path, &mut content.as_slice(), options)
    }

    /// What the turn left.
    #[must_use]
    pub fn left(&self, home: &Home) -> Left {
        transcripts(&self.config(home).join(home.transcripts), home)
    }

    /// The tool's own configuration in it.
    #[must_use]
    pub fn config(&self, home: &Home) -> PathBuf {
        self.dir.join(home.directory)
    }

    /// Removes it with all that is in it.
    ///
    /// # Errors
    /// [`FsError`].
    pub fn remove(&self) -> Result<(), FsError> {
        let (Some(above), Some(name)) = (self.dir.parent(), self.dir.file_name()) else { return Ok(()) };
        if above.symlink_metadata().is_err() {
            return Ok(());
        }
        // INVARIANT: the last component of a path made here is a name.
        let Ok(name) = RelPath::parse(name) else { return Ok(()) };
        Root::open(above)?.remove_any(&name).map(drop)
    }
}

/// Reads every transcript below a directory, through no link.
#[must_use]
pub fn transcripts(directory: &Path, home: &Home) -> Left {
    let mut left = Left::default();
    let Ok(root) = Root::open(directory) else { return left };
    let mut room = TRANSCRIPT_MAX;
    for path in files(directory) {
        if (home.conversation_of)(&path).is_none() {
            continue;
        }
        let read = RelPath::parse(&path).ok().map(|path| root.read(&path, limit()));
        match read {
            Some(Ok(Some(content))) if content.len() <= room => {
                room = room.saturating_sub(content.len());
                left.transcripts.push(Transcript { path, content });
            }
            Some(Ok(Some(_)) | Err(FsError::TooLarge { .. })) => {
                left.fault = Some(format!("there are more than {TRANSCRIPT_MAX} bytes of it"));
            }
            _ => left.fault = Some("it cannot be read".to_owned()),
        }
    }
    left
}

/// The regular files below a directory, relative to it.
fn files(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![(PathBuf::new(), 0)];
    while let Some((below, depth)) = todo.pop() {
        for entry in std::fs::read_dir(top.join(&below)).into_iter().flatten().flatten() {
            let path = below.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => todo.push((path, depth + 1)),
                Ok(kind) if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found
}

//! Turns the frozen injects into files of the workspace again, whatever a candidate made of them (contract §1).
//! It refuses to know when that is due.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::WorldError;
use super::facts::{Facts, Frozen};
use super::tidy::{failed, rel};
use crate::sys::fs::{FrozenFile, FsError, Root, restore_frozen};

/// Where copies of the frozen injects are, below the state directory.
const DIR: &str = "frozen";

/// A frozen file that grew by more than this has no hash any more, in bytes.
const GROWTH: u64 = 64 << 20;

/// The frozen injects of a run.
#[derive(Debug, Clone)]
pub struct FrozenFiles {
    copies: PathBuf,
    files: Vec<Frozen>,
}

/// A frozen inject by its content, as it was frozen and as it stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// SHA-256 of what it was frozen as.
    pub frozen: [u8; 32],
    /// The same of what stands there.
    pub found: Option<[u8; 32]>,
}

impl FrozenFiles {
    pub(super) fn of(facts: &Facts, git_dir: &Path) -> FrozenFiles {
        FrozenFiles { copies: git_dir.with_file_name(DIR), files: facts.frozen.clone() }
    }

    /// Puts every frozen inject back into `workspace` (the run's, or a copy of it) as it was, and says which had been
    /// changed, relative to it. Whatever stands in the way is removed; no link is followed or written through. To be
    /// called before apply, before each measure and before each task.
    ///
    /// # Errors
    /// [`WorldError::Files`] when one cannot be put back, or the engine's own copy has been tampered with.
    pub fn restore(&self, workspace: &Path) -> Result<Vec<PathBuf>, WorldError> {
        let root = Root::open(workspace).map_err(failed)?;
        let mut changed = Vec::new();
        for (number, file) in self.files.iter().enumerate() {
            let frozen =
                FrozenFile { dst: rel(&file.dst)?, sha256: file.sha256, len: file.len, mode: file.mode };
            let copy = self.copies.join(number.to_string());
            let restored = restore_frozen(&root, &frozen, || File::open(&copy));
            if restored.map_err(|error| self.explained(error, &copy))? {
                changed.push(file.dst.clone());
            }
        }
        Ok(changed)
    }

    fn explained(&self, error: FsError, copy: &Path) -> WorldError {
        if copy.exists() {
            return failed(error);
        }
        let path = if self.copies.exists() { copy } else { &self.copies };
        WorldError::StateGone { path: path.to_owned() }
    }

    /// What stands in `workspace` now where each frozen inject belongs, beside what it was frozen as. Nothing but a regular file has a hash, and one that grew beyond measure has none; no link is followed.
    ///
    /// # Errors
    /// [`WorldError::Files`] when the workspace cannot be opened.
    pub fn compare(&self, workspace: &Path) -> Result<Vec<Compared>, WorldError> {
        let root = Root::open(workspace).map_err(failed)?;
        let mut found = Vec::new();
        for file in &self.files {
            let most = file.len.saturating_add(GROWTH);
            let hashed = root.hash_regular(&rel(&file.dst)?, most).ok().flatten();
            let found_now = hashed.map(|hashed| hashed.sha256);
            found.push(Compared { path: file.dst.clone(), frozen: file.sha256, found: found_now });
        }
        Ok(found)
    }

    /// Where the frozen injects stand, relative to the workspace.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.dst.as_path())
    }
}

/// Keeps the engine's own copy of the frozen inject with this number.
pub(super) fn keep_copy(state_dir: &Path, number: usize, bytes: &[u8]) -> Result<(), WorldError> {
    let dir = state_dir.join(DIR);
    crate::sys::fs::create_private_dir(&dir).map_err(failed)?;
    let path = dir.join(number.to_string());
    super::claim::write_private(&path, bytes)
}

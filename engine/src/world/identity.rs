//! Turns a directory into what tells it from every other one, those that come after it included.
//! It refuses to know its path and what is in it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::WorldError;

/// Which directory it is. Device and inode alone do not say: a file system gives the inode of a directory that was
/// removed to the next one that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The file system.
    pub device: u64,
    /// The inode in it.
    pub inode: u64,
    /// When it was made: seconds and nanoseconds after 1970. None where the file system does not know.
    pub born: Option<(u64, u32)>,
}

impl Identity {
    /// Of the directory at `path`, which is no link.
    ///
    /// # Errors
    /// [`WorldError::Io`], also when it is no directory.
    pub(super) fn of(path: &Path) -> Result<Identity, WorldError> {
        let metadata = path.symlink_metadata().map_err(WorldError::io("look at", path))?;
        if !metadata.is_dir() {
            return Err(WorldError::io("look at", path)(io::ErrorKind::NotADirectory.into()));
        }
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born = born.map(|born| (born.as_secs(), born.subsec_nanos()));
        Ok(Identity { device: metadata.dev(), inode: metadata.ino(), born })
    }
}

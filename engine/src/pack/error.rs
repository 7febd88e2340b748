//! Turns what can go wrong with a pack's files into values.
//! It refuses to know which key named a file.

use std::io;
use std::path::{Path, PathBuf};

use crate::manifest::{FileError, ManifestErrors};

/// Why a pack was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The manifest's file.
    #[error("read the manifest {}", .path.display())]
    Manifest {
        /// As it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its text, or the files that it names.
    #[error("{0}")]
    Mistakes(#[from] Box<ManifestErrors>),
    /// The record of the workspace's base commit.
    #[error("read the workspace's base commit")]
    Base(#[source] io::Error),
}

/// What the system said about a path, as a mistake of the manifest that names it.
pub(super) fn file_error(path: &Path, error: &io::Error) -> FileError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileError::Missing { path },
        io::ErrorKind::IsADirectory => FileError::NotAFile { path, what: "a directory" },
        io::ErrorKind::InvalidInput => FileError::NotAFile { path, what: "a special file" },
        _ => FileError::Unreadable { path, why: error.to_string() },
    }
}

//! Turns what stops a sync into an error; the workspace is as it was before.
//! It refuses to know what the sync was for.

use std::{io, path::PathBuf};

/// Why a workspace did not get its changes. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    /// A file could not be read or written.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where, relative to the workspace or absolute.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The host's workspace is not what the turn started from.
    #[error("bring back {}: it was changed on the host during the turn", .0.display())]
    Conflict(PathBuf),
    /// The caller went away.
    #[error("bring the changes back: it was cancelled")]
    Cancelled,
    /// The journal of an interrupted sync cannot be read.
    #[error("undo the interrupted sync in {}: {reason}", path.display())]
    Journal {
        /// The journal.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Names what was tried, and where, when the kernel refused.
pub(super) trait At<T> {
    fn at(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, TransferError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T, TransferError> {
        self.map_err(|error| TransferError::Io { what, path: path.into(), source: error.into() })
    }
}

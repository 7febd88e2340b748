//! Turns a directory whose content is hostile into bytes, hashes and files, never through a link and never
//! outside of it. It refuses to know what the files mean.
//!
//! The kernel keeps the promise: every path is resolved by `openat2` beneath the directory with no link followed,
//! or component by component where the kernel (before 5.6) or a filter of system calls has no `openat2`.

use std::io;
use std::path::PathBuf;

mod atomic;
mod copy;
mod frozen;
mod private;
mod rel;
mod remove;
mod root;
mod walk;

pub use atomic::{Obstacles, WriteOptions, unguessable};
pub use copy::{Copied, copy_tree};
pub use frozen::{FrozenFile, Hashed, restore_frozen};
pub use private::{PrivateFile, create_private_dir, private_file, read_bounded};
pub use rel::{RelPath, RelPathError};
pub use root::Root;
pub use walk::{Kind, Specials};

/// Why something in a directory could not be read or written. Paths are as they were asked for.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// There is something else than a regular file, a link included.
    #[error("use {}: it is {kind}, not a regular file", path.display())]
    NotRegular {
        /// Where.
        path: PathBuf,
        /// What stands there.
        kind: Kind,
    },
    /// A directory on the way is a link, or something else than a directory.
    #[error("reach {}: a directory on the way is a link or no directory", path.display())]
    Obstructed {
        /// The path that could not be reached.
        path: PathBuf,
    },
    /// The file is larger than the caller takes.
    #[error("read {}: it is larger than {max} bytes", path.display())]
    TooLarge {
        /// Where.
        path: PathBuf,
        /// The limit.
        max: u64,
    },
    /// The file to restore from is no longer what was frozen.
    #[error("restore {}: the frozen source itself has changed", path.display())]
    SourceChanged {
        /// The file to be restored.
        path: PathBuf,
    },
    /// Directories nest deeper than is walked.
    #[error("walk {}: directories nest more than {max} deep", path.display())]
    TooDeep {
        /// The top of the walk.
        path: PathBuf,
        /// The limit.
        max: usize,
    },
    /// The operating system refused.
    #[error("{what} {}", path.display())]
    Io {
        /// A verb, such as `read`.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

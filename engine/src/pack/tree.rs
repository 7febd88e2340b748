//! Turns a directory, or what it was at a commit, into regular files and their content, never through a link.
//! It refuses to know what the files are for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use sha2::{Digest, Sha256};

use super::FileError;
use crate::manifest::RelPath;

const MOST_FILES: usize = 10_000;
const DEEPEST: usize = 64;
/// The largest file that is injected, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// What a workspace was before any agent worked in it.
pub trait Base {
    /// The regular file at that path, relative to the workspace; `None` where there is none, links included.
    ///
    /// # Errors
    /// The commit cannot be read.
    fn read(&self, path: &RelPath) -> io::Result<Option<BaseFile>>;

    /// The paths of all regular files, relative to the workspace, in any order.
    ///
    /// # Errors
    /// The commit cannot be read.
    fn files(&self) -> io::Result<Vec<RelPath>>;
}

/// A regular file of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFile {
    /// All of it.
    pub bytes: Vec<u8>,
    /// Whether it may be executed.
    pub executable: bool,
}

/// What identifies a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) sha256: [u8; 32],
    pub(super) size: u64,
    pub(super) executable: bool,
}

impl Content {
    pub(super) fn of_base(file: &BaseFile) -> Self {
        let size = u64::try_from(file.bytes.len()).unwrap_or(u64::MAX);
        Self { sha256: Sha256::digest(&file.bytes).into(), size, executable: file.executable }
    }

    /// Reads a regular file; a link at its end is followed.
    pub(super) fn of_file(path: &Path) -> Result<Self, FileError> {
        let fail = |error: io::Error| super::file_error(path, &error);
        let file = open_regular(path).map_err(fail)?;
        let mode = file.metadata().map_err(fail)?.permissions().mode();
        let mut hash = Sha256::new();
        let size = io::copy(&mut file.take(MOST_BYTES + 1), &mut HashWriter(&mut hash)).map_err(fail)?;
        if size > MOST_BYTES {
            return Err(FileError::TooLarge { path: path.to_owned(), max: MOST_BYTES });
        }
        Ok(Self { sha256: hash.finalize().into(), size, executable: mode & 0o111 != 0 })
    }
}

struct HashWriter<'h>(&'h mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a regular file and nothing else; a FIFO or device does not hold the engine up.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// Reads at most `most` bytes of a regular file.
pub(super) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What stands at a path below a directory, with no link on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    File,
    Directory,
}

/// Looks at `path` below `root`, refusing links anywhere below `root`.
pub(super) fn node(root: &Path, path: &RelPath) -> Result<Node, FileError> {
    let mut at = root.to_owned();
    let mut kind = Node::Directory;
    for name in path.as_path() {
        at.push(name);
        let found = fs::symlink_metadata(&at).map_err(|error| super::file_error(&at, &error))?.file_type();
        kind = match () {
            () if found.is_symlink() => return Err(FileError::Link { path: at }),
            () if found.is_dir() => Node::Directory,
            () if found.is_file() => Node::File,
            () => return Err(FileError::NotAFile { path: at, what: "a special file" }),
        };
    }
    Ok(kind)
}

/// All regular files below `root`, or below `under` in it, sorted by path. `skip` says which directories are left out.
pub(super) fn walk(
    root: &Path,
    under: Option<&RelPath>,
    pattern: &str,
    skip: &dyn Fn(&RelPath) -> bool,
) -> Result<Vec<RelPath>, FileError> {
    let mut walk = Walk { root, pattern, skip, whole: false, files: Vec::new() };
    walk.directory(under, 0)?;
    walk.files.sort();
    Ok(walk.files)
}

/// All files below `root`, sorted by path. What is neither file nor directory is an error.
pub(super) fn walk_whole(root: &Path) -> Result<Vec<RelPath>, FileError> {
    let mut walk = Walk { root, pattern: "", skip: &|_| false, whole: true, files: Vec::new() };
    walk.directory(None, 0)?;
    walk.files.sort();
    Ok(walk.files)
}

struct Walk<'w> {
    root: &'w Path,
    pattern: &'w str,
    skip: &'w dyn Fn(&RelPath) -> bool,
    /// Whether what cannot be taken is an error.
    whole: bool,
    files: Vec<RelPath>,
}

impl Walk<'_> {
    fn directory(&mut self, under: Option<&RelPath>, depth: usize) -> Result<(), FileError> {
        let directory = under.map_or_else(|| self.root.to_owned(), |under| self.root.join(under.as_path()));
        let fail = |error: io::Error| super::file_error(&directory, &error);
        for entry in fs::read_dir(&directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let kind = entry.file_type().map_err(fail)?;
            if !kind.is_dir() && !kind.is_file() {
                match (self.whole, kind.is_symlink()) {
                    (false, _) => continue,
                    (true, true) => return Err(FileError::Link { path: entry.path() }),
                    (true, false) => {
                        return Err(FileError::NotAFile { path: entry.path(), what: "a special file" });
                    }
                }
            }
            let path =
                below(under, &entry.file_name()).ok_or_else(|| FileError::Name { path: entry.path() })?;
            if kind.is_file() {
                self.files.push(path);
            } else if !(self.skip)(&path) {
                if depth == DEEPEST {
                    return Err(self.too_many());
                }
                self.directory(Some(&path), depth + 1)?;
            }
            if self.files.len() > MOST_FILES {
                return Err(self.too_many());
            }
        }
        Ok(())
    }

    fn too_many(&self) -> FileError {
        FileError::TooMany { pattern: self.pattern.to_owned(), max: MOST_FILES, depth: DEEPEST }
    }
}

fn below(under: Option<&RelPath>, name: &std::ffi::OsStr) -> Option<RelPath> {
    let name = name.to_str()?;
    let path = under.map_or_else(|| name.to_owned(), |under| format!("{under}/{name}"));
    RelPath::parse(&path).ok()
}

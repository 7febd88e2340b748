//! Turns a directory into a handle that is never left.
//! It refuses to know the names of what is above it, once it is open.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::libc;
use nix::sys::stat::{Mode, fstatat};
use sha2::{Digest as _, Sha256};

use super::{FsError, Hashed, Kind, RelPath};

/// How a directory on the way is opened.
pub(super) const DIRECTORY: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// How a file is opened for reading: never waiting for a FIFO's writer, never taking a terminal.
const READ: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// A directory, held open. Everything else in this module happens beneath one.
#[derive(Debug)]
pub struct Root {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
}

impl Root {
    /// Opens the directory at `path`, which is trusted and may itself be reached through links.
    ///
    /// # Errors
    /// [`FsError::Io`], also when it is no directory.
    pub fn open(path: &Path) -> Result<Root, FsError> {
        let opened = File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC).open(path);
        let file = opened.map_err(|source| FsError::Io {
            what: "open the directory",
            path: path.to_owned(),
            source,
        })?;
        Ok(Root { fd: file.into(), path: path.to_owned() })
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content of a regular file of at most `max` bytes; none if nothing is there.
    ///
    /// # Errors
    /// [`FsError::NotRegular`], [`FsError::Obstructed`], [`FsError::TooLarge`], [`FsError::Io`].
    pub fn read(&self, path: &RelPath, max: u64) -> Result<Option<Vec<u8>>, FsError> {
        let Some(file) = self.open_regular(path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = file.take(max.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(self.failed("read", path))?;
        match u64::try_from(bytes.len()) {
            Ok(length) if length <= max => Ok(Some(bytes)),
            _ => Err(FsError::TooLarge { path: self.path.join(path), max }),
        }
    }

    /// SHA-256, length and mode of a regular file; none if nothing is there. A file that says that it is longer than
    /// `max` bytes is not read.
    ///
    /// # Errors
    /// As [`Root::read`].
    pub fn hash_regular(&self, path: &RelPath, max: u64) -> Result<Option<Hashed>, FsError> {
        let Some(file) = self.open_regular(path)? else { return Ok(None) };
        let failed = self.failed("read", path);
        let metadata = file.metadata().map_err(&failed)?;
        if metadata.len() > max {
            return Err(FsError::TooLarge { path: self.path.join(path), max });
        }
        let (mode, mut hasher, mut len) = (metadata.mode() & 0o7777, Sha256::new(), 0);
        // One byte more than is allowed is enough to tell a file that grows meanwhile.
        let mut file = file.take(max.saturating_add(1));
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    hasher.update(buffer.get(..length).unwrap_or_default());
                    len += u64::try_from(length).unwrap_or(0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Ok(Some(Hashed { sha256: hasher.finalize().into(), len, mode }))
    }

    /// What stands at `path`, links not followed; none if nothing does.
    ///
    /// # Errors
    /// [`FsError::Obstructed`], [`FsError::Io`].
    pub fn kind(&self, path: &RelPath) -> Result<Option<Kind>, FsError> {
        let Some(parent) = self.parent_of(path)? else { return Ok(None) };
        match fstatat(&parent, path.name(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Kind::of_mode(stat.st_mode))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.failed("look at", path)(errno.into())),
        }
    }

    /// A regular file, open for reading; none if nothing is there.
    ///
    /// # Errors
    /// As [`Root::read`].
    pub fn open_regular(&self, path: &RelPath) -> Result<Option<File>, FsError> {
        let not_regular = |kind| FsError::NotRegular { path: self.path.join(path), kind };
        let file = match self.open_beneath(path, READ) {
            Ok(fd) => File::from(fd),
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
            // A socket cannot be opened at all, and a link is only told from one on the way by a look.
            Err(Errno::ENXIO | Errno::ELOOP | Errno::ENODEV) => {
                return match self.kind(path)? {
                    Some(kind) => Err(not_regular(kind)),
                    None => Ok(None),
                };
            }
            Err(errno) => return Err(self.failed("open", path)(errno.into())),
        };
        let mode = file.metadata().map_err(self.failed("look at", path))?.mode();
        match Kind::of_mode(mode) {
            Kind::File => Ok(Some(file)),
            kind => Err(not_regular(kind)),
        }
    }

    /// The directory that `path` stands in; none if it is not there.
    pub(super) fn parent_of(&self, path: &RelPath) -> Result<Option<OwnedFd>, FsError> {
        let opened = match path.parent() {
            Some(parent) => self.open_beneath(&parent, DIRECTORY),
            None => openat(&self.fd, ".", DIRECTORY, Mode::empty()),
        };
        match opened {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::ENOENT) => Ok(None),
            Err(Errno::ELOOP | Errno::ENOTDIR) => Err(FsError::Obstructed { path: self.path.join(path) }),
            Err(errno) => Err(self.failed("open the directory of", path)(errno.into())),
        }
    }

    /// Opens `path` with no link followed anywhere in it.
    pub(super) fn open_beneath(&self, path: &RelPath, flags: OFlag) -> nix::Result<OwnedFd> {
        open_beneath(self.fd.as_fd(), path, flags)
    }

    /// Makes an [`FsError::Io`] of an error at `path`.
    pub(super) fn failed(&self, what: &'static str, path: &RelPath) -> impl Fn(io::Error) -> FsError + use<> {
        let path = self.path.join(path);
        move |source| FsError::Io { what, path: path.clone(), source }
    }
}

fn open_beneath(root: BorrowedFd<'_>, path: &RelPath, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve =
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags).resolve(resolve);
    // EAGAIN tells of a rename somewhere in the system while the path was resolved; it does not last.
    for _ in 0..16 {
        match openat2(root, path.as_path(), how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // The kernel has none, a filter forbids it, or the path is longer than one call takes.
            Err(Errno::ENOSYS | Errno::EPERM | Errno::ENAMETOOLONG) => break,
            opened => return opened,
        }
    }
    step_by_step(root, path, flags)
}

/// The same without `openat2`: each name is opened in the directory before it.
fn step_by_step(root: BorrowedFd<'_>, path: &RelPath, flags: OFlag) -> nix::Result<OwnedFd> {
    let open = |at: BorrowedFd<'_>, name: &OsStr, flags| openat(at, name, flags, Mode::empty());
    let mut at: Option<OwnedFd> = None;
    for name in path.parent().iter().flat_map(RelPath::names) {
        at = Some(open(at.as_ref().map_or(root, |fd| fd.as_fd()), name, DIRECTORY)?);
    }
    open(at.as_ref().map_or(root, |fd| fd.as_fd()), path.name(), flags | OFlag::O_NOFOLLOW)
}

#[cfg(test)]
mod tests;

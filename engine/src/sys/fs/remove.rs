//! Turns whatever stands at a path into nothing.
//! It refuses to know what it was, and follows no link to find out.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::atomic::random_name;
use super::root::DIRECTORY;
use super::walk::{Kind, entries};
use super::{FsError, RelPath, Root};

impl Root {
    /// Removes what stands at `path`, with all that is in it; whether there was anything. Directories that their
    /// mode closes are opened first, and any depth is fine.
    ///
    /// # Errors
    /// [`FsError::Obstructed`], [`FsError::Io`].
    pub fn remove_any(&self, path: &RelPath) -> Result<bool, FsError> {
        let Some(parent) = self.parent_of(path)? else { return Ok(false) };
        remove_entry(parent.as_fd(), path.name()).map_err(|errno| self.failed("remove", path)(errno.into()))
    }
}

/// Removes `name` from an open directory; whether it was there.
pub(super) fn remove_entry(directory: BorrowedFd<'_>, name: &OsStr) -> nix::Result<bool> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) => Ok(true),
        Err(Errno::ENOENT) => Ok(false),
        // Linux says the first of a directory, POSIX the second.
        Err(errno @ (Errno::EISDIR | Errno::EPERM)) => match remove_dir(directory, name) {
            Err(Errno::ENOTDIR) => Err(errno),
            Err(Errno::ENOENT) => Ok(false),
            removed => removed.map(|()| true),
        },
        Err(errno) => Err(errno),
    }
}

/// Removes a directory with two descriptors and no recursion, however deep it is: what is not empty below it is
/// first moved up into it, which is done once for each directory.
fn remove_dir(directory: BorrowedFd<'_>, name: &OsStr) -> nix::Result<()> {
    if try_rmdir(directory, name)? {
        return Ok(());
    }
    let top = open_dir(directory, name)?;
    loop {
        let found = entries(top.as_fd())?;
        if found.is_empty() {
            return unlinkat(directory, name, UnlinkatFlags::RemoveDir);
        }
        for (child, kind) in found {
            empty_into(top.as_fd(), &child, kind)?;
        }
    }
}

/// Removes `name` from `top`, moving what is below it and not empty into `top`.
fn empty_into(top: BorrowedFd<'_>, name: &OsStr, kind: Kind) -> nix::Result<()> {
    if kind != Kind::Dir {
        return gone(unlinkat(top, name, UnlinkatFlags::NoRemoveDir));
    }
    if try_rmdir(top, name)? {
        return Ok(());
    }
    let directory = open_dir(top, name)?;
    for (child, kind) in entries(directory.as_fd())? {
        if kind != Kind::Dir {
            gone(unlinkat(&directory, child.as_os_str(), UnlinkatFlags::NoRemoveDir))?;
        } else if !try_rmdir(directory.as_fd(), &child)? {
            move_up(directory.as_fd(), &child, top)?;
        }
    }
    unlinkat(top, name, UnlinkatFlags::RemoveDir)
}

/// Moves a directory to a free name in `top`. Its own mode must let its `..` be changed.
fn move_up(from: BorrowedFd<'_>, name: &OsStr, top: BorrowedFd<'_>) -> nix::Result<()> {
    let free: OsString = random_name();
    match renameat(from, name, top, free.as_os_str()) {
        Err(Errno::EACCES | Errno::EPERM) => {
            fchmodat(from, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
            renameat(from, name, top, free.as_os_str())
        }
        moved => moved,
    }
}

/// Opens a directory so that its entries can be read and removed.
fn open_dir(directory: BorrowedFd<'_>, name: &OsStr) -> nix::Result<std::os::fd::OwnedFd> {
    let open = || openat(directory, name, DIRECTORY, Mode::empty());
    let fd = match open() {
        Err(Errno::EACCES) => {
            fchmodat(directory, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
            open()?
        }
        opened => opened?,
    };
    // Not ours, perhaps; whether that matters the removal itself will say.
    let _ = fchmod(&fd, Mode::S_IRWXU);
    Ok(fd)
}

/// Whether an empty directory was removed; false if it is not empty.
fn try_rmdir(directory: BorrowedFd<'_>, name: &OsStr) -> nix::Result<bool> {
    match unlinkat(directory, name, UnlinkatFlags::RemoveDir) {
        Ok(()) => Ok(true),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn gone(removed: nix::Result<()>) -> nix::Result<()> {
    match removed {
        Err(Errno::ENOENT) => Ok(()),
        removed => removed,
    }
}

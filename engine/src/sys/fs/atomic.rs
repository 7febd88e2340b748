//! Turns bytes into a file that is either the old one or the new one, whole.
//! It refuses to know what it replaces.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, mkdirat};
use nix::unistd::{UnlinkatFlags, fsync, unlinkat};

use super::remove::remove_entry;
use super::root::DIRECTORY;
use super::{FsError, RelPath, Root};
use crate::sys::fault::point;

/// What becomes of something on the way, or at the end of it, that is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacles {
    /// It stays, and the write is an error. A file or link at the end of the path is replaced all the same.
    Refuse,
    /// It is removed, whatever it is, and a real directory takes its place on the way.
    Remove,
}

/// How [`Root::write_atomic`] writes.
#[derive(Debug, Clone, Copy)]
pub struct WriteOptions {
    /// The permission bits, exactly, whatever the umask.
    pub mode: u32,
    /// Whether file and directory are on disk when the call returns.
    pub durable: bool,
    /// See [`Obstacles`].
    pub obstacles: Obstacles,
}

impl Root {
    /// Writes what `content` gives to `path`, making directories on the way. Nobody ever sees half of it.
    ///
    /// # Errors
    /// [`FsError::Obstructed`] under [`Obstacles::Refuse`], [`FsError::Io`].
    pub fn write_atomic(
        &self,
        path: &RelPath,
        content: &mut dyn Read,
        options: WriteOptions,
    ) -> Result<(), FsError> {
        let directory = self.make_parents(path, options.obstacles)?;
        let draft = Draft::create(directory.as_fd()).map_err(self.failed("write", path))?;
        draft.fill(content, options).map_err(self.failed("write", path))?;
        self.publish(draft, path, options)
    }

    /// Puts a filled draft in its place.
    pub(super) fn publish(
        &self,
        draft: Draft<'_>,
        path: &RelPath,
        options: WriteOptions,
    ) -> Result<(), FsError> {
        match draft.rename(path.name(), options) {
            Err(Errno::EISDIR | Errno::ENOTEMPTY | Errno::EEXIST)
                if options.obstacles == Obstacles::Refuse =>
            {
                Err(FsError::Obstructed { path: self.path.join(path) })
            }
            renamed => renamed.map_err(|errno| self.failed("write", path)(errno.into())),
        }
    }

    /// Opens the directory of `path`, making what is missing.
    pub(super) fn make_parents(&self, path: &RelPath, obstacles: Obstacles) -> Result<OwnedFd, FsError> {
        let failed = |errno: Errno| self.failed("make the directory of", path)(errno.into());
        let mut at = openat(&self.fd, ".", DIRECTORY, Mode::empty()).map_err(failed)?;
        for name in path.parent().iter().flat_map(RelPath::names) {
            at = match enter(at.as_fd(), name, obstacles) {
                Ok(below) => below,
                Err(Errno::ELOOP | Errno::ENOTDIR) => {
                    return Err(FsError::Obstructed { path: self.path.join(path) });
                }
                Err(errno) => return Err(failed(errno)),
            };
        }
        Ok(at)
    }
}

/// Opens the directory `name`, making it if it is missing.
fn enter(at: BorrowedFd<'_>, name: &OsStr, obstacles: Obstacles) -> nix::Result<OwnedFd> {
    let open = || openat(at, name, DIRECTORY, Mode::empty());
    let usable = Mode::from_bits_truncate(0o755);
    let make = || match mkdirat(at, name, usable) {
        Ok(()) | Err(Errno::EEXIST) => open(),
        Err(errno) => Err(errno),
    };
    match open() {
        Err(Errno::ENOENT) => make(),
        Err(Errno::ELOOP | Errno::ENOTDIR) if obstacles == Obstacles::Remove => {
            remove_entry(at, name)?;
            make()
        }
        Err(Errno::EACCES) if obstacles == Obstacles::Remove => {
            fchmodat(at, name, usable, FchmodatFlags::NoFollowSymlink)?;
            open()
        }
        opened => opened,
    }
}

/// A file under a random name, which goes unless it is renamed.
pub(super) struct Draft<'a> {
    directory: BorrowedFd<'a>,
    name: OsString,
    file: File,
    renamed: bool,
}

impl<'a> Draft<'a> {
    /// An empty, private file in `directory`.
    pub(super) fn create(directory: BorrowedFd<'a>) -> io::Result<Draft<'a>> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let private = Mode::S_IRUSR | Mode::S_IWUSR;
        let create = |name: &OsStr| openat(directory, name, flags, private);
        let name = random_name();
        let file = match create(&name) {
            // The agent could have closed a directory that is ours.
            Err(Errno::EACCES) if fchmod(directory, Mode::from_bits_truncate(0o755)).is_ok() => {
                create(&name)?
            }
            created => created?,
        };
        Ok(Draft { directory, name, file: file.into(), renamed: false })
    }

    /// Copies `content` into it, and gives it its mode.
    pub(super) fn fill(&self, content: &mut dyn Read, options: WriteOptions) -> io::Result<()> {
        io::copy(content, &mut &self.file)?;
        fchmod(&self.file, Mode::from_bits_truncate(options.mode & 0o7777))?;
        if options.durable { self.file.sync_all() } else { Ok(()) }
    }

    fn rename(mut self, to: &OsStr, options: WriteOptions) -> nix::Result<()> {
        let rename = || renameat(self.directory, self.name.as_os_str(), self.directory, to);
        point("file: before it is put in place");
        match rename() {
            Err(Errno::EISDIR | Errno::ENOTEMPTY | Errno::EEXIST)
                if options.obstacles == Obstacles::Remove =>
            {
                remove_entry(self.directory, to)?;
                rename()?;
            }
            renamed => renamed?,
        }
        self.renamed = true;
        if options.durable { fsync(self.directory) } else { Ok(()) }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = unlinkat(self.directory, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// A name that nothing has: 64 random bits, and `O_EXCL` where it is used.
pub(super) fn random_name() -> OsString {
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!(".crucible-{random:016x}.tmp").into()
}

/// Text that nobody has by accident: 32 hexadecimal digits.
pub fn unguessable() -> String {
    let random = || std::hash::RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

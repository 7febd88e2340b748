//! Turns a directory tree into the list of what stands in it, by the types that directories themselves hold.
//! It refuses to know the content of files.

use std::ffi::{CStr, OsStr, OsString};
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::dir::{Dir, Type};
use nix::fcntl::{AtFlags, openat};
use nix::libc;
use nix::sys::stat::{Mode, fstatat};

use super::root::DIRECTORY;
use super::{FsError, RelPath, Root};

/// A walk holds one descriptor for each level, so it has a bottom.
const DEEPEST: usize = 256;
/// More special files than this are not named.
const LISTED_AT_MOST: usize = 64;

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character or block device, or something that this list does not know.
    Device,
}

impl Kind {
    /// Of the type bits of a mode.
    pub(super) fn of_mode(mode: libc::mode_t) -> Kind {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Dir,
            libc::S_IFLNK => Kind::Link,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            _ => Kind::Device,
        }
    }

    fn of_entry(kind: Type) -> Kind {
        match kind {
            Type::File => Kind::File,
            Type::Directory => Kind::Dir,
            Type::Symlink => Kind::Link,
            Type::Fifo => Kind::Fifo,
            Type::Socket => Kind::Socket,
            Type::CharacterDevice | Type::BlockDevice => Kind::Device,
        }
    }

    /// Whether it is neither file, directory nor link: nothing that a tree under version control can hold.
    pub fn is_special(self) -> bool {
        matches!(self, Kind::Fifo | Kind::Socket | Kind::Device)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::File => "a regular file",
            Kind::Dir => "a directory",
            Kind::Link => "a symbolic link",
            Kind::Fifo => "a FIFO",
            Kind::Socket => "a socket",
            Kind::Device => "a device",
        })
    }
}

/// The special files of a tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Specials {
    /// The first 64 of them, in no order.
    pub paths: Vec<RelPath>,
    /// How many there are.
    pub count: usize,
}

impl Root {
    /// All FIFOs, sockets and devices, but those under the top-level names in `skip`. Links are not followed,
    /// and no file is opened or looked at.
    ///
    /// # Errors
    /// [`FsError::TooDeep`], [`FsError::Io`].
    pub fn special_files(&self, skip: &[&OsStr]) -> Result<Specials, FsError> {
        let mut specials = Specials::default();
        self.walk(&mut |entry| {
            if entry.path.parent().is_none() && skip.contains(&entry.path.name()) {
                return Ok(Descend::No);
            }
            if entry.kind.is_special() {
                specials.count += 1;
                if specials.paths.len() < LISTED_AT_MOST {
                    specials.paths.push(entry.path.clone());
                }
            }
            Ok(Descend::Yes)
        })?;
        Ok(specials)
    }

    /// Gives every entry below this directory to `visit`, a directory before what is in it.
    pub(super) fn walk(&self, visit: &mut Visit<'_>) -> Result<(), FsError> {
        let top = openat(&self.fd, ".", DIRECTORY, Mode::empty());
        let top = top.map_err(|errno| self.io("read the directory", None)(errno))?;
        let mut levels = vec![self.level(top, None)?];
        while let Some(level) = levels.last_mut() {
            let Some((name, kind)) = level.entries.pop() else {
                levels.pop();
                continue;
            };
            let path = RelPath::child(level.path.as_ref(), &name);
            let entry = Entry { directory: level.fd.as_fd(), path: &path, kind };
            if visit(&entry)? == Descend::No || kind != Kind::Dir {
                continue;
            }
            let fd = openat(&level.fd, name.as_os_str(), DIRECTORY, Mode::empty());
            let fd = fd.map_err(|errno| self.io("read the directory", Some(&path))(errno))?;
            if levels.len() == DEEPEST {
                return Err(FsError::TooDeep { path: self.path.clone(), max: DEEPEST });
            }
            levels.push(self.level(fd, Some(path))?);
        }
        Ok(())
    }

    fn level(&self, fd: OwnedFd, path: Option<RelPath>) -> Result<Level, FsError> {
        let entries =
            entries(fd.as_fd()).map_err(|errno| self.io("read the directory", path.as_ref())(errno))?;
        Ok(Level { fd, path, entries })
    }

    fn io(&self, what: &'static str, path: Option<&RelPath>) -> impl Fn(nix::Error) -> FsError + use<> {
        let path = path.map_or_else(|| self.path.clone(), |path| self.path.join(path));
        move |errno| FsError::Io { what, path: path.clone(), source: errno.into() }
    }
}

/// Whether to go into a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descend {
    Yes,
    No,
}

/// One entry, with the open directory that it stands in.
pub(super) struct Entry<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) path: &'a RelPath,
    pub(super) kind: Kind,
}

/// What a walk calls.
pub(super) type Visit<'a> = dyn FnMut(&Entry<'_>) -> Result<Descend, FsError> + 'a;

struct Level {
    fd: OwnedFd,
    path: Option<RelPath>,
    entries: Vec<(OsString, Kind)>,
}

/// Names and kinds in an open directory.
pub(super) fn entries(directory: BorrowedFd<'_>) -> nix::Result<Vec<(OsString, Kind)>> {
    let mut listing = Dir::openat(directory, ".", DIRECTORY, Mode::empty())?;
    let mut found = Vec::new();
    for entry in listing.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if let Some(kind) = kind_of(directory, name, entry.file_type())? {
            found.push((OsStr::from_bytes(name.to_bytes()).to_owned(), kind));
        }
    }
    Ok(found)
}

/// The kind of an entry, with a look where the file system does not say it; none if it is gone.
fn kind_of(directory: BorrowedFd<'_>, name: &CStr, kind: Option<Type>) -> nix::Result<Option<Kind>> {
    match kind {
        Some(kind) => Ok(Some(Kind::of_entry(kind))),
        None => match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Kind::of_mode(stat.st_mode))),
            Err(nix::Error::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        },
    }
}

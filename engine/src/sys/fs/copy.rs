//! Turns one directory tree into a copy of it that holds nothing but files, directories and harmless links.
//! It refuses to know why some of it is left out.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::symlinkat;

use super::walk::{Descend, Entry};
use super::{FsError, Kind, RelPath, Root};

/// What a copy did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files copied.
    pub files: u64,
    /// Links left out because they lead out of the tree, or might.
    pub links_out: Vec<RelPath>,
    /// FIFOs, sockets and devices left out.
    pub specials: Vec<RelPath>,
}

/// Copies what is in `from` into `to`, which must be an empty directory that is not inside `from` unless the
/// filter leaves it out. `keep` is asked for each entry, and for a directory speaks for all that is in it.
/// Files keep whether they are executable, and share their blocks where the file system can.
///
/// # Errors
/// [`FsError::Io`], also if something stands in the way; [`FsError::TooDeep`].
pub fn copy_tree(
    from: &Root,
    to: &Root,
    keep: &mut dyn FnMut(&RelPath, Kind) -> bool,
) -> Result<Copied, FsError> {
    let mut copied = Copied::default();
    from.walk(&mut |entry| {
        if !keep(entry.path, entry.kind) {
            return Ok(Descend::No);
        }
        match entry.kind {
            Kind::Dir => make_dir(to, entry.path)?,
            Kind::File => {
                copy_file(from, entry, to)?;
                copied.files += 1;
            }
            Kind::Link if stays_inside(from, entry) => copy_link(from, entry, to)?,
            Kind::Link => copied.links_out.push(entry.path.clone()),
            Kind::Fifo | Kind::Socket | Kind::Device => copied.specials.push(entry.path.clone()),
        }
        Ok(Descend::Yes)
    })?;
    Ok(copied)
}

fn parent(to: &Root, path: &RelPath) -> Result<OwnedFd, FsError> {
    to.parent_of(path)?.ok_or_else(|| to.failed("copy to", path)(io::ErrorKind::NotFound.into()))
}

fn make_dir(to: &Root, path: &RelPath) -> Result<(), FsError> {
    mkdirat(parent(to, path)?, path.name(), Mode::from_bits_truncate(0o755))
        .map_err(|errno| to.failed("make the directory", path)(errno.into()))
}

fn copy_file(from: &Root, entry: &Entry<'_>, to: &Root) -> Result<(), FsError> {
    let Some(mut source) = from.open_regular(entry.path)? else {
        return Err(from.failed("copy", entry.path)(io::ErrorKind::NotFound.into()));
    };
    let executable = source.metadata().map_err(from.failed("copy", entry.path))?.mode() & 0o100 != 0;
    let mode = Mode::from_bits_truncate(if executable { 0o755 } else { 0o644 });
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let target = openat(parent(to, entry.path)?, entry.path.name(), flags, mode);
    let failed = to.failed("copy to", entry.path);
    let mut target = File::from(target.map_err(|errno| failed(errno.into()))?);
    io::copy(&mut source, &mut target).map_err(&failed)?;
    fchmod(&target, mode).map_err(|errno| failed(errno.into()))
}

fn copy_link(from: &Root, entry: &Entry<'_>, to: &Root) -> Result<(), FsError> {
    let target = readlinkat(entry.directory, entry.path.name())
        .map_err(|errno| from.failed("read the link", entry.path)(errno.into()))?;
    symlinkat(target.as_os_str(), parent(to, entry.path)?, entry.path.name())
        .map_err(|errno| to.failed("copy to", entry.path)(errno.into()))
}

/// Whether a link leads to something in the tree, or to nothing in it. The text alone cannot tell: a `..` after a
/// name that is itself a link goes up from elsewhere. So the kernel resolves it too, where it can.
fn stays_inside(from: &Root, entry: &Entry<'_>) -> bool {
    let Ok(target) = readlinkat(entry.directory, entry.path.name()) else { return false };
    let target = Path::new(&target);
    let depth = entry.path.names().count() - 1;
    if !leads_nowhere_above(target, depth) {
        return false;
    }
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    match openat2(from.fd.as_fd(), entry.path.as_path(), how) {
        Ok(_) | Err(Errno::ENOENT) => true,
        Err(Errno::ENOSYS | Errno::EPERM) => ups_come_first(target),
        Err(_) => false,
    }
}

/// Whether the text of a link, `depth` directories down, never goes above the top.
fn leads_nowhere_above(target: &Path, depth: usize) -> bool {
    let mut level = depth;
    for component in target.components() {
        match component {
            Component::Normal(_) => level += 1,
            Component::CurDir => {}
            Component::ParentDir if level > 0 => level -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

/// Whether every `..` of a link stands before its first name, so that no link in it can mislead it.
fn ups_come_first(target: &Path) -> bool {
    let mut components = target.components().skip_while(|part| !matches!(part, Component::Normal(_)));
    !components.any(|part| part == Component::ParentDir)
}

#[cfg(test)]
mod tests;

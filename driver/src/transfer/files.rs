//! Turns a directory's descriptor and a relative path into files, never through a link and never out of it.
//! It refuses to know which side the directory is on.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat},
    sys::stat::{FileStat, Mode, SFlag, fchmodat, fstatat},
};

/// Opens below `dir`; an empty path is `dir` itself.
pub(super) fn open(dir: impl AsFd, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS,
    );
    Ok(openat2(dir, path, how)?)
}

/// A directory below `dir`, readable even where its owner took that away from himself.
pub(super) fn open_dir(dir: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    open_anyhow(dir, path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0o700)
}

/// A regular file below `dir`, likewise. Never blocks on what turned out to be a pipe.
pub(super) fn open_file(dir: impl AsFd, path: &Path) -> io::Result<File> {
    open_anyhow(dir, path, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY, 0o600).map(File::from)
}

fn open_anyhow(dir: impl AsFd, path: &Path, flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
    match open(&dir, path, flags) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let held = open(&dir, path, OFlag::O_PATH | OFlag::O_NOFOLLOW)?;
            let itself = format!("/proc/self/fd/{}", held.as_raw_fd());
            std::fs::set_permissions(itself, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
            open(&dir, path, flags)
        }
        result => result,
    }
}

/// What is at one name of an open directory, if anything; a link is looked at itself.
pub(super) fn look(dir: impl AsFd, name: &OsStr) -> io::Result<Option<FileStat>> {
    match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// What is at a path below `dir`; nothing, where a part of the path is missing or no directory.
pub(super) fn look_beneath(dir: impl AsFd, path: &Path) -> io::Result<Option<FileStat>> {
    let Some(name) = path.file_name() else { return look(dir, OsStr::new(".")) };
    let parent = path.parent().unwrap_or(Path::new(""));
    match open(&dir, parent, OFlag::O_PATH | OFlag::O_DIRECTORY) {
        Ok(parent) => look(parent, name),
        Err(error) if gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// The names in an open directory, sorted.
pub(super) fn names(dir: &OwnedFd) -> io::Result<Vec<OsString>> {
    // A descriptor of its own, for the position of reading is shared by copies.
    let own = open(dir, Path::new(""), OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(own)?.iter() {
        let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The type bits of what `stat` describes.
pub(super) fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Permission bits that come back: neither setuid nor setgid nor sticky.
pub(super) fn permissions(stat: &FileStat) -> u32 {
    stat.st_mode & 0o777
}

/// The bytes of an apparent size, zero for a nonsensical one.
pub(super) fn size(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Where a link points.
pub(super) fn target(dir: impl AsFd, name: &OsStr) -> io::Result<OsString> {
    Ok(readlinkat(dir, name)?)
}

/// Sets permission bits of a directory or file at one name of an open directory.
pub(super) fn set_mode(dir: impl AsFd, name: &OsStr, mode: u32) -> io::Result<()> {
    use nix::sys::stat::FchmodatFlags;
    let mode = Mode::from_bits_truncate(mode);
    let name = if name.is_empty() { OsStr::new(".") } else { name };
    Ok(fchmodat(dir, name, mode, FchmodatFlags::FollowSymlink)?)
}

/// Whether a directory of an overlay's upper layer hides what lies below it.
pub(super) fn is_opaque(dir: &OwnedFd) -> bool {
    crate::gateway::sys::attribute_byte(dir, c"user.overlay.opaque") == Some(b'y')
}

/// Whether a name is git's own directory, however a file system folds case.
pub(super) fn is_git(name: &OsStr) -> bool {
    name.as_bytes().eq_ignore_ascii_case(b".git")
}

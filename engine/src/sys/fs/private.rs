//! Turns paths on the host that the engine trusts into files, private ones from the moment they exist.
//! It refuses to know what is in them.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use nix::libc;

use super::FsError;

/// How [`private_file`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateFile {
    /// For reading and writing at the end; made if it is missing.
    Append,
    /// For reading and writing; made if it is missing, emptied if not.
    Truncate,
    /// For reading and writing; an error if it is there.
    New,
}

/// Makes a directory of mode 0700, and its parents with the default mode. One that is there gets that mode.
///
/// # Errors
/// [`FsError::Io`], also if a link or something else stands there, or it is another user's.
pub fn create_private_dir(path: &Path) -> Result<(), FsError> {
    let failed = |source| FsError::Io { what: "make the private directory", path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let directory = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    directory.set_permissions(Permissions::from_mode(0o700)).map_err(failed)
}

/// Opens a file of mode 0600, which it has from creation, whatever the umask.
///
/// # Errors
/// [`FsError::Io`], also if something else than a regular file stands there, a link included.
pub fn private_file(path: &Path, how: PrivateFile) -> Result<File, FsError> {
    let failed = |source| FsError::Io { what: "open the private file", path: path.to_owned(), source };
    let mut options = File::options();
    options.read(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
    match how {
        PrivateFile::Append => options.append(true).create(true),
        PrivateFile::Truncate => options.write(true).create(true).truncate(true),
        PrivateFile::New => options.write(true).create_new(true),
    };
    let file = options.open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    if metadata.mode() & 0o7777 != 0o600 {
        file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
    }
    Ok(file)
}

/// The content of a regular file of the host, of at most `max` bytes. Links are followed; a FIFO or device is
/// refused without waiting for it.
///
/// # Errors
/// [`FsError::TooLarge`], [`FsError::NotRegular`], [`FsError::Io`], also if nothing is there.
pub fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>, FsError> {
    let failed = |source| FsError::Io { what: "read", path: path.to_owned(), source };
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode();
    match super::Kind::of_mode(mode) {
        super::Kind::File => {}
        kind => return Err(FsError::NotRegular { path: path.to_owned(), kind }),
    }
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= max => Ok(bytes),
        _ => Err(FsError::TooLarge { path: path.to_owned(), max }),
    }
}

#[cfg(test)]
mod tests;

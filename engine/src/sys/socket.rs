//! Turns a path of any length into a Unix socket for one user, and into a connection to it.
//! It refuses to know what is spoken there.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::libc;

/// The longest path that the kernel takes for a socket, less its final zero.
const PATH_MAX: usize = 107;

/// Listens at `path` with mode 0600. A socket that is there already is taken to be a dead one's and replaced: the
/// caller has the directory to itself.
///
/// # Errors
/// When something that is no socket stands there, or the system refuses.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    remove(path)?;
    // Under its own name only once nobody else may use it.
    let fresh = path.with_extension("new");
    remove(&fresh)?;
    let listener = by_short_path(&fresh, UnixListener::bind)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
    fs::rename(&fresh, path)?;
    Ok(listener)
}

/// Takes a socket away; one that is not there is no error.
///
/// # Errors
/// When something that is no socket stands there.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket is there")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Connects to the socket at `path`, which does not wait: a full or dead one is an error.
///
/// # Errors
/// When nobody listens there.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    by_short_path(path, UnixStream::connect)
}

/// Runs `with` on a path that the kernel takes: where it is too long, by the descriptor of its directory.
fn by_short_path<T>(path: &Path, with: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= PATH_MAX {
        return with(path.to_owned());
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "the path has no directory and name");
    let (dir, name) = path.parent().zip(path.file_name()).ok_or_else(invalid)?;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let dir = fs::File::options().read(true).custom_flags(flags).open(dir)?;
    with(PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_listened_at_by_its_owner_only_and_a_dead_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        let path = deep.join("control.sock");
        for _ in 0..2 {
            let _listener = listen(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            connect(&path).unwrap();
        }
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        remove(&path).unwrap();
        remove(&path).unwrap();
    }

    #[test]
    fn what_is_no_socket_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        fs::write(&path, "precious").unwrap();
        assert!(listen(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}

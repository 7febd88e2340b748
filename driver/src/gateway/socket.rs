//! Turns a path of any length into a Unix socket for one user, and a connection to it into a peer that is that user.
//! It refuses to know what is spoken there.

use std::{
    fs, io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;
use tokio::net::{UnixListener, UnixStream};

/// What the kernel takes as a socket's path, less the final zero.
const LONGEST: usize = 107;

/// Runs `with` on a path that the kernel takes, going through the directory's descriptor where it is too long.
fn short<T>(path: &Path, with: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= LONGEST {
        return with(path);
    }
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidInput, "the socket's path has no directory and name");
    let (dir, name) = path.parent().zip(path.file_name()).ok_or_else(invalid)?;
    let dir = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(dir)?;
    with(&PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

/// Listens at `path`, readable and writable by its owner only; a stale socket there is replaced, anything else kept.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket is there"));
        }
        Err(_) => {}
    }
    // Bound under another name and moved, so that it is never there with wider permissions.
    let fresh = path.with_extension("new");
    drop(fs::remove_file(&fresh));
    let listener = short(&fresh, |path| UnixListener::bind(path))?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
    fs::rename(&fresh, path)?;
    Ok(listener)
}

/// Connects to the gateway at `path`.
pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    // The descriptor must live until connected, so the whole of it is done in one blocking call; it does not wait.
    let stream = short(path, |path| std::os::unix::net::UnixStream::connect(path))?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Whether the other end is this process's own user.
pub(crate) fn is_own(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_path_works_and_only_its_owner_may_use_it() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        let path = deep.join("socket");
        let listener = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (accepted, _connected) = tokio::join!(listener.accept(), connect(&path));
        assert!(is_own(&accepted.unwrap().0));
    }

    #[tokio::test]
    async fn what_is_no_socket_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        fs::write(&path, "precious").unwrap();
        assert!(listen(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}

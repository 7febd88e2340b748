//! Turns a directory into one that only one process uses at a time.
//! It refuses to know what the directory holds.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;

/// The file in the directory that carries the lock and the pid of its holder.
pub const LOCK_FILE: &str = "lock";

/// Why a directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it. The pid is what that process wrote, and absent in the instant before it did.
    #[error("lock {}: {}", dir.display(), match pid {
        Some(pid) => format!("process {pid} is using it"),
        None => "another process is using it".to_owned(),
    })]
    Held {
        /// The directory asked for.
        dir: PathBuf,
        /// The holder, as far as it is known.
        pid: Option<u32>,
    },
    /// The lock file is a link, a directory, a FIFO or the like, and is not touched.
    #[error("lock {}: it is not a regular file", path.display())]
    NotAFile {
        /// The lock file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("lock {}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// A held lock. It ends when this value is dropped, and the kernel ends it when the process dies.
#[derive(Debug)]
pub struct DirLock {
    _held: Flock<File>,
}

impl DirLock {
    /// Locks `dir`, which must exist, without waiting. Two locks of one directory exclude each other
    /// even inside one process. The file stays behind: removing it would race with the next holder.
    ///
    /// # Errors
    /// [`LockError::Held`] when another process has it; the others when the lock file cannot be used.
    pub fn acquire(dir: &Path) -> Result<DirLock, LockError> {
        let path = dir.join(LOCK_FILE);
        let io = |source| LockError::Io { path: path.clone(), source };
        let file = open(&path)?;
        let mut held = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => held,
            Err((file, Errno::EWOULDBLOCK)) => {
                return Err(LockError::Held { dir: dir.to_owned(), pid: holder(file) });
            }
            Err((_, errno)) => return Err(io(errno.into())),
        };
        write_pid(&mut held).map_err(io)?;
        Ok(DirLock { _held: held })
    }
}

/// A directory that is nobody's but this process's while the value lives, without a file in it.
#[derive(Debug)]
pub struct SoleUse {
    _held: Flock<File>,
}

impl SoleUse {
    /// Locks the directory itself, without waiting.
    ///
    /// # Errors
    /// [`LockError::Held`] when another process has it so.
    pub fn of(dir: &Path) -> Result<SoleUse, LockError> {
        let io = |source| LockError::Io { path: dir.to_owned(), source };
        let flags = libc::O_DIRECTORY | libc::O_CLOEXEC;
        let opened = File::options().read(true).custom_flags(flags).open(dir).map_err(io)?;
        match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(SoleUse { _held: held }),
            Err((_, Errno::EWOULDBLOCK)) => Err(LockError::Held { dir: dir.to_owned(), pid: None }),
            Err((_, errno)) => Err(io(errno.into())),
        }
    }
}

fn open(path: &Path) -> Result<File, LockError> {
    let opened = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path);
    let not_a_file = || LockError::NotAFile { path: path.to_owned() };
    let file = match opened {
        Ok(file) => file,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EISDIR | libc::ENXIO)) => {
            return Err(not_a_file());
        }
        Err(source) => return Err(LockError::Io { path: path.to_owned(), source }),
    };
    let metadata = file.metadata().map_err(|source| LockError::Io { path: path.to_owned(), source })?;
    // A second name for the file would let the pid be written into something else.
    if !metadata.is_file() || metadata.nlink() != 1 { Err(not_a_file()) } else { Ok(file) }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

fn holder(file: File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_names_its_holder_and_a_dropped_one_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirLock::acquire(dir.path()).unwrap();
        match DirLock::acquire(dir.path()) {
            Err(error @ LockError::Held { pid: Some(pid), .. }) => {
                assert_eq!(pid, std::process::id());
                assert!(error.to_string().ends_with(&format!("process {pid} is using it")), "{error}");
            }
            other => panic!("{other:?}"),
        }
        drop(first);
        DirLock::acquire(dir.path()).unwrap();
    }

    #[test]
    fn sole_use_of_a_directory_leaves_nothing_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = SoleUse::of(dir.path()).unwrap();
        assert!(matches!(SoleUse::of(dir.path()), Err(LockError::Held { pid: None, .. })));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        drop(first);
        SoleUse::of(dir.path()).unwrap();
    }

    #[test]
    fn the_lock_file_is_private_whatever_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCK_FILE);
        std::fs::write(&path, "left behind by a longer pid 123456789\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let _held = DirLock::acquire(dir.path()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_planted_lock_file_is_refused_and_left_alone() {
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        type Plant = fn(&Path, &Path);
        let plants: [(&str, Plant); 4] = [
            ("symlink", |path, victim| std::os::unix::fs::symlink(victim, path).unwrap()),
            ("hard link", |path, victim| std::fs::hard_link(victim, path).unwrap()),
            ("directory", |path, _| std::fs::create_dir(path).unwrap()),
            ("fifo", |path, _| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap()),
        ];
        for (name, plant) in plants {
            let dir = tempfile::tempdir_in(outside.path()).unwrap();
            plant(&dir.path().join(LOCK_FILE), &victim);
            let refused = DirLock::acquire(dir.path());
            assert!(matches!(refused, Err(LockError::NotAFile { .. })), "{name}: {refused:?}");
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious", "{name}");
        }
    }
}

//! Turns a host directory into the fixed point that a turn's changes are measured against.
//! It refuses to know what the changes are.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{
    sys::stat::FileStat,
    time::{ClockId, clock_gettime},
    unistd::{AccessFlags, access},
};

/// A workspace on the host, held open, and the moment that a turn took it.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    dir: Arc<OwnedFd>,
    path: PathBuf,
    owner: (u32, u32),
    mode: u32,
    taken: (i64, i64),
    repository: bool,
    hidden: Option<PathBuf>,
}

impl Origin {
    /// Opens the workspace. `staging` must exist.
    pub(crate) fn open(path: &Path, staging: &Path) -> io::Result<Self> {
        fs::symlink_metadata(staging)?;
        let dir = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(path)?;
        let meta = dir.metadata()?;
        let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
        Ok(Self {
            path: path.to_owned(),
            owner: (meta.uid(), meta.gid()),
            mode: meta.mode() & 0o777,
            taken: (now.tv_sec(), now.tv_nsec()),
            dir: Arc::new(dir.into()),
            repository: false,
            hidden: None,
        })
    }

    /// The sandbox was given a repository of its own as `.git`.
    pub(crate) fn showing_repository(self) -> Self {
        Self { repository: true, ..self }
    }

    /// The sandbox does not see this path, relative to the workspace.
    pub(crate) fn hiding(self, path: Option<PathBuf>) -> Self {
        Self { hidden: path, ..self }
    }

    /// Whether this is that path.
    pub(crate) fn hides(&self, path: &Path) -> bool {
        self.hidden.as_deref() == Some(path)
    }

    /// Whether a `.git` at the top is one that we put there.
    pub(crate) fn shows_repository(&self) -> bool {
        self.repository
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The user and group that own the workspace.
    pub(crate) fn owner(&self) -> (u32, u32) {
        self.owner
    }

    /// The permission bits of the workspace's root.
    pub(crate) fn mode(&self) -> u32 {
        self.mode
    }

    /// Whether something on the host was changed since the turn took the workspace. The status time cannot be set.
    pub(crate) fn changed_since(&self, stat: &FileStat) -> bool {
        (stat.st_ctime, stat.st_ctime_nsec) > self.taken
    }

    /// A directory for the sync's own files from which the workspace can be renamed into: in the state directory, beside
    /// the workspace, or, where that is a mount of its own, in it.
    pub(crate) fn stage(&self, staging: &Path, name: &str) -> io::Result<PathBuf> {
        let ours = mount_of(self.dir())?;
        let beside = self.path.parent().map(Path::to_owned);
        for place in [Some(staging.to_owned()), beside].into_iter().flatten() {
            let flags = libc::O_PATH | libc::O_DIRECTORY;
            let held = fs::OpenOptions::new().read(true).custom_flags(flags).open(&place)?;
            let writable = access(&place, AccessFlags::W_OK).is_ok();
            if writable && mount_of(held.as_fd())? == ours && held.metadata()?.dev() == self.dev()? {
                return Ok(place.join(format!(".crucible-sync-{name}")));
            }
        }
        Ok(self.path.join(format!(".crucible-sync-{name}")))
    }

    fn dev(&self) -> io::Result<u64> {
        Ok(nix::sys::stat::fstat(&self.dir)?.st_dev)
    }
}

/// The mount that a descriptor is in; renames work within one only.
fn mount_of(fd: BorrowedFd<'_>) -> io::Result<String> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    Ok(id.unwrap_or_default().trim().to_owned())
}

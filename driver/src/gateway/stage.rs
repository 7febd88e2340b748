//! Turns the host's workspace into the sandbox's: an overlay whose upper layer is the turn's, or else a copy.
//! It refuses to know what becomes of the changes.

use std::{
    ffi::OsStr,
    fs,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, open},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::stat::{Mode, SFlag, makedev, mknod},
};

use super::{
    init::{Failure, Step as _},
    mount::{DIRECTORY, directory, place, tmpfs, tree},
    protocol::Workspace,
    sys::{NODEV, NOSUID, RDONLY},
    weaken::{Layer, Weaken},
};
use crate::transfer;

/// Where the overlay's layers stand until it is mounted.
pub(crate) struct Stage {
    at: PathBuf,
}

impl Stage {
    pub(crate) fn new(root: &Path, size: u64) -> Result<Self, Failure> {
        let at = root.join(".stage");
        directory(&at, 0o700)?;
        tmpfs(&at, &format!("mode=0700,size={size},nr_inodes=1m"))?;
        Ok(Self { at })
    }

    /// Mounts the overlay; gives the stage back where that cannot be.
    pub(crate) fn workspace(
        self,
        root: &Path,
        workspace: &Workspace,
        lower: &OwnedFd,
        repository: Option<&OwnedFd>,
        weaken: &Weaken,
    ) -> Result<Result<OwnedFd, (Self, String)>, Failure> {
        let inside = root.join("sandbox").join(OsStr::new(&workspace.name));
        directory(&inside, 0o755)?;
        let mode = Mode::from_bits_truncate(workspace.mode);
        let upper = self.layer("work", mode.bits())?;
        let changes = open(&upper, DIRECTORY, Mode::empty()).step("open the workspace's upper directory")?;
        self.lower("work", lower)?;
        workspace.hidden.iter().try_for_each(|path| self.hide(&upper, path))?;
        let mounted = match weaken.off(Layer::Overlay) {
            true => Err(Failure::new("mount the overlay", "it was left out")),
            false => self.overlay("work", &inside),
        };
        if let Err(failure) = mounted {
            return Ok(Err((self, failure.to_string())));
        }
        if let Some(repository) = repository {
            let git = inside.join(".git");
            directory(&git, 0o755)?;
            self.layer("git", 0o755)?;
            self.lower("git", repository)?;
            self.overlay("git", &git)?;
        }
        self.detach()?;
        Ok(Ok(changes))
    }

    /// Covers a path of the workspace, in the upper directory, with the mark of something deleted.
    fn hide(&self, upper: &Path, path: &Path) -> Result<(), Failure> {
        let below = self.at.join("work/lower");
        let mut here = PathBuf::new();
        for part in path.parent().unwrap_or(Path::new("")) {
            here.push(part);
            let meta = fs::metadata(below.join(&here)).step("look at a part of a hidden path")?;
            directory(&upper.join(&here), 0o700)?;
            fs::set_permissions(upper.join(&here), meta.permissions())
                .step("make a part of a hidden path")?;
        }
        mknod(&upper.join(path), SFlag::S_IFCHR, Mode::empty(), makedev(0, 0))
            .step(format!("hide the workspace's {}", path.display()))
    }

    /// Where the file system takes no overlay: a whole copy.
    pub(crate) fn copy(
        self,
        root: &Path,
        workspace: &Workspace,
        repository: Option<&OwnedFd>,
    ) -> Result<OwnedFd, Failure> {
        let copy = self.at.join("copy");
        directory(&copy, 0o700)?;
        // A state directory of the engine's may be hidden; `.git` is never copied.
        let hidden = workspace.hidden.iter().find(|path| *path != Path::new(".git"));
        self.copy_from("work", &copy, hidden.map(PathBuf::as_path))?;
        if let Some(repository) = repository {
            let git = copy.join(".git");
            directory(&git, 0o755)?;
            self.layer("git", 0o755)?;
            self.lower("git", repository)?;
            self.copy_from("git", &git, None)?;
        }
        let mode = fs::Permissions::from_mode(workspace.mode);
        fs::set_permissions(&copy, mode).step("open the copy")?;
        let changes = open(&copy, DIRECTORY, Mode::empty()).step("open the copy")?;
        let inside = root.join("sandbox").join(OsStr::new(&workspace.name));
        place(&tree(&copy, false)?, &inside, NOSUID | NODEV)?;
        self.detach()?;
        Ok(changes)
    }

    fn copy_from(&self, name: &str, to: &Path, hidden: Option<&Path>) -> Result<(), Failure> {
        let from = open(&self.at.join(name).join("lower"), DIRECTORY, Mode::empty());
        transfer::copy_tree(&from.step("open what is to be copied")?, to, hidden).step("copy the workspace")
    }

    /// Lets go of the layers; the mounts keep what they need.
    fn detach(self) -> Result<(), Failure> {
        umount2(&self.at, MntFlags::MNT_DETACH).step("detach the overlay's layers")?;
        fs::remove_dir(&self.at).step("remove the stage")
    }

    /// The upper directory of one overlay, with room for its work and lower ones.
    fn layer(&self, name: &str, mode: u32) -> Result<PathBuf, Failure> {
        let layer = self.at.join(name);
        directory(&layer, 0o700)?;
        for part in ["upper", "work", "lower"] {
            directory(&layer.join(part), 0o700)?;
        }
        let upper = layer.join("upper");
        fs::set_permissions(&upper, fs::Permissions::from_mode(mode)).step("open the upper directory")?;
        Ok(upper)
    }

    fn lower(&self, name: &str, lower: &OwnedFd) -> Result<(), Failure> {
        place(lower, &self.at.join(name).join("lower"), NOSUID | NODEV | RDONLY)
    }

    fn overlay(&self, name: &str, inside: &Path) -> Result<(), Failure> {
        let layer = self.at.join(name);
        // The layers are named through a descriptor, so that no character of a path can be read as an option.
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let here = open(&layer, flags, Mode::empty()).step("open the overlay's layers")?;
        let here = format!("/proc/self/fd/{}", here.as_raw_fd());
        let options = format!("lowerdir={here}/lower,upperdir={here}/upper,workdir={here}/work,userxattr");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("overlay"), inside, Some("overlay"), flags, Some(options.as_str()))
            .step(format!("mount the overlay at {}", inside.display()))
    }
}

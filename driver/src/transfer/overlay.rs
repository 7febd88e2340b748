//! Turns the upper directory of an overlay into a plan, in time that grows with the changes alone.
//! It refuses to know the lower directory beyond the paths that changed.

use std::{
    ffi::OsStr,
    os::fd::OwnedFd,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use nix::sys::stat::{FileStat, SFlag};

use super::{
    error::{At as _, TransferError},
    files::{self, kind},
    found::{self, same_content},
    origin::Origin,
    plan::{Action, HIDDEN, LARGEST, Node, Plan, unfit},
};

/// Reads every entry of the upper directory.
pub(super) fn walk(upper: &OwnedFd, origin: &Origin, cancel: &AtomicBool) -> Result<Plan, TransferError> {
    let mut walk = Walk { origin, cancel, plan: Plan::default() };
    walk.directory(upper, Path::new(""), false, 0)?;
    Ok(walk.plan)
}

struct Walk<'a> {
    origin: &'a Origin,
    cancel: &'a AtomicBool,
    plan: Plan,
}

impl Walk<'_> {
    /// `fresh`: nothing of the host shows through here.
    fn directory(
        &mut self,
        dir: &OwnedFd,
        path: &Path,
        fresh: bool,
        depth: usize,
    ) -> Result<(), TransferError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(TransferError::Cancelled);
        }
        for name in files::names(dir).at("list", path)? {
            let here = path.join(&name);
            let Some(stat) = files::look(dir, &name).at("look at", &here)? else { continue };
            let below = match fresh {
                true => None,
                false => files::look_beneath(self.origin.dir(), &here).at("look at the host's", &here)?,
            };
            if self.origin.hides(&here) {
                // What hides it is ours; a thing in its place is not.
                if kind(&stat) != SFlag::S_IFCHR {
                    self.plan.drop_path(&here, HIDDEN);
                }
            } else if files::is_git(&name) {
                self.git(dir, &here, &stat);
            } else if let Some(reason) = unfit(&here, depth) {
                self.plan.drop_path(&here, reason);
            } else {
                self.entry(dir, &name, &here, &stat, below.as_ref(), depth)?;
            }
        }
        Ok(())
    }

    /// What the view itself put at the top is no change: a mark that hides, or a place for the agent's repository.
    fn git(&mut self, dir: &OwnedFd, path: &Path, stat: &FileStat) {
        let ours = path == Path::new(".git")
            && match kind(stat) {
                SFlag::S_IFCHR => true,
                SFlag::S_IFDIR => {
                    files::open_dir(dir, path).and_then(|git| files::names(&git)).is_ok_and(|n| n.is_empty())
                }
                _ => false,
            };
        if !ours {
            self.plan.drop_path(path, "nothing named .git comes back");
        }
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        name: &OsStr,
        path: &Path,
        stat: &FileStat,
        below: Option<&FileStat>,
        depth: usize,
    ) -> Result<(), TransferError> {
        match kind(stat) {
            SFlag::S_IFCHR if stat.st_rdev == 0 => {
                if below.is_some() {
                    self.plan.add(path, Action::Remove);
                }
            }
            SFlag::S_IFREG if files::size(stat) > LARGEST => {
                self.plan.drop_path(path, "it is larger than 1 TiB");
            }
            SFlag::S_IFREG => {
                if !self.unchanged(dir, name, path, stat, below)? {
                    self.plan.add(path, Action::Put(Node::File { mode: files::permissions(stat) }));
                }
            }
            SFlag::S_IFLNK => found::link(&mut self.plan, self.origin, (dir, name), path, below)?,
            SFlag::S_IFDIR => {
                let inner = files::open_dir(dir, Path::new(name)).at("open", path)?;
                let merged = below.filter(|below| kind(below) == SFlag::S_IFDIR && !files::is_opaque(&inner));
                found::directory(&mut self.plan, path, stat, merged);
                self.directory(&inner, path, merged.is_none(), depth + 1)?;
            }
            _ => self.plan.drop_path(path, "it is a special file"),
        }
        Ok(())
    }

    /// Whether a file was only copied up: opened for writing, or touched, and is as it was.
    fn unchanged(
        &self,
        dir: &OwnedFd,
        name: &OsStr,
        path: &Path,
        stat: &FileStat,
        below: Option<&FileStat>,
    ) -> Result<bool, TransferError> {
        let Some(below) = below else { return Ok(false) };
        let alike = kind(below) == SFlag::S_IFREG
            && below.st_size == stat.st_size
            && files::permissions(below) == files::permissions(stat)
            && (below.st_mtime, below.st_mtime_nsec) == (stat.st_mtime, stat.st_mtime_nsec);
        if !alike {
            return Ok(false);
        }
        let ours = files::open_file(self.origin.dir(), path).at("open the host's", path)?;
        let theirs = files::open_file(dir, Path::new(name)).at("open", path)?;
        same_content(ours, theirs).at("compare", path)
    }
}

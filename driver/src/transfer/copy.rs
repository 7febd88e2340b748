//! Turns a whole copy of a workspace into a plan by comparing it, for where no overlay can be mounted.
//! It refuses to trust times: files that look alike are read.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt, symlink},
    },
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use nix::{
    fcntl::AT_FDCWD,
    sys::{
        stat::{FileStat, Mode, SFlag, UtimensatFlags, fchmod, utimensat},
        time::TimeSpec,
    },
};

use super::{
    apply::copy_sparse,
    error::{At as _, TransferError},
    files::{self, kind},
    found::{self, same_content},
    origin::Origin,
    plan::{Action, HIDDEN, LARGEST, Node, Plan, unfit},
};

/// Copies a tree without its top-level `.git`: files, directories and links; anything else stays behind.
pub(crate) fn copy_tree(from: &OwnedFd, to: &Path, hidden: Option<&Path>) -> Result<(), TransferError> {
    copy_directory(from, to, 0, hidden)
}

/// `hidden` is relative to `from`.
fn copy_directory(
    from: &OwnedFd,
    to: &Path,
    depth: usize,
    hidden: Option<&Path>,
) -> Result<(), TransferError> {
    for name in files::names(from).at("list", to)? {
        if depth == 0 && files::is_git(&name) || hidden == Some(Path::new(&name)) {
            continue;
        }
        let at = to.join(&name);
        let Some(stat) = files::look(from, &name).at("look at", &at)? else { continue };
        match kind(&stat) {
            SFlag::S_IFDIR => {
                fs::DirBuilder::new().mode(0o700).create(&at).at("make", &at)?;
                let inner = files::open_dir(from, Path::new(&name)).at("open", &at)?;
                copy_directory(
                    &inner,
                    &at,
                    depth + 1,
                    hidden.and_then(|path| path.strip_prefix(&name).ok()),
                )?;
                files::set_mode(AT_FDCWD, at.as_os_str(), files::permissions(&stat))
                    .at("set the mode of", &at)?;
            }
            SFlag::S_IFLNK => {
                symlink(files::target(from, &name).at("read the link", &at)?, &at).at("link", &at)?;
            }
            SFlag::S_IFREG => copy_file(from, &name, &at, &stat)?,
            _ => {}
        }
    }
    Ok(())
}

fn copy_file(from: &OwnedFd, name: &OsStr, at: &Path, stat: &FileStat) -> Result<(), TransferError> {
    let source = files::open_file(from, Path::new(name)).at("open", at)?;
    let copy = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(at).at("make", at)?;
    copy_sparse(&source, &copy, &AtomicBool::new(false)).at("copy", at)?;
    fchmod(&copy, Mode::from_bits_truncate(files::permissions(stat))).at("set the mode of", at)?;
    let time = TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec);
    utimensat(AT_FDCWD, at, &time, &time, UtimensatFlags::NoFollowSymlink).at("set the time of", at)
}

/// Compares the copy with the host's workspace.
pub(super) fn walk(copy: &OwnedFd, origin: &Origin, cancel: &AtomicBool) -> Result<Plan, TransferError> {
    let mut walk = Walk { origin, cancel, plan: Plan::default() };
    let host = files::open_dir(origin.dir(), Path::new("")).at("open", origin.path())?;
    walk.directory(copy, Some(&host), Path::new(""), 0)?;
    Ok(walk.plan)
}

struct Walk<'a> {
    origin: &'a Origin,
    cancel: &'a AtomicBool,
    plan: Plan,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        dir: &OwnedFd,
        host: Option<&OwnedFd>,
        path: &Path,
        depth: usize,
    ) -> Result<(), TransferError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(TransferError::Cancelled);
        }
        let mut all: BTreeSet<_> = files::names(dir).at("list", path)?.into_iter().collect();
        if let Some(host) = host {
            all.extend(files::names(host).at("list the host's", path)?);
        }
        for name in all {
            let here = path.join(&name);
            let stat = files::look(dir, &name).at("look at", &here)?;
            let below = host
                .map(|host| files::look(host, &name))
                .transpose()
                .at("look at the host's", &here)?
                .flatten();
            match stat {
                Some(_) if self.origin.hides(&here) => self.plan.drop_path(&here, HIDDEN),
                None if self.origin.hides(&here) => {}
                Some(_) if here == Path::new(".git") && self.origin.shows_repository() => {}
                Some(_) if files::is_git(&name) && (depth == 0 || below.is_none()) => {
                    self.plan.drop_path(&here, "nothing named .git comes back");
                }
                _ if files::is_git(&name) => {}
                // What a copy leaves behind was not deleted by anyone.
                None if below.as_ref().is_some_and(copied) => self.plan.add(&here, Action::Remove),
                None => {}
                Some(_) if unfit(&here, depth).is_some() => {
                    self.plan.drop_path(&here, unfit(&here, depth).unwrap_or_default());
                }
                Some(stat) => self.entry(dir, host, &name, &here, &stat, below.as_ref(), depth)?,
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one entry seen from both sides")]
    fn entry(
        &mut self,
        dir: &OwnedFd,
        host: Option<&OwnedFd>,
        name: &OsStr,
        path: &Path,
        stat: &FileStat,
        below: Option<&FileStat>,
        depth: usize,
    ) -> Result<(), TransferError> {
        match kind(stat) {
            SFlag::S_IFREG if files::size(stat) > LARGEST => {
                self.plan.drop_path(path, "it is larger than 1 TiB");
            }
            SFlag::S_IFREG => {
                if !self.unchanged(dir, name, path, stat, below).at("compare", path)? {
                    self.plan.add(path, Action::Put(Node::File { mode: files::permissions(stat) }));
                }
            }
            SFlag::S_IFLNK => found::link(&mut self.plan, self.origin, (dir, name), path, below)?,
            SFlag::S_IFDIR => {
                let inner = files::open_dir(dir, Path::new(name)).at("open", path)?;
                let below = below.filter(|below| kind(below) == SFlag::S_IFDIR);
                found::directory(&mut self.plan, path, stat, below);
                let host = match (below, host) {
                    (Some(_), Some(host)) => {
                        Some(files::open_dir(host, Path::new(name)).at("open the host's", path)?)
                    }
                    _ => None,
                };
                self.directory(&inner, host.as_ref(), path, depth + 1)?;
            }
            _ => self.plan.drop_path(path, "it is a special file"),
        }
        Ok(())
    }

    fn unchanged(
        &self,
        dir: &OwnedFd,
        name: &OsStr,
        path: &Path,
        stat: &FileStat,
        below: Option<&FileStat>,
    ) -> io::Result<bool> {
        let Some(below) = below.filter(|below| kind(below) == SFlag::S_IFREG) else { return Ok(false) };
        if below.st_size != stat.st_size || files::permissions(below) != files::permissions(stat) {
            return Ok(false);
        }
        same_content(files::open_file(self.origin.dir(), path)?, files::open_file(dir, Path::new(name))?)
    }
}

/// Whether a copy has this kind of file at all.
fn copied(stat: &FileStat) -> bool {
    matches!(kind(stat), SFlag::S_IFREG | SFlag::S_IFDIR | SFlag::S_IFLNK)
}

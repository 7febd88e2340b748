//! Turns one entry that was found in a sandbox, and what the host has there, into its step of the plan.
//! It refuses to know whether an overlay or a whole copy is read.

use std::{ffi::OsStr, io, os::fd::OwnedFd, path::Path};

use nix::{
    fcntl::OFlag,
    sys::stat::{FileStat, SFlag},
};

use super::{
    error::{At as _, TransferError},
    files::{self, kind},
    origin::Origin,
    plan::{Action, Node, Plan, stays_inside},
};

/// A directory, where `below` is the host's that it goes on from.
pub(super) fn directory(plan: &mut Plan, path: &Path, stat: &FileStat, below: Option<&FileStat>) {
    let mode = files::permissions(stat);
    match below {
        None => plan.add(path, Action::Put(Node::Directory { mode })),
        Some(below) if files::permissions(below) != mode => plan.add(path, Action::Mode(mode)),
        Some(_) => {}
    }
}

/// A link: it comes back where it is another one than the host's and may not lead out of the workspace.
pub(super) fn link(
    plan: &mut Plan,
    origin: &Origin,
    (dir, name): (&OwnedFd, &OsStr),
    path: &Path,
    below: Option<&FileStat>,
) -> Result<(), TransferError> {
    let target = files::target(dir, name).at("read the link", path)?;
    let same = below.is_some_and(|below| kind(below) == SFlag::S_IFLNK)
        && same_link(origin, path, &target).at("read the host's link", path)?;
    if same {
        return Ok(());
    }
    if stays_inside(path, &target) {
        plan.add(path, Action::Put(Node::Link { target }));
    } else {
        plan.drop_path(path, "it is a link that may leave the workspace");
    }
    Ok(())
}

/// Whether the host has the same link there.
fn same_link(origin: &Origin, path: &Path, target: &OsStr) -> io::Result<bool> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    let parent = files::open(origin.dir(), parent, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
    Ok(files::target(parent, name)? == target)
}

/// Whether two files of the same size hold the same.
pub(super) fn same_content(one: impl io::Read, other: impl io::Read) -> io::Result<bool> {
    use io::BufRead;
    let mut one = io::BufReader::with_capacity(1 << 16, one);
    let mut other = io::BufReader::with_capacity(1 << 16, other);
    loop {
        let (a, b) = (one.fill_buf()?, other.fill_buf()?);
        let both = a.len().min(b.len());
        if both == 0 {
            return Ok(a.len() == b.len());
        }
        if a.get(..both) != b.get(..both) {
            return Ok(false);
        }
        one.consume(both);
        other.consume(both);
    }
}

//! Turns what was found in a sandbox into the list of what is to be done on the host.
//! It refuses to know how either was read.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use crate::turn::{Change, ChangeKind, Dropped};

/// One directory below another, at most; deeper ones stay behind.
pub(super) const DEEPEST: usize = 200;
/// Why what stands in place of the engine's own state stays behind.
pub(super) const HIDDEN: &str = "the engine's own state stands there";
/// Bytes of the longest path that comes back.
const LONGEST: usize = 3500;
/// Apparent bytes of the largest file that comes back.
pub(super) const LARGEST: u64 = 1 << 40;

/// What is to stand at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// A regular file with the content that stands at the same path in the sandbox.
    File { mode: u32 },
    /// An empty directory; what is in it has steps of its own.
    Directory { mode: u32 },
    /// A link that stays inside.
    Link { target: std::ffi::OsString },
}

/// One thing to do. In order: a directory before what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Put this there, in place of whatever is there.
    Put(Node),
    /// Take away whatever is there.
    Remove,
    /// Set the permission bits of the directory that is there.
    Mode(u32),
}

/// Everything to do.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) actions: Vec<(PathBuf, Action)>,
    pub(super) dropped: Vec<Dropped>,
}

impl Plan {
    pub(super) fn add(&mut self, path: &Path, action: Action) {
        self.actions.push((path.to_owned(), action));
    }

    pub(super) fn drop_path(&mut self, path: &Path, reason: &str) {
        self.dropped.push(Dropped { path: path.to_owned(), reason: reason.to_owned() });
    }

    /// The actions as the caller is told them.
    pub(super) fn changes(&self) -> Vec<Change> {
        let kind = |action: &Action| match action {
            Action::Remove => ChangeKind::Deleted,
            Action::Put(_) | Action::Mode(_) => ChangeKind::Written,
        };
        let mut changes: Vec<_> = self
            .actions
            .iter()
            .map(|(path, action)| Change { path: path.clone(), kind: kind(action) })
            .collect();
        changes.sort_unstable();
        changes
    }
}

/// Why nothing at this path comes back, if so.
pub(super) fn unfit(path: &Path, depth: usize) -> Option<&'static str> {
    if depth > DEEPEST {
        return Some("it is nested too deep");
    }
    (path.as_os_str().len() > LONGEST).then_some("its path is too long")
}

/// Whether a link at `path` stays inside: relative, and upwards only at its start and no further than the root.
///
/// Going up after going down is refused, for what was gone down through may be a link itself.
pub(super) fn stays_inside(path: &Path, target: &OsStr) -> bool {
    let depth = path.components().count().saturating_sub(1);
    let mut up = 0;
    let mut down = false;
    for part in Path::new(target).components() {
        match part {
            Component::RootDir | Component::Prefix(_) => return false,
            Component::CurDir => {}
            Component::ParentDir if down => return false,
            Component::ParentDir => up += 1,
            Component::Normal(name) => {
                if name.as_bytes().eq_ignore_ascii_case(b".git") {
                    return false;
                }
                down = true;
            }
        }
    }
    up <= depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_comes_back_only_when_no_reading_of_it_leaves_the_workspace() {
        let table = [
            ("a", "b", true),
            ("a", "./b/c", true),
            ("d/a", "../b", true),
            ("d/e/a", "../../b", true),
            ("a", "/etc/passwd", false),
            ("a", "../b", false),
            ("d/a", "../../b", false),
            ("d/e/a", "x/../../b", false),
            ("a", ".git/config", false),
            ("d/a", "../.GIT/config", false),
            ("a", "", true),
        ];
        for (path, target, inside) in table {
            assert_eq!(stays_inside(Path::new(path), OsStr::new(target)), inside, "{path} -> {target}");
        }
    }
}

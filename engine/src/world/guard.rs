//! Turns the configuration and the hooks of a repository, as they were before any agent ran, into those again.
//! It refuses to know what they do.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::facts::{PathText, Shown};
use super::tidy::{failed, rel};
use super::{WorldError, claim};
use crate::sys::fs::{Obstacles, Root, WriteOptions};

/// Files of the common directory that make git do or see something else.
const COMMON: [&str; 8] = [
    "config",
    "info/attributes",
    "info/exclude",
    "info/grafts",
    "info/sparse-checkout",
    "objects/info/alternates",
    "objects/info/http-alternates",
    "shallow",
];

/// Such files of a work tree's own git directory.
const OWN: [&str; 2] = ["config.worktree", "commondir"];

/// The most that is remembered of one file.
const FILE_LIMIT: u64 = 4 << 20;

/// What a repository's configuration and hooks were.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Guard {
    common: Vec<(PathText, Content)>,
    own: Vec<(PathText, Content)>,
    hooks: Vec<PathText>,
}

/// What stood at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Content {
    /// Nothing.
    Absent,
    /// A regular file, with its mode.
    File(u32, Vec<u8>),
    /// A link, which is kept as it is and not looked behind.
    Link(Vec<u8>),
    /// Something that is not remembered, and left alone.
    Other,
}

impl Guard {
    /// Remembers a repository.
    pub(super) fn of(shown: &Shown) -> Guard {
        let hooks = names(&shown.common_dir.join("hooks"));
        let common =
            COMMON.iter().map(PathBuf::from).chain([PathBuf::from("hooks")]).chain(hooks.iter().cloned());
        Guard {
            common: common.map(|path| remember(&shown.common_dir, &path)).collect(),
            own: OWN.iter().map(|path| remember(&shown.git_dir, Path::new(path))).collect(),
            hooks: hooks.iter().map(|path| PathText::from(path.as_path())).collect(),
        }
    }

    pub(super) fn read(path: &Path) -> Result<Guard, WorldError> {
        let text = fs::read(path).map_err(WorldError::io("read", path))?;
        serde_json::from_slice(&text).map_err(WorldError::process("read what the repository was"))
    }

    pub(super) fn save(&self, path: &Path) -> Result<(), WorldError> {
        let text =
            serde_json::to_vec(self).map_err(WorldError::process("write down what the repository was"))?;
        claim::write_private(path, &text)
    }

    /// Puts right what differs, and says what that was.
    pub(super) fn put_right(&self, shown: &Shown) -> Result<Vec<String>, WorldError> {
        let mut changed = Vec::new();
        put_right(&shown.common_dir, &self.common, &mut changed)?;
        put_right(&shown.git_dir, &self.own, &mut changed)?;
        let known: BTreeSet<PathBuf> = self.hooks.iter().map(PathText::to_path).collect();
        for hook in names(&shown.common_dir.join("hooks")).into_iter().filter(|hook| !known.contains(hook)) {
            let root = Root::open(&shown.common_dir).map_err(failed)?;
            root.remove_any(&rel(&hook)?).map_err(failed)?;
            changed.push(hook);
        }
        let note = |path: PathBuf| format!("put .git/{} right, which had been changed", path.display());
        Ok(changed.into_iter().map(note).collect())
    }
}

fn put_right(
    dir: &Path,
    remembered: &[(PathText, Content)],
    changed: &mut Vec<PathBuf>,
) -> Result<(), WorldError> {
    for (path, content) in remembered {
        let path = path.to_path();
        if *content == Content::Other || look(&dir.join(&path)) == *content {
            continue;
        }
        let root = Root::open(dir).map_err(failed)?;
        let target = rel(&path)?;
        match content {
            Content::File(mode, bytes) => {
                let options = WriteOptions { mode: *mode, durable: false, obstacles: Obstacles::Remove };
                root.write_atomic(&target, &mut bytes.as_slice(), options).map_err(failed)?;
            }
            Content::Link(to) => {
                root.remove_any(&target).map_err(failed)?;
                let full = dir.join(&path);
                let to = std::ffi::OsStr::from_bytes(to);
                std::os::unix::fs::symlink(to, &full).map_err(WorldError::io("link", &full))?;
            }
            Content::Absent | Content::Other => {
                root.remove_any(&target).map_err(failed)?;
            }
        }
        changed.push(path);
    }
    Ok(())
}

fn remember(dir: &Path, path: &Path) -> (PathText, Content) {
    (PathText::from(path), look(&dir.join(path)))
}

fn look(path: &Path) -> Content {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Content::Absent,
        Err(_) => return Content::Other,
    };
    let content = if metadata.is_symlink() {
        fs::read_link(path).ok().map(|to| Content::Link(to.as_os_str().as_bytes().to_owned()))
    } else if metadata.is_file() && metadata.len() <= FILE_LIMIT {
        fs::read(path).ok().map(|bytes| Content::File(metadata.permissions().mode() & 0o7777, bytes))
    } else {
        None
    };
    content.unwrap_or(Content::Other)
}

/// The hooks, as paths below the common directory; none where `hooks` is a link or absent.
fn names(hooks: &Path) -> Vec<PathBuf> {
    if !hooks.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Vec::new();
    }
    let entries = fs::read_dir(hooks).into_iter().flatten().flatten();
    entries.map(|entry| Path::new("hooks").join(entry.file_name())).collect()
}

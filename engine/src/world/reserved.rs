//! Turns the names that belong to the engine into what git is told, so that none is part of a candidate (N10).
//! It refuses to know what is in those files.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

/// The engine's memory of a run for the agent.
pub const RESULTS: &str = "RESULTS.md";
/// How the engine's own file of that name begins.
pub const RESULTS_MARK: &str = "<!-- Written by crucible before each turn. What is added here is lost. -->";

/// Names at the root of every workspace that are never staged, cleaned or restored.
const ALWAYS: [&str; 7] = [
    RESULTS,
    ".claude",
    "ESCALATION.json",
    "PROVISIONING_PENDING.json",
    "CANDIDATE.md",
    "PLAN_TASK_RESULT.json",
    ".crucible-usage.json",
];

/// Those of them that are read as what an agent says, and removed when they have been read.
pub(super) const MARKERS: [&str; 5] = [
    "ESCALATION.json",
    "PROVISIONING_PENDING.json",
    "CANDIDATE.md",
    "PLAN_TASK_RESULT.json",
    ".crucible-usage.json",
];

/// The reserved paths of one workspace, relative to its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved(Vec<PathBuf>);

impl Reserved {
    /// The names that are reserved everywhere, and `own`: what else of the engine lies inside this workspace
    /// when it runs in place (the state directory, `STEER.md`). Paths that are not plain and relative are
    /// not inside it and are passed over.
    pub fn with(own: &[PathBuf]) -> Reserved {
        let own = own.iter().filter(|path| is_plain(path)).cloned();
        Reserved(ALWAYS.iter().map(PathBuf::from).chain(own).collect())
    }

    /// These and `others`, which are somebody's and are to be let alone in the same way.
    pub(super) fn and(mut self, others: &[PathBuf]) -> Reserved {
        self.0.extend_from_slice(others);
        self
    }

    /// Whether `path` is reserved or lies below something reserved; prefixes count by component.
    pub fn covers(&self, path: &Path) -> bool {
        self.0.iter().any(|reserved| path.starts_with(reserved))
    }

    /// Everything but the reserved paths, as `git add` takes it. In-tree ignore rules cannot undo these.
    ///
    /// They are globs that match one name only: git takes an excluded path, word for word, for one that was asked
    /// for, and fails when an ignore rule covers it.
    pub(super) fn pathspecs(&self) -> Vec<OsString> {
        let excluded = self.0.iter().flat_map(|path| {
            let glob = [b":(top,exclude,glob)", glob(path).as_slice()].concat();
            [glob.clone(), [glob.as_slice(), b"/**"].concat()]
        });
        std::iter::once(OsString::from(":(top)")).chain(excluded.map(OsString::from_vec)).collect()
    }

    /// The reserved paths as `git clean` takes them, anchored, each with its `-e`.
    pub(super) fn clean_excludes(&self) -> Vec<OsString> {
        let pair = |path: &PathBuf| [OsString::from("-e"), OsString::from_vec(pattern(path))];
        self.0.iter().flat_map(pair).collect()
    }

    /// The lines of `info/exclude`, so that a person's `git status` in the workspace is quiet about them.
    pub(super) fn exclude_file(&self) -> Vec<u8> {
        self.0.iter().flat_map(|path| [pattern(path), b"\n".to_vec()]).flatten().collect()
    }
}

fn is_plain(path: &Path) -> bool {
    let mut components = path.components().peekable();
    components.peek().is_some() && components.all(|component| matches!(component, Component::Normal(_)))
}

/// `path` as a glob that matches it and is not spelled like it.
fn glob(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    let plain = bytes.iter().rposition(u8::is_ascii_alphanumeric);
    let mut glob = Vec::new();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if Some(at) == plain => glob.extend([b'[', byte, b']']),
            b'*' | b'?' | b'[' | b'\\' => glob.extend([b'\\', byte]),
            _ => glob.push(byte),
        }
    }
    glob
}

/// `path` as an anchored ignore pattern that matches nothing else.
fn pattern(path: &Path) -> Vec<u8> {
    let mut pattern = vec![b'/'];
    for &byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'*' | b'?' | b'[' | b'\\' | b' ') {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_count_by_component() {
        let reserved =
            Reserved::with(&[PathBuf::from("runs/state"), PathBuf::from("../out"), PathBuf::new()]);
        for (path, expect) in [
            (".claude", true),
            (".claude/skills/x.md", true),
            (".claude-plugin", false),
            ("sub/RESULTS.md", false),
            ("RESULTS.md.bak", false),
            ("runs/state/git", true),
            ("runs/statement", false),
            ("runs", false),
        ] {
            assert_eq!(reserved.covers(Path::new(path)), expect, "{path}");
        }
    }

    #[test]
    fn characters_that_mean_something_to_git_are_taken_literally() {
        for (path, expect) in [("STEER.md", "/STEER.md"), ("a*[b]?", "/a\\*\\[b]\\?"), ("x ", "/x\\ ")] {
            assert_eq!(pattern(Path::new(path)), expect.as_bytes());
        }
        for (path, expect) in [(".claude", ".claud[e]"), ("a*b[c].-", "a\\*b\\[[c]].-"), ("x/é", "[x]/é")] {
            assert_eq!(glob(Path::new(path)), expect.as_bytes());
        }
    }
}

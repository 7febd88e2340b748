//! Turns the files of somebody else's repository into the commit it stands on, without running git in it.
//! It refuses to know objects: it reads names only.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{CommitSha, WorldError};

/// How far a chain of symbolic refs is followed.
const SYMREF_DEPTH: usize = 5;

/// The most that is read of one file; `packed-refs` of the largest repositories is below this.
const FILE_LIMIT: u64 = 256 << 20;

/// A repository as its work tree's `.git` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Foreign {
    /// Where `HEAD` and the index are.
    pub(super) git_dir: PathBuf,
    /// Where objects, refs and config are; the same but in a linked work tree.
    pub(super) common_dir: PathBuf,
    /// The commit that `HEAD` stands on.
    pub(super) head: CommitSha,
}

impl Foreign {
    /// Reads the repository of `work_tree`, which must have a `.git` of its own: a directory, or the file of a
    /// linked work tree or submodule.
    ///
    /// # Errors
    /// [`WorldError::NotARepository`] with the reason, also for a repository without a commit or with the
    /// reftable format.
    pub(super) fn of(work_tree: &Path) -> Result<Foreign, WorldError> {
        let refuse = |why: String| WorldError::NotARepository { path: work_tree.to_owned(), why };
        let git_dir = git_dir(work_tree).map_err(refuse)?;
        let common_dir = common_dir(&git_dir);
        if common_dir.join("reftable").is_dir() {
            return Err(refuse(
                "its refs are in the reftable format, which is not supported in place".to_owned(),
            ));
        }
        let head = resolve(&git_dir, &common_dir).ok_or_else(|| refuse("it has no commit yet".to_owned()))?;
        Ok(Foreign { git_dir, common_dir, head })
    }
}

/// Whether `dir` is a repository's root: it has a `.git`, or is a bare repository itself.
pub(super) fn is_repository_root(dir: &Path) -> bool {
    let bare = || dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir();
    dir.join(".git").symlink_metadata().is_ok() || bare()
}

/// Whether the repository at `root`, bare or not, counts in SHA-256, as far as its `HEAD` tells.
pub(super) fn counts_in_sha256(root: &Path) -> Option<bool> {
    let git_dir = git_dir(root).unwrap_or_else(|_| root.to_owned());
    resolve(&git_dir, &common_dir(&git_dir)).map(|head| head.is_sha256())
}

/// The branch that `HEAD` is on, if it is on one.
pub(super) fn branch(git_dir: &Path) -> Option<String> {
    let text = read(&git_dir.join("HEAD"))?;
    text.trim_end().strip_prefix("ref: ").map(|name| name.trim_start().to_owned())
}

/// A branch that leaves no room for the branch `name`: one of its parents, or one below it.
pub(super) fn in_the_way(common_dir: &Path, name: &str) -> Option<String> {
    let packed = read(&common_dir.join("packed-refs")).unwrap_or_default();
    let packed = packed.lines().filter_map(|line| Some(line.split_once(' ')?.1));
    let is_parent = |other: &str| name.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'));
    let is_below = |other: &str| other.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    let mut packed = packed.filter(|other| is_parent(other) || is_below(other));
    if let Some(other) = packed.next() {
        return Some(other.to_owned());
    }
    let parents = Path::new(name).ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
    let mut parents = parents.filter(|parent| common_dir.join(parent).is_file());
    if let Some(parent) = parents.next() {
        return Some(parent.display().to_string());
    }
    let below = super::objects::loose_refs(common_dir, &[name]).ok()?;
    below.first().map(|(path, _)| path.display().to_string())
}

/// A path as errors show it.
pub(super) fn shown(path: &Path) -> String {
    path.as_os_str().as_encoded_bytes().escape_ascii().to_string()
}

fn git_dir(work_tree: &Path) -> Result<PathBuf, String> {
    let dot_git = work_tree.join(".git");
    let metadata = match dot_git.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("it has no .git of its own; run `git init` and commit there first".to_owned());
        }
        Err(error) => return Err(format!("its .git cannot be read: {error}")),
    };
    let target = if metadata.is_dir() {
        dot_git
    } else {
        let text = read(&dot_git).ok_or("its .git is neither a directory nor a readable file")?;
        let to = text.trim_end().strip_prefix("gitdir: ").ok_or("its .git file names no git directory")?;
        work_tree.join(to)
    };
    target
        .canonicalize()
        .map_err(|error| format!("its git directory {} is not there: {error}", target.display()))
}

fn common_dir(git_dir: &Path) -> PathBuf {
    let named = read(&git_dir.join("commondir")).map(|text| git_dir.join(text.trim_end()));
    named.and_then(|path| path.canonicalize().ok()).unwrap_or_else(|| git_dir.to_owned())
}

fn resolve(git_dir: &Path, common_dir: &Path) -> Option<CommitSha> {
    let mut text = read(&git_dir.join("HEAD"))?;
    for _ in 0..SYMREF_DEPTH {
        let Some(name) = text.trim_end().strip_prefix("ref: ") else {
            return CommitSha::parse(text.trim_end());
        };
        let name = name.trim_start();
        if !is_ref_name(name) {
            return None;
        }
        text = match read(&common_dir.join(name)).or_else(|| read(&git_dir.join(name))) {
            Some(text) => text,
            None => return packed(&read(&common_dir.join("packed-refs"))?, name),
        };
    }
    None
}

/// Whether `name` stays below the git directory.
fn is_ref_name(name: &str) -> bool {
    name.starts_with("refs/") && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// The commit that `packed-refs` has for the branch `name`.
fn packed(text: &str, name: &str) -> Option<CommitSha> {
    let mut entries = text.lines().filter_map(|line| line.split_once(' '));
    entries.find_map(|(sha, entry)| (entry == name).then(|| CommitSha::parse(sha))?)
}

/// The text of a regular file of at most [`FILE_LIMIT`] bytes.
fn read(path: &Path) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let read = File::open(path).ok()?.take(FILE_LIMIT).read_to_string(&mut text).ok()?;
    (u64::try_from(read).ok()? < FILE_LIMIT).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    fn repository(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn head_is_found_loose_packed_and_detached() {
        let sha = format!("{SHA}\n");
        let packed = format!("# pack-refs with: peeled\n{SHA} refs/heads/main\n^{SHA}\n");
        let tables: [&[(&str, &str)]; 4] = [
            &[(".git/HEAD", &sha)],
            &[(".git/HEAD", "ref: refs/heads/main\n"), (".git/refs/heads/main", &sha)],
            &[(".git/HEAD", "ref: refs/heads/main\n"), (".git/packed-refs", &packed)],
            &[
                (".git", "gitdir: real/worktrees/x\n"),
                ("real/worktrees/x/HEAD", "ref: refs/heads/main\n"),
                ("real/worktrees/x/commondir", "../..\n"),
                ("real/refs/heads/main", &sha),
            ],
        ];
        for files in tables {
            let dir = repository(files);
            assert_eq!(Foreign::of(dir.path()).unwrap().head.as_str(), SHA, "{files:?}");
        }
    }

    #[test]
    fn what_is_no_usable_repository_is_refused_with_the_reason() {
        let tables: [(&[(&str, &str)], &str); 5] = [
            (&[("a", "")], "no .git of its own"),
            (&[(".git/HEAD", "ref: refs/heads/main\n")], "no commit yet"),
            (&[(".git/HEAD", "ref: refs/../../../etc/passwd\n")], "no commit yet"),
            (&[(".git/HEAD", "ref: refs/heads/.invalid\n"), (".git/reftable/tables.list", "")], "reftable"),
            (&[(".git", "gitdir: nowhere\n")], "is not there"),
        ];
        for (files, expect) in tables {
            let dir = repository(files);
            let error = Foreign::of(dir.path()).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn a_loop_of_symbolic_refs_ends() {
        let dir =
            repository(&[(".git/HEAD", "ref: refs/heads/a\n"), (".git/refs/heads/a", "ref: refs/heads/a\n")]);
        assert!(Foreign::of(dir.path()).is_err());
    }
}

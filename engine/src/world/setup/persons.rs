//! Turns the state of a person's own repository into a refusal to work in it, or into what of it must stay.
//! It refuses to run their configuration: git reads their index under the engine's own repository.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::Spec;
use super::base::Base;
use crate::world::foreign;
use crate::world::git::Git;
use crate::world::workspace::branch;
use crate::world::{CommitSha, Reserved, WorldError, reserved, tidy};

/// What git leaves in its directory while it is in the middle of something.
const UNFINISHED: [&str; 8] = [
    "MERGE_HEAD",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "index.lock",
];

/// How many files an error names.
const NAMED: usize = 5;

/// So many ignored paths, and so many bytes of them, are kept apart in each command line.
const IGNORED_LIMIT: (usize, usize) = (2_000, 256 << 10);

/// Refuses a repository in which git is at work, or in which the run's branch can have no place.
pub(super) fn require_at_rest(spec: &Spec, git_dir: &Path, common_dir: &Path) -> Result<(), WorldError> {
    let path = || spec.place.workspace.clone();
    if let Some(name) = UNFINISHED.iter().find(|name| git_dir.join(name).symlink_metadata().is_ok()) {
        return Err(WorldError::Unfinished { path: path(), mark: git_dir.join(name) });
    }
    match foreign::in_the_way(common_dir, &branch(&spec.run)) {
        Some(name) => Err(WorldError::BranchInTheWay { path: path(), name }),
        None => Ok(()),
    }
}

/// Refuses submodules with something in them: their files are in no commit of the workspace's.
pub(super) fn require_hollow(workspace: &Path, submodules: &[PathBuf]) -> Result<(), WorldError> {
    match tidy::filled(workspace, submodules)? {
        Some(module) => Err(WorldError::FilledSubmodule { path: workspace.to_owned(), module }),
        None => Ok(()),
    }
}

/// Refuses files that are there and would be taken for what an agent says.
pub(super) fn require_no_markers(workspace: &Path, tracked: &[PathBuf]) -> Result<(), WorldError> {
    let there = |name: &str| {
        workspace.join(name).symlink_metadata().is_ok() || tracked.iter().any(|path| path.starts_with(name))
    };
    match reserved::MARKERS.into_iter().find(|name| there(name)) {
        Some(name) => Err(WorldError::MarkerTaken { path: workspace.join(name) }),
        None => Ok(()),
    }
}

/// Whether something stands where the engine's memory of a run goes that no engine wrote.
pub(super) fn has_results(workspace: &Path) -> Result<bool, WorldError> {
    let path = workspace.join(reserved::RESULTS);
    let doing = WorldError::io("look at", &path);
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(doing(error)),
        Ok(there) if !there.is_file() => Ok(true),
        Ok(_) => {
            let mut begins = [0; reserved::RESULTS_MARK.len()];
            let read = std::fs::File::open(&path).and_then(|mut file| file.read_exact(&mut begins));
            match read {
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(doing(error)),
                _ => Ok(begins != reserved::RESULTS_MARK.as_bytes()),
            }
        }
    }
}

/// Refuses a state directory with tracked files: they could not be told from the engine's own.
pub(super) fn require_untracked_state(spec: &Spec, tracked: &[PathBuf]) -> Result<(), WorldError> {
    let Ok(state) = spec.place.state_dir.strip_prefix(&spec.place.workspace) else { return Ok(()) };
    match tracked.iter().find(|path| path.starts_with(state)) {
        Some(file) => {
            Err(WorldError::StateTracked { path: spec.place.state_dir.clone(), file: file.clone() })
        }
        None => Ok(()),
    }
}

/// Refuses to work in place where a reset would lose something: in the files, in those with reserved names that are
/// tracked (`tracked`), or in the person's index. What a filter of theirs makes of a file counts as a change too: the
/// engine uses none, and would write the file back without it.
pub(super) async fn require_clean(
    spec: &Spec,
    git: &Git,
    base: &Base,
    tracked: &[PathBuf],
    submodules: &[PathBuf],
) -> Result<(), WorldError> {
    let theirs = git.reading_index(&base.shown.git_dir.join("index"));
    if is_split(&base.shown.git_dir) {
        return Err(WorldError::SplitIndex { path: spec.place.workspace.clone() });
    }
    let entries = theirs.marked_entries().await?;
    git.add(Reserved::with(&spec.place.own).pathspecs()).await?;
    git.add_tracked(tracked).await?;
    let tree = git.write_tree().await?;
    let (mut on_disk, _) = git.changed_paths(&base.commit, &tree, usize::MAX).await?;
    let absent = submodules.iter().filter(|path| spec.place.workspace.join(path).symlink_metadata().is_err());
    on_disk.extend(absent.map(|path| foreign::shown(path)));
    let staged = theirs.staged_paths(&base.commit).await?;
    let all: BTreeSet<&String> = on_disk.iter().chain(&staged).collect();
    if all.is_empty() {
        return require_unmarked(spec, &entries);
    }
    let mut hint = agents(&base.shown.git_dir);
    if staged.is_empty() && quiet(spec, base, git, &entries, &on_disk).await? {
        hint.push_str(
            "; git itself may call them unchanged, because of a filter, `core.fileMode`, a sparse checkout or a mark \
             in the index, and none of these would survive a reset",
        );
    }
    let first: Vec<String> = all.iter().take(NAMED).map(|path| (*path).clone()).collect();
    let more = all.len().saturating_sub(NAMED);
    Err(WorldError::Dirty { path: spec.place.workspace.clone(), first, more, hint })
}

/// Whether the index in `git_dir` is in two parts, of which it names the second one by its hash.
fn is_split(git_dir: &Path) -> bool {
    let names = std::fs::read_dir(git_dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let hash = |name: &OsStr| CommitSha::parse(name.to_str()?.strip_prefix("sharedindex.")?);
    let parts: Vec<Vec<u8>> = names.filter_map(|name| Some(bytes_of(&hash(&name)?))).collect();
    if parts.is_empty() {
        return false;
    }
    let index = std::fs::read(git_dir.join("index")).unwrap_or_default();
    parts.iter().any(|hash| index.windows(hash.len()).any(|bytes| bytes == hash))
}

fn bytes_of(hash: &CommitSha) -> Vec<u8> {
    let digit = |char: char| char.to_digit(16).and_then(|digit| u8::try_from(digit).ok()).unwrap_or_default();
    let digits: Vec<u8> = hash.as_str().chars().map(digit).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect()
}

/// Refuses marks that an index which the engine writes would not have.
fn require_unmarked(spec: &Spec, entries: &[(u8, PathBuf)]) -> Result<(), WorldError> {
    let mark = |&tag: &u8| match tag {
        b'S' | b's' => Some("skip-worktree"),
        tag if tag.is_ascii_lowercase() => Some("assume-unchanged"),
        _ => None,
    };
    match entries.iter().find_map(|(tag, file)| Some((mark(tag)?, file))) {
        Some((mark, file)) => {
            Err(WorldError::Marked { path: spec.place.workspace.clone(), mark, file: file.clone() })
        }
        None => Ok(()),
    }
}

/// Whether the person's own git would say that none of `changed` is.
async fn quiet(
    spec: &Spec,
    base: &Base,
    git: &Git,
    entries: &[(u8, PathBuf)],
    changed: &[String],
) -> Result<bool, WorldError> {
    let known: BTreeSet<String> = entries.iter().map(|(_, path)| foreign::shown(path)).collect();
    let file_mode = Git::file_mode(&base.shown.common_dir.join("config"), &spec.place.env).await;
    let index = base.shown.git_dir.join("index");
    let seen: BTreeSet<String> = git.touched_paths(&index, file_mode).await?.into_iter().collect();
    Ok(changed.iter().all(|path| known.contains(path) && !seen.contains(path)))
}

/// Whose work it may be, where `HEAD` is on the branch of an earlier run.
fn agents(git_dir: &Path) -> String {
    let head = foreign::branch(git_dir);
    match head.as_deref().and_then(|name| name.strip_prefix("refs/heads/crucible/")) {
        Some(run) => format!(
            "; HEAD is on crucible/{run}, so that they may be what an agent of that run left when it was ended: its \
             commits are on that branch and below refs/crucible/candidates/{run}"
        ),
        None => String::new(),
    }
}

/// What the person's own rules ignore and what is there: never the engine's to stage, to clean or to reset.
pub(super) async fn ignored(spec: &Spec, git: &Git, reserved: &Reserved) -> Result<Vec<PathBuf>, WorldError> {
    let mut ignored = git.ignored_paths().await?;
    ignored.retain(|path| !reserved.covers(path));
    let bytes: usize = ignored.iter().map(|path| path.as_os_str().len()).sum();
    if ignored.len() > IGNORED_LIMIT.0 || bytes > IGNORED_LIMIT.1 {
        return Err(WorldError::TooManyIgnored { path: spec.place.workspace.clone(), count: ignored.len() });
    }
    Ok(ignored)
}

/// The directories that hold nothing and are not ignored, innermost ones.
pub(super) async fn empty_directories(spec: &Spec, git: &Git) -> Result<Vec<PathBuf>, WorldError> {
    let mut open = git.untracked_directories().await?;
    let mut empty = Vec::new();
    while let Some(dir) = open.pop() {
        let full = spec.place.workspace.join(&dir);
        let entries = std::fs::read_dir(&full).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(WorldError::io("list", &full))?;
        if entries.is_empty() {
            empty.push(dir);
            continue;
        }
        let below = entries.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(below.map(|entry| dir.join(entry.file_name())));
    }
    Ok(empty)
}

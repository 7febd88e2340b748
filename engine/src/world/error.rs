//! Turns whatever stops a workspace from being what it should be into one kind of error per cause.
//! It refuses to know how an error is shown and what exit code it has.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::CommitSha;
use crate::sys::fs::FsError;
use crate::sys::process::Exit;

/// Why the workspace could not be set up, recorded, kept or restored. Each reads as what follows "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// git ran and said no.
    #[error("{doing}: git: {exit}: {message}")]
    Git {
        /// What was being done.
        doing: &'static str,
        /// How it ended.
        exit: Exit,
        /// The end of what it wrote to standard error.
        message: String,
    },
    /// git printed something it never should.
    #[error("{doing}: git answered {answer:?}")]
    Answer {
        /// What was being done.
        doing: &'static str,
        /// The beginning of its answer.
        answer: String,
    },
    /// Whoever asked for it no longer wants it.
    #[error("{doing}: cancelled")]
    Cancelled {
        /// What was being done.
        doing: &'static str,
    },
    /// git took longer than a step of it may.
    #[error("{doing}: git was still at it after {} s", after.as_secs())]
    TooLong {
        /// What was being done.
        doing: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The directory that the run works in is no longer there, and is not the engine's to make anew.
    #[error("go on in {}: {why}; all commits of this run are safe in {}", path.display(), kept_in.display())]
    WorkspaceGone {
        /// The workspace.
        path: PathBuf,
        /// What happened to it.
        why: String,
        /// The engine's own repository.
        kept_in: PathBuf,
    },
    /// A part of the state directory is not there.
    #[error("go on without {}: it is a part of the state directory, and something has removed it", path.display())]
    StateGone {
        /// The part.
        path: PathBuf,
    },
    /// Something is mounted inside the workspace, so that it cannot be brought back.
    #[error("bring the workspace back: a file system is mounted at {}; unmount it (`umount {}`) and end what holds it", path.display(), path.display())]
    Mounted {
        /// Where.
        path: PathBuf,
        /// What failed because of it.
        source: Box<WorldError>,
    },
    /// A program could not be started or waited for.
    #[error("{doing}")]
    Process {
        /// What was being done.
        doing: &'static str,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system refused something about a file.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A file could not be reached, read or written.
    #[error(transparent)]
    Files(Box<FsError>),
    /// The directory where the workspace belongs holds something that this engine did not put there.
    #[error("set up {}: it is not empty and not a workspace of this state directory; move it away or name another `dir`", path.display())]
    InTheWay {
        /// The directory.
        path: PathBuf,
    },
    /// The tree to work on in place holds work that a reset would lose.
    #[error("work in place in {}: {}; commit or stash them, or leave `dir` out so that a clone is used{hint}", path.display(), uncommitted(.first, *.more))]
    Dirty {
        /// The work tree.
        path: PathBuf,
        /// The first few changed or untracked paths.
        first: Vec<String>,
        /// How many there are beyond those.
        more: usize,
        /// Whose work it may be, and why git may see none: empty, or one that begins with `; `.
        hint: String,
    },
    /// git is in the middle of something in the repository to work in.
    #[error("work in place in {}: git is in the middle of something, as {} says; finish or abort it (a lock that no git holds can be removed), or leave `dir` out so that a clone is used", path.display(), mark.display())]
    Unfinished {
        /// The work tree.
        path: PathBuf,
        /// What git left.
        mark: PathBuf,
    },
    /// The run's branch can have no place beside one of the user's.
    #[error("work in place in {}: the branch {name} leaves no room for those of the runs, refs/heads/crucible/…; give it another name with `git branch -m`", path.display())]
    BranchInTheWay {
        /// The work tree.
        path: PathBuf,
        /// The branch.
        name: String,
    },
    /// The user's index says more of a file than one that the engine writes would.
    #[error("work in place in {}: the index marks {} as {mark}, and that mark would be lost; take it away with `git update-index --no-{mark}` or `git sparse-checkout disable`, or leave `dir` out so that a clone is used", path.display(), file.display())]
    Marked {
        /// The work tree.
        path: PathBuf,
        /// The mark, as `git update-index` names it.
        mark: &'static str,
        /// The first file that has it.
        file: PathBuf,
    },
    /// The user's index is in two parts.
    #[error("work in place in {}: its index is split; join it with `git update-index --no-split-index`, or leave `dir` out so that a clone is used", path.display())]
    SplitIndex {
        /// The work tree.
        path: PathBuf,
    },
    /// Files of the repository lie where the engine's own belong.
    #[error("work in place with the state directory {}: {} in it is tracked; name another one with --state-dir", path.display(), file.display())]
    StateTracked {
        /// The state directory.
        path: PathBuf,
        /// The first tracked file, relative to the work tree.
        file: PathBuf,
    },
    /// A file is there that would be taken for an agent's.
    #[error("set up the workspace: {} is there already, and a file of that name is an agent's to write and the engine's to remove; give it another name", path.display())]
    MarkerTaken {
        /// The file.
        path: PathBuf,
    },
    /// A submodule has files, which are in no commit of the workspace's.
    #[error("set up {}: the submodule {} has content, whose changes could be neither kept nor undone; empty it (`git submodule deinit -f {}`), or make its files part of the repository", path.display(), module.display(), module.display())]
    FilledSubmodule {
        /// The workspace.
        path: PathBuf,
        /// The submodule, relative to it.
        module: PathBuf,
    },
    /// More ignored files are there than can be kept apart.
    #[error("work in place in {}: {count} ignored files are there, too many to keep each of them; remove them (`git clean -Xdn` lists them), ignore their directories as a whole, or leave `dir` out so that a clone is used", path.display())]
    TooManyIgnored {
        /// The work tree.
        path: PathBuf,
        /// How many.
        count: usize,
    },
    /// There is nothing to go back to.
    #[error("work in place in {}: {why}", path.display())]
    NotARepository {
        /// The work tree.
        path: PathBuf,
        /// What is missing or not supported.
        why: String,
    },
    /// The branch, tag or commit that the manifest names is not there.
    #[error("find `{name}` in {from}")]
    UnknownRef {
        /// `[repo].ref`.
        name: String,
        /// The repository.
        from: String,
    },
    /// `setup_cmd` failed.
    #[error("run setup_cmd: it {why}")]
    Setup {
        /// How it ended, and the end of its output.
        why: String,
    },
    /// `setup_cmd` ended well and left no workspace.
    #[error("run setup_cmd: it left no directory {}", path.display())]
    NoWorkspace {
        /// Where the workspace belongs.
        path: PathBuf,
    },
    /// An inject could not be put where it belongs.
    #[error("inject {}: {why}", dst.display())]
    Inject {
        /// Its destination, relative to the workspace.
        dst: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The user's own repository is gone.
    #[error("update {}: it is no longer the repository this run started in; its commits are safe in {}", git_dir.display(), kept_in.display())]
    RepositoryGone {
        /// The git directory.
        git_dir: PathBuf,
        /// The engine's own repository.
        kept_in: PathBuf,
    },
    /// The state directory holds no finished setup, or one of another workspace.
    #[error("open the workspace {}: {why}", path.display())]
    NotSetUp {
        /// The workspace.
        path: PathBuf,
        /// What is missing or different.
        why: String,
    },
    /// A candidate that must be staged for a keep cannot be.
    #[error("snapshot the workspace: {why}")]
    Unstageable {
        /// What stands in the way.
        why: String,
    },
    /// `snapshot_cmd` failed, so the keep is off.
    #[error("snapshot the world: snapshot_cmd {why}")]
    Snapshot {
        /// How.
        why: String,
    },
    /// `restore_cmd` failed, so nothing measured from here on could be trusted.
    #[error("restore the world: restore_cmd {why}")]
    Restore {
        /// How.
        why: String,
    },
    /// A token that no snapshot of this engine returned, or that needs a world this run does not have.
    #[error("restore {token:?}: it is no token of this world")]
    BadToken {
        /// Its beginning.
        token: String,
    },
    /// The candidate of an open iteration is not recorded.
    #[error("find the candidate of iteration {iter}: it is not in the repository of the run")]
    NoCandidate {
        /// The iteration.
        iter: u32,
    },
    /// A commit that this run does not have.
    #[error("restore {commit}: this run has no such commit")]
    UnknownCommit {
        /// The commit.
        commit: CommitSha,
    },
}

impl WorldError {
    pub(super) fn io<'a>(
        doing: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> WorldError + use<'a> {
        move |source| WorldError::Io { doing, path: path.to_owned(), source }
    }

    pub(super) fn process<E>(doing: &'static str) -> impl FnOnce(E) -> WorldError
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        move |source| WorldError::Process { doing, source: Box::new(source) }
    }
}

fn uncommitted(first: &[String], more: usize) -> String {
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("these files, or their entries in the index, differ from the commit: {}{rest}", first.join(", "))
}

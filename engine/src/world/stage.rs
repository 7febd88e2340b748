//! Turns the files of the workspace into a tree in the engine's repository, or the reason why they are no candidate.
//! It refuses to know what becomes of the tree.
//!
//! All of it is bounded, for the files are an agent's: a file that claims eight terabytes takes git hours to read, and
//! takes the agent one system call to make.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::tidy::{self, Found, LARGEST, shown};
use super::workspace::Workspace;
use super::{CommitSha, WorldError, objects};
use crate::log::few;

/// How long one step of git may take with a candidate.
pub(super) const LIMIT: Duration = Duration::from_mins(10);

/// How long git is given before the files are looked at for one that it would read for very long: less than it takes to
/// read a file of [`LARGEST`] bytes.
const PATIENCE: Duration = Duration::from_secs(1);

impl Workspace {
    /// Stages everything and returns its tree, or why it cannot be a candidate.
    pub(super) async fn stage(
        &mut self,
        cancel: &CancellationToken,
    ) -> Result<Result<CommitSha, String>, WorldError> {
        if let Some(why) = self.missing()? {
            return Ok(Err(why));
        }
        let found = self.tidy()?;
        if let Some(why) = unseen(&found) {
            return Ok(Err(why));
        }
        if let Some(inner) = self.not_ignored(found.repositories).await?.first() {
            let why = format!("the candidate holds a git repository of its own: {}", shown(inner));
            return Ok(Err(why));
        }
        objects::empty_incoming(&self.git)?;
        let stop = cancel.child_token();
        let git = self.git.quarantined().bounded(LIMIT, stop.clone());
        let staged = {
            let mut staging = pin!(git.add(self.reserved.pathspecs()));
            tokio::select! {
                biased;
                staged = &mut staging => staged,
                large = self.first_large() => {
                    stop.cancel();
                    // It has been killed, and what it had staged is of no interest.
                    let _ = staging.await;
                    let large = large?;
                    let why = format!("the candidate holds a file of more than {LARGEST} bytes: {}", shown(&large));
                    return Ok(Err(why));
                }
            }
        };
        match staged {
            Ok(()) => git.write_tree().await.map(Ok),
            Err(WorldError::Git { message, exit, .. }) => {
                Ok(Err(format!("git cannot stage the candidate: {exit}: {message}")))
            }
            Err(error) => given_up(error).map(Err),
        }
    }

    /// A file that is too long to be staged; never ready where there is none.
    async fn first_large(&self) -> Result<PathBuf, WorldError> {
        tokio::time::sleep(PATIENCE).await;
        let mut large = tidy::large(self.git.work_tree(), &self.reserved)?;
        large.retain(|path| !self.in_submodule(path) && !self.facts.known.contains(path));
        let ignored = if large.is_empty() { Vec::new() } else { self.git.ignored(&large).await? };
        match large.into_iter().find(|path| !ignored.contains(path)) {
            Some(path) => Ok(path),
            None => std::future::pending().await,
        }
    }

    /// Removes special files that are new and what git could not walk, opens directories that were closed, and lists
    /// inner repositories.
    pub(super) fn tidy(&mut self) -> Result<Found, WorldError> {
        // One of our own that was cancelled may have left its lock.
        self.notes.extend(objects::remove_stale_locks(self.git.dir())?);
        let mut found = tidy::sweep(self.git.work_tree(), &self.reserved)?;
        found.forget(&self.facts.known);
        for (what, paths) in [
            ("the special file", &found.special),
            ("the bottomless directory", &found.deep),
            ("the oversized file", &found.oversized),
        ] {
            tidy::remove(self.git.work_tree(), paths)?;
            self.notes.extend(few(paths.iter().map(|path| format!("removed {what} {}", shown(path)))));
        }
        Ok(found)
    }

    /// Those of `repositories` (each a path that ends in `.git`) that stand where git would look for files.
    pub(super) async fn not_ignored(
        &self,
        mut repositories: Vec<PathBuf>,
    ) -> Result<Vec<PathBuf>, WorldError> {
        repositories.retain(|path| !self.in_submodule(path));
        if repositories.is_empty() {
            return Ok(repositories);
        }
        let around: Vec<PathBuf> =
            repositories.iter().filter_map(|path| Some(path.parent()?.to_owned())).collect();
        let ignored = self.git.ignored(&around).await?;
        repositories
            .retain(|path| !path.parent().is_some_and(|around| ignored.iter().any(|other| other == around)));
        Ok(repositories)
    }

    fn in_submodule(&self, path: &Path) -> bool {
        self.facts.submodules.iter().any(|module| path.starts_with(module))
    }
}

/// Why the files are no candidate, where a part of them would not be in it or cannot be told from what is ignored.
fn unseen(found: &Found) -> Option<String> {
    if let Some(deep) = found.deep.first() {
        return Some(format!("the candidate nests directories deeper than git can follow: {}", shown(deep)));
    }
    let rules = found.oversized.first()?;
    Some(format!(
        "the candidate holds a file that git reads whole, and it is too large for that: {}",
        shown(rules)
    ))
}

/// What a step that was ended says of the candidate; other errors are the engine's.
pub(super) fn given_up(error: WorldError) -> Result<String, WorldError> {
    match error {
        WorldError::Cancelled { .. } | WorldError::TooLong { .. } => {
            Ok(format!("the candidate was not recorded: failed to {error}"))
        }
        error => Err(error),
    }
}

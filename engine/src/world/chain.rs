//! Turns the commits that a log names into whether they are in the run's repository, each on the best before it.
//! It refuses to know why a commit was kept.

use std::path::Path;

use super::git::Git;
use super::{CommitSha, Diff, SnapshotToken, WorldError};
use crate::sys::env::Environment;

/// A commit that a log names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The iteration that it belongs to.
    pub iter: u32,
    /// Its name, or the token that it is the first half of.
    pub commit: String,
    /// Whether it became the best.
    pub kept: bool,
}

/// The repository of a run, to be read only.
#[derive(Debug)]
pub struct Chain {
    git: Git,
}

impl Chain {
    /// The repository in `dir`, which is a `state/git`.
    #[must_use]
    pub fn open(dir: &Path, env: &Environment) -> Chain {
        Chain { git: Git::new(dir, dir, env) }
    }

    /// The patch of a candidate against the best before it, as its row has it.
    ///
    /// # Errors
    /// When either is not there, or git fails.
    pub async fn patch(&self, best: &str, candidate: &str) -> Result<Diff, WorldError> {
        let (best, candidate) = (self.tree(best).await?, self.tree(candidate).await?);
        if best == candidate { Ok(Diff::default()) } else { self.git.diff(&best, &candidate).await }
    }

    async fn tree(&self, token: &str) -> Result<CommitSha, WorldError> {
        let commit = SnapshotToken::parse(token)?.commit().clone();
        let tree = self.git.resolve(&format!("{commit}^{{tree}}")).await?;
        tree.ok_or(WorldError::UnknownCommit { commit })
    }

    /// The first commit that is not there, or that is not the best before it and does not stand on it either; with its
    /// iteration and what is wrong. The first one that was kept is the baseline, on which everything stands.
    ///
    /// # Errors
    /// When git cannot be run.
    pub async fn check(&self, links: &[Link]) -> Result<Option<(u32, String)>, WorldError> {
        let mut best: Option<String> = None;
        for link in links {
            let wrong = |why: String| Ok(Some((link.iter, why)));
            let Ok(token) = SnapshotToken::parse(&link.commit) else {
                return wrong(format!("`{}` is no commit", link.commit.escape_debug()));
            };
            let commit = token.commit();
            if self.git.resolve(&format!("{commit}^{{commit}}")).await?.is_none() {
                return wrong(format!("the commit {commit} is not in the repository"));
            }
            let parent = self.git.resolve(&format!("{commit}^1")).await?;
            if let Some(best) = &best
                && best != commit.as_str()
                && parent.as_ref().is_none_or(|parent| parent.as_str() != best)
            {
                return wrong(format!("the commit {commit} does not stand on {best}, the best before it"));
            }
            if link.kept {
                best = Some(commit.to_string());
            }
        }
        Ok(None)
    }
}

//! Turns the commit that a person's repository stands on into the files of that commit (contract §1, frozen loading).
//! It refuses to know which of them is a manifest or a judge.

use std::path::{Path, PathBuf};

use super::foreign::Foreign;
use super::git::Git;
use super::{CommitSha, WorldError};
use crate::sys::env::Environment;

/// The files of a commit, read without the work tree, its index and its configuration for hooks and filters.
#[derive(Debug)]
pub struct PristineBase {
    git: Git,
    head: CommitSha,
}

impl PristineBase {
    /// The commit of the repository whose root is `work_tree`; `None` where it is no repository or has no commit.
    ///
    /// # Errors
    /// [`WorldError`] when there is a repository that cannot be read.
    pub async fn find(work_tree: &Path, env: &Environment) -> Result<Option<PristineBase>, WorldError> {
        match Foreign::of(work_tree) {
            Ok(Foreign { common_dir, head, .. }) => {
                Ok(Some(PristineBase { git: Git::new(&common_dir, work_tree, env), head }))
            }
            Err(WorldError::NotARepository { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A regular file and whether it may be executed; `None` where the commit has none at that path, or a link.
    ///
    /// # Errors
    /// [`WorldError`] when git fails.
    pub async fn read(&self, path: &Path) -> Result<Option<(Vec<u8>, bool)>, WorldError> {
        let found = self.git.regular_files(&self.head, Some(path)).await?;
        match found.into_iter().find(|(name, _)| name == path) {
            Some((_, executable)) => {
                Ok(self.git.show(&self.head, path).await?.map(|bytes| (bytes, executable)))
            }
            None => Ok(None),
        }
    }

    /// The paths of all regular files.
    ///
    /// # Errors
    /// [`WorldError`] when git fails.
    pub async fn files(&self) -> Result<Vec<PathBuf>, WorldError> {
        Ok(self.git.regular_files(&self.head, None).await?.into_iter().map(|(path, _)| path).collect())
    }
}

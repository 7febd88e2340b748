//! Turns the state of a workspace into a token, and a token into that state again (contract §5).
//! It refuses to know scores and what a candidate is for.
//!
//! The truth is a repository of the engine's own, `state/git`, with its own configuration, index, refs and objects.
//! Nothing of the workspace's `.git` is read once an agent may have run; what a person finds there is written
//! anew by the engine after each step. So nothing planted there acts, and nothing broken there matters.

mod agent;
mod chain;
mod claim;
mod command;
mod diff;
mod error;
mod facts;
mod foreign;
mod frozen;
mod git;
mod guard;
mod identity;
mod index;
mod layout;
mod objects;
mod pristine;
mod reserved;
mod rules;
mod setup;
mod shown;
mod stage;
mod tidy;
mod token;
mod whereabouts;
mod workspace;

use std::future::Future;

pub use chain::{Chain, Link};
pub use claim::CLAIM_FILE;
pub use command::{CommandWorld, DomainCommands, PackRunner};
pub use diff::{DIFF_LIMIT, Diff};
pub use error::WorldError;
pub use facts::{Facts, Location, SETUP_FILE};
pub use frozen::{Compared, FrozenFiles};
pub use identity::Identity;
pub use pristine::PristineBase;
pub use reserved::{RESULTS, RESULTS_MARK, Reserved};
pub use setup::{Inject, Setup, Source, Spec};
pub use token::{CommitSha, SnapshotToken};
pub use workspace::{Candidate, Place, Recorded, Workspace};

/// What can be snapshot and restored; all that the loop knows of reversibility (contract §5).
pub trait World {
    /// Keeps the state of the world as it is now, and names it.
    ///
    /// # Errors
    /// Any error aborts the keep: the caller restores the snapshot before.
    fn snapshot(&mut self) -> impl Future<Output = Result<SnapshotToken, WorldError>>;

    /// Brings the world back to a snapshot of this run.
    ///
    /// # Errors
    /// Any error stops the run: nothing measured from here on could be trusted.
    fn restore(&mut self, token: &SnapshotToken) -> impl Future<Output = Result<(), WorldError>>;

    /// The git half of the last snapshot or restore.
    fn last_commit_sha(&self) -> &CommitSha;

    /// The workspace, which every world owns.
    fn workspace(&mut self) -> &mut Workspace;
}

/// The world of a pack without `[world]` commands: the tree of files and nothing else.
#[derive(Debug)]
pub struct GitWorld {
    workspace: Workspace,
}

impl GitWorld {
    /// The world that `workspace` is.
    pub fn new(workspace: Workspace) -> GitWorld {
        GitWorld { workspace }
    }
}

impl World for GitWorld {
    async fn snapshot(&mut self) -> Result<SnapshotToken, WorldError> {
        self.workspace.keep().await.map(SnapshotToken::of_git)
    }

    async fn restore(&mut self, token: &SnapshotToken) -> Result<(), WorldError> {
        if token.domain().is_some() {
            return Err(WorldError::BadToken { token: token.to_string() });
        }
        self.workspace.restore(token.commit()).await
    }

    fn last_commit_sha(&self) -> &CommitSha {
        self.workspace.best()
    }

    fn workspace(&mut self) -> &mut Workspace {
        &mut self.workspace
    }
}

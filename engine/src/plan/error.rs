//! Turns what keeps a pack and a command line from making a run into values (contract §1, §2).
//! It refuses to know how they read on a terminal.

use std::io;
use std::path::PathBuf;

use policy::inference::AgentProtocol;

use crate::manifest::{Harness, ParamName, SessionName};
use crate::pack::FileError;

/// Why a pack and a command line make no run.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Two goals on the command line.
    #[error("take both --goal and --goal-file")]
    TwoGoals,
    /// A goal that says nothing.
    #[error("take an empty goal")]
    EmptyGoal,
    /// The file of `--goal-file`.
    #[error("read the goal: {0}")]
    GoalFile(#[from] FileError),
    /// `--iterations 0`.
    #[error("run no iteration: --iterations is at least 1")]
    NoIterations,
    /// `--max-time 0s`.
    #[error("run for no time: --max-time is more than none")]
    NoTime,
    /// `--max-cost` that is nothing, or no number.
    #[error("spend ${0}: --max-cost is a finite number of US dollars, more than none")]
    NoCost(f64),
    /// A state directory that is not absolute, or goes up by `..`.
    #[error("use the state directory {}: it must be absolute and without `..`", .0.display())]
    StateDirRelative(PathBuf),
    /// A state directory that cannot be found out about.
    #[error("look up the state directory {}", .path.display())]
    StateDir {
        /// As given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The agent could write the log.
    #[error("keep the state in {}: it lies in the workspace {}", .state.display(), .workspace.display())]
    StateInWorkspace {
        /// Absolute.
        state: PathBuf,
        /// Absolute.
        workspace: PathBuf,
    },
    /// The state directory holds the workspace, or is it.
    #[error("keep the state in {}: the workspace {} lies in it", .state.display(), .workspace.display())]
    WorkspaceInState {
        /// Absolute.
        state: PathBuf,
        /// Absolute.
        workspace: PathBuf,
    },
    /// The workspace would be made from itself.
    #[error("take the repository from {}: it lies in the workspace or the state directory", .0.display())]
    RepoInside(PathBuf),
    /// A sandbox would show the log, the judge's files or the upstream's history.
    #[error("show {} in the sandbox: {} would be seen with it", .shown.display(), .private.display())]
    Shown {
        /// As resolved.
        shown: PathBuf,
        /// The state directory or the workspace.
        private: PathBuf,
    },
    /// A harness that no driver of this build runs.
    #[error("run the harness \"{0}\": this build does not have it")]
    Harness(Harness),
    /// A protocol that no harness of this build speaks.
    #[error("run an agent that speaks {0}, as CRUCIBLE_INFERENCE binds it: no harness of this build does")]
    Protocol(AgentProtocol),
    /// Codex without a model.
    #[error(
        "choose a model for the harness \"codex\": neither [agent].model nor CRUCIBLE_INFERENCE names one"
    )]
    NoModel,
    /// A conversation that nothing could go on with.
    #[error(
        "keep the session `{session}`: it needs agent.session.persist, which the harness \"{harness}\" does not offer"
    )]
    Session {
        /// As written.
        session: SessionName,
        /// What would have to go on with it.
        harness: Harness,
    },
    /// A task whose harness has nothing to run.
    #[error("run the task `{task}` with the harness \"{harness}\": [agent] has no agent_cmd that it runs")]
    TaskHarness {
        /// The task.
        task: String,
        /// As written.
        harness: Harness,
    },
    /// A task that asks for what its harness cannot be told.
    #[error("run the task `{task}` with its `effort`: the harness \"{harness}\" has no flag for it")]
    TaskEffort {
        /// The task.
        task: String,
        /// What would have to take it.
        harness: Harness,
    },
    /// `--param` with one name twice.
    #[error("give the parameter `{0}` two values")]
    ParamTwice(ParamName),
    /// `--item` with something that no tracker has.
    #[error("start the run for the item `{0}`: an item is PROJECT-NUMBER or owner/repo#number")]
    Item(String),
    /// A relayed file would come back with the candidate.
    #[error(
        "put a relayed file at {dest} in the sandbox: the workspace stands at {workspace} there, and it would come back"
    )]
    RelayInWorkspace {
        /// In the sandbox.
        dest: String,
        /// In the sandbox.
        workspace: String,
    },
    /// A relayed file that an agent could write.
    #[error("relay {} to {dest}: it lies in the workspace, where the agent could replace it", .path.display())]
    RelayFromWorkspace {
        /// In the sandbox.
        dest: String,
        /// Of this host.
        path: PathBuf,
    },
    /// In place, an inject into the engine's own directory.
    #[error("inject {}: it lies in the state directory", .0.display())]
    InjectInState(PathBuf),
}

//! Turns a pack and the command line into one resolved `RunPlan`.
//! It refuses to know how any of it is carried out.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use policy::diag::Source;

use crate::manifest::{Agent, At, Command, EnvName, EnvValue, GitRef, Judge, ModelName, Objective};
use crate::manifest::{RepoSource, RepoUrl, STATE_DIR, Sandbox, WorkspaceDir, World};
use crate::pack::{
    FileError, IdentityParts, InjectFile, InjectIdentity, Pack, RunIdentity, Thawed, read_prompt,
};
use crate::score::Direction;

mod limits;
mod sandbox;

pub use limits::Limits;
pub use sandbox::SandboxPlan;

/// The file by which operators steer, beside the manifest.
const STEER_FILE: &str = "STEER.md";

/// How many iterations a run has unless the command line says.
pub const DEFAULT_ITERATIONS: u32 = 20;

/// The prompt's template where the manifest names none (contract §6).
pub const DEFAULT_METHOD: &str = "\
Improve the code in this directory.

Goal: {{GOAL}}

Make one change that could bring the goal nearer, and leave the tree as you want it measured. It is kept if its score is
better than the best so far, and taken back if not.

What happened so far:
{{STATUS}}

{{STEER}}
";

/// Everything that a run needs, with nothing left to look up.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Absolute.
    pub manifest_path: PathBuf,
    /// Absolute, without links: where `setup_cmd` runs.
    pub manifest_dir: PathBuf,
    /// The manifest as it was read, for the run's identity.
    pub manifest: Source,
    /// Absolute: the log and all else that is the engine's.
    pub state_dir: PathBuf,
    /// Absolute: where the agent works.
    pub workspace_dir: PathBuf,
    /// In place, whether the manifest is in the base commit: then it is frozen like an inject, so that what a candidate
    /// writes into it is never kept and never read by a later run.
    pub manifest_frozen: bool,
    /// Whether the workspace is the manifest's own directory.
    pub in_place: bool,
    /// Where the upstream comes from.
    pub repo: RepoPlan,
    /// `[repo].url` or `[repo].path` as written, for the run's identity.
    pub repo_written: String,
    /// What makes the checkout instead of the engine.
    pub setup: Option<SetupPlan>,
    /// Whether a sandbox sees the upstream's history.
    pub history: bool,
    /// Files to put into the workspace, by destination.
    pub injects: Vec<InjectFile>,
    /// Who proposes.
    pub agent: AgentPlan,
    /// Who scores.
    pub judge: JudgePlan,
    /// What makes a candidate live and takes it back.
    pub world: WorldPlan,
    /// When the run ends at the latest.
    pub limits: Limits,
    /// The file by which operators steer (note N1).
    pub steer: PathBuf,
}

/// Where the upstream comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepoPlan {
    /// Git clones it.
    Url {
        /// What git is told.
        url: RepoUrl,
        /// What is checked out, or the default branch.
        reference: Option<GitRef>,
    },
    /// A directory of this machine.
    Path {
        /// Absolute.
        path: PathBuf,
        /// What is checked out, or the current branch.
        reference: Option<GitRef>,
    },
}

/// A command that makes the checkout, run in the manifest's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupPlan {
    /// For `sh -c`.
    pub command: Command,
    /// How long it may take.
    pub timeout: Duration,
}

/// Who proposes, and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPlan {
    /// Named to the command and in the log.
    pub model: ModelName,
    /// For `sh -c`, in the workspace or in the sandbox's view of it.
    pub command: Command,
    /// The sandbox that the command must run in; without one it runs as the engine's own child.
    pub sandbox: Option<SandboxPlan>,
    /// Variables for it.
    pub env: BTreeMap<EnvName, EnvValue>,
    /// How long a turn may take.
    pub timeout: Duration,
    /// How long a turn may print nothing.
    pub idle_timeout: Option<Duration>,
    /// The prompt's template.
    pub method: String,
    /// What is to be reached.
    pub goal: String,
}

/// Who scores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgePlan {
    /// For `sh -c`, in the workspace.
    pub measure_cmd: Command,
    /// Which way a score is better.
    pub direction: Direction,
    /// Which way a tiebreak is better.
    pub tiebreak_direction: Direction,
    /// What the score is called.
    pub objective: Objective,
    /// How long one measure may take.
    pub timeout: Duration,
}

/// What makes a candidate live and takes it back, beside git.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldPlan {
    /// For `sh -c`, in the workspace.
    pub apply_cmd: Option<Command>,
    /// Snapshot and restore, each for `sh -c` in the workspace.
    pub snapshot_restore: Option<(Command, Command)>,
    /// How long each may take.
    pub timeout: Duration,
}

/// What the command line says over the manifest. All paths are absolute, or relative to the process's directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// `--goal`.
    pub goal: Option<String>,
    /// `--goal-file`.
    pub goal_file: Option<PathBuf>,
    /// `--state-dir`, absolute.
    pub state_dir: Option<PathBuf>,
    /// `--iterations`.
    pub iterations: Option<u32>,
    /// `--max-time`.
    pub max_time: Option<Duration>,
    /// `--max-cost`, in US dollars.
    pub max_cost: Option<f64>,
    /// `--max-park`.
    pub max_park: Option<Duration>,
    /// `--steer`, absolute.
    pub steer: Option<PathBuf>,
}

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
    /// In place, an inject into the engine's own directory.
    #[error("inject {}: it lies in the state directory", .0.display())]
    InjectInState(PathBuf),
}

impl RunPlan {
    /// Joins a pack and the command line, which wins. The only file read is that of `--goal-file`. What the pack says to
    /// a person, its manifest's warnings and what is thawed, is not in the plan: the caller prints it first.
    ///
    /// # Errors
    /// Contradictions between them, and directories that lie in each other.
    pub fn resolve(pack: Pack, overrides: &Overrides) -> Result<Self, PlanError> {
        let limits = limits::limits(overrides)?;
        let goal = goal(&pack, overrides)?;
        let workspace_dir = pack.workspace_dir();
        let Pack { manifest, manifest_path, manifest_dir, method, injects, thawed, .. } = pack;
        let in_place = manifest.workspace.dir == WorkspaceDir::InPlace;
        let manifest_frozen = in_place && !thawed.iter().any(|thawed| !matches!(thawed, Thawed::Inject(_)));
        let state_dir = state_dir(&manifest_dir, overrides)?;
        check_apart(&state_dir, &workspace_dir, in_place)?;
        check_injects(&injects, &workspace_dir, &state_dir)?;
        check_shown(manifest.agent.sandbox.as_ref(), &[&state_dir, &workspace_dir])?;
        let source = manifest.source().clone();
        let (repo, repo_written) = repo(manifest.repo.source, manifest.repo.reference, &manifest_dir);
        if let RepoPlan::Path { path, .. } = &repo {
            check_repo(path, &workspace_dir, &state_dir, in_place)?;
        }
        let workspace = manifest.workspace;
        Ok(Self {
            manifest_path,
            manifest: source,
            manifest_frozen,
            state_dir,
            workspace_dir,
            in_place,
            repo,
            repo_written,
            setup: workspace.setup_cmd.map(|at| SetupPlan { command: at.value, timeout: workspace.timeout }),
            history: workspace.history,
            injects,
            agent: agent(manifest.agent, method, goal),
            judge: judge(manifest.judge),
            world: world(manifest.world),
            limits,
            steer: overrides.steer.clone().unwrap_or_else(|| manifest_dir.join(STEER_FILE)),
            manifest_dir,
        })
    }

    /// What makes this run's scores comparable to another's; `base` is the workspace's pristine base commit (contract §7).
    pub fn identity(&self, base: &str) -> RunIdentity {
        let component = crate::pack::Component { name: "", repo: &self.repo_written, base };
        RunIdentity::of(&IdentityParts {
            components: vec![component],
            manifest: self.manifest.text(),
            injects: self.injects.iter().map(InjectIdentity::from).collect(),
            measure_cmd: self.judge.measure_cmd.as_str(),
            direction: self.judge.direction,
        })
    }
}

fn goal(pack: &Pack, overrides: &Overrides) -> Result<String, PlanError> {
    let goal = match (&overrides.goal, &overrides.goal_file) {
        (Some(_), Some(_)) => return Err(PlanError::TwoGoals),
        (Some(goal), None) => goal.clone(),
        (None, Some(file)) => read_prompt(file)?,
        (None, None) => pack.goal.clone().unwrap_or_else(|| default_goal(&pack.manifest.judge)),
    };
    if goal.trim().is_empty() {
        return Err(PlanError::EmptyGoal);
    }
    Ok(goal)
}

fn default_goal(judge: &Judge) -> String {
    let Judge { objective, direction, .. } = judge;
    format!("make `{objective}` as measured {direction} than it is")
}

fn agent(agent: Agent, method: Option<String>, goal: String) -> AgentPlan {
    AgentPlan {
        model: agent.model,
        command: agent.command.value,
        sandbox: agent.sandbox.as_ref().map(SandboxPlan::resolve),
        env: agent.env,
        timeout: agent.timeout,
        idle_timeout: agent.idle_timeout,
        method: method.unwrap_or_else(|| DEFAULT_METHOD.to_owned()),
        goal,
    }
}

fn judge(judge: Judge) -> JudgePlan {
    JudgePlan {
        measure_cmd: judge.measure_cmd.value,
        direction: judge.direction,
        tiebreak_direction: judge.tiebreak_direction,
        objective: judge.objective,
        timeout: judge.timeout,
    }
}

fn world(world: World) -> WorldPlan {
    WorldPlan { apply_cmd: world.apply_cmd, snapshot_restore: world.snapshot_restore, timeout: world.timeout }
}

fn repo(source: RepoSource, reference: Option<At<GitRef>>, manifest_dir: &Path) -> (RepoPlan, String) {
    let reference = reference.map(|at| at.value);
    match source {
        RepoSource::Url(url) => {
            let written = url.value.to_string();
            (RepoPlan::Url { url: url.value, reference }, written)
        }
        RepoSource::Path(path) => {
            let absolute =
                if path.value.is_here() { manifest_dir.to_owned() } else { path.value.under(manifest_dir) };
            (RepoPlan::Path { path: absolute, reference }, path.value.to_string())
        }
    }
}

fn state_dir(manifest_dir: &Path, overrides: &Overrides) -> Result<PathBuf, PlanError> {
    let Some(given) = &overrides.state_dir else { return Ok(manifest_dir.join(STATE_DIR)) };
    let plain = given.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !given.is_absolute() || !plain {
        return Err(PlanError::StateDirRelative(given.clone()));
    }
    real(given).map_err(|source| PlanError::StateDir { path: given.clone(), source })
}

/// The path with all links resolved, as far as it exists.
fn real(path: &Path) -> io::Result<PathBuf> {
    for existing in path.ancestors() {
        match fs::canonicalize(existing) {
            Ok(found) => {
                let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
                return Ok(if rest == Path::new("") { found } else { found.join(rest) });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(path.to_owned())
}

fn check_apart(state: &Path, workspace: &Path, in_place: bool) -> Result<(), PlanError> {
    let both = || (state.to_owned(), workspace.to_owned());
    if workspace.starts_with(state) {
        let (state, workspace) = both();
        return Err(PlanError::WorkspaceInState { state, workspace });
    }
    if state.starts_with(workspace) && !in_place {
        let (state, workspace) = both();
        return Err(PlanError::StateInWorkspace { state, workspace });
    }
    Ok(())
}

fn check_repo(repo: &Path, workspace: &Path, state: &Path, in_place: bool) -> Result<(), PlanError> {
    let real = fs::canonicalize(repo).unwrap_or_else(|_| repo.to_owned());
    if real.starts_with(state) || (real.starts_with(workspace) && !in_place) {
        return Err(PlanError::RepoInside(real));
    }
    Ok(())
}

fn check_injects(injects: &[InjectFile], workspace: &Path, state: &Path) -> Result<(), PlanError> {
    let mut all = injects.iter().map(|inject| workspace.join(inject.dst.as_path()));
    match all.find(|dst| dst.starts_with(state)) {
        Some(dst) => Err(PlanError::InjectInState(dst)),
        None => Ok(()),
    }
}

/// What a sandbox shows of the host holds nothing private and lies in nothing private: there is only one copy of the
/// workspace that an agent sees, and it is the sandbox's own.
fn check_shown(sandbox: Option<&Sandbox>, private: &[&PathBuf]) -> Result<(), PlanError> {
    for shown in sandbox.iter().flat_map(|sandbox| &sandbox.read_only_paths) {
        let shown =
            fs::canonicalize(shown.value.as_path()).unwrap_or_else(|_| shown.value.as_path().to_owned());
        let found = private.iter().find(|private| private.starts_with(&shown) || shown.starts_with(private));
        if let Some(private) = found {
            return Err(PlanError::Shown { shown, private: PathBuf::from(private) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

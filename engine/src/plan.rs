//! Turns a pack and the command line into one resolved `RunPlan`.
//! It refuses to know how any of it is carried out.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::diag::Source;
use policy::outputs::{Kind, Outputs, RunContext, address};

use crate::manifest::{Agent, At, Backend, Command, EnvName, EnvValue, GitRef, Harness, Judge};
use crate::manifest::{ParamName, RepoSource, RepoUrl, Secret, SessionName};
use crate::manifest::{Workflow, WorkspaceDir, World};
use crate::pack::{
    Certificates, IdentityParts, InjectFile, InjectIdentity, Pack, RunIdentity, Thawed, Toolbox, read_prompt,
};

mod error;
mod inference;
mod judge;
mod limits;
mod places;
mod reach;
mod sandbox;
mod task;
mod tool;

use places::{check_apart, check_injects, check_relays, check_repo, check_shown, state_dir};

use judge::judge;

pub use error::PlanError;
pub use inference::{Bound, Inference, KeyError, KeyFault, Model};
pub use judge::{ConfinedPlan, JudgePlan};
pub use limits::Limits;
pub use reach::{Refusal, VALUE_LEAST};
pub use sandbox::SandboxPlan;
pub use task::TaskPlan;
pub use tool::{Tool, ToolError};

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
    /// The tasks of each iteration, where the manifest has them.
    pub workflow: Option<Workflow>,
    /// When the run ends at the latest.
    pub limits: Limits,
    /// The bound of each kind of write, with the run's parameters: what is disclosed, and what the broker is handed.
    pub outputs: Outputs,
    /// The tracker item that the run was started for.
    pub item: Option<String>,
    /// What each declared credential authorises, and who holds it.
    pub secrets: Vec<Secret>,
    /// Whether the operator takes a pack that asks for isolation without any.
    pub unenforced_egress: bool,
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
    /// What carries a turn.
    pub backend: Backend,
    /// The model, its harness, its endpoint and its key.
    pub model: Model,
    /// For `sh -c`, in the workspace or in the sandbox's view of it; only where the harness is a command.
    pub command: Option<Command>,
    /// The sandbox that each turn must run in; without one it runs as the engine's own child.
    pub sandbox: Option<SandboxPlan>,
    /// The program of the harness, once it was looked for; a command needs none.
    pub tool: Option<Tool>,
    /// The durable conversation that all turns belong to; without one each is a new one.
    pub session: Option<SessionName>,
    /// The agent tasks of each iteration.
    pub tasks: Vec<TaskPlan>,
    /// The skills that stand in the workspace anew for each turn.
    pub toolbox: Option<Toolbox>,
    /// Variables for it.
    pub env: BTreeMap<EnvName, EnvValue>,
    /// Whether the manifest takes the built-in reach away, which only a sandbox can do.
    pub isolated: bool,
    /// How long a turn may take.
    pub timeout: Duration,
    /// How long a turn may print nothing.
    pub idle_timeout: Option<Duration>,
    /// The prompt's template.
    pub method: String,
    /// What is to be reached.
    pub goal: String,
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
    /// The inference document and what the environment says beside it.
    pub inference: Inference,
    /// `--param`, in order.
    pub params: Vec<(ParamName, String)>,
    /// `--item`.
    pub item: Option<String>,
    /// `--unenforced-egress`.
    pub unenforced_egress: bool,
    /// `--max-cost`, in US dollars.
    pub max_cost: Option<f64>,
    /// `--max-park`.
    pub max_park: Option<Duration>,
    /// `--steer`, absolute.
    pub steer: Option<PathBuf>,
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
        let Pack {
            manifest,
            manifest_path,
            manifest_dir,
            method,
            certificates,
            injects,
            thawed,
            toolbox,
            ..
        } = pack;
        let model = Model::resolve(&manifest.agent, &overrides.inference)?;
        let session = session(manifest.workflow.as_ref(), model.harness)?;
        let tasks = task::tasks(manifest.workflow.as_ref(), &manifest.agent, &overrides.inference)?;
        let in_place = manifest.workspace.dir == WorkspaceDir::InPlace;
        let manifest_frozen = in_place
            && !thawed.iter().any(|thawed| matches!(thawed, Thawed::Manifest | Thawed::ManifestNotInBase));
        let state_dir = state_dir(&manifest_dir, overrides)?;
        check_apart(&state_dir, &workspace_dir, in_place)?;
        check_injects(&injects, &workspace_dir, &state_dir)?;
        check_shown(manifest.agent.sandbox.as_ref(), &[&state_dir, &workspace_dir])?;
        check_relays(&manifest.agent, &manifest_dir, &workspace_dir)?;
        let run = context(overrides)?;
        let source = manifest.source().clone();
        let (repo, repo_written) = repo(manifest.repo.source, manifest.repo.reference, &manifest_dir);
        if let RepoPlan::Path { path, .. } = &repo {
            check_repo(path, &workspace_dir, &state_dir, in_place)?;
        }
        let workspace = manifest.workspace;
        let sandbox = manifest.agent.sandbox.clone();
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
            agent: AgentPlan {
                session,
                tasks,
                toolbox,
                ..agent(
                    manifest.agent,
                    model,
                    method,
                    goal,
                    Beside { manifest_dir: &manifest_dir, certificates },
                )
            },
            judge: judge(manifest.judge, sandbox.as_ref()),
            world: world(manifest.world),
            workflow: manifest.workflow,
            limits,
            outputs: Outputs::resolve(&manifest.outputs, &run),
            item: run.item,
            secrets: manifest.secrets.into_iter().map(|at| at.value).collect(),
            unenforced_egress: overrides.unenforced_egress,
            steer: overrides.steer.clone().unwrap_or_else(|| manifest_dir.join(STEER_FILE)),
            manifest_dir,
        })
    }

    /// Finds the programs of the harnesses on this machine, shows them in the sandbox, and lets them connect there. `path` is what
    /// `PATH` holds.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn equip(&mut self, path: Option<&OsStr>) -> Result<(), ToolError> {
        let AgentPlan { model, tool, tasks, sandbox, .. } = &mut self.agent;
        let of_tasks = tasks.iter_mut().map(|task| (task.model.harness, &mut task.tool));
        for (harness, tool) in [(model.harness, tool)].into_iter().chain(of_tasks) {
            if harness == Harness::Command {
                continue;
            }
            let found = Tool::find(harness.token(), path)?;
            if let Some(sandbox) = sandbox {
                sandbox.show(&found)?;
            }
            *tool = Some(found);
        }
        Ok(())
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

impl AgentPlan {
    /// The models of all turns, the proposals' first.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        [&self.model].into_iter().chain(self.tasks.iter().map(|task| &task.model))
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

/// What the run knows of itself. Where it publishes, builds and deploys is not among it in this build, so those default targets
/// do not resolve.
fn context(overrides: &Overrides) -> Result<RunContext, PlanError> {
    let mut params = BTreeMap::new();
    for (name, value) in &overrides.params {
        if params.insert(name.to_string(), value.clone()).is_some() {
            return Err(PlanError::ParamTwice(name.clone()));
        }
    }
    match &overrides.item {
        Some(item) if !address(Kind::TrackerComment, item) => Err(PlanError::Item(item.clone())),
        item => Ok(RunContext { item: item.clone(), params, ..RunContext::default() }),
    }
}

/// What a sandbox is made from beside `[agent]`.
struct Beside<'a> {
    manifest_dir: &'a Path,
    certificates: Option<Certificates>,
}

fn agent(agent: Agent, model: Model, method: Option<String>, goal: String, beside: Beside<'_>) -> AgentPlan {
    let Beside { manifest_dir, certificates } = beside;
    AgentPlan {
        sandbox: SandboxPlan::resolve(&agent, model.plumbing(), manifest_dir, certificates),
        backend: agent.backend,
        command: agent.command.map(|at| at.value),
        model,
        tool: None,
        session: None,
        tasks: Vec::new(),
        toolbox: None,
        isolated: agent.isolated,
        env: agent.env,
        timeout: agent.timeout,
        idle_timeout: agent.idle_timeout,
        method: method.unwrap_or_else(|| DEFAULT_METHOD.to_owned()),
        goal,
    }
}

/// The conversation of the proposals, where there is one and the harness can go on with it.
fn session(workflow: Option<&Workflow>, harness: Harness) -> Result<Option<SessionName>, PlanError> {
    match workflow.and_then(Workflow::proposers_session) {
        Some(session) if !harness.keeps_sessions() => {
            Err(PlanError::Session { session: session.clone(), harness })
        }
        session => Ok(session.cloned()),
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

#[cfg(test)]
mod tests;

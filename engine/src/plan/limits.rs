//! Turns the ceilings of the command line into ceilings that a run can keep.
//! It refuses to know who keeps them.

use std::time::Duration;

use super::{DEFAULT_ITERATIONS, Overrides, PlanError};

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

/// When the run ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// At least 1.
    pub iterations: u32,
    /// In US dollars, finite and more than none.
    pub max_cost: Option<f64>,
    /// How long the loop waits for an answer to an ask of the agent's; for ever where there is none.
    pub max_park: Option<Duration>,
    /// From the start of the run; more than none.
    pub max_time: Option<Duration>,
}

/// Checks them, with the default where nothing is said.
pub(super) fn limits(overrides: &Overrides) -> Result<Limits, PlanError> {
    let iterations = overrides.iterations.unwrap_or(DEFAULT_ITERATIONS);
    if iterations == 0 {
        return Err(PlanError::NoIterations);
    }
    if overrides.max_time == Some(Duration::ZERO) {
        return Err(PlanError::NoTime);
    }
    if let Some(cost) = overrides.max_cost.filter(|cost| !cost.is_finite() || *cost <= 0.0) {
        return Err(PlanError::NoCost(cost));
    }
    let Overrides { max_time, max_cost, max_park, .. } = *overrides;
    Ok(Limits { iterations, max_time, max_cost, max_park })
}

//! Turns `[judge]` into who scores, where, and with which controls (contract §1, §1.1, note N12).
//! It refuses to know how a score is read.

use std::path::PathBuf;
use std::time::Duration;

use crate::manifest::{Command, Judge, Objective, Sandbox, SandboxLimits, SelfTest};
use crate::score::Direction;

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
    /// Where measure and apply run in a sandbox of their own, what it shows and may use.
    pub confined: Option<ConfinedPlan>,
    /// The controls of `check`.
    pub selftest: Option<SelfTest>,
}

/// The sandbox of the judge: no network, and what `[agent.openshell]` says of paths and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfinedPlan {
    /// Absolute.
    pub read_only_paths: Vec<PathBuf>,
    /// What it may use.
    pub limits: SandboxLimits,
}

pub(super) fn judge(judge: Judge, sandbox: Option<&Sandbox>) -> JudgePlan {
    let confined = || {
        let paths = sandbox.iter().flat_map(|sandbox| &sandbox.read_only_paths);
        ConfinedPlan {
            read_only_paths: paths.map(|path| path.value.as_path().to_owned()).collect(),
            limits: sandbox.map(|sandbox| sandbox.limits).unwrap_or_default(),
        }
    };
    JudgePlan {
        confined: judge.confined.then(confined),
        selftest: judge.selftest,
        measure_cmd: judge.measure_cmd.value,
        direction: judge.direction,
        tiebreak_direction: judge.tiebreak_direction,
        objective: judge.objective,
        timeout: judge.timeout,
    }
}

//! Turns the closed vocabularies of the session log into types: phases, outcomes, statuses and their like (contract §7).
//! It refuses to know which line has which.

use serde::{Deserialize, Serialize};

/// Where the loop stands: the tokens of contract §7, shared with the control bridge's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The log is open.
    Starting,
    /// The workspace is being set up.
    Preflight,
    /// The pristine workspace is being measured.
    Baseline,
    /// Parallel proposals are being made.
    Wide,
    /// A candidate is being made and measured.
    Iteration,
    /// An operator asked the loop to wait.
    Paused,
    /// The loop waits for an approval.
    Parked,
    /// Two turns in a row died of transport.
    Distressed,
    /// The agent gave up and said why.
    Escalated,
    /// Work that runs once after the last iteration.
    Epilogue,
    /// Nothing more will run.
    Finished,
}

/// How a run ended: the tokens of `shutdown` (contract §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// All iterations were run.
    Finished,
    /// The judge declared the win.
    Solved,
    /// A ceiling refused further work.
    Budget,
    /// An operator ended the run.
    Stopped,
    /// The agent gave up and said why.
    Escalated,
    /// Turns stopped making a difference.
    Stalled,
    /// The engine could not go on.
    Error,
}

impl Outcome {
    /// The wire token.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::Solved => "solved",
            Outcome::Budget => "budget",
            Outcome::Stopped => "stopped",
            Outcome::Escalated => "escalated",
            Outcome::Stalled => "stalled",
            Outcome::Error => "error",
        }
    }
}

/// Why no further iteration starts (our addition).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndingCause {
    /// An operator asked for the end of the run.
    Stop,
    /// An operator asked for it at once.
    Abort,
    /// The wall-clock ceiling is reached.
    OutOfTime,
    /// The engine could not carry a task out, or could not put the workspace back.
    Broken,
}

/// How a run was left by the process that had it (contract §7, `recovery`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryClass {
    /// It ended on purpose.
    CleanExit,
    /// It died before the baseline was kept.
    DiedInBaseline,
    /// It died in the wide round.
    DiedInWideRound,
    /// It died while an agent turn ran, or before its candidate was recorded.
    DiedMidTurn,
    /// It died between a recorded candidate and its row.
    DiedDeciding,
    /// It died in another task of a workflow.
    DiedInPlanTask,
    /// It died while it waited for an approval.
    DiedAwaitingApproval,
    /// It died when no iteration was open.
    DiedBetweenIterations,
}

impl RecoveryClass {
    /// The wire token.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            RecoveryClass::CleanExit => "clean_exit",
            RecoveryClass::DiedInBaseline => "died_in_baseline",
            RecoveryClass::DiedInWideRound => "died_in_wide_round",
            RecoveryClass::DiedMidTurn => "died_mid_turn",
            RecoveryClass::DiedDeciding => "died_deciding",
            RecoveryClass::DiedInPlanTask => "died_in_plan_task",
            RecoveryClass::DiedAwaitingApproval => "died_awaiting_approval",
            RecoveryClass::DiedBetweenIterations => "died_between_iterations",
        }
    }
}

/// How a task settled (note N9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It did what it was for.
    Pass,
    /// It ran and failed.
    Fail,
    /// What carries it failed.
    Transport,
    /// It returned that there was nothing to do.
    Skipped,
    /// Something before it kept it from running.
    Blocked,
    /// A ceiling kept it from running.
    Truncated,
    /// No listed label was chosen.
    NotTaken,
}

impl TaskStatus {
    /// Whether what waits for it may go on.
    #[must_use]
    pub fn is_good(self) -> bool {
        matches!(self, TaskStatus::Pass | TaskStatus::Skipped)
    }

    /// The wire token.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            TaskStatus::Pass => "pass",
            TaskStatus::Fail => "fail",
            TaskStatus::Transport => "transport",
            TaskStatus::Skipped => "skipped",
            TaskStatus::Blocked => "blocked",
            TaskStatus::Truncated => "truncated",
            TaskStatus::NotTaken => "not_taken",
        }
    }
}

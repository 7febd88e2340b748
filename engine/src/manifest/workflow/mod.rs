//! Turns `[workflow]` into the tasks of an iteration, valid as a graph, or into all of its mistakes (contract §1.3, note N16).
//! It refuses to know how a task is run.

mod check;
mod decode;
mod error;
mod tables;

use std::fmt;

use super::value::Command;
use super::{At, Harness, ModelName};
use crate::score::Direction;

pub(super) use decode::decode;
pub use error::WorkflowError;
pub(super) use tables::{TABLE, TASK};

/// More tasks are refused.
const TASKS_MAX: usize = 256;

/// The tasks of each iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    /// In the order of the manifest; what a task depends on may stand behind it.
    pub tasks: Vec<Task>,
    /// The task whose verdict is the iteration's.
    pub result: TaskName,
}

/// What kinds of graph there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Propose, apply, measure, decide, with what stands between them.
    Autoresearch,
    /// Any graph.
    Custom,
    /// A graph that runs once and has no judge.
    Playbook,
}

/// One task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its name, which no other task has.
    pub name: At<TaskName>,
    /// What it does.
    pub kind: TaskKind,
    /// What it waits for, by name.
    pub depends_on: Vec<At<TaskName>>,
    /// The durable conversation that its turns belong to.
    pub session: Option<At<SessionName>>,
    /// Whether its failure discards the candidate.
    pub required: bool,
    /// Whether it has a worktree of its own, which is thrown away.
    pub isolated: bool,
    /// Which of what it depends on must have passed.
    pub join: Join,
    /// The fields that its output promises; `None` promises nothing.
    pub emits: Option<Vec<String>>,
}

impl Eq for Task {}

/// What a task does, with the keys of its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskKind {
    /// A turn of an agent.
    Agent {
        /// What it is told.
        prompt: String,
        /// What runs its turn, where that is not `[agent].harness`.
        harness: Option<Harness>,
        /// The model that is asked for, where that is not `[agent].model`.
        model: Option<ModelName>,
        /// How much the model is to think.
        effort: Option<&'static str>,
    },
    /// A command in the workspace.
    Command(Command),
    /// A command that scores.
    Evaluate {
        /// The command.
        command: Command,
        /// What its score must reach, and which way.
        threshold: Option<(f64, Direction)>,
    },
    /// The best few of what it depends on.
    TopK {
        /// How many.
        k: u64,
        /// Which way is better.
        direction: Direction,
    },
    /// A step of the engine's own.
    Engine {
        /// Which.
        op: EngineOp,
        /// The task whose score it takes.
        source: Option<At<TaskName>>,
        /// The task whose score breaks ties.
        tiebreak: Option<At<TaskName>>,
    },
}

/// The engine's own steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineOp {
    /// A turn of the agent that edits the workspace.
    Propose,
    /// Makes the candidate live.
    Apply,
    /// Asks the frozen judge.
    Measure,
    /// Folds evidence into a score.
    Grade,
    /// Applies the universal rule.
    Decide,
}

/// Which of what a task depends on must have passed (note N3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Every one.
    All,
    /// At least one.
    Passed,
    /// None: each must have settled.
    Settled,
}

impl Join {
    /// All of them.
    pub const EVERY: [Self; 3] = [Self::All, Self::Passed, Self::Settled];

    /// The word of the manifest.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Passed => "passed",
            Self::Settled => "settled",
        }
    }
}

/// The name of a task: a letter or digit, then letters, digits, `.`, `-` and `_`, at most 64.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskName(String);

/// The name of a durable conversation, of the same form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionName(String);

/// The most characters of a name.
const NAME_MAX: usize = 64;

fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    text.len() <= NAME_MAX
        && text.chars().all(inner)
        && text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric())
}

impl TaskName {
    /// Reads a name; `None` where the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_name(text).then(|| Self(text.to_owned()))
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl SessionName {
    /// Reads a name; `None` where the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_name(text).then(|| Self(text.to_owned()))
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl EngineOp {
    /// All of them, in the order of an iteration.
    pub const ALL: [Self; 5] = [Self::Propose, Self::Apply, Self::Measure, Self::Grade, Self::Decide];

    /// The word of the manifest.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Self::Propose => "propose",
            Self::Apply => "apply",
            Self::Measure => "measure",
            Self::Grade => "grade",
            Self::Decide => "decide",
        }
    }
}

impl TaskKind {
    /// The word of the manifest.
    #[must_use]
    pub fn token(&self) -> &'static str {
        match self {
            Self::Agent { .. } => "agent",
            Self::Command(_) => "command",
            Self::Evaluate { .. } => "evaluate",
            Self::TopK { .. } => "top_k",
            Self::Engine { .. } => "engine",
        }
    }

    /// Whether it is a turn of an agent.
    #[must_use]
    pub fn is_turn(&self) -> bool {
        matches!(self, Self::Agent { .. }) || self.op() == Some(EngineOp::Propose)
    }

    /// Which step of the engine it is, if it is one.
    #[must_use]
    pub fn op(&self) -> Option<EngineOp> {
        match self {
            Self::Engine { op, .. } => Some(*op),
            _ => None,
        }
    }
}

impl Workflow {
    /// The agent tasks.
    pub fn agents(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().filter(|task| matches!(task.kind, TaskKind::Agent { .. }))
    }

    /// The conversation that the proposals of all iterations belong to.
    #[must_use]
    pub fn proposers_session(&self) -> Option<&SessionName> {
        let propose = self.tasks.iter().find(|task| task.kind.op() == Some(EngineOp::Propose))?;
        propose.session.as_ref().map(|at| &at.value)
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;

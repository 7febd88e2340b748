//! Turns each way in which a graph of tasks can be wrong into a message and its remedy.
//! It refuses to know how it was found.

use super::Lane;

/// What can be wrong with `[workflow]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkflowError {
    /// A word where one of a few belongs.
    #[error("`{word}` is no {what} of a workflow")]
    Word {
        /// What was to be named.
        what: &'static str,
        /// As written, shortened.
        word: String,
        /// What it may be.
        words: &'static [&'static str],
    },
    /// A name that is none.
    #[error(
        "`{name}` is no name of a {what}: it has letters, digits, `.`, `-` and `_`, at most 64, and begins with a letter or digit"
    )]
    Name {
        /// `task` or `session`.
        what: &'static str,
        /// As written, shortened.
        name: String,
    },
    /// A name for two tasks.
    #[error("two tasks are named `{name}`")]
    Twice {
        /// The name.
        name: String,
    },
    /// A name of no task.
    #[error("{key} names `{name}`, and no task has that name")]
    NoTask {
        /// The key.
        key: &'static str,
        /// As written, shortened.
        name: String,
        /// The nearest one.
        near: Option<String>,
    },
    /// Too many tasks, or none.
    #[error("the workflow has {count} tasks: it has 1 to {max}")]
    Count {
        /// How many.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// A key that goes with other kinds.
    #[error("`{key}` does not go with kind = \"{kind}\"")]
    KeyOfKind {
        /// The key.
        key: &'static str,
        /// The task's kind.
        kind: &'static str,
        /// The kinds that take it.
        kinds: &'static [&'static str],
    },
    /// A key that the kind or the step must have.
    #[error("the task `{task}` has no `{key}`, which {what} must have")]
    Needed {
        /// The task.
        task: String,
        /// The key.
        key: &'static str,
        /// Its kind or step.
        what: &'static str,
    },
    /// A threshold without a direction, or the reverse.
    #[error("`threshold` and `direction` of an evaluate task are there together or not at all")]
    Threshold,
    /// A key that the step does not take.
    #[error("`{key}` does not go with op = \"{op}\"")]
    KeyOfOp {
        /// The key.
        key: &'static str,
        /// The step.
        op: &'static str,
    },
    /// What goes round.
    #[error("the tasks wait for each other: {path}")]
    Cycle {
        /// The names, joined by arrows, the first one again at the end.
        path: String,
    },
    /// A source that is not waited for.
    #[error("`{task}` takes its {key} from `{source_task}` without depending on it")]
    SourceApart {
        /// The task.
        task: String,
        /// `source` or `tiebreak`.
        key: &'static str,
        /// What it names.
        source_task: String,
    },
    /// A source of the wrong kind.
    #[error("`{task}` takes its {key} from `{source_task}`, which is no {wanted}")]
    SourceKind {
        /// The task.
        task: String,
        /// `source` or `tiebreak`.
        key: &'static str,
        /// What it names.
        source_task: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// A score that was declared away.
    #[error("`{task}` needs a score from `{source_task}`, whose `emits` does not name `score`")]
    NoScore {
        /// Who needs it.
        task: String,
        /// Who declares that it has none.
        source_task: String,
    },
    /// A tolerated failure that disqualifies.
    #[error(
        "the required task `{required}` depends on the advisory task `{advisory}`, whose failure would block it"
    )]
    Advisory {
        /// The required one.
        required: String,
        /// The advisory one.
        advisory: String,
    },
    /// A join of nothing.
    #[error("`{task}` joins what it depends on, and depends on nothing")]
    JoinsNothing {
        /// The task.
        task: String,
    },
    /// A session of what has no turn.
    #[error("`session` of `{task}`: only an agent task and a propose have turns")]
    SessionOfNone {
        /// The task.
        task: String,
    },
    /// A session of a task that is thrown away.
    #[error("the session `{session}` is shared, and `{task}` is isolated: what it did would be lost")]
    SessionIsolated {
        /// The session.
        session: String,
        /// The task.
        task: String,
    },
    /// Two turns of one session at once.
    #[error("`{a}` and `{b}` share the session `{session}`, and neither waits for the other")]
    SessionUnordered {
        /// The session.
        session: String,
        /// One of them.
        a: String,
        /// The other.
        b: String,
    },
    /// One conversation under two configurations.
    #[error("`{a}` and `{b}` share the session `{session}`, and their {key} differs")]
    SessionDiffers {
        /// The session.
        session: String,
        /// One of them.
        a: String,
        /// The other.
        b: String,
        /// `harness`, `model` or `effort`.
        key: &'static str,
    },
    /// A result that decides nothing.
    #[error("[workflow].result is `{name}`, which is no decide task")]
    ResultKind {
        /// The task.
        name: String,
    },
    /// A judged tree that is not the candidate.
    #[error("`{source_task}` depends on no task of op = \"{op}\", so what it scores is no candidate")]
    NoAncestor {
        /// The measurement.
        source_task: String,
        /// `propose` or `apply`.
        op: &'static str,
    },
    /// A lane that this build does not run.
    #[error("[workflow].type = \"{}\" is not in this build, which runs the loop of \"autoresearch\" only", lane.token())]
    LaneNotBuilt {
        /// Which.
        lane: Lane,
    },
    /// What this build does not run.
    #[error("`{task}`: {what} is not in this build, which {built}")]
    NotBuilt {
        /// The task.
        task: String,
        /// What it is.
        what: String,
        /// What there is.
        built: &'static str,
    },
}

impl Lane {
    /// The word of the manifest.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Self::Autoresearch => "autoresearch",
            Self::Custom => "custom",
            Self::Playbook => "playbook",
        }
    }
}

impl WorkflowError {
    pub(in crate::manifest) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Word { words, .. } => return Some(format!("write {}", words.join(", "))),
            Self::NoTask { near: Some(near), .. } => return Some(format!("did you mean `{near}`?")),
            Self::KeyOfKind { kinds, .. } => return Some(format!("it goes with {}", kinds.join(" and "))),
            Self::NoTask { near: None, .. } | Self::Name { .. } | Self::Count { .. } => return None,
            Self::Twice { .. } => "give each task a name of its own",
            Self::Needed { .. } => "add it to the task",
            Self::Threshold => "write both, or neither",
            Self::KeyOfOp { .. } => "remove it",
            Self::Cycle { .. } => "take one of the dependencies out",
            Self::SourceApart { .. } => "add it to depends_on",
            Self::SourceKind { .. } | Self::ResultKind { .. } => "name another task",
            Self::NoScore { .. } => "add \"score\" to its emits, or remove emits",
            Self::Advisory { .. } => {
                "make the one advisory or the other required, or let a task with join = \"passed\" stand between them"
            }
            Self::JoinsNothing { .. } => "write depends_on, or leave join out",
            Self::SessionOfNone { .. } => "remove it",
            Self::SessionIsolated { .. } => "give the isolated task a session of its own, or none",
            Self::SessionUnordered { .. } => "let one depend on the other, or give them two sessions",
            Self::SessionDiffers { .. } => "let them agree, or give them two sessions",
            Self::NoAncestor { .. } => "let it depend on a propose and an apply task, directly or by others",
            Self::LaneNotBuilt { .. } | Self::NotBuilt { .. } => "remove it, or use a build that has it",
        };
        Some(hint.to_owned())
    }
}

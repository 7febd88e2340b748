//! Turns `[agent]` into who proposes a candidate and what it is told (contract §1, §6).
//! It refuses to know how a turn is run.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::At;
use super::env::{self, EnvName, EnvValue};
use super::error::{Mistake, Sink};
use super::keys::{Key, Kind, Rule, Table};
use super::section::Section;
use super::value::{Command, ManifestPath, ValueError, check_line, parse_duration};

/// The model where the manifest names none.
pub const DEFAULT_MODEL: &str = "claude-opus-4-6";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60 * 60);
const MODEL_CHARS: usize = 128;

/// Who proposes, and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The model that is asked for, and that the log names.
    pub model: ModelName,
    /// The file of the prompt's template.
    pub method_prompt: Option<At<ManifestPath>>,
    /// What is to be reached.
    pub goal: Option<Goal>,
    /// The command that makes a candidate.
    pub command: At<Command>,
    /// How long a turn may take.
    pub timeout: Duration,
    /// How long a turn may print nothing.
    pub idle_timeout: Option<Duration>,
    /// What the command's environment gets.
    pub env: BTreeMap<EnvName, EnvValue>,
}

/// What is to be reached, here or in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The text itself.
    Text(At<String>),
    /// A file relative to the manifest's directory.
    File(At<ManifestPath>),
}

/// The name of a model: 1 to 128 characters without blanks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelName(String);

/// What can be wrong with `[agent]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// Two goals.
    #[error("[agent] has both `goal` and `goal_file`")]
    TwoGoals,
    /// The contract's default, `local`, is not in this build.
    #[error("[agent].backend is missing: it would mean \"local\", and this build has only \"command\"")]
    NoBackend,
    /// A backend of the contract that this build lacks.
    #[error("[agent].backend = \"{name}\" is not in this build, which has only \"command\"")]
    BackendNotBuilt {
        /// `local` or `openshell`.
        name: &'static str,
    },
    /// A backend of nobody.
    #[error("[agent].backend = \"{name}\" is no backend")]
    UnknownBackend {
        /// As written, shortened.
        name: String,
    },
    /// Nothing to run.
    #[error("[agent].agent_cmd is missing: it is what the backend \"command\" runs")]
    NoCommand,
    /// Not a model's name.
    #[error("[agent].model is not a name: it has 1 to {MODEL_CHARS} characters and no blanks")]
    Model,
}

const NO_SANDBOX: &str = "runs no sandbox";
const NO_IMAGE: &str = "launches no images";

/// `[agent]`.
pub(super) static TABLE: Table = Table {
    path: "agent",
    doc: "Who proposes a candidate, and what it is told.",
    keys: &[
        Key::demanded(
            "backend",
            Kind::OneOf(&["command"]),
            "How a turn is run. `command` runs `agent_cmd` in the workspace. The contract's `local`, which is also what \
             leaving the key out means there, and `openshell` are not in this build.",
        ),
        Key::demanded(
            "agent_cmd",
            Kind::Command,
            "Run by `sh -c` in the workspace: its changes are the candidate.",
        ),
        Key::optional(
            "model",
            Kind::Text,
            "\"claude-opus-4-6\"",
            "Recorded in the log's `start` line. The command is not told: give it what it needs in `[agent.env]`.",
        ),
        Key::optional(
            "method_prompt",
            Kind::Path,
            "a short built-in method",
            "A file, relative to the manifest's directory, with the template of the prompt. `{{GOAL}}`, `{{STATUS}}` and \
             `{{STEER}}` are replaced once.",
        ),
        Key::optional("goal", Kind::Text, "to move the objective in its direction", "What is to be reached."),
        Key::optional(
            "goal_file",
            Kind::Path,
            "none",
            "A file with the goal, relative to the manifest's directory.",
        ),
        Key::optional("timeout", Kind::Duration, "\"1h\"", "How long one turn may take."),
        Key::optional(
            "idle_timeout",
            Kind::Duration,
            "none",
            "How long a turn may go without printing anything.",
        ),
        Key::optional("env", Kind::Names, "empty", env::TABLE.doc),
        Key::absent("harness", NO_SANDBOX),
        Key::absent("toolbox_dir", "brings no skills into a turn"),
        Key::absent("sandbox_image", NO_SANDBOX),
        Key::absent("allow_unverified_image", NO_IMAGE),
        Key::absent("requires", NO_IMAGE),
        Key::absent("prefers", NO_IMAGE),
        Key::absent("openshell", NO_SANDBOX),
        Key::absent("broker", "has no broker"),
        Key::absent("relay", "relays no files into a sandbox"),
    ],
    rules: &[Rule::NotBoth("goal", "goal_file")],
    example: "[agent]\nbackend = \"command\"\nagent_cmd = \"./bump.sh\"\nmethod_prompt = \"method.md\"\ngoal = \"raise the \
              score\"\ntimeout = \"20m\"\n",
};

impl AgentError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::TwoGoals => "keep the one that is meant",
            Self::NoBackend | Self::BackendNotBuilt { .. } | Self::UnknownBackend { .. } => {
                "write backend = \"command\" and, in agent_cmd, the command that runs your agent"
            }
            Self::NoCommand => {
                "write agent_cmd = \"…\" with the command that makes a candidate in the workspace"
            }
            Self::Model => return None,
        };
        Some(hint.to_owned())
    }
}

/// Reads the table; `at` is where a missing key is reported.
pub(super) fn decode(section: &Section<'_>, at: &Range<usize>, sink: &mut Sink) -> Option<Agent> {
    let command = backend(section, at, sink);
    let model = section.parse("model", sink, ModelName::parse);
    let method_prompt = section.value("method_prompt", sink, ManifestPath::parse);
    let text =
        section.text("goal").map(|At { value, span }| Goal::Text(At { value: value.to_owned(), span }));
    let file = section.value("goal_file", sink, ManifestPath::parse).map(Goal::File);
    if let (Some(goal), Some(goal_file)) = (section.place("goal"), section.place("goal_file")) {
        let (first, second) =
            if goal.start < goal_file.start { (goal, goal_file) } else { (goal_file, goal) };
        sink.put_related(second, AgentError::TwoGoals, (first, "the other one"));
    }
    let timeout = section.value("timeout", sink, parse_duration);
    let idle_timeout = section.value("idle_timeout", sink, parse_duration).map(|timeout| timeout.value);
    let env = section.table("env").map(|(entries, _)| env::decode(entries, sink)).unwrap_or_default();
    Some(Agent {
        model: model.map_or_else(ModelName::default, |model| model.value),
        method_prompt,
        goal: text.or(file),
        command: command?,
        timeout: timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.value),
        idle_timeout,
        env,
    })
}

/// The command, if the backend is the one that runs commands.
fn backend(section: &Section<'_>, at: &Range<usize>, sink: &mut Sink) -> Option<At<Command>> {
    let command = section.value("agent_cmd", sink, Command::parse);
    let has_command = section.place("agent_cmd").is_some() || section.misspells("agent_cmd");
    match (section.place("backend"), section.text("backend")) {
        (None, _) if !section.misspells("backend") => sink.put(at.clone(), AgentError::NoBackend),
        (Some(_), Some(At { value: "command", .. })) if has_command => {}
        (Some(_), Some(At { value: "command", .. })) => sink.put(at.clone(), AgentError::NoCommand),
        (Some(_), Some(At { value, span })) => sink.put(span, not_a_backend(value)),
        _ => {}
    }
    command
}

fn not_a_backend(name: &str) -> AgentError {
    match ["local", "openshell"].into_iter().find(|known| *known == name) {
        Some(name) => AgentError::BackendNotBuilt { name },
        None => AgentError::UnknownBackend { name: super::value::shorten(name) },
    }
}

impl ModelName {
    /// Reads a name.
    ///
    /// # Errors
    /// Blanks, control characters, more than 128 characters.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        check_line(text).map_err(|error: ValueError| Mistake::from(("[agent].model", error)))?;
        if text.chars().any(char::is_whitespace) || text.chars().count() > MODEL_CHARS {
            return Err(AgentError::Model.into());
        }
        Ok(Self(text.to_owned()))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ModelName {
    fn default() -> Self {
        Self(DEFAULT_MODEL.to_owned())
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

//! Turns `[agent]` into who proposes a candidate and what it is told (contract §1, §6).
//! It refuses to know how a turn is run.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use policy::egress::BrokerUrl;

use super::At;
use super::broker;
use super::env::{self, EnvName, EnvValue};
use super::error::{Mistake, Sink};
use super::keys::{Key, Kind, Rule, Table};
use super::openshell::{self, Sandbox};
use super::relay::{self, Relay};
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
    /// The sandbox that each turn runs in; without one the command runs in the workspace itself.
    pub sandbox: Option<Sandbox>,
    /// How long a turn may take.
    pub timeout: Duration,
    /// How long a turn may print nothing.
    pub idle_timeout: Option<Duration>,
    /// What the command's environment gets.
    pub env: BTreeMap<EnvName, EnvValue>,
    /// Files that are put into each turn's sandbox.
    pub relays: Vec<At<Relay>>,
    /// Where the broker serves tools to the agent, if it does.
    pub broker: Option<BrokerUrl>,
    /// Whether the manifest takes the built-in reach away, `inherit_defaults = false`, whatever the backend is.
    pub isolated: bool,
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
    #[error("[agent].backend is missing: it would mean \"local\", and this build has {BUILT}")]
    NoBackend,
    /// A backend of the contract that this build lacks.
    #[error("[agent].backend = \"{name}\" is not in this build, which has {BUILT}")]
    BackendNotBuilt {
        /// `local`.
        name: &'static str,
    },
    /// A backend of nobody.
    #[error("[agent].backend = \"{name}\" is no backend")]
    UnknownBackend {
        /// As written, shortened.
        name: String,
    },
    /// Nothing to run.
    #[error("[agent].agent_cmd is missing: it is what the {runner} \"command\" runs")]
    NoCommand {
        /// `backend`, or `harness` where a sandbox is.
        runner: &'static str,
    },
    /// The contract's default, `claude`, is not in this build.
    #[error("[agent].harness is missing: it would mean \"claude\", and this build has only \"command\"")]
    NoHarness,
    /// A harness of the contract that this build lacks.
    #[error("[agent].harness = \"{name}\" is not in this build, which has only \"command\"")]
    HarnessNotBuilt {
        /// As the contract has it.
        name: &'static str,
    },
    /// A harness of nobody.
    #[error("[agent].harness = \"{name}\" is no harness")]
    UnknownHarness {
        /// As written, shortened.
        name: String,
    },
    /// What only a sandbox has, beside a backend without one.
    #[error("{key} goes with backend = \"openshell\"")]
    SandboxAlone {
        /// `[agent].harness`.
        key: &'static str,
    },
    /// Not a model's name.
    #[error("[agent].model is not a name: it has 1 to {MODEL_CHARS} characters and no blanks")]
    Model,
}

/// The backends of this build, as a message lists them.
const BUILT: &str = "\"command\" and \"openshell\"";
/// The harnesses that are known and absent.
const HARNESSES: [&str; 5] = ["claude", "codex", "hermes", "opencode", "pi"];
const NO_IMAGE: &str = "launches no images";

/// `[agent]`.
pub(super) static TABLE: Table = Table {
    path: "agent",
    doc: "Who proposes a candidate, and what it is told.",
    keys: &[
        Key::demanded(
            "backend",
            Kind::OneOf(&["command", "openshell"]),
            "How a turn is run. `command` runs `agent_cmd` in the workspace, and `openshell` runs its harness in a \
             sandbox. The contract's `local`, which is also what leaving the key out means there, is not in this build.",
        ),
        Key::optional(
            "harness",
            Kind::OneOf(&["command"]),
            "the contract's `\"claude\"`, which is not in this build",
            "What runs in the sandbox: `command` runs `agent_cmd`. The contract's `claude`, `codex`, `hermes`, \
             `opencode` and `pi` are not in this build.",
        ),
        Key::demanded(
            "agent_cmd",
            Kind::Command,
            "Run by `sh -c` in the workspace, or in the sandbox's view of it: its changes are the candidate.",
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
        Key::optional("openshell", Kind::Table(&openshell::TABLE), "none", openshell::TABLE.doc),
        Key::optional("broker", Kind::Table(&broker::TABLE), "no tools", broker::TABLE.doc),
        Key::optional("relay", Kind::Tables(&relay::TABLE), "none", relay::TABLE.doc),
        Key::absent("toolbox_dir", "brings no skills into a turn"),
        Key::absent("sandbox_image", NO_IMAGE),
        Key::absent("allow_unverified_image", NO_IMAGE),
        Key::absent("requires", NO_IMAGE),
        Key::absent("prefers", NO_IMAGE),
    ],
    rules: &[
        Rule::NotBoth("goal", "goal_file"),
        Rule::OnlyWith("backend", "openshell", "harness"),
        Rule::NeededWith("backend", "openshell", "harness"),
        Rule::OnlyWith("backend", "openshell", "relay"),
    ],
    example: "[agent]\nbackend = \"command\"\nagent_cmd = \"./bump.sh\"\nmethod_prompt = \"method.md\"\ngoal = \"raise the \
              score\"\ntimeout = \"20m\"\n",
};

impl AgentError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::TwoGoals => "keep the one that is meant",
            Self::NoBackend | Self::BackendNotBuilt { .. } | Self::UnknownBackend { .. } => {
                "write backend = \"command\" and, in agent_cmd, the command that runs your agent; \"openshell\" runs it in \
                 a sandbox"
            }
            Self::NoHarness | Self::HarnessNotBuilt { .. } | Self::UnknownHarness { .. } => {
                "write harness = \"command\" and, in agent_cmd, the command that runs your agent in the sandbox"
            }
            Self::SandboxAlone { .. } => "remove it, or write backend = \"openshell\" for a sandbox",
            Self::NoCommand { .. } => {
                "write agent_cmd = \"…\" with the command that makes a candidate in the workspace"
            }
            Self::Model => return None,
        };
        Some(hint.to_owned())
    }
}

/// Reads the table; `at` is where a missing key is reported.
pub(super) fn decode(section: &Section<'_>, at: &Range<usize>, sink: &mut Sink) -> Option<Agent> {
    let command = section.value("agent_cmd", sink, Command::parse);
    let runner = runner(section, at, sink);
    let sandbox = sandbox(section, at, sink);
    let sandboxed = runner != Some(Runner::Engine);
    let relays = relay::decode(section, sandboxed, sink);
    let broker = section.table("broker").and_then(|(entries, at)| {
        broker::decode(&Section::open(&broker::TABLE, Some(entries), &at, sink), sandboxed, &at, sink)
    });
    if let (false, Some(place)) = (sandboxed, section.place("openshell")) {
        let hint = "it is what a sandbox of backend = \"openshell\" is made from";
        sink.warn(place, "[agent.openshell] has no effect", hint);
    }
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
    if let (Some((entries, _)), Some(Runner::Sandbox)) = (section.table("env"), runner) {
        env::check_for_sandbox(entries, sink);
    }
    let env = section.table("env").map(|(entries, _)| env::decode(entries, sink)).unwrap_or_default();
    Some(Agent {
        model: model.map_or_else(ModelName::default, |model| model.value),
        method_prompt,
        goal: text.or(file),
        command: command.filter(|_| runner.is_some())?,
        isolated: sandbox.as_ref().is_some_and(|sandbox| !sandbox.declared.inherit_defaults),
        sandbox: sandbox.filter(|_| runner == Some(Runner::Sandbox)),
        timeout: timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.value),
        idle_timeout,
        env,
        relays,
        broker,
    })
}

/// What runs the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    Engine,
    Sandbox,
}

/// What runs the command, if anything of this build is meant to.
fn runner(section: &Section<'_>, at: &Range<usize>, sink: &mut Sink) -> Option<Runner> {
    match (section.place("backend"), section.text("backend")) {
        (None, _) if !section.misspells("backend") => sink.put(at.clone(), AgentError::NoBackend),
        (Some(_), Some(At { value: "command", .. })) => {
            if let Some(place) = section.place("harness") {
                sink.put(place, AgentError::SandboxAlone { key: "[agent].harness" });
            }
            want_command(section, at, "backend", sink);
            return Some(Runner::Engine);
        }
        (Some(_), Some(At { value: "openshell", .. })) => {
            return harness(section, at, sink).then_some(Runner::Sandbox);
        }
        (Some(_), Some(At { value, span })) => sink.put(span, not_a_backend(value)),
        _ => {}
    }
    None
}

/// Whether the harness is the one that runs commands.
fn harness(section: &Section<'_>, at: &Range<usize>, sink: &mut Sink) -> bool {
    match (section.place("harness"), section.text("harness")) {
        (None, _) if !section.misspells("harness") => sink.put(at.clone(), AgentError::NoHarness),
        (Some(_), Some(At { value: "command", .. })) => {
            want_command(section, at, "harness", sink);
            return true;
        }
        (Some(_), Some(At { value, span })) => sink.put(span, not_a_harness(value)),
        _ => {}
    }
    false
}

fn want_command(section: &Section<'_>, at: &Range<usize>, runner: &'static str, sink: &mut Sink) {
    if section.place("agent_cmd").is_none() && !section.misspells("agent_cmd") {
        sink.put(at.clone(), AgentError::NoCommand { runner });
    }
}

/// Reads `[agent.openshell]`, there or not; where the backend is another, only its own mistakes matter.
fn sandbox(section: &Section<'_>, at: &Range<usize>, sink: &mut Sink) -> Option<Sandbox> {
    let entries = section.table("openshell").map(|(entries, _)| entries);
    let lost = entries.is_none() && (section.place("openshell").is_some() || section.misspells("openshell"));
    if lost {
        return None;
    }
    let table = Section::open(&openshell::TABLE, entries, at, sink);
    Some(openshell::decode(&table, sink))
}

fn not_a_harness(name: &str) -> AgentError {
    match HARNESSES.into_iter().find(|known| *known == name) {
        Some(name) => AgentError::HarnessNotBuilt { name },
        None => AgentError::UnknownHarness { name: super::value::shorten(name) },
    }
}

fn not_a_backend(name: &str) -> AgentError {
    match name {
        "local" => AgentError::BackendNotBuilt { name: "local" },
        _ => AgentError::UnknownBackend { name: super::value::shorten(name) },
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

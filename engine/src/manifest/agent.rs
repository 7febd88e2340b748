//! Turns `[agent]` into who proposes a candidate and what it is told (contract §1, §6).
//! It refuses to know how a turn is run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use policy::egress::BrokerUrl;
use policy::inference::ModelFault;
pub use policy::inference::ModelName;

use super::At;
use super::broker;
use super::env::{self, EnvName, EnvValue};
use super::error::Sink;
use super::harness::{self, Backend, Harness, Runner};
use super::image;
use super::keys::{Key, Kind, Rule, Table};
use super::openshell::{self, Sandbox};
use super::relay::{self, Relay};
use super::section::Section;
use super::value::{Command, ManifestPath, parse_duration};

/// The model of Claude Code where the manifest names none.
pub const DEFAULT_MODEL: &str = "claude-opus-4-6";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Who proposes, and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// What carries a turn.
    pub backend: Backend,
    /// What runs in it.
    pub harness: Harness,
    /// The model that is asked for.
    pub model: Option<ModelName>,
    /// The file of the prompt's template.
    pub method_prompt: Option<At<ManifestPath>>,
    /// What is to be reached.
    pub goal: Option<Goal>,
    /// The command that makes a candidate, where the harness is one.
    pub command: Option<At<Command>>,
    /// The sandbox that each turn runs in; without one it runs on this host, in the workspace itself.
    pub sandbox: Option<Sandbox>,
    /// A directory of skills, copied into the workspace for each turn.
    pub toolbox_dir: Option<At<ManifestPath>>,
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

/// What can be wrong with `[agent]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// Two goals.
    #[error("[agent] has both `goal` and `goal_file`")]
    TwoGoals,
    /// A backend of nobody.
    #[error("[agent].backend = \"{name}\" is no backend")]
    UnknownBackend {
        /// As written, shortened.
        name: String,
    },
    /// Nothing to run.
    #[error("[agent].agent_cmd is missing: it is what the {runner} \"command\" runs")]
    NoCommand {
        /// `backend`, or `harness` where that is another.
        runner: &'static str,
    },
    /// A harness of the contract that no driver is written for.
    #[error(
        "[agent].harness = \"{harness}\" is not in this build: it has no driver that runs it and reads its output"
    )]
    NoDriver {
        /// `hermes`, `opencode` or `pi`.
        harness: Harness,
    },
    /// A harness of nobody.
    #[error("[agent].harness = \"{name}\" is no harness")]
    UnknownHarness {
        /// As written, shortened.
        name: String,
    },
    /// A harness that is not run.
    #[error("[agent].harness does not go with backend = \"command\", which runs agent_cmd")]
    HarnessBesideCommand,
    /// Not a model's name.
    #[error("[agent].model {0}")]
    Model(ModelFault),
}

const NO_IMAGE: &str = "launches no images";

/// `[agent]`.
pub(super) static TABLE: Table = Table {
    path: "agent",
    doc: "Who proposes a candidate, and what it is told.",
    keys: &[
        Key::optional(
            "backend",
            Kind::OneOf(harness::BACKENDS),
            "\"local\"",
            "What carries a turn. `local` runs the harness on this host, in the workspace; `openshell` runs it in a sandbox; \
             `command` runs `agent_cmd` on this host, in the workspace.",
        ),
        Key::optional(
            "harness",
            Kind::OneOf(harness::HARNESSES),
            "\"claude\"",
            "What runs in a turn: `claude` is Claude Code, `codex` is Codex, and `command` runs `agent_cmd`. The contract's \
             `hermes`, `opencode` and `pi` are refused: no driver runs them. An inference document picks the harness by its \
             protocol, but a command stays one.",
        ),
        Key::optional(
            "agent_cmd",
            Kind::Command,
            "none",
            "Run by `sh -c` in the workspace, or in the sandbox's view of it: its changes are the candidate.",
        ),
        Key::optional(
            "model",
            Kind::Text,
            "\"claude-opus-4-6\"",
            "The model that the harness asks for, and that the log's `start` line names. 1 to 128 characters without blanks. \
             A command is not told. `codex` has no default. An inference document's model takes its place.",
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
        Key::optional(
            "toolbox_dir",
            Kind::Path,
            "none",
            "A directory of skills, relative to the manifest's directory. It is read once, without links, at most 1,000 files \
             and 16 MiB, and stands in `.claude/skills` of the workspace anew for each turn.",
        ),
        Key::optional(
            "allow_unverified_image",
            Kind::Flag,
            "false",
            "For a controller: whether it may launch on an image that its catalog cannot vouch for. The engine reads its form \
             only.",
        ),
        Key::optional("requires", Kind::Demands, "empty", image::REQUIRES.doc),
        Key::optional("prefers", Kind::Demands, "empty", image::PREFERS.doc),
        Key::optional("broker", Kind::Table(&broker::TABLE), "no tools", broker::TABLE.doc),
        Key::optional("relay", Kind::Tables(&relay::TABLE), "none", relay::TABLE.doc),
        Key::absent("sandbox_image", NO_IMAGE),
    ],
    rules: &[
        Rule::NotBoth("goal", "goal_file"),
        Rule::NotWith("backend", "command", "harness"),
        Rule::NeededWith("backend", "command", "agent_cmd"),
        Rule::NeededWith("harness", "command", "agent_cmd"),
        Rule::OnlyWith("backend", "openshell", "relay"),
    ],
    example: "[agent]\nbackend = \"command\"\nagent_cmd = \"./bump.sh\"\nmethod_prompt = \"method.md\"\ngoal = \"raise the \
              score\"\ntimeout = \"20m\"\n",
};

impl AgentError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::TwoGoals => "keep the one that is meant",
            Self::UnknownBackend { .. } => {
                "\"local\" runs the harness on this host, \"openshell\" in a sandbox, and \"command\" runs agent_cmd"
            }
            Self::NoDriver { .. } | Self::UnknownHarness { .. } => {
                "write \"claude\" or \"codex\", or \"command\" and, in agent_cmd, the command that runs your agent"
            }
            Self::HarnessBesideCommand => {
                "remove it, or write backend = \"local\" to run a harness on this host"
            }
            Self::NoCommand { .. } => {
                "write agent_cmd = \"…\" with the command that makes a candidate in the workspace"
            }
            Self::Model(_) => "write the name that the model's provider has for it",
        };
        Some(hint.to_owned())
    }
}

/// Reads the table; `at` is where a missing key is reported.
pub(super) fn decode(section: &Section<'_>, at: &Range<usize>, sink: &mut Sink) -> Option<Agent> {
    let runner = harness::decode(section, at, sink);
    let sandboxed = runner.as_ref().is_some_and(|runner| runner.backend == Backend::Openshell);
    let sandbox = sandbox(section, at, sink);
    let relays = relay::decode(section, sandboxed, sink);
    let broker = section.table("broker").and_then(|(entries, at)| {
        broker::decode(&Section::open(&broker::TABLE, Some(entries), &at, sink), sandboxed, &at, sink)
    });
    if let (false, Some(place)) = (sandboxed, section.place("openshell")) {
        let hint = "it is what a sandbox of backend = \"openshell\" is made from";
        sink.warn(place, "[agent.openshell] has no effect", hint);
    }
    let model = section.parse("model", sink, model);
    let method_prompt = section.value("method_prompt", sink, ManifestPath::parse);
    let toolbox_dir = section.value("toolbox_dir", sink, ManifestPath::parse);
    let goal = goal(section, sink);
    let timeout = section.value("timeout", sink, parse_duration);
    let idle_timeout = section.value("idle_timeout", sink, parse_duration).map(|timeout| timeout.value);
    if let (Some((entries, _)), true) = (section.table("env"), sandboxed) {
        env::check_for_sandbox(entries, sink);
    }
    for (entries, _) in ["requires", "prefers"].into_iter().filter_map(|name| section.table(name)) {
        image::check(entries, sink);
    }
    let env = section.table("env").map(|(entries, _)| env::decode(entries, sink)).unwrap_or_default();
    let Runner { backend, harness, command } = runner?;
    Some(Agent {
        backend,
        harness,
        model: model.map(|model| model.value),
        method_prompt,
        goal,
        command,
        isolated: sandbox.as_ref().is_some_and(|sandbox| !sandbox.declared.inherit_defaults),
        sandbox: sandbox.filter(|_| sandboxed),
        relays,
        broker,
        toolbox_dir,
        timeout: timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.value),
        idle_timeout,
        env,
    })
}

fn goal(section: &Section<'_>, sink: &mut Sink) -> Option<Goal> {
    let text =
        section.text("goal").map(|At { value, span }| Goal::Text(At { value: value.to_owned(), span }));
    let file = section.value("goal_file", sink, ManifestPath::parse).map(Goal::File);
    if let (Some(goal), Some(goal_file)) = (section.place("goal"), section.place("goal_file")) {
        let (first, second) =
            if goal.start < goal_file.start { (goal, goal_file) } else { (goal_file, goal) };
        sink.put_related(second, AgentError::TwoGoals, (first, "the other one"));
    }
    text.or(file)
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

pub(super) fn model(text: &str) -> Result<ModelName, AgentError> {
    ModelName::parse(text).map_err(AgentError::Model)
}

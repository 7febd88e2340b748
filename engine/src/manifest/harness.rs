//! Turns `backend`, `harness` and `agent_cmd` of `[agent]` into what carries a turn and what runs in it (contract §6).
//! It refuses to know how either works.

use std::fmt;
use std::ops::Range;

use super::At;
use super::agent::AgentError;
use super::error::Sink;
use super::section::Section;
use super::value::{Command, shorten};

/// What carries a turn (contract §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The harness runs on this host, in the workspace.
    Local,
    /// The harness runs in a sandbox of its own.
    Openshell,
    /// `agent_cmd` runs on this host, in the workspace.
    Command,
}

/// What runs in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harness {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// `agent_cmd`.
    Command,
    /// A name of the contract without a driver here.
    Hermes,
    /// A name of the contract without a driver here.
    Opencode,
    /// A name of the contract without a driver here.
    Pi,
}

/// The words for a backend, in the order of the reference.
pub(super) const BACKENDS: &[&str] = &["local", "openshell", "command"];
/// The words for a harness that some build could run.
pub(super) const HARNESSES: &[&str] = &["claude", "codex", "command"];

impl Backend {
    const ALL: [Self; 3] = [Self::Local, Self::Openshell, Self::Command];

    /// The word of the manifest.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Openshell => "openshell",
            Self::Command => "command",
        }
    }
}

impl Harness {
    /// All that the contract names.
    pub const ALL: [Self; 6] =
        [Self::Claude, Self::Codex, Self::Command, Self::Hermes, Self::Opencode, Self::Pi];

    /// The word of the manifest.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Command => "command",
            Self::Hermes => "hermes",
            Self::Opencode => "opencode",
            Self::Pi => "pi",
        }
    }

    /// Whether this build can run it.
    #[must_use]
    pub fn is_built(self) -> bool {
        matches!(self, Self::Claude | Self::Codex | Self::Command)
    }

    /// Whether it can go on with a conversation, which is what `agent.session.persist` advertises (contract §1.3).
    #[must_use]
    pub fn keeps_sessions(self) -> bool {
        matches!(self, Self::Claude | Self::Codex)
    }

    /// Whether it can be told how much a model is to think.
    #[must_use]
    pub fn takes_effort(self) -> bool {
        self == Self::Claude
    }

    /// Whether a driver for it is written down at all; the others fail closed in the manifest.
    fn is_known_only(self) -> bool {
        matches!(self, Self::Hermes | Self::Opencode | Self::Pi)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

impl fmt::Display for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

/// What carries a turn, what runs in it, and the command where that is one.
pub(super) struct Runner {
    pub(super) backend: Backend,
    pub(super) harness: Harness,
    pub(super) command: Option<At<Command>>,
}

/// Reads the three keys; `at` is where a missing command is reported.
pub(super) fn decode(section: &Section<'_>, at: &Range<usize>, sink: &mut Sink) -> Option<Runner> {
    let command = section.value("agent_cmd", sink, Command::parse);
    let backend = backend(section, sink);
    let harness = harness(section, sink);
    let (backend, harness) = (backend?, harness?);
    if backend == Backend::Command
        && let Some(place) = section.place("harness")
    {
        sink.put(place, AgentError::HarnessBesideCommand);
    }
    let harness = if backend == Backend::Command { Harness::Command } else { harness };
    match (harness, section.place("agent_cmd")) {
        (Harness::Command, None) if !section.misspells("agent_cmd") => {
            let runner = if backend == Backend::Command { "backend" } else { "harness" };
            sink.put(at.clone(), AgentError::NoCommand { runner });
        }
        (Harness::Command, _) => {}
        (_, Some(place)) => sink.warn(
            place,
            "[agent].agent_cmd is not run: the harness is another",
            "remove it, or write harness = \"command\"",
        ),
        (_, None) => {}
    }
    let command = command.filter(|_| harness == Harness::Command);
    (harness != Harness::Command || command.is_some()).then_some(Runner { backend, harness, command })
}

fn backend(section: &Section<'_>, sink: &mut Sink) -> Option<Backend> {
    if section.place("backend").is_none() && !section.misspells("backend") {
        return Some(Backend::Local);
    }
    let At { value, span } = section.text("backend")?;
    let found = Backend::ALL.into_iter().find(|backend| backend.token() == value);
    if found.is_none() {
        sink.put(span, AgentError::UnknownBackend { name: shorten(value) });
    }
    found
}

fn harness(section: &Section<'_>, sink: &mut Sink) -> Option<Harness> {
    if section.place("harness").is_none() && !section.misspells("harness") {
        return Some(Harness::Claude);
    }
    let At { value, span } = section.text("harness")?;
    let found = Harness::ALL.into_iter().find(|harness| harness.token() == value);
    match found {
        None => sink.put(span, AgentError::UnknownHarness { name: shorten(value) }),
        Some(harness) if harness.is_known_only() => {
            sink.put(span, AgentError::NoDriver { harness });
            return None;
        }
        Some(_) => {}
    }
    found
}

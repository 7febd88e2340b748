//! Turns the text of `crucible.toml` into a `Manifest` that is valid alone, or into all of its mistakes at once.
//! It refuses to know files, the command line and what a run does with any of it.

mod agent;
mod broker;
mod capability;
mod env;
mod error;
mod file;
mod harness;
mod image;
mod inject;
mod judge;
mod keys;
mod number;
mod openshell;
mod outputs;
mod raw;
mod reference;
mod relay;
mod repo;
mod schema;
mod section;
mod traffic;
mod value;
mod workflow;
mod workspace;
mod world;

use std::fmt;
use std::ops::Range;

use policy::diag::{self, Diagnostic, Source, Style};

pub use agent::{Agent, AgentError, DEFAULT_MODEL, Goal, ModelName};
pub use broker::BrokerError;
pub use capability::{CapabilityError, Context, Secret};
pub use env::{EnvError, EnvName, EnvValue};
pub use error::Mistake;
pub(crate) use error::Sink;
pub use file::FileError;
pub use harness::{Backend, Harness};
pub use image::ImageError;
pub use inject::{Inject, InjectError, Pattern, RESERVED};
pub(crate) use inject::{check_destinations, check_dst};
pub use judge::{Judge, JudgeError, Objective, SelfTest};
pub use openshell::{HostPath, OpenshellError, Sandbox, SandboxLimits};
pub use outputs::{OutputsError, ParamName};
pub use reference::reference;
pub use relay::{Piece, Relay, RelayError, RelaySource, SandboxPath};
pub use repo::{GitRef, Repo, RepoError, RepoSource, RepoUrl};
pub use schema::schema;
pub use traffic::TrafficLimits;
pub use value::{Command, DEFAULT_TIMEOUT, ManifestPath, PathError, RelPath, ValueError, parse_duration};
pub use workflow::{EngineOp, Join, Lane, SessionName, Task, TaskKind, TaskName, Workflow, WorkflowError};
pub(crate) use workspace::STATE_DIR;
pub use workspace::{Workspace, WorkspaceDir, WorkspaceError};
pub use world::{World, WorldError};

/// The largest manifest that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// A value and the bytes of the manifest it was written in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// What was written.
    pub value: T,
    /// Where, in bytes of the manifest's text.
    pub span: Range<usize>,
}

/// A manifest whose every value is valid by itself and beside the others (contract §1). No file was looked at.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// `[repo]`.
    pub repo: Repo,
    /// `[workspace]`, injects included.
    pub workspace: Workspace,
    /// `[agent]` with all its tables.
    pub agent: Agent,
    /// `[judge]`.
    pub judge: Judge,
    /// `[world]`.
    pub world: World,
    /// `[workflow]`; without it the built-in tasks.
    pub workflow: Option<Workflow>,
    /// `[outputs]`.
    pub outputs: policy::outputs::Declared,
    /// `[[capabilities.secret]]`.
    pub secrets: Vec<At<Secret>>,
    source: Source,
    warnings: Vec<Diagnostic>,
}

/// All that is wrong with one manifest, or with the files it names.
#[derive(Clone, Debug)]
pub struct ManifestErrors {
    source: Source,
    diagnostics: Vec<Diagnostic>,
}

impl Manifest {
    /// Reads a manifest. `name` is what diagnostics call it, usually its path.
    ///
    /// # Errors
    /// Every mistake of the text, in the order of their places, syntax and meaning alike.
    pub fn parse(name: &str, text: &str) -> Result<Self, ManifestErrors> {
        if text.len() > MAX_BYTES {
            let mistake = Mistake::TooLarge { bytes: text.len(), max: MAX_BYTES };
            return Err(ManifestErrors::one(Source::new(name, ""), mistake));
        }
        raw::decode(Source::new(name, text))
    }

    /// The same for bytes, which must be UTF-8.
    ///
    /// # Errors
    /// As `parse`, and the offset of the first byte that is not UTF-8.
    pub fn parse_bytes(name: &str, bytes: &[u8]) -> Result<Self, ManifestErrors> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(name, text),
            Err(error) => {
                let offset = error.valid_up_to();
                let good = bytes.get(..offset).unwrap_or_default();
                let source = Source::new(name, String::from_utf8_lossy(good));
                Err(ManifestErrors::one(source, Mistake::NotUtf8 { offset }))
            }
        }
    }

    /// The text as it was read, for the run's identity (contract §7), with the name it was read under.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What its author should know although the manifest is good.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }
}

impl ManifestErrors {
    pub(crate) fn new(source: Source, diagnostics: Vec<Diagnostic>) -> Self {
        Self { source, diagnostics }
    }

    fn one(source: Source, mistake: Mistake) -> Self {
        let end = source.text().len();
        let diagnostic = error::Found::new(end..end, mistake).into_diagnostic(&source);
        Self::new(source, vec![diagnostic])
    }

    /// The text that the diagnostics speak of.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What is wrong, in the order of the places.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// All of it drawn for a person.
    pub fn render(&self, style: Style) -> String {
        diag::render(&self.source, &self.diagnostics, style)
    }
}

impl fmt::Display for ManifestErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(Style::Plain))
    }
}

impl std::error::Error for ManifestErrors {}

#[cfg(test)]
mod tests;

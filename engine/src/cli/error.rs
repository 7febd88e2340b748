//! Turns what went wrong into a text, a remedy and an exit code, in this one place (contract §9).
//! It refuses to match on the text of an error.

use std::path::PathBuf;

use super::exit::Exit;
use super::init::InitError;
use crate::control::DialError;
use crate::pack::PackError;
use crate::plan::{PlanError, Refusal};
use crate::report::plain;
use crate::run::begin::RunError;
use crate::run::statedir::StateError;
use crate::sys::keeper::KeeperError;
use crate::sys::lock::LockError;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// An option or subcommand of the contract that this build does not have.
    #[error("use {0}: this build of crucible does not have it")]
    Absent(String),
    /// A word that is no subcommand.
    #[error("understand `{word}`: it is no subcommand")]
    Unknown {
        /// As typed.
        word: String,
        /// The nearest one.
        near: Option<String>,
    },
    /// The manifest or a file it names.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The document of `CRUCIBLE_INFERENCE`.
    #[error("read CRUCIBLE_INFERENCE")]
    Inference(#[from] policy::inference::InferenceError),
    /// The command line against the pack.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// What would reach the agent, or would not be enforced.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; and to "))]
    Refused(Vec<Refusal>),
    /// The old document of `plan exposure --diff`.
    #[error("compare with {}", .path.display())]
    OldExposure {
        /// As given.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// `init`.
    #[error(transparent)]
    Init(#[from] InitError),
    /// The scratch workspace of `check`.
    #[error("make a scratch workspace")]
    Scratch(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The gateway of `gateway serve`.
    #[error("serve the gateway")]
    Gateway(#[source] driver::GatewayError),
    /// The directory of `[repo].path`.
    #[error("find the directory {0}, which [repo].path names")]
    NoUpstream(PathBuf),
    /// A URL that is none.
    #[error("read the URL {url}")]
    Url {
        /// As given.
        url: String,
        /// Why.
        source: policy::host::HostError,
    },
    /// A reason that no refusal has.
    #[error("filter by the reason `{0}`: no refusal has it")]
    Reason(String),
    /// The agent of the pack runs on this host.
    #[error("explain what the agent reaches: it runs in no sandbox, so nothing keeps it from anything")]
    NoSandbox,
    /// No sandbox of the run ever asked for anything.
    #[error("find an audit file in {0}: there is none")]
    NoAudit(PathBuf),
    /// The audit file cannot be read.
    #[error("read the audit file")]
    Audit(#[source] crate::sys::fs::FsError),
    /// The audit file is not what was written.
    #[error("trust the audit file {path}: {fault}")]
    Tampered {
        /// Where it is.
        path: PathBuf,
        /// The first thing that is wrong.
        fault: policy::record::Fault,
    },
    /// The tools of a sandbox.
    #[error(transparent)]
    Tool(broker::mcp::call::CallError),
    /// There are none here.
    #[error("find the tools: this is no sandbox of a run with [agent.broker].enabled = true")]
    NoTools,
    /// The outbox.
    #[error(transparent)]
    Outbox(broker::writes::outbox::OutboxError),
    /// A staged write whose system nobody configured.
    #[error("send the write: no system is configured for a {0}")]
    NoSystem(&'static str),
    /// A staged write that was not sent, or that may have been.
    #[error("{0}")]
    NotSent(String),
    /// The program of the harness.
    #[error(transparent)]
    Harness(#[from] crate::plan::ToolError),
    /// A log that does not follow from itself.
    #[error(transparent)]
    Replay(#[from] super::replay::ReplayError),
    /// The file of the bearer token.
    #[error("read the bearer token")]
    Token(#[source] crate::sys::fs::FsError),
    /// A run that was to be spoken to.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// There is no run to show.
    #[error("find a run in {0}: there is no session log")]
    NoRun(PathBuf),
    /// The session log or the ledger cannot be read.
    #[error("read what the run wrote")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Pack commands cannot be run here.
    #[error("run the pack's commands")]
    Keeper(#[from] KeeperError),
    /// The judge cannot be run here.
    #[error("run the judge")]
    Ground(#[from] crate::judge::GroundError),
    /// An operator ended a command that is no run.
    #[error("go on: a signal ended it")]
    Interrupted,
    /// The process's own surroundings.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl CliError {
    /// The code the process exits with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            CliError::Absent(_) | CliError::Unknown { .. } | CliError::Inference(_) => Exit::Usage,
            CliError::Run(RunError::Key(_) | RunError::Harness(_) | RunError::Relay(_)) => Exit::Usage,
            CliError::Pack(_) => Exit::Manifest,
            CliError::Plan(
                PlanError::InjectInState(_)
                | PlanError::Shown { .. }
                | PlanError::RelayInWorkspace { .. }
                | PlanError::RelayFromWorkspace { .. },
            ) => Exit::Manifest,
            CliError::Plan(_) => Exit::Usage,
            CliError::Harness(_) => Exit::Usage,
            CliError::Interrupted => Exit::Stopped,
            CliError::Refused(_) | CliError::Run(RunError::Uncovered(_)) => Exit::Uncovered,
            CliError::OldExposure { .. } => Exit::Usage,
            CliError::Dial(DialError::NotLive { .. }) | CliError::NoRun(_) => Exit::NotLive,
            CliError::Dial(_) | CliError::Read(_) => Exit::Failure,
            CliError::Run(
                RunError::State(StateError::Unfinished { .. } | StateError::Lock(LockError::Held { .. }))
                | RunError::Diverged { .. }
                | RunError::OtherGraph,
            )
            | CliError::Gateway(driver::GatewayError::Busy(_)) => Exit::State,
            CliError::Run(RunError::Systems(_)) => Exit::Usage,
            CliError::Run(RunError::Sandbox(_) | RunError::SelfTest(_) | RunError::Egress(_))
            | CliError::Gateway(_) => Exit::Sandbox,
            CliError::Run(RunError::Setup(_)) | CliError::Scratch(_) | CliError::NoUpstream(_) => Exit::Setup,
            CliError::Token(_) | CliError::Url { .. } | CliError::Reason(_) | CliError::NoSandbox => {
                Exit::Usage
            }
            CliError::NoTools | CliError::NoSystem(_) => Exit::Usage,
            CliError::Audit(_)
            | CliError::NoAudit(_)
            | CliError::Tampered { .. }
            | CliError::Tool(_)
            | CliError::Replay(_) => Exit::Failure,
            CliError::Outbox(_) | CliError::NotSent(_) => Exit::Failure,
            CliError::Run(_)
            | CliError::Init(_)
            | CliError::Keeper(_)
            | CliError::Ground(_)
            | CliError::Io { .. } => Exit::Failure,
        }
    }

    /// What the person can do about it.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            CliError::Absent(_) => Some("`crucible --help` lists what there is".to_owned()),
            CliError::Unknown { near: Some(near), .. } => Some(format!("did you mean `{near}`?")),
            CliError::NoSystem(_) => Some(
                "declare its credential with [[capabilities.secret]], context = \"broker\", and set the variable and the system's URL"
                    .to_owned(),
            ),
            CliError::Unknown { near: None, .. } => Some("`crucible --help` lists what there is".to_owned()),
            CliError::Pack(PackError::Manifest { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Some("name one with --manifest, or make one here with `crucible init`".to_owned())
            }
            CliError::Refused(refusals) if refusals.contains(&Refusal::Unenforced) => Some(
                "write backend = \"openshell\", or pass --unenforced-egress to run it without isolation".to_owned(),
            ),
            CliError::Refused(refusals) => Some(
                match refusals.iter().all(|refusal| matches!(refusal, Refusal::Undisclosed(_))) {
                    true => "or bind the agent's model with CRUCIBLE_INFERENCE, or unset what this run does not need",
                    false => "remove it from [agent.env], or declare it with context = \"agent\"",
                }
                .to_owned(),
            ),
            CliError::OldExposure { .. } => {
                Some("name a file that `crucible plan exposure` printed".to_owned())
            }
            CliError::Run(RunError::State(StateError::Unfinished { .. })) => Some(
                "--resume goes on with it, --fresh puts it away under `archive` and starts anew".to_owned(),
            ),
            CliError::Run(RunError::OtherGraph) => Some(
                "put the table back as it was, or begin anew with `--fresh`, which puts the old run away".to_owned(),
            ),
            CliError::Run(RunError::Diverged { .. }) => {
                Some("--fresh puts it away under `archive` and starts anew".to_owned())
            }
            CliError::Dial(DialError::NotLive { .. }) => Some(
                "name a live run by its manifest with --manifest, or by its state directory with --state-dir; `status` and `tail` show \
                 one that is over"
                    .to_owned(),
            ),
            CliError::NoRun(_) => Some(
                "name a run by its manifest with --manifest, or by its state directory with --state-dir".to_owned(),
            ),
            CliError::NoAudit(_) => Some(
                "only a run with backend = \"openshell\" writes one: name it by its manifest with --manifest, or by its state directory with \
                 --state-dir"
                    .to_owned(),
            ),
            CliError::Url { .. } => {
                Some("write http://host or https://host, or host:port without a scheme".to_owned())
            }
            CliError::NoUpstream(_) => Some("paths are relative to the manifest's directory".to_owned()),
            CliError::Outbox(broker::writes::outbox::OutboxError::Absent(_)) => {
                Some("`crucible outbox list` shows what there is".to_owned())
            }
            CliError::Run(RunError::State(StateError::Lock(LockError::Held { .. }))) => {
                Some("wait for it to end, or give this run another --state-dir and workspace".to_owned())
            }
            CliError::Harness(crate::plan::ToolError::Missing(name)) => Some(match name.as_str() {
                "claude" => "`npm install -g @anthropic-ai/claude-code` installs it".to_owned(),
                "codex" => "`npm install -g @openai/codex` installs it".to_owned(),
                _ => return None,
            }),
            _ => None,
        }
    }
}

/// The text for standard error: what failed, why, and the remedy.
#[must_use]
pub fn render(error: &CliError) -> String {
    let text = match error {
        // The mistakes of a file come with their places and pictures.
        CliError::Pack(PackError::Mistakes(mistakes)) => return mistakes.to_string(),
        error => escaped(&format!("error: failed to {}", crate::sys::chain(error))),
    };
    match error.remedy() {
        Some(remedy) => format!("{text}\n  help: {remedy}"),
        None => text,
    }
}

/// Text of commands and servers may be part of an error: its lines stay, what moves a terminal does not.
fn escaped(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// A path argument against the directory that the process was started in.
///
/// # Errors
/// When that directory is gone.
pub fn absolute(path: &std::path::Path) -> Result<PathBuf, CliError> {
    let here = crate::sys::env::current_dir()
        .map_err(|source| CliError::Io { doing: "find the current directory", source })?;
    Ok(here.join(path).components().collect())
}

//! Turns a prompt into an agent command that has ended, with its output told as it came (contract §6).
//! It refuses to know what the command changed.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio_util::sync::CancellationToken;

use super::output::OutputTeller;
use super::usage::{COST_LEFT_VARIABLE, USAGE, USAGE_VARIABLE, Usage};
use crate::log::AgentEvent;
use crate::sys::env::Environment;
use crate::sys::keeper::{Keeper, KeeperError, PackCommand, Stdin};

/// One turn of the `command` backend.
#[derive(Debug, Clone)]
pub struct CommandTurn {
    /// `[agent].agent_cmd`, the text for `sh -c`.
    pub agent_cmd: String,
    /// The workspace.
    pub cwd: PathBuf,
    /// The engine's environment without reserved names, and `[agent.env]`.
    pub env: Environment,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// How long it may say nothing.
    pub idle_timeout: Option<Duration>,
}

/// Why a turn did not come to an end of its own.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// The prompt could not be handed over.
    #[error("hand the prompt to the agent")]
    Prompt(#[source] io::Error),
    /// The keeper could not run it.
    #[error("run the agent")]
    Keeper(#[from] KeeperError),
}

/// What a turn is held to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TurnTerms {
    /// How many US dollars it may use, where there is a ceiling; told to it as `CRUCIBLE_COST_LEFT`.
    pub cost_left: Option<f64>,
}

/// How a turn ended, whatever carried it. Nothing of it runs any more.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turned {
    /// How the agent failed, as what follows "the agent"; `None` when it ended by itself and well.
    pub failure: Option<String>,
    /// The transport class that the turn died on (contract §7), where what carries it failed.
    pub transport: Option<String>,
    /// For how long what carries it takes no other turn, where it said so.
    pub retry_after: Option<Duration>,
    /// What it used, as far as the harness knows; the file of `CRUCIBLE_USAGE` adds what this leaves unknown.
    pub usage: Usage,
    /// Whether the agent had its prompt.
    pub started: bool,
    /// Processes that had to be ended, by name.
    pub killed: Vec<String>,
    /// What did not come back, and why.
    pub dropped: Vec<String>,
    /// The layers of the turn's sandbox, a line each; empty on the host.
    pub layers: Vec<String>,
}

impl Turned {
    /// A turn that failed this way and left nothing.
    #[must_use]
    pub fn failed(how: String) -> Turned {
        Turned { failure: Some(how), ..Turned::default() }
    }
}

impl CommandTurn {
    /// Runs the command with the prompt as its standard input: a file, so that it has an end and any size.
    /// Returns when nothing of what the agent started is left.
    ///
    /// # Errors
    /// [`TurnError`]; an agent that failed is a result, not an error.
    pub async fn run(
        self,
        keeper: &Keeper,
        prompt: &str,
        terms: TurnTerms,
        cancel: &CancellationToken,
        tell: &mut dyn FnMut(AgentEvent),
    ) -> Result<Turned, TurnError> {
        let stdin = Stdin::File(prompt_file(prompt).map_err(TurnError::Prompt)?);
        let CommandTurn { agent_cmd, cwd, mut env, timeout, idle_timeout } = self;
        env.set(USAGE_VARIABLE, cwd.join(USAGE));
        if let Some(left) = terms.cost_left {
            env.set(COST_LEFT_VARIABLE, left.to_string());
        }
        let command = PackCommand { shell: agent_cmd, cwd, env, stdin, timeout, idle_timeout };
        let mut teller = OutputTeller::default();
        let finished =
            keeper.run(command, cancel, &mut |stream, bytes| teller.push(stream, bytes, tell)).await;
        teller.finish(tell);
        let finished = finished?;
        tell(AgentEvent::Exit { code: finished.exit.code() });
        Ok(Turned {
            failure: finished.failure().map(|how| teller.explain(&how)),
            killed: finished.killed_names(),
            started: true,
            ..Turned::default()
        })
    }
}

/// A file without a name that holds the prompt.
fn prompt_file(prompt: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create("prompt", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(prompt.as_bytes())?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

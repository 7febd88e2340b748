//! Turns a prompt into a turn of an agent on this host that has ended, with what it said told as it came (contract §6).
//! It refuses to know what the agent changed.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio_util::sync::CancellationToken;

use super::called::Called;
use super::harness::{Call, End, Failure, Home, Reset, Stream, Verdict};
use super::session::{Begun, Left, Live};
use super::usage::{COST_LEFT_VARIABLE, USAGE, USAGE_VARIABLE, Usage};
use crate::log::AgentEvent;
use crate::sys::env::Environment;
use crate::sys::fs::FsError;
use crate::sys::keeper::{EndedBy, Finished, Keeper, KeeperError, PackCommand, Stdin};

/// How long a tool may take to end by itself once its turn is done.
pub const GRACE: Duration = Duration::from_secs(5);

/// One turn of the backends `local` and `command`.
#[derive(Debug, Clone)]
pub struct HostTurn {
    /// What is run.
    pub called: Called,
    /// The tool's home while a turn runs.
    pub live: Live,
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
    /// The tool's home could not be made.
    #[error("make a home for the agent's tool")]
    Home(#[source] FsError),
    /// The keeper could not run it.
    #[error("run the agent")]
    Keeper(#[from] KeeperError),
}

/// What a turn is held to, and what it goes on from.
#[derive(Debug, Clone, Copy, Default)]
pub struct TurnTerms<'a> {
    /// How many US dollars it may use, where there is a ceiling; told to it as `CRUCIBLE_COST_LEFT` too.
    pub cost_left: Option<f64>,
    /// The conversation that it belongs to.
    pub session: Option<&'a Begun>,
}

/// How a turn ended, whatever carried it. Nothing of it runs any more.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turned {
    /// How the agent failed, as what follows "the agent"; `None` when it ended by itself and well.
    pub failure: Option<String>,
    /// The transport class that the turn died on (contract §7), where what carries it failed.
    pub transport: Option<String>,
    /// When the model takes another turn, where it turned this one down and said so.
    pub reset: Option<Reset>,
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
    /// The name of its conversation, where the harness gave it one.
    pub conversation: Option<String>,
    /// What it left of its conversation.
    pub left: Left,
}

impl Turned {
    /// A turn that failed this way and left nothing.
    #[must_use]
    pub fn failed(how: String) -> Turned {
        Turned { failure: Some(how), ..Turned::default() }
    }

    /// A turn of which its harness says this.
    pub(super) fn judged(verdict: Verdict) -> Turned {
        let Verdict { failure, reset, usage, conversation } = verdict;
        let provider = failure.as_ref().is_some_and(|failure| failure.provider);
        let (transport, reset) = (provider.then(|| PROVIDER.to_owned()), reset.filter(|_| provider));
        let failure = failure.map(|Failure { how, .. }| how);
        Turned { failure, transport, reset, usage, conversation, ..Turned::default() }
    }
}

/// The transport class of a model that does not answer as it should.
const PROVIDER: &str = "provider";

impl HostTurn {
    /// Runs one turn with the prompt as its standard input: a file, so that it has an end and any size.
    /// Returns when nothing of what the agent started is left. A turn that is done and does not end is ended after [`GRACE`].
    ///
    /// # Errors
    /// When it could not be run at all.
    pub async fn run(
        self,
        keeper: &Keeper,
        (prompt, terms): (&str, TurnTerms<'_>),
        cancel: &CancellationToken,
        tell: &mut (dyn FnMut(AgentEvent) + Send),
    ) -> Result<Turned, TurnError> {
        let home = self.called.home();
        let (call, stream) = self.called.turn(terms.session.map(Begun::conversation), terms.cost_left);
        let live = self.live.clone();
        let command = self.command(&call, prompt, home.as_ref(), terms)?;
        let turned = follow(keeper, command, stream, cancel, tell).await;
        let left = home.filter(|_| terms.session.is_some()).map(|home| live.left(&home));
        if home.is_some() {
            live.remove().map_err(TurnError::Home)?;
        }
        Ok(Turned { left: left.unwrap_or_default(), ..turned? })
    }

    fn command(
        self,
        call: &Call,
        prompt: &str,
        home: Option<&Home>,
        terms: TurnTerms<'_>,
    ) -> Result<PackCommand, TurnError> {
        let stdin = Stdin::File(prompt_file(prompt).map_err(TurnError::Prompt)?);
        let HostTurn { live, cwd, mut env, timeout, idle_timeout, .. } = self;
        env.set(USAGE_VARIABLE, cwd.join(USAGE));
        if let Some(left) = terms.cost_left {
            env.set(COST_LEFT_VARIABLE, left.to_string());
        }
        if let Some(home) = home {
            let transcript = terms.session.and_then(Begun::transcript);
            let at = live.furnish(home, transcript).map_err(TurnError::Home)?;
            // Nothing of the person's own settings is seen, nor of what their shell does when it begins.
            if env.value("HOME").is_none() {
                env.set("HOME", at);
            }
            env.set(home.variable, live.config(home));
        }
        for (name, value) in &call.env {
            env.set(name, value);
        }
        Ok(PackCommand { shell: shell(call), cwd, env, stdin, timeout, idle_timeout })
    }
}

/// Runs a command, and ends it when its turn is done but it does not end.
async fn follow(
    keeper: &Keeper,
    command: PackCommand,
    stream: Stream,
    cancel: &CancellationToken,
    tell: &mut (dyn FnMut(AgentEvent) + Send),
) -> Result<Turned, TurnError> {
    let (stop, enough) = (cancel.child_token(), CancellationToken::new());
    let mut stream = stream;
    let mut sink = |from, bytes: &[u8]| {
        stream.push(from, bytes, tell);
        if stream.is_enough() {
            enough.cancel();
        }
    };
    let finished = {
        let mut running = std::pin::pin!(keeper.run(command, &stop, &mut sink));
        tokio::select! {
            biased;
            finished = &mut running => finished?,
            () = grace(&enough) => {
                stop.cancel();
                running.await?
            }
        }
    };
    let by_us = finished.ended_by == Some(EndedBy::Cancelled) && !cancel.is_cancelled();
    let end = end(&finished, by_us);
    let mut turned = Turned::judged(stream.finish(end, tell));
    turned.killed = finished.killed_names();
    turned.started = true;
    Ok(turned)
}

/// Waits until a turn is done, and then as long as its tool may take to end.
pub(super) async fn grace(enough: &CancellationToken) {
    enough.cancelled().await;
    tokio::time::sleep(GRACE).await;
}

fn end(finished: &Finished, by_us: bool) -> End {
    let code = finished.exit.code();
    match (finished.ended_early(), by_us) {
        (Some(_), true) => End::Enough(code),
        (Some(how), false) => End::Ended(code, how),
        (None, _) => End::Exit(code, format!("ended with {}", finished.exit)),
    }
}

/// A call as a line for `sh -c`, which the program takes the place of.
fn shell(call: &Call) -> String {
    if let [flag, text] = &call.args[..]
        && (call.program.as_str(), flag.as_str()) == ("/bin/sh", "-c")
    {
        return text.clone();
    }
    let words = std::iter::once(&call.program).chain(&call.args);
    words.fold("exec".to_owned(), |line, word| format!("{line} '{}'", word.replace('\'', "'\\''")))
}

/// A file without a name that holds the prompt.
fn prompt_file(prompt: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create("prompt", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(prompt.as_bytes())?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_line_whatever_stands_in_it() {
        let call = |program: &str, args: &[&str]| Call {
            program: program.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: Vec::new(),
        };
        assert_eq!(shell(&call("/bin/sh", &["-c", "a; b"])), "a; b");
        assert_eq!(shell(&call("/x y/t", &["it's", "$(id)", ""])), r"exec '/x y/t' 'it'\''s' '$(id)' ''");
    }
}

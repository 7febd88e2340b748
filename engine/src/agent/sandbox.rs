//! Turns a prompt into an agent command that ran in a sandbox of its own, with what it changed brought back (contract §6).
//! It refuses to know how a sandbox is made: that is the driver's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use driver::turn::{self, Ended, TurnEnd, TurnSpec};
use driver::{Client, Limits, Step, TurnError};
use policy::egress::Document;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::output::OutputTeller;
use super::relay::Relays;
use super::tools::ToolAccess;
use super::turn::{TurnTerms, Turned};
use super::usage::{COST_LEFT_VARIABLE, USAGE, USAGE_VARIABLE};
use crate::log::AgentEvent;
use crate::sys::keeper::Stream;

/// One turn of the `openshell` backend with the `command` harness.
#[derive(Debug, Clone)]
pub struct SandboxTurn {
    /// The gateway to drive.
    pub client: Client,
    /// `[agent].agent_cmd`, the text for `sh -c` in the sandbox.
    pub agent_cmd: String,
    /// The workspace on this host.
    pub workspace: PathBuf,
    /// `[agent.env]`; nothing of the engine's own environment goes in.
    pub env: BTreeMap<String, String>,
    /// Host paths that join the sandbox's view (note N11).
    pub read_only_paths: Vec<PathBuf>,
    /// Files that are made for each turn (note N16).
    pub relays: Relays,
    /// Those of this turn, made.
    pub relayed: Vec<turn::Relay>,
    /// The layers that are known to be in force, a line each.
    pub layers: Vec<String>,
    /// What it may reach.
    pub policy: Document,
    /// How often in a row whoever answers for what it reaches died; a change ends the turn.
    pub deaths: watch::Receiver<u32>,
    /// Certificates that it trusts beside the system's, in PEM.
    pub certificates: Option<String>,
    /// Where its tools are, if it has any.
    pub tools: Option<ToolAccess>,
    /// What the sandbox may use.
    pub limits: Limits,
    /// How long the turn may take.
    pub timeout: Option<Duration>,
    /// How long it may say nothing.
    pub idle_timeout: Option<Duration>,
}

impl SandboxTurn {
    /// Runs one turn in a new sandbox, which is gone when this returns, with every process that was in it.
    ///
    /// `repository` is what the agent sees as the workspace's `.git`; `name` is unique while the turn runs.
    pub async fn run(
        self,
        name: String,
        repository: PathBuf,
        (prompt, terms): (&str, TurnTerms),
        cancel: &CancellationToken,
        mut tell: impl FnMut(AgentEvent) + Send,
    ) -> Turned {
        let (mut env, mut relays) = (self.env, self.relayed);
        let seen = self.workspace.file_name().unwrap_or_default().to_string_lossy();
        env.insert(USAGE_VARIABLE.to_owned(), format!("/sandbox/{seen}/{USAGE}"));
        if let Some(left) = terms.cost_left {
            env.insert(COST_LEFT_VARIABLE.to_owned(), left.to_string());
        }
        match self.tools.map(|tools| tools.begin(&name)).transpose() {
            Ok(None) => {}
            Ok(Some((variables, config))) => {
                env.extend(variables);
                relays.push(config);
            }
            Err(error) => {
                let transport = Some(driver::TransportClass::Other.token().to_owned());
                return Turned { transport, ..Turned::failed(format!("failed to make a token: {error}")) };
            }
        }
        let spec = TurnSpec {
            name,
            workspace: self.workspace,
            repository: Some(repository),
            command: ["/bin/sh", "-c", &self.agent_cmd].map(str::to_owned).to_vec(),
            env,
            stdin: prompt.as_bytes().to_vec(),
            relays,
            read_only_paths: self.read_only_paths,
            limits: self.limits,
            egress: Some(self.policy),
            certificates: self.certificates,
            timeout: self.timeout,
            idle_timeout: self.idle_timeout,
            ..TurnSpec::default()
        };
        let mut teller = OutputTeller::default();
        let mut heard = false;
        let mut sink = |stream, bytes: &[u8]| {
            heard = true;
            teller.push(same(stream), bytes, &mut tell);
        };
        let mut deaths = self.deaths;
        let turn = cancel.child_token();
        let result = {
            let mut running = std::pin::pin!(turn::run(&self.client, spec, turn.clone(), &mut sink));
            tokio::select! {
                biased;
                result = &mut running => result,
                () = more(&mut deaths) => {
                    turn.cancel();
                    running.await
                }
            }
        };
        teller.finish(&mut tell);
        let started = heard || result.as_ref().err().is_some_and(may_have_started);
        match result {
            Ok(end) => {
                tell(AgentEvent::Exit { code: code(end.exit) });
                let turned = turned(end);
                Turned { failure: turned.failure.map(|how| teller.explain(&how)), ..turned }
            }
            Err(TurnError::Cancelled) if !cancel.is_cancelled() => Turned {
                transport: Some(driver::TransportClass::Gateway.token().to_owned()),
                started,
                ..Turned::failed(
                    "was ended, because the broker died and nothing answers for what it reaches".to_owned(),
                )
            },
            Err(TurnError::Cancelled) => {
                Turned { started, ..Turned::failed("was ended on request".to_owned()) }
            }
            Err(error) => Turned {
                transport: Some(error.class().token().to_owned()),
                started,
                ..Turned::failed(format!("failed to {}", crate::sys::chain(&error)))
            },
        }
    }
}

/// Whether a turn that failed so may have had its prompt, though nothing was heard of it.
fn may_have_started(error: &TurnError) -> bool {
    match error {
        TurnError::NoExit => true,
        TurnError::Call { step, .. } | TurnError::Slow { step, .. } => {
            matches!(step, Step::SyncBack | Step::Delete)
        }
        _ => false,
    }
}

/// Waits until there is one more death.
async fn more(deaths: &mut watch::Receiver<u32>) {
    let before = *deaths.borrow_and_update();
    if deaths.wait_for(|now| *now > before).await.is_err() {
        // Nobody is left who could die.
        std::future::pending::<()>().await;
    }
}

fn same(stream: turn::Stream) -> Stream {
    match stream {
        turn::Stream::Stdout => Stream::Out,
        turn::Stream::Stderr => Stream::Err,
    }
}

/// As a shell reports it: 128+n for a signal (note N15).
fn code(exit: turn::Exit) -> i32 {
    match exit {
        turn::Exit::Code(code) => code,
        turn::Exit::Signal(signal) => signal.saturating_add(128),
    }
}

fn turned(end: TurnEnd) -> Turned {
    let how = match (end.ended, end.exit) {
        (Ended::TimedOut, _) => Some("ran into its time limit".to_owned()),
        (Ended::Idle, _) => Some("said nothing for too long".to_owned()),
        (Ended::Itself, turn::Exit::Code(0)) => None,
        (Ended::Itself, turn::Exit::Code(code)) => Some(format!("ended with exit code {code}")),
        (Ended::Itself, turn::Exit::Signal(signal)) => Some(format!("ended with signal {signal}")),
    };
    let hit = end.limits_hit.join(", ");
    let failure = match (how, hit.is_empty()) {
        (Some(how), false) => Some(format!("{how}; the sandbox's limit on {hit} was hit")),
        (how, _) => how,
    };
    let mut dropped: Vec<String> =
        end.dropped.iter().map(|dropped| format!("{}: {}", dropped.path.display(), dropped.reason)).collect();
    if failure.is_none() && !hit.is_empty() {
        dropped.push(format!("the sandbox's limit on {hit} was hit"));
    }
    let killed = end.killed.into_iter().map(|killed| killed.name).collect();
    Turned { failure, killed, dropped, layers: end.layers, started: true, ..Turned::default() }
}

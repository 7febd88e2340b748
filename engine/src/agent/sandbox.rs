//! Turns a prompt into a turn of an agent in a sandbox of its own, with what it changed brought back (contract §6).
//! It refuses to know how a sandbox is made: that is the driver's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use driver::turn::{self, Ended, Fetch, Fetched, Looks, Relay, TurnEnd, TurnSpec};
use driver::{Client, Limits, Step, TurnError};
use policy::egress::Document;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::called::Called;
use super::harness::{End, Home, home_in_sandbox};
use super::relay::Relays;
use super::session::{Begun, Left, Live, TRANSCRIPT_MAX, Transcript};
use super::tools::ToolAccess;
use super::turn::{TurnTerms, Turned, grace};
use super::usage::{COST_LEFT_VARIABLE, USAGE, USAGE_VARIABLE};
use crate::log::{AgentEvent, few};
use crate::sys::keeper::Stream;

/// One turn of the backend `openshell`.
#[derive(Debug, Clone)]
pub struct SandboxTurn {
    /// The gateway to drive.
    pub client: Client,
    /// What is run.
    pub called: Called,
    /// The workspace on this host.
    pub workspace: PathBuf,
    /// `[agent.env]`; nothing of the engine's own environment goes in.
    pub env: BTreeMap<String, String>,
    /// Host paths that join the sandbox's view (note N11).
    pub read_only_paths: Vec<PathBuf>,
    /// Files that are made for each turn (note N16).
    pub relays: Relays,
    /// Those of this turn, made.
    pub relayed: Vec<Relay>,
    /// Where what its tool has said is saved while the turn runs, if it belongs to a conversation.
    pub live: Option<Live>,
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
    /// Runs one turn in a new sandbox, which is gone when this returns, with every process that was in it. A turn that is
    /// done and does not end is ended after a grace.
    ///
    /// `repository` is what the agent sees as the workspace's `.git`; `name` is unique while the turn runs.
    pub async fn run(
        self,
        name: String,
        repository: PathBuf,
        (prompt, terms): (&str, TurnTerms<'_>),
        cancel: &CancellationToken,
        tell: &mut (dyn FnMut(AgentEvent) + Send),
    ) -> Turned {
        let mut this = self;
        match this.tools.take().map(|tools| tools.begin(&name)).transpose() {
            Ok(None) => {}
            Ok(Some(begun)) => {
                this.env.extend(begun.variables);
                this.relayed.push(begun.config);
                this.called.mcp = Some(begun.server);
            }
            Err(error) => {
                let transport = Some(driver::TransportClass::Other.token().to_owned());
                return Turned { transport, ..Turned::failed(format!("failed to make a token: {error}")) };
            }
        }
        let (call, mut stream) = this.called.turn(terms.session.map(Begun::conversation), terms.cost_left);
        let enough = CancellationToken::new();
        let mut deaths = this.deaths.clone();
        let client = this.client.clone();
        let (wanted, (seen, told)) = (Arc::new(Notify::new()), mpsc::unbounded_channel());
        let saves = this.live.take().zip(this.called.home());
        let looks = saves.is_some().then(|| Looks { wanted: wanted.clone(), seen });
        let mut spec = this.spec(call.env, terms);
        spec.name = name;
        spec.repository = Some(repository);
        spec.command = std::iter::once(call.program).chain(call.args).collect();
        spec.stdin = prompt.as_bytes().to_vec();
        spec.looks = looks;
        let done = spec.enough.clone();
        let mut heard = false;
        let turn = cancel.child_token();
        let result = {
            let mut tell = |event: AgentEvent| {
                if is_step(&event) {
                    wanted.notify_one();
                }
                tell(event);
            };
            let mut sink = |from, bytes: &[u8]| {
                heard = true;
                stream.push(same(from), bytes, &mut tell);
                if stream.is_enough() {
                    enough.cancel();
                }
            };
            let mut running = std::pin::pin!(turn::run(&client, spec, turn.clone(), &mut sink));
            tokio::select! {
                biased;
                result = &mut running => result,
                () = save(saves, told) => running.await,
                () = more(&mut deaths) => {
                    turn.cancel();
                    running.await
                }
                () = grace(&enough) => {
                    done.cancel();
                    running.await
                }
            }
        };
        let started = heard || result.as_ref().err().is_some_and(may_have_started);
        match result {
            Ok(end) => {
                let how = ending(&end);
                let verdict = stream.finish(how, tell);
                turned(end, Turned::judged(verdict))
            }
            Err(error) => {
                stream.finish(End::Lost, tell);
                Turned { started, ..not_run(&error, cancel.is_cancelled()) }
            }
        }
    }

    /// The specification of a turn, without what only this turn has.
    fn spec(self, own: Vec<(String, String)>, terms: TurnTerms<'_>) -> TurnSpec {
        let mut env = self.env;
        let seen = self.workspace.file_name().unwrap_or_default().to_string_lossy();
        env.insert(USAGE_VARIABLE.to_owned(), format!("/sandbox/{seen}/{USAGE}"));
        if let Some(left) = terms.cost_left {
            env.insert(COST_LEFT_VARIABLE.to_owned(), left.to_string());
        }
        let session = terms.session;
        let (mut relays, mut fetch) = (self.relayed, None);
        if let Some(home) = self.called.home() {
            let at = home_in_sandbox(&home);
            env.insert(home.variable.to_owned(), at.display().to_string());
            let transcripts = at.join(home.transcripts).display().to_string();
            let seed = |name: &str| Transcript { path: PathBuf::from(name), content: Vec::new() };
            relays.extend(home.seed.map(|name| relay(&at.display().to_string(), &seed(name))));
            relays.extend(session.and_then(Begun::transcript).map(|kept| relay(&transcripts, kept)));
            fetch = session.map(|_| fetch_of(&home, transcripts));
        }
        env.extend(own);
        TurnSpec {
            workspace: self.workspace,
            env,
            relays,
            fetch,
            read_only_paths: self.read_only_paths,
            limits: self.limits,
            egress: Some(self.policy),
            certificates: self.certificates,
            timeout: self.timeout,
            idle_timeout: self.idle_timeout,
            ..TurnSpec::default()
        }
    }
}

/// Whether a tool's transcript has something new in it that was paid for.
fn is_step(event: &AgentEvent) -> bool {
    match event {
        AgentEvent::Tool { step, .. } => step != "use",
        AgentEvent::Text { .. } => true,
        _ => false,
    }
}

/// Saves what is seen of a conversation. What cannot be saved was not seen: the turn goes on without it.
async fn save(saves: Option<(Live, Home)>, mut told: mpsc::UnboundedReceiver<Vec<Fetched>>) {
    while let Some((files, (live, home))) = told.recv().await.zip(saves.as_ref()) {
        let _ = live.save(home, &transcripts(files));
    }
    // Nobody looks any more.
    std::future::pending::<()>().await;
}

fn transcripts(files: Vec<Fetched>) -> Vec<Transcript> {
    files.into_iter().map(|file| Transcript { path: file.path, content: file.content }).collect()
}

fn relay(directory: &str, Transcript { path, content }: &Transcript) -> Relay {
    Relay { dest: format!("{directory}/{}", path.display()), content: content.clone(), mode: 0o600 }
}

fn fetch_of(home: &Home, directory: String) -> Fetch {
    Fetch { directory, name: home.pattern.to_owned(), max: TRANSCRIPT_MAX }
}

/// A turn that its sandbox did not carry to an end.
fn not_run(error: &TurnError, asked: bool) -> Turned {
    match error {
        TurnError::Cancelled if !asked => Turned {
            transport: Some(driver::TransportClass::Gateway.token().to_owned()),
            ..Turned::failed(
                "was ended, because the broker died and nothing answers for what it reaches".to_owned(),
            )
        },
        TurnError::Cancelled => Turned::failed("was ended on request".to_owned()),
        error => Turned {
            transport: Some(error.class().token().to_owned()),
            ..Turned::failed(format!("failed to {}", crate::sys::chain(error)))
        },
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

fn ending(end: &TurnEnd) -> End {
    let code = code(end.exit);
    match end.ended {
        Ended::TimedOut => End::Ended(code, "ran into its time limit".to_owned()),
        Ended::Idle => End::Ended(code, "said nothing for too long".to_owned()),
        Ended::Enough => End::Enough(code),
        Ended::Itself => {
            let how = match end.exit {
                turn::Exit::Code(code) => format!("ended with exit code {code}"),
                turn::Exit::Signal(signal) => format!("ended with signal {signal}"),
            };
            End::Exit(code, how)
        }
    }
}

/// What its harness says of a turn, and what its sandbox adds.
fn turned(end: TurnEnd, judged: Turned) -> Turned {
    let hit = end.limits_hit.join(", ");
    let failure = match (judged.failure, hit.is_empty()) {
        (Some(how), false) => Some(format!("{how}; the sandbox's limit on {hit} was hit")),
        (how, _) => how,
    };
    let mut dropped =
        few(end.dropped.iter().map(|dropped| format!("{}: {}", dropped.path.display(), dropped.reason)));
    if failure.is_none() && !hit.is_empty() {
        dropped.push(format!("the sandbox's limit on {hit} was hit"));
    }
    let killed = end.killed.into_iter().map(|killed| killed.name).collect();
    let started = true;
    let left = match end.fetched {
        Ok(files) => Left { transcripts: transcripts(files), fault: None },
        Err(why) => Left { transcripts: Vec::new(), fault: Some(why) },
    };
    Turned { failure, killed, dropped, layers: end.layers, started, left, ..judged }
}

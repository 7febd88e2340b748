//! Turns the sockets of sandboxes into ones that a watched child answers on, and every answer into a line of the audit file.
//! It refuses to know what is allowed: the policy does, and the child asks it.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

use broker::client::{Attachment, Client, ClientError};
use broker::launch::Launch;
use broker::project::{Projection, ProjectionError};
use broker::systems::Secret;
use driver::network::{Answer, Network, Outlets};
use policy::record::{Fault, Head, verify};
use tokio::sync::{mpsc, oneshot, watch};

use crate::agent::tools::Tokens;
use crate::sys::chain;
use crate::sys::env::Environment;
use crate::sys::fs::{FsError, PrivateFile, private_file};
use crate::sys::helper::Helper;

/// So many deaths of the child in a row end the run.
pub const DEATHS_MAX: u32 = 3;
/// How long the child may take to end by itself once nobody needs it.
const ENDING: Duration = Duration::from_secs(5);
/// How long the child may take to serve.
const LAUNCH: Duration = Duration::from_secs(20);
/// More of an audit file than this is not gone on with.
const AUDIT_MAX: u64 = 1 << 30;

/// Why nobody answers for the sandboxes. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The child could not be started.
    #[error("start the broker")]
    Start(#[source] std::io::Error),
    /// It does not answer.
    #[error("start the broker: it does not answer")]
    Slow,
    /// It does not do what it is asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The audit file.
    #[error("keep the audit file")]
    Audit(#[from] FsError),
    /// What the audit file holds is not what was written.
    #[error("go on with the audit file: {0}")]
    Chain(#[from] Fault),
    /// The bounds of the run's writes.
    #[error(transparent)]
    Bounds(#[from] ProjectionError),
    /// Its thread is gone.
    #[error("reach the broker's keeper")]
    Keeper,
}

/// The turn of the self-test, which is the engine's own.
pub const SELF_TEST: &str = "self-test";

/// What was asked for so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Where the audit file ends.
    pub head: Head,
    /// How many attempts were let through, in turns that their broker outlived.
    pub allowed: u64,
    /// How many were refused, recorded or not.
    pub denied: u64,
}

/// What may be asked of the thread that has the child.
enum Ask {
    Attach(Box<Outlets>, oneshot::Sender<Result<String, EgressError>>),
    Detach(String, oneshot::Sender<Result<(), EgressError>>),
    Standing(oneshot::Sender<Result<Standing, EgressError>>),
}

/// The broker of a run: one child at a time, started when a sandbox needs it, and gone with this value.
///
/// It has a thread and a runtime of its own, because a child dies with the thread that started it, and because sandboxes
/// end while the engine's runtime waits for that.
#[derive(Debug)]
pub struct Broker {
    asks: Mutex<Option<mpsc::UnboundedSender<Ask>>>,
    tokens: Tokens,
    deaths: watch::Receiver<u32>,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    /// Takes over the audit file at `audit`. No child is started yet; each is launched with `launch` and where the file ends.
    ///
    /// `projection` are the bounds of the run's writes, where it has any; the child gets them as its only variables.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(
        launch: Launch,
        audit: PathBuf,
        projection: Option<&Projection>,
        tokens: Tokens,
    ) -> Result<Broker, EgressError> {
        let mut env = Environment::empty();
        for (name, value) in projection.map(Projection::variables).transpose()?.into_iter().flatten() {
            env.set(name, value);
        }
        let (asks, asked) = mpsc::unbounded_channel();
        let (died, deaths) = watch::channel(0);
        let known = tokens.clone();
        let keeper = Keeper { launch, env, tokens, audit, running: None, died, allowed: 0, denied: 0 };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(EgressError::Start)?;
        let thread = std::thread::Builder::new().name("broker".to_owned());
        let thread =
            thread.spawn(move || runtime.block_on(keeper.serve(asked))).map_err(EgressError::Start)?;
        Ok(Broker { tokens: known, asks: Mutex::new(Some(asks)), deaths, thread: Some(thread) })
    }

    /// How often in a row the child died or could not be started; a turn that ended well makes it zero.
    #[must_use]
    pub fn deaths(&self) -> watch::Receiver<u32> {
        self.deaths.clone()
    }

    /// The tokens of turns that may call tools.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        self.tokens.clone()
    }

    /// Where the audit file ends, and what it holds.
    ///
    /// # Errors
    /// When the file is not what was written.
    pub async fn standing(&self) -> Result<Standing, EgressError> {
        self.ask(Ask::Standing).await
    }

    async fn ask<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<T, EgressError>>) -> Ask,
    ) -> Result<T, EgressError> {
        let (answer, answered) = oneshot::channel();
        {
            let asks = self.asks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let sent = asks.as_ref().map(|asks| asks.send(ask(answer)));
            sent.and_then(Result::ok).ok_or(EgressError::Keeper)?;
        }
        answered.await.map_err(|_| EgressError::Keeper)?
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.asks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has let go of its child as well.
            let _ = thread.join();
        }
    }
}

impl Network for Broker {
    fn attach(&self, outlets: Outlets) -> Answer<'_, String> {
        let asked = self.ask(|answer| Ask::Attach(Box::new(outlets), answer));
        Box::pin(async move { asked.await.map_err(|error| chain(&error)) })
    }

    fn detach<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        let asked = self.ask(|answer| Ask::Detach(id.to_owned(), answer));
        Box::pin(async move { asked.await.map_err(|error| chain(&error)) })
    }
}

/// What the thread has.
struct Keeper {
    launch: Launch,
    env: Environment,
    tokens: Tokens,
    audit: PathBuf,
    running: Option<Running>,
    died: watch::Sender<u32>,
    allowed: u64,
    denied: u64,
}

/// A living child.
struct Running {
    client: Client,
    helper: Helper,
    /// The sandboxes that it answers for.
    attached: BTreeSet<String>,
}

impl Keeper {
    /// Answers until nobody asks any more, then lets the child end.
    async fn serve(mut self, mut asked: mpsc::UnboundedReceiver<Ask>) {
        loop {
            let ask = tokio::select! {
                ask = asked.recv() => ask,
                () = gone(self.running.as_mut()) => {
                    self.bury();
                    continue;
                }
            };
            // Who asked and went away is owed nothing.
            match ask {
                None => break,
                Some(Ask::Attach(outlets, answer)) => drop(answer.send(self.attach(*outlets).await)),
                Some(Ask::Detach(id, answer)) => drop(answer.send(self.detach(&id).await)),
                Some(Ask::Standing(answer)) => drop(answer.send(self.standing().await)),
            }
        }
        if let Some(Running { client, helper, .. }) = self.running.take() {
            drop(client);
            helper.ended(ENDING).await;
        }
    }

    /// Lets go of a child that is gone or does not answer: with it every socket that it held.
    fn bury(&mut self) {
        self.running = None;
        self.died.send_modify(|deaths| *deaths = deaths.saturating_add(1));
    }

    async fn attach(&mut self, outlets: Outlets) -> Result<String, EgressError> {
        if self.running.is_none() {
            match self.launch().await {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    self.bury();
                    return Err(error);
                }
            }
        }
        let Some(running) = &mut self.running else { return Err(EgressError::Keeper) };
        let Outlets { id, turn, policy, sockets, inside } = outlets;
        let token = self.tokens.of(&turn).map(Secret::new);
        let inside = Some(inside);
        let attachment = Attachment { id: id.clone(), turn, policy, sockets, token, inside };
        let attached = running.client.attach(attachment).await;
        if attached.is_ok() {
            running.attached.insert(id);
        }
        self.unless_gone(attached)
    }

    async fn detach(&mut self, id: &str) -> Result<(), EgressError> {
        let Some(running) = &mut self.running else { return Err(ClientError::Gone.into()) };
        if !running.attached.remove(id) {
            // It was another child's, and that one is gone.
            return Err(ClientError::Gone.into());
        }
        let detached = running.client.detach(id).await;
        let (end, _) = self.unless_gone(detached)?;
        if end.turn != SELF_TEST {
            self.allowed = self.allowed.saturating_add(end.allowed);
            self.denied = self.denied.saturating_add(end.denied);
        }
        self.died.send_if_modified(|deaths| std::mem::take(deaths) != 0);
        Ok(())
    }

    /// A child that no longer speaks is as good as dead, and may not go on holding sockets.
    fn unless_gone<T>(&mut self, result: Result<T, ClientError>) -> Result<T, EgressError> {
        if matches!(result, Err(ClientError::Gone | ClientError::Io(_) | ClientError::Unexpected)) {
            self.bury();
        }
        Ok(result?)
    }

    async fn standing(&mut self) -> Result<Standing, EgressError> {
        let head = match &self.running {
            Some(running) => {
                let head = running.client.head().await;
                self.unless_gone(head)?
            }
            None => verify(&self.written()?, None)?,
        };
        Ok(Standing { head, allowed: self.allowed, denied: self.denied })
    }

    fn written(&self) -> Result<Vec<u8>, EgressError> {
        if !self.audit.exists() {
            return Ok(Vec::new());
        }
        Ok(crate::sys::fs::read_bounded(&self.audit, AUDIT_MAX)?)
    }

    async fn launch(&self) -> Result<Running, EgressError> {
        let file = private_file(&self.audit, PrivateFile::Append)?;
        let head = Some(verify(&self.written()?, None)?).filter(|head| head.seq > 0);
        let launch = Launch { head, ..self.launch.clone() };
        let (helper, socket) = Helper::start(broker::ROLE, &self.env).map_err(EgressError::Start)?;
        let client = tokio::time::timeout(LAUNCH, Client::launch(socket, &launch, file.as_fd())).await;
        let client = client.map_err(|_| EgressError::Slow)??;
        Ok(Running { client, helper, attached: BTreeSet::new() })
    }
}

/// Waits for the end of the child; for ever where there is none.
async fn gone(running: Option<&mut Running>) {
    match running {
        Some(running) => running.helper.gone().await,
        None => std::future::pending().await,
    }
}

//! Turns bounds and systems into a broker with a sandbox's tools on a loopback socket.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use broker::client::{Attachment, Client};
use broker::launch::{Launch, Writes};
use broker::limits::Limits;
use broker::mcp::call::{CallError, Caller};
use broker::project::Projection;
use broker::systems::{Secret, Systems};
use policy::egress::Egress;
use policy::outputs::{Declaration, Declared, Kind, Outputs, RunContext, Scope, Target};
use policy::seam::Role;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// What the test's sandbox calls tools with.
pub(crate) const TOKEN: &str = "canary-token-5b1c";
/// A credential that must not be seen anywhere.
pub(crate) const CANARY: &str = "canary-credential-77aa";

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

/// Bounds of one kind, with everything else as the engine's table says.
pub(crate) fn bounds(kind: Kind, count: u32, target: Target) -> Outputs {
    let mut declared = Declared::default();
    declared.declare(kind, Declaration { count, target: Some(target) }).unwrap();
    Outputs::resolve(&declared, &RunContext::default())
}

pub(crate) fn fixed(text: &str) -> Target {
    Target::Fixed(Scope::parse(text).unwrap())
}

pub(crate) fn open(text: &str) -> Target {
    Target::Open { scope: Scope::parse(text).unwrap(), param: None }
}

/// Where a run keeps its state.
pub(crate) struct State(pub(crate) TempDir);

impl State {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("session.jsonl"),
            "{\"v\":1,\"seq\":1,\"ts\":\"then\",\"kind\":\"start\"}\n",
        )
        .unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn lines(&self, name: &str, kind: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["kind"] == kind).collect()
    }

    pub(crate) fn refusals(&self) -> Vec<Value> {
        self.lines("session.jsonl", "output_refused")
    }

    /// The files of the outbox, temporary ones too.
    pub(crate) fn outbox(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("outbox"));
        let mut names: Vec<String> = entries
            .map(|all| all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        names.sort();
        names
    }
}

/// A broker that serves one turn's tools.
pub(crate) struct Lab {
    pub(crate) client: Client,
    pub(crate) caller: Arc<Caller>,
    pub(crate) url: String,
    pub(crate) audit: tempfile::NamedTempFile,
}

/// More tools than any test calls, at any pace.
pub(crate) fn swift() -> Limits {
    Limits {
        tool_calls_per_second: 100_000,
        tool_calls_burst: 100_000,
        requests_burst: 100_000,
        ..Limits::default()
    }
}

impl Lab {
    pub(crate) async fn new(state: &State, outputs: Outputs, systems: Systems) -> Self {
        Self::with(state, outputs, systems, swift(), None).await
    }

    pub(crate) async fn with(
        state: &State,
        outputs: Outputs,
        systems: Systems,
        limits: Limits,
        ca: Option<String>,
    ) -> Self {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
        let writes = Writes { ledger: state.path("outputs.jsonl"), outbox: state.path("outbox"), systems };
        let launch = Launch { writes: Some(writes), limits, ca, ..Launch::default() };
        let projection = Projection { outputs, session_log: state.path("session.jsonl") };
        let outside = Arc::new(broker::outside::Host);
        tokio::spawn(async move {
            // A launch that is refused ends the control socket, which is what the test sees.
            let _ = broker::serve::serve(theirs, outside, Vec::new(), Some(projection)).await;
        });
        let audit = tempfile::NamedTempFile::new().unwrap();
        let file = std::fs::OpenOptions::new().append(true).open(audit.path()).unwrap();
        let client = Client::launch(ours, &launch, file.as_fd()).await.unwrap();
        let url = attach(&client, "turn-1").await;
        let caller = Arc::new(Caller::new(&url, TOKEN.to_owned()).unwrap());
        Self { client, caller, url, audit }
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> (bool, Value) {
        self.try_call(tool, arguments).await.unwrap()
    }

    pub(crate) async fn try_call(&self, tool: &str, arguments: Value) -> Result<(bool, Value), CallError> {
        self.caller.call(tool, arguments.as_object().unwrap().clone()).await
    }

    pub(crate) async fn comment(&self, key: Option<&str>, body: &str) -> (bool, Value) {
        let mut arguments = json!({ "body": body });
        if let Some(key) = key {
            arguments["idempotency_key"] = key.into();
        }
        self.call("tracker_comment", arguments).await
    }
}

/// Begins a turn; answers where its tools are.
pub(crate) async fn attach(client: &Client, turn: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let sockets = vec![(Role::Own { target: at.to_string() }, OwnedFd::from(listener.into_std().unwrap()))];
    let policy = Egress::new(Vec::new()).document();
    let token = Some(Secret::new(TOKEN));
    let attachment =
        Attachment { id: turn.to_owned(), turn: turn.to_owned(), policy, sockets, token, inside: None };
    client.attach(attachment).await.unwrap();
    format!("http://{at}")
}

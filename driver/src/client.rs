//! Turns the driver's own types into calls of a gateway, and its answers back.
//! It refuses to know which gateway it is, embedded or remote, and what a turn is.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    error::{Step, TransportClass, TurnError, call_error},
    turn::{Change, ChangeKind, Dropped, Killed},
    wire::{
        DIALECT,
        config::DriverConfig,
        default_scope,
        openshell::v1::{self as api, open_shell_client::OpenShellClient},
        workspace::{self, workspace_client::WorkspaceClient},
    },
};

/// How long a call that starts nothing may take.
const QUICK: Duration = Duration::from_secs(30);
/// How often a call that is safe to repeat is tried.
const ATTEMPTS: u32 = 4;

/// A connection to one gateway. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    shell: OpenShellClient<Channel>,
    workspace: WorkspaceClient<Channel>,
}

/// What a sandbox is to be made of.
#[derive(Debug, Clone, Default)]
pub struct SandboxSpec {
    /// A DNS label of at most 19 characters.
    pub name: String,
    /// Makes a repeated call answer what the first one made.
    pub request_id: String,
    /// The environment of everything that runs in it.
    pub environment: BTreeMap<String, String>,
    /// What travels by host path.
    pub config: DriverConfig,
}

/// A sandbox as the gateway describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxInfo {
    /// The gateway's own identity for it.
    pub id: String,
    /// The name it was made with.
    pub name: String,
    /// Whether commands can run.
    pub ready: bool,
    /// The phase's name on the wire.
    pub phase: String,
    /// Whether no phase but deletion can follow.
    pub dead: bool,
    /// Why it is not ready, and whose fault that is, where the gateway says so.
    pub failure: Option<(TransportClass, String)>,
}

/// What came back from a sandbox that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncedBack {
    /// What changed in the workspace.
    pub changed: Vec<Change>,
    /// What did not come back, and why.
    pub dropped: Vec<Dropped>,
    /// Processes that were still alive.
    pub killed: Vec<Killed>,
    /// Limits that were hit.
    pub limits_hit: Vec<String>,
    /// The layers in force, one line each.
    pub layers: Vec<String>,
    /// Whether the workspace has the changes now.
    pub applied: bool,
}

impl Client {
    /// Connects to the gateway that listens on this Unix socket, and asks for its dialect.
    ///
    /// # Errors
    /// `Connect` when nobody answers, `Dialect` when its major version is not ours.
    pub async fn unix(path: &Path) -> Result<Self, TurnError> {
        let address = path.to_owned();
        let dial = tower::service_fn({
            let address = address.clone();
            move |_: http::Uri| {
                let address = address.clone();
                async move { crate::gateway::socket::connect(&address).await.map(TokioIo::new) }
            }
        });
        let channel = Endpoint::from_static("http://gateway.invalid")
            .connect_with_connector(dial)
            .await
            .map_err(|source| TurnError::Connect { address, source })?;
        let client = Self {
            shell: OpenShellClient::new(channel.clone()),
            workspace: WorkspaceClient::new(channel).max_decoding_message_size(usize::MAX),
        };
        client.check_dialect().await?;
        Ok(client)
    }

    async fn check_dialect(&self) -> Result<(), TurnError> {
        let theirs = self.health().await?;
        if theirs.split('.').take(2).eq(DIALECT.split('.').take(2)) {
            return Ok(());
        }
        Err(TurnError::Dialect { theirs, ours: DIALECT })
    }

    /// The gateway's version.
    ///
    /// # Errors
    /// `Call` when it does not answer.
    pub async fn health(&self) -> Result<String, TurnError> {
        let answer = repeat(Step::Create, || {
            let mut shell = self.shell.clone();
            async move { shell.health(quick(api::HealthRequest {})).await }
        })
        .await?;
        Ok(answer.version)
    }

    /// Makes a sandbox; repeated with the same `request_id` it answers the one that was made.
    ///
    /// # Errors
    /// `Spec` when the configuration cannot be sent, `Call` when the gateway refuses it.
    pub async fn create(&self, spec: &SandboxSpec) -> Result<SandboxInfo, TurnError> {
        let config = spec
            .config
            .to_wire()
            .map_err(|error| TurnError::Spec(format!("describe the sandbox: {error}")))?;
        let template =
            api::SandboxTemplate { driver_config: Some(config), ..api::SandboxTemplate::default() };
        let request = api::CreateSandboxRequest {
            spec: Some(api::SandboxSpec {
                environment: spec.environment.clone().into_iter().collect(),
                template: Some(template),
                ..api::SandboxSpec::default()
            }),
            name: spec.name.clone(),
            request_id: spec.request_id.clone(),
            workspace_scope: default_scope(),
            ..api::CreateSandboxRequest::default()
        };
        let answer = repeat(Step::Create, || {
            let (mut shell, request) = (self.shell.clone(), request.clone());
            async move { shell.create_sandbox(quick(request)).await }
        })
        .await?;
        info(Step::Create, answer)
    }

    /// The sandbox of this name or id.
    ///
    /// # Errors
    /// `Call` when there is none.
    pub async fn get(&self, sandbox: &str) -> Result<SandboxInfo, TurnError> {
        let request = api::GetSandboxRequest { name: sandbox.to_owned(), workspace_scope: default_scope() };
        let answer = repeat(Step::Ready, || {
            let (mut shell, request) = (self.shell.clone(), request.clone());
            async move { shell.get_sandbox(quick(request)).await }
        })
        .await?;
        info(Step::Ready, answer)
    }

    /// Waits until the sandbox is ready, on the gateway's own word.
    ///
    /// # Errors
    /// `Phase` when it went where no command can run, `Call` when the gateway does not answer.
    pub async fn ready(&self, sandbox: &str) -> Result<SandboxInfo, TurnError> {
        let request = api::WatchSandboxRequest {
            sandbox: sandbox.to_owned(),
            follow_status: true,
            workspace_scope: default_scope(),
            ..api::WatchSandboxRequest::default()
        };
        let mut shell = self.shell.clone();
        let fail = |status: Status| call_error(Step::Ready, &status);
        let mut events = shell.watch_sandbox(request).await.map_err(fail)?.into_inner();
        while let Some(event) = events.message().await.map_err(fail)? {
            let Some(api::sandbox_stream_event::Payload::Sandbox(sandbox)) = event.payload else { continue };
            let info = info(Step::Ready, api::SandboxResponse { sandbox: Some(sandbox) })?;
            if info.ready {
                return Ok(info);
            }
            if info.dead {
                return Err(match info.failure {
                    Some((class, message)) => TurnError::Call { step: Step::Ready, class, message },
                    None => TurnError::Phase { phase: info.phase },
                });
            }
        }
        Err(TurnError::Phase { phase: "unknown: the watch ended".to_owned() })
    }

    /// The names of all sandboxes, asked for in pages of this size.
    ///
    /// # Errors
    /// `Call` when the gateway does not answer.
    pub async fn list(&self, page_size: i32) -> Result<Vec<String>, TurnError> {
        let (mut names, mut token) = (Vec::new(), String::new());
        loop {
            let request = api::ListSandboxesRequest {
                page_size,
                page_token: token,
                workspace_scope: default_scope(),
                ..api::ListSandboxesRequest::default()
            };
            let answer = repeat(Step::Ready, || {
                let (mut shell, request) = (self.shell.clone(), request.clone());
                async move { shell.list_sandboxes(quick(request)).await }
            })
            .await?;
            names.extend(answer.sandboxes.into_iter().filter_map(|sandbox| Some(sandbox.metadata?.name)));
            token = answer.next_page_token;
            if token.is_empty() {
                return Ok(names);
            }
        }
    }

    /// What the gateway logged about a sandbox, oldest first.
    ///
    /// # Errors
    /// `Call` when there is none of this name or id.
    pub async fn logs(&self, sandbox: &str) -> Result<Vec<String>, TurnError> {
        let request = api::GetSandboxLogsRequest {
            sandbox: sandbox.to_owned(),
            workspace_scope: default_scope(),
            ..api::GetSandboxLogsRequest::default()
        };
        let answer = repeat(Step::Ready, || {
            let (mut shell, request) = (self.shell.clone(), request.clone());
            async move { shell.get_sandbox_logs(quick(request)).await }
        })
        .await?;
        Ok(answer.logs.into_iter().map(|line| line.message).collect())
    }

    /// Removes the sandbox and everything in it; one that is gone already is no error.
    ///
    /// # Errors
    /// `Call` when the gateway does not answer.
    pub async fn delete(&self, sandbox: &str) -> Result<(), TurnError> {
        let request = api::DeleteSandboxRequest {
            name: sandbox.to_owned(),
            allow_missing: true,
            workspace_scope: default_scope(),
            ..api::DeleteSandboxRequest::default()
        };
        repeat(Step::Delete, || {
            let (mut shell, request) = (self.shell.clone(), request.clone());
            async move { shell.delete_sandbox(quick(request)).await }
        })
        .await?;
        Ok(())
    }

    /// Ends what runs in the sandbox and brings its changes to the workspace, all or none; with `discard` only looks.
    ///
    /// # Errors
    /// `Call` with class `workspace`: the workspace is as it was.
    pub async fn sync_back(&self, sandbox: &str, discard: bool) -> Result<SyncedBack, TurnError> {
        let request = workspace::SyncBackRequest { sandbox: sandbox.to_owned(), discard };
        let answer = self.workspace.clone().sync_back(request).await;
        Ok(synced(answer.map_err(|status| call_error(Step::SyncBack, &status))?.into_inner()))
    }

    pub(crate) fn shell(&self) -> OpenShellClient<Channel> {
        self.shell.clone()
    }
}

fn quick<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(QUICK);
    request
}

/// Calls until it answers, while the gateway is unreachable: with a pause that doubles, and jitter.
async fn repeat<T, F, Fut>(step: Step, call: F) -> Result<T, TurnError>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<tonic::Response<T>, Status>>,
{
    let mut attempt = 1;
    loop {
        match call().await {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) if status.code() == Code::Unavailable && attempt < ATTEMPTS => {
                tokio::time::sleep(pause(attempt)).await;
                attempt += 1;
            }
            Err(status) => return Err(call_error(step, &status)),
        }
    }
}

/// 50 ms doubled for each attempt that failed, and up to half as much again.
fn pause(attempt: u32) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let base = 50 * 2_u64.saturating_pow(attempt.saturating_sub(1));
    Duration::from_millis(base + RandomState::new().hash_one(attempt) % (base / 2 + 1))
}

fn info(step: Step, answer: api::SandboxResponse) -> Result<SandboxInfo, TurnError> {
    use api::SandboxPhase as Phase;
    let blank = || call_error(step, &Status::unknown("the gateway answered no sandbox"));
    let sandbox = answer.sandbox.ok_or_else(blank)?;
    let meta = sandbox.metadata.ok_or_else(blank)?;
    let status = sandbox.status.unwrap_or_default();
    let phase = status.phase();
    let failure = status
        .conditions
        .into_iter()
        .find_map(|condition| Some((TransportClass::parse(&condition.reason)?, condition.message)));
    Ok(SandboxInfo {
        id: meta.id,
        name: meta.name,
        ready: matches!(phase, Phase::Ready | Phase::Completed),
        phase: phase.as_str_name().trim_start_matches("SANDBOX_PHASE_").to_lowercase(),
        dead: matches!(phase, Phase::Error | Phase::Deleting | Phase::Stopped | Phase::Stopping),
        failure,
    })
}

fn synced(wire: workspace::SyncBackResponse) -> SyncedBack {
    let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
    let change = |wire: workspace::Change| Change {
        kind: match wire.kind() {
            workspace::ChangeKind::Deleted => ChangeKind::Deleted,
            _ => ChangeKind::Written,
        },
        path: path(wire.path),
    };
    SyncedBack {
        changed: wire.changes.into_iter().map(change).collect(),
        dropped: wire.dropped.into_iter().map(|d| Dropped { path: path(d.path), reason: d.reason }).collect(),
        killed: wire.killed.into_iter().map(|k| Killed { pid: k.pid, name: k.name }).collect(),
        limits_hit: wire.limits_hit,
        layers: wire.layers,
        applied: wire.applied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_stay_within_half_as_much_again() {
        for (attempt, base) in [(1, 50), (2, 100), (3, 200)] {
            let pause = u64::try_from(pause(attempt).as_millis()).unwrap();
            assert!((base..=base + base / 2).contains(&pause), "attempt {attempt}: {pause} ms");
        }
    }
}

//! Turns calls of OpenShell's API, and of ours beside it, into sandboxes.
//! It refuses to know namespaces; the sandbox does.

use std::{path::PathBuf, pin::Pin, sync::Arc};

use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming, transport::server::UdsConnectInfo};

use super::{
    error::GatewayError,
    policies,
    sandbox::{CommandSpec, Host, Sandbox, Wanted},
    store::{Record, Store, fresh_id},
    stream::{self, Input},
    validate, watch,
};
use crate::{
    error::CLASS_KEY,
    wire::{
        DIALECT,
        config::DriverConfig,
        openshell::{
            datamodel::v1::{WorkspaceSelector, workspace_selector::Selector},
            sandbox::v1 as config,
            v1::{self as api, SandboxPhase, open_shell_server::OpenShell},
        },
        span,
    },
};

/// Sandboxes on one page of a list.
const PAGE: usize = 100;
const LARGEST_PAGE: usize = 1000;
const ALL_LINES: usize = 2000;

/// Everything that the servers of one gateway share.
pub(crate) struct Shared {
    pub(crate) host: Host,
    pub(crate) store: Store,
    pub(crate) staging: PathBuf,
    /// What a caller that comes over TCP must bear; without one nobody may.
    pub(crate) token: Option<String>,
}

/// The API's server. Clones share the sandboxes.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Arc<Shared>);

/// An error as the API tells it, with whose fault it was for our own driver.
pub(crate) fn status_of(error: &GatewayError) -> Status {
    let text = error.full();
    let mut status = match error {
        GatewayError::Refused(_) => Status::invalid_argument(text),
        GatewayError::Workspace(_) | GatewayError::Command { .. } | GatewayError::Layer { .. } => {
            Status::failed_precondition(text)
        }
        GatewayError::Died(_) | GatewayError::Network(_) => Status::unavailable(text),
        _ => Status::internal(text),
    };
    if let Ok(class) = error.class().token().parse() {
        status.metadata_mut().insert(CLASS_KEY, class);
    }
    status
}

fn missing(name: &str) -> Status {
    Status::not_found(format!("sandbox {name} not found"))
}

pub(crate) fn is_local<T>(request: &Request<T>) -> bool {
    request.extensions().get::<UdsConnectInfo>().is_some()
}

/// Only one workspace scope exists here; another looks like one that is empty.
fn in_scope(scope: Option<&WorkspaceSelector>) -> bool {
    match scope.and_then(|scope| scope.selector.as_ref()) {
        None | Some(Selector::AllWorkspaces(_)) => true,
        Some(Selector::Workspace(name)) => name.is_empty() || name == "default",
    }
}

impl Service {
    /// Over a Unix socket the peer's user was checked already; over TCP a token is needed.
    fn admit<T>(&self, request: &Request<T>) -> Result<(), Status> {
        if is_local(request) {
            return Ok(());
        }
        let given = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        match &self.0.token {
            Some(token) if same(token.as_bytes(), given.as_bytes()) => Ok(()),
            _ => Err(Status::unauthenticated("missing or wrong bearer token")),
        }
    }

    pub(crate) fn find(&self, name: &str, scope: Option<&WorkspaceSelector>) -> Result<Arc<Record>, Status> {
        let record = if in_scope(scope) { self.0.store.find(name) } else { None };
        record.ok_or_else(|| missing(name))
    }

    fn ready(&self, name: &str, scope: Option<&WorkspaceSelector>) -> Result<Arc<Sandbox>, Status> {
        let record = self.find(name, scope)?;
        let ready = record.phase() == SandboxPhase::Ready;
        let sandbox = if ready { record.sandbox() } else { None };
        sandbox.ok_or_else(|| Status::failed_precondition("sandbox is not ready"))
    }

    /// What the sandbox is to be: what only a caller on this host may say, and what its network policies let it reach.
    fn config(&self, request: &api::CreateSandboxRequest, local: bool) -> Result<DriverConfig, Status> {
        let mut config = Self::local_config(request, local)?;
        let policy = request.spec.as_ref().and_then(|spec| spec.policy.as_ref());
        let Some(reach) = policy.map(policies::document).transpose()?.flatten() else { return Ok(config) };
        if self.0.host.network.is_none() {
            return Err(Status::failed_precondition(
                "no broker runs here, so no network policy can be enforced",
            ));
        }
        if config.egress.replace(reach).is_some() {
            return Err(Status::invalid_argument("driver_config and the policy both say what is reached"));
        }
        Ok(config)
    }

    /// Reads the configuration that only a caller on this host may give.
    fn local_config(request: &api::CreateSandboxRequest, local: bool) -> Result<DriverConfig, Status> {
        let template = request.spec.as_ref().and_then(|spec| spec.template.as_ref());
        let Some(wire) = template.and_then(|template| template.driver_config.clone()) else {
            return Ok(DriverConfig::default());
        };
        if !local {
            return Err(Status::permission_denied("driver_config is taken over the Unix socket only"));
        }
        DriverConfig::from_wire(wire)
            .map_err(|error| Status::invalid_argument(format!("driver_config: {error}")))
    }

    /// Makes the sandbox in the background of the call's task, so that a caller that goes away leaves it to be found.
    fn begin(&self, record: Arc<Record>, config: DriverConfig) {
        let shared = self.0.clone();
        tokio::spawn(async move {
            let environment = record.spec.environment.clone().into_iter().collect();
            let of_end = Arc::downgrade(&record);
            let gone = move || {
                if let Some(record) = of_end.upgrade().filter(|record| record.phase() == SandboxPhase::Ready)
                {
                    record.fail(
                        crate::error::TransportClass::Sandbox,
                        "the sandbox's first process ended".to_owned(),
                    );
                }
            };
            let wanted = Wanted { id: &record.id, name: &record.name, config: &config, environment };
            match Sandbox::start(&shared.host, wanted, gone).await {
                Ok(sandbox) => {
                    sandbox.layers.iter().for_each(|layer| record.log("INFO", layer.clone()));
                    record.stands(Arc::new(sandbox));
                }
                Err(error) => {
                    record.log("ERROR", format!("failed to {}", error.full()));
                    record.fail(error.class(), format!("failed to {}", error.full()));
                }
            }
            record.settled();
        });
    }

    /// Ends a sandbox and takes it from the store.
    pub(crate) async fn end(&self, record: &Record) -> Result<(), GatewayError> {
        record.wait_settled().await;
        let _alone = record.ending.lock().await;
        record.enter(SandboxPhase::Deleting);
        if let Some(sandbox) = record.sandbox() {
            let ended = sandbox.end().await;
            sandbox.remove()?;
            self.0.store.remove(record);
            return ended.map(drop);
        }
        self.0.store.remove(record);
        Ok(())
    }
}

/// Compares without telling by time where two texts differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

pub(crate) type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl OpenShell for Service {
    async fn health(&self, _: Request<api::HealthRequest>) -> Answer<api::HealthResponse> {
        let mut answer = api::HealthResponse { version: DIALECT.to_owned(), ..Default::default() };
        answer.set_status(self.status());
        Ok(Response::new(answer))
    }

    async fn get_gateway_info(
        &self,
        request: Request<api::GetGatewayInfoRequest>,
    ) -> Answer<api::GetGatewayInfoResponse> {
        self.admit(&request)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let capabilities =
            api::ComputeDriverCapabilities { driver_name: "namespaces".to_owned(), driver_version: version };
        let driver =
            api::ComputeDriverInfo { name: "namespaces".to_owned(), capabilities: Some(capabilities) };
        let mut answer = api::GetGatewayInfoResponse {
            gateway_version: DIALECT.to_owned(),
            compute_drivers: vec![driver],
            ..Default::default()
        };
        answer.set_status(self.status());
        Ok(Response::new(answer))
    }

    async fn create_sandbox(
        &self,
        request: Request<api::CreateSandboxRequest>,
    ) -> Answer<api::SandboxResponse> {
        self.admit(&request)?;
        let local = is_local(&request);
        let mut request = request.into_inner();
        if !in_scope(request.workspace_scope.as_ref()) {
            return Err(Status::not_found("workspace not found"));
        }
        if !request.workload_template.is_empty() {
            return Err(Status::unimplemented("this gateway has no workload templates"));
        }
        validate::spec(request.spec.get_or_insert_default())?;
        let config = self.config(&request, local)?;
        let id = fresh_id();
        if request.name.is_empty() {
            request.name = format!("sandbox-{}", id.get(..8).unwrap_or("x"));
        }
        validate::name(&request.name)?;
        let record = Arc::new(Record::new(id, request));
        let record = match self.0.store.insert(record.clone()) {
            Ok(()) => {
                self.begin(record.clone(), config);
                record
            }
            Err(there) if !record.request_id.is_empty() && there.request_id == record.request_id => there,
            Err(there) => {
                return Err(Status::already_exists(format!("sandbox {} already exists", there.name)));
            }
        };
        Ok(Response::new(api::SandboxResponse { sandbox: Some(record.wire()) }))
    }

    async fn get_sandbox(&self, request: Request<api::GetSandboxRequest>) -> Answer<api::SandboxResponse> {
        self.admit(&request)?;
        let request = request.get_ref();
        let record = self.find(&request.name, request.workspace_scope.as_ref())?;
        Ok(Response::new(api::SandboxResponse { sandbox: Some(record.wire()) }))
    }

    async fn list_sandboxes(
        &self,
        request: Request<api::ListSandboxesRequest>,
    ) -> Answer<api::ListSandboxesResponse> {
        self.admit(&request)?;
        let request = request.get_ref();
        if !in_scope(request.workspace_scope.as_ref()) {
            return Ok(Response::new(api::ListSandboxesResponse::default()));
        }
        let size = match usize::try_from(request.page_size) {
            Ok(0) => PAGE,
            Ok(size) if size <= LARGEST_PAGE => size,
            _ => {
                return Err(Status::invalid_argument(format!(
                    "page_size is not within 0 and {LARGEST_PAGE}"
                )));
            }
        };
        let (page, more) = self.0.store.page(&request.page_token, size, &request.label_selector);
        let next = page.last().filter(|_| more).map(|record| record.name.clone()).unwrap_or_default();
        let sandboxes = page.iter().map(|record| record.wire()).collect();
        Ok(Response::new(api::ListSandboxesResponse { sandboxes, next_page_token: next }))
    }

    async fn delete_sandbox(
        &self,
        request: Request<api::DeleteSandboxRequest>,
    ) -> Answer<api::DeleteSandboxResponse> {
        self.admit(&request)?;
        let request = request.get_ref();
        let mut answer = api::DeleteSandboxResponse::default();
        match self.find(&request.name, request.workspace_scope.as_ref()) {
            Ok(record) => {
                self.end(&record).await.map_err(|error| status_of(&error))?;
                answer.sandbox_id.clone_from(&record.id);
                answer.set_outcome(api::DeletionOutcome::Completed);
            }
            Err(_) if request.allow_missing => answer.set_outcome(api::DeletionOutcome::AlreadyAbsent),
            Err(status) => return Err(status),
        }
        Ok(Response::new(answer))
    }

    type WatchSandboxStream = Pin<Box<dyn Stream<Item = Result<api::SandboxStreamEvent, Status>> + Send>>;

    async fn watch_sandbox(
        &self,
        request: Request<api::WatchSandboxRequest>,
    ) -> Answer<Self::WatchSandboxStream> {
        self.admit(&request)?;
        let request = request.into_inner();
        let record = self.find(&request.sandbox, request.workspace_scope.as_ref())?;
        let (send, events) = mpsc::channel(16);
        tokio::spawn(watch::watch(record, request, send));
        Ok(Response::new(Box::pin(ReceiverStream::new(events))))
    }

    type ExecSandboxStream = stream::Stream;

    async fn exec_sandbox(
        &self,
        request: Request<api::ExecSandboxRequest>,
    ) -> Answer<Self::ExecSandboxStream> {
        self.admit(&request)?;
        let mut request = request.into_inner();
        let (send, input) = mpsc::channel(1);
        let stdin = std::mem::take(&mut request.stdin);
        if !stdin.is_empty() {
            // There is room for one piece, and the receiver is at hand.
            drop(send.try_send(Input::Bytes(stdin)));
        }
        drop(send);
        self.exec(request, input).await.map(Response::new)
    }

    type ExecSandboxInteractiveStream = stream::Stream;

    async fn exec_sandbox_interactive(
        &self,
        request: Request<Streaming<api::ExecSandboxInput>>,
    ) -> Answer<Self::ExecSandboxInteractiveStream> {
        use api::exec_sandbox_input::Payload;
        self.admit(&request)?;
        let mut messages = request.into_inner();
        let first = messages.message().await?.and_then(|message| message.payload);
        let Some(Payload::Start(mut start)) = first else {
            return Err(Status::invalid_argument(
                "the first message of an interactive exec is not its start",
            ));
        };
        let (send, input) = mpsc::channel(4);
        let stdin = std::mem::take(&mut start.stdin);
        if !stdin.is_empty() {
            drop(send.try_send(Input::Bytes(stdin)));
        }
        tokio::spawn(async move {
            // The input's end, in whatever way it comes, is the end of standard input.
            while let Some(Ok(message)) = messages.next().await {
                let piece = match message.payload {
                    Some(Payload::Stdin(bytes)) => Input::Bytes(bytes),
                    Some(Payload::Resize(size)) => Input::Resize(cells(size.cols, 80), cells(size.rows, 24)),
                    Some(Payload::Start(_)) | None => continue,
                };
                if send.send(piece).await.is_err() {
                    break;
                }
            }
        });
        self.exec(start, input).await.map(Response::new)
    }

    async fn get_sandbox_config(
        &self,
        request: Request<config::GetSandboxConfigRequest>,
    ) -> Answer<config::GetSandboxConfigResponse> {
        self.admit(&request)?;
        let request = request.get_ref();
        let record = self.find(&request.name, request.workspace_scope.as_ref())?;
        Ok(Response::new(config::GetSandboxConfigResponse {
            policy: Some(record.policy()),
            version: 1,
            config_revision: 1,
            policy_source: config::PolicySource::Sandbox.into(),
            workspace: "default".to_owned(),
            ..Default::default()
        }))
    }

    async fn get_gateway_config(
        &self,
        request: Request<config::GetGatewayConfigRequest>,
    ) -> Answer<config::GetGatewayConfigResponse> {
        self.admit(&request)?;
        Ok(Response::new(config::GetGatewayConfigResponse::default()))
    }

    async fn get_sandbox_logs(
        &self,
        request: Request<api::GetSandboxLogsRequest>,
    ) -> Answer<api::GetSandboxLogsResponse> {
        self.admit(&request)?;
        let request = request.get_ref();
        let record = self.find(&request.sandbox, request.workspace_scope.as_ref())?;
        let lines =
            if request.lines == 0 { ALL_LINES } else { usize::try_from(request.lines).unwrap_or(ALL_LINES) };
        let (logs, total) = record.logs(lines);
        Ok(Response::new(api::GetSandboxLogsResponse {
            logs,
            buffer_total: u32::try_from(total).unwrap_or(u32::MAX),
        }))
    }
}

impl Service {
    fn status(&self) -> api::ServiceStatus {
        match self.0.host.cgroups.works() {
            true => api::ServiceStatus::Healthy,
            false => api::ServiceStatus::Degraded,
        }
    }

    async fn exec(
        &self,
        request: api::ExecSandboxRequest,
        input: mpsc::Receiver<Input>,
    ) -> Result<stream::Stream, Status> {
        validate::exec(&request)?;
        let sandbox = self.ready(&request.sandbox, request.workspace_scope.as_ref())?;
        let timeout = request.execution_timeout.and_then(span);
        let terminal = request.tty.then(|| (cells(request.cols, 80), cells(request.rows, 24)));
        let spec = CommandSpec {
            argv: request.command,
            workdir: request.workdir,
            environment: request.environment.into_iter().collect(),
            terminal,
        };
        stream::start(sandbox, spec, timeout, input).await.map_err(|error| status_of(&error))
    }
}

fn cells(asked: u32, otherwise: u16) -> u16 {
    u16::try_from(asked).ok().filter(|cells| *cells > 0).unwrap_or(otherwise)
}

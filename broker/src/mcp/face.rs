//! Turns one connection to the broker's URL into the calls of its turn, each behind the turn's token.
//! It refuses everything that is not `POST /mcp` with that token, in the record as in the answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use policy::reason::Reason;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as Listed, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::net::TcpStream;

use super::PATH;
use crate::admit::{Asker, Sandbox};
use crate::core::answer::Refusal;
use crate::limits::Limits;
use crate::tools::Tools;

/// The longest request: a layer's files in base64, and a little around them.
const REQUEST_MAX: usize = 12 << 20;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Serves the tools of a run.
pub(crate) struct Served(pub(crate) Arc<Tools>);

impl crate::admit::Face for Served {
    fn serve(
        &self,
        sandbox: Arc<Sandbox>,
        asker: Asker,
        stream: TcpStream,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(serve(Arc::clone(&self.0), sandbox, asker, stream))
    }
}

async fn serve(tools: Arc<Tools>, sandbox: Arc<Sandbox>, asker: Asker, stream: TcpStream) {
    let limits = *sandbox.limits();
    let (tools, sandbox, asker) = (&tools, &sandbox, &asker);
    let service = service_fn(move |request: Request<Incoming>| async move {
        Ok::<_, Infallible>(answer(Arc::clone(tools), sandbox, asker, request).await)
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(Limits::time(limits.head_ms));
    server.max_buf_size(Limits::size(limits.head_bytes).max(8192));
    // A client that breaks off or sends no HTTP is owed nothing.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    tools: Arc<Tools>,
    sandbox: &Sandbox,
    asker: &Asker,
    mut request: Request<Incoming>,
) -> Answer {
    let Some(token) = &sandbox.token else {
        return refuse(sandbox, asker, Reason::ToolsNotServed).await;
    };
    // Nothing behind this line sees it.
    let authorization = request.headers_mut().remove(AUTHORIZATION);
    if !authorization.is_some_and(|value| token.admits(value.as_bytes())) {
        return refuse(sandbox, asker, Reason::BadToken).await;
    }
    if !sandbox.calls_admitted() {
        return refuse(sandbox, asker, Reason::TooFast).await;
    }
    if request.uri().path() != PATH {
        return refuse(sandbox, asker, Reason::TargetInvalid).await;
    }
    let turn = sandbox.turn.clone();
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_keep_alive(None)
        // The socket stands in one sandbox, and the token says who calls.
        .disable_allowed_hosts()
        .with_max_request_body_bytes(REQUEST_MAX);
    let face = move || Ok(Face { tools: Arc::clone(&tools), turn: turn.clone() });
    StreamableHttpService::new(face, Arc::new(NeverSessionManager::default()), config).handle(request).await
}

/// A refusal, once its record is on the disk.
async fn refuse(sandbox: &Sandbox, asker: &Asker, reason: Reason) -> Answer {
    let reason = sandbox.refuse(asker, "", None, reason);
    sandbox.settle().await;
    let policy = sandbox.egress();
    let body = Refusal { reason, target: "", policy: policy.hash(), keep: false, bodiless: false }.body();
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed());
    if let Ok(status) = hyper::StatusCode::from_u16(reason.status()) {
        *answer.status_mut() = status;
    }
    answer.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    answer
}

/// The tools of one turn.
struct Face {
    tools: Arc<Tools>,
    turn: String,
}

impl ServerHandler for Face {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("crucible", env!("CARGO_PKG_VERSION")))
            .with_instructions("Writes to the outside. Each is bounded; a refusal names its bound and stays.")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed = self.tools.granted().into_iter().map(|tool| {
            let hints = ToolAnnotations::new().read_only(!tool.writes);
            Listed::new(tool.name, tool.about, tool.schema()).with_annotations(hints)
        });
        Ok(ListToolsResult::with_all_items(listed.collect()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let reply = self.tools.call(&call.name, call.arguments.unwrap_or_default(), &self.turn).await;
        let result = if reply.failed {
            CallToolResult::structured_error(reply.value)
        } else {
            CallToolResult::structured(reply.value)
        };
        Ok(result.into())
    }
}

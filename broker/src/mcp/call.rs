//! Turns the URL and the token of a turn into calls of its tools, for programs in a sandbox that speak no MCP.
//! It refuses to know which tools there are.

use std::io;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;

use super::PATH;
use crate::systems::url::Url;

/// The longest answer, in bytes.
const ANSWER_MAX: usize = 4 << 20;
/// What this speaks.
const VERSION: &str = "2025-06-18";

/// Why a call did not come to an answer. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The URL is none of a broker's.
    #[error("use the URL of the tools: it is not http://host[:port]")]
    Url,
    /// Nobody answers.
    #[error("reach the tools")]
    Io(#[from] io::Error),
    /// It is no HTTP.
    #[error("speak with the tools")]
    Http(#[from] hyper::Error),
    /// A request that cannot be sent.
    #[error("send the request")]
    Request(#[from] hyper::http::Error),
    /// The broker refused the caller.
    #[error("use the tools: {status}{}", .reason.as_deref().map(|reason| format!(", {reason}")).unwrap_or_default())]
    Refused {
        /// The status.
        status: u16,
        /// The stable token of the reason.
        reason: Option<String>,
    },
    /// What a caller would give a tool is no JSON object.
    #[error("read the arguments of the tool: {0}")]
    Arguments(String),
    /// What came is no answer.
    #[error("understand the answer of the tools: {0}")]
    Malformed(String),
}

/// A connection to the tools, for one call at a time.
#[derive(Debug)]
pub struct Caller {
    url: Url,
    token: String,
}

impl Caller {
    /// Calls tools at this URL with this token.
    ///
    /// # Errors
    /// A URL that is none.
    pub fn new(url: &str, token: String) -> Result<Self, CallError> {
        let url = Url::parse(url).ok().filter(|url| !url.secure).ok_or(CallError::Url)?;
        Ok(Self { url, token })
    }

    /// The tools that are granted, as MCP lists them.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn list(&self) -> Result<Vec<Value>, CallError> {
        let result = self.ask("tools/list", json!({})).await?;
        match result.get("tools").cloned() {
            Some(Value::Array(tools)) => Ok(tools),
            _ => Err(CallError::Malformed("it lists no tools".to_owned())),
        }
    }

    /// Calls a tool. Answers whether it failed, and what it said.
    ///
    /// # Errors
    /// See [`CallError`]; a failure of the tool is an answer.
    pub async fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<(bool, Value), CallError> {
        let result = self.ask("tools/call", json!({ "name": name, "arguments": arguments })).await?;
        let failed = result.get("isError") == Some(&Value::Bool(true));
        let said = result.get("structuredContent").cloned();
        said.map(|said| (failed, said)).ok_or_else(|| CallError::Malformed("it has no content".to_owned()))
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value, CallError> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let target = &self.url.target;
        let stream = TcpStream::connect((target.host.to_string(), target.port.get())).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driving = tokio::spawn(connection);
        let request = Request::builder()
            .method(Method::POST)
            .uri(PATH)
            .header(HOST, self.url.authority())
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .header("mcp-protocol-version", VERSION)
            .body(Full::new(Bytes::from(body.to_string())))?;
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
        driving.abort();
        let body = body.map_err(|error| CallError::Malformed(error.to_string()))?.to_bytes();
        let answer: Option<Value> = serde_json::from_slice(&body).ok();
        if status != 200 {
            let reason = answer.and_then(|answer| answer.get("reason")?.as_str().map(str::to_owned));
            return Err(CallError::Refused { status, reason });
        }
        let answer = answer.ok_or_else(|| CallError::Malformed("it is not JSON".to_owned()))?;
        match (answer.get("result"), answer.get("error")) {
            (Some(result), None) => Ok(result.clone()),
            (_, Some(error)) => {
                Err(CallError::Malformed(policy::record::clean(crate::core::json::text(error, "/message"))))
            }
            _ => Err(CallError::Malformed("it is no result".to_owned())),
        }
    }
}

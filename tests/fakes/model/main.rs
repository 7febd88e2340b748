//! Turns a script into a model server on loopback, for agents' tools that are tested or shown without a model.
//! It refuses to know what the tools make of it.
//!
//! `fake-model SCRIPT [--record FILE] [--port PORT]` prints its address and serves until its standard input ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a double for tests: what it does not expect has to stop it"
)]

mod script;
mod speak;

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use script::{Player, Reply};
use speak::Protocol;

/// No request is longer, in bytes.
const REQUEST_MAX: usize = 64 << 20;

/// What all connections share.
struct Shared {
    player: Player,
    record: Option<std::fs::File>,
    requests: usize,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("fake-model SCRIPT [--record FILE] [--port PORT]");
    let (mut record, mut port) = (None, 0u16);
    while let Some(flag) = args.next() {
        let value = args.next().expect("a value after each flag");
        match flag.as_str() {
            "--record" => record = Some(std::fs::File::create(&value).unwrap()),
            "--port" => port = value.parse().unwrap(),
            other => panic!("no flag {other}"),
        }
    }
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let script = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let shared = Shared { player: Player::new(script), record, requests: 0 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(Arc::new(Mutex::new(shared)), port));
}

/// Serves until nobody holds the other end of standard input.
async fn serve(shared: Arc<Mutex<Shared>>, port: u16) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    println!("http://{}", listener.local_addr().unwrap());
    std::io::stdout().flush().unwrap();
    let (over, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    std::thread::spawn(move || {
        let _over = over;
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.recv() => return,
        };
        let Ok((stream, _)) = accepted else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| answer(request, shared.clone()));
            // A client may go away whenever it likes.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

type Answer = Response<BoxBody<Bytes, std::io::Error>>;

async fn answer(request: Request<Incoming>, shared: Arc<Mutex<Shared>>) -> Result<Answer, Infallible> {
    let (head, body) = request.into_parts();
    let limited = http_body_util::Limited::new(body, REQUEST_MAX);
    let Ok(body) = limited.collect().await else {
        return Ok(whole(413, "application/json", "{}".to_owned()));
    };
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let path = head.uri.path();
    let protocol = match path {
        _ if path.ends_with("/messages/count_tokens") => {
            return Ok(whole(200, "application/json", json!({ "input_tokens": 1 }).to_string()));
        }
        _ if path.ends_with("/messages") => Protocol::Messages,
        _ if path.ends_with("/responses") => Protocol::Responses,
        _ if path.ends_with("/chat/completions") => Protocol::Chat,
        _ if path.ends_with("/models") => {
            return Ok(whole(200, "application/json", json!({ "data": [], "models": [] }).to_string()));
        }
        _ => return Ok(whole(404, "application/json", "{}".to_owned())),
    };
    let parsed: Value = serde_json::from_str(&body).unwrap_or_default();
    let (reply, id) = {
        let mut shared = shared.lock().unwrap();
        shared.requests += 1;
        let reply = shared.player.next(&body);
        if let Some(record) = &mut shared.record {
            let headers: serde_json::Map<String, Value> = head
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), json!(String::from_utf8_lossy(value.as_bytes()))))
                .collect();
            let line = json!({ "path": path, "headers": headers, "body": parsed });
            writeln!(record, "{line}").unwrap();
        }
        (reply, shared.requests)
    };
    tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
    Ok(told(protocol, &parsed, &reply, id))
}

/// A reply with its faults.
fn told(protocol: Protocol, request: &Value, reply: &Reply, id: usize) -> Answer {
    let (mut text, media, status) = match reply.status {
        Some(status) => (speak::error(protocol, reply, status), "application/json", status),
        None => {
            let (text, media) = speak::speak(protocol, request, reply, id);
            (text, media, 200)
        }
    };
    if let Some(raw) = &reply.raw {
        text.clone_from(raw);
    }
    let mut bytes = Bytes::from(text);
    let cut = reply.cut_after.is_some_and(|cut| cut < bytes.len());
    bytes.truncate(reply.cut_after.unwrap_or(usize::MAX));
    let mut response = match (reply.hang, cut) {
        (false, false) => Response::new(Full::new(bytes).map_err(|never| match never {}).boxed()),
        (hang, _) => Response::new(Broken { bytes: Some(bytes), hang }.boxed()),
    };
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", media.parse().unwrap());
    if let Some(seconds) = reply.retry_after {
        response.headers_mut().insert("retry-after", seconds.into());
    }
    for (name, value) in &reply.headers {
        let name: hyper::header::HeaderName = name.parse().unwrap();
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

fn whole(status: u16, media: &'static str, text: String) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", media.parse().unwrap());
    response
}

/// A body that ends in the middle, or never.
struct Broken {
    bytes: Option<Bytes>,
    hang: bool,
}

impl Body for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match (self.bytes.take(), self.hang) {
            (Some(bytes), _) => std::task::Poll::Ready(Some(Ok(Frame::data(bytes)))),
            (None, false) => std::task::Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into()))),
            // Nobody wakes it: the connection stays open until the client leaves.
            (None, true) => std::task::Poll::Pending,
        }
    }
}

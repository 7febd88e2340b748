//! Turns every address of outside into one server that speaks plain HTTP and TLS at each port, and keeps who came.
//! It refuses to know who is let through to it.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::place::HOSTS;
use crate::support::program;

/// What every page begins with.
pub(crate) const HELLO: &str = "hello";
/// Ports that serve pages.
pub(crate) const PORTS: [u16; 6] = [80, 443, 5173, 5174, 8080, 8443];
/// A port that counts what it gets until its client is done, and only then answers.
pub(crate) const COUNTS: u16 = 7000;
/// A port that is a proxy itself, for CONNECT with a password.
pub(crate) const PARENT: u16 = 3129;
/// What the parent proxy wants; in base64.
pub(crate) const PASSWORD: &str = "bWU6cGFyZW50LWNhbmFyeQ==";

/// Everything outside of the sandboxes.
pub(crate) struct World {
    /// The certificate that vouches for every server here, in PEM.
    pub(crate) ca: String,
    /// Files that are served: a directory for each host.
    pub(crate) files: PathBuf,
    state: Arc<State>,
    _dir: tempfile::TempDir,
}

/// What the server keeps.
#[derive(Default)]
struct State {
    files: PathBuf,
    came: Mutex<BTreeSet<SocketAddr>>,
    /// What the parent proxy was asked for.
    asked: Mutex<Vec<String>>,
}

impl World {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let files = dir.path().to_owned();
        let state = Arc::new(State { files: files.clone(), ..State::default() });
        let (ca, tls) = certificates();
        let serving = Arc::clone(&state);
        let (ready, readied) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                for port in PORTS.into_iter().chain([COUNTS, PARENT]) {
                    tokio::spawn(listen(bind(port).await, port, tls.clone(), Arc::clone(&serving)));
                }
                ready.send(()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        readied.recv().unwrap();
        Self { ca, files, state, _dir: dir }
    }

    /// The addresses at which somebody came since the last call.
    pub(crate) fn came(&self) -> BTreeSet<SocketAddr> {
        std::mem::take(&mut self.state.came.lock().unwrap())
    }

    /// What the parent proxy was asked for since the last call.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.asked.lock().unwrap())
    }

    /// Puts a file on a host.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.files.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Whether this machine has addresses of the sixth version at all.
pub(crate) fn six() -> bool {
    std::fs::read_to_string("/proc/net/if_inet6").is_ok_and(|all| !all.is_empty())
}

async fn bind(port: u16) -> TcpListener {
    let any: IpAddr = if six() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    TcpListener::bind((any, port)).await.unwrap()
}

/// One authority, and one certificate of it for every name and address of outside.
fn certificates() -> (String, TlsAcceptor) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.distinguished_name.push(DnType::CommonName, "authority of the tests");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let names = HOSTS.iter().flat_map(|(name, address)| [*name, *address]);
    let own = ["localhost", "127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::", "203.0.113.5", "203.0.113.9"];
    let names: BTreeSet<String> = names.chain(own).map(str::to_owned).collect();
    let mut server = CertificateParams::new(Vec::from_iter(names)).unwrap();
    server.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().unwrap();
    let server = server.signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let config = config.with_single_cert(vec![server.der().clone()], key).unwrap();
    (authority.pem(), TlsAcceptor::from(Arc::new(config)))
}

async fn listen(listener: TcpListener, port: u16, tls: TlsAcceptor, state: Arc<State>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let local = stream.local_addr().unwrap();
        // `localhost` leads to both of these, and which is taken is nobody's promise.
        let ip = match local.ip().to_canonical() {
            IpAddr::V6(Ipv6Addr::LOCALHOST) => Ipv4Addr::LOCALHOST.into(),
            other => other,
        };
        let local = SocketAddr::new(ip, port);
        state.came.lock().unwrap().insert(local);
        let (tls, state) = (tls.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            match port {
                COUNTS => count(stream).await,
                PARENT => parent(stream, &state).await,
                _ => pages(stream, tls, state).await,
            }
        });
    }
}

/// Says how many bytes came, once no more will.
async fn count(mut stream: TcpStream) {
    let mut all = Vec::new();
    if stream.read_to_end(&mut all).await.is_ok() {
        // A client that went away is the sandbox's affair; so it is below.
        let _ = stream.write_all(format!("{} bytes\n", all.len()).as_bytes()).await;
    }
}

/// A proxy that takes CONNECT with the password, and knows the names of outside.
async fn parent(mut stream: TcpStream, state: &State) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read_buf(&mut head).await, Ok(1..)) {
            return;
        }
    }
    let head = String::from_utf8(head).unwrap();
    state.asked.lock().unwrap().push(head.clone());
    let target = head.split(' ').nth(1).unwrap();
    let (name, port) = target.rsplit_once(':').unwrap();
    if !head.contains(&format!("Proxy-Authorization: Basic {PASSWORD}\r\n")) {
        let _ = stream.write_all(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n").await;
        return;
    }
    let address = crate::place::addresses(name)[0];
    let mut server = TcpStream::connect((address, port.parse::<u16>().unwrap())).await.unwrap();
    if stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_ok() {
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
    }
}

async fn pages(stream: TcpStream, tls: TlsAcceptor, state: Arc<State>) {
    let mut first = [0];
    if !matches!(stream.peek(&mut first).await, Ok(1)) {
        return;
    }
    let service = hyper::service::service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(page(&state, request).await) }
    });
    let http = hyper::server::conn::http1::Builder::new();
    if first == [22] {
        if let Ok(stream) = tls.accept(stream).await {
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        }
    } else {
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }
}

async fn page(state: &State, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let host = parts.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default().to_owned();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    if host == "git.test" {
        let (state, parts) = (state.files.clone(), parts);
        return tokio::task::spawn_blocking(move || git(&state, &parts, &body)).await.unwrap();
    }
    let path = parts.uri.path();
    match path {
        "/head" => {
            let text = parts.headers.iter().map(|(name, value)| format!("{name}: {value:?}\n"));
            return whole(StatusCode::OK, text.collect::<String>().into());
        }
        "/descriptors" => return whole(StatusCode::OK, crate::lab::broker_descriptors().to_string().into()),
        _ => {}
    }
    let mut file = state.files.join(&host).join(path.trim_start_matches('/'));
    if file.is_dir() {
        file.push("index.html");
    }
    match std::fs::read(&file) {
        Ok(content) => {
            let mut answer = whole(StatusCode::OK, content.into());
            let html = file.extension().is_some_and(|end| end == "html");
            let kind = if html { "text/html" } else { "application/json" };
            answer.headers_mut().insert("content-type", kind.parse().unwrap());
            answer
        }
        Err(_) if path == "/" => {
            whole(StatusCode::OK, format!("{HELLO} {} {} {}\n", parts.method, host, body.len()).into())
        }
        Err(_) => whole(StatusCode::NOT_FOUND, Bytes::new()),
    }
}

fn whole(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

/// The repositories below `git.test`, by git's own server.
fn git(files: &std::path::Path, parts: &hyper::http::request::Parts, body: &[u8]) -> Response<Full<Bytes>> {
    let header =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let method = if parts.method == Method::POST { "POST" } else { "GET" };
    let mut child = program("git");
    child.arg("http-backend").env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    child.env("GIT_PROJECT_ROOT", files.join("git.test")).env("GIT_HTTP_EXPORT_ALL", "1");
    child.env("PATH_INFO", parts.uri.path()).env("QUERY_STRING", parts.uri.query().unwrap_or_default());
    child.env("REQUEST_METHOD", method).env("CONTENT_TYPE", header("content-type"));
    child.env("CONTENT_LENGTH", body.len().to_string()).env("REMOTE_USER", "agent");
    child.env("HTTP_CONTENT_ENCODING", header("content-encoding"));
    child.env("GIT_PROTOCOL", header("git-protocol"));
    let mut child = child.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let sent = body.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let said = child.wait_with_output().unwrap().stdout;
    writer.join().unwrap().unwrap();
    let end = said.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let mut answer = whole(StatusCode::OK, Bytes::copy_from_slice(&said[end + 4..]));
    for line in String::from_utf8_lossy(&said[..end]).lines() {
        let (name, value) = line.split_once(": ").unwrap();
        match name {
            "Status" => *answer.status_mut() = value[..3].parse().unwrap(),
            _ => drop(answer.headers_mut().insert(
                hyper::header::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            )),
        }
    }
    answer
}

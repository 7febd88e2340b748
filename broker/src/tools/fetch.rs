//! Turns a request of a tool into an answer of at most so many bytes, or a typed failure: the broker's one client (row 36).
//! It refuses to follow a redirect and to keep a connection: each request is alone with its credential.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use policy::endpoint::never;
use policy::host::Host;
use policy::no_proxy::NoProxy;
use policy::reason::Reason;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, IpAddr as TlsIp, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::fault::{Fault, Trouble};
use crate::admit::Route;
use crate::launch::Parent;
use crate::limits::Limits;
use crate::net::dial::reach;
use crate::outside::Outside;
use crate::systems::Secret;
use crate::systems::url::{Url, is_loopback};

/// How long a request may take from the first byte of its name to the last of its answer.
const LIMIT: Duration = Duration::from_secs(30);
/// The most bytes of an answer.
pub(crate) const ANSWER_MAX: usize = 1 << 20;
/// Where a system keeps all certificates that it trusts in one file.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-bundle.crt",
];

/// Who may use what, in the one field for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Credential<'a> {
    /// Nobody.
    None,
    /// `Bearer`.
    Bearer(&'a Secret),
    /// `Basic`.
    Basic(&'a str, &'a Secret),
}

/// A request.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Url,
    pub(crate) credential: Credential<'a>,
    pub(crate) accept: &'a str,
    /// The type of the body, and the body.
    pub(crate) body: Option<(&'a str, Bytes)>,
    /// The most bytes of the answer.
    pub(crate) most: usize,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// Whole, or what of it was wrong: a status alone is an answer too.
    pub(crate) body: Result<Bytes, Fault>,
}

/// What fetches.
pub struct Fetcher {
    outside: Arc<dyn Outside>,
    parent: Option<(Parent, NoProxy)>,
    limits: Limits,
    /// The operator's certificates, in PEM.
    ca: Option<String>,
    tls: OnceLock<Option<Arc<ClientConfig>>>,
    limit: Duration,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fetcher")
    }
}

impl Fetcher {
    /// Reaches systems over this network; `ca` are certificates trusted beside the system's.
    pub fn new(
        outside: Arc<dyn Outside>,
        parent: Option<(Parent, NoProxy)>,
        limits: Limits,
        ca: Option<String>,
    ) -> Self {
        Self { outside, parent, limits, ca, tls: OnceLock::new(), limit: LIMIT }
    }

    /// With another limit of time for each request.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Asks once. Whatever the server says is an answer; only what keeps it from being heard is an error.
    pub(crate) async fn ask(&self, ask: Ask<'_>) -> Result<Answer, Trouble> {
        let host = ask.url.authority();
        let connecting = timeout(self.limit, self.connect(ask.url)).await;
        let stream =
            connecting.unwrap_or_else(|_| Err(Fault::Late(host.clone()))).map_err(Trouble::nothing)?;
        let exchanging = timeout(self.limit, exchange(stream, ask)).await;
        exchanging.unwrap_or(Err(Trouble { fault: Fault::Late(host), nothing: false }))
    }

    async fn connect(&self, url: &Url) -> Result<Box<dyn Stream>, Fault> {
        let host = url.authority();
        let unreachable = |reason| Fault::Unreachable(host.clone(), reason);
        let route = self.route(url).await.map_err(unreachable)?;
        let stream: TcpStream =
            reach(&route, &url.target, &self.outside, &self.limits).await.map_err(unreachable)?;
        if !url.secure {
            return Ok(Box::new(stream));
        }
        let config = self.tls.get_or_init(|| trusted(self.ca.as_deref())).clone();
        let connector = TlsConnector::from(config.ok_or_else(|| Fault::Tls(host.clone()))?);
        let name = server_name(&url.target.host).ok_or_else(|| Fault::Tls(host.clone()))?;
        let stream = connector.connect(name, stream).await.map_err(|_| Fault::Tls(host.clone()))?;
        Ok(Box::new(stream))
    }

    /// The system is one that the operator named, so it may have a private address; metadata and link-local never (N13).
    async fn route(&self, url: &Url) -> Result<Route, Reason> {
        if let Some((parent, past)) = &self.parent
            && !is_loopback(&url.target.host)
            && !past.covers(&url.target)
        {
            return Ok(Route::Parent(parent.clone()));
        }
        let found: Vec<IpAddr> = match &url.target.host {
            Host::Ip(address) => vec![*address],
            Host::Name(name) => {
                let limit = Limits::time(self.limits.resolve_ms);
                let answer = timeout(limit, self.outside.resolve(name)).await;
                answer.ok().and_then(Result::ok).ok_or(Reason::Unresolved)?
            }
        };
        let port = url.target.port.get();
        let all: Arc<[SocketAddr]> = found
            .into_iter()
            .map(|ip| ip.to_canonical())
            .filter(|ip| !never(*ip))
            .map(|ip| SocketAddr::new(ip, port))
            .collect();
        if all.is_empty() { Err(Reason::AddressReserved) } else { Ok(Route::Direct(all)) }
    }
}

/// A connection, plain or not.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

async fn exchange(stream: Box<dyn Stream>, ask: Ask<'_>) -> Result<Answer, Trouble> {
    let host = ask.url.authority();
    let lost = || Trouble { fault: Fault::Lost(host.clone()), nothing: false };
    let malformed = || Trouble::nothing(Fault::Malformed(host.clone(), "a field cannot be sent"));
    let request = request(&ask).ok_or_else(malformed)?;
    let builder = hyper::client::conn::http1::Builder::new();
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Trouble::nothing(Fault::Lost(host.clone())))?;
    let driving = tokio::spawn(connection);
    let answer = async {
        let response = sender.send_request(request).await.map_err(|_| lost())?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ask.most).collect().await;
        let body = body.map(|body| body.to_bytes()).map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                Fault::TooLarge(host.clone(), ask.most)
            } else {
                Fault::Lost(host.clone())
            }
        });
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }
    .await;
    // One request a connection: whatever is left of it is not waited for.
    driving.abort();
    answer
}

fn request(ask: &Ask<'_>) -> Option<Request<Full<Bytes>>> {
    use base64::Engine as _;
    let authorization = match ask.credential {
        Credential::None => None,
        Credential::Bearer(token) => Some(format!("Bearer {}", token.reveal())),
        Credential::Basic(user, secret) => {
            let pair = format!("{user}:{}", secret.reveal());
            Some(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair)))
        }
    };
    let mut request = Request::builder()
        .method(ask.method.clone())
        .uri(&ask.url.path)
        .header(HOST, ask.url.authority())
        .header(USER_AGENT, concat!("crucible/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, ask.accept);
    if let Some(value) = authorization {
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    let body = match &ask.body {
        Some((kind, body)) => {
            request = request.header(CONTENT_TYPE, *kind);
            body.clone()
        }
        None => Bytes::new(),
    };
    request.body(Full::new(body)).ok()
}

fn server_name(host: &Host) -> Option<ServerName<'static>> {
    match host {
        Host::Ip(address) => Some(ServerName::IpAddress(TlsIp::from(*address))),
        Host::Name(name) => ServerName::try_from(name.as_str().to_owned()).ok(),
    }
}

/// The system's certificates and the operator's; `None` where there is none at all.
fn trusted(ca: Option<&str>) -> Option<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let system = BUNDLES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    for pem in [system.as_slice(), ca.unwrap_or_default().as_bytes()] {
        // A certificate that is none trusts nobody; the others stand.
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    }
    if roots.is_empty() {
        return None;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    Some(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

impl Answer {
    /// The answer's JSON, where its status says that all is well.
    ///
    /// # Errors
    /// What the status means; after a 2xx the deed is done whatever the body is.
    pub(crate) fn json(self, host: &str) -> Result<serde_json::Value, Trouble> {
        let body = self.ok(host)?.body;
        let done = |fault| Trouble { fault, nothing: false };
        let malformed = |_| done(Fault::Malformed(host.to_owned(), "it is not JSON"));
        body.map_err(done).and_then(|body| serde_json::from_slice(&body).map_err(malformed))
    }

    /// This answer, where its status says that all is well.
    ///
    /// # Errors
    /// What the status means.
    pub(crate) fn ok(self, host: &str) -> Result<Self, Trouble> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let location = self.header("location");
        Err(Trouble::of_status(host, self.status, self.wait(), location))
    }

    /// A field as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// How many seconds to wait, where the server says: `Retry-After`, or GitHub's reset time once nothing remains.
    fn wait(&self) -> Option<u64> {
        let number = |name| self.header(name).and_then(|text| text.trim().parse::<u64>().ok());
        if let Some(wait) = number("retry-after") {
            return Some(wait);
        }
        let spent = number("x-ratelimit-remaining") == Some(0);
        let reset = number("x-ratelimit-reset").filter(|_| spent)?;
        Some(reset.saturating_sub(crate::clock::unix()))
    }
}

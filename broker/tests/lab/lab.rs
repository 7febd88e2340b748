//! Turns a list of endpoints into a served sandbox with a resolver of the test's own, and its audit file into values.
//! It refuses to know what is tested.

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use broker::client::{Attachment, Client};
use broker::launch::Launch;
use broker::outside::{Later, Outside};
use policy::egress::{BinaryPath, Declared, Egress};
use policy::endpoint::Endpoint;
use policy::host::Name;
use policy::seam::{Role, sockets};
use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

/// The longest that anything in a test may take.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Inside and outside are one network here, so the ports of outside are moved by this much.
const AWAY: u16 = 10_000;

/// Runs a test's future on a runtime of its own.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LONG * 3, test).await.expect("in time") });
}

/// A resolver that answers from lists, one after the other, and counts.
#[derive(Default)]
pub(crate) struct Names {
    table: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(crate) calls: AtomicUsize,
}

impl Names {
    /// Adds an answer for a name; the last one stays.
    pub(crate) fn put(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        self.table.lock().unwrap().entry(name.to_owned()).or_default().push(addresses);
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

/// The world outside: the test's names, and real connections.
struct World(Arc<Names>);

impl Outside for World {
    fn resolve<'a>(&'a self, name: &'a Name) -> Later<'a, Vec<IpAddr>> {
        Box::pin(async move {
            self.0.calls.fetch_add(1, Ordering::Relaxed);
            let mut table = self.0.table.lock().unwrap();
            let answers = table.get_mut(name.as_str()).ok_or(std::io::ErrorKind::NotFound)?;
            let answer = answers[0].clone();
            if answers.len() > 1 {
                answers.remove(0);
            }
            Ok(answer)
        })
    }

    fn connect(&self, mut address: SocketAddr) -> Later<'_, TcpStream> {
        address.set_port(address.port() + AWAY);
        Box::pin(TcpStream::connect(address))
    }
}

/// A sandbox that is served.
pub(crate) struct Lab {
    pub(crate) client: Client,
    pub(crate) proxy: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) names: Arc<Names>,
    pub(crate) hash: String,
    pub(crate) audit: tempfile::NamedTempFile,
}

/// What is asked of a lab.
pub(crate) struct Plan<'a> {
    pub(crate) endpoints: &'a [&'a str],
    pub(crate) binaries: Vec<String>,
    pub(crate) launch: Launch,
    /// Whether programs can be told.
    pub(crate) inside: bool,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(endpoints: &'a [&'a str]) -> Self {
        let own = std::env::current_exe().unwrap().canonicalize().unwrap().display().to_string();
        Self { endpoints, binaries: vec![own], launch: Launch::default(), inside: true }
    }

    pub(crate) fn egress(&self) -> Egress {
        let declared = Declared {
            endpoints: self.endpoints.iter().map(|text| Endpoint::parse(text).unwrap()).collect(),
            binaries: self.binaries.iter().map(|path| BinaryPath::parse(path).unwrap()).collect(),
            inherit_defaults: false,
        };
        Egress::resolve(&declared, &[])
    }
}

/// The sockets that a gateway would make.
pub(crate) async fn listeners(egress: &Egress) -> Vec<(Role, OwnedFd, SocketAddr)> {
    let mut made = Vec::new();
    for (role, mut at) in sockets(egress) {
        // These two are found by what was bound, so that one test never waits for another's.
        if matches!(role, Role::Proxy | Role::NamesUdp | Role::NamesTcp) {
            at.set_port(0);
        }
        if at.is_ipv6() {
            continue;
        }
        let (fd, at) = if role.is_datagram() {
            let socket = UdpSocket::bind(at).await.unwrap();
            let at = socket.local_addr().unwrap();
            (OwnedFd::from(socket.into_std().unwrap()), at)
        } else {
            let listener = TcpListener::bind(at).await.unwrap();
            let at = listener.local_addr().unwrap();
            (OwnedFd::from(listener.into_std().unwrap()), at)
        };
        made.push((role, fd, at));
    }
    made
}

/// What lets programs be told: here this process's own network and view.
pub(crate) fn inside() -> [OwnedFd; 3] {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let diag = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    );
    let dir = |path: &str| open(path, flags, Mode::empty()).unwrap();
    [diag.unwrap(), dir("/proc"), dir("/")]
}

impl Lab {
    pub(crate) async fn new(endpoints: &[&str]) -> Self {
        Self::with(Plan::new(endpoints)).await
    }

    pub(crate) async fn with(plan: Plan<'_>) -> Self {
        let names = Arc::new(Names::default());
        let audit = tempfile::NamedTempFile::new().unwrap();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
        let world = Arc::new(World(Arc::clone(&names)));
        tokio::spawn(async move { broker::serve::serve(theirs, world, Vec::new(), None).await.unwrap() });
        let file = std::fs::OpenOptions::new().append(true).open(audit.path()).unwrap();
        let client = Client::launch(ours, &plan.launch, file.as_fd()).await.unwrap();
        let egress = plan.egress();
        let made = listeners(&egress).await;
        let at = |wanted: &Role| made.iter().find(|(role, ..)| role == wanted).unwrap().2;
        let (proxy, dns) = (at(&Role::Proxy), at(&Role::NamesUdp));
        let attachment = Attachment {
            id: "box".to_owned(),
            turn: "1".to_owned(),
            policy: egress.document(),
            sockets: made.into_iter().map(|(role, fd, _)| (role, fd)).collect(),
            token: None,
            inside: plan.inside.then(inside),
        };
        let hash = client.attach(attachment).await.unwrap();
        assert_eq!(hash, egress.hash());
        Self { client, proxy, dns, names, hash, audit }
    }

    /// Ends the turn and gives every record, the chain proven.
    pub(crate) async fn records(&self) -> Vec<Value> {
        let (_, head) = self.client.detach("box").await.unwrap();
        let text = std::fs::read(self.audit.path()).unwrap();
        policy::record::verify(&text, Some(&head)).unwrap();
        String::from_utf8(text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The decisions so far.
    pub(crate) fn decisions(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.audit.path()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["kind"] == "decision").collect()
    }

    /// The reason of the last decision; none is a yes.
    pub(crate) fn verdict(&self) -> Option<String> {
        let last = self.decisions().pop().expect("a decision");
        if last["verdict"] == "allow" { None } else { Some(last["reason"].as_str().unwrap().to_owned()) }
    }

    /// Sends bytes to the proxy and reads until its head is whole.
    pub(crate) async fn send(&self, bytes: &[u8]) -> (TcpStream, Reply) {
        let mut stream = TcpStream::connect(self.proxy).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let reply = Reply::read(&mut stream).await;
        (stream, reply)
    }

    pub(crate) async fn connect(&self, authority: &str) -> (TcpStream, Reply) {
        self.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes()).await
    }

    /// A plain GET through the proxy.
    pub(crate) async fn get(&self, authority: &str, path: &str) -> Reply {
        let text = format!(
            "GET http://{authority}{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
        );
        self.send(text.as_bytes()).await.1
    }

    /// The address that the sandbox's resolver gives to a name; none is "no such name".
    pub(crate) async fn lookup(&self, name: &str) -> Option<IpAddr> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut question = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.').filter(|label| !label.is_empty()) {
            question.push(u8::try_from(label.len()).unwrap());
            question.extend(label.as_bytes());
        }
        question.extend([0, 0, 1, 0, 1]);
        socket.send_to(&question, self.dns).await.unwrap();
        let mut buf = [0; 512];
        let count = timeout(LONG, socket.recv(&mut buf)).await.unwrap().unwrap();
        if buf[3] & 15 == 3 {
            return None;
        }
        let octets: [u8; 4] = buf[count - 4..count].try_into().unwrap();
        Some(octets.into())
    }
}

/// What came back: status, the reason in a refusal's body, and all bytes.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) async fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            match timeout(LONG, stream.read_buf(&mut bytes)).await.unwrap() {
                Ok(1..) => {}
                _ => return Self { status: 0, body: String::from_utf8_lossy(&bytes).into_owned() },
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head
            .split("content-length: ")
            .nth(1)
            .map(|rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
        while length.is_none_or(|length| bytes.len() < end + length) && status != 200
            || (length.is_some_and(|length| bytes.len() < end + length))
        {
            if !matches!(timeout(LONG, stream.read_buf(&mut bytes)).await.unwrap(), Ok(1..)) {
                break;
            }
        }
        Self { status, body: String::from_utf8_lossy(&bytes[end..]).into_owned() }
    }

    /// The stable token of a refusal.
    pub(crate) fn reason(&self) -> Option<String> {
        let value: Value = serde_json::from_str(&self.body).ok()?;
        value["reason"].as_str().map(str::to_owned)
    }
}

/// A server that gives every connection to `serve`.
pub(crate) async fn origin<F>(
    at: &str,
    serve: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> tokio::task::AbortHandle
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut at: SocketAddr = at.parse().unwrap();
    at.set_port(at.port() + AWAY);
    let listener = TcpListener::bind(at).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    })
    .abort_handle()
}

/// A server that sends back what it gets, and half-closes after its client does.
pub(crate) async fn echo(at: &str) -> tokio::task::AbortHandle {
    origin(at, |mut stream| async move {
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
    })
    .await
}

/// A server that keeps every byte that it gets on each connection and answers each whole request with `answer`.
pub(crate) async fn http(
    at: &str,
    answer: &'static str,
) -> (Arc<Mutex<Vec<Vec<u8>>>>, tokio::task::AbortHandle) {
    let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let handle = origin(at, move |mut stream| {
        let kept = Arc::clone(&kept);
        async move {
            let place = {
                let mut kept = kept.lock().unwrap();
                kept.push(Vec::new());
                kept.len() - 1
            };
            let mut fresh = Vec::new();
            while matches!(stream.read_buf(&mut fresh).await, Ok(1..)) {
                kept.lock().unwrap()[place].extend(&fresh);
                let whole = fresh.ends_with(b"\r\n\r\n") || fresh.ends_with(b"<end>");
                fresh.clear();
                if whole && stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (seen, handle)
}

/// A TLS hello that names a server, in records of at most `record` bytes.
pub(crate) fn hello(server: Option<&str>, record: usize) -> Vec<u8> {
    let vector =
        |bytes: &[u8]| [u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec(), bytes.to_vec()].concat();
    let names = server.map(|name| vector(&[vec![0], vector(name.as_bytes())].concat()));
    let extensions = names.map(|names| [vec![0, 0], vector(&names)].concat()).unwrap_or_default();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(vector(&[0x13, 0x01]));
    body.extend([1, 0]);
    body.extend(vector(&extensions));
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [vec![1], length[1..].to_vec(), body].concat();
    message.chunks(record).flat_map(|part| [vec![22, 3, 1], vector(part)].concat()).collect()
}

/// Reads what comes until `count` bytes are there or the end.
pub(crate) async fn take(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let mut at = 0;
    while at < count {
        match timeout(LONG, stream.read(&mut bytes[at..])).await.unwrap() {
            Ok(0) | Err(_) => break,
            Ok(got) => at += got,
        }
    }
    bytes.truncate(at);
    bytes
}

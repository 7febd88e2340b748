//! Turns three programs into proxies on loopback that allow one origin and write a record of each request.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use broker::client::{Attachment, Client};
use broker::launch::Launch;
use policy::egress::{Binaries, Egress, Entry, Source};
use policy::endpoint::Endpoint;
use policy::seam::Role;

use crate::load::Origin;

/// A running proxy; it ends with this value.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) at: SocketAddr,
    child: Child,
    _dir: tempfile::TempDir,
    _client: Option<(Client, tokio::runtime::Runtime)>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Proxy {
    /// CPU that it has used so far, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / 100.0
    }

    /// Memory in bytes.
    pub(crate) fn rss(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

fn free() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Waits until something listens.
fn standing(mut child: Child, at: SocketAddr) -> Option<Child> {
    let begun = Instant::now();
    while TcpStream::connect(at).is_err() {
        if begun.elapsed() > Duration::from_secs(20) || child.try_wait().unwrap().is_some() {
            let _ = child.kill();
            return None;
        }
        std::thread::yield_now();
    }
    Some(child)
}

/// Starts one; nothing where it cannot be had.
type Start = fn(&'static str, &Origin) -> Option<Proxy>;

/// Every proxy that is measured: the broker with its records in the kernel's hands, as those of the others are, then with
/// each refusal on the disk before its answer.
pub(crate) const ALL: [(&str, Start); 4] = [
    ("broker", |name, origin| started(origin, false, name)),
    ("broker, durable", |name, origin| started(origin, true, name)),
    ("squid", squid),
    ("tinyproxy", tinyproxy),
];

/// The broker, as its own child. Programs are not told: there is no sandbox around this benchmark.
fn started(origin: &Origin, durable: bool, name: &'static str) -> Option<Proxy> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg0(broker::ROLE).env_clear().stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let audit =
        fs::OpenOptions::new().append(true).create(true).open(dir.path().join("egress.jsonl")).unwrap();
    let endpoint = Endpoint::parse(&format!("{}:full:tcp", origin.at)).unwrap();
    let egress =
        Egress::new(vec![Entry { endpoint, source: Source::Manifest, binaries: Binaries::Any, named: true }]);
    let mut launch = Launch { durable, ..Launch::default() };
    let limits = &mut launch.limits;
    (limits.connections, limits.records) = (100_000, 10_000_000);
    (limits.requests_per_second, limits.requests_burst) = (1_000_000, 1_000_000);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let sockets = vec![(Role::Proxy, OwnedFd::from(listener))];
    let (id, turn) = ("bench".to_owned(), "1".to_owned());
    let attachment = Attachment { id, turn, policy: egress.document(), sockets, token: None, inside: None };
    let client = runtime.block_on(async {
        let client = Client::launch(ours, &launch, audit.as_fd()).await.unwrap();
        client.attach(attachment).await.unwrap();
        client
    });
    Some(Proxy { name, at, child, _dir: dir, _client: Some((client, runtime)) })
}

/// Squid without a cache, with its access log.
fn squid(name: &'static str, origin: &Origin) -> Option<Proxy> {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    let at = free();
    let config = format!(
        "http_port {at}\npid_filename {here}/pid\naccess_log stdio:{here}/access.log\ncache_log {here}/cache.log\n\
         cache deny all\nacl origin port {}\nhttp_access allow origin\nhttp_access deny all\nmax_filedescriptors 8192\n\
         cache_effective_user {}\ncoredump_dir {here}\nnetdb_filename none\nshutdown_lifetime 1 seconds\n",
        origin.at.port(),
        "proxy",
    );
    fs::write(dir.path().join("squid.conf"), config).unwrap();
    open_to_all(dir.path());
    let mut command = Command::new("squid");
    command.args(["-N", "-f"]).arg(dir.path().join("squid.conf")).stdout(Stdio::null()).stderr(Stdio::null());
    let child = standing(command.spawn().ok()?, at)?;
    Some(Proxy { name, at, child, _dir: dir, _client: None })
}

/// Tinyproxy with its log.
fn tinyproxy(name: &'static str, origin: &Origin) -> Option<Proxy> {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    let at = free();
    let config = format!(
        "Port {}\nListen 127.0.0.1\nTimeout 600\nLogFile \"{here}/log\"\nLogLevel Connect\nMaxClients 4000\n\
         ConnectPort {}\nFilter \"{here}/filter\"\nFilterDefaultDeny Yes\nDisableViaHeader Yes\n",
        at.port(),
        origin.at.port(),
    );
    fs::write(dir.path().join("conf"), config).unwrap();
    fs::write(dir.path().join("filter"), "^127\\.0\\.0\\.1$\n").unwrap();
    open_to_all(dir.path());
    let mut command = Command::new("tinyproxy");
    command.arg("-d").arg("-c").arg(dir.path().join("conf")).stdout(Stdio::null()).stderr(Stdio::null());
    let child = standing(command.spawn().ok()?, at)?;
    Some(Proxy { name, at, child, _dir: dir, _client: None })
}

/// Squid writes as a user of its own.
fn open_to_all(dir: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
}

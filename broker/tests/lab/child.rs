//! Turns this binary, started again, into the real child, and its life and death into what a sandbox sees.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use broker::client::{Attachment, Client};
use broker::launch::Launch;
use policy::egress::{Binaries, BinaryPath, Egress, Entry, Source};
use policy::endpoint::Endpoint;
use policy::seam::Role;
use rustix::process::{Resource, Rlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::Test;
use crate::lab::{Reply, inside, run, take};

pub(crate) const TESTS: &[Test] = &[
    ("the_child_serves_and_ends_with_its_parent", serves_and_ends),
    ("when_the_child_dies_nothing_gets_out", dies_closed),
    ("a_child_killed_at_any_byte_of_a_line_leaves_a_file_that_the_next_one_goes_on_with", killed_at_any_byte),
    ("every_refusal_is_on_the_disk_before_its_answer", on_disk_first),
    ("without_descriptors_new_connections_are_refused_and_old_ones_kept", no_descriptors),
    ("rows_85_86_the_child_tells_programs_in_a_user_namespace_that_it_owns", tells_programs),
];

/// The name under which this binary is a program in a sandbox: in a user namespace of its own.
const CLIENT: &str = "lab-client";
/// The same after another exec, which gives the namespace the process's memory.
const INSIDE: &str = "lab-client-inside";

/// Takes over when this process was started as a program in a sandbox: asks for a tunnel and tells by its code.
#[expect(clippy::disallowed_methods, reason = "a program that replaces itself leaves no child")]
pub(crate) fn role() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().collect();
    if args[0] == CLIENT {
        crate::net::user();
        panic!("{}", Command::new(std::env::current_exe().unwrap()).arg0(INSIDE).args(&args[1..]).exec());
    }
    (args[0] == INSIDE).then(|| {
        if args[3] == "delete" {
            std::fs::remove_file(std::env::current_exe().unwrap()).unwrap();
        }
        let mut stream = std::net::TcpStream::connect(&args[1]).unwrap();
        stream.write_all(format!("CONNECT {} HTTP/1.1\r\n\r\n", args[2]).as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        if &answer == b"HTTP/1.1 200" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    })
}

/// Starts the child on a socket pair.
#[expect(clippy::disallowed_methods, reason = "the test guards its child itself")]
fn start() -> (Child, std::os::unix::net::UnixStream) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg0(broker::ROLE);
    spawned(command)
}

fn spawned(mut command: Command) -> (Child, std::os::unix::net::UnixStream) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    command.env_clear().stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    (command.spawn().unwrap(), ours)
}

struct Running {
    child: Child,
    client: Client,
    audit: tempfile::NamedTempFile,
    proxy: std::net::SocketAddr,
    service: TcpListener,
}

async fn running(binaries: Binaries) -> Running {
    let audit = tempfile::NamedTempFile::new().unwrap();
    launched(start(), Launch::default(), binaries, audit).await
}

/// A child that goes on with what an audit file holds.
async fn launched(
    (child, stream): (Child, std::os::unix::net::UnixStream),
    launch: Launch,
    binaries: Binaries,
    audit: tempfile::NamedTempFile,
) -> Running {
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let entry = format!("127.0.0.1:{}:full:tcp", service.local_addr().unwrap().port());
    let endpoint = Endpoint::parse(&entry).unwrap();
    let egress = Egress::new(vec![Entry { endpoint, source: Source::Manifest, binaries, named: true }]);
    let file = std::fs::OpenOptions::new().append(true).open(audit.path()).unwrap();
    let head = broker::audit::resume(&file, &std::fs::read(audit.path()).unwrap()).unwrap();
    let launch = Launch { head: Some(head), ..launch };
    let client = Client::launch(stream, &launch, file.as_fd()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let attachment = Attachment {
        id: "box".to_owned(),
        turn: "1".to_owned(),
        policy: egress.document(),
        sockets: vec![(Role::Proxy, listener.into_std().unwrap().into())],
        token: None,
        inside: Some(inside()),
    };
    client.attach(attachment).await.unwrap();
    Running { child, client, audit, proxy, service }
}

/// A tunnel to the service through the child, with both its ends.
async fn tunnel(running: &Running) -> (TcpStream, TcpStream) {
    let mut stream = TcpStream::connect(running.proxy).await.unwrap();
    let target = running.service.local_addr().unwrap();
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(Reply::read(&mut stream).await.status, 200);
    (stream, running.service.accept().await.unwrap().0)
}

fn serves_and_ends() {
    run(async {
        let mut running = running(Binaries::Any).await;
        let (mut near, mut far) = tunnel(&running).await;
        near.write_all(b"ping").await.unwrap();
        assert_eq!(take(&mut far, 4).await, b"ping");
        assert!(
            running.client.layers.iter().any(|layer| layer.contains("capabilities")),
            "{:?}",
            running.client.layers
        );
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap();
        let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        let kept = u64::from_str_radix(line("CapEff:").split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_eq!(kept & !4, 0, "at most DAC_READ_SEARCH: {kept:x}");
        assert!(line("NoNewPrivs:").ends_with('1'));
        let limits =
            std::fs::read_to_string(format!("/proc/{}/limits", running.child.id())).unwrap_or_default();
        if let Some(core) = limits.lines().find(|line| line.starts_with("Max core file size")) {
            assert_eq!(core.split_whitespace().nth(4), Some("0"), "cannot dump core");
        }
        drop(running.client);
        assert_eq!(take(&mut far, 1).await, b"", "the end of the parent's socket ends every connection");
        assert!(running.child.wait().unwrap().success());
        let text = std::fs::read_to_string(running.audit.path()).unwrap();
        let kinds: Vec<&str> = text
            .lines()
            .map(|line| {
                if line.contains("\"decision\"") {
                    "decision"
                } else if line.contains("\"close\"") {
                    "close"
                } else {
                    "end"
                }
            })
            .collect();
        assert_eq!(kinds, ["decision", "close", "end"]);
        policy::record::verify(text.as_bytes(), None).unwrap();
    });
}

fn no_descriptors() {
    run(async {
        let mut running = running(Binaries::Any).await;
        let pid = rustix::process::Pid::from_child(&running.child);
        let limit = |most| Rlimit { current: Some(most), maximum: Some(4096) };
        rustix::process::prlimit(Some(pid), Resource::Nofile, limit(32)).unwrap();
        let (mut near, mut far) = tunnel(&running).await;
        let mut held = Vec::new();
        let refused = loop {
            // Connections that say nothing take a descriptor each, until none is left.
            let mut stream = TcpStream::connect(running.proxy).await.unwrap();
            match timeout(Duration::from_millis(300), stream.read(&mut [0; 1])).await {
                Ok(end) => break end.unwrap_or(0),
                Err(_) => held.push(stream),
            }
        };
        assert_eq!(refused, 0, "the new one is closed");
        assert!(!held.is_empty());
        near.write_all(b"still").await.unwrap();
        assert_eq!(take(&mut far, 5).await, b"still", "the old one flows");
        drop(held);
        rustix::process::prlimit(Some(pid), Resource::Nofile, limit(4096)).unwrap();
        drop(tunnel(&running).await);
        drop(running.client);
        assert!(running.child.wait().unwrap().success());
        let text = std::fs::read_to_string(running.audit.path()).unwrap();
        assert!(text.contains("no-descriptors"), "{text}");
    });
}

fn dies_closed() {
    run(async {
        let mut running = running(Binaries::Any).await;
        let (mut near, _far) = tunnel(&running).await;
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        assert_eq!(take(&mut near, 1).await, b"");
        assert!(TcpStream::connect(running.proxy).await.is_err(), "the listener went with it");
        assert!(running.client.head().await.is_err());
        let text = std::fs::read(running.audit.path()).unwrap();
        assert_eq!(policy::record::verify(&text, None).unwrap().head.seq, 1, "what was decided is on record");
    });
}

/// What the proxy says to a tunnel that is not listed; nothing where it died of the question.
async fn denied(running: &Running) -> Option<u16> {
    let mut stream = TcpStream::connect(running.proxy).await.unwrap();
    stream.write_all(b"CONNECT denied.example:443 HTTP/1.1\r\n\r\n").await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.ok()?;
    std::str::from_utf8(&status[9..]).unwrap().parse().ok()
}

/// The kernel ends the child, by the size that its files may have, after exactly so many bytes of its second line.
fn killed_at_any_byte() {
    let whole = std::cell::Cell::new(false);
    for bytes in 0.. {
        run(async { whole.set(killed_at(bytes).await) });
        if whole.get() {
            assert!(bytes > 300, "the whole line has {bytes} bytes");
            return;
        }
    }
}

/// Whether that was the whole line; otherwise the next child went on with what is there.
async fn killed_at(bytes: u64) -> bool {
    let buffered = || Launch { durable: false, ..Launch::default() };
    let audit = tempfile::NamedTempFile::new().unwrap();
    let mut first = launched(start(), buffered(), Binaries::Any, audit).await;
    assert_eq!(denied(&first).await, Some(403));
    let whole = std::fs::metadata(first.audit.path()).unwrap().len();
    let pid = rustix::process::Pid::from_child(&first.child);
    let most = Rlimit { current: Some(whole + bytes), maximum: Some(whole + bytes) };
    rustix::process::prlimit(Some(pid), Resource::Fsize, most).unwrap();
    let answered = denied(&first).await;
    drop(first.client);
    first.child.wait().unwrap();
    let before = std::fs::read(first.audit.path()).unwrap();
    if answered.is_some() {
        assert!(before.ends_with(b"\n"), "a whole line was written before the answer");
        return true;
    }
    assert_eq!(before.len(), usize::try_from(whole + bytes).unwrap());
    let mut second = launched(start(), buffered(), Binaries::Any, first.audit).await;
    assert_eq!(denied(&second).await, Some(403), "{bytes}");
    drop(second.client);
    second.child.wait().unwrap();
    let after = std::fs::read(second.audit.path()).unwrap();
    assert!(after.starts_with(&before), "nothing is taken away");
    let tears = policy::record::verify(&after, None).unwrap().tears;
    let torn = tears.iter().map(|tear| (tear.line, tear.bytes, tear.told)).collect::<Vec<_>>();
    let bytes = usize::try_from(bytes).unwrap();
    // With all of it but its line feed the line is a record.
    let tail = &before[before.len() - bytes..];
    let cut = bytes > 0 && serde_json::from_slice::<serde_json::Value>(tail).is_err();
    assert_eq!(torn, if cut { vec![(2, bytes, true)] } else { Vec::new() });
    false
}

/// What the child asked of the kernel, in order: a record written, all of them brought to the disk, a refusal answered.
#[expect(
    clippy::disallowed_methods,
    reason = "the test guards its child itself, and asks what it runs under"
)]
fn on_disk_first() {
    const TRACED: &str = "trace=write,fdatasync,sendto,writev,sendmsg";
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("/usr/bin/strace");
    if !Path::new(command.get_program()).exists() {
        assert!(std::env::var_os("CI").is_none(), "no strace can be had");
        println!("skipped: no strace can be had here");
        return;
    }
    command.args(["-f", "-qq", "-s", "40", "-e", TRACED, "-e", "signal=none", "-o"]).arg(trace.path());
    command.arg(std::env::current_exe().unwrap()).arg("broker");
    run(async {
        let mut launch = Launch::default();
        launch.limits.connections = 3;
        let audit = tempfile::NamedTempFile::new().unwrap();
        let mut running = launched(spawned(command), launch, Binaries::Any, audit).await;
        assert_eq!(denied(&running).await, Some(403));
        let held = [tunnel(&running).await, tunnel(&running).await, tunnel(&running).await];
        let mut refused = Vec::new();
        for _ in 0..20 {
            refused.push(TcpStream::connect(running.proxy).await.unwrap());
        }
        for stream in &mut refused {
            assert_eq!(Reply::read(stream).await.reason().as_deref(), Some("too-many-connections"));
        }
        drop(held);
        drop(running.client);
        assert!(running.child.wait().unwrap().success());
    });
    let (mut written, mut going, mut there, mut answered, mut syncs) = (0, 0, 0, 0, 0);
    for line in std::fs::read_to_string(trace.path()).unwrap().lines() {
        if line.contains("write(") && line.contains("{\\\"v\\\":1,") {
            written += 1;
        } else if line.contains("HTTP/1.1 403") || line.contains("HTTP/1.1 503") {
            answered += 1;
            // Between the first and the second three tunnels were allowed.
            let records = if answered == 1 { 1 } else { answered + 3 };
            assert!(there >= records, "answered before its record was on the disk: {line}");
        } else if line.contains(" fdatasync(") {
            going = written;
            syncs += 1;
        }
        if line.contains("fdatasync") && line.ends_with("= 0") {
            there = going;
        }
    }
    assert_eq!(answered, 21);
    assert!(syncs < answered, "refusals at one time share a trip to the disk: {syncs}");
}

fn tells_programs() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (own, link) = (dir.join("program"), dir.join("link"));
        std::fs::copy(std::env::current_exe().unwrap(), &own).unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let other = std::path::PathBuf::from("/usr/bin/other");
        let cases = [
            (&own, "", None),
            (&link, "", None),
            (&other, "", Some("binary-not-listed")),
            (&own, "delete", Some("binary-deleted")),
        ];
        for (listed, how, expected) in cases {
            let record = asked_by(&own, listed, how).await;
            assert_eq!(record["reason"].as_str(), expected, "{record}");
            assert_eq!(record["binary"].as_str(), own.to_str(), "{record}");
            assert_eq!(record["detail"].is_string(), expected == Some("binary-not-listed"), "{record}");
        }
    });
}

/// The record of what `program` asked where `listed` may ask.
#[expect(clippy::disallowed_methods, reason = "the test waits for its child itself")]
async fn asked_by(program: &Path, listed: &Path, how: &str) -> serde_json::Value {
    let binaries = Binaries::of([BinaryPath::parse(listed.to_str().unwrap()).unwrap()]);
    let mut running = running(binaries).await;
    let target = running.service.local_addr().unwrap();
    let mut command = Command::new(program);
    command.arg0(CLIENT).arg(running.proxy.to_string()).arg(target.to_string()).arg(how);
    let status = tokio::task::spawn_blocking(move || command.status().unwrap()).await.unwrap();
    let text = std::fs::read_to_string(running.audit.path()).unwrap();
    let record: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(status.success(), record["verdict"] == "allow", "{record}");
    drop(running.client);
    assert!(running.child.wait().unwrap().success());
    record
}

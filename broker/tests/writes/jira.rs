//! A Jira with state, jira820 of PyPI: what is commented there is found there again.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use broker::systems::{Secret, Systems, Tracker, TrackerKind};
use policy::outputs::Kind;
use serde_json::{Value, json};

use crate::Test;
use crate::lab::{CANARY, Lab, State, bounds, open, run};

pub(crate) const TESTS: &[Test] = &[("a_jira_with_state_has_each_comment_once", comments)];

/// The emulator, where `.ci/run` installs it.
fn program() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/jira820/bin/jira820");
    if !path.exists() {
        assert!(std::env::var_os("CI").is_none(), "jira820 is missing: .ci/run installs it");
        println!("skipped: jira820 is not installed in target/tools");
        return None;
    }
    Some(path)
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &Path) -> (Running, SocketAddr) {
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let child = Command::new(program)
        .env("JIRA820_PORT", at.port().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    while TcpStream::connect(at).is_err() {
        assert!(running.0.try_wait().unwrap().is_none(), "jira820 ended");
        std::thread::yield_now();
    }
    (running, at)
}

/// What it answers to a plain GET.
fn get(at: SocketAddr, path: &str) -> Value {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1)
        .unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn comments() {
    let Some(program) = program() else { return };
    let (_running, at) = start(&program);
    let found = get(at, "/rest/api/2/search?jql=&maxResults=2");
    let key = |place: usize| found["issues"][place]["key"].as_str().unwrap().to_owned();
    let (item, other) = (key(0), key(1));
    let before = get(at, &format!("/rest/api/2/issue/{item}/comment"))["total"].as_u64().unwrap();
    run(async {
        let token = Secret::new(CANARY);
        let tracker = Tracker { kind: TrackerKind::Jira, url: format!("http://{at}"), user: None, token };
        let systems = Systems { tracker: Some(tracker), ..Systems::default() };
        let state = State::new();
        let lab = Lab::new(&state, bounds(Kind::TrackerComment, 2, open(&item)), systems).await;
        let (failed, said) = lab.call("tracker_get", json!({"item": item})).await;
        assert!(!failed && said["item"] == item.as_str() && said["title"] != "", "{said}");
        for _ in 0..3 {
            let arguments = json!({"item": item, "body": "halved", "idempotency_key": "k"});
            let (failed, said) = lab.call("tracker_comment", arguments).await;
            assert!(!failed && said["comment"] != "", "{said}");
        }
        let (failed, said) = lab.call("tracker_comment", json!({"item": other, "body": "x"})).await;
        assert!(failed && said["bound"] == "[outputs.tracker-comment].target", "{said}");
        let (failed, said) = lab.call("tracker_comment", json!({"item": item, "body": "again"})).await;
        assert!(!failed, "{said}");
        let (failed, said) = lab.call("tracker_comment", json!({"item": item, "body": "too much"})).await;
        assert!(failed && said["bound"] == "[outputs.tracker-comment].count", "{said}");
    });
    let after = get(at, &format!("/rest/api/2/issue/{item}/comment"));
    assert_eq!(after["total"].as_u64().unwrap(), before + 2, "{after}");
    let has =
        |body: &str| after["comments"].as_array().unwrap().iter().filter(|one| one["body"] == body).count();
    assert_eq!((has("halved"), has("again"), has("too much")), (1, 1, 0));
}

//! Contract §1.9: what a run may write to the outside, who makes the write, and what is left of it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use crate::egress::broker_of;
use crate::support::{COUNT, Pack, RAISE, Ran};

/// A credential that may be in no file and no stream.
const CANARY: &str = "canary-4f1d9c02";
/// The credential's declaration.
const SECRET: &str = "[[capabilities.secret]]\nname = \"JIRA_API_TOKEN\"\ncontext = \"broker\"\nsystem = \"jira\"\nscope = \"comment on PROJ\"\n";

/// A pack whose agent runs in a sandbox with tools, and may comment twice on PROJ-1.
fn pack(agent: &str, more: &str) -> Pack {
    let tables = "[agent.openshell]\ninherit_defaults = false\n[agent.broker]\nenabled = true\n\
                  [outputs.tracker-comment]\ncount = 2\ntarget = { fixed = \"PROJ-1\" }\n";
    let pack = Pack::new(&format!("{agent}; {RAISE}"), COUNT, &format!("{tables}{more}"));
    let manifest = pack.read("crucible.toml");
    let sandboxed = "backend = \"openshell\"\nharness = \"command\"";
    pack.write("crucible.toml", &manifest.replace("backend = \"command\"", sandboxed));
    pack
}

fn comment(body: &str) -> String {
    format!("/run/crucible tool call tracker_comment --json \"{{\\\"body\\\": \\\"{body}\\\"}}\"")
}

/// Runs with these variables, and without a proxy of this machine's.
fn run(pack: &Pack, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = pack.command(args);
    for name in ["https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"] {
        command.env_remove(name);
    }
    let output = command.envs(env.iter().copied()).output().unwrap();
    Ran { output, log: pack.log() }
}

/// What a Jira was asked, and what was seen in the processes of the machine while it was.
#[derive(Default)]
struct Seen {
    asked: Vec<String>,
    leaks: Vec<String>,
}

struct Jira {
    url: String,
    seen: Arc<Mutex<Seen>>,
}

impl Jira {
    /// One that knows PROJ-1 and takes every comment; with `mute` it takes it and says nothing.
    fn start(mute: bool) -> Jira {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let told = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = request(&mut stream);
                let posts = request.starts_with("POST");
                {
                    let mut seen = told.lock().unwrap();
                    seen.asked.push(request);
                    seen.leaks.extend(leaks());
                }
                let body = if posts { "{\"id\": \"10\"}" } else { "{\"key\": \"PROJ-1\", \"fields\": {}}" };
                if !(posts && mute) {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
                }
            }
        });
        Jira { url, seen }
    }

    fn posts(&self) -> usize {
        self.seen.lock().unwrap().asked.iter().filter(|asked| asked.starts_with("POST")).count()
    }
}

fn request(stream: &mut std::net::TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).unwrap();
    format!("{head}{}", String::from_utf8_lossy(&body))
}

/// Command lines that hold the credential, and environments of brokers that do.
fn leaks() -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
        let environment = String::from_utf8_lossy(&read("environ")).into_owned();
        if line.contains(CANARY) || line.starts_with("crucible-broker\0") && environment.contains(CANARY) {
            found.push(line);
        }
    }
    found
}

/// Every file below a directory that holds the credential.
fn holding(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => holding(&path, found),
            kind if kind.is_file() => {
                let bytes = std::fs::read(&path).unwrap();
                if bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()) {
                    found.push(path.display().to_string());
                }
            }
            _ => {}
        }
    }
}

fn refusals(log: &[Value]) -> Vec<&Value> {
    log.iter().filter(|line| line["kind"] == "output_refused").collect()
}

#[test]
fn an_agent_finds_its_tools_and_nothing_of_what_bounds_them() {
    let agent = "env | grep -v ^CRUCIBLE_TOOLS_TOKEN | sort > env.txt; echo $CRUCIBLE_TOOLS_TOKEN | rev > token.txt; cat ~/.mcp.json > mcp.txt; /run/crucible tool list > list.txt; \
                 /run/crucible tool call tracker_comment --json '{\"body\": \"x\", \"label\": 1}' > unknown.txt; \
                 CRUCIBLE_TOOLS_TOKEN=guess /run/crucible tool list > guess.txt 2>&1; \
                 cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c '^BROKER_' > seen.txt; \
                 bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; printf \"CONNECT host.openshell.internal:3129 HTTP/1.1\\r\\n\\r\\n\" >&3; head -n 1 <&3' > own.txt; \
                 ls /run > run.txt";
    let pack = pack(agent, "");
    let ran = run(&pack, &["--iterations", "1"], &[]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"], "{}", ran.stderr());
    let said = |name: &str| pack.git(&["show", &format!("HEAD:{name}")]);
    assert!(said("list.txt").starts_with("tracker_comment"), "{}", said("list.txt"));
    let config: Value = serde_json::from_str(&said("mcp.txt")).unwrap();
    let server = &config["mcpServers"]["crucible"];
    assert_eq!(server["url"], "http://host.openshell.internal:3129/mcp");
    let env = said("env.txt");
    let token: String = said("token.txt").trim().chars().rev().collect();
    assert_eq!(token.len(), 64);
    assert!(!said("mcp.txt").contains(&token), "the file names the variable");
    assert!(env.contains("NO_PROXY=host.openshell.internal\n"), "{env}");
    assert!(!env.contains("BROKER_") && said("seen.txt") == "0\n", "{env}");
    assert!(said("unknown.txt").contains("unknown field `label`"), "{}", said("unknown.txt"));
    assert!(said("guess.txt").contains("401, bad-token"), "{}", said("guess.txt"));
    assert!(said("own.txt").starts_with("HTTP/1.1 403 "), "{}", said("own.txt"));
    assert!(!pack.exists("state/outbox"), "nothing was admitted");
    let state = format!("{}{}", pack.read("state/session.jsonl"), pack.read("state/egress.jsonl"));
    assert!(!state.contains(&token));
}

#[test]
fn a_comment_is_made_by_the_broker_and_its_credential_is_nowhere_else() {
    let jira = Jira::start(false);
    let steal =
        "env > env.txt; cat /proc/self/environ > environ.txt; /run/crucible tool call tracker_get > item.txt";
    let pack =
        pack(&format!("{steal}; {}; {}; {}", comment("one"), comment("two"), comment("three")), SECRET);
    pack.write("measure.sh", &format!("env > judge.txt\n{COUNT}"));
    let env = [("JIRA_API_TOKEN", CANARY), ("JIRA_URL", jira.url.as_str()), ("RUST_LOG", "trace")];
    let ran = run(&pack, &["--iterations", "1"], &env);
    ran.ended("finished", 0);
    assert_eq!(jira.posts(), 2, "{}", ran.stderr());
    {
        let seen = jira.seen.lock().unwrap();
        let post = seen.asked.iter().find(|asked| asked.starts_with("POST")).unwrap();
        assert!(post.starts_with("POST /rest/api/2/issue/PROJ-1/comment "), "{post}");
        assert!(post.contains(CANARY) && post.ends_with("{\"body\":\"one\"}"), "{post}");
        assert_eq!(seen.leaks, Vec::<String>::new(), "no command line and no broker's environment holds it");
    }
    let mut holding_files = Vec::new();
    holding(&pack.path(""), &mut holding_files);
    assert_eq!(holding_files, Vec::<String>::new());
    assert!(!ran.stdout().contains(CANARY) && !ran.stderr().contains(CANARY));
    let rows = refusals(&ran.log);
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["bound"], &rows[0]["turn"]),
        (&"[outputs.tracker-comment].count".into(), &"turn-1".into())
    );
    let audit = run(&pack, &["audit", "--writes"], &[]).stdout();
    assert!(audit.contains("tracker-comment    2 of 2 used, 1 refused  PROJ-1  (manifest)"), "{audit}");
    assert_eq!(audit.matches(" written\n").count(), 2, "{audit}");
    assert!(ran.stdout().contains("writes    2 written\n"), "{}", ran.stdout());
}

#[test]
fn what_waits_in_the_outbox_is_sent_once_or_dropped() {
    let pack = pack(&format!("{}; {}", comment("one"), comment("two")), SECRET);
    run(&pack, &["--iterations", "1"], &[]).ended("finished", 0);
    let list = run(&pack, &["outbox", "list"], &[]).stdout();
    assert_eq!(list.matches(" waiting\n").count(), 2, "{list}");
    let shown: Value = serde_json::from_str(&run(&pack, &["outbox", "show", "1"], &[]).stdout()).unwrap();
    assert_eq!((&shown["target"], &shown["arguments"]["body"]), (&"PROJ-1".into(), &"one".into()), "{shown}");
    let unconfigured = run(&pack, &["outbox", "send", "1"], &[]);
    assert_eq!(unconfigured.code(), 2);
    assert!(unconfigured.stderr().contains("no system is configured"), "{}", unconfigured.stderr());
    let no_place = run(&pack, &["outbox", "send", "1"], &[("JIRA_API_TOKEN", CANARY)]);
    assert!(no_place.stderr().contains("JIRA_URL"), "{}", no_place.stderr());
    let jira = Jira::start(false);
    let env = [("JIRA_API_TOKEN", CANARY), ("JIRA_URL", jira.url.as_str())];
    let sent = run(&pack, &["outbox", "send", "1"], &env);
    assert_eq!((sent.code(), jira.posts()), (0, 1), "{}", sent.stderr());
    let again = run(&pack, &["outbox", "send", "1"], &env);
    assert_eq!((again.code(), jira.posts()), (1, 1));
    assert!(again.stderr().contains("it was sent"), "{}", again.stderr());
    // A tracker that takes the comment and says nothing: it may be there, so it is not sent again.
    let mute = Jira::start(true);
    let env = [("JIRA_API_TOKEN", CANARY), ("JIRA_URL", mute.url.as_str())];
    let lost = run(&pack, &["outbox", "send", "2"], &env);
    assert_eq!((lost.code(), mute.posts()), (1, 1), "{}", lost.stderr());
    let again = run(&pack, &["outbox", "send", "2"], &env);
    assert!(again.stderr().contains("whether it arrived is not known"), "{}", again.stderr());
    assert_eq!(mute.posts(), 1);
    let absent = run(&pack, &["outbox", "show", "99"], &[]).stderr();
    assert!(absent.contains("find write 99") && absent.contains("outbox list"), "{absent}");
    let dropped = run(&pack, &["outbox", "drop", "2"], &[]);
    assert_eq!(dropped.code(), 1, "a write that may have arrived is not dropped");
    let audit = run(&pack, &["audit", "--writes"], &[]).stdout();
    assert!(audit.contains("staged, sent\n") && audit.contains("outcome unknown\n"), "{audit}");
    let mut holding_files = Vec::new();
    holding(&pack.path(""), &mut holding_files);
    assert_eq!(holding_files, Vec::<String>::new());
}

#[test]
fn a_broker_that_is_killed_and_its_successor_have_one_count() {
    let first = "if grep -q \"Iteration 1 of\"; then ";
    let agent = format!(
        "{first} {}; echo be''gun; sleep 1000; fi; {}; {}",
        comment("one"),
        comment("two"),
        comment("three")
    );
    let pack = pack(&agent, "");
    let child = pack.command(&["--iterations", "2"]).spawn().unwrap();
    // The turn is tried once more, comments again, and loses that broker too.
    for time in 1..=2 {
        while pack.log_text().matches("begun").count() < time {
            std::thread::yield_now();
        }
        kill(broker_of(child.id()), Signal::SIGKILL).unwrap();
    }
    let ran = Ran { output: child.wait_with_output().unwrap(), log: pack.log() };
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "infra-dead", "keep"]);
    let outbox = std::fs::read_dir(pack.path("state/outbox")).unwrap().count();
    assert_eq!(outbox, 2, "one before each death, and none after them");
    assert_eq!(refusals(&ran.log).len(), 2);
    assert!(refusals(&ran.log).iter().all(|row| row["turn"] == "turn-2"));
}

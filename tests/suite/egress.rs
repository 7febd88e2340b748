//! Contract §6.1: what a sandbox reaches, and the record of what it tried.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{COUNT, Pack, RAISE, Ran, hello_server as server, program};

/// Bash that sends a request to a host and port and prints what comes back, alone: a second program that held the
/// connection would make it nobody's.
const ASK: &str = "ask() { exec 3<>/dev/tcp/$1/$2 || return; printf \"$3\" >&3; \
                   while IFS= read -r line <&3 || [ -n \"$line\" ]; do printf \"%s\\n\" \"$line\"; done; exec 3>&-; }; ";

/// A pack whose agent runs bash in a sandbox with these lines in `[agent.openshell]`.
fn pack(agent: &str, lists: &str) -> Pack {
    let pack = Pack::new(agent, COUNT, &format!("[agent.openshell]\ninherit_defaults = false\n{lists}\n"));
    let manifest = pack.read("crucible.toml");
    pack.write(
        "crucible.toml",
        &manifest.replace("backend = \"command\"", "backend = \"openshell\"\nharness = \"command\""),
    );
    pack
}

fn bash(script: &str) -> String {
    format!("bash -c '{ASK}{script}'; {RAISE}")
}

/// Runs without a proxy of this machine's.
fn run(pack: &Pack, args: &[&str]) -> Ran {
    let mut command = pack.command(args);
    for name in ["https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    Ran { output, log: pack.log() }
}

/// The records of decisions in a turn.
fn decisions(pack: &Pack, turn: &str) -> Vec<Value> {
    let text = pack.read("state/egress.jsonl");
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["kind"] == "decision" && line["turn"] == turn).collect()
}

#[test]
fn a_listed_server_is_reached_in_every_way_and_nothing_else_is() {
    let (port, other) = (server(), server());
    let script = format!(
        "ask 127.0.0.1 3128 \"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n\" > tunnel.txt; \
         ask 127.0.0.1 3128 \"GET http://127.0.0.1:{port}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nConnection: close\\r\\n\\r\\n\" > plain.txt; \
         ask 127.0.0.1 {port} \"GET / HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n\" > direct.txt; \
         ask 127.0.0.1 3128 \"CONNECT 127.0.0.1:{other} HTTP/1.1\\r\\nHost: 127.0.0.1:{other}\\r\\n\\r\\n\" > port.txt; \
         ask 127.0.0.1 3128 \"CONNECT github.com:443 HTTP/1.1\\r\\nHost: github.com:443\\r\\n\\r\\n\" > host.txt; \
         ask 127.0.0.1 3128 \"GET http://github.com/?token=bird HTTP/1.1\\r\\nHost: github.com\\r\\nConnection: close\\r\\n\\r\\n\" > fix.txt; \
         ask 127.0.0.1 {other} x > closed.txt 2>&1; ask 1.1.1.1 443 x > away.txt 2>&1; \
         getent hosts github.com > name.txt; env | grep -i proxy | sort > env.txt; cat /etc/resolv.conf > resolv.txt; true"
    );
    let lists = format!("endpoints = [\"127.0.0.1:{port}:full:tcp\"]\nbinaries = [\"/usr/bin/bash\"]");
    let pack = pack(&bash(&script), &lists);
    let ran = run(&pack, &["--iterations", "1"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    let said = |name: &str| pack.git(&["show", &format!("HEAD:{name}")]);
    for name in ["tunnel.txt", "plain.txt", "direct.txt"] {
        assert!(said(name).ends_with("\nhello\n"), "{name}: {}", said(name));
    }
    for (name, target) in [("port.txt", format!("127.0.0.1:{other}")), ("host.txt", "github.com:443".into())]
    {
        let text = said(name);
        assert!(text.starts_with("HTTP/1.1 403 "), "{name}: {text}");
        let body: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(body["target"], target.as_str(), "{body}");
        assert!(body["reason"].is_string() && body["policy"].is_string(), "{body}");
    }
    assert!(said("fix.txt").starts_with("HTTP/1.1 403 "));
    assert!(said("closed.txt").contains("refused"), "{}", said("closed.txt"));
    assert!(said("away.txt").contains("unreachable"), "{}", said("away.txt"));
    assert_eq!(said("name.txt"), "");
    assert!(said("env.txt").contains("HTTPS_PROXY=http://127.0.0.1:3128"), "{}", said("env.txt"));
    assert!(said("resolv.txt").starts_with("nameserver 127.0.0.1\n"));
    let records = decisions(&pack, "turn-1");
    let allowed: Vec<&Value> = records.iter().filter(|record| record["verdict"] == "allow").collect();
    assert_eq!(allowed.len(), 3, "{records:?}");
    for record in &allowed {
        assert_eq!(record["source"], "manifest", "{record}");
        assert_eq!(record["binary"], "/usr/bin/bash", "{record}");
    }
    let denied = |target: &str, reason: &str| {
        let found = records.iter().any(|record| record["target"] == target && record["reason"] == reason);
        assert!(found, "{target} {reason}: {records:?}");
    };
    denied("github.com:443", "host-not-listed");
    denied(&format!("127.0.0.1:{other}"), "port-not-listed");
    assert!(!pack.read("state/egress.jsonl").contains("bird"), "values of queries are not recorded");
}

#[test]
fn the_summary_seals_the_audit_file_and_audit_tells_what_was_changed() {
    use std::os::unix::fs::PermissionsExt as _;
    let script = "ask 127.0.0.1 3128 \"CONNECT github.com:443 HTTP/1.1\\r\\n\\r\\n\" > out.txt";
    let pack = pack(&bash(script), "");
    let ran = run(&pack, &["--iterations", "2"]);
    ran.ended("finished", 0);
    let mode = std::fs::metadata(pack.path("state/egress.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = pack.read("state/egress.jsonl");
    let summary = ran.events("summary").next().unwrap();
    assert_eq!(summary["egress_seq"], text.lines().count());
    let table = run(&pack, &["audit", "--denied", "--host", "github.com", "--turn", "turn-2"]);
    assert_eq!(table.code(), 0, "{}", table.stderr());
    assert_eq!(table.stdout().lines().filter(|line| line.contains("github.com:443")).count(), 1);
    let json: Value = serde_json::from_str(&run(&pack, &["audit", "--json", "--allowed"]).stdout()).unwrap();
    assert_eq!(json, Value::Array(Vec::new()));
    assert_eq!(run(&pack, &["audit", "--reason", "rain"]).code(), 2);
    assert_eq!(run(&pack, &["audit", "--verify"]).code(), 0);
    let cut = text.lines().count() - 1;
    let without_last: String = text.lines().take(cut).map(|line| format!("{line}\n")).collect();
    for (changed, why) in [
        (text.replacen("github.com", "gitlab.com", 1), "was altered"),
        (text.lines().skip(1).map(|line| format!("{line}\n")).collect(), "missing before it"),
        (without_last, "does not end where the run's summary says"),
    ] {
        pack.write("state/egress.jsonl", &changed);
        let proof = run(&pack, &["audit", "--verify"]);
        assert_eq!(proof.code(), 1);
        assert!(proof.stderr().contains(why), "{why}: {}", proof.stderr());
    }
}

#[test]
fn the_manifests_limits_act_inside_a_run_and_the_audit_names_each() {
    let script = "exec 3<>/dev/tcp/127.0.0.1/3128; printf \"GET http://github.com/ HTTP/1.1\\r\\nX: %2000s\\r\\n\\r\\n\" x >&3; \
                  head -1 <&3 > size.txt; exec 3>&-; \
                  exec 3<>/dev/tcp/127.0.0.1/3128; printf \"GET http\" >&3; head -1 <&3 > late.txt; exec 3>&-; \
                  for fd in 10 11 12 13 14 15 16 17 18 19; do eval \"exec $fd<>/dev/tcp/127.0.0.1/3128\"; done; \
                  exec 3<>/dev/tcp/127.0.0.1/3128; head -1 <&3 > many.txt";
    let limits =
        "[agent.openshell.limits.egress]\nconnections = 8\nhead_size = \"1K\"\nhead_timeout = \"300ms\"";
    let pack = pack(&bash(script), limits);
    run(&pack, &["--iterations", "1"]).ended("finished", 0);
    let records = decisions(&pack, "turn-1");
    let mut reasons: Vec<&Value> = records.iter().map(|record| &record["reason"]).collect();
    reasons.dedup();
    assert_eq!(reasons, ["head-too-large", "head-late", "too-many-connections"], "{records:?}");
    for (file, status) in [("size.txt", 431), ("late.txt", 408), ("many.txt", 503)] {
        let said = pack.git(&["show", &format!("HEAD:{file}")]);
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{file}: {said}");
    }
}

#[test]
fn a_program_that_is_not_listed_reaches_nothing() {
    let port = server();
    let script = format!("ask 127.0.0.1 3128 \"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n\" > out.txt");
    let lists = format!("endpoints = [\"127.0.0.1:{port}:full:tcp\"]\nbinaries = [\"/usr/bin/git\"]");
    let pack = pack(&bash(&script), &lists);
    run(&pack, &["--iterations", "1"]).ended("finished", 0);
    let records = decisions(&pack, "turn-1");
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0]["reason"], "binary-not-listed");
    assert_eq!(records[0]["binary"], "/usr/bin/bash");
}

/// The broker of a running engine.
pub(crate) fn broker_of(engine: u32) -> Pid {
    let is_broker = |pid: &i32| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let parent = read("stat").rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(engine) && read("cmdline").starts_with("crucible-broker\0")
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Pid::from_raw(pids.find(is_broker).expect("the engine has a broker"))
}

/// Kills the broker each time that a turn says it has begun, so often.
fn kill_brokers(pack: &Pack, args: &[&str], times: usize) -> Ran {
    let child = pack.command(args).spawn().unwrap();
    for time in 1..=times {
        while pack.log_text().matches("begun").count() < time {
            std::thread::yield_now();
        }
        kill(broker_of(child.id()), Signal::SIGKILL).unwrap();
    }
    Ran { output: child.wait_with_output().unwrap(), log: pack.log() }
}

#[test]
fn a_broker_that_dies_fails_its_turn_and_the_next_turn_has_a_new_one() {
    let agent = "if grep -q \"Iteration 1 of\"; then echo be''gun; sleep 1000; fi; ";
    let pack = pack(&format!("{agent}{RAISE}"), "");
    // The turn is tried once more, by another broker, and dies of that one too.
    let ran = kill_brokers(&pack, &["--iterations", "2"], 2);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "infra-dead", "keep"]);
    let task = ran.events("task_result").find(|line| line["task"] == "propose").unwrap();
    assert_eq!((&task["status"], &task["transport"]), (&"transport".into(), &"gateway".into()), "{task}");
    assert_eq!(task["attempts"], 2, "{task}");
    assert_eq!(pack.read("workspace/counter.txt"), "1\n");
    assert_eq!(run(&pack, &["audit", "--verify"]).code(), 0);
}

#[test]
fn a_line_that_the_broker_died_in_is_told_of_and_is_no_tampering() {
    let agent = bash(
        "if grep -q \"Iteration 1 of\"; then echo be\"\"gun; while :; do \
                      ask 127.0.0.1 3128 \"CONNECT github.com:443 HTTP/1.1\\r\\n\\r\\n\" > out.txt; done; fi",
    );
    let pack = pack(&agent, "");
    let child = pack.command(&["--iterations", "2"]).spawn().unwrap();
    while !pack.log_text().contains("begun") {
        std::thread::yield_now();
    }
    let broker = broker_of(child.id());
    kill(broker, Signal::SIGSTOP).unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{broker}/stat")).unwrap();
    while !stat().contains(") T ") {
        std::thread::yield_now();
    }
    let size = std::fs::metadata(pack.path("state/egress.jsonl")).unwrap().len() + 100;
    let limited = program("prlimit").args([format!("--pid={broker}"), format!("--fsize={size}")]).status();
    assert!(limited.unwrap().success());
    kill(broker, Signal::SIGCONT).unwrap();
    // The turn is tried once more: its broker goes on behind the torn line, and is killed as well.
    while pack.log_text().matches("begun").count() < 2 {
        std::thread::yield_now();
    }
    kill(broker_of(child.id()), Signal::SIGKILL).unwrap();
    let ran = Ran { output: child.wait_with_output().unwrap(), log: pack.log() };
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "infra-dead", "keep"]);
    let proof = run(&pack, &["audit", "--verify"]);
    assert_eq!(proof.code(), 9, "{}", proof.stderr());
    assert!(
        proof.stdout().contains(": 100 bytes torn; a record after them tells of them; "),
        "{}",
        proof.stdout()
    );
    let text = pack.read("state/egress.jsonl");
    pack.write("state/egress.jsonl", &format!("{text}{{\"v\":1,\"se"));
    let proof = run(&pack, &["audit", "--verify"]);
    assert_eq!(proof.code(), 9, "{}", proof.stderr());
    assert!(proof.stdout().contains(": 10 bytes torn; the file ends with them; "), "{}", proof.stdout());
    pack.write(
        "state/egress.jsonl",
        &text.replacen("\"kind\":\"torn\",\"bytes\":100", "\"kind\":\"torn\",\"bytes\":101", 1),
    );
    let proof = run(&pack, &["audit", "--verify"]);
    assert_eq!(proof.code(), 1, "{}", proof.stdout());
    assert!(proof.stderr().contains("it tells of torn bytes that are not before it"), "{}", proof.stderr());
}

#[test]
fn three_deaths_of_the_broker_in_a_row_end_the_run() {
    let pack = pack("echo be''gun; sleep 1000", "");
    let ran = kill_brokers(&pack, &["--iterations", "9"], 3);
    ran.ended("error", 1);
    // Two of one turn, and the third of the next.
    assert_eq!(ran.rows().len(), 3, "{:?}", ran.decisions());
    assert_eq!(pack.read("workspace/counter.txt"), "0\n");
}

#[test]
fn check_and_explain_tell_what_is_reached_and_why() {
    let lists = "endpoints = [\"a.example:443:full\", \"a.example:443:full:websocket\", \"A.example:443:full\"]\n\
                 binaries = [\"/usr/bin/git\", \"/usr/bin/git\"]";
    let pack = pack(RAISE, lists);
    let check = run(&pack, &["check", "--no-run"]).stdout();
    for twice in ["a.example:443:full", "/usr/bin/git"] {
        assert!(check.contains(&format!("warning: {twice}: it is listed twice")), "{check}");
    }
    assert!(
        check.lines().any(|line| line.starts_with("egress") && line.contains("a.example:443:full  ")),
        "{check}"
    );
    assert!(check.contains("unreachable: websocket needs TLS to be ended"), "{check}");
    assert!(check.contains("warning: a.example:443:full:websocket: "), "{check}");
    let told = run(&pack, &["egress", "explain", "https://github.com/a/b", "--manifest", "crucible.toml"]);
    assert_eq!(told.code(), 0, "{}", told.stderr());
    assert!(told.stdout().contains("denied, host-not-listed"), "{}", told.stdout());
    assert!(told.stdout().contains("endpoints = [\"github.com:443:full\"]"), "{}", told.stdout());
    assert!(run(&pack, &["egress", "explain", "https://a.example"]).stdout().contains("allowed"));
    let nonsense = run(&pack, &["egress", "explain", "nonsense"]);
    assert_eq!(nonsense.code(), 2);
    assert!(nonsense.stderr().contains("help: write http://host or https://host"), "{}", nonsense.stderr());
}

#[test]
fn a_list_that_lets_the_canary_out_begins_nothing() {
    let pack =
        pack(RAISE, "endpoints = [\"canary.crucible.invalid:443:full\"]\nbinaries = [\"/usr/bin/git\"]");
    let ran = run(&pack, &["--iterations", "1"]);
    ran.ended("error", 8);
    assert!(ran.stderr().contains("canary.crucible.invalid"), "{}", ran.stderr());
    assert!(!pack.exists("workspace"), "nothing was set up");
    let check = run(&pack, &["check"]);
    assert_eq!(check.code(), 7, "{}", check.stderr());
    assert!(
        check.stdout().contains("error: failed to prove that a sandbox has no way out"),
        "{}",
        check.stdout()
    );
    assert_eq!(run(&pack, &["check", "--no-run"]).code(), 0, "without a run no sandbox is tried");
}

#[test]
fn check_tries_the_canary_by_every_way_out() {
    let pack = pack(RAISE, "endpoints = [\"a.example:443:full\"]\nbinaries = [\"/usr/bin/git\"]");
    let check = run(&pack, &["check"]);
    assert_eq!(check.code(), 0, "{}", check.stdout());
    assert!(check.stdout().contains("egress: the canary was refused by every way out"), "{}", check.stdout());
    let unsaid = run(&pack, &["check", "--no-run"]);
    assert!(!unsaid.stdout().contains("canary"), "{}", unsaid.stdout());
    assert!(!pack.exists("state"), "the pack's own state is left alone");
}

//! Contract §6, `backend = "openshell"`: a run whose agent works in a sandbox of its own each turn.

use std::path::Path;

use serde_json::Value;

use crate::support::{COUNT, Pack, RAISE, Ran, Skip, skip};

/// A pack whose agent runs in a sandbox without any way out.
fn sandboxed(agent: &str, judge: &str, more: &str) -> Pack {
    let pack = Pack::new(agent, judge, more);
    let manifest = pack.read("crucible.toml").replace(
        "backend = \"command\"\n",
        "backend = \"openshell\"\nharness = \"command\"\nopenshell = { inherit_defaults = false }\n",
    );
    pack.write("crucible.toml", &manifest);
    pack
}

/// The content of a file of the candidate of an iteration, kept or not.
fn in_candidate(pack: &Pack, ran: &Ran, iter: usize, name: &str) -> String {
    let candidate = ran.rows()[iter]["candidate"].as_str().unwrap();
    pack.git(&["show", &format!("{candidate}:{name}")])
}

#[test]
fn what_the_agent_changes_comes_back_and_is_measured() {
    let pack = sandboxed(RAISE, COUNT, "");
    let ran = pack.run(&["--iterations", "3"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep", "keep"]);
    assert_eq!(pack.read("workspace/counter.txt"), "3\n");
    let layers =
        ran.events("note").any(|line| line["msg"].as_str().unwrap().starts_with("layers of the sandbox:"));
    assert!(layers, "the layers in force are logged");
}

#[test]
fn the_prompt_goes_in_whole_and_output_comes_out_as_events() {
    let pack = sandboxed("cat > prompt.txt; echo said; echo complained >&2", COUNT, "");
    pack.write("goal.txt", &"x".repeat(4_000_000));
    let ran = pack.run(&["--iterations", "1", "--goal-file", "goal.txt"]);
    assert!(in_candidate(&pack, &ran, 1, "prompt.txt").len() > 4_000_000);
    let said: Vec<&Value> =
        ran.events("agent").map(|line| &line["event"]).filter(|event| event["type"] == "raw").collect();
    assert!(said.iter().any(|event| event["stream"] == "stdout" && event["text"] == "said\n"), "{said:?}");
    assert!(
        said.iter().any(|event| event["stream"] == "stderr" && event["text"] == "complained\n"),
        "{said:?}"
    );
}

#[test]
fn nothing_of_the_host_is_seen() {
    let agent = "{ cat \"$MANIFEST\"; ls \"$STATE\"; ls -A /root /home /run | grep -v ':$' | grep .; env | grep CANARY; cat /proc/1/environ | grep -a CANARY; } > seen.txt 2>/dev/null; ls -d /sandbox/* > where.txt";
    let pack = sandboxed(agent, COUNT, "[agent.env]\nMANIFEST = \"M\"\nSTATE = \"S\"\n");
    let here = std::fs::canonicalize(pack.path(".")).unwrap();
    let manifest = pack.read("crucible.toml");
    let manifest = manifest.replace("\"M\"", &format!("{:?}", here.join("crucible.toml")));
    pack.write("crucible.toml", &manifest.replace("\"S\"", &format!("{:?}", here.join("state"))));
    let output = pack.command(&["--iterations", "1"]).env("CANARY", "bird").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let ran = Ran { output, log: pack.log() };
    // The one file is the program that tries the ways out from inside.
    assert_eq!(in_candidate(&pack, &ran, 1, "seen.txt"), "crucible\n");
    assert_eq!(in_candidate(&pack, &ran, 1, "where.txt"), "/sandbox/home\n/sandbox/workspace\n");
}

#[test]
fn there_is_no_way_out() {
    let agent = "for to in 127.0.0.1/PORT 10.0.0.1/80 1.1.1.1/443; do (exec 3<>/dev/tcp/$to) 2>/dev/null && echo \"$to\"; done > reached.txt; true";
    let agent = format!("bash -c '{agent}'");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let pack = sandboxed(&agent.replace("PORT", &port), COUNT, "");
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(in_candidate(&pack, &ran, 1, "reached.txt"), "");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the host's loopback was reached");
}

#[test]
fn the_agent_sees_a_repository_of_one_commit_and_its_own_does_not_come_back() {
    let agent = format!(
        "git log --format=%s > log.txt; git status --porcelain > status.txt; git for-each-ref > refs.txt; {RAISE}; \
         git -c user.name=a -c user.email=a@b commit -qam mine; git config core.hooksPath /tmp"
    );
    let pack = sandboxed(&agent, COUNT, "");
    let ran = pack.run(&["--iterations", "2"]);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep"], "{}", ran.stderr());
    for iter in [1, 2] {
        assert_eq!(in_candidate(&pack, &ran, iter, "log.txt").lines().count(), 1);
        assert_eq!(in_candidate(&pack, &ran, iter, "refs.txt").lines().count(), 1);
    }
    assert_eq!(in_candidate(&pack, &ran, 1, "status.txt"), "?? log.txt\n?? status.txt\n");
    assert!(!pack.git(&["config", "--list", "--local"]).contains("hookspath"));
    assert!(!pack.git(&["log", "--format=%s"]).contains("mine"));
}

#[test]
fn special_files_and_links_that_lead_out_stay_behind_and_are_named() {
    let agent = format!(
        "{RAISE}; mkfifo pipe; ln -s /etc/passwd out; ln -s counter.txt in; mkdir -p sub/.git; echo x > sub/.git/config"
    );
    let pack = sandboxed(&agent, COUNT, "");
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    let dropped = ran.rows()[1]["dropped"].to_string();
    for name in ["pipe", "out", "sub/.git"] {
        assert!(dropped.contains(name), "{name}: {dropped}");
    }
    assert!(
        !pack.exists("workspace/pipe") && !pack.exists("workspace/out") && !pack.exists("workspace/sub/.git")
    );
    assert_eq!(pack.read("workspace/in"), "1\n");
}

#[test]
fn of_many_things_that_stay_behind_a_few_are_named_and_the_rest_counted() {
    // A line that names all that an agent can make is longer than any that is read.
    let agent = format!("{RAISE}; seq 300 | sed 's/^/pipe/' | xargs mkfifo");
    for pack in [sandboxed(&agent, COUNT, ""), Pack::new(&agent, COUNT, "")] {
        let ran = pack.run(&["--iterations", "1"]);
        assert_eq!(ran.decisions(), ["baseline", "keep"], "{}", ran.stderr());
        let dropped = ran.rows()[1]["dropped"].as_array().unwrap();
        assert_eq!((dropped.len(), &dropped[100]), (101, &"and 200 more".into()));
        assert!(!pack.exists("workspace/pipe1") && !pack.exists("workspace/pipe300"));
    }
}

#[test]
fn exit_codes_signals_and_limits_are_told_apart() {
    for (agent, expect) in [
        ("exit 7", "the agent ended with exit code 7"),
        ("kill -TERM $$", "the agent ended with signal 15"),
        ("trap '' TERM; sleep 1000", "the agent ran into its time limit"),
    ] {
        let pack = sandboxed(&format!("echo 9 > counter.txt; {agent}"), COUNT, "");
        pack.write(
            "crucible.toml",
            &pack.read("crucible.toml").replace("[judge]", "timeout = \"2s\"\n[judge]"),
        );
        let ran = pack.run(&["--iterations", "1"]);
        ran.ended("finished", 0);
        assert_eq!(ran.rows()[1]["note"], expect);
        assert_eq!(ran.rows()[1]["decision"], "discard");
        assert_eq!(pack.read("workspace/counter.txt"), "0\n");
    }
}

#[test]
fn a_daemon_that_the_agent_leaves_is_dead_and_named_before_the_measurement() {
    let agent = format!(
        "{RAISE}; (setsid sh -c 'while :; do echo x >> growing.txt; sleep 0.01; done' >/dev/null 2>&1 &)"
    );
    let pack = sandboxed(&agent, COUNT, "");
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    assert!(!ran.rows()[1]["killed"].as_array().unwrap().is_empty(), "{}", ran.rows()[1]);
}

#[test]
fn a_sandbox_that_cannot_be_made_is_nobodys_fault_and_is_told_with_its_class() {
    let pack = sandboxed(RAISE, COUNT, "");
    let manifest = pack.read("crucible.toml");
    let gone = "openshell = { inherit_defaults = false, read_only_paths = [\"/nonexistent/tools\"] }";
    pack.write("crucible.toml", &manifest.replace("openshell = { inherit_defaults = false }", gone));
    let ran = pack.run(&["--iterations", "1"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "infra-dead"]);
    let task = ran.events("task_result").find(|line| line["task"] == "propose").unwrap();
    assert_eq!((&task["status"], task["transport"].is_string()), (&"transport".into(), true), "{task}");
}

#[test]
fn two_interrupts_end_a_turn_in_its_sandbox() {
    use nix::sys::signal::{Signal, kill};
    let pack = sandboxed(&format!("{RAISE}; echo begun; sleep 1000"), COUNT, "");
    let mut child = pack.command(&["--iterations", "5"]).spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    for mark in ["begun", "stop asked for"] {
        while !pack.log_text().contains(mark) {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        kill(pid, Signal::SIGINT).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(11));
    assert_eq!(pack.log().last().unwrap()["outcome"], "stopped");
    assert_eq!(pack.read("workspace/counter.txt"), "0\n");
    nothing_is_left(&pack.path("state"));
}

#[test]
fn nothing_is_left_when_the_engine_is_killed_and_the_next_run_goes_on() {
    let pack = sandboxed(&format!("{RAISE}; (setsid sleep 1000 &); echo begun; sleep 1000"), COUNT, "");
    let mut child = pack.command(&["--iterations", "1"]).spawn().unwrap();
    while !pack.log_text().contains("begun") {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&pack.path("state"));
    let manifest = pack.read("crucible.toml").replace("; (setsid sleep 1000 &); echo begun; sleep 1000", "");
    pack.write("crucible.toml", &manifest);
    pack.run(&["--iterations", "1", "--fresh"]).ended("finished", 0);
}

/// No mount of the run's state directory is seen from here, and no process is in a namespace that holds one.
fn nothing_is_left(state: &Path) {
    let state = std::fs::canonicalize(state).unwrap().display().to_string();
    let holds = |entry: &std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("mountinfo")).is_ok_and(|mounts| mounts.contains(&state))
    };
    // The kernel takes a moment to end a namespace: this waits for it, and would hang if something stayed.
    while std::fs::read_dir("/proc").unwrap().flatten().any(|entry| holds(&entry)) {
        std::thread::yield_now();
    }
}

#[test]
fn check_prints_the_layers_and_runs_no_turn() {
    let pack = sandboxed("touch /sandbox/ran", COUNT, "");
    let ran = pack.run(&["check"]);
    assert_eq!(ran.code(), 0, "{}{}", ran.stdout(), ran.stderr());
    for layer in ["network", "seccomp", "Landlock"] {
        let found = ran
            .stdout()
            .lines()
            .any(|line| line.starts_with("layer") && line.to_lowercase().contains(&layer.to_lowercase()));
        assert!(found, "{layer}: {}", ran.stdout());
    }
}

#[test]
fn an_ordinary_user_has_the_same_sandbox() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !nix::unistd::geteuid().is_root() {
        return skip(Skip::NotRoot);
    }
    let pack = sandboxed(&format!("{RAISE}; id -u > id.txt"), COUNT, "");
    let dir = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let (binary, own) = (dir.path().join("crucible"), dir.path().join("own"));
    std::fs::copy(crate::support::BINARY, &binary).unwrap();
    for name in ["crucible.toml", "measure.sh", "start/counter.txt"] {
        std::fs::create_dir_all(own.join(name).parent().unwrap()).unwrap();
        std::fs::copy(pack.path(name), own.join(name)).unwrap();
    }
    for path in ["", "start"] {
        std::os::unix::fs::chown(own.join(path), Some(65534), Some(65534)).unwrap();
    }
    let mut command = crate::support::program(binary.to_str().unwrap());
    command.args(["--iterations", "2"]).current_dir(&own).env("HOME", "/nonexistent").uid(65534).gid(65534);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(own.join("workspace/counter.txt")).unwrap(), "2\n");
}

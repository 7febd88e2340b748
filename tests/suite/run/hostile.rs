//! Whole runs whose agent takes away, or makes endless, what the engine stands on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use engine::sys::clock::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::in_place;
use crate::support::{COUNT, Pack, RAISE, Ran, Skip, git, program, skip};

/// No test waits longer for what must come.
const BOUND: Duration = Duration::from_secs(120);

fn waited_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = Clock::start();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(clock.monotonic() < BOUND, "{what} did not come");
        std::thread::yield_now();
    }
}

/// The child of a process that stages files.
fn staging_child(parent: u32) -> Option<Pid> {
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let after = stat.rsplit_once(") ")?.1.to_owned();
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let stages =
            command.starts_with(b"git\0add\0") || String::from_utf8_lossy(&command).contains("/git\0add\0");
        (stages && after.split(' ').nth(1)?.parse() == Ok(parent)).then(|| Pid::from_raw(pid))
    })
}

/// The git that stages the candidate, which holds a file `big`.
fn staging_of(pack: &Pack, engine: &std::process::Child) -> Pid {
    waited_for("the candidate", || pack.exists("workspace/big").then_some(()));
    waited_for("a git that stages it", || staging_child(engine.id()))
}

fn is_running(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, after)| !after.starts_with(['Z', 'X']))
}

/// As large as a candidate's file may be, so that git is at it for a while.
const LARGE: &str = "truncate -s 4G big";

#[test]
fn git_dies_with_an_engine_that_is_killed() {
    // Each is as large as is allowed, and all of them keep git busy for longer than the test waits.
    let agent = format!("for n in $(seq 300); do truncate -s 4G big$n; done; {LARGE}");
    let pack = Pack::new(&agent, COUNT, "");
    let mut engine = pack.command(&["--iterations", "1"]).spawn().unwrap();
    let staging = staging_of(&pack, &engine);
    assert!(is_running(staging));
    engine.kill().unwrap();
    engine.wait().unwrap();
    let clock = Clock::start();
    while is_running(staging) && clock.monotonic() < BOUND {
        std::thread::yield_now();
    }
    let left = is_running(staging);
    if left {
        kill(staging, Signal::SIGKILL).unwrap();
    }
    assert!(!left, "git outlived the engine");
}

#[test]
fn an_abort_ends_the_recording_of_a_candidate() {
    let pack = Pack::new(LARGE, COUNT, "");
    let engine = pack.command(&["--iterations", "1"]).spawn().unwrap();
    staging_of(&pack, &engine);
    let pid = Pid::from_raw(engine.id().try_into().unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    waited_for("the first signal's line", || pack.log_text().contains("stop").then_some(()));
    kill(pid, Signal::SIGINT).unwrap();
    let output = engine.wait_with_output().unwrap();
    let ran = Ran { output, log: pack.log() };
    assert_eq!(ran.outcome(), "stopped", "{}", ran.stderr());
    assert!(pack.log_text().contains("cancelled"), "{}", pack.log_text());
    assert_eq!(pack.git(&["status", "--porcelain"]), "", "the best is back");
}

#[test]
fn a_file_or_a_frozen_inject_that_claims_to_be_huge_costs_one_candidate() {
    for (harm, note) in [
        ("truncate -s 8T big", "a file of more than 4294967296 bytes: big"),
        ("truncate -s 8T .gitignore", ".gitignore"),
        ("rm -rf \"$PWD\"", "the workspace was removed or replaced"),
        ("d=$PWD; cd /; mv \"$d\" \"$d.moved\"; ln -s / \"$d\"", "the workspace was removed or replaced"),
    ] {
        let pack =
            Pack::new(&format!("{RAISE}; if [ ! -e ../once ]; then touch ../once; {harm}; fi"), COUNT, "");
        let ran = pack.run(&["--iterations", "2"]);
        ran.ended("finished", 0);
        assert_eq!(ran.decisions()[2], "keep", "{harm}: {}", ran.stderr());
        let row = ran.rows()[1].to_string();
        assert!(row.contains(note), "{harm}: {row}");
        assert_eq!(pack.read("workspace/counter.txt"), "1\n", "{harm}");
    }
    let pack = Pack::new(&format!("{RAISE}; truncate -s 8T measure.sh"), COUNT, "");
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.decisions(), ["baseline", "keep"], "{}", ran.stderr());
    assert_eq!(ran.rows()[1]["frozen_restored"][0], "measure.sh");
}

#[test]
fn a_judge_that_takes_the_workspace_away_costs_one_candidate() {
    let judge = format!(
        "{COUNT}if [ \"$(cat counter.txt)\" = 1 ] && [ ! -e ../once ]; then touch ../once; rm -rf \"$PWD\"; fi\n"
    );
    let pack = Pack::new(RAISE, &judge, "");
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions().last(), Some(&"keep"), "{}", ran.stderr());
    assert_eq!(pack.read("workspace/counter.txt"), "1\n");
}

#[test]
fn in_place_a_work_tree_that_was_taken_away_ends_the_run_and_says_where_the_commits_are() {
    let pack = in_place();
    let manifest =
        pack.read("crucible.toml").replace("> counter.txt", "> counter.txt; d=$PWD; cd ..; mv $d $d.moved");
    assert!(manifest.contains(".moved"));
    pack.write("crucible.toml", &manifest);
    git(&pack.path("."), &["commit", "-aqm", "an agent that moves everything away"]);
    // The state directory is elsewhere, or it would be moved with the rest.
    let state = tempfile::tempdir().unwrap();
    let at = state.path().join("state");
    let output = pack.command(&["--iterations", "1", "--state-dir", at.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let log = fs::read_to_string(at.join("session.jsonl")).unwrap();
    let moved = pack.path("").with_extension("moved");
    let moved_there = moved.exists();
    let _ = fs::rename(&moved, pack.path(""));
    assert!(moved_there && output.status.code() != Some(0), "{text}");
    let kept_in = at.join("git").display().to_string();
    assert!(log.contains("removed or replaced") && log.contains(&kept_in), "{log}");
}

#[test]
fn a_state_directory_that_loses_a_part_is_named() {
    for (part, harm) in
        [("state/git", "rm -rf ../state/git"), ("state/frozen", "rm -rf ../state/frozen; echo > measure.sh")]
    {
        let pack = Pack::new(&format!("{RAISE}; {harm}"), COUNT, "");
        let ran = pack.run(&["--iterations", "1"]);
        assert_eq!(ran.outcome(), "error", "{part}");
        let reason = ran.log.last().unwrap()["reason"].to_string();
        assert!(reason.contains(part) && reason.contains("a part of the state directory"), "{reason}");
    }
}

#[test]
fn a_mount_in_the_workspace_is_named_with_the_remedy() {
    if !nix::unistd::geteuid().is_root() {
        return skip(Skip::NotRoot);
    }
    let pack = Pack::new("mkdir m && mount -t tmpfs none m", COUNT, "");
    let run = format!("exec {} --iterations 1", crate::support::BINARY);
    let mut command = program("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &run]).current_dir(pack.path("."));
    let output = command.output().unwrap();
    let log = pack.log_text();
    assert_ne!(output.status.code(), Some(0), "{log}");
    let place = Path::new("workspace/m").display().to_string();
    assert!(
        log.contains(&place) && log.contains("umount"),
        "{log}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

//! What a dead engine leaves beside its log: processes, locks, a full disk.

use std::path::Path;

use super::{class, cut, end, killed_at, last, noting, turns, until_there};
use crate::support::{COUNT, Pack, RAISE, Skip, program, skip};

/// The processes whose environment holds the mark of a state directory.
fn marked(pack: &Pack) -> Vec<i32> {
    let mark = pack.read("state/mark");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.windows(mark.len()).any(|bytes| bytes == mark.as_bytes())
    })
    .collect()
}

/// The children of a process.
fn children(of: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parent = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    pids.filter(|pid| parent(pid) == Some(of)).collect()
}

#[test]
fn row_30_what_a_dead_engine_and_its_keeper_left_running_is_ended() {
    let agent = format!("{RAISE}; [ -e ../go ] || {{ touch ../begun; setsid sleep 1000; }}");
    let pack = Pack::new(&agent, COUNT, "");
    let mut engine = pack.command(&["--iterations", "1"]).spawn().unwrap();
    until_there(&pack, "begun", &mut engine);
    // The shell dies with its keeper; what left its session does not, once it is there.
    let named = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    while !marked(&pack).iter().any(|pid| named(pid) == "sleep\n") {
        std::thread::yield_now();
    }
    let keepers = children(engine.id());
    // All stopped first, so that none sees the others die.
    for pid in &keepers {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGSTOP).unwrap();
    }
    engine.kill().unwrap();
    engine.wait().unwrap();
    keepers.into_iter().for_each(end);
    assert!(!marked(&pack).is_empty(), "something outlived both");
    pack.write("go", "");
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!(marked(&pack), Vec::<i32>::new());
    let told = ran.events("note").any(|line| line["msg"].as_str().unwrap().contains("had left running: s"));
    assert!(told, "{:?}", ran.events("note").collect::<Vec<_>>());
}

#[test]
fn row_28_nothing_carries_the_mark_after_a_time_limit() {
    let agent = "(setsid sh -c 'while :; do sleep 0.01; done' &); touch ../begun; sleep 1000";
    let pack = Pack::new(agent, COUNT, "");
    pack.write("crucible.toml", &pack.read("crucible.toml").replace("[judge]", "timeout = \"1s\"\n[judge]"));
    let mut engine = pack.command(&["--iterations", "1"]).spawn().unwrap();
    until_there(&pack, "begun", &mut engine);
    assert!(!marked(&pack).is_empty());
    assert!(engine.wait().unwrap().success());
    assert_eq!(marked(&pack), Vec::<i32>::new());
}

#[test]
fn row_43_a_lock_that_a_dead_git_left_is_cleared_with_a_note() {
    let pack = Pack::new(&noting(), COUNT, "");
    pack.run(&["--iterations", "1"]);
    cut(&pack, |log| last(log, "shutdown"));
    for lock in ["state/git/index.lock", "workspace/.git/index.lock", "workspace/.git/HEAD.lock"] {
        pack.write(lock, "");
    }
    let ran = pack.run(&["--resume", "--iterations", "2"]);
    ran.ended("finished", 0);
    assert_eq!((class(&ran).as_str(), turns(&pack)), ("died_between_iterations", 2));
    let notes: Vec<&str> = ran.events("note").map(|line| line["msg"].as_str().unwrap()).collect();
    assert!(notes.iter().any(|note| note.contains("index.lock, left by a process that died")), "{notes:?}");
}

#[test]
fn row_15_a_full_disk_is_a_clean_stop_and_the_run_goes_on_after_room_is_made() {
    // The state directory is a file system of 1 MB of its own, which the run fills with the log of its agent.
    let agent = format!("[ -e ../go ] || head -c 200000 /dev/urandom | od -c; {}", noting());
    let pack = Pack::new(&agent, COUNT, "");
    std::fs::create_dir(pack.path("state")).unwrap();
    let crucible = crate::support::BINARY;
    let script = format!(
        "mount -t tmpfs -o size=1m,mode=700 none state || exit 99; head -c 400000 /dev/zero > state/ballast; touch state/session.jsonl; \
         {crucible} --iterations 9 --ui headless; echo first $?; tail -n 3 state/session.jsonl; \
         touch go; rm state/ballast; mount -o remount,size=40m state; \
         {crucible} --resume --iterations 3 --ui headless; echo second $?; cp state/session.jsonl log"
    );
    let output =
        program("unshare").args(["-rm", "sh", "-c", &script]).current_dir(pack.path(".")).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(99) || err.contains("unshare") {
        return skip(Skip::NoNamespaces);
    }
    assert!(out.contains("first 1"), "{out}{err}");
    // Whoever met the full disk first says so: git, a copy of its index, or the log itself.
    let told = ["no storage space", "No space left on device", "space\""];
    assert!(told.iter().any(|words| err.contains(words) || out.contains(words)), "{out}{err}");
    assert!(out.contains("second 0"), "{out}{err}");
    let log = pack.read("log");
    let rows = log.lines().filter(|line| line.contains("\"kind\":\"row\"")).count();
    assert_eq!(rows, 4, "a baseline and three: {out}");
    assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}

#[test]
fn row_10_there_is_nothing_to_resume_in_a_directory_without_a_run() {
    for files in [&[][..], &["state/session.jsonl"], &["state/lock", "state/workspace.json"]] {
        let pack = Pack::new(&noting(), COUNT, "");
        for file in files {
            pack.write(file, "");
        }
        let ran = pack.run(&["--resume", "--iterations", "1"]);
        ran.ended("finished", 0);
        let told = ran.events("note").any(|line| line["msg"].as_str().unwrap().contains("no run to resume"));
        assert!(told, "{files:?}");
    }
    let pack = Pack::new(&noting(), COUNT, "");
    pack.write("state/session.jsonl", "{\"v\":1,\"kind\":\"no");
    let torn = pack.run(&["--resume", "--iterations", "1"]);
    assert!(torn.code() == 0, "{}", torn.stderr());
    assert!(Path::new(&pack.path("state/report.json")).exists());
}

#[test]
fn a_setup_that_was_killed_is_done_again() {
    let pack = Pack::new(&noting(), COUNT, "");
    let manifest = pack.read("crucible.toml");
    let setup = "setup_cmd = \"mkdir workspace; cp start/counter.txt workspace; [ -e go ] || { touch begun; sleep 1000; }\"\n";
    pack.write("crucible.toml", &manifest.replace("[workspace]\n", &format!("[workspace]\n{setup}")));
    killed_at(&pack, &["--iterations", "1"], "begun");
    pack.write("go", "");
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
}

#[test]
fn row_04_the_candidate_of_a_judge_that_was_killed_is_in_a_ref() {
    let judge = format!("[ \"$(cat counter.txt)\" = 0 ] || kill -9 $$\n{COUNT}");
    let pack = Pack::new(&noting(), &judge, "");
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.decisions(), ["baseline", "discard"]);
    let refs = pack.git(&["for-each-ref", "--format=%(objectname)", "refs/crucible/candidates"]);
    assert_eq!(pack.git(&["show", &format!("{}:counter.txt", refs.lines().last().unwrap())]), "1\n");
}

#[test]
fn row_24_and_25_a_background_child_and_an_open_input_hold_nothing_up() {
    let pack = Pack::new(&format!("sleep 600 & cat > /dev/null; {RAISE}; echo done"), COUNT, "");
    let ran = pack.run(&["--iterations", "1"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    // It may be caught before it is `sleep`.
    let rows = ran.rows();
    let killed = rows[1]["killed"].as_array().unwrap();
    assert!(killed.len() == 1 && (killed[0] == "sleep" || killed[0] == "sh"), "{killed:?}");
}

#[test]
fn a_resume_that_is_refused_costs_the_open_iteration_nothing() {
    let judge =
        format!("[ ! -e turns ] || {{ touch ../there; sleep 1000; }}; {COUNT}").replace("turns", "../hold");
    let pack = Pack::new(&format!("{}; [ -e ../go ] || touch ../hold", noting()), &judge, "");
    killed_at(&pack, &["--iterations", "1"], "there");
    std::fs::rename(pack.path("state/git"), pack.path("away")).unwrap();
    for _ in 0..2 {
        let ran = pack.run(&["--resume"]);
        assert_eq!((ran.outcome(), ran.code()), ("error", 4), "{}", ran.stderr());
    }
    std::fs::rename(pack.path("away"), pack.path("state/git")).unwrap();
    std::fs::remove_file(pack.path("hold")).unwrap();
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!((ran.decisions(), turns(&pack)), (vec!["baseline", "keep"], 1));
    assert_eq!(pack.run(&["replay", "state/session.jsonl"]).code(), 0);
}

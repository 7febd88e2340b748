//! What a turn may do to the machine it runs on: the turn ends within its limit, and the result says which.

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use driver::turn::{Ended, Exit};

use crate::{Test, lab::Lab};

pub(crate) const TESTS: &[Test] = &[
    ("memory_that_runs_out_ends_the_command_alone", memory),
    ("a_fork_bomb_ends_with_the_turn", fork_bomb),
    ("a_full_disk_is_an_error_inside", disk),
    ("a_full_tmp_is_an_error_inside_and_leaves_the_workspace", tmp),
    ("descriptors_run_out_inside_alone", descriptors),
    ("a_daemon_dies_with_the_turn_and_is_named", daemon),
    ("a_killed_engine_leaves_no_process_and_no_mount", killed_engine),
    ("eight_turns_at_once_do_not_meet", together),
];

fn root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn memory(lab: &Lab) {
    let mut spec = lab.spec("python3 -c 'x = bytearray(400 << 20)'; echo after: $?; echo kept > kept");
    spec.limits.memory = 128 << 20;
    let seen = lab.run(spec).unwrap();
    assert_eq!(seen.end.exit, Exit::Code(0), "{seen:?}");
    assert!(!seen.out.contains("after: 0"), "{seen:?}");
    assert_eq!(lab.read("kept"), "kept\n");
    assert_eq!(seen.end.limits_hit.contains(&"memory".to_owned()), root(), "{seen:?}");
}

fn fork_bomb(lab: &Lab) {
    let mut spec = lab.spec("bomb() { bomb | bomb & }; bomb; sleep 600");
    spec.limits.processes = 100;
    spec.timeout = Some(Duration::from_millis(1500));
    let seen = lab.run(spec).unwrap();
    assert!(matches!(seen.end.ended, Ended::TimedOut | Ended::Itself), "{:?}", seen.end);
    assert_eq!(seen.end.limits_hit.contains(&"processes".to_owned()), root(), "{:?}", seen.end);
}

fn disk(lab: &Lab) {
    let mut spec = lab
        .spec("head -c 20000000 /dev/zero > big; echo $?; rm -f nothing; head -c 30000000 /dev/zero >> big");
    spec.limits.disk = 8 << 20;
    let seen = lab.run(spec).unwrap();
    assert!(seen.err.contains("No space left"), "{seen:?}");
    assert_eq!(seen.end.limits_hit, ["disk"], "{seen:?}");
}

fn tmp(lab: &Lab) {
    let mut spec = lab.spec("head -c 20000000 /dev/zero > /tmp/big; echo fine > fine");
    spec.limits.tmp = 4 << 20;
    let seen = lab.run(spec).unwrap();
    assert!(seen.err.contains("No space left"), "{seen:?}");
    assert_eq!((lab.read("fine").as_str(), seen.end.limits_hit), ("fine\n", vec!["tmp".to_owned()]));
    let mut spec = lab.spec("for i in $(seq 10); do head -c 1000000 /dev/zero > ~/$i; head -c 1000000 /dev/zero > /dev/shm/$i; done");
    spec.limits.tmp = 4 << 20;
    assert!(lab.run(spec).unwrap().err.contains("No space left"));
}

fn descriptors(lab: &Lab) {
    let script = "import os\nn = 0\ntry:\n  while True: os.dup(0); n += 1\nexcept OSError as e: print(n < 64, e.errno)";
    let mut spec = lab.program(["python3", "-c", script]);
    spec.limits.open_files = 64;
    assert_eq!(lab.run(spec).unwrap().out, "True 24\n");
}

fn daemon(lab: &Lab) {
    let mark = format!("77{}", std::process::id());
    let seen = lab.sh(&format!("(setsid sh -c 'trap \"\" TERM HUP; sleep {mark} & wait' >/dev/null 2>&1 &); until grep -qs sleep /proc/[0-9]*/comm; do :; done; echo left"));
    assert_eq!((seen.out.as_str(), seen.end.exit), ("left\n", Exit::Code(0)));
    assert!(seen.end.killed.iter().any(|killed| killed.name == "sleep"), "{:?}", seen.end.killed);
    assert!(!runs(&mark), "the daemon survived");
}

/// Whether a process of the host has this among its arguments.
fn runs(mark: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|arg| arg == mark.as_bytes())
    })
}

/// The engine of the test that kills it: runs one turn that never ends.
pub(crate) fn victim(dir: &str, mark: &str) {
    let space = Path::new(dir).join("space");
    let gateway =
        driver::Gateway::embedded(driver::GatewayConfig { state_dir: Path::new(dir).join("state") }).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = driver::Client::unix(gateway.socket()).await.unwrap();
        let script = format!("echo partial > partial; echo up; sleep {mark}");
        let spec = driver::turn::TurnSpec {
            name: "victim".to_owned(),
            workspace: space,
            command: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
            ..Default::default()
        };
        let mut sink = |_, _: &[u8]| println!("up");
        drop(driver::turn::run(&client, spec, Default::default(), &mut sink).await);
    });
}

fn killed_engine(lab: &Lab) {
    use std::io::BufRead;
    let dir = lab.dir().join("victim");
    std::fs::create_dir_all(dir.join("space")).unwrap();
    let mark = format!("78{}", std::process::id());
    let mut command = Command::new("/proc/self/exe");
    command.arg0("sandbox").arg(crate::VICTIM).arg(&dir).arg(&mark).stdout(Stdio::piped());
    let mut engine = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(engine.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    assert!(runs(&mark), "the turn does not run");
    engine.kill().unwrap();
    engine.wait().unwrap();
    let soon = std::time::Instant::now() + Duration::from_secs(20);
    while runs(&mark) {
        assert!(std::time::Instant::now() < soon, "a process of the turn survived its engine");
        std::thread::yield_now();
    }
    assert!(!dir.join("space/partial").exists());
    let left =
        |what: &str| Command::new("find").args(["/sys/fs/cgroup", "-name", what]).output().unwrap().stdout;
    let cgroups = format!("{}*", std::fs::read_to_string(dir.join("state/gateway/mark")).unwrap());
    assert_eq!(!left(&cgroups).is_empty(), root(), "the test has nothing to sweep");
    let again = driver::Gateway::embedded(driver::GatewayConfig { state_dir: dir.join("state") }).unwrap();
    assert_eq!(String::from_utf8_lossy(&left(&cgroups)), "");
    again.stop().unwrap();
}

fn together(lab: &Lab) {
    let results: Vec<String> = std::thread::scope(|scope| {
        let turns: Vec<_> = (0..8)
            .map(|index| {
                let space = lab.dir().join(format!("space-{index}"));
                std::fs::create_dir(&space).unwrap();
                let mut spec = lab.spec(&format!("echo {index} > mine; ls; cat mine"));
                spec.workspace = space;
                scope.spawn(move || lab.run(spec).unwrap().out)
            })
            .collect();
        turns.into_iter().map(|turn| turn.join().unwrap()).collect()
    });
    for (index, out) in results.iter().enumerate() {
        assert_eq!(*out, format!("mine\n{index}\n"));
    }
}

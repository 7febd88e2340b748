//! Many turns, and what is left of them: nothing. Run with `--soak`; and with `--bench`, how long each takes.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use driver::{
    Client,
    client::SandboxSpec,
    error::Step,
    exec::{ExecEvent, ExecSpec},
    wire::config::DriverConfig,
};

use crate::{Test, lab::Lab};

pub(crate) const TESTS: &[Test] =
    &[("five_hundred_turns_in_a_row_leave_nothing", in_a_row), ("eight_at_once_leave_nothing", at_once)];

/// What is run with the other tests.
pub(crate) const SMOKE: &[Test] = &[("a_little_of_the_benchmark_works", bench_works)];

const TURNS: usize = 500;
const WARM_UP: usize = 20;

/// What a process and its host hold.
#[derive(Debug, PartialEq)]
struct Held {
    descriptors: usize,
    mounts: usize,
    processes: usize,
    cgroups: usize,
    files: usize,
}

fn count(command: &str) -> usize {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

fn held(lab: &Lab) -> Held {
    let mark = std::fs::read_to_string(lab.dir().join("state/gateway/mark")).unwrap();
    Held {
        descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
        processes: count(&format!(
            "ps -eo ppid=,comm= | awk '$1 == {}' | grep -vc ' sh$'; true",
            std::process::id()
        )),
        cgroups: count(&format!("find /sys/fs/cgroup -name '{mark}*' | wc -l")),
        files: count(&format!("find {} | wc -l", lab.dir().join("state").display())),
    }
}

/// A connection that was closed is let go by the other side a moment later.
fn settles(lab: &Lab, before: &Held) {
    let soon = Instant::now() + Duration::from_secs(10);
    loop {
        let mut after = held(lab);
        after.descriptors = after.descriptors.max(before.descriptors);
        if after == *before {
            return;
        }
        assert!(Instant::now() < soon, "{after:?} is more than {before:?}");
        std::thread::yield_now();
    }
}

/// Resident memory in KiB.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn turn(lab: &Lab, space: &Path, index: usize) {
    let mut spec = lab.spec(&format!("echo {index} > n; mkdir -p d/{index}; (sleep 100 &)"));
    spec.workspace = space.to_owned();
    let seen = lab.run(spec).unwrap();
    assert_eq!(std::fs::read_to_string(space.join("n")).unwrap(), format!("{index}\n"), "{seen:?}");
}

fn in_a_row(lab: &Lab) {
    (0..WARM_UP).for_each(|index| turn(lab, &lab.space(), index));
    let (before, memory_before) = (held(lab), memory());
    (0..TURNS).for_each(|index| turn(lab, &lab.space(), index));
    settles(lab, &before);
    let grown = memory().saturating_sub(memory_before);
    assert!(grown < 8 * 1024, "{grown} KiB more after {TURNS} turns");
}

fn at_once(lab: &Lab) {
    turn(lab, &lab.space(), 0);
    let before = held(lab);
    std::thread::scope(|scope| {
        for worker in 0..8 {
            scope.spawn(move || {
                let space = lab.dir().join(format!("space-{worker}"));
                std::fs::create_dir(&space).unwrap();
                (0..TURNS / 8).for_each(|index| turn(lab, &space, index));
            });
        }
    });
    settles(lab, &before);
}

/// How much the benchmark does.
#[derive(Clone, Copy)]
struct Work {
    rounds: usize,
    /// Directories of the workspace, and files of each.
    wide: usize,
    turns: usize,
}

/// Create, exec `true`, delete, as one cycle through the whole gRPC path; and a workspace of 10,000 files.
pub(crate) fn bench() {
    measured(&Lab::new(), Work { rounds: 200, wide: 100, turns: 50 });
}

/// A little of it, which says that it works and nothing about time.
fn bench_works(lab: &Lab) {
    measured(lab, Work { rounds: 8, wide: 10, turns: 2 });
}

fn measured(lab: &Lab, work: Work) {
    let rounds = work.rounds;
    let one = lab.block_on(async {
        let client = Client::unix(lab.gateway().socket()).await.unwrap();
        let mut times = Vec::new();
        for index in 0..rounds {
            times.push(cycle(&client, &format!("b-{index}"), DriverConfig::default()).await);
        }
        times
    });
    phases("one after another", &one);
    let eight = lab.block_on(async {
        let client = Client::unix(lab.gateway().socket()).await.unwrap();
        let worker = |worker: usize| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                for index in 0..rounds / 8 {
                    times.push(cycle(&client, &format!("b-{worker}-{index}"), DriverConfig::default()).await);
                }
                times
            })
        };
        let workers: Vec<_> = (0..8).map(worker).collect();
        let mut times = Vec::new();
        for worker in workers {
            times.extend(worker.await.unwrap());
        }
        times
    });
    phases("eight at once", &eight);
    workspace(lab, work);
}

/// The whole, and of it what create, exec and delete took.
async fn cycle(client: &Client, name: &str, config: DriverConfig) -> [Duration; 4] {
    let started = Instant::now();
    let spec = SandboxSpec { name: name.to_owned(), config, ..SandboxSpec::default() };
    client.create(&spec).await.unwrap();
    client.ready(name).await.unwrap();
    let created = started.elapsed();
    run(client, name, "true").await;
    let ran = started.elapsed();
    client.delete(name).await.unwrap();
    let whole = started.elapsed();
    [whole, created, ran - created, whole - ran]
}

async fn run(client: &Client, name: &str, script: &str) {
    let command = if script == "true" {
        vec!["/bin/true".to_owned()]
    } else {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    };
    let mut running =
        client.exec(name, ExecSpec { command, ..ExecSpec::default() }, Step::Exec).await.unwrap();
    while !matches!(running.next().await.unwrap(), ExecEvent::Exit { .. }) {}
}

fn workspace(lab: &Lab, work: Work) {
    let Work { wide, turns, .. } = work;
    for dir in 0..wide {
        for file in 0..wide {
            lab.write(&format!("d{dir}/f{file}"), vec![b'x'; 20_000]);
        }
    }
    let edits = "for i in 0 1 2 3 4 5 6 7 8 9; do echo edit >> d$i/f$i; done";
    let (mut uploads, mut syncs) = (Vec::new(), Vec::new());
    lab.block_on(async {
        let client = Client::unix(lab.gateway().socket()).await.unwrap();
        for index in 0..turns {
            let name = format!("w-{index}");
            let config = DriverConfig { workspace: Some(lab.space()), ..DriverConfig::default() };
            let started = Instant::now();
            client
                .create(&SandboxSpec { name: name.clone(), config, ..SandboxSpec::default() })
                .await
                .unwrap();
            client.ready(&name).await.unwrap();
            uploads.push(started.elapsed());
            run(&client, &name, edits).await;
            let started = Instant::now();
            let back = client.sync_back(&name, false).await.unwrap();
            syncs.push(started.elapsed());
            assert_eq!(back.changed.len(), 10);
            client.delete(&name).await.unwrap();
        }
    });
    let size = format!("{} files, {} MB", wide * wide, wide * wide / 50);
    report(&format!("{size}: a sandbox with them, ready"), uploads);
    report(&format!("{size}: end the sandbox and sync ten edits"), syncs);
}

fn phases(how: &str, times: &[[Duration; 4]]) {
    for (index, what) in
        ["create, exec true, delete", "  of it create", "  of it exec true", "  of it delete"]
            .iter()
            .enumerate()
    {
        report(&format!("{what}: {how}"), times.iter().map(|times| times[index]).collect());
    }
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    println!("{what}: p50 {:.2} ms, p99 {:.2} ms, {} times", at(50), at(99), times.len());
}

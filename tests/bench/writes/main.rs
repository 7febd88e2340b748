//! Turns one disk into what a permit with its durable record costs there, beside a bare append with fdatasync in the same run.
//! It refuses to assert: machines differ, and the table is for reading.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark's report")]
#![expect(clippy::disallowed_methods, clippy::indexing_slicing, reason = "it reads the clock")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use broker::writes::{Admitted, Gate, Opened, Points, Wanted};
use policy::outputs::{Declaration, Declared, Kind, Outcome, Outputs, RunContext, Scope, Target};
use policy::record::Redactor;

/// How many of each.
const COUNT: usize = 2_000;

fn main() {
    // The current directory's disk: what is in memory has nothing to wait for.
    let dir = tempfile::tempdir_in(".").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gate = runtime.block_on(Gate::open(opened(dir.path()))).unwrap();
    let mut bare = file(&dir.path().join("bare"));
    let line = [b'x'; 240];
    let (mut appends, mut permits) = (Vec::new(), Vec::new());
    // In turns, each right after another wait for the disk, so that both meet it alike.
    for _ in 0..COUNT {
        let begun = Instant::now();
        bare.write_all(&line).unwrap();
        bare.sync_data().unwrap();
        appends.push(begun.elapsed());
        let begun = Instant::now();
        let admitted = runtime.block_on(gate.admit(wanted())).unwrap();
        permits.push(begun.elapsed());
        let Admitted::Permit(permit) = admitted else { return };
        runtime.block_on(permit.end(Outcome::Done, "{}")).unwrap();
    }
    println!("{:<28} {:>10} {:>10}", "microseconds", "p50", "p99");
    let (append, permit) = (percentiles(&mut appends), percentiles(&mut permits));
    for (name, found) in [("append + fdatasync", append), ("permit + durable record", permit)] {
        println!("{name:<28} {:>10} {:>10}", found.0.as_micros(), found.1.as_micros());
    }
    let ratio = |permit: Duration, append: Duration| permit.as_secs_f64() / append.as_secs_f64();
    println!("{:<28} {:>10.2} {:>10.2}", "ratio", ratio(permit.0, append.0), ratio(permit.1, append.1));
}

fn file(path: &Path) -> File {
    OpenOptions::new().read(true).append(true).create(true).open(path).unwrap()
}

fn opened(dir: &Path) -> Opened {
    let target = Some(Target::Fixed(Scope::parse("PROJ-1").unwrap()));
    let mut declared = Declared::default();
    declared.declare(Kind::TrackerComment, Declaration { count: u32::MAX, target }).unwrap();
    Opened {
        outputs: Outputs::resolve(&declared, &RunContext::default()),
        ledger: file(&dir.join("outputs.jsonl")),
        session_log: file(&dir.join("session.jsonl")),
        outbox: dir.join("outbox"),
        redactor: Redactor::default(),
        pace: (u64::from(u32::MAX), u64::from(u32::MAX)),
        calls: u64::MAX,
        points: Points::default(),
    }
}

fn wanted() -> Wanted<'static> {
    let args = "0000000000000000000000000000000000000000000000000000000000000000";
    let kind = Kind::TrackerComment;
    Wanted { kind, tool: "tracker_comment", target: None, key: None, args, turn: "turn-1" }
}

fn percentiles(all: &mut [Duration]) -> (Duration, Duration) {
    all.sort_unstable();
    (all[all.len() / 2], all[all.len() * 99 / 100])
}

//! Turns logs that the loop's own steps wrote into how fast they are folded beside what else reads such lines, how long a durable
//! decision takes beside a bare append and flush, and how long a long run takes to be gone on with. It refuses to assert: machines
//! differ, and the table is for reading.
//!
//! `cargo bench -p engine --bench log [-- LINES]`, 1,000,000 lines unless said. It writes below the temporary directory.
//! `cargo test` runs a little of it, so that it stays whole.
//! Peers are `jq` and `python3`, where they are installed.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark's report")]
#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "it starts programs and reads the clock"
)]
#![expect(clippy::as_conversions, reason = "numbers for a person")]

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use engine::decide::Rule;
use engine::judge::Reading;
use engine::log::{AgentEvent, Durability, Lines, LogReader, SessionEvent, SessionLog};
use engine::run::replay::Replay;
use engine::run::{Candidate, Effect, Event, EventKind, Graph, Job, State, TaskEnd, TaskReport, Terms, step};
use engine::score::Direction;
use engine::sys::clock::Clock;

/// How much is measured: lines of the log, decisions, rows of the run that is resumed.
const WHOLE: (usize, usize, usize) = (1_000_000, 2_000, 10_000);
const SMOKE: (usize, usize, usize) = (10_000, 20, 50);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let smoke = !args.iter().any(|arg| arg == "--bench");
    if smoke && !args.iter().filter(|arg| !arg.starts_with('-')).all(|word| "log-smoke".contains(word)) {
        return;
    }
    let (lines, decisions, rows) = if smoke { SMOKE } else { WHOLE };
    let lines = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(lines);
    let dir = tempfile::tempdir().unwrap();
    fold(dir.path(), lines, &Size { diff: 1, agent_lines: 0 });
    // As much in a row as a real agent leaves, and what it says on the way.
    fold(dir.path(), lines / 10, &Size { diff: 40, agent_lines: 12 });
    decide(dir.path(), decisions);
    resume(dir.path(), rows);
}

/// How much is in an iteration besides its decision.
struct Size {
    /// Hunks of its patch.
    diff: usize,
    /// Lines that its agent says.
    agent_lines: usize,
}

/// Writes a log of so many lines by the loop's own steps, and folds it again.
fn fold(dir: &Path, lines: usize, size: &Size) {
    let path = dir.join("session.jsonl");
    let rows = write_log(&path, lines, size);
    let bytes = fs::metadata(&path).unwrap().len();
    let bare = timed(|| {
        let mut reader = BufReader::new(File::open(&path).unwrap());
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).unwrap() > 0 {
            line.clear();
        }
    });
    let (mut seen, mut settled) = (0, 0);
    let folded = timed(|| {
        let mut replay = Replay::new(Graph::autoresearch(), None);
        for entry in LogReader::open(&path).unwrap() {
            replay.see(&entry.unwrap()).unwrap();
        }
        let replayed = replay.finish().unwrap();
        (seen, settled) = (replayed.lines, replayed.state.counts.total());
    });
    assert!(u64::from(settled) + 1 == rows as u64, "{settled} of {rows}");
    println!("fold: {seen} lines, of them {rows} rows, {} MB", bytes / 1_000_000);
    let shown = |took: Duration, what: &str| println!("  {:>8.2} s  {what}", took.as_secs_f64());
    shown(bare, "read line by line and thrown away");
    shown(folded, &format!("folded, {:.0} lines a second", seen as f64 / folded.as_secs_f64()));
    let values = timed(|| {
        let mut lines = Lines::open(&path).unwrap();
        while let Some(line) = lines.next_line().unwrap() {
            serde_json::from_slice::<serde_json::Value>(line).unwrap();
        }
    });
    let beside =
        |took: Duration| format!("the fold takes {:.2} of it", folded.as_secs_f64() / took.as_secs_f64());
    shown(values, &format!("each line made a `serde_json::Value` and thrown away; {}", beside(values)));
    let python = "import json, sys\nfor line in open(sys.argv[1], 'rb'): json.loads(line)";
    for (name, args) in [("jq", ["-n", "reduce inputs as $line (0; . + 1)"]), ("python3", ["-c", python])] {
        let mut peer = Command::new(name);
        peer.args(args).arg(&path).stdout(Stdio::null());
        let mut ran = None;
        let took = timed(|| ran = peer.status().ok().filter(std::process::ExitStatus::success));
        match ran {
            Some(_) => shown(took, &format!("each line read by {name}; {}", beside(took))),
            None => println!("  {name} is left out: it cannot be started here"),
        }
    }
}

fn write_log(path: &Path, lines: usize, size: &Size) -> usize {
    let mut out = BufWriter::new(File::create(path).unwrap());
    let direction = Direction::Higher;
    let terms = Terms {
        graph: Graph::autoresearch(),
        rule: Rule::of(direction),
        objective: "score".to_owned(),
        iterations: u32::MAX,
        max_cost: None,
        goal: "up".to_owned(),
        max_park: None,
    };
    let start = SessionEvent::Start {
        goal: "up".to_owned(),
        gate: "score".to_owned(),
        model: "model".to_owned(),
        namespace: String::new(),
        iters_total: u32::MAX,
        max_cost: None,
        max_secs: None,
        max_park_secs: None,
        direction: Some(direction),
        tiebreak_direction: Some(direction),
    };
    let (mut written, mut rows) = (0, 0);
    let mut write = |event: &SessionEvent| {
        let body = serde_json::to_string(event).unwrap();
        written += 1;
        writeln!(out, "{{\"v\":1,\"seq\":{written},\"ts\":\"2026-01-02T03:04:05.678Z\",{}", &body[1..])
            .unwrap();
        rows += usize::from(matches!(event, SessionEvent::Row { .. }));
        written
    };
    write(&start);
    let text =
        "The tail of the distribution is dominated by the flush in the writer; trying a larger batch.\n"
            .repeat(5);
    let said = SessionEvent::Agent { event: AgentEvent::Text { text }, task: None };
    let mut state = State::new(terms);
    let mut inbox = VecDeque::from([EventKind::Ready]);
    let mut done = false;
    while let Some(kind) = inbox.pop_front() {
        let (next, effects) = step(state, Event { at: Duration::ZERO, kind });
        for effect in effects {
            match effect {
                Effect::Log(event, _) => {
                    done |= write(&event) >= lines && matches!(*event, SessionEvent::Budget { .. });
                    if matches!(*event, SessionEvent::AgentStart { .. }) {
                        for _ in 0..size.agent_lines {
                            write(&said);
                        }
                    }
                }
                Effect::Run(job) if !done => inbox.push_back(answer(&job, next.iter, size.diff)),
                _ => {}
            }
        }
        state = next;
    }
    out.flush().unwrap();
    rows
}

/// A world in which each tenth candidate is better than the best before it.
fn answer(job: &Job, iter: u32, hunks: usize) -> EventKind {
    let end = |task, report| {
        let (killed, frozen_restored) = (Vec::new(), Vec::new());
        EventKind::Task(Box::new(TaskEnd { task, report, killed, frozen_restored, secs: 0.25 }))
    };
    match *job {
        Job::Propose { task, .. } | Job::Agent { task, .. } => end(task, TaskReport::Turned(Box::default())),
        Job::Record { task, .. } => {
            let diff = "diff --git a/counter.txt b/counter.txt\n--- a/counter.txt\n+++ b/counter.txt\n@@ -1 +1 @@\n-1\n+2\n".repeat(hunks);
            let candidate = Candidate {
                commit: Some(format!("{iter:040x}")),
                changed: true,
                diff,
                diffstat: " counter.txt | 2 +-\n".to_owned(),
                ..Candidate::default()
            };
            end(task, TaskReport::Recorded { candidate: Box::new(candidate) })
        }
        Job::Apply { task } => end(task, TaskReport::Applied { failure: None }),
        Job::Measure { task, .. } => {
            let score = if iter.is_multiple_of(10) { iter } else { 0 };
            let text = format!("{{\"valid\":true,\"score\":{score}.5,\"note\":\"p99=12.5ms\"}}");
            let reading: Reading = serde_json::from_str(&text).unwrap();
            end(task, TaskReport::Measured { reading, frozen: Vec::new(), shown: String::new() })
        }
        Job::Snapshot => EventKind::Snapshotted(Ok(format!("{iter:040x}"))),
        Job::Restore { .. } => EventKind::Restored(Ok(())),
        Job::Recall { .. } => EventKind::Recalled(Ok(Box::default())),
        Job::Wait { .. } => EventKind::Waited,
        Job::Hold { .. } => EventKind::Released { timed_out: false },
    }
}

/// A durable decision beside the same bytes appended and flushed.
fn decide(dir: &Path, decisions: usize) {
    let event = SessionEvent::Note { msg: "x".repeat(600) };
    let open = |name: &str| {
        let path = dir.join(name);
        let file = File::options().read(true).append(true).create(true).open(&path).unwrap();
        (path, file)
    };
    let (path, file) = open("decisions.jsonl");
    let mut log = SessionLog::new(file, &path, Clock::start()).unwrap();
    let (_, mut bare) = open("bare");
    let line = vec![b'x'; 690];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..decisions {
        ours.push(timed(|| assert!(log.append(&event, Durability::Durable).is_ok())));
        theirs.push(timed(|| bare.write_all(&line).and_then(|()| bare.sync_data()).unwrap()));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!("decision: median of {decisions}, in turn");
    println!("  {:>8.1} µs  a line appended and flushed by hand", theirs.as_secs_f64() * 1e6);
    println!(
        "  {:>8.1} µs  a durable line of the log, {:.2} times as long",
        ours.as_secs_f64() * 1e6,
        ours.as_secs_f64() / theirs.as_secs_f64()
    );
}

/// A run of so many rows, gone on with by the binary until it says that there is nothing left to do.
fn resume(dir: &Path, all: usize) {
    let pack = dir.join("pack");
    fs::create_dir_all(pack.join("start")).unwrap();
    fs::write(pack.join("start/counter.txt"), "0\n").unwrap();
    fs::write(pack.join("measure.sh"), "echo '{\"valid\": true, \"score\": 0}'\n").unwrap();
    fs::write(
        pack.join("crucible.toml"),
        "[repo]\npath = \"start\"\n[workspace]\ninject = [\"measure.sh\"]\n[agent]\nbackend = \"command\"\n\
         agent_cmd = \"echo 1 > counter.txt\"\n[judge]\nmeasure_cmd = \"sh ./measure.sh\"\ndirection = \"higher\"\n",
    )
    .unwrap();
    let crucible = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crucible"));
        let done = command.args(args).args(["--ui", "headless"]).current_dir(&pack).status().unwrap();
        assert!(done.success(), "{args:?}");
    };
    crucible(&["--iterations", "1"]);
    let path = pack.join("state/session.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    // The one iteration, once more for each row that is to be there.
    let is = |line: &str, what: &str| line.contains(what);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| is(line, "\"phase\":\"iteration\"")).unwrap();
    let last = lines.iter().rposition(|line| is(line, "\"kind\":\"budget\"")).unwrap();
    let mut out = BufWriter::new(File::create(&path).unwrap());
    let mut seq = 0;
    let mut put = |line: String| {
        let (head, rest) = line.split_once("\"seq\":").unwrap();
        let (_, rest) = rest.split_once(',').unwrap();
        seq += 1;
        writeln!(out, "{head}\"seq\":{seq},{rest}").unwrap();
    };
    for line in &lines[..first] {
        put(line.replace("\"iters_total\":1,", &format!("\"iters_total\":{},", all - 1)));
    }
    for iter in 1..all {
        for line in &lines[first..=last] {
            put(line.replace("\"iter\":1", &format!("\"iter\":{iter}")));
        }
    }
    out.flush().unwrap();
    drop(out);
    let rows = (all - 1).to_string();
    let took = timed(|| crucible(&["--resume", "--iterations", &rows]));
    let fresh = timed(|| crucible(&["--iterations", "1"]));
    println!("resume: a run of {all} rows, to the line that says that all iterations were run");
    println!("  {:>8.2} s  of which nothing is an iteration", took.as_secs_f64());
    println!("  {:>8.2} s  a new run of one iteration, set-up and all", fresh.as_secs_f64());
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

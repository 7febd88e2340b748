//! The end of the broker at every point of its durable writes: never one above the bound, no double, no lost refusal.
//!
//! The process that is ended is this binary, started again. It makes calls of one run at a gate whose points are counted,
//! and ends itself by SIGKILL at the one that it is told. What it writes to is a file: a line is a write.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use broker::writes::{Admitted, Denied, Gate, Opened, Points, Wanted, outbox};
use policy::outputs::{Kind, Outcome};
use policy::record::Redactor;
use rustix::process::{Signal, getpid, kill_process};

use crate::Test;
use crate::lab::{State, bounds, fixed, run};

pub(crate) const TESTS: &[Test] = &[
    ("killed_at_every_point_of_a_write_that_leaves", || at_every_point("sent")),
    ("killed_at_every_point_of_a_write_that_is_staged", || at_every_point("staged")),
    ("of_several_who_send_one_staged_write_one_does", send_once),
];

const WRITER: &str = "writes-killed";
/// How many writes the run may make.
const BOUND: u32 = 2;
/// How many it wants, each with a key.
const WANTED: u32 = 3;

pub(crate) fn role() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().collect();
    (args[0] == WRITER).then(|| {
        run(async { life(Path::new(&args[1]), &args[2], args[3].parse().unwrap()).await });
        ExitCode::SUCCESS
    })
}

async fn gate(state: &Path, points: Points) -> Arc<Gate> {
    let open =
        |name: &str| OpenOptions::new().read(true).append(true).create(true).open(state.join(name)).unwrap();
    let opened = Opened {
        outputs: bounds(Kind::TrackerComment, BOUND, fixed("PROJ-1")),
        ledger: open("outputs.jsonl"),
        session_log: open("session.jsonl"),
        outbox: state.join("outbox"),
        redactor: Redactor::default(),
        pace: (100_000, 100_000),
        calls: 100_000,
        points,
    };
    Gate::open(opened).await.unwrap()
}

/// Wants three writes, and ends at the point of that number; at none where it is 0. Each answer is told by a line.
async fn life(state: &Path, how: &str, end: u64) {
    let count = AtomicU64::new(0);
    let points = Points::new(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) + 1 == end {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    });
    let gate = gate(state, points.clone()).await;
    for number in 0..WANTED {
        let key = format!("key {number}");
        let wanted = Wanted {
            kind: Kind::TrackerComment,
            tool: "tracker_comment",
            target: None,
            key: Some(&key),
            args: "a",
            turn: "turn-1",
        };
        let told = match gate.admit(wanted).await {
            Ok(Admitted::Permit(permit)) => {
                points.at("before the write");
                if how == "sent" {
                    append(&state.join("system"), &key);
                } else {
                    outbox::stage(&state.join("outbox"), &permit, &serde_json::Map::new()).unwrap();
                }
                points.at("after the write");
                let outcome = if how == "sent" { Outcome::Done } else { Outcome::Staged };
                permit.end(outcome, "done").await.unwrap();
                "written"
            }
            Ok(Admitted::Stored(_)) => "stored",
            Err(Denied::Refused(refusal)) => {
                points.at("after a refusal");
                refusal.reason.token()
            }
            Err(Denied::Record(error)) => panic!("{error}"),
        };
        append(&state.join("answers"), &format!("{key}: {told}"));
    }
}

fn append(path: &Path, line: &str) {
    let mut file: File = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn lines(path: PathBuf) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// One life; whether it was ended.
fn live(state: &State, how: &str, end: u64) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let path = state.0.path().to_str().unwrap();
    let status = command.arg0(WRITER).args([path, how, &end.to_string()]).status().unwrap();
    assert!(status.success() || status.signal() == Some(9), "{status}");
    !status.success()
}

fn at_every_point(how: &str) {
    let mut ended = 0;
    for end in 1_u64.. {
        let state = State::new();
        if !live(&state, how, end) {
            break;
        }
        ended += 1;
        let answered = lines(state.path("answers"));
        // Then a second life is ended just as early, and a third goes on to the end.
        live(&state, how, end.div_ceil(2));
        assert!(!live(&state, how, 0), "{how}, ended at {end}");
        let written = if how == "sent" {
            lines(state.path("system"))
        } else {
            let files = state.outbox().into_iter().filter(|name| name.ends_with(".json"));
            files
                .map(|name| {
                    outbox::show(&state.path("outbox"), name[..6].parse().unwrap())
                        .unwrap()
                        .1
                        .intent
                        .key
                        .unwrap()
                })
                .collect()
        };
        let mut unique = written.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), written.len(), "{how}, ended at {end}: no double in {written:?}");
        assert!(written.len() <= usize::try_from(BOUND).unwrap(), "{how}, ended at {end}: {written:?}");
        // What was answered before the end is so after it.
        for answer in answered.iter().filter(|answer| answer.ends_with("written")) {
            let key = answer.split(':').next().unwrap();
            assert!(written.iter().any(|written| written == key), "{how}, ended at {end}: {answer}");
        }
        // Every answer that was a refusal has its row.
        let refused = |line: &String| !line.ends_with("written") && !line.ends_with("stored");
        let told = lines(state.path("answers")).iter().filter(|line| refused(line)).count();
        assert!(state.refusals().len() >= told, "{how}, ended at {end}: {told} refusals were told");
        // A write whose outcome is not known is said to be.
        let unknown =
            state.lines("outputs.jsonl", "ended").iter().filter(|line| line["outcome"] == "unknown").count();
        let said = state.lines("session.jsonl", "note").len();
        // Ended between saying it and recording that, the next life says it again.
        assert!(said >= unknown, "{how}, ended at {end}: {unknown} unknown, {said} said");
        let begun = state.lines("outputs.jsonl", "intent").len();
        assert_eq!(begun, state.lines("outputs.jsonl", "ended").len(), "{how}, ended at {end}");
        assert!(begun <= usize::try_from(BOUND).unwrap(), "{how}, ended at {end}: {begun} were counted");
    }
    assert!(ended >= 12, "{how}: only {ended} points");
}

fn send_once() {
    let state = State::new();
    assert!(!live(&state, "staged", 0));
    let path = state.path("outbox");
    let claims: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| outbox::Claim::take(&path, 1))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut taken: Vec<_> = claims.into_iter().filter_map(Result::ok).collect();
    assert_eq!(taken.len(), 1, "one of eight");
    // The one that has it may die here: it is not sent again.
    assert!(outbox::Claim::take(&path, 1).unwrap_err().to_string().contains("not known"));
    taken.pop().unwrap().sent().unwrap();
    assert!(outbox::Claim::take(&path, 1).unwrap_err().to_string().contains("it was sent"));
    outbox::discard(&path, 2).unwrap();
    assert!(outbox::Claim::take(&path, 2).unwrap_err().to_string().contains("it was dropped"));
    let standings: Vec<_> = outbox::list(&path).unwrap().into_iter().map(|(standing, _)| standing).collect();
    assert_eq!(standings, [outbox::Standing::Sent, outbox::Standing::Dropped]);
}

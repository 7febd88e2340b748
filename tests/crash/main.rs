//! A run killed at each point at which it writes something that lasts or starts a process, and then gone on with.
//!
//! `cargo test -p tests --test crash` kills at a part of the points, `-- --all` at every one, `-- --at=N` at one,
//! `-- --count` at none; further words choose scenarios by name. The points are counted by the engine itself, in a build that can be killed there
//! (`engine/src/sys/fault.rs`). `docs/src/crashes.md` is the table of them: where it differs, a point is new or gone,
//! and `UPDATE_GOLDEN=1` writes it anew.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::panic,
    dead_code,
    reason = "this drives the tests; a test that meets what it does not expect has to fail"
)]

#[path = "../suite/support.rs"]
mod support;

mod operators;
mod scenario;
mod writes;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, Output};

use scenario::{Left, Scenario};
use support::{Pack, source_tree};

/// Without `--all`, one point in so many is tried.
const PART: usize = 13;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let all = args.iter().any(|arg| arg == "--all");
    let only: Option<usize> = args.iter().find_map(|arg| arg.strip_prefix("--at=")?.parse().ok());
    let all = all || only.is_some();
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let mut table = BTreeMap::new();
    let (mut tried, mut failed, mut known) = (0, Vec::new(), 0);
    let scenarios = scenario::all();
    let chosen =
        |scenario: &&Scenario| words.is_empty() || words.iter().any(|word| scenario.name.contains(*word));
    let count = args.iter().any(|arg| arg == "--count");
    let mut complete = words.is_empty();
    for scenario in scenarios.iter().filter(chosen) {
        if let Some(why) = scenario.missing() {
            println!("{}: skipped: {why}", scenario.name);
            complete = false;
            continue;
        }
        let (points, expect) = undisturbed(scenario);
        known += points.len();
        for name in &points {
            *table.entry(name.clone()).or_insert_with(BTreeMap::new).entry(scenario.name).or_insert(0) += 1;
        }
        let first = if all { 0 } else { scenario.name.len() % PART };
        for at in (first..points.len()).step_by(if all { 1 } else { PART }) {
            if count || only.is_some_and(|only| only != at + 1) {
                continue;
            }
            tried += 1;
            if let Err(why) = killed_at(scenario, at + 1, &expect) {
                println!("{} at {} ({}): {why}", scenario.name, at + 1, points[at]);
                failed.push(at);
            }
        }
        println!("{}: {} points", scenario.name, points.len());
    }
    println!("{tried} of {known} points tried, {} failed", failed.len());
    let page = scenario::page(&table, &scenarios);
    let as_documented = !complete || documented(&page);
    let everywhere = !complete || every_point_is_met(&table);
    if failed.is_empty() && as_documented && everywhere { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The points of a run that nobody kills, and what it leaves.
fn undisturbed(scenario: &Scenario) -> (Vec<String>, Left) {
    let pack = scenario.pack();
    let output = run(scenario, &pack, false, None);
    assert_eq!(output.status.code(), Some(scenario.exit), "{}: {}", scenario.name, said(&output));
    let points = std::fs::read_to_string(pack.path("points")).unwrap();
    let left = Left::of(scenario, &pack);
    left.charged_in_full();
    left.writes.undisturbed();
    (points.lines().map(str::to_owned).collect(), left)
}

/// Runs up to a point, kills there, goes on, and compares.
fn killed_at(scenario: &Scenario, at: usize, expect: &Left) -> Result<(), String> {
    let pack = scenario.pack();
    let output = run(scenario, &pack, false, Some(at));
    if output.status.signal() != Some(9) {
        return Err(format!("it was not killed: {}", said(&output)));
    }
    let output = run(scenario, &pack, true, None);
    if output.status.code() != Some(scenario.exit) {
        let log = pack.log_text();
        let end: Vec<&str> = log.lines().rev().take(12).collect();
        return Err(format!(
            "resumed, it ended with {:?}: {}\n{}",
            output.status,
            said(&output),
            end.join("\n")
        ));
    }
    let left = Left::of(scenario, &pack);
    expect.agrees(&left)?;
    left.charged_once()?;
    left.writes.hold()?;
    let mut checks = vec![&["replay", "state/session.jsonl"][..]];
    if pack.exists("state/egress.jsonl") {
        checks.push(&["audit", "--verify"]);
    }
    if pack.exists("state/outputs.jsonl") {
        checks.push(&["audit", "--writes"]);
    }
    for check in checks {
        let checked = pack.command(check).output().unwrap();
        if !checked.status.success() {
            return Err(format!("{check:?}: {}", said(&checked)));
        }
    }
    Ok(())
}

fn run(scenario: &Scenario, pack: &Pack, resume: bool, at: Option<usize>) -> Output {
    let mut command = pack.command(scenario.args);
    command.arg("--ui").arg("headless").env("OUTSIDE", pack.path("outside"));
    if resume {
        // Nothing but this flag: what the run was given stands. Where there is no first line yet, it was given nothing.
        let points = std::fs::read_to_string(pack.path("points")).unwrap_or_default();
        let begun = points.lines().any(|point| point == "log: after a line");
        // Of an earlier run only its end is there, and nothing is to be gone on with.
        let how = if scenario.again && !begun { "--fresh" } else { "--resume" };
        command = pack.command(if begun { &[] } else { scenario.args });
        command.args([how, "--ui", "headless"]).env("OUTSIDE", pack.path("outside"));
    } else {
        command.env("CRUCIBLE_CRASH_LOG", pack.path("points"));
    }
    if let Some(at) = at {
        command.env("CRUCIBLE_CRASH_AT", at.to_string());
    }
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// Whether the page says what was counted.
fn documented(page: &str) -> bool {
    let path = source_tree().join("docs/src/crashes.md");
    #[expect(clippy::disallowed_methods, reason = "the one switch of the tests")]
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let same = std::fs::read_to_string(&path).unwrap_or_default() == page;
    if !same {
        println!("docs/src/crashes.md is out of date: run this with UPDATE_GOLDEN=1; counted was:\n{page}");
    }
    same
}

/// Whether each point that stands in the engine's source is met by some scenario.
fn every_point_is_met(table: &BTreeMap<String, BTreeMap<&str, usize>>) -> bool {
    let unmet: Vec<String> =
        scenario::points_in_source().into_iter().filter(|name| !table.contains_key(name)).collect();
    for name in &unmet {
        println!("no scenario meets the point `{name}`");
    }
    unmet.is_empty()
}

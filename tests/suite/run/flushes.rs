//! What an iteration brings to the disk, counted at the kernel: one flush too many is paid in every iteration of every run.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::{BINARY, COUNT, Pack, RAISE, Skip, program, skip};

/// Every call by which anything is brought to the disk.
const CALLS: &str = "trace=fsync,fdatasync,syncfs,sync,sync_file_range,msync";

/// Raises a counter that is 0, and lowers it else.
const ONCE: &str = "case $(cat counter.txt) in 0) echo 1 > counter.txt;; *) echo 0 > counter.txt;; esac";

/// What was flushed, and how often.
type Flushes = BTreeMap<String, usize>;

/// Flushes of a whole run of `agent`, by what they flush.
fn flushes(agent: &str, sandboxed: bool, iterations: &str) -> Flushes {
    let tables = if sandboxed { "[agent.openshell]\ninherit_defaults = false\n" } else { "" };
    let pack = Pack::new(agent, COUNT, tables);
    if sandboxed {
        let manifest = pack.read("crucible.toml");
        let harness = "backend = \"openshell\"\nharness = \"command\"";
        pack.write("crucible.toml", &manifest.replace("backend = \"command\"", harness));
    }
    let mut traced = program("/usr/bin/strace");
    traced.args(["-f", "-y", "-e", CALLS, "-o"]).arg(pack.path("calls")).arg(BINARY);
    let output = traced.args(["--iterations", iterations]).current_dir(pack.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let state = pack.path("state").canonicalize().unwrap();
    let mut flushes = Flushes::new();
    // A call that another thread interrupts has a second line, without its arguments.
    for line in pack.read("calls").lines().filter(|line| line.contains("sync") && !line.contains(" resumed>"))
    {
        let path = line.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path);
        *flushes
            .entry(path.map_or_else(|| line.to_owned(), |path| kind(Path::new(path), &state)))
            .or_default() += 1;
    }
    flushes
}

/// A path without what is another in each run.
fn kind(path: &Path, state: &Path) -> String {
    let path = path.strip_prefix(state).unwrap_or(path).to_str().unwrap();
    let object = path.strip_prefix("git/objects/").map(str::len);
    match object {
        Some(2) => "a directory of objects".to_owned(),
        Some(41) => "an object".to_owned(),
        _ if path.starts_with("git/refs/heads/crucible/") => "the branch".to_owned(),
        _ => path.to_owned(),
    }
}

/// What a run has that a shorter one has not. Two objects may share their directory.
fn more(long: &Flushes, short: &Flushes) -> Vec<(String, usize)> {
    let more = long.iter().map(|(kind, count)| (kind.clone(), count - short.get(kind).unwrap_or(&0)));
    more.filter(|(kind, count)| *count > 0 && kind != "a directory of objects").collect()
}

fn check(sandboxed: bool, always: &[(&str, usize)]) {
    if !Path::new("/usr/bin/strace").exists() {
        return skip(Skip::NoStrace);
    }
    let one = flushes(RAISE, sandboxed, "1");
    let kept = more(&flushes(RAISE, sandboxed, "2"), &one);
    let discarded = more(&flushes(ONCE, sandboxed, "2"), &one);
    let named = |all: &[(&str, usize)]| {
        let mut all: Vec<_> = all.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
        all.sort();
        all
    };
    assert_eq!(discarded, named(always), "of a discard");
    let best = [("an object", 3), ("git/refs/heads/crucible", 1), ("the branch", 1)];
    assert_eq!(kept, named(&[always, &best].concat()), "of a keep");
}

#[test]
fn an_iteration_flushes_the_end_of_its_turn_and_its_decision_and_a_keep_its_candidate() {
    check(false, &[("session.jsonl", 2)]);
}

#[test]
fn an_iteration_in_a_sandbox_flushes_the_record_of_its_reach_besides() {
    check(true, &[("session.jsonl", 2), ("egress.jsonl", 1)]);
}

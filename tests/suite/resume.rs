//! Contract §7, `--resume`: a run that was killed, cut, filled up or ended goes on, and costs nothing twice.

mod budget;
mod left;
mod logs;

use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{COUNT, Pack, RAISE, Ran, git};

/// Starts a run and kills it with SIGKILL as soon as the file `mark` is there.
pub(super) fn killed_at(pack: &Pack, args: &[&str], mark: &str) {
    let mut engine = pack.command(args).spawn().unwrap();
    until_there(pack, mark, &mut engine);
    engine.kill().unwrap();
    engine.wait().unwrap();
}

/// Waits for a file, as long as the process lives.
pub(super) fn until_there(pack: &Pack, mark: &str, engine: &mut Child) {
    while !pack.exists(mark) {
        assert!(engine.try_wait().unwrap().is_none(), "the run ended before {mark} was there");
        std::thread::yield_now();
    }
}

/// Cuts the log behind the first lines, as many as `keep` says of them.
pub(super) fn cut(pack: &Pack, keep: impl Fn(&[Value]) -> usize) {
    let log = pack.log();
    let text = pack.read("state/session.jsonl");
    let kept: Vec<&str> = text.lines().take(keep(&log)).collect();
    pack.write("state/session.jsonl", &format!("{}\n", kept.join("\n")));
}

/// The place of the last line of a kind.
pub(super) fn last(log: &[Value], kind: &str) -> usize {
    log.iter().rposition(|line| line["kind"] == kind).unwrap()
}

pub(super) fn class(ran: &Ran) -> String {
    ran.events("recovery").last().unwrap()["class"].as_str().unwrap().to_owned()
}

/// An agent that notes each turn outside, and raises the counter.
pub(super) fn noting() -> String {
    format!("echo turn >> ../turns; {RAISE}")
}

pub(super) fn turns(pack: &Pack) -> usize {
    pack.read("turns").lines().count()
}

#[test]
fn row_05_a_killed_run_is_gone_on_with_by_resume_alone() {
    let agent = format!(
        "{}; touch ../turn-$(cat counter.txt); [ -e ../go ] || [ ! -e ../turn-2 ] || sleep 1000",
        noting()
    );
    let pack = Pack::new(&agent, COUNT, "");
    killed_at(&pack, &["--iterations", "4", "--goal", "ünlimited"], "turn-2");
    pack.write("go", "");
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep", "keep", "keep"]);
    assert_eq!(class(&ran), "died_mid_turn");
    assert_eq!(pack.read("workspace/counter.txt"), "4\n");
    assert_eq!(turns(&pack), 5, "four, and the one that died");
    let starts: Vec<&Value> = ran.events("start").collect();
    assert_eq!(
        (&starts[1]["iters_total"], &starts[1]["goal"]),
        (&starts[0]["iters_total"], &starts[0]["goal"])
    );
    assert_eq!(ran.events("identity").count(), 2);
    let identities: Vec<&Value> = ran.events("identity").map(|line| &line["identity"]).collect();
    assert_eq!(identities[0], identities[1]);
}

#[test]
fn row_08_a_run_killed_in_measure_is_measured_again_without_the_agent() {
    let judge = format!(
        "[ -e ../go ] || [ \"$(cat counter.txt)\" != 1 ] || {{ touch ../measuring; sleep 1000; }}\n{COUNT}"
    );
    let pack = Pack::new(&noting(), &judge, "");
    killed_at(&pack, &["--iterations", "1"], "measuring");
    pack.write("go", "");
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!((class(&ran).as_str(), turns(&pack)), ("died_deciding", 1));
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    assert!(ran.rows()[1]["diff"].as_str().unwrap().contains("+1"), "{}", ran.rows()[1]);
}

#[test]
fn a_run_killed_in_its_baseline_measures_it_again() {
    let judge = format!("[ -e ../go ] || {{ touch ../measuring; sleep 1000; }}\n{COUNT}");
    let pack = Pack::new(&noting(), &judge, "");
    killed_at(&pack, &["--iterations", "1"], "measuring");
    pack.write("go", "");
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!(class(&ran), "died_in_baseline");
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
}

#[test]
fn in_place_a_killed_run_goes_on_in_the_persons_repository() {
    let pack = crate::run::in_place();
    let here = pack.path(".");
    let judge =
        "[ -e state/go ] || [ \"$(cat counter.txt)\" != 1 ] || { touch state/measuring; sleep 1000; }\n";
    pack.write("measure.sh", &format!("{judge}{COUNT}"));
    git(&here, &["commit", "-aqm", "a judge that waits"]);
    killed_at(&pack, &["--iterations", "2"], "state/measuring");
    pack.write("state/go", "");
    let refused = pack.run(&["--iterations", "2"]);
    assert_eq!(refused.code(), 5, "{}", refused.stderr());
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep"]);
    assert_eq!(pack.read("counter.txt"), "2\n");
    assert_eq!(git(&here, &["status", "--porcelain"]), "");
}

#[test]
fn an_iteration_in_which_the_engine_died_twice_is_settled_as_invalid() {
    let agent = format!("{}; [ -e ../go ] || {{ touch ../begun; sleep 1000; }}", noting());
    let pack = Pack::new(&agent, COUNT, "");
    killed_at(&pack, &["--iterations", "2"], "begun");
    std::fs::remove_file(pack.path("begun")).unwrap();
    killed_at(&pack, &["--resume"], "begun");
    pack.write("go", "");
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "discard", "keep"]);
    assert_eq!(turns(&pack), 3);
}

#[test]
fn row_18_a_run_killed_between_the_commit_and_the_row_keeps_once() {
    let pack = Pack::new(&noting(), COUNT, "");
    pack.run(&["--iterations", "2"]);
    let before = pack.git(&["rev-parse", "HEAD"]);
    cut(&pack, |log| last(log, "row"));
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!((class(&ran).as_str(), turns(&pack)), ("died_deciding", 2));
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep"]);
    assert_eq!(pack.git(&["rev-parse", "HEAD"]), before);
    assert_eq!(ran.rows()[2]["kept_snap"], before.trim());
}

#[test]
fn row_19_and_20_only_what_has_no_result_is_done_again() {
    let judge = format!("echo measured >> ../measures\n{COUNT}");
    for (kind, measured, turns_taken) in [("propose", 4, 2), ("measure", 3, 2), ("decide", 3, 2)] {
        let pack = Pack::new(&noting(), &judge, "");
        pack.run(&["--iterations", "2"]);
        let of =
            |line: &Value| line["kind"] == "task_result" && line["task_kind"] == kind && line["iter"] == 2;
        cut(&pack, |log| log.iter().position(of).unwrap() + 1);
        let ran = pack.run(&["--resume"]);
        ran.ended("finished", 0);
        assert_eq!(ran.decisions(), ["baseline", "keep", "keep"], "{kind}");
        assert_eq!(turns(&pack), turns_taken, "{kind}");
        assert_eq!(pack.read("measures").lines().count(), measured, "{kind}");
        assert_eq!(pack.read("workspace/counter.txt"), "2\n", "{kind}");
    }
}

#[test]
fn a_run_that_ended_goes_on_where_it_is_given_more() {
    let pack = Pack::new(&noting(), COUNT, "");
    pack.run(&["--iterations", "1"]).ended("finished", 0);
    let ran = pack.run(&["--resume", "--iterations", "3"]);
    ran.ended("finished", 0);
    assert_eq!(class(&ran), "clean_exit");
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep", "keep"]);
    assert_eq!(turns(&pack), 3);
    let report: Value = serde_json::from_str(&pack.read("state/report.json")).unwrap();
    assert_eq!((&report["iterations"], report["rows"].as_array().unwrap().len()), (&Value::from(3), 4));
    let again = pack.run(&["--resume"]);
    again.ended("finished", 0);
    assert_eq!(turns(&pack), 3, "there was nothing left to do");
}

#[test]
fn a_stopped_run_goes_on_and_a_won_one_does_not() {
    let stopping = format!("{}; [ -e ../go ] || echo '{{\"stop\": true}}' > ../state/control.json", noting());
    let pack = Pack::new(&stopping, COUNT, "");
    pack.run(&["--iterations", "2"]).ended("stopped", 11);
    pack.write("go", "");
    std::fs::remove_file(pack.path("state/control.json")).unwrap();
    let ran = pack.run(&["--resume"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep"]);

    let pack = Pack::new(&noting(), "echo '{\"valid\": true, \"score\": 1, \"solved\": true}'\n", "");
    pack.run(&["--iterations", "2"]).ended("solved", 0);
    pack.run(&["--resume"]).ended("solved", 0);
    assert!(!pack.exists("turns"));
}

#[test]
fn an_engine_that_lives_is_not_taken_over() {
    let pack = Pack::new("touch ../begun; while [ ! -e ../go ]; do sleep 0.01; done", COUNT, "");
    let mut first = pack.command(&["--iterations", "1"]).spawn().unwrap();
    until_there(&pack, "begun", &mut first);
    let second = pack.command(&["--resume"]).output().unwrap();
    pack.write("go", "");
    assert_eq!(second.status.code(), Some(5), "{}", String::from_utf8_lossy(&second.stderr));
    assert!(String::from_utf8_lossy(&second.stderr).contains(&first.id().to_string()));
    assert_eq!(first.wait().unwrap().code(), Some(0));
}

#[test]
fn a_pack_that_was_changed_is_a_warning_and_no_end() {
    let pack = Pack::new(&noting(), COUNT, "");
    pack.run(&["--iterations", "1"]);
    pack.write("crucible.toml", &format!("# another text\n{}", pack.read("crucible.toml")));
    let ran = pack.run(&["--resume", "--iterations", "2"]);
    ran.ended("finished", 0);
    let warned =
        ran.events("note").any(|line| line["msg"].as_str().unwrap().contains("identity of this run was"));
    assert!(warned);
}

/// Ends a process by its number, where it is still there.
pub(super) fn end(pid: i32) {
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

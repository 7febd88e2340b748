//! Contract §3: whatever a judge does, it costs at most one candidate, and never the run or its time.

use crate::support::{COUNT, Pack, RAISE};

/// Runs three iterations in which the judge misbehaves on the second, and checks that only that one is lost.
#[track_caller]
fn costs_one_candidate(misbehave: &str, expect_note: &str) {
    costs_one_candidate_within("10m", misbehave, expect_note);
}

#[track_caller]
fn costs_one_candidate_within(timeout: &str, misbehave: &str, expect_note: &str) {
    let judge = format!("[ \"$(cat counter.txt)\" = 2 ] && {{\n{misbehave}\n}}\n{COUNT}");
    // The agent moves on from a discarded candidate because it counts its own turns.
    let agent =
        "n=$(cat .turns 2>/dev/null || echo 0); n=$((n + 1)); echo $n > .turns; echo $n > counter.txt";
    let pack = Pack::new(agent, &judge, &format!("timeout = \"{timeout}\"\n"));
    pack.write("start/.gitignore", ".turns\n");
    let ran = pack.run(&["--iterations", "3"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "discard", "keep"], "{misbehave}");
    let note = ran.rows()[2]["note"].as_str().unwrap().to_owned();
    assert!(note.contains(expect_note), "{misbehave}: {note}");
}

#[test]
fn no_json() {
    costs_one_candidate("echo fine; exit 0", "printed no line that starts with `{`");
}

#[test]
fn a_percentage_is_no_score() {
    costs_one_candidate("echo '[100%]'; exit 0", "printed no line that starts with `{`");
}

#[test]
fn wrong_types() {
    costs_one_candidate(r#"echo '{"valid": true, "score": "3"}'; exit 0"#, "`score` is not a finite number");
    costs_one_candidate(r#"echo '{"valid": true, "score": true}'; exit 0"#, "`score` is not a finite number");
    costs_one_candidate(r#"echo '{"valid": "yes", "score": 3}'; exit 0"#, "`valid` is not a boolean");
}

#[test]
fn duplicate_keys() {
    costs_one_candidate(r#"echo '{"valid": true, "score": 9, "score": 9}'; exit 0"#, "stands twice");
}

#[test]
fn numbers_that_are_none() {
    for number in ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"] {
        costs_one_candidate(
            &format!(r#"echo '{{"valid": true, "score": {number}}}'; exit 0"#),
            "is not JSON",
        );
    }
}

#[test]
fn a_good_line_and_exit_one() {
    costs_one_candidate(r#"echo '{"valid": true, "score": 9}'; exit 1"#, "exited 1");
}

#[test]
fn a_judge_that_is_killed() {
    costs_one_candidate("kill -9 $$", "exited 137");
}

#[test]
fn a_judge_that_ignores_its_limit() {
    costs_one_candidate_within("2s", "trap '' TERM; sleep 1000 & wait; sleep 1000", "time limit");
}

#[test]
fn a_hundred_megabytes_of_output() {
    costs_one_candidate("head -c 100000000 /dev/zero | tr '\\0' x; echo; exit 0", "printed no line");
    costs_one_candidate("printf '{'; head -c 100000000 /dev/zero | tr '\\0' x; echo; exit 0", "longer than");
}

#[test]
fn bytes_before_the_line_do_not_matter() {
    let judge = format!("printf '\\377\\376 noise\\n'\n{COUNT}");
    let pack = Pack::new(RAISE, &judge, "");
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
}

#[test]
fn a_background_child_that_holds_the_output_open_holds_nothing_up() {
    let judge = format!("{COUNT}\nsleep 600 &\n");
    let pack = Pack::new(RAISE, &judge, "timeout = \"1h\"\n");
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep"]);
    // Between its fork and its exec the child is still called `sh`.
    let killed = ran.rows()[1]["killed"][0].as_str().unwrap();
    assert!(["sleep", "sh"].contains(&killed), "{killed}");
}

#[test]
fn a_log_line_that_looks_like_a_reading_is_warned_of() {
    let judge = format!("{COUNT}\necho '{{\"level\": \"info\"}}'\n");
    let pack = Pack::new(RAISE, &judge, "");
    let checked = pack.run(&["check"]);
    assert_eq!(checked.code(), 7);
    assert!(
        checked.stdout().contains("2 lines of the judge's output start with `{`"),
        "{}",
        checked.stdout()
    );
}

#[test]
fn scores_of_any_size_and_sign_keep_in_both_directions() {
    for (direction, scores) in [("higher", "-1e12 0 1e300"), ("lower", "1e300 0 -1e12")] {
        let judge = "printf '{\"valid\": true, \"score\": %s}\\n' \"$(cat score.txt)\"\n";
        let agent = "set -- SCORES; n=$(cat n.txt); shift $n; echo $((n + 1)) > n.txt; echo $1 > score.txt"
            .replace("SCORES", scores);
        let pack = Pack::new(&agent, judge, "");
        let first = scores.split(' ').next().unwrap();
        pack.write("start/score.txt", first);
        pack.write("start/n.txt", "1");
        pack.write(
            "crucible.toml",
            &pack.read("crucible.toml").replace("\"higher\"", &format!("\"{direction}\"")),
        );
        let ran = pack.run(&["--iterations", "2"]);
        ran.ended("finished", 0);
        assert_eq!(ran.decisions(), ["baseline", "keep", "keep"], "{direction}");
        let last = ran.rows()[2]["score"].as_f64().unwrap();
        assert_eq!(last.to_bits(), scores.rsplit(' ').next().unwrap().parse::<f64>().unwrap().to_bits());
    }
}

#[test]
fn minus_zero_is_written_and_equals_zero() {
    let judge = "echo '{\"valid\": true, \"score\": -0.0}'\n";
    let ran = Pack::new(RAISE, judge, "").run(&["--iterations", "1"]);
    assert_eq!(ran.decisions(), ["baseline", "discard"]);
    assert!(ran.rows()[0]["score"].as_f64().unwrap().is_sign_negative());
}

#[test]
fn each_candidate_is_measured_exactly_once() {
    let judge = format!("echo x >> \"$OUTSIDE\"\n{COUNT}");
    let pack = Pack::new(RAISE, &judge, "");
    let count = pack.path("count");
    pack.command(&["--iterations", "4"]).env("OUTSIDE", &count).output().unwrap();
    assert_eq!(pack.read("count").lines().count(), 5);
}

#[test]
fn the_judge_is_told_the_numbers_and_the_first_time_none() {
    let judge = format!(
        "echo \"${{CRUCIBLE_BASELINE_SCORE-none}} ${{CRUCIBLE_BASELINE_TOTAL-none}} ${{CRUCIBLE_BEST_SCORE-none}}\" >> \"$OUTSIDE\"\n{}",
        r#"printf '{"valid": true, "score": 0.%s, "detail": {"total": 7}}\n' "$(cat counter.txt)""#
    );
    let pack = Pack::new(RAISE, &judge, "");
    let told = pack.path("told");
    pack.command(&["--iterations", "2"]).env("OUTSIDE", &told).output().unwrap();
    assert_eq!(pack.read("told"), "none none none\n0 7 0\n0 7 0.1\n");
}

#[test]
fn a_judge_sees_no_variable_of_the_engine_but_those() {
    let judge = format!("env | grep -E '^(BROKER_|CRUCIBLE_)' >> \"$OUTSIDE\"\n{COUNT}");
    let pack = Pack::new(RAISE, &judge, "");
    let told = pack.path("told");
    let mut command = pack.command(&["--iterations", "1"]);
    command.env("OUTSIDE", &told).env("CRUCIBLE_INFERENCE", "x").env("BROKER_OUTPUTS", "x").output().unwrap();
    let names: Vec<String> =
        pack.read("told").lines().map(|line| line.split('=').next().unwrap().to_owned()).collect();
    let known = |name: &String| name.ends_with("_SCORE") || name == "CRUCIBLE_MARK";
    assert!(names.iter().all(known), "{names:?}");
}

#[test]
fn an_invalid_baseline_ends_the_run_and_shows_the_judges_output() {
    let pack = Pack::new(RAISE, "echo 'cannot find the benchmark' >&2; exit 3\n", "");
    let ran = pack.run(&[]);
    ran.ended("error", 6);
    assert!(ran.stderr().contains("cannot find the benchmark"), "{}", ran.stderr());
    assert_eq!(ran.decisions(), ["baseline-skipped"]);
    assert_eq!(ran.events("agent_start").count(), 0);
}

#[test]
fn a_solved_baseline_ends_the_run_without_a_turn() {
    let ran = Pack::new(RAISE, "echo '{\"valid\": true, \"score\": 1, \"solved\": true}'\n", "").run(&[]);
    ran.ended("solved", 0);
    assert_eq!(ran.events("agent_start").count(), 0);
}

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
    let document = r#"{"version":1,"bindings":[]}"#;
    command
        .env("OUTSIDE", &told)
        .env("CRUCIBLE_INFERENCE", document)
        .env("BROKER_OUTPUTS", "x")
        .output()
        .unwrap();
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

/// A judge with two controls, which are staged by these commands.
fn controlled(judge: &str, good: &str, bad: &str, more: &str) -> Pack {
    let selftest = format!("[judge.selftest]\ngood_cmd = {good:?}\nbad_cmd = {bad:?}\nruns = 2\n{more}");
    Pack::new(RAISE, judge, &selftest)
}

#[test]
fn check_tells_whether_the_judge_tells_its_controls_apart() {
    let [good, bad] = ["echo 9 > counter.txt", "echo 3 > counter.txt"];
    let pack = controlled(COUNT, good, bad, "");
    let ran = pack.run(&["check"]);
    assert_eq!(ran.code(), 0, "{}", ran.stdout());
    assert!(ran.stdout().contains("selftest     good 9, bad 3\n"), "{}", ran.stdout());
    let json: serde_json::Value = serde_json::from_str(&pack.run(&["check", "--json"]).stdout()).unwrap();
    assert_eq!(json["selftest"], serde_json::json!({"good": 9.0, "bad": 3.0}));
    assert!(!pack.exists("state") && !pack.exists("workspace"));
    for (judge, good, bad, expected) in [
        (
            COUNT,
            bad,
            good,
            "the judge does not tell its controls apart: good_cmd scores 3 and bad_cmd 9 on average",
        ),
        (COUNT, good, good, "good_cmd scores 9 and bad_cmd 9 on average, and higher is better"),
        (COUNT, good, "rm counter.txt", "reading 1 after bad_cmd is not valid"),
        (
            COUNT,
            "echo broken >&2; exit 3",
            bad,
            "stage the good control: good_cmd ended with exit code 3 (broken)",
        ),
        // A control that edits the judge measures with the frozen one all the same.
        (
            COUNT,
            "echo 9 > counter.txt; echo exit 1 > measure.sh",
            "cp counter.txt measure.sh",
            "good_cmd scores 9 and bad_cmd 0",
        ),
    ] {
        let pack = controlled(judge, good, bad, "");
        let ran = pack.run(&["check"]);
        let failed = !expected.ends_with("bad_cmd 0");
        assert_eq!(ran.code(), if failed { 7 } else { 0 }, "{}", ran.stdout());
        assert!(!failed || ran.stdout().contains(expected), "{expected}: {}", ran.stdout());
    }
    let without = Pack::counter().run(&["check"]);
    assert_eq!(without.code(), 0);
    assert!(
        without.stdout().contains("warning: nothing shows that the judge tells good from bad"),
        "{}",
        without.stdout()
    );
}

/// A domain beside the tree: one file, with a log of what was done to it.
const DOMAIN: &str = "[world]\nsnapshot_cmd = \"cat $LIVE\"\nrestore_cmd = \"echo \\\"$CRUCIBLE_TOKEN\\\" > $LIVE; echo restored >> $LIVE.log\"\n";

#[test]
fn the_domain_is_pristine_again_after_a_pass_an_error_and_a_signal() {
    let stage = |text: &str| format!("echo {text} > counter.txt; echo {text} > $LIVE");
    let wait = "echo 5 > $LIVE; echo staged; touch $LIVE.ready; sleep 60";
    for (good, bad, code) in [
        (stage("9"), stage("3"), 0),
        (stage("9"), format!("{}; exit 1", stage("3")), 7),
        (stage("9"), wait.to_owned(), 11),
    ] {
        let pack = controlled(COUNT, &good, &bad, DOMAIN);
        pack.write("live", "7\n");
        let live = pack.path("live");
        let mut command = pack.command(&["check"]);
        let mut child = command.env("LIVE", &live).spawn().unwrap();
        if code == 11 {
            let ready = pack.path("live.ready");
            while !ready.exists() && child.try_wait().unwrap().is_none() {
                std::thread::yield_now();
            }
            let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(pack.read("live"), "7\n", "{bad}");
        assert_eq!(pack.read("live.log").lines().count(), 4, "before and after each control");
    }
}

/// What a judge can do and see, as its detail.
const LOOK: &str = r#"
n=$(cat counter.txt)
echo built > build.cache
( exec 3<>/dev/tcp/127.0.0.1/PORT ) 2>/dev/null && net=true || net=false
[ -e "$SECRET_FILE" ] && host=true || host=false
printf '{"valid": true, "score": %s, "detail": {"net": %s, "host": %s, "best": "%s", "head": "%s"}}\n' \
    "$n" $net $host "$CRUCIBLE_BEST_SCORE" "$(git rev-list --count HEAD 2>/dev/null)"
"#;

#[test]
fn a_confined_judge_has_no_network_and_the_same_readings() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let secret = tempfile::tempdir().unwrap();
    std::fs::write(secret.path().join("secret"), "s").unwrap();
    let mut rows = Vec::new();
    for confined in [false, true] {
        let judge = format!("exec bash ./look.sh\n# {confined}");
        let pack = Pack::new(RAISE, &judge, "[world]\napply_cmd = \"echo applied > applied.txt\"\n");
        pack.write("look.sh", &LOOK.replace("PORT", &port));
        let manifest =
            pack.read("crucible.toml").replace("[\"measure.sh\"]", "[\"measure.sh\", \"look.sh\"]");
        let confine = format!("direction = \"higher\"\nconfined = {confined}");
        pack.write("crucible.toml", &manifest.replace("direction = \"higher\"", &confine));
        let mut command = pack.command(&["--iterations", "2"]);
        let output = command.env("SECRET_FILE", secret.path().join("secret")).output().unwrap();
        let ran = crate::support::Ran { output, log: pack.log() };
        ran.ended("finished", 0);
        assert_eq!(ran.decisions(), ["baseline", "keep", "keep"]);
        assert_eq!(pack.read("workspace/applied.txt"), "applied\n");
        assert_eq!(pack.read("workspace/build.cache"), "built\n");
        let detail = |row: &serde_json::Value| row["detail"].clone();
        assert_eq!(detail(ran.rows()[2])["net"], !confined, "{}", pack.log_text());
        assert_eq!(detail(ran.rows()[2])["host"], !confined);
        let kept: Vec<_> =
            ran.rows().iter().map(|row| (row["score"].clone(), detail(row)["best"].clone())).collect();
        rows.push((kept, pack.git(&["rev-parse", "HEAD^{tree}"])));
        let told = ran
            .events("note")
            .any(|line| line["msg"].as_str().unwrap().starts_with("layers of the sandbox:"));
        assert_eq!(told, confined);
    }
    let (host, confined) = (&rows[0], &rows[1]);
    assert_eq!(host.0, confined.0);
}

/// An agent that needs its turns to get a change built, and says what it was told each time.
const BUILDER: &str =
    "cat > prompt.txt; echo turn >> turns.txt; n=$(wc -l < turns.txt); echo $n > counter.txt";

/// Says that it does not build until so many turns were taken.
fn builds_after(turns: u32) -> String {
    let apply = format!(
        "test $(wc -l < turns.txt 2>/dev/null || echo 0) -ge {turns} || {{ echo 'x.rs:7: no such name' >&2; exit 75; }}"
    );
    format!("[world]\napply_cmd = {apply:?}\n")
}

#[test]
fn a_candidate_that_does_not_build_is_given_back_with_the_output_and_costs_no_iteration() {
    // The setup itself builds: the baseline is no turn's.
    let pack = Pack::new(BUILDER, COUNT, &builds_after(3).replace("test ", "test ! -e turns.txt || test "));
    let ran = pack.run(&["--iterations", "1"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    assert_eq!(ran.events("agent_start").count(), 3);
    let given_back: Vec<_> =
        ran.events("rebuild").map(|line| (line["iter"].clone(), line["attempt"].clone())).collect();
    assert_eq!(given_back, [(1.into(), 1.into()), (1.into(), 2.into())]);
    assert_eq!(pack.read("workspace/counter.txt"), "3\n");
    let prompt = pack.read("workspace/prompt.txt");
    assert!(prompt.contains("does not build") && prompt.contains("x.rs:7: no such name"), "{prompt}");
    let results: Vec<_> =
        ran.events("task_result").filter(|line| line["iter"] == 1).map(|line| line["task"].clone()).collect();
    assert_eq!(results, ["propose", "propose", "propose", "apply", "measure", "decide"]);
    assert_eq!(ran.rows()[1]["evidence"].as_array().unwrap().len(), 3);
    assert_eq!(pack.run(&["replay", "state/session.jsonl"]).code(), 0);
}

#[test]
fn a_candidate_that_never_builds_is_discarded_after_two_free_retries() {
    let never = builds_after(100).replace("test ", "test ! -e turns.txt || test ");
    let pack = Pack::new(BUILDER, COUNT, &never);
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "discard", "discard"]);
    assert_eq!(ran.events("agent_start").count(), 6);
    let note = ran.rows()[1]["note"].as_str().unwrap();
    assert_eq!(
        note,
        "apply_cmd says that the candidate does not build (exit code 75) (x.rs:7: no such name)"
    );
    // Every other exit is an invalid candidate at once, and so is a baseline that does not build.
    let other = Pack::new(BUILDER, COUNT, &never.replace("exit 75", "exit 74"));
    assert_eq!(other.run(&["--iterations", "1"]).events("agent_start").count(), 1);
    let baseline =
        Pack::new(BUILDER, COUNT, "[world]\napply_cmd = \"exit 75\"\n").run(&["--iterations", "1"]);
    baseline.ended("error", 6);
}

#[test]
fn a_row_tells_the_frozen_files_before_and_after_the_measurement() {
    use sha2::{Digest, Sha256};
    let judge = format!("{COUNT}[ \"$(cat counter.txt)\" = 2 ] && echo '# edited' >> measure.sh\ntrue\n");
    let pack = Pack::new(RAISE, &judge, "");
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    let hash: String = Sha256::digest(&judge).iter().map(|byte| format!("{byte:02x}")).collect();
    let frozen: Vec<_> = ran.rows().iter().map(|row| row["frozen"][0].clone()).collect();
    for row in &frozen[..2] {
        assert_eq!(*row, serde_json::json!({"path": "measure.sh", "before": hash, "after": hash}));
    }
    assert_eq!(frozen[2]["before"], serde_json::json!(hash));
    let edited: String =
        Sha256::digest(format!("{judge}# edited\n")).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(frozen[2]["after"], serde_json::json!(edited));
}

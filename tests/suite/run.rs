//! Contract §4 to §7: a run from its first line to its last, and the host after it.

mod flushes;
mod hostile;

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::{COUNT, Pack, RAISE, binary, git};

#[test]
fn the_log_begins_with_start_and_ends_with_shutdown_and_counts_through() {
    let ran = Pack::counter().run(&["--iterations", "3"]);
    ran.ended("finished", 0);
    let kinds: Vec<&str> = ran.log.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"start"));
    assert_eq!(&kinds[kinds.len() - 3..], ["summary", "finished", "shutdown"]);
    for (at, line) in ran.log.iter().enumerate() {
        assert_eq!(line["v"], 1);
        assert_eq!(line["seq"], at + 1);
        let ts = line["ts"].as_str().unwrap();
        assert!(ts.ends_with('Z') && ts.len() == 24, "{ts}");
    }
}

#[test]
fn phases_are_told_once_each_time_they_change() {
    let ran = Pack::counter().run(&["--iterations", "2"]);
    let phases: Vec<String> = ran
        .events("phase")
        .map(|line| format!("{} {}", line["phase"].as_str().unwrap(), line["iter"]))
        .collect();
    assert_eq!(
        phases,
        ["starting 0", "preflight 0", "baseline 0", "iteration 1", "iteration 2", "finished 2"]
    );
}

#[test]
fn kept_candidates_are_commits_and_the_workspace_stands_at_the_best() {
    let pack = Pack::counter();
    let ran = pack.run(&["--iterations", "3"]);
    assert_eq!(pack.read("workspace/counter.txt"), "3\n");
    let head = pack.git(&["rev-parse", "HEAD"]);
    assert_eq!(ran.rows()[3]["kept_snap"], head.trim());
    assert_eq!(pack.git(&["status", "--porcelain"]), "");
    assert_eq!(pack.git(&["rev-list", "--count", "HEAD"]).trim(), "5", "base, baseline and three kept");
}

#[test]
fn a_discarded_candidate_is_undone_and_stays_reachable() {
    let pack = Pack::new(
        "echo worse > counter.txt; echo junk > junk.txt",
        "echo '{\"valid\": true, \"score\": 0}'\n",
        "",
    );
    let ran = pack.run(&["--iterations", "2"]);
    assert_eq!(ran.decisions(), ["baseline", "discard", "discard"]);
    assert_eq!(pack.read("workspace/counter.txt"), "0\n");
    assert!(!pack.exists("workspace/junk.txt"));
    let candidate = ran.rows()[1]["candidate"].as_str().unwrap();
    assert_eq!(pack.git(&["show", &format!("{candidate}:junk.txt")]), "junk\n");
    let refs = pack.git(&["for-each-ref", "--points-at", candidate, "--format=%(refname)"]);
    assert!(refs.contains("refs/crucible/"), "{refs:?}");
    let diff = ran.rows()[1]["diff"].as_str().unwrap();
    assert!(diff.contains("+worse") && diff.contains("junk.txt"), "{diff}");
}

#[test]
fn an_ignored_build_cache_survives_a_discard() {
    let pack = Pack::new(
        "mkdir -p target; echo cached >> target/cache; echo x > counter.txt",
        "echo '{\"valid\": true, \"score\": 0}'\n",
        "",
    );
    pack.write("start/.gitignore", "target/\n");
    pack.run(&["--iterations", "2"]);
    assert_eq!(pack.read("workspace/target/cache"), "cached\ncached\n");
}

#[test]
fn a_failed_agent_is_not_measured() {
    let judge = format!("echo x >> \"$OUTSIDE\"\n{COUNT}");
    let pack = Pack::new(&format!("{RAISE}; exit 3"), &judge, "");
    let count = pack.path("count");
    pack.command(&["--iterations", "2"]).env("OUTSIDE", &count).output().unwrap();
    assert_eq!(pack.read("count").lines().count(), 1, "only the baseline");
    let rows: Vec<Value> = pack.log().into_iter().filter(|line| line["kind"] == "row").collect();
    assert_eq!(rows[1]["row"]["note"], "the agent ended with exit code 3");
    assert_eq!(pack.read("workspace/counter.txt"), "0\n");
}

#[test]
fn an_agent_that_runs_into_its_limit_leaves_nothing_running() {
    let pack = Pack::new("(setsid sh -c 'while :; do sleep 0.01; done' &) ; sleep 1000", COUNT, "");
    pack.write("crucible.toml", &pack.read("crucible.toml").replace("[judge]", "timeout = \"1s\"\n[judge]"));
    let ran = pack.run(&["--iterations", "1"]);
    ran.ended("finished", 0);
    let row = ran.rows()[1];
    assert!(row["note"].as_str().unwrap().contains("time limit"), "{row}");
    assert!(!row["killed"].as_array().unwrap().is_empty(), "{row}");
}

#[test]
fn a_writer_that_the_agent_left_is_dead_before_the_measurement() {
    let agent = "echo 1 > counter.txt; (setsid sh -c 'while :; do echo x >> growing.txt; sleep 0.01; done' >/dev/null 2>&1 &); while [ ! -s growing.txt ]; do sleep 0.01; done";
    let pack = Pack::new(
        agent,
        &format!(
            "a=$(wc -c < growing.txt); sleep 0.3; [ \"$a\" = \"$(wc -c < growing.txt)\" ] || exit 9\n{COUNT}"
        ),
        "",
    );
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.decisions(), ["baseline", "keep"], "{}", ran.stderr());
    assert!(!ran.rows()[1]["killed"].as_array().unwrap().is_empty());
}

#[test]
fn the_prompt_comes_on_standard_input_whole_and_once_expanded() {
    let pack = Pack::new("cat > prompt.txt", COUNT, "");
    let goal = format!("{{{{STATUS}}}} {}", "x".repeat(300_000));
    pack.write("goal.txt", &goal);
    pack.write("method.md", "a {{GOAL}} b {{STATUS}} c {{OTHER}}");
    pack.write(
        "crucible.toml",
        &pack.read("crucible.toml").replace("[judge]", "method_prompt = \"method.md\"\n[judge]"),
    );
    let ran = pack.run(&["--iterations", "1", "--goal-file", "goal.txt"]);
    let candidate = ran.rows()[1]["candidate"].as_str().unwrap();
    let prompt = pack.git(&["show", &format!("{candidate}:prompt.txt")]);
    assert!(prompt.starts_with("a {{STATUS}} xxx"), "{:.40}", prompt);
    assert!(prompt.contains("b Iteration 1 of 1.") && prompt.ends_with("c {{OTHER}}"));
}

#[test]
fn agent_variables_reach_the_agent_only() {
    let judge = format!("echo \"judge ${{TOKEN-none}}\" >> \"$OUTSIDE\"\n{COUNT}");
    let pack = Pack::new(
        &format!("{RAISE}; echo \"agent $TOKEN\" >> \"$OUTSIDE\""),
        &judge,
        "[agent.env]\nTOKEN = \"t\"\n",
    );
    let told = pack.path("told");
    pack.command(&["--iterations", "1"]).env("OUTSIDE", &told).output().unwrap();
    assert_eq!(pack.read("told"), "judge none\nagent t\njudge none\n");
}

#[test]
fn a_frozen_file_is_put_back_before_it_judges_and_the_row_says_so() {
    let cheat = "echo 'echo \"{\\\"valid\\\": true, \\\"score\\\": 1000}\"' > measure.sh";
    let pack = Pack::new(&format!("{RAISE}; {cheat}"), COUNT, "");
    let ran = pack.run(&["--iterations", "2"]);
    assert_eq!(ran.rows()[2]["score"], 2.0);
    assert_eq!(ran.rows()[1]["frozen_restored"][0], "measure.sh");
    assert_eq!(pack.read("workspace/measure.sh"), COUNT);
}

#[test]
fn a_frozen_file_is_put_back_through_no_link_that_the_agent_planted() {
    for plant in [
        "rm measure.sh; ln -s \"$OUTSIDE\" measure.sh",
        "rm measure.sh; mkdir measure.sh; touch measure.sh/x",
        "rm measure.sh; mkfifo measure.sh",
        "chmod 000 measure.sh",
    ] {
        let pack = Pack::new(&format!("{RAISE}; {plant}"), COUNT, "");
        pack.write("outside.txt", "mine");
        let outside = pack.path("outside.txt");
        let output = pack.command(&["--iterations", "2"]).env("OUTSIDE", &outside).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{plant}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(pack.read("outside.txt"), "mine", "{plant}");
        assert_eq!(pack.read("workspace/counter.txt"), "2\n", "{plant}");
    }
}

#[test]
fn a_replaced_parent_directory_of_a_frozen_file_leads_nowhere() {
    let pack = Pack::new(&format!("{RAISE}; rm -r gate; ln -s \"$OUTSIDE\" gate"), COUNT, "");
    pack.write("gate/judge.sh", COUNT);
    let manifest = pack
        .read("crucible.toml")
        .replace("\"measure.sh\"", "\"gate/judge.sh\"")
        .replace("sh ./measure.sh", "sh gate/judge.sh");
    pack.write("crucible.toml", &manifest);
    std::fs::create_dir(pack.path("elsewhere")).unwrap();
    let output =
        pack.command(&["--iterations", "2"]).env("OUTSIDE", pack.path("elsewhere")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(pack.path("elsewhere")).unwrap().count(), 0);
    assert_eq!(pack.read("workspace/counter.txt"), "2\n");
}

#[test]
fn apply_runs_before_the_measurement_and_a_failed_one_discards() {
    let apply = "[world]\napply_cmd = \"[ $(cat counter.txt) != 2 ] || { echo no build; exit 4; }\"\n";
    let agent =
        "n=$(cat .turns 2>/dev/null || echo 0); n=$((n + 1)); echo $n > .turns; echo $n > counter.txt";
    let pack = Pack::new(agent, COUNT, apply);
    pack.write("start/.gitignore", ".turns\n");
    let ran = pack.run(&["--iterations", "3"]);
    assert_eq!(ran.decisions(), ["baseline", "keep", "discard", "keep"]);
    assert_eq!(ran.rows()[2]["note"], "apply_cmd ended with exit code 4 (no build)");
}

#[test]
fn a_command_world_carries_the_domains_token_beside_the_commit() {
    let world = "[world]\nsnapshot_cmd = \"cat ../live\"\nrestore_cmd = \"printf %s \\\"$CRUCIBLE_TOKEN\\\" > ../live\"\n";
    let agent = "n=$(cat .turns 2>/dev/null || echo 0); n=$((n + 1)); echo $n > .turns; echo $((3 - n)) > counter.txt; echo live-$n > ../live";
    let pack = Pack::new(agent, COUNT, world);
    pack.write("start/.gitignore", ".turns\n");
    pack.write("live", "live-0");
    let ran = pack.run(&["--iterations", "3"]);
    assert_eq!(ran.decisions(), ["baseline", "keep", "discard", "discard"]);
    let token = ran.rows()[1]["kept_snap"].as_str().unwrap();
    let (commit, domain) = token.split_once('\t').unwrap();
    assert_eq!(domain, "live-1");
    assert_eq!(pack.git(&["rev-parse", "HEAD"]).trim(), commit);
    assert_eq!(pack.read("live"), "live-1", "restored after the discards");
}

#[test]
fn a_failed_snapshot_aborts_the_keep() {
    let world =
        "[world]\nsnapshot_cmd = \"[ $(cat counter.txt) != 1 ] && echo token\"\nrestore_cmd = \"true\"\n";
    let pack = Pack::new(RAISE, COUNT, world);
    let ran = pack.run(&["--iterations", "1"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "discard"]);
    assert!(ran.rows()[1]["note"].as_str().unwrap().contains("snapshot failed"));
    assert_eq!(pack.read("workspace/counter.txt"), "0\n");
}

#[test]
fn a_failed_restore_stops_the_run() {
    let world =
        "[world]\nsnapshot_cmd = \"echo token\"\nrestore_cmd = \"echo the rig is gone >&2; exit 1\"\n";
    let ran = Pack::new("echo -5 > counter.txt", COUNT, world).run(&["--iterations", "5"]);
    ran.ended("error", 1);
    assert_eq!(ran.decisions(), ["baseline", "discard"]);
    let shutdown = ran.log.last().unwrap();
    assert!(shutdown["reason"].as_str().unwrap().contains("the rig is gone"), "{shutdown}");
}

#[test]
fn an_escalation_ends_the_run() {
    let pack = Pack::new(
        "echo '{\"category\": \"blocked\", \"reason\": \"no way on\", \"evidence\": [1]}' > ESCALATION.json",
        COUNT,
        "",
    );
    let ran = pack.run(&["--iterations", "5"]);
    ran.ended("escalated", 12);
    let escalation = ran.events("escalation").next().unwrap();
    assert_eq!((&escalation["category"], &escalation["reason"]), (&"blocked".into(), &"no way on".into()));
    assert!(!pack.exists("workspace/ESCALATION.json"), "it is consumed");
}

#[test]
fn the_agents_account_goes_into_its_row_and_not_into_the_candidate() {
    let pack = Pack::new(&format!("{RAISE}; echo 'what I did' > CANDIDATE.md"), COUNT, "");
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.rows()[1]["candidate_md"], "what I did\n");
    assert!(!pack.git(&["ls-files"]).contains("CANDIDATE.md"));
    assert!(!pack.exists("workspace/CANDIDATE.md"));
}

#[test]
fn state_is_private_from_its_creation() {
    let pack = Pack::counter();
    pack.run(&["--iterations", "1"]);
    let mode = |name: &str| pack.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("state"), 0o700);
    for name in ["state/session.jsonl", "state/report.json", "state/lock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

#[test]
fn a_second_run_puts_the_first_away() {
    let pack = Pack::counter();
    let first = pack.run(&["--iterations", "2"]);
    let second = pack.run(&["--iterations", "1"]);
    second.ended("finished", 0);
    assert_eq!(pack.read("workspace/counter.txt"), "1\n");
    let archive: Vec<_> = std::fs::read_dir(pack.path("state/archive")).unwrap().flatten().collect();
    assert_eq!(archive.len(), 1);
    let kept = std::fs::read_to_string(archive[0].path().join("session.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), first.log.len());
}

#[test]
fn the_identity_is_the_same_for_the_same_pack_and_differs_with_the_judge() {
    let pack = Pack::counter();
    let identity = |ran: &crate::support::Ran| {
        ran.events("identity").next().unwrap()["identity"].as_str().unwrap().to_owned()
    };
    let first = identity(&pack.run(&["--iterations", "1"]));
    assert!(first.starts_with("v1:") && first.len() == 67, "{first}");
    assert_eq!(identity(&pack.run(&["--iterations", "3"])), first);
    pack.write("measure.sh", &format!("{COUNT}# another\n"));
    assert_ne!(identity(&pack.run(&["--iterations", "1"])), first);
}

#[test]
fn a_run_that_did_not_end_is_refused_and_fresh_puts_it_away() {
    let pack = Pack::counter();
    pack.run(&["--iterations", "1"]);
    let log = pack.read("state/session.jsonl");
    let cut: Vec<&str> = log.lines().collect();
    pack.write("state/session.jsonl", &format!("{}\n", cut[..cut.len() - 1].join("\n")));
    let refused = pack.run(&["--iterations", "1"]);
    assert_eq!(refused.code(), 5);
    let stderr = refused.stderr();
    assert!(
        stderr.contains("did not end") && stderr.contains("--fresh") && stderr.contains("--resume"),
        "{stderr}"
    );
    pack.run(&["--iterations", "1", "--fresh"]).ended("finished", 0);
}

#[test]
fn two_runs_at_once_do_not_meet() {
    let pack = Pack::new("touch ../begun; while [ ! -e ../go ]; do sleep 0.01; done", COUNT, "");
    let mut first = pack.command(&["--iterations", "1"]).spawn().unwrap();
    while !pack.exists("begun") {
        assert!(first.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let second = pack.command(&["--iterations", "1"]).output().unwrap();
    pack.write("go", "");
    assert_eq!(second.status.code(), Some(5), "{}", String::from_utf8_lossy(&second.stderr));
    assert!(String::from_utf8_lossy(&second.stderr).contains(&first.id().to_string()));
    assert_eq!(first.wait().unwrap().code(), Some(0));
}

#[test]
fn control_json_stops_at_the_next_step() {
    let pack = Pack::new(&format!("{RAISE}; echo '{{\"stop\": true}}' > ../state/control.json"), COUNT, "");
    let ran = pack.run(&["--iterations", "5"]);
    ran.ended("stopped", 11);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
}

#[test]
fn max_time_refuses_further_work_and_ends_what_runs() {
    let pack = Pack::new("sleep 1000", COUNT, "");
    let ran = pack.run(&["--iterations", "5", "--max-time", "5s"]);
    ran.ended("budget", 10);
    assert_eq!(ran.decisions(), ["baseline", "discard"]);
}

#[test]
fn a_log_that_is_taken_away_ends_the_run() {
    for harm in
        ["rm ../state/session.jsonl", "cp ../state/session.jsonl ../x; mv ../x ../state/session.jsonl"]
    {
        let pack = Pack::new(&format!("{RAISE}; {harm}"), COUNT, "");
        let output = pack.command(&["--iterations", "3"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("removed or replaced"), "{stderr}");
    }
}

#[test]
fn what_a_setup_command_prints_moves_no_terminal() {
    let pack = Pack::counter();
    let setup = "[workspace]\nsetup_cmd = \"printf '\\\\033[2J' >&2; exit 3\"\n";
    pack.write("crucible.toml", &pack.read("crucible.toml").replace("[workspace]\n", setup));
    let ran = pack.run(&[]);
    ran.ended("error", 4);
    assert!(ran.stderr().contains("\\u{1b}[2J") && !ran.stderr().contains('\u{1b}'), "{:?}", ran.stderr());
}

/// Sends a signal when the agent has begun, as often as asked, and waits for the end.
fn interrupted(agent: &str, times: usize) -> (Pack, i32) {
    use nix::sys::signal::{Signal, kill};
    let pack = Pack::new(agent, COUNT, "");
    let mut child = pack.command(&["--iterations", "5"]).spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    for time in 0..times {
        let mark = format!("begun-{time}");
        while !pack.exists(&mark) {
            assert!(child.try_wait().unwrap().is_none(), "{:?}", pack.log().last());
            std::thread::yield_now();
        }
        kill(pid, Signal::SIGINT).unwrap();
        // The next mark is made once the signal's note is in the log, so that two signals are never one.
        let noted = || pack.log_text().matches("asked for").count() > time;
        while !noted() {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        pack.write(&format!("begun-{}", time + 1), "");
    }
    let code = child.wait().unwrap().code().unwrap();
    (pack, code)
}

#[test]
fn one_interrupt_stops_after_the_iteration() {
    let (pack, code) =
        interrupted(&format!("{RAISE}; touch ../begun-0; while [ ! -e ../begun-1 ]; do sleep 0.01; done"), 1);
    assert_eq!(code, 11);
    let log = pack.log();
    let rows: Vec<&Value> = log.iter().filter(|line| line["kind"] == "row").collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[1]["row"]["decision"], "keep");
    assert_eq!(log.last().unwrap()["outcome"], "stopped");
}

#[test]
fn two_interrupts_abort_and_put_the_workspace_back() {
    let (pack, code) = interrupted(&format!("{RAISE}; touch ../begun-0; sleep 1000"), 2);
    assert_eq!(code, 11);
    let log = pack.log();
    let last = log.last().unwrap();
    assert_eq!((&last["kind"], &last["outcome"]), (&"shutdown".into(), &"stopped".into()));
    assert!(last["reason"].as_str().unwrap().contains("aborted"));
    assert_eq!(pack.read("workspace/counter.txt"), "0\n");
}

#[test]
fn nothing_is_left_running_when_the_engine_is_killed() {
    let pack = Pack::new("(setsid sleep 987654 &); touch ../begun; sleep 987654", COUNT, "");
    let mut child = pack.command(&["--iterations", "1"]).spawn().unwrap();
    while !pack.exists("begun") {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    let workspace = std::fs::canonicalize(pack.path("workspace")).unwrap();
    assert!(!processes_in(&workspace).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    // The keeper sees its socket close; this waits for that and would hang the test if it never came.
    while !processes_in(&workspace).is_empty() {
        std::thread::yield_now();
    }
}

/// The processes whose working directory is `dir`.
fn processes_in(dir: &std::path::Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let of = |entry: std::fs::DirEntry| {
        (std::fs::read_link(entry.path().join("cwd")).ok()? == dir)
            .then(|| entry.path().display().to_string())
    };
    all.filter_map(of).collect()
}

#[test]
fn in_place_runs_in_the_repository_and_refuses_a_dirty_tree() {
    let pack = in_place();
    pack.write("scratch.txt", "my work");
    let refused = pack.run(&["--iterations", "1"]);
    assert_eq!(refused.code(), 4, "{}", refused.stderr());
    assert!(refused.stderr().contains("scratch.txt"), "{}", refused.stderr());
    assert_eq!(pack.read("scratch.txt"), "my work");
    std::fs::remove_file(pack.path("scratch.txt")).unwrap();
    let ran = pack.run(&["--iterations", "2", "--fresh"]);
    ran.ended("finished", 0);
    assert_eq!(pack.read("counter.txt"), "2\n");
    assert_eq!(git(&pack.path("."), &["status", "--porcelain"]), "");
}

#[test]
fn in_place_the_manifest_cannot_be_edited_by_a_candidate() {
    let pack = in_place();
    let before = pack.read("crucible.toml");
    let manifest = before.replace(
        "echo $((n + 1)) > counter.txt",
        "echo $((n + 1)) > counter.txt; echo '# mine' >> crucible.toml",
    );
    assert_ne!(before, manifest);
    pack.write("crucible.toml", &manifest);
    git(&pack.path("."), &["commit", "-aqm", "an agent that edits the manifest"]);
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    assert_eq!(pack.read("crucible.toml"), manifest);
    assert_eq!(ran.rows()[1]["frozen_restored"][0], "crucible.toml");
}

/// A repository that is its own workspace.
pub(crate) fn in_place() -> Pack {
    let pack = Pack::empty();
    pack.write("counter.txt", "0\n");
    pack.write("measure.sh", COUNT);
    pack.write(".gitignore", "/state/\n");
    pack.write(
        "crucible.toml",
        &format!(
            "[repo]\npath = \".\"\n[workspace]\ndir = \".\"\ninject = [\"measure.sh\"]\n[agent]\nbackend = \"command\"\nagent_cmd = {}\n\
             [judge]\nmeasure_cmd = \"sh ./measure.sh\"\ndirection = \"higher\"\n",
            crate::support::toml_string(RAISE)
        ),
    );
    let here = pack.path(".");
    git(&here, &["init", "-q"]);
    git(&here, &["add", "-A"]);
    git(&here, &["commit", "-qm", "first"]);
    pack
}

#[test]
fn a_thousand_iterations() {
    let ran = Pack::counter().run(&["--iterations", "1000", "--ui", "headless"]);
    ran.ended("finished", 0);
    assert_eq!(ran.rows().len(), 1001);
    assert_eq!(ran.rows()[1000]["score"], 1000.0);
}

#[test]
fn nobody_needs_an_identity_a_home_or_a_configuration() {
    let pack = Pack::counter();
    let mut command = binary();
    command.args(["--iterations", "1"]).current_dir(pack.path("."));
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_ordinary_user_can_run_it() {
    use std::os::unix::process::CommandExt;
    if !nix::unistd::geteuid().is_root() {
        // Then every other test of this suite shows it.
        return crate::support::skip(crate::support::Skip::NotRoot);
    }
    let look = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -q CRUCIBLE_CANARY && echo open > environ.txt || echo closed > environ.txt";
    let pack = Pack::new(&format!("{RAISE}; {look}"), COUNT, "");
    // Neither the build's directory nor the pack need be reachable for that user where they are.
    let dir = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let binary = dir.path().join("crucible");
    std::fs::copy(crate::support::BINARY, &binary).unwrap();
    let own = dir.path().join("own");
    for name in ["crucible.toml", "measure.sh", "start/counter.txt"] {
        std::fs::create_dir_all(own.join(name).parent().unwrap()).unwrap();
        std::fs::copy(pack.path(name), own.join(name)).unwrap();
    }
    let (uid, gid) = (65534, 65534);
    for path in ["", "start"] {
        std::os::unix::fs::chown(own.join(path), Some(uid), Some(gid)).unwrap();
    }
    let mut command = crate::support::program(binary.to_str().unwrap());
    command.args(["--iterations", "2"]).current_dir(&own).env("HOME", "/nonexistent").uid(uid).gid(gid);
    command.env("CRUCIBLE_CANARY", "x");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(own.join("workspace/counter.txt")).unwrap(), "2\n");
    // The engine's own variables are closed to what it runs, though both are that user's.
    let seen = std::fs::read_to_string(own.join("workspace/environ.txt")).unwrap();
    assert_eq!(seen, "closed\n");
}

#[test]
fn a_candidate_of_fifty_megabytes_is_kept_whole() {
    let agent =
        format!("{RAISE}; head -c 50000000 /dev/urandom | od -An -tx1 -v | head -c 50000000 > big.txt");
    let ran_in = Pack::new(&agent, COUNT, "");
    let ran = ran_in.run(&["--iterations", "1"]);
    assert_eq!(ran.decisions(), ["baseline", "keep"], "{}", ran.stderr());
    assert!(ran.rows()[1]["diff"].as_str().unwrap().len() <= 200_000);
    assert!(ran.rows()[1]["diffstat"].as_str().unwrap().contains("big.txt"));
    assert_eq!(ran_in.git(&["cat-file", "-s", "HEAD:big.txt"]).trim(), "50000000");
}

#[test]
fn links_inside_the_tree_and_names_like_git_are_what_they_are() {
    let pack = Pack::new(
        &format!("{RAISE}; echo more >> AGENTS.md; mkdir -p .github; echo x > .github/workflow"),
        COUNT,
        "",
    );
    pack.write("start/AGENTS.md", "read me\n");
    std::os::unix::fs::symlink("AGENTS.md", pack.path("start/CLAUDE.md")).unwrap();
    pack.write("start/.gitignored/file", "kept");
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.decisions(), ["baseline", "keep"]);
    let files = pack.git(&["ls-files"]);
    for name in ["AGENTS.md", "CLAUDE.md", ".github/workflow", ".gitignored/file"] {
        assert!(files.lines().any(|line| line == name), "{name}: {files}");
    }
    assert_eq!(pack.read("workspace/CLAUDE.md"), "read me\nmore\n");
}

#[test]
fn what_an_agent_does_to_the_workspaces_repository_costs_nothing() {
    for harm in [
        "rm -rf .git",
        "rm -rf .git; echo 'gitdir: /nonexistent' > .git",
        "rm -rf .git; ln -s / .git",
        "git init -q sub; git reset -q --hard; rm -rf sub",
        "git -c user.name=a -c user.email=a@b commit -qam mine; git checkout -q -b other; git reset -q --hard HEAD~",
        "git update-index --assume-unchanged counter.txt",
        "echo '*' > .git/info/exclude",
        "printf '[core]\\n\\tworktree = /\\n\\tfsmonitor = touch /tmp/never\\n[include]\\n\\tpath = /nonexistent\\n' >> .git/config",
        "touch .git/index.lock .git/HEAD.lock",
    ] {
        let pack = Pack::new(
            &format!("{harm}; n=$(cat counter.txt || echo 0); echo $((n + 1)) > counter.txt"),
            COUNT,
            "",
        );
        let ran = pack.run(&["--iterations", "2"]);
        ran.ended("finished", 0);
        assert_eq!(ran.decisions().len(), 3, "{harm}");
        assert_eq!(ran.decisions()[0], "baseline");
        let best = ran.events("summary").next().unwrap()["best_snap"].as_str().unwrap().to_owned();
        assert_eq!(pack.git(&["rev-parse", "HEAD"]).trim(), best, "{harm}");
        assert_eq!(pack.git(&["status", "--porcelain"]), "", "{harm}");
    }
}

#[test]
fn an_agent_that_removes_the_workspace_costs_one_candidate() {
    let pack = Pack::new("rm -rf \"$PWD\"/* \"$PWD\"/.[!.]*", COUNT, "");
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "discard", "discard"]);
    assert_eq!(pack.read("workspace/counter.txt"), "0\n");
}

#[test]
fn an_agent_that_moves_the_workspace_away_costs_one_candidate() {
    let agent = format!("{RAISE}; d=$PWD; cd /; [ -e \"$d.moved\" ] || mv \"$d\" \"$d.moved\"");
    let pack = Pack::new(&agent, COUNT, "");
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions().last(), Some(&"keep"), "{}", ran.stderr());
    assert_eq!(pack.read("workspace/counter.txt"), "1\n");
    assert!(pack.exists("workspace.moved/counter.txt"), "nothing is lost");
}

#[test]
fn on_a_terminal_there_is_a_progress_line() {
    let pack = Pack::counter();
    let line = format!("{} --iterations 2", crate::support::BINARY);
    let output = crate::support::program("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(pack.path("."))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("\r\u{1b}[2Kiteration 1 of 2 | best 0 | 0 kept | 00:00:0"), "{text:?}");
    assert!(text.contains("2 of 2 kept"), "{text:?}");
}

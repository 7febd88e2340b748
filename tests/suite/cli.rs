//! Contract §9: the command line, its texts and its exit codes.

use crate::support::{COUNT, Pack, RAISE, git};

#[test]
fn what_init_writes_passes_check_and_runs() {
    for repository in [true, false] {
        let pack = Pack::empty();
        if repository {
            git(&pack.path("."), &["init", "-q"]);
            pack.write("code.txt", "x");
            git(&pack.path("."), &["add", "-A"]);
            git(&pack.path("."), &["commit", "-qm", "first"]);
        }
        assert_eq!(pack.run(&["init"]).code(), 0);
        let checked = pack.run(&["check"]);
        assert_eq!(checked.code(), 0, "{}{}", checked.stdout(), checked.stderr());
        assert!(checked.stdout().ends_with("ok\n"), "{}", checked.stdout());
        assert!(!pack.exists("state") && !pack.exists("workspace"), "check leaves nothing");
        pack.run(&["--iterations", "2"]).ended("finished", 0);
        if repository {
            let status = git(&pack.path("."), &["status", "--porcelain"]);
            assert!(!status.contains("workspace/") && !status.contains("state/"), "{status}");
        }
    }
}

#[test]
fn init_refuses_to_overwrite() {
    let pack = Pack::empty();
    pack.write("measure.sh", "mine");
    let ran = pack.run(&["init"]);
    assert_eq!(ran.code(), 1);
    assert!(ran.stderr().contains("measure.sh"), "{}", ran.stderr());
    assert!(!pack.exists("crucible.toml"));
}

#[test]
fn every_mistake_of_a_manifest_comes_with_its_place_and_a_hint() {
    let pack = Pack::counter();
    pack.write(
        "crucible.toml",
        &pack.read("crucible.toml").replace("measure_cmd", "mesure_cmd").replace("\"higher\"", "\"up\""),
    );
    let ran = pack.run(&[]);
    assert_eq!(ran.code(), 3);
    let stderr = ran.stderr();
    for part in ["crucible.toml:9:1", "mesure_cmd", "measure_cmd", "crucible.toml:10:13", "higher"] {
        assert!(stderr.contains(part), "{part} is missing in\n{stderr}");
    }
    assert!(!pack.exists("state"), "nothing is made for a wrong manifest");
}

#[test]
fn a_wrong_path_of_the_repository_puts_no_earlier_run_away() {
    let pack = Pack::counter();
    pack.run(&["--iterations", "1"]).ended("finished", 0);
    let manifest = pack.read("crucible.toml");
    let broken = manifest.replace("[repo]\npath = \"", "[repo]\npath = \"no-");
    assert_ne!(broken, manifest);
    pack.write("crucible.toml", &broken);
    let log = pack.read("state/session.jsonl");
    let ran = pack.run(&[]);
    assert_eq!(ran.code(), 4, "{}", ran.stderr());
    for part in ["/no-", "[repo].path", "relative to the manifest's directory"] {
        assert!(ran.stderr().contains(part), "{part} is missing in\n{}", ran.stderr());
    }
    assert!(
        pack.read("state/session.jsonl") == log && !pack.exists("state/archive"),
        "it stands where it was"
    );
}

#[test]
fn no_manifest_is_an_error_that_names_the_way_to_one() {
    let ran = Pack::empty().run(&[]);
    assert_eq!(ran.code(), 3);
    assert!(
        ran.stderr().contains("crucible.toml") && ran.stderr().contains("crucible init"),
        "{}",
        ran.stderr()
    );
}

#[test]
fn what_this_build_does_not_have_is_refused_by_name() {
    let pack = Pack::counter();
    for args in [
        &["--wide", "3"][..],
        &["plan", "run"],
        &["plan", "compile-workflow", "--file", "x"],
        &["scope", "--pack", "."],
    ] {
        let ran = pack.run(args);
        assert_eq!(ran.code(), 2, "{args:?}");
        assert!(
            ran.stderr().contains(args[0]) && ran.stderr().contains("does not have it"),
            "{args:?}: {}",
            ran.stderr()
        );
    }
    assert!(!pack.exists("state"));
}

#[test]
fn a_misspelt_subcommand_is_pointed_to_the_nearest() {
    let ran = Pack::counter().run(&["chek"]);
    assert_eq!(ran.code(), 2);
    assert!(ran.stderr().contains("did you mean `check`?"), "{}", ran.stderr());
}

#[test]
fn a_backend_that_is_none_is_refused_with_those_that_are() {
    let pack = Pack::counter();
    pack.write(
        "crucible.toml",
        &pack.read("crucible.toml").replace("backend = \"command\"", "backend = \"pod\""),
    );
    let ran = pack.run(&[]);
    assert_eq!(ran.code(), 3);
    assert!(ran.stderr().contains("local") && ran.stderr().contains("openshell"), "{}", ran.stderr());
}

#[test]
fn check_warns_of_a_judge_that_the_agent_can_edit() {
    let pack = Pack::counter();
    pack.write("start/judge.sh", COUNT);
    pack.write("crucible.toml", &pack.read("crucible.toml").replace("sh ./measure.sh", "sh ./judge.sh"));
    for args in [&["check"][..], &["check", "--no-run"]] {
        let ran = pack.run(args);
        assert_eq!(ran.code(), 0, "a warning fails nothing");
        assert!(ran.stdout().contains("the agent can edit judge.sh"), "{}", ran.stdout());
    }
}

#[test]
fn check_shows_why_the_judge_cannot_score() {
    let pack = Pack::new(RAISE, "echo 'no such rig' >&2; exit 1\n", "");
    let ran = pack.run(&["check"]);
    assert_eq!(ran.code(), 7);
    assert!(ran.stdout().contains("no such rig") && ran.stdout().ends_with("not ok\n"), "{}", ran.stdout());
}

#[test]
fn check_runs_nothing_when_told_so() {
    let pack = Pack::new(RAISE, "touch \"$OUTSIDE\"\n", "");
    let mark = pack.path("mark");
    let output = pack.command(&["check", "--no-run"]).env("OUTSIDE", &mark).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!pack.exists("mark"));
}

#[test]
fn check_tells_a_script_in_json() {
    let ran = Pack::counter().run(&["check", "--json"]);
    let findings: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
    assert_eq!(findings["reading"]["score"], 0.0);
    assert_eq!(findings["errors"].as_array().unwrap().len(), 0);
}

#[test]
fn check_tells_a_script_of_a_wrong_manifest_in_json_too() {
    let pack = Pack::counter();
    pack.write("crucible.toml", "[repo]\n");
    let ran = pack.run(&["check", "--json"]);
    assert_eq!(ran.code(), 3);
    let findings: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
    assert!(findings["errors"][0].as_str().unwrap().contains("crucible.toml:1:1"), "{findings}");
}

#[test]
fn check_finds_what_stands_in_the_runs_way() {
    let pack = Pack::counter();
    pack.write("workspace/mine.txt", "my work");
    pack.write("state/session.jsonl", "{\"v\":1,\"kind\":\"finished\"}\n");
    let ran = pack.run(&["check", "--no-run"]);
    assert_eq!(ran.code(), 7);
    for part in ["workspace is not empty", "did not end"] {
        assert!(ran.stdout().contains(part), "{part}: {}", ran.stdout());
    }
}

#[test]
fn check_tells_that_nothing_names_a_models_key() {
    let pack = Pack::counter();
    let local = pack.read("crucible.toml").replace("backend = \"command\"", "backend = \"local\"");
    pack.write("crucible.toml", &local);
    for key in [None, Some("canary-key")] {
        let mut command = pack.command(&["check", "--no-run"]);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.envs(key.map(|key| ("ANTHROPIC_API_KEY", key)));
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let none = text.contains("\ninference    none: neither CRUCIBLE_INFERENCE nor a variable");
        assert_eq!(none, key.is_none(), "{text}");
        assert_eq!(
            text.contains("\ninference    `ANTHROPIC_API_KEY` of the environment\n"),
            key.is_some(),
            "{text}"
        );
    }
}

#[test]
fn an_interrupted_check_takes_its_scratch_away() {
    use nix::sys::signal::{Signal, kill};
    let pack = Pack::new(RAISE, "touch \"$BEGUN\"; sleep 1000\n", "");
    let scratch = pack.path("tmp");
    std::fs::create_dir(&scratch).unwrap();
    let mut command = pack.command(&["check"]);
    let mut child = command.env("BEGUN", pack.path("begun")).env("TMPDIR", &scratch).spawn().unwrap();
    while !pack.exists("begun") {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    kill(nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(11));
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
}

#[test]
fn an_agent_that_fails_says_why_in_its_row() {
    let ran = Pack::new("no-such-agent --prompt", COUNT, "").run(&["--iterations", "1"]);
    let note = ran.rows()[1]["note"].as_str().unwrap().to_owned();
    assert!(note.contains("exit code 127") && note.contains("not found"), "{note}");
    assert!(ran.stdout().contains("none of the 1 candidates could be scored"), "{}", ran.stdout());
}

#[test]
fn check_measures_a_pack_with_a_setup_command_in_a_copy() {
    let pack = Pack::counter();
    let manifest = pack
        .read("crucible.toml")
        .replace("[workspace]\n", "[workspace]\nsetup_cmd = \"cp -r start workspace\"\n");
    pack.write("crucible.toml", &manifest);
    let ran = pack.run(&["check"]);
    assert_eq!(ran.code(), 0, "{}{}", ran.stdout(), ran.stderr());
    assert!(!pack.exists("workspace"));
    pack.run(&["--iterations", "1"]).ended("finished", 0);
}

#[test]
fn the_report_is_a_files_and_a_scripts() {
    let pack = Pack::counter();
    let ran = pack.run(&["--iterations", "2", "--json"]);
    let printed: serde_json::Value = serde_json::from_str(&ran.stdout()).unwrap();
    let written: serde_json::Value = serde_json::from_str(&pack.read("state/report.json")).unwrap();
    for report in [&printed, &written] {
        assert_eq!(report["version"], 1);
        assert_eq!(report["outcome"], "finished");
        assert_eq!(report["best_score"], 2.0);
        assert_eq!(report["rows"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn headless_says_nothing() {
    let ran = Pack::counter().run(&["--iterations", "1", "--ui", "headless"]);
    assert_eq!((ran.stdout(), ran.stderr()), (String::new(), String::new()));
}

#[test]
fn nothing_an_agent_or_a_judge_says_moves_the_terminal() {
    let evil = r"printf '\033[2J\033]0;title\007'";
    let judge = format!(
        "{evil} >&2\nprintf '{{\"valid\": true, \"score\": %s, \"note\": \"\\\\u001b[31mred\"}}\\n' \"$(cat counter.txt)\"\n"
    );
    let pack = Pack::new(&format!("{RAISE}; {evil}"), &judge, "");
    let ran = pack.run(&["--iterations", "1", "--ui", "stream"]);
    ran.ended("finished", 0);
    let all = format!("{}{}", ran.stdout(), ran.stderr());
    assert!(all.contains("\\u{1b}[31mred"), "{all}");
    assert!(!all.contains('\u{1b}') && !all.contains('\u{7}'));
}

#[test]
fn the_schema_and_completions_are_printed() {
    let pack = Pack::empty();
    let schema: serde_json::Value = serde_json::from_str(&pack.run(&["schema"]).stdout()).unwrap();
    assert!(schema["properties"]["judge"].is_object());
    assert!(pack.run(&["completions", "bash"]).stdout().contains("crucible"));
    assert!(pack.run(&["--version"]).stdout().starts_with("crucible "));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let pack = Pack::counter();
    let mut child = pack.command(&["schema"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

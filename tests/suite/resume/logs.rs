//! Logs that were cut, damaged, written by an older or a newer build, or altered.

use serde_json::Value;

use super::{cut, last, noting, turns};
use crate::support::{COUNT, Pack};

#[test]
fn row_01_and_07_after_n_iterations_there_are_n_rows_and_the_totals_are_of_all_processes() {
    let agent =
        format!("echo '{{\"cost_usd\": 0.5, \"output_tokens\": 7}}' > \"$CRUCIBLE_USAGE\"; {}", noting());
    let pack = Pack::new(&agent, COUNT, "");
    pack.run(&["--iterations", "2"]);
    let first = last_budget(&pack);
    let ran = pack.run(&["--resume", "--iterations", "5"]);
    let iters: Vec<u64> = ran.rows().iter().map(|row| row["iter"].as_u64().unwrap()).collect();
    assert_eq!(iters, [0, 1, 2, 3, 4, 5]);
    let second = last_budget(&pack);
    assert_eq!((&first["spent"], &second["spent"]), (&Value::from(1.0), &Value::from(2.5)));
    assert_eq!(second["output_tokens"], 35);
    assert!(second["elapsed_secs"].as_f64() > first["elapsed_secs"].as_f64());
    assert!(ran.rows().iter().skip(1).all(|row| row["cost_usd"] == 0.5));
}

fn last_budget(pack: &Pack) -> Value {
    pack.log().into_iter().rfind(|line| line["kind"] == "budget").unwrap()
}

#[test]
fn row_02_logs_of_newer_and_older_builds_are_gone_on_with() {
    type Change = fn(&mut Value);
    let newer: Change = |line| {
        line["from_the_future"] = serde_json::json!({"a": [1]});
        if let Some(row) = line.get_mut("row") {
            row["also_new"] = Value::from("x");
        }
    };
    let older: Change = |line| {
        let added =
            ["seq", "ts", "direction", "tiebreak_direction", "input_tokens", "output_tokens", "stage"];
        added.iter().for_each(|name| drop(line.as_object_mut().unwrap().remove(*name)));
        match line["kind"].as_str().unwrap() {
            "agent_done" => *line = serde_json::json!({"v": 1, "kind": "agent_done"}),
            "task_result" if line["task_kind"] == "propose" => {
                drop(line.as_object_mut().unwrap().remove("output"));
            }
            "row" => {
                let row = line["row"].as_object_mut().unwrap();
                ["candidate", "secs", "cost_usd"].iter().for_each(|name| drop(row.remove(*name)));
            }
            _ => {}
        }
    };
    for (name, change) in [("newer", newer), ("older", older)] {
        let pack = Pack::new(&noting(), COUNT, "");
        pack.run(&["--iterations", "2"]);
        let mut lines: Vec<String> = Vec::new();
        for mut line in pack.log() {
            change(&mut line);
            lines.push(line.to_string());
        }
        lines.insert(4, r#"{"v":1,"kind":"a_kind_to_come","x":1}"#.to_owned());
        lines.pop();
        pack.write("state/session.jsonl", &format!("{}\n", lines.join("\n")));
        let ran = pack.run(&["--resume", "--iterations", "3"]);
        ran.ended("finished", 0);
        assert_eq!(ran.decisions(), ["baseline", "keep", "keep", "keep"], "{name}");
        assert_eq!(turns(&pack), 3, "{name}");
        // And again: the lines of the first resume follow from those before them.
        let ran = pack.run(&["--resume", "--iterations", "4"]);
        ran.ended("finished", 0);
        assert_eq!((ran.decisions().len(), turns(&pack)), (5, 4), "{name}");
    }
}

#[test]
fn row_13_and_14_a_log_cut_at_any_byte_of_its_end_is_gone_on_with() {
    let pack = Pack::new(&noting(), "echo '{\"valid\": true, \"score\": 1, \"note\": \"é\"}'\n", "");
    pack.run(&["--iterations", "1"]);
    let whole = std::fs::read(pack.path("state/session.jsonl")).unwrap();
    let row = whole.windows(12).rposition(|bytes| bytes == b"\"kind\":\"row\"").unwrap();
    let accent = row + whole[row..].windows(2).position(|bytes| bytes == "é".as_bytes()).unwrap();
    let mut cuts = vec![accent + 1, accent + 2, row, row + 1];
    cuts.extend((row..whole.len()).step_by(97));
    for cut in cuts {
        let mut bytes = whole[..cut].to_vec();
        // A crash of the machine can leave a block of NUL bytes where the line was to go on.
        if cut % 2 == 0 {
            bytes.extend([0; 512]);
        }
        std::fs::write(pack.path("state/session.jsonl"), &bytes).unwrap();
        let output = pack.command(&["--resume"]).output().unwrap();
        assert!(output.status.success(), "cut at {cut}: {}", String::from_utf8_lossy(&output.stderr));
        let text =
            String::from_utf8_lossy(&std::fs::read(pack.path("state/session.jsonl")).unwrap()).into_owned();
        let rows = |iter| {
            let lines = text.lines().map(|line| line.trim_matches('\0'));
            let parsed = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
            parsed.filter(|line| line["kind"] == "row" && line["row"]["iter"] == iter).count()
        };
        assert_eq!((rows(0), rows(1)), (1, 1), "cut at {cut}");
        assert_eq!(turns(&pack), 1, "cut at {cut}");
    }
}

#[test]
fn replay_names_the_first_line_that_does_not_follow() {
    let pack = Pack::new(
        "echo '{\"cost_usd\": 0.5, \"input_tokens\": 3}' > \"$CRUCIBLE_USAGE\"; case $(cat counter.txt) in 1) echo 0 ;; *) echo 1 ;; esac > c; mv c counter.txt",
        COUNT,
        "",
    );
    pack.run(&["--iterations", "2"]);
    let log = pack.read("state/session.jsonl");
    let good = pack.run(&["replay", "state/session.jsonl"]);
    assert_eq!(good.code(), 0, "{}", good.stderr());
    assert!(good.stdout().contains("every decision follows"), "{}", good.stdout());
    assert!(good.stdout().contains("commits are in"), "{}", good.stdout());
    let change = |kind: &str, nth: usize, with: &dyn Fn(&mut Value)| {
        let mut lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let at = lines.iter().enumerate().filter(|(_, line)| line["kind"] == kind).nth(nth).unwrap().0;
        with(&mut lines[at]);
        pack.write("altered.jsonl", &lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        let git = pack.path("state/git");
        let ran = pack.run(&["replay", "altered.jsonl", "--git", git.to_str().unwrap()]);
        assert_eq!(ran.code(), 1, "{kind} {nth}: {}", ran.stdout());
        (at + 1, ran.stderr())
    };
    let (line, error) = change("row", 2, &|line| line["row"]["decision"] = "keep".into());
    assert!(error.contains(&format!("line {line} ")) && error.contains("`decision`"), "{error}");
    let (line, error) = change("row", 1, &|line| line["row"]["score"] = 7.into());
    assert!(error.contains(&format!("line {line} ")) && error.contains("`score`"), "{error}");
    let (_, error) = change("task_result", 5, &|line| line["output"]["score"] = (-7).into());
    assert!(error.contains("follow the log"), "{error}");
    let (line, error) = change("budget", 1, &|line| line["spent"] = 7.5.into());
    assert!(
        error.contains(&format!("line {line} ")) && error.contains("was to be 0.5, 3, nothing"),
        "{error}"
    );
    assert!(error.contains("and is 7.5, 3, nothing"), "{error}");
    let (line, error) = change("row", 1, &|line| line["row"]["cost_usd"] = 0.25.into());
    assert!(
        error.contains(&format!("line {line} ")) && error.contains("`cost_usd` was to be 0.5"),
        "{error}"
    );
    let (_, error) = change("task_result", 3, &|line| line["cost_usd"] = 0.into());
    assert!(error.contains("cost_usd"), "{error}");
    let (line, error) = change("shutdown", 0, &|line| line["outcome"] = "solved".into());
    let told = "`outcome` was to be finished, and is solved";
    assert!(error.contains(&format!("line {line} ")) && error.contains(told), "{error}");
    let (line, error) = change("phase", 2, &|line| line["seq"] = 99.into());
    assert!(error.contains(&format!("line {line} ")) && error.contains("and is 99"), "{error}");
    let other = "0123456789abcdef0123456789abcdef01234567";
    let (_, error) = change("row", 1, &|line| line["row"]["kept_snap"] = other.into());
    assert!(error.contains(other) || error.contains("best_snap"), "{error}");
    let (_, error) = change("row", 2, &|line| line["row"]["candidate"] = other.into());
    assert!(error.contains("iteration 2") && error.contains("not in the repository"), "{error}");
}

#[test]
fn a_log_that_does_not_follow_is_not_gone_on_with() {
    let pack = Pack::new(&noting(), COUNT, "");
    pack.run(&["--iterations", "1"]);
    let text = pack.read("state/session.jsonl").replace("\"decision\":\"keep\"", "\"decision\":\"discard\"");
    pack.write("state/session.jsonl", &text);
    cut(&pack, |log| last(log, "shutdown"));
    let ran = pack.run(&["--resume"]);
    assert_eq!(ran.code(), 5);
    assert!(ran.stderr().contains("line ") && ran.stderr().contains("--fresh"), "{}", ran.stderr());
}

#[test]
fn what_an_agent_or_a_judge_nests_deeply_makes_no_line_that_cannot_be_read_again() {
    let deep = |by: usize| format!("{}1{}", "[".repeat(by), "]".repeat(by));
    // As deep as it may be, and as deep as a reader of a line goes, less what stands around it in the log.
    for (by, refused) in [(63, false), (125, true), (126, true)] {
        let gives_up = "printf '{\"category\":\"c\",\"reason\":\"r\",\"evidence\":%s}' \"$(cat ../deep)\" > ESCALATION.json";
        let pack = Pack::new(&format!("{}; {gives_up}", noting()), COUNT, "");
        pack.write("deep", &deep(by));
        let ran = pack.run(&["--iterations", "1"]);
        let (outcome, code) = if refused { ("finished", 0) } else { ("escalated", 12) };
        ran.ended(outcome, code);
        assert_eq!(pack.run(&["replay", "state/session.jsonl"]).code(), 0, "{by}");

        let judge = format!(
            "printf '{{\"valid\": true, \"score\": 1, \"detail\": {{\"a\": {}}}}}\\n'\n",
            deep(by - 1)
        );
        let pack = Pack::new(&noting(), &judge, "");
        let ran = pack.run(&["--iterations", "1"]);
        assert_eq!(ran.code() == 0, !refused, "{}", ran.stderr());
        assert_eq!(pack.run(&["replay", "state/session.jsonl"]).code(), 0, "{by}");
    }
}

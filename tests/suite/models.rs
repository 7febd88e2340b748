//! Contract §6 and note N6: which model an agent turn uses, who sees its key, and what a turn is furnished with.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use crate::support::{COUNT, Pack, Ran};

const KEY: &str = "canary-key-7d1f";
const DECISION: &str = "canary-decision-91aa";

/// A document that binds the agent, with its key, and a decider, with another.
fn document(url: &str) -> String {
    format!(
        r#"{{"version":1,"bindings":[{{"role":"agent","protocol":"messages","url":"{url}","model":"bound-1","key_env":"MY_KEY"}},
        {{"role":"decision","protocol":"decisions","model":"small","key_env":"DECISION_KEY"}}]}}"#
    )
}

fn bound(pack: &Pack, args: &[&str], document: &str) -> Ran {
    let keys = [("CRUCIBLE_INFERENCE", document), ("MY_KEY", KEY), ("DECISION_KEY", DECISION)];
    let ambient = [
        ("ANTHROPIC_API_KEY", "ambient-key"),
        ("CLAUDE_CODE_USE_VERTEX", "1"),
        ("OPENAI_API_KEY", "other-key"),
    ];
    let output = pack.command(args).envs(keys).envs(ambient).output().unwrap();
    Ran { output, log: pack.log() }
}

fn notes(ran: &Ran) -> Vec<&str> {
    ran.events("note").map(|line| line["msg"].as_str().unwrap()).collect()
}

/// Every file below a directory that holds a text.
fn holding(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                    found.push(entry.path().display().to_string());
                }
            }
        }
    }
    found
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sandboxed(pack: &Pack, openshell: &str) {
    let manifest = pack.read("crucible.toml").replace(
        "backend = \"command\"\n",
        &format!("backend = \"openshell\"\nharness = \"command\"\nopenshell = {{ inherit_defaults = false, {openshell} }}\n"),
    );
    pack.write("crucible.toml", &manifest);
}

/// Tells what a process sees of models, by names and lengths, so that no key stands in a candidate.
const TELL: &str = "for n in ANTHROPIC_API_KEY ANTHROPIC_BASE_URL CLAUDE_CODE_USE_VERTEX OPENAI_API_KEY MY_KEY DECISION_KEY \
                    CRUCIBLE_INFERENCE; do eval v=\\$$n; echo $n=${#v}; done";

#[test]
fn a_bound_agent_gets_its_key_by_the_name_its_clients_read_and_nobody_else_does() {
    let judge = format!("( {TELL} ) > judge.txt\n{COUNT}");
    let agent = format!("( {TELL} ) > agent.txt; echo 1 > counter.txt; echo $ANTHROPIC_BASE_URL > url.txt");
    let pack =
        Pack::new(&agent, &judge, "[world]\napply_cmd = \"env | grep -c canary- > apply.txt; true\"\n");
    let ran = bound(&pack, &["--iterations", "1"], &document("http://127.0.0.1:9/base"));
    ran.ended("finished", 0);
    assert_eq!(ran.log[0]["model"], "bound-1");
    let url = "http://127.0.0.1:9/base";
    let agents = format!(
        "ANTHROPIC_API_KEY={}\nANTHROPIC_BASE_URL={}\nCLAUDE_CODE_USE_VERTEX=0\nOPENAI_API_KEY=0\nMY_KEY=0\nDECISION_KEY=0\nCRUCIBLE_INFERENCE=0\n",
        KEY.len(),
        url.len()
    );
    assert_eq!(pack.read("workspace/agent.txt"), agents);
    assert_eq!(pack.read("workspace/url.txt"), format!("{url}\n"));
    let judges = "ANTHROPIC_API_KEY=0\nANTHROPIC_BASE_URL=0\nCLAUDE_CODE_USE_VERTEX=1\nOPENAI_API_KEY=0\nMY_KEY=0\nDECISION_KEY=0\nCRUCIBLE_INFERENCE=0\n";
    assert_eq!(pack.read("workspace/judge.txt"), judges);
    assert_eq!(pack.read("workspace/apply.txt"), "0\n");
    let inference: Vec<_> = notes(&ran).into_iter().filter(|note| note.starts_with("inference: ")).collect();
    assert_eq!(
        inference,
        [
            "inference: CRUCIBLE_INFERENCE binds the agent to bound-1 over messages at 127.0.0.1:9, with the key in `MY_KEY`",
            "inference: by CRUCIBLE_INFERENCE `ANTHROPIC_API_KEY` of the environment does not count",
            "inference: by CRUCIBLE_INFERENCE `CLAUDE_CODE_USE_VERTEX` of the environment does not count",
            "inference: by CRUCIBLE_INFERENCE `OPENAI_API_KEY` of the environment does not count",
            "inference: CRUCIBLE_INFERENCE binds decisions to small over decisions; no task asks for one",
        ]
    );
    for key in [KEY, DECISION, "ambient-key", "other-key"] {
        assert_eq!(holding(&pack.path("."), key), Vec::<String>::new(), "{key}");
        assert!(!ran.stdout().contains(key) && !ran.stderr().contains(key), "{key}");
    }
}

#[test]
fn a_sandboxed_agent_reaches_its_bound_endpoint_and_has_its_key() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let read = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n41").unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    let agent = "curl -sS -H \"x-api-key: $ANTHROPIC_API_KEY\" \"$ANTHROPIC_BASE_URL/v1/messages\" > counter.txt; \
                 echo ${#MY_KEY}${#DECISION_KEY}${#CLAUDE_CODE_USE_VERTEX} > other.txt";
    let pack = Pack::new(agent, COUNT, "");
    sandboxed(&pack, "binaries = [\"/usr/bin/curl\"]");
    let ran = bound(&pack, &["--iterations", "1"], &document(&url));
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"], "{}", pack.log_text());
    assert_eq!(pack.read("workspace/other.txt"), "000\n");
    let request = server.join().unwrap();
    assert!(
        request.starts_with("GET /v1/messages") && request.contains(&format!("x-api-key: {KEY}")),
        "{request}"
    );
    for key in [KEY, DECISION] {
        assert_eq!(holding(&pack.path("."), key), Vec::<String>::new(), "{key}");
    }
}

#[test]
fn a_document_that_cannot_be_used_is_refused_before_anything_is_made() {
    let good = document("https://a.example");
    for (document, expected) in [
        ("{".to_owned(), "error: failed to read CRUCIBLE_INFERENCE: the document: "),
        (
            good.replace("\"version\":1", "\"version\":2"),
            "error: failed to read CRUCIBLE_INFERENCE: version: the version 2 is unknown",
        ),
        (
            good.replace("\"model\":\"bound-1\"", "\"model\":\"bound 1\""),
            "bindings[0].model: the model's name holds a blank",
        ),
        (
            good.replace("MY_KEY", "canary-key"),
            "bindings[0].key_env: the name of the key's variable is no variable's name",
        ),
    ] {
        for command in [&["run"][..], &["check"], &["egress", "explain", "https://a.example"]] {
            let pack = Pack::counter();
            let output = pack.command(command).env("CRUCIBLE_INFERENCE", &document).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{command:?}: {}", stderr(&output));
            assert!(stderr(&output).contains(expected), "{}", stderr(&output));
            assert!(!stderr(&output).contains("canary-key"));
            assert!(!pack.exists("state") && !pack.exists("workspace"), "{command:?}");
        }
    }
}

#[test]
fn a_key_that_is_not_set_is_an_error_that_names_it_and_no_turn() {
    for key in [None, Some("")] {
        let pack = Pack::counter();
        let mut command = pack.command(&["--iterations", "1"]);
        command.env("CRUCIBLE_INFERENCE", document("https://a.example"));
        let output =
            key.iter().fold(&mut command, |command, key| command.env("MY_KEY", key)).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let how = if key.is_none() { "is not set" } else { "is empty" };
        let expected = format!("the variable `MY_KEY`, which CRUCIBLE_INFERENCE names, {how}");
        assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
        assert!(!pack.exists("workspace"));
        assert!(pack.log().iter().all(|line| line["kind"] != "agent_start"));
        let checked = pack
            .command(&["check"])
            .env("CRUCIBLE_INFERENCE", document("https://a.example"))
            .output()
            .unwrap();
        let checked = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(
            checked.contains(
                "warning: the first turn would fail to read the model's key: the variable `MY_KEY`"
            ),
            "{checked}"
        );
    }
}

#[test]
fn check_shows_the_model_the_endpoint_and_its_source_without_values() {
    let pack = Pack::counter();
    sandboxed(&pack, "endpoints = []");
    let ran = bound(&pack, &["check", "--no-run"], &document("https://model.example:8443/v1"));
    let lines: Vec<String> =
        ran.stdout().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in ["agent command in a sandbox", "model bound-1"] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
    }
    let egress = lines.iter().find(|line| line.starts_with("egress model.example:8443:full")).unwrap();
    assert!(egress.contains("engine"), "{egress}");
    assert!(!ran.stdout().contains(KEY) && !ran.stdout().contains("ambient-key"));
    assert!(!pack.exists("state"));
}

#[test]
fn a_protocol_without_a_harness_and_a_harness_without_a_driver_fail_closed() {
    let pack = Pack::counter();
    let local = pack.read("crucible.toml").replace("backend = \"command\"", "backend = \"local\"");
    pack.write("crucible.toml", &local);
    let chat = document("https://a.example").replace("messages", "chat_completions");
    let ran = bound(&pack, &["--iterations", "1"], &chat);
    assert_eq!(ran.code(), 2);
    assert!(ran.stderr().contains("run an agent that speaks chat_completions"), "{}", ran.stderr());
    assert!(!pack.exists("state") && !pack.exists("workspace"));
    pack.write("crucible.toml", &local.replace("backend = \"local\"", "harness = \"opencode\""));
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.code(), 3);
    assert!(ran.stderr().contains("it has no driver that runs it"), "{}", ran.stderr());
}

/// What a turn finds, and what it leaves in the places that are an agent's own.
const SKILLED: &str = "cat .claude/skills/add/SKILL.md > skill.txt; ls .claude .claude/skills >> found.txt; \
                       echo changed > .claude/skills/add/SKILL.md; echo x > .claude/skills/left; \
                       echo '{\"hooks\":{}}' > .claude/settings.json; echo '{}' > .claude/settings.local.json; \
                       echo remembered >> .claude/memory.md; echo result >> RESULTS.md";

fn skills_are_fresh_and_settings_do_not_last(pack: &Pack) {
    let manifest = pack.read("crucible.toml").replace("[agent]\n", "[agent]\ntoolbox_dir = \"commands\"\n");
    pack.write("crucible.toml", &manifest);
    pack.write("commands/add/SKILL.md", "how to add\n");
    let ran = pack.run(&["--iterations", "2"]);
    ran.ended("finished", 0);
    // The score never rises, so both candidates are discarded, and what is the agent's own outlives that.
    assert_eq!(ran.decisions(), ["baseline", "discard", "discard"]);
    assert_eq!(pack.read("workspace/.claude/memory.md"), "remembered\nremembered\n");
    // The engine writes this one anew before each turn.
    let results = pack.read("workspace/RESULTS.md");
    assert!(results.starts_with("<!-- Written by crucible before each turn."), "{results}");
    assert!(
        results.contains("\n- 1: discarded, 0\n") && results.matches("\nresult\n").count() == 1,
        "{results}"
    );
    assert!(
        !pack.exists("workspace/.claude/settings.json")
            && !pack.exists("workspace/.claude/settings.local.json")
    );
    let second = ran.rows()[2]["candidate"].as_str().unwrap().to_owned();
    assert_eq!(pack.git(&["show", &format!("{second}:skill.txt")]), "how to add\n");
    assert_eq!(
        pack.git(&["show", &format!("{second}:found.txt")]),
        ".claude:\nmemory.md\nskills\n\n.claude/skills:\nadd\n"
    );
    let told = "the turn changed settings of its own, which were put back: .claude/settings.json, .claude/settings.local.json";
    assert_eq!(notes(&ran).iter().filter(|note| **note == told).count(), 2);
    assert!(ran.rows().iter().all(|row| !row["diff"].as_str().unwrap().contains("b/.claude")));
}

#[test]
fn skills_are_anew_in_each_turn_and_settings_do_not_outlive_it() {
    skills_are_fresh_and_settings_do_not_last(&Pack::new(SKILLED, COUNT, ""));
}

#[test]
fn skills_are_anew_in_each_sandbox_and_settings_do_not_outlive_it() {
    let pack = Pack::new(SKILLED, COUNT, "");
    sandboxed(&pack, "endpoints = []");
    skills_are_fresh_and_settings_do_not_last(&pack);
}

#[test]
fn a_toolbox_with_a_link_or_too_much_in_it_is_refused_with_its_place() {
    let pack = Pack::counter();
    let manifest = pack.read("crucible.toml").replace("[agent]\n", "[agent]\ntoolbox_dir = \"commands\"\n");
    pack.write("crucible.toml", &manifest);
    let refused = |why: &str| {
        let ran = pack.run(&["--iterations", "1"]);
        assert_eq!(ran.code(), 3, "{}", ran.stderr());
        assert!(
            ran.stderr().contains(why) && ran.stderr().contains("crucible.toml:6:15"),
            "{}",
            ran.stderr()
        );
    };
    refused("commands does not exist");
    pack.write("commands/a", "");
    std::os::unix::fs::symlink("/etc/passwd", pack.path("commands/link")).unwrap();
    refused("commands/link is a symbolic link");
    std::fs::remove_file(pack.path("commands/link")).unwrap();
    for number in 0..1000 {
        pack.write(&format!("commands/{number}"), "");
    }
    refused("holds more than 1000 files or 16777216 bytes");
}

/// Directories with programs that tell a version, in front of the machine's own.
fn with_programs(pack: &Pack, programs: &[(&str, &str)]) -> String {
    use std::os::unix::fs::PermissionsExt;
    for (name, text) in programs {
        pack.write(&format!("bin/{name}"), &format!("#!/bin/sh\n{text}\n"));
        let path = pack.path(&format!("bin/{name}"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:/usr/bin:/bin", pack.path("bin").display())
}

#[test]
fn doctor_tells_what_is_there_and_what_each_lacks_without_values() {
    let pack = Pack::counter();
    // What is started to tell its version sees no key.
    let path =
        with_programs(&pack, &[("claude", "echo \"9.9.9 (Claude Code) $MY_KEY\""), ("codex", "exit 3")]);
    let mut command = pack.command(&["doctor", "--json"]);
    command
        .env("PATH", &path)
        .env("ANTHROPIC_API_KEY", "ambient-key")
        .env("MY_KEY", KEY)
        .env_remove("DECISION_KEY");
    command.env("CRUCIBLE_INFERENCE", document("https://model.example/v1"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(KEY) && !text.contains("ambient-key"), "{text}");
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    let part = |name: &str| {
        found["parts"].as_array().unwrap().iter().find(|part| part["name"] == name).unwrap().clone()
    };
    assert!(part("git")["told"][0].as_str().unwrap().starts_with("git version"));
    let claude = part("harness claude");
    assert_eq!(claude["path"], pack.path("bin/claude").display().to_string());
    assert_eq!(claude["told"][0], "9.9.9 (Claude Code) ");
    assert!(part("harness codex")["lacks"].is_string());
    assert!(part("harness pi")["lacks"].as_str().unwrap().contains("no driver"));
    assert!(part("harness command").get("lacks").is_none());
    let layers = part("sandbox")["told"].as_array().unwrap().len();
    assert!(layers > 5, "{}", part("sandbox"));
    let credentials = [
        "ANTHROPIC_API_KEY: a key",
        "MY_KEY: a key",
        "DECISION_KEY: not set, and named by the inference document",
    ];
    for expected in credentials {
        assert!(
            found["credentials"].as_array().unwrap().iter().any(|line| line == expected),
            "{expected}: {found:#}"
        );
    }
    let bound = "CRUCIBLE_INFERENCE binds the agent to bound-1 over messages at model.example:443";
    assert_eq!(found["inference"][0], bound);
}

#[test]
fn doctor_fails_where_a_pack_needs_what_is_not_there() {
    let pack = Pack::counter();
    let ran = pack.run(&["doctor", "--manifest", "crucible.toml"]);
    assert_eq!(ran.code(), 0, "{}", ran.stdout());
    assert!(
        ran.stdout().contains("harness command (needed)") && ran.stdout().ends_with("ok\n"),
        "{}",
        ran.stdout()
    );
    let output = pack
        .command(&["doctor", "--manifest", "crucible.toml"])
        .env("CRUCIBLE_INFERENCE", document("https://model.example/v1"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("the variable `MY_KEY`, which CRUCIBLE_INFERENCE names, is not set")
            && text.ends_with("not ok\n"),
        "{text}"
    );
    let path = with_programs(&pack, &[("claude", "echo 9.9.9")]);
    let output = pack.command(&["doctor"]).env("PATH", path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.matches("git (needed)").count(), 1, "{text}");
    assert!(text.contains(&format!("{}  9.9.9\n", pack.path("bin/claude").display())), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("ok for a pack that does not need: harness codex, "), "{last}");
    let empty = pack.path("none").display().to_string();
    let output = pack.command(&["doctor"]).env("PATH", empty).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(
        String::from_utf8(output.stdout).unwrap().contains("git is needed: `git` is on no directory of PATH")
    );
    assert!(!pack.exists("state") && !pack.exists("workspace"));
}

//! What a turn of a real tool may see and reach, and what ends with it.

use serde_json::json;

use super::*;

#[test]
fn the_hosts_own_settings_of_a_tool_are_not_seen() {
    if !installed() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    for (path, text) in [
        (".claude/CLAUDE.md", "HOST-CANARY"),
        (".claude/settings.json", r#"{"env":{"SEEN":"HOST-CANARY"}}"#),
        (".claude.json", r#"{"primaryApiKey":"HOST-CANARY"}"#),
        (".codex/AGENTS.md", "HOST-CANARY"),
        (".codex/config.toml", "model = \"HOST-CANARY\"\n"),
    ] {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let seen = "env | grep -c HOST-[C]ANARY > seen.txt";
    for way in WAYS {
        let model = Model::replies(&turn(&format!("{RAISE}; {seen}; true")));
        let pack = pack(way, &model, "", "");
        let mut command = command(&pack, &model, &["--iterations", "1"]);
        command.env("HOME", home.path()).env("CLAUDE_CODE_EXTRA_BODY", "{\"HOST-CANARY\":1}");
        command
            .env("CLAUDE_CONFIG_DIR", home.path().join(".claude"))
            .env("CODEX_HOME", home.path().join(".codex"));
        let output = command.output().unwrap();
        let ran = Ran { output, log: pack.log() };
        assert_eq!(ran.decisions(), ["baseline", "keep"], "{way:?}: {}", ran.stderr());
        assert_eq!(pack.read("workspace/seen.txt"), "0\n", "{way:?}");
        for request in model.requests() {
            assert!(!request.to_string().contains("HOST-CANARY"), "{way:?}: {request}");
        }
    }
}

#[test]
fn a_fetch_that_is_not_listed_is_refused_recorded_and_no_failure_of_the_turn() {
    if !installed() {
        return;
    }
    let fetch = "curl -sS -m 20 http://example.com/ -o /dev/null 2>/dev/null; echo $? > fetched.txt";
    for way in [WAYS[1], WAYS[3]] {
        let model = Model::replies(&turn(&format!("{RAISE}; {fetch}")));
        let pack = pack(way, &model, "", "");
        let ran = run(&pack, &model, &["--iterations", "1"]);
        assert_eq!(ran.decisions(), ["baseline", "keep"], "{way:?}: {}", ran.stderr());
        let audit = pack.read("state/egress.jsonl");
        let denied: Vec<&str> =
            audit.lines().filter(|line| line.contains("\"deny\"") && line.contains("example.com")).collect();
        assert_eq!(
            denied.len(),
            usize::from(pack.read("workspace/fetched.txt") != "127\n"),
            "{way:?}: {audit}"
        );
        let hosts = audit.lines().filter(|line| line.contains("\"deny\"") && !line.contains("self-test"));
        let others: Vec<&str> = hosts.filter(|line| !line.contains("example.com")).collect();
        assert_eq!(others, Vec::<&str>::new(), "{way:?}: the tool asks for nothing but its model");
    }
}

#[test]
fn a_background_process_of_a_tool_is_dead_and_named_before_the_measurement() {
    if !installed() {
        return;
    }
    let leave = format!("{RAISE}; (setsid sleep 1000 >/dev/null 2>&1 &)");
    for way in WAYS {
        let model = Model::replies(&turn(&leave));
        let pack = pack(way, &model, "", "");
        let ran = run(&pack, &model, &["--iterations", "1"]);
        assert_eq!(ran.decisions(), ["baseline", "keep"], "{way:?}: {}", ran.stderr());
        let killed = ran.rows()[1]["killed"].to_string();
        assert!(killed.contains("sleep"), "{way:?}: {killed}");
    }
}

#[test]
fn a_tool_that_prints_its_result_and_hangs_is_ended_and_its_turn_is_good() {
    // A tool that misbehaves in just this way cannot be had from a registry.
    use std::os::unix::fs::PermissionsExt as _;
    let tools = tempfile::tempdir().unwrap();
    let script = r#"#!/bin/sh
cat > prompt.txt; echo 1 > counter.txt
echo '{"type":"result","subtype":"success","is_error":false,"stop_reason":"end_turn","result":"ok","total_cost_usd":0.25}'
echo '{"type":"system","subtype":"late"}'
exec sleep 1000
"#;
    let claude = tools.path().join("claude");
    std::fs::write(&claude, script).unwrap();
    std::fs::set_permissions(&claude, std::fs::Permissions::from_mode(0o755)).unwrap();
    let model = Model::replies(&json!([]));
    for way in [WAYS[0], WAYS[1]] {
        let pack = pack(way, &model, "", "");
        let mut command = command(&pack, &model, &["--iterations", "1"]);
        command.env("PATH", format!("{}:/usr/bin:/bin", tools.path().display()));
        let output = command.output().unwrap();
        let ran = Ran { output, log: pack.log() };
        assert_eq!(ran.decisions(), ["baseline", "keep"], "{way:?}: {} {:?}", ran.stderr(), ran.rows());
        assert_eq!(ran.events("agent_done").next().unwrap()["cost_usd"], 0.25);
        assert!(pack.read("workspace/prompt.txt").starts_with("Improve the code"), "{way:?}");
    }
}

#[test]
fn a_harness_without_its_tool_or_its_driver_is_refused_before_anything_is_made() {
    let model = Model::replies(&json!([]));
    let pack = pack(WAYS[0], &model, "", "");
    let mut command = command(&pack, &model, &["--iterations", "1"]);
    let output = command.env("PATH", "/nonexistent").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("find `claude` on PATH") && text.contains("npm install"), "{text}");
    assert!(!pack.exists("state") && !pack.exists("workspace"));
    let manifest = pack.read("crucible.toml");
    for name in ["hermes", "opencode", "pi"] {
        pack.write("crucible.toml", &manifest.replace("\"claude\"", &format!("\"{name}\"")));
        let ran = pack.run(&["--iterations", "1"]);
        assert!(ran.stderr().contains("it has no driver that runs it"), "{name}: {}", ran.stderr());
        assert!(!pack.exists("state") && !pack.exists("workspace"), "{name}");
    }
}

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

/// The native program of a tool, where npm put it.
fn native(tool: &str) -> PathBuf {
    let mut todo = vec![tools().parent().unwrap().to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let (kind, path) = (entry.file_type().unwrap(), entry.path());
            if kind.is_dir() {
                todo.push(path);
            } else if kind.is_file() && entry.file_name() == tool && is_native(&path) {
                return path;
            }
        }
    }
    panic!("no native program of {tool}");
}

fn is_native(path: &Path) -> bool {
    use std::io::Read as _;
    let mut head = [0; 4];
    std::fs::File::open(path).unwrap().read_exact(&mut head).is_ok() && &head == b"\x7fELF"
}

/// Gives a directory and all that is in it to a user.
fn give(dir: &Path, user: u32) {
    std::os::unix::fs::lchown(dir, Some(user), Some(user)).unwrap();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            give(&path, user);
        } else {
            std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
        }
    }
}

#[test]
fn an_ordinary_user_has_the_same_turns_in_a_sandbox() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    if !installed() {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        // Then every other test here shows it.
        return skip(Skip::NotRoot);
    }
    let user = 65534;
    // The build's directory need not be reachable for that user where it is.
    let dir = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let binary = dir.path().join("crucible");
    std::fs::copy(crate::support::BINARY, &binary).unwrap();
    for way in [WAYS[1], WAYS[3]] {
        let (from, to) = (native(way.harness), dir.path().join(way.harness));
        std::fs::hard_link(&from, &to).or_else(|_| std::fs::copy(&from, &to).map(drop)).unwrap();
        let who = "id -u > id.txt; cat /proc/self/uid_map > map.txt";
        let model = Model::replies(&turn(&format!("{RAISE}; {who}")));
        let pack = pack(way, &model, "", SESSION);
        give(&pack.path("."), user);
        let mut command = program(binary.to_str().unwrap());
        command.args(["--iterations", "2"]).current_dir(pack.path("."));
        with_model(&mut command, &model).env("HOME", "/nonexistent");
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", dir.path().display()));
        let output = command.uid(user).gid(user).output().unwrap();
        let ran = Ran { output, log: pack.log() };
        assert_eq!(
            ran.decisions(),
            ["baseline", "keep", "keep"],
            "{way:?}: {} {:?}",
            ran.stderr(),
            ran.rows()
        );
        assert_eq!(sessions_of(&ran), [("start".to_owned(), 1), ("resume".to_owned(), 2)], "{way:?}");
        // Inside, the agent is user 1000, whom the kernel knows as the user who started the run.
        assert_eq!(pack.read("workspace/id.txt"), "1000\n", "{way:?}");
        let map = pack.read("workspace/map.txt");
        assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["1000", "65534", "1"], "{way:?}");
    }
}

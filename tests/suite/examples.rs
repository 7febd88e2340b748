//! The blocks of the examples' READMEs, executed: each `sh` block runs, each `text` block is what it printed.

use std::path::Path;

use crate::support::{BINARY, Pack, program, source_tree};

/// Fenced blocks of a Markdown text, with their language.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some((_, body))) => {
                body.push_str(line);
                body.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let name = entry.file_name();
        // What a person's own run left beside the example is no part of it.
        if name == "state" || name == "workspace" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(name));
        } else {
            std::fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

#[track_caller]
fn run_readme(example: &str) -> Pack {
    let pack = Pack::empty();
    copy(&source_tree().join("examples").join(example), &pack.path("pack"));
    let bin = pack.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(BINARY, bin.join("crucible")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fake-model"), bin.join("fake-model")).unwrap();
    let claude = crate::agents::tools().join("claude");
    std::os::unix::fs::symlink(claude, bin.join("claude")).unwrap();
    let mut printed = String::new();
    let mut ran = 0;
    for (language, body) in blocks(&pack.read("pack/README.md")) {
        match language.as_str() {
            "sh" => {
                let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
                let output = program("sh")
                    .arg("-ec")
                    .arg(&body)
                    .current_dir(pack.path("pack"))
                    .env("PATH", path)
                    .output()
                    .unwrap();
                printed = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(
                    output.status.success(),
                    "{body}{printed}{}",
                    String::from_utf8_lossy(&output.stderr)
                );
                ran += 1;
            }
            "text" => {
                for line in body.lines() {
                    assert!(printed.lines().any(|other| other == line), "{line:?} is not in\n{printed}");
                }
            }
            other => panic!("a block in {other:?} is neither run nor compared"),
        }
    }
    assert!(ran > 0, "no block was run");
    pack
}

#[test]
fn agent() {
    if !crate::agents::installed() {
        return;
    }
    let pack = run_readme("agent");
    let text = pack.read("pack/state/egress.jsonl");
    let turns = text.lines().filter(|line| line.contains("\"turn\":\"turn-"));
    assert!(turns.clone().any(|line| line.contains("\"allow\"")), "{text}");
    assert!(!turns.clone().any(|line| line.contains("\"deny\"")), "{text}");
}

#[test]
fn airgap() {
    let pack = run_readme("airgap");
    let text = pack.read("pack/state/egress.jsonl");
    let denied = text.lines().filter(|line| line.contains("\"turn\":\"turn-") && line.contains("\"deny\""));
    assert!(denied.count() >= 4, "each turn was denied something: {text}");
    assert!(!text.contains("\"allow\""), "{text}");
}

#[test]
fn counter() {
    run_readme("counter");
}

#[test]
fn sandboxed() {
    run_readme("sandboxed");
}

#[test]
fn tuner() {
    run_readme("tuner");
}

#[test]
fn every_example_has_a_test() {
    let mut names: Vec<String> = std::fs::read_dir(source_tree().join("examples"))
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().join("crucible.toml").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["agent", "airgap", "counter", "sandboxed", "tuner"]);
}

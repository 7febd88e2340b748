//! A little of each benchmark's script, so that none stops working unseen. What it prints about time means nothing here.

use std::process::Output;

use crate::support::{BINARY, Skip, program, skip, source_tree};

fn printed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_benchmark_of_the_loop_runs_and_its_script_does_what_the_engine_does() {
    let script = source_tree().join("tests/bench/loop");
    let dir = tempfile::tempdir().unwrap();
    let mut command = program("sh");
    command.arg(script).args(["--smoke", "--binary", BINARY]).env("TMPDIR", dir.path());
    let said = printed(&command.output().unwrap());
    assert!(said.contains("engine and same: ") && said.contains("each, alike"), "{said}");
    for kind in ["keep", "discard"] {
        assert!(said.lines().any(|line| line.starts_with("counter") && line.contains(kind)), "{said}");
    }
}

#[test]
fn the_benchmark_of_the_sandbox_runs_what_it_compares_with() {
    let mut command = program("python3");
    let Ok(output) = command.arg(source_tree().join("tests/bench/sandbox")).arg("--smoke").output() else {
        return skip(Skip::NoPython);
    };
    let said = printed(&output);
    assert!(said.contains("fork and exec of true alone: one after another: p50"), "{said}");
    assert!(said.contains("100 files, 2 MB: cp -a: p50"), "{said}");
}

//! Whole manifests, good and bad, and what is said about them.

mod docs;
mod mistakes;
mod random;
mod reach;
mod schema_check;

use policy::diag::Source;

use super::*;
use crate::score::Direction;

const GOOD: &str = r#"
[repo]
path = "."

[agent]
backend = "command"
agent_cmd = "./bump.sh"

[judge]
measure_cmd = "./measure.sh"
direction = "higher"
"#;

const OPENSHELL: &str = "backend = \"openshell\"\nharness = \"command\"";

/// The same with a sandbox that reaches nothing.
fn sandboxed(keys: &str) -> String {
    let agent = GOOD.replace("backend = \"command\"", OPENSHELL);
    format!("{agent}\n[agent.openshell]\ninherit_defaults = false\n{keys}")
}

/// Every mistake on a line: place, what is wrong, what to do.
fn brief(text: &str) -> String {
    let errors = Manifest::parse("c.toml", text).expect_err("the manifest is bad");
    lines(errors.source(), errors.diagnostics())
}

fn lines(source: &Source, diagnostics: &[Diagnostic]) -> String {
    let line = |diagnostic: &Diagnostic| {
        let place = source.position(diagnostic.span.start);
        let hint = diagnostic.hint.as_deref().map(|hint| format!(" // {hint}")).unwrap_or_default();
        let related = diagnostic.related.iter().map(|(span, label)| {
            let place = source.position(span.start);
            format!(" ({label} at {}:{})", place.line, place.column)
        });
        format!("{}:{} {}{}{hint}", place.line, place.column, diagnostic.message, related.collect::<String>())
    };
    diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn with_repo(keys: &str) -> String {
    GOOD.replace("path = \".\"", keys)
}

fn with_agent(keys: &str) -> String {
    GOOD.replace("[judge]", &format!("{keys}\n[judge]"))
}

fn with_judge(keys: &str) -> String {
    GOOD.replace("direction = \"higher\"", keys)
}

fn with(tables: &str) -> String {
    format!("{GOOD}\n{tables}")
}

#[test]
fn a_small_manifest_has_the_contracts_defaults() {
    let manifest = Manifest::parse("c.toml", GOOD).unwrap();
    assert_eq!(manifest.workspace.dir, WorkspaceDir::Under(RelPath::parse("workspace").unwrap()));
    assert_eq!(manifest.agent.model, None);
    assert_eq!(manifest.agent.timeout.as_secs(), 3600);
    assert_eq!(manifest.judge.direction, Direction::Higher);
    assert_eq!(manifest.judge.tiebreak_direction, Direction::Higher);
    assert_eq!(manifest.judge.objective.as_str(), "score");
    assert_eq!(manifest.judge.timeout.as_secs(), 1800);
    assert_eq!(manifest.source().text(), GOOD);
    assert_eq!(manifest.warnings(), []);
    assert!(manifest.world.snapshot_restore.is_none() && !manifest.workspace.history);
}

#[test]
fn every_key_that_is_built_can_be_written() {
    let text = r#"
        repo = { url = "git@github.com:o/n.git", ref = "main" }
        [workspace]
        dir = "./deep/work"
        setup_cmd = "git clone x deep/work"
        timeout = "5m"
        history = true
        inject = ["measure.sh", "tools/*.py", "judge/", { src = "../j.go", dst = "p/./j.go", frozen = false }]
        [agent]
        backend = "command"
        agent_cmd = "a"
        model = "m"
        method_prompt = "method.md"
        goal_file = "goals/x.md"
        timeout = "90s"
        idle_timeout = "1h30m"
        env = { A = "", b_2 = "ü" }
        [judge]
        measure_cmd = "m"
        direction = "lower"
        tiebreak_direction = "higher"
        objective = "p99 µs"
        timeout = "1s"
        [world]
        apply_cmd = "a"
        snapshot_cmd = "s"
        restore_cmd = "r"
        timeout = "1m"
    "#;
    let manifest = Manifest::parse("c.toml", text).unwrap();
    assert_eq!(manifest.workspace.dir, WorkspaceDir::Under(RelPath::parse("deep/work").unwrap()));
    assert_eq!(manifest.workspace.inject.len(), 4);
    assert!(matches!(&manifest.workspace.inject[3].value,
        Inject::File { dst, frozen: false, .. } if dst.as_str() == "p/j.go"));
    assert_eq!(manifest.agent.env.len(), 2);
    assert_eq!(manifest.judge.tiebreak_direction, Direction::Higher);
    assert_eq!(manifest.world.snapshot_restore.unwrap().1.as_str(), "r");
}

#[test]
fn a_small_sandbox_has_the_drivers_limits_and_shows_nothing() {
    let manifest = Manifest::parse("c.toml", &sandboxed("")).unwrap();
    assert_eq!(manifest.agent.sandbox, Some(Sandbox::default()));
    assert_eq!(manifest.agent.command.unwrap().value.as_str(), "./bump.sh");
    assert_eq!(Manifest::parse("c.toml", GOOD).unwrap().agent.sandbox, None);
}

#[test]
fn every_key_of_a_sandbox_can_be_written() {
    let text = sandboxed(
        r#"
        endpoints = []
        binaries = []
        read_only_paths = ["/opt/tool/", "/srv//data"]
        limits = { memory = "64M", disk = "1G", tmp = "1024K", processes = 0x40, open_files = 1_024, cpus = 1.5 }
        "#,
    );
    let sandbox = Manifest::parse("c.toml", &text).unwrap().agent.sandbox.unwrap();
    let paths: Vec<&str> = sandbox.read_only_paths.iter().map(|path| path.value.as_str()).collect();
    assert_eq!(paths, ["/opt/tool", "/srv/data"]);
    let limits = SandboxLimits {
        memory: 64 << 20,
        disk: 1 << 30,
        tmp: 1 << 20,
        processes: 64,
        open_files: 1024,
        cpu_millis: 1500,
    };
    assert_eq!(sandbox.limits, limits);
}

#[test]
fn injects_may_be_an_array_of_tables() {
    let text = with(
        "[[workspace.inject]]\nsrc = \"a\"\ndst = \"b\"\n[[workspace.inject]]\nsrc = \"c\"\ndst = \"d\"",
    );
    assert_eq!(Manifest::parse("c.toml", &text).unwrap().workspace.inject.len(), 2);
}

#[test]
fn a_byte_order_mark_and_crlf_are_read() {
    let text = format!("\u{feff}{}", GOOD.replace('\n', "\r\n"));
    assert!(Manifest::parse("c.toml", &text).is_ok());
    assert!(Manifest::parse_bytes("c.toml", text.as_bytes()).is_ok());
}

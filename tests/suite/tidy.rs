//! The rules of the repository: layers, file sizes, module docs, generated pages, what stands at the top.

use std::path::{Path, PathBuf};

use crate::support::source_tree;

/// The modules of the engine, low to high: each uses only those before it.
const ENGINE_LAYERS: [&str; 16] = [
    "sys",
    "score",
    "log",
    "admission",
    "manifest",
    "pack",
    "plan",
    "world",
    "egress",
    "agent",
    "judge",
    "decide",
    "report",
    "control",
    "run",
    "cli",
];

/// The modules of the broker, low to high.
const BROKER_LAYERS: [&str; 24] = [
    "core",
    "limits",
    "clock",
    "append",
    "token",
    "systems",
    "project",
    "launch",
    "audit",
    "rate",
    "outside",
    "peer",
    "admit",
    "net",
    "writes",
    "tools",
    "mcp",
    "control",
    "client",
    "begin",
    "privilege",
    "serve",
    "probe",
    "reference",
];

/// The modules of policy, low to high.
const POLICY_LAYERS: [&str; 15] = [
    "diag",
    "json",
    "ip",
    "host",
    "access",
    "endpoint",
    "no_proxy",
    "reason",
    "egress",
    "outputs",
    "record",
    "seam",
    "inference",
    "capability",
    "exposure",
];

/// Files that may be longer than [`LINES_MAX`] before their tests, and why. This list only gets shorter.
const LONG_FILES: [(&str, &str); 0] = [];

/// The most lines of a file before its tests.
const LINES_MAX: usize = 450;

fn rust_files(of: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![source_tree().join(of)];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "{of} has no source");
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A source without its tests.
fn product(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

fn relative(path: &Path) -> String {
    path.strip_prefix(source_tree()).unwrap().display().to_string()
}

#[test]
fn a_module_of_a_crate_uses_only_modules_below_it() {
    let crates: [(&str, &[&str]); 3] =
        [("policy/src", &POLICY_LAYERS), ("broker/src", &BROKER_LAYERS), ("engine/src", &ENGINE_LAYERS)];
    for (of, layers) in crates {
        assert_eq!(upward(of, layers), Vec::<String>::new());
    }
}

/// The uses of a higher layer.
fn upward(of: &str, layers: &[&str]) -> Vec<String> {
    let source = source_tree().join(of);
    let mut wrong = Vec::new();
    for path in rust_files(of) {
        let inside = path.strip_prefix(&source).unwrap();
        let room = inside.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        let Some(at) = layers.iter().position(|layer| *layer == room) else {
            assert!(["lib", "main"].contains(&room), "{room} is in no layer");
            continue;
        };
        for used in uses(product(&read(&path))) {
            let layer = layers.iter().position(|layer| *layer == used);
            if layer.is_some_and(|layer| layer > at) {
                wrong.push(format!("{} uses {used}", relative(&path)));
            }
        }
    }
    wrong
}

/// The first name behind each `crate::` of a source, doc comments aside.
fn uses(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = Vec::new();
    for line in code {
        for part in line.split("crate::").skip(1) {
            let inside = part.strip_prefix('{').unwrap_or(part);
            found.push(inside.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

#[test]
fn the_use_of_a_higher_layer_is_seen() {
    assert_eq!(
        uses("use crate::run::step;\n// crate::cli\nlet x = crate::world::f(crate::log::g());"),
        ["run", "world", "log"]
    );
}

#[test]
fn no_file_is_too_long() {
    let mut wrong = Vec::new();
    for room in ["policy/src", "broker/src", "driver/src", "engine/src"] {
        for path in rust_files(room) {
            let name = relative(&path);
            let lines = product(&read(&path)).lines().count();
            let test = name.ends_with("tests.rs") || name.contains("/tests/");
            let excepted = LONG_FILES.iter().any(|(file, _)| *file == name);
            if lines > LINES_MAX && !excepted && !test {
                wrong.push(format!("{name}: {lines} lines"));
            }
            assert!(!excepted || lines > LINES_MAX, "{name} is short again: take it from the list");
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_module_says_what_it_turns_into_what_or_what_it_refuses() {
    for room in ["policy/src", "broker/src", "driver/src", "engine/src", "tests/suite"] {
        for path in rust_files(room) {
            let text = read(&path);
            if path.ends_with("tests.rs") {
                continue;
            }
            assert!(text.starts_with("//! "), "{} has no module doc", relative(&path));
        }
    }
}

#[test]
fn unsafe_code_stands_only_where_it_may_and_says_why() {
    for room in ["policy/src", "broker/src", "driver/src", "engine/src", "tests/suite"] {
        for path in rust_files(room) {
            let name = relative(&path);
            let text = read(&path);
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let found = code.filter(|line| line.contains("unsafe {") || line.contains("unsafe fn")).count();
            let allowed = name.starts_with("engine/src/sys/")
                || name.starts_with("driver/src/gateway/")
                || name.starts_with("tests/suite/");
            assert!(found == 0 || allowed, "{name} has unsafe code");
            assert!(text.matches("SAFETY").count() >= found, "{name} has unsafe code without its reason");
        }
    }
}

#[test]
fn nothing_else_is_visible_at_the_top() {
    let allowed = [
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
        "policy",
        "broker",
        "driver",
        "engine",
        "examples",
        "tests",
        "docs",
        "target",
    ];
    for entry in std::fs::read_dir(source_tree()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        assert!(name.starts_with('.') || allowed.contains(&name.as_str()), "{name} stands at the top");
    }
}

/// A page that is made from the code. `UPDATE_GOLDEN=1` writes it anew.
#[track_caller]
fn generated(page: &str, text: &str) {
    let path = source_tree().join(page);
    #[expect(clippy::disallowed_methods, reason = "the one switch of the tests")]
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == text,
        "{page} is out of date: run the tests with UPDATE_GOLDEN=1"
    );
}

#[test]
fn generated_pages_are_up_to_date() {
    generated("docs/src/exit-codes.md", &engine::cli::exit::reference());
    generated("docs/src/egress.md", &broker::reference::page());
    generated("docs/src/exposure-format.md", &policy::exposure::page());
    generated("docs/src/manifest.md", &engine::manifest::reference());
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let summary = read(&source_tree().join("docs/src/SUMMARY.md"));
    for entry in std::fs::read_dir(source_tree().join("docs/src")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("({name})")),
            "{name} is not in SUMMARY.md"
        );
    }
}

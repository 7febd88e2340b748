//! The reference, held against the decoder and against the page in the tree.

use std::path::Path;

use super::*;

#[test]
fn every_example_of_the_reference_parses_where_it_belongs() {
    for table in keys::TABLES {
        let name = table.path.split('.').next().unwrap_or_default();
        let text = match name {
            "agent" if table.path == "agent.openshell" => {
                sandboxed("").replace("[agent.openshell]\ninherit_defaults = false\n", "")
            }
            "agent"
                if table.path.starts_with("agent.openshell.")
                    || ["agent.broker", "agent.relay"].contains(&table.path) =>
            {
                sandboxed("")
            }
            "agent" if table.path == "agent" => {
                GOOD.replace("backend = \"command\"\nagent_cmd = \"./bump.sh\"\n", "")
            }
            "repo" => GOOD.replace("path = \".\"\n", ""),
            "judge" if table.path == "judge.selftest" => GOOD.to_owned(),
            "judge" => GOOD.replace("measure_cmd = \"./measure.sh\"\ndirection = \"higher\"\n", ""),
            _ => GOOD.to_owned(),
        };
        let header = format!("[{}]\n", table.path);
        let text = text.replace(&header, "") + table.example;
        let parsed = Manifest::parse("example.toml", &text);
        assert!(parsed.is_ok(), "{}", parsed.unwrap_err());
    }
}

#[test]
fn the_reference_in_the_docs_is_up_to_date() {
    golden("../docs/src/manifest.md", &reference());
}

/// Compares with a file of the tree, which UPDATE_GOLDEN=1 writes anew.
fn golden(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    #[expect(clippy::disallowed_methods, reason = "asked for by the person who runs the tests, not by a run")]
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    if update {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{} is out of date: run the tests with UPDATE_GOLDEN=1", path.display());
}

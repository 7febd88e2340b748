//! Turns the key tables into the manifest's reference, a page of Markdown.
//! It refuses to say anything that the tables do not.

use std::fmt::Write as _;

use super::keys::{Key, Kind, Presence, ROOT, Rule, TABLES, Table};
use super::number::{decimal, size_text, time_text};

const HEAD: &str = "# Manifest reference

This page is made from the tables that the decoder of `crucible.toml` checks against.

All paths are relative to the directory of the manifest, unless a key says otherwise. Commands are lines for `sh -c`.
A length of time has units: `\"90s\"`, `\"10m\"`, `\"1h30m\"`; it is more than none and at most 30 days.
A size is a whole number of KiB, MiB or GiB: `\"64K\"`, `\"512M\"`, `\"8G\"`. Numbers are finite. A key that is
not on this page is an error, with its place and, where one is near, the key that was probably meant.
`crucible schema` prints the same as a JSON Schema.

";

/// The page `docs/src/manifest.md`.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for table in TABLES {
        section(&mut page, table);
    }
    page.push_str(
        "## Not in this build\n\nThe contract knows these. This build refuses them by name, and says why.\n\n",
    );
    page.push_str("| key | this build |\n| --- | --- |\n");
    for table in [&ROOT].into_iter().chain(TABLES.iter().copied()) {
        for key in table.keys {
            if let Presence::Absent(missing) = key.presence {
                let _ = writeln!(page, "| `{}` | {missing} |", table.key_title(key.name));
            }
        }
    }
    page
}

fn section(page: &mut String, table: &Table) {
    let _ = writeln!(page, "## `[{}]`\n\n{}\n", table.path, table.doc);
    let built: Vec<&Key> = table.keys.iter().filter(|key| key.is_built()).collect();
    if !built.is_empty() {
        page.push_str("| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
    }
    for key in &built {
        let default = match key.presence {
            Presence::Optional(default) => cell(&literal(default)),
            _ => "**required**".to_owned(),
        };
        let _ =
            writeln!(page, "| `{}` | {} | {default} | {} |", key.name, type_name(key.kind), cell(key.doc));
    }
    for rule in table.rules {
        let _ = writeln!(page, "\n{}", sentence(rule));
    }
    if !built.is_empty() {
        page.push('\n');
    }
    let _ = writeln!(page, "```toml\n{}```\n", table.example);
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A default that is a value of TOML is set as code; one that is described is not.
fn literal(default: &str) -> String {
    let value = default.starts_with('"') || matches!(default, "true" | "false");
    if value { format!("`{default}`") } else { default.to_owned() }
}

fn type_name(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Path => "path".to_owned(),
        Kind::Command => "command".to_owned(),
        Kind::Duration => "length of time".to_owned(),
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Whole(bounds) => format!("whole number from {} to {}", bounds.least, bounds.most),
        Kind::Thousandths(bounds) => {
            format!("number from {} to {}", decimal(bounds.least), decimal(bounds.most))
        }
        Kind::Size(bounds) => {
            format!("size from `\"{}\"` to `\"{}\"`", size_text(bounds.least), size_text(bounds.most))
        }
        Kind::Within(bounds) => {
            format!(
                "length of time from `\"{}\"` to `\"{}\"`",
                time_text(bounds.least),
                time_text(bounds.most)
            )
        }
        Kind::Texts => "list of texts".to_owned(),
        Kind::Distinct => "list of texts, none twice".to_owned(),
        Kind::OneOf(words) => {
            let quoted: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
            quoted.join(" or ")
        }
        Kind::Injects => "list of texts and tables".to_owned(),
        // A page of mdBook names a heading by its letters alone.
        Kind::Table(table) => format!("[table](#{})", anchor(table)),
        Kind::Tables(table) => format!("list of [tables](#{})", anchor(table)),
        Kind::Float => "finite number".to_owned(),
        Kind::Names | Kind::Demands => "table of texts".to_owned(),
        Kind::Never => "none".to_owned(),
    }
}

/// As a heading's letters are linked to.
fn anchor(table: &Table) -> String {
    table.path.replace(['.', '<', '>'], "")
}

/// Names as a sentence lists them.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

fn sentence(rule: &Rule) -> String {
    match *rule {
        Rule::OneOf(names) => format!("Exactly one of {} is there.", listed(names)),
        Rule::NotBoth(a, b) => format!("`{a}` and `{b}` exclude each other."),
        Rule::Pair(a, b) => format!("`{a}` and `{b}` are there together or not at all."),
        Rule::OnlyWith(key, word, other) => format!("`{other}` goes with `{key} = \"{word}\"` only."),
        Rule::NotWith(key, word, other) => format!("`{other}` does not go with `{key} = \"{word}\"`."),
        Rule::NeededWith(key, word, other) => format!("`{key} = \"{word}\"` needs `{other}`."),
    }
}

//! Turns the tables of a manifest into data: one static description of each key, from which the decoder's checks, the
//! JSON Schema and the reference are made. It refuses to know any value that a manifest holds.

use policy::diag::did_you_mean;

use super::number::Bounds;
use super::{
    agent, broker, capability, env, image, inject, judge, openshell, outputs, relay, repo, traffic, workflow,
    workspace, world,
};

/// What a key's value must look like.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Any text that is not empty and holds no NUL.
    Text,
    /// A path.
    Path,
    /// A line for `sh -c`.
    Command,
    /// A length of time such as `"90s"`.
    Duration,
    /// A length of time with bounds in milliseconds.
    Within(Bounds),
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Whole(Bounds),
    /// A number of at most three decimals, with bounds in thousandths.
    Thousandths(Bounds),
    /// A size such as `"512M"`, with bounds in bytes.
    Size(Bounds),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A list of texts, each one line that is not empty.
    Texts,
    /// The same, with none twice.
    Distinct,
    /// The list of injects.
    Injects,
    /// A table with keys of its own.
    Table(&'static Table),
    /// A list of tables, each with these keys.
    Tables(&'static Table),
    /// A finite number.
    Float,
    /// A table of names that the author chooses, each with a text.
    Names,
    /// A table of capabilities of an image, each with a demand.
    Demands,
    /// The key is never read.
    Never,
}

/// Whether a key may stand in a manifest.
#[derive(Clone, Copy, Debug)]
pub(super) enum Presence {
    /// Its absence is an error.
    Required,
    /// It may be left out; the text says what then holds.
    Optional(&'static str),
    /// The contract knows it and this build does not. The text says what is missing.
    Absent(&'static str),
}

/// One key of one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// As it is written.
    pub(super) name: &'static str,
    /// What its value must look like.
    pub(super) kind: Kind,
    /// Whether it may stand there.
    pub(super) presence: Presence,
    /// What it means, in sentences.
    pub(super) doc: &'static str,
}

/// What holds between the keys of one table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// Exactly one of these stands there.
    OneOf(&'static [&'static str]),
    /// Not both.
    NotBoth(&'static str, &'static str),
    /// Both or neither.
    Pair(&'static str, &'static str),
    /// The last stands there only where the first is this word.
    OnlyWith(&'static str, &'static str, &'static str),
    /// The last does not stand there where the first is this word.
    NotWith(&'static str, &'static str, &'static str),
    /// The last stands there wherever the first is this word.
    NeededWith(&'static str, &'static str, &'static str),
}

/// One table of the manifest.
#[derive(Debug)]
pub(super) struct Table {
    /// As its header has it, without brackets; empty for the top of the file.
    pub(super) path: &'static str,
    /// What it is for.
    pub(super) doc: &'static str,
    /// Its keys, in the order of the reference.
    pub(super) keys: &'static [Key],
    /// What holds between them.
    pub(super) rules: &'static [Rule],
    /// A manifest that parses and shows the keys.
    pub(super) example: &'static str,
}

impl Key {
    pub(super) const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, presence: Presence::Required, doc }
    }

    pub(super) const fn optional(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        Self { name, kind, presence: Presence::Optional(default), doc }
    }

    pub(super) const fn absent(name: &'static str, missing: &'static str) -> Self {
        Self { name, kind: Kind::Never, presence: Presence::Absent(missing), doc: missing }
    }

    /// Whether a manifest without the key is refused.
    pub(super) fn is_required(&self) -> bool {
        matches!(self.presence, Presence::Required)
    }

    /// Whether this build reads the key.
    pub(super) fn is_built(&self) -> bool {
        !matches!(self.presence, Presence::Absent(_))
    }
}

impl Table {
    /// The key of that name.
    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The built key that a misspelt one was probably meant to be.
    pub(super) fn nearest(&self, written: &str) -> Option<&'static str> {
        did_you_mean(written, self.keys.iter().filter(|key| key.is_built()).map(|key| key.name))
    }

    /// How a message names this table.
    pub(super) fn title(&self) -> String {
        if self.path.is_empty() { "the manifest".to_owned() } else { format!("[{}]", self.path) }
    }

    /// How a message names a key of this table.
    pub(super) fn key_title(&self, name: &str) -> String {
        if self.path.is_empty() { format!("[{name}]") } else { format!("[{}].{name}", self.path) }
    }
}

/// Every table, in the order of the reference.
pub(super) const TABLES: &[&Table] = &[
    &repo::TABLE,
    &workspace::TABLE,
    &inject::TABLE,
    &agent::TABLE,
    &env::TABLE,
    &image::REQUIRES,
    &image::PREFERS,
    &openshell::TABLE,
    &openshell::LIMITS,
    &traffic::TABLE,
    &broker::TABLE,
    &relay::TABLE,
    &judge::TABLE,
    &judge::SELFTEST,
    &world::TABLE,
    &workflow::TABLE,
    &workflow::TASK,
    &outputs::TABLE,
    &outputs::DRAFT_PR,
    &outputs::TRACKER_COMMENT,
    &outputs::CHAT_MESSAGE,
    &outputs::IMAGE_PUSH,
    &outputs::DEPLOY,
    &outputs::WORKFLOW_DISPATCH,
    &outputs::GPU_CAPTURE,
    &outputs::TARGET,
    &outputs::OPEN,
    &capability::TABLE,
    &capability::SECRET,
];

/// The top of the file.
pub(super) static ROOT: Table = Table {
    path: "",
    doc: "The tables of a manifest.",
    keys: &[
        Key::required("repo", Kind::Table(&repo::TABLE), repo::TABLE.doc),
        Key::optional("workspace", Kind::Table(&workspace::TABLE), "all defaults", workspace::TABLE.doc),
        Key::required("agent", Kind::Table(&agent::TABLE), agent::TABLE.doc),
        Key::required("judge", Kind::Table(&judge::TABLE), judge::TABLE.doc),
        Key::optional("world", Kind::Table(&world::TABLE), "git alone", world::TABLE.doc),
        Key::optional("outputs", Kind::Table(&outputs::TABLE), "the engine's table", outputs::TABLE.doc),
        Key::optional("capabilities", Kind::Table(&capability::TABLE), "none", capability::TABLE.doc),
        Key::absent("search", "has no wide rounds and runs one candidate at a time"),
        Key::optional("workflow", Kind::Table(&workflow::TABLE), "the built-in tasks", workflow::TABLE.doc),
        Key::absent("deploy", "does not deploy"),
        Key::absent("component", "runs one repository at a time"),
    ],
    rules: &[],
    example: "",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_documents_each_key_once_in_whole_sentences() {
        for table in TABLES.iter().chain([&&ROOT]) {
            assert!(table.doc.ends_with('.'), "{}", table.path);
            for (at, key) in table.keys.iter().enumerate() {
                assert!(table.keys.iter().skip(at + 1).all(|other| other.name != key.name), "{}", key.name);
                assert_eq!(key.is_built(), key.doc.ends_with('.'), "{}", key.name);
            }
        }
    }

    #[test]
    fn rules_name_keys_that_exist() {
        for table in TABLES {
            for rule in table.rules {
                let names: &[&str] = match rule {
                    Rule::OneOf(names) => names,
                    Rule::NotBoth(a, b)
                    | Rule::Pair(a, b)
                    | Rule::OnlyWith(a, _, b)
                    | Rule::NotWith(a, _, b)
                    | Rule::NeededWith(a, _, b) => &[*a, *b],
                };
                for name in names {
                    assert!(table.key(name).is_some(), "[{}] {name}", table.path);
                }
            }
        }
    }
}

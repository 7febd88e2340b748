//! Turns the entries of `[workspace].inject` into what is to be copied where (contract §1).
//! It refuses to know whether a source exists and whether a text names a file or a directory.

use toml::Spanned;
use toml::de::DeValue;

use super::At;
use super::error::{Mistake, Sink};
use super::keys::{Key, Kind, Table};
use super::section::{self, Section};
use super::value::{ManifestPath, PathError, RelPath, ValueError, check_text};

/// Files at the workspace's root that the engine and the agent speak through (contract-wide marker names).
pub const RESERVED: &[&str] = &[
    "RESULTS.md",
    "ESCALATION.json",
    "PROVISIONING_PENDING.json",
    "CANDIDATE.md",
    "PLAN_TASK_RESULT.json",
    "STEER.md",
];
const MOST: usize = 1000;

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inject {
    /// A text: a file, a directory or a glob below the manifest's directory, frozen, to the same path.
    Same(Pattern),
    /// A table: one file, from anywhere.
    File {
        /// Relative to the manifest's directory, or absolute.
        src: ManifestPath,
        /// Relative to the workspace.
        dst: RelPath,
        /// Whether it is copied again before each measure.
        frozen: bool,
    },
}

/// A path below the manifest's directory, possibly with `*`, `?` and `[` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(RelPath);

/// What can be wrong with an inject.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// Neither text nor table.
    #[error("an inject is a string or a table with `src` and `dst`: this is {found}")]
    WrongType {
        /// With its article.
        found: &'static str,
    },
    /// The whole manifest directory, state and workspace included.
    #[error("an inject of the whole manifest directory would copy the workspace into itself")]
    WholeDirectory,
    /// A text that leads out of the manifest's directory.
    #[error("the inject {0}: a string entry stays below the manifest's directory")]
    Source(PathError),
    /// A destination that is no path in the workspace.
    #[error("the inject's `dst` {0}")]
    Destination(PathError),
    /// Git's own files.
    #[error("the inject's destination `{dst}` lies in `.git`")]
    Git {
        /// The destination.
        dst: String,
    },
    /// A name that the engine and the agent speak through.
    #[error("the inject's destination `{name}` is a file that engine and agent speak through")]
    Reserved {
        /// The reserved name.
        name: &'static str,
    },
    /// Two injects to one place.
    #[error("two injects have the destination `{dst}`")]
    SameDestination {
        /// The destination.
        dst: String,
    },
    /// One inject is a file where another needs a directory.
    #[error("the inject's destination `{inner}` lies inside `{outer}`, which another inject makes a file")]
    InsideFile {
        /// The longer path.
        inner: String,
        /// The shorter path.
        outer: String,
    },
    /// A glob that is none.
    #[error("the inject is not a glob: {why}")]
    Glob {
        /// The parser's words.
        why: String,
    },
    /// More entries than anyone writes by hand.
    #[error("there are {count} injects: at most {MOST} are read")]
    TooMany {
        /// How many.
        count: usize,
    },
}

/// The table form of an inject.
pub(super) static TABLE: Table = Table {
    path: "workspace.inject",
    doc: "The table form of an inject, written `{ src = …, dst = … }` in the list or as `[[workspace.inject]]`.",
    keys: &[
        Key::required(
            "src",
            Kind::Path,
            "The file to copy, relative to the manifest's directory. It may lie outside of it.",
        ),
        Key::required(
            "dst",
            Kind::Path,
            "Where it goes, relative to the workspace: not into `.git`, and not over a file that engine and agent \
             speak through.",
        ),
        Key::optional(
            "frozen",
            Kind::Flag,
            "true",
            "Whether it is copied again before every measure and every task, so that a candidate cannot change it.",
        ),
    ],
    rules: &[],
    example: "[[workspace.inject]]\nsrc = \"fixtures/seed.json\"\ndst = \"testdata/seed.json\"\nfrozen = false\n",
};

impl InjectError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::WrongType { .. } => "write \"measure.sh\" or { src = \"…\", dst = \"…\" }",
            Self::WholeDirectory => "name the files or directories that are meant",
            Self::Source(_) => "use the table form to reach outside: { src = \"…\", dst = \"…\" }",
            Self::Destination(PathError::Directory | PathError::NoName) => "name the file itself",
            Self::Destination(_) => "write a path relative to the workspace, without `..`",
            Self::Git { .. } => "the engine keeps git's files: inject somewhere else",
            Self::Reserved { .. } => "give it another name",
            Self::SameDestination { .. } => "keep one of them, or rename one with the table form",
            Self::InsideFile { .. } => "rename one of them with the table form",
            Self::Glob { .. } => "use the table form for a name that holds *, ? or [",
            Self::TooMany { .. } => "name a directory or write a glob",
        };
        Some(hint.to_owned())
    }
}

/// Reads the list and checks the destinations that are known without looking at files.
pub(super) fn decode(items: &[Spanned<DeValue<'_>>], sink: &mut Sink) -> Vec<At<Inject>> {
    if let (Some(last), true) = (items.last(), items.len() > MOST) {
        sink.put(last.span(), InjectError::TooMany { count: items.len() });
        return Vec::new();
    }
    let injects: Vec<_> = items.iter().filter_map(|item| decode_one(item, sink)).collect();
    let named = injects.iter().filter_map(|inject| match &inject.value {
        Inject::File { dst, .. } => Some((dst, inject.span.clone())),
        Inject::Same(_) => None,
    });
    check_destinations(named.collect(), sink);
    injects
}

fn decode_one(item: &Spanned<DeValue<'_>>, sink: &mut Sink) -> Option<At<Inject>> {
    let span = item.span();
    let value = match item.get_ref() {
        DeValue::String(text) => match Pattern::parse(text) {
            Ok(pattern) => Inject::Same(pattern),
            Err(mistake) => {
                sink.put(span, mistake);
                return None;
            }
        },
        DeValue::Table(entries) => {
            let section = Section::open(&TABLE, Some(entries), &span, sink);
            let src = section.value("src", sink, ManifestPath::parse);
            let dst = section.parse("dst", sink, parse_dst);
            let frozen = section.flag("frozen").is_none_or(|flag| flag.value);
            Inject::File { src: src?.value, dst: dst?.value, frozen }
        }
        other => {
            sink.put(span, InjectError::WrongType { found: section::found(other) });
            return None;
        }
    };
    Some(At { value, span })
}

fn parse_dst(text: &str) -> Result<RelPath, Mistake> {
    if text.ends_with('/') {
        return Err(InjectError::Destination(PathError::Directory).into());
    }
    let dst = RelPath::parse(text).map_err(|error| match error {
        ValueError::Path(error) => InjectError::Destination(error).into(),
        error => Mistake::from(("[workspace.inject].dst", error)),
    })?;
    check_dst(&dst)?;
    Ok(dst)
}

/// Refuses a destination that is not an inject's to have.
pub(crate) fn check_dst(dst: &RelPath) -> Result<(), InjectError> {
    if dst.touches_git() {
        return Err(InjectError::Git { dst: dst.to_string() });
    }
    match RESERVED.iter().find(|name| **name == dst.first()) {
        Some(name) => Err(InjectError::Reserved { name }),
        None => Ok(()),
    }
}

/// Refuses two injects to one place, and one below another, naming both places.
pub(crate) fn check_destinations(mut all: Vec<(&RelPath, std::ops::Range<usize>)>, sink: &mut Sink) {
    // By names, so that all that lies inside a path follows it at once, which text order does not give ("a", "a-b", "a/c").
    all.sort_by(|(a, at), (b, bt)| a.as_path().cmp(b.as_path()).then(at.start.cmp(&bt.start)));
    let mut outer: Option<&(&RelPath, std::ops::Range<usize>)> = None;
    for entry in &all {
        let (dst, span) = entry;
        let Some((before, place)) = outer.filter(|(before, _)| *before == *dst || dst.is_inside(before))
        else {
            outer = Some(entry);
            continue;
        };
        let mistake = if before == dst {
            InjectError::SameDestination { dst: dst.to_string() }
        } else {
            InjectError::InsideFile { inner: dst.to_string(), outer: before.to_string() }
        };
        if place == span {
            sink.put(span.clone(), mistake);
        } else {
            sink.put_related(span.clone(), mistake, (place.clone(), "the other inject"));
        }
    }
}

impl Pattern {
    /// Reads the text form.
    ///
    /// # Errors
    /// What leads out of the manifest's directory, and what is not an inject's to have.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let value = |error| Mistake::from(("[workspace].inject", error));
        check_text(text).map_err(value)?;
        let path = RelPath::parse(text).map_err(|error| match error {
            ValueError::Path(PathError::NoName) => InjectError::WholeDirectory.into(),
            ValueError::Path(error) => InjectError::Source(error).into(),
            error => value(error),
        })?;
        let pattern = Self(path);
        match pattern.glob() {
            Some(Err(error)) => return Err(InjectError::Glob { why: error.kind().to_string() }.into()),
            Some(Ok(_)) => {}
            None => check_dst(&pattern.0)?,
        }
        Ok(pattern)
    }

    /// The path as it was written, normalised.
    pub fn path(&self) -> &RelPath {
        &self.0
    }

    /// The matcher, where there is a glob: `*` and `?` stay within a name, `**` does not.
    pub fn glob(&self) -> Option<Result<globset::GlobMatcher, globset::Error>> {
        let text = self.0.as_str();
        if !text.contains(['*', '?', '[']) {
            return None;
        }
        // Braces are not among the contract's glob characters: they stand for themselves.
        let text: String =
            text.chars().map(|c| if matches!(c, '{' | '}') { format!("[{c}]") } else { c.into() }).collect();
        let glob = globset::GlobBuilder::new(&text).literal_separator(true).backslash_escape(false).build();
        Some(glob.map(|glob| glob.compile_matcher()))
    }
}

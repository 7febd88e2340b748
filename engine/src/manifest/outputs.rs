//! Turns `[outputs]` into what a run may write to the outside: how often, and where (contract §1.9, note N4).
//! It refuses to know the run: default targets and parameters come with it.

use std::fmt;
use std::ops::Range;

use policy::outputs::{Declaration, Declared, Kind as Output, Scope, ScopeError, Target};

use super::At;
use super::error::{Mistake, Sink};
use super::keys::{Key, Kind, Rule, Table};
use super::number::Bounds;
use super::section::Section;
use super::value::shorten;

const PARAM_BYTES: usize = 128;
/// More writes than any run makes.
const COUNT: Bounds = Bounds::new(0, 1_000_000);

/// The name of a parameter of a run: a letter or `_`, then letters, digits, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParamName(String);

/// What can be wrong with `[outputs]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputsError {
    /// A text that bounds nothing.
    #[error("the scope `{text}` of [outputs.{kind}] cannot be used: {error}")]
    Scope {
        /// The kind.
        kind: Output,
        /// As written, shortened.
        text: String,
        /// Why.
        error: ScopeError,
    },
    /// A fixed target with a wildcard.
    #[error("the fixed target `{text}` of [outputs.{kind}] has a wildcard")]
    FixedWild {
        /// The kind.
        kind: Output,
        /// As written, shortened.
        text: String,
    },
    /// Neither or both.
    #[error("the target of [outputs.{kind}] has {found} of `fixed` and `open`: it has exactly one")]
    Targets {
        /// The kind.
        kind: Output,
        /// How many.
        found: usize,
    },
    /// Not a parameter's name.
    #[error(
        "`{name}` is not a parameter's name: it has letters, digits, `_` and `-`, and begins with a letter or `_`"
    )]
    Param {
        /// As written, shortened.
        name: String,
    },
    /// A target for a kind that is addressed to nothing.
    #[error("[outputs.{0}].target is there: a `{0}` is addressed to nothing")]
    TakesNone(Output),
}

const COUNT_KEY: Key =
    Key::required("count", Kind::Whole(COUNT), "How many of them the run may make; 0 is none.");
const TARGET_KEY: Key = Key::required(
    "target",
    Kind::Table(&TARGET),
    "Where they may go: `{ fixed = \"…\" }` or `{ open = { scope = \"…\", param = \"…\" } }`.",
);

const fn addressed(path: &'static str, doc: &'static str, example: &'static str) -> Table {
    Table { path, doc, keys: &[COUNT_KEY, TARGET_KEY], rules: &[], example }
}

/// `[outputs]`.
pub(super) static TABLE: Table = Table {
    path: "outputs",
    doc: "What the run may write to the outside, a table for each kind. The broker and the engine refuse every write over a \
          count or outside a target. A kind without a table has the engine's default, and a default whose target does not resolve \
          in the run refuses every write.",
    keys: &[
        Key::optional("draft-pr", Kind::Table(&DRAFT_PR), "2, to the run's publish repository", DRAFT_PR.doc),
        Key::optional(
            "tracker-comment",
            Kind::Table(&TRACKER_COMMENT),
            "2, to the item of `--item`",
            TRACKER_COMMENT.doc,
        ),
        Key::optional(
            "chat-message",
            Kind::Table(&CHAT_MESSAGE),
            "8, to the operator channel",
            CHAT_MESSAGE.doc,
        ),
        Key::optional("image-push", Kind::Table(&IMAGE_PUSH), "100, to the run's registry", IMAGE_PUSH.doc),
        Key::optional("deploy", Kind::Table(&DEPLOY), "100, to the run's namespace and name", DEPLOY.doc),
        Key::optional(
            "workflow-dispatch",
            Kind::Table(&WORKFLOW_DISPATCH),
            "20, to the build repository",
            WORKFLOW_DISPATCH.doc,
        ),
        Key::optional("gpu-capture", Kind::Table(&GPU_CAPTURE), "100", GPU_CAPTURE.doc),
    ],
    rules: &[],
    example: "[outputs.gpu-capture]\ncount = 1\n",
};

pub(super) static DRAFT_PR: Table = addressed(
    "outputs.draft-pr",
    "Draft pull requests, addressed to a repository, `owner/repo`.",
    "[outputs.draft-pr]\ncount = 1\ntarget = { fixed = \"owner/repo\" }\n",
);
pub(super) static TRACKER_COMMENT: Table = addressed(
    "outputs.tracker-comment",
    "Comments on a tracker's item, `PROJECT-NUMBER` or `owner/repo#number`.",
    "[outputs.tracker-comment]\ncount = 3\ntarget = { open = { scope = \"PROJ-*\", param = \"issue_key\" } }\n",
);
pub(super) static CHAT_MESSAGE: Table = addressed(
    "outputs.chat-message",
    "Messages to a channel.",
    "[outputs.chat-message]\ncount = 2\ntarget = { fixed = \"team-builds\" }\n",
);
pub(super) static IMAGE_PUSH: Table = addressed(
    "outputs.image-push",
    "Images pushed to a registry, `registry/path[:tag][@sha256:digest]`.",
    "[outputs.image-push]\ncount = 20\ntarget = { fixed = \"quay.io/aipcc\" }\n",
);
pub(super) static DEPLOY: Table = addressed(
    "outputs.deploy",
    "Deployments, addressed to `namespace/name`.",
    "[outputs.deploy]\ncount = 5\ntarget = { open = { scope = \"staging/*\" } }\n",
);
pub(super) static WORKFLOW_DISPATCH: Table = addressed(
    "outputs.workflow-dispatch",
    "Builds started by a workflow of a repository, `owner/repo`.",
    "[outputs.workflow-dispatch]\ncount = 4\ntarget = { fixed = \"owner/repo\" }\n",
);
pub(super) static GPU_CAPTURE: Table = Table {
    path: "outputs.gpu-capture",
    doc: "Captures of a GPU, addressed to nothing: it has no target.",
    keys: &[COUNT_KEY],
    rules: &[],
    example: "[outputs.gpu-capture]\ncount = 10\n",
};

/// The inline table of a target.
pub(super) static TARGET: Table = Table {
    path: "outputs.<kind>.target",
    doc: "Where writes of a kind may go. A text admits itself and what extends it at `/`, `:`, `@` or `#`.",
    keys: &[
        Key::optional("fixed", Kind::Text, "none", "The one place, and what lies below it; no wildcard."),
        Key::optional("open", Kind::Table(&OPEN), "none", "Any place in a scope."),
    ],
    rules: &[Rule::OneOf(&["fixed", "open"])],
    example: "[outputs.image-push]\ncount = 20\ntarget = { fixed = \"quay.io/aipcc\" }\n",
};

/// The inline table of an open target.
pub(super) static OPEN: Table = Table {
    path: "outputs.<kind>.target.open",
    doc: "A scope narrower than the kind's whole address space.",
    keys: &[
        Key::required(
            "scope",
            Kind::Text,
            "What the place must match; `*` stands for any characters. A scope of nothing but wildcards and separators is refused.",
        ),
        Key::optional(
            "param",
            Kind::Text,
            "none",
            "A parameter of the run: the place must equal its value, and a run without it refuses every write.",
        ),
    ],
    rules: &[],
    example: "[outputs.tracker-comment]\ncount = 3\ntarget = { open = { scope = \"PROJ-*\", param = \"issue_key\" } }\n",
};

impl OutputsError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Scope { error, .. } => error.hint(),
            Self::FixedWild { .. } => "write { open = { scope = \"…\" } } for more than one place",
            Self::Targets { found: 0, .. } => "write { fixed = \"…\" } or { open = { scope = \"…\" } }",
            Self::Targets { .. } => "keep one of them",
            Self::TakesNone(_) => "remove it",
            Self::Param { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

/// Reads the table.
pub(super) fn decode(section: &Section<'_>, sink: &mut Sink) -> Declared {
    let mut declared = Declared::default();
    for kind in Output::ALL {
        let Some((entries, at)) = section.table(kind.token()) else { continue };
        let spec = match TABLE.key(kind.token()).map(|key| key.kind) {
            Some(Kind::Table(spec)) => spec,
            _ => continue,
        };
        if let (false, Some((key, _))) = (kind.is_addressed(), entries.get_key_value("target")) {
            sink.put(key.span(), OutputsError::TakesNone(kind));
            continue;
        }
        let table = Section::open(spec, Some(entries), &at, sink);
        let target = if kind.is_addressed() { target(kind, &table, sink).map(Some) } else { Some(None) };
        let count = table.number("count").and_then(|count| u32::try_from(count).ok());
        if let (Some(count), Some(target)) = (count, target) {
            // What it could refuse has been reported above.
            let _ = declared.declare(kind, Declaration { count, target });
        }
    }
    declared
}

fn target(kind: Output, table: &Section<'_>, sink: &mut Sink) -> Option<Target> {
    let (entries, at) = table.table("target")?;
    let target = Section::open(&TARGET, Some(entries), &at, sink);
    let written = ["fixed", "open"].into_iter().filter_map(|key| target.place(key)).collect::<Vec<_>>();
    if written.len() != 1 {
        let misspelt = written.is_empty() && ["fixed", "open"].iter().any(|key| target.misspells(key));
        if !misspelt {
            let place: Range<usize> = written.get(1).unwrap_or(&at).clone();
            sink.put(place, OutputsError::Targets { kind, found: written.len() });
        }
        return None;
    }
    if let Some((entries, at)) = target.table("open") {
        let open = Section::open(&OPEN, Some(entries), &at, sink);
        let scope = open.parse("scope", sink, |text| scope(kind, text));
        let param = open.parse("param", sink, ParamName::parse);
        if open.place("param").is_some() && param.is_none() {
            return None;
        }
        return Some(Target::Open { scope: scope?.value, param: param.map(|name| name.value.0) });
    }
    target.parse("fixed", sink, |text| fixed(kind, text)).map(|At { value, .. }| Target::Fixed(value))
}

fn scope(kind: Output, text: &str) -> Result<Scope, OutputsError> {
    Scope::parse(text).map_err(|error| OutputsError::Scope { kind, text: shorten(text), error })
}

fn fixed(kind: Output, text: &str) -> Result<Scope, OutputsError> {
    let read = scope(kind, text)?;
    if text.contains('*') {
        return Err(OutputsError::FixedWild { kind, text: shorten(text) });
    }
    Ok(read)
}

impl ParamName {
    /// Reads a name.
    ///
    /// # Errors
    /// Another character, another first one, more than 128 bytes.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        let rest = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if first && rest && text.len() <= PARAM_BYTES {
            return Ok(Self(text.to_owned()));
        }
        Err(OutputsError::Param { name: shorten(text) }.into())
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ParamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

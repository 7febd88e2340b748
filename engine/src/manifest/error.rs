//! Turns each distinct mistake of a manifest into a diagnostic with a hint, in this one place.
//! It refuses to know how the mistake was found.

use std::ops::Range;

use policy::diag::{Diagnostic, Source};

use super::WorldError;
use super::keys::{Kind, ROOT, TABLES, Table};
use super::{AgentError, BrokerError, CapabilityError, EnvError, FileError, ImageError, InjectError};
use super::{JudgeError, OpenshellError, OutputsError, PathError, RelayError, RepoError};
use super::{ValueError, WorkflowError, WorkspaceError};

/// One mistake in a manifest or in the files it names, by what is wrong rather than by how it reads.
#[derive(Debug, thiserror::Error)]
pub enum Mistake {
    /// More text than is read.
    #[error("the manifest is {bytes} bytes long: at most {max} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest that is read.
        max: usize,
    },
    /// Not text.
    #[error("the manifest is not UTF-8: the byte at offset {offset} begins no character")]
    NotUtf8 {
        /// Offset of the first bad byte.
        offset: usize,
    },
    /// Not TOML, by the parser's own words.
    #[error("{0}")]
    Syntax(String),
    /// Text where TOML wants quotes, or nothing at all.
    #[error("the value of `{key}` is not in quotes")]
    Unquoted {
        /// As written, shortened.
        key: String,
        /// As written, without what would end the quotes, shortened.
        value: String,
    },
    /// One key twice in its table, or a table twice.
    #[error("this key or table was written before")]
    Duplicate,
    /// A key that no table or another table has.
    #[error("unknown key `{key}` in {table}")]
    Unknown {
        /// As written, shortened.
        key: String,
        /// The table it stands in, as messages name it.
        table: String,
    },
    /// A key or table that must be there.
    #[error("{key} is missing")]
    Missing {
        /// The key with its table.
        key: String,
        /// What it is for.
        doc: &'static str,
    },
    /// A key that the contract knows and this build does not.
    #[error("{key} is not in this build, which {missing}")]
    NotBuilt {
        /// The key with its table.
        key: String,
        /// What is missing.
        missing: &'static str,
    },
    /// A value that its key does not take.
    #[error("{key} {error}")]
    Value {
        /// The key with its table.
        key: String,
        /// What is wrong with it.
        error: ValueError,
    },
    /// A word where one of a few belongs.
    #[error("{key} = \"{word}\" is none of its words")]
    NoSuchWord {
        /// The key with its table.
        key: String,
        /// As written, shortened.
        word: String,
        /// What it may be.
        words: &'static str,
    },
    /// `[repo]`.
    #[error(transparent)]
    Repo(#[from] RepoError),
    /// `[workspace]`.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// `[workspace].inject`.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// `[agent]`.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// `[agent.requires]` or `[agent.prefers]`.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// `[agent.env]`.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// `[agent.openshell]`.
    #[error(transparent)]
    Openshell(#[from] OpenshellError),
    /// `[judge]`.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// `[world]`.
    #[error(transparent)]
    World(#[from] WorldError),
    /// `[workflow]`.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// `[agent.broker]`.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// `[[agent.relay]]`.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// `[outputs]`.
    #[error(transparent)]
    Outputs(#[from] OutputsError),
    /// `[[capabilities.secret]]`.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// A file that the manifest names.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A mistake, where it is, and what else has to do with it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) span: Range<usize>,
    mistake: Mistake,
    related: Vec<(Range<usize>, &'static str)>,
}

/// Where the mistakes of one manifest are gathered.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    found: Vec<Found>,
    warnings: Vec<Diagnostic>,
}

impl Sink {
    pub(crate) fn put(&mut self, span: Range<usize>, mistake: impl Into<Mistake>) {
        self.found.push(Found::new(span, mistake.into()));
    }

    pub(crate) fn put_related(
        &mut self,
        span: Range<usize>,
        mistake: impl Into<Mistake>,
        other: (Range<usize>, &'static str),
    ) {
        let related = vec![other];
        self.found.push(Found { related, ..Found::new(span, mistake.into()) });
    }

    pub(super) fn extend(&mut self, found: impl IntoIterator<Item = Found>) {
        self.found.extend(found);
    }

    pub(crate) fn warn(&mut self, span: Range<usize>, message: &str, hint: &str) {
        self.warnings.push(Diagnostic::warning(span, message).with_hint(Some(hint.to_owned())));
    }

    pub(crate) fn into_parts(self) -> (Vec<Found>, Vec<Diagnostic>) {
        (self.found, self.warnings)
    }

    /// The diagnostics of all mistakes, in the order of their places.
    pub(crate) fn into_errors(self, source: &Source) -> Vec<Diagnostic> {
        let mut found = self.found;
        found.sort_by_key(|found| (found.span.start, found.span.end));
        found.into_iter().map(|found| found.into_diagnostic(source)).collect()
    }
}

impl Found {
    pub(crate) fn new(span: Range<usize>, mistake: Mistake) -> Self {
        Self { span, mistake, related: Vec::new() }
    }

    /// Whether it only says that something is not there, which a syntax error may have caused.
    pub(super) fn is_about_absence(&self) -> bool {
        let mistake = &self.mistake;
        matches!(
            mistake,
            Mistake::Missing { .. }
                | Mistake::Repo(RepoError::Neither)
                | Mistake::Agent(AgentError::NoCommand { .. })
                | Mistake::World(WorldError::Unpaired { .. })
        )
    }

    pub(crate) fn into_diagnostic(self, source: &Source) -> Diagnostic {
        let hint = hint(&self.mistake);
        let span = source.snap(self.span);
        let mut diagnostic = Diagnostic::error(span, self.mistake.to_string()).with_hint(hint);
        if is_private(&self.mistake) {
            diagnostic = diagnostic.without_picture();
        }
        for (span, label) in self.related {
            diagnostic = diagnostic.with_related(source.snap(span), label);
        }
        diagnostic
    }
}

/// Whether the line that it is about may hold a secret.
fn is_private(mistake: &Mistake) -> bool {
    let relayed = matches!(mistake, Mistake::Value { key, .. } if key.starts_with("[agent.relay]"));
    relayed
        || matches!(mistake, Mistake::Env(_) | Mistake::Relay(_) | Mistake::Repo(RepoError::UrlCredential))
}

impl From<(&'static str, ValueError)> for Mistake {
    fn from((key, error): (&'static str, ValueError)) -> Self {
        Self::Value { key: key.to_owned(), error }
    }
}

fn hint(mistake: &Mistake) -> Option<String> {
    match mistake {
        Mistake::TooLarge { .. } => Some("keep long texts in files of their own, such as method.md".into()),
        Mistake::NotUtf8 { .. } => Some("save the file as UTF-8".into()),
        Mistake::Syntax(_) => None,
        Mistake::Unquoted { key, value } => Some(format!("write {key} = \"{value}\"")),
        Mistake::Duplicate => Some("keep one of them".into()),
        Mistake::Unknown { key, table } => Some(unknown_hint(key, table)),
        Mistake::Missing { doc, .. } => Some(missing_hint(doc)),
        Mistake::NotBuilt { .. } => Some("remove it, or use a build that has it".into()),
        Mistake::Value { key, error } => value_hint(key, error),
        Mistake::NoSuchWord { words, .. } => Some(format!("write {words}")),
        Mistake::Repo(error) => error.hint(),
        Mistake::Workspace(error) => error.hint(),
        Mistake::Inject(error) => error.hint(),
        Mistake::Agent(error) => error.hint(),
        Mistake::Image(error) => error.hint(),
        Mistake::Env(error) => error.hint(),
        Mistake::Openshell(error) => error.hint(),
        Mistake::Judge(error) => error.hint(),
        Mistake::World(error) => error.hint(),
        Mistake::Workflow(error) => error.hint(),
        Mistake::Broker(error) => error.hint(),
        Mistake::Relay(error) => error.hint(),
        Mistake::Outputs(error) => error.hint(),
        Mistake::Capability(error) => error.hint(),
        Mistake::File(error) => error.hint(),
    }
}

fn missing_hint(doc: &str) -> String {
    let first = doc.split_inclusive(". ").next().unwrap_or(doc);
    format!("add it: {}", first.trim_end().trim_end_matches('.'))
}

fn unknown_hint(key: &str, title: &str) -> String {
    let table = TABLES.iter().find(|table| table.title() == title).copied().unwrap_or(&ROOT);
    if let Some(near) = table.nearest(key) {
        return format!("did you mean `{near}`?");
    }
    let owner = TABLES.iter().find(|table| table.key(key).is_some());
    if let Some(owner) = owner {
        return format!("`{key}` is a key of {}", owner.title());
    }
    let names: Vec<&str> = table.keys.iter().filter(|key| key.is_built()).map(|key| key.name).collect();
    format!("{} has {}", table.title(), names.join(", "))
}

fn value_hint(key: &str, error: &ValueError) -> Option<String> {
    match error {
        ValueError::WrongType { expected, found } => type_hint(key, expected, found),
        ValueError::DurationNumber { digits: Some(digits) } => Some(format!("write a unit: \"{digits}s\"")),
        ValueError::DurationNumber { digits: None } | ValueError::DurationUnreadable => {
            Some("write hours, minutes and seconds, such as \"90s\", \"10m\" or \"1h30m\"".into())
        }
        ValueError::DurationZero | ValueError::Zero => Some("leave the key out for the default".into()),
        ValueError::SizeNumber | ValueError::SizeUnreadable => {
            Some("write a whole number and K, M or G, such as \"512M\" or \"8G\"".into())
        }
        ValueError::CommandTooLong { .. } => Some("put the commands in a script and name the script".into()),
        ValueError::Path(PathError::Escapes | PathError::Absolute) => {
            Some("write a relative path without `..`".into())
        }
        _ => None,
    }
}

fn type_hint(key: &str, expected: &str, found: &str) -> Option<String> {
    let name = key.rsplit(['.', ']']).next().unwrap_or(key);
    match (expected, found) {
        ("a string", "a boolean" | "an integer" | "a float" | "a date") => Some("put it in quotes".into()),
        ("an integer", "a float") => Some("write a whole number".into()),
        ("an integer" | "a number", "a string") => Some("write it without quotes".into()),
        ("an array of strings", "a string") => Some(format!("put it in brackets: {name} = [\"…\"]")),
        ("a boolean", _) => Some("write true or false, without quotes".into()),
        ("an array of tables", "a table") => Some("write the header with two pairs of brackets".into()),
        ("a table", "an array") => Some("write the header with one pair of brackets".into()),
        ("an array of injects", "a string") => Some(format!("put it in brackets: {name} = [\"…\"]")),
        _ => None,
    }
}

/// How a message names the kind of value that a key takes.
pub(super) fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Flag => "a boolean",
        Kind::Whole(_) => "an integer",
        Kind::Thousandths(_) => "a number",
        Kind::Texts | Kind::Distinct => "an array of strings",
        Kind::Injects => "an array of injects",
        Kind::Tables(_) => "an array of tables",
        Kind::Float => "a number",
        Kind::Table(Table { .. }) | Kind::Names | Kind::Demands => "a table",
        Kind::Text | Kind::Path | Kind::Command | Kind::Duration | Kind::Within(_) => "a string",
        Kind::Size(_) | Kind::OneOf(_) | Kind::Never => "a string",
    }
}

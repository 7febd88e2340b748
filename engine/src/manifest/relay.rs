//! Turns `[[agent.relay]]` into files that are put into each turn's sandbox, with where their content comes from (note N16).
//! It refuses to look at any source: the host does when a run and each turn begins, and never prints what it found.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path};

use super::At;
use super::env::EnvName;
use super::error::{Mistake, Sink};
use super::keys::{Key, Kind, Rule, Table};
use super::section::Section;
use super::value::{Command, ManifestPath, ValueError, shorten};

const DEFAULT_MODE: u32 = 0o600;
const MOST: usize = 100;
/// Where a sandbox's user may write and nothing comes back from.
const PLACES: [&str; 2] = ["/sandbox/home", "/tmp"];
/// The file there that is the engine's own.
const OWN: &str = "/sandbox/home/.mcp.json";

/// One file that is put into the sandbox before the agent starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// Where it stands in the sandbox.
    pub dest: SandboxPath,
    /// Where its content comes from.
    pub source: RelaySource,
    /// Its permission bits.
    pub mode: u32,
}

/// Where a relayed file's content comes from. All of it is of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelaySource {
    /// A text with parts that are replaced once.
    Template(Vec<Piece>),
    /// The bytes of a file, relative to the manifest's directory.
    File(ManifestPath),
    /// What a command prints.
    Command(Command),
}

/// A part of a template.
#[derive(Clone, PartialEq, Eq)]
pub enum Piece {
    /// Itself. It may be a secret, so `Debug` shows its length only.
    Text(String),
    /// `${env:NAME}`.
    Env(EnvName),
    /// `${file:PATH}`, trimmed.
    File(ManifestPath),
    /// `${file64:PATH}`, in base64.
    File64(ManifestPath),
    /// `${cmd:COMMAND}`, trimmed.
    Command(Command),
}

/// An absolute path in a sandbox with nothing but names in it, where the agent's user may write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxPath(String);

/// What can be wrong with a relay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// None of the three, or more than one.
    #[error("a relay has {found} of `template`, `from_file` and `from_cmd`: it has exactly one")]
    Sources {
        /// How many.
        found: usize,
    },
    /// A destination that no sandbox has for an agent.
    #[error("the relay's `dest` {why}")]
    Dest {
        /// What is wrong with it.
        why: &'static str,
    },
    /// Two relays to one place, or one below another.
    #[error("two relays have the destination `{dest}`, or one lies below the other")]
    SameDest {
        /// The destination.
        dest: String,
    },
    /// Not permission bits.
    #[error("the relay's `mode` is not three or four octal digits up to \"0777\"")]
    Mode,
    /// A part that begins and does not end.
    #[error("the relay's template has `${{{word}:` without a closing brace")]
    Unclosed {
        /// `env`, `file`, `file64` or `cmd`.
        word: &'static str,
    },
    /// A part of another kind.
    #[error("the relay's template has `${{{word}:…}}`, which nothing replaces")]
    Unknown {
        /// As written, shortened.
        word: String,
    },
    /// A part that names nothing usable.
    #[error("the relay's template has `${{{word}:…}}` with a value that cannot be used: it {error}")]
    Part {
        /// `env`, `file`, `file64` or `cmd`.
        word: &'static str,
        /// Why.
        error: String,
    },
    /// Files for a sandbox that is not there.
    #[error(
        "[[agent.relay]] goes with backend = \"openshell\": without a sandbox the agent sees the host's own files"
    )]
    NoSandbox,
    /// More than anyone writes by hand.
    #[error("there are {count} relays: at most {MOST} are read")]
    TooMany {
        /// How many.
        count: usize,
    },
}

/// `[[agent.relay]]`.
pub(super) static TABLE: Table = Table {
    path: "agent.relay",
    doc: "A file that is put into the sandbox before each turn, written as `[[agent.relay]]`. Its content is made on this host by \
          the operator's files, environment and commands, once when a run starts, to know that it can be, and anew before each turn; it is \
          never logged, and it does not come back. `check` looks at files and variables, and runs no command.",
    keys: &[
        Key::required(
            "dest",
            Kind::Text,
            "An absolute path in the sandbox, below `/sandbox/home` or `/tmp`.",
        ),
        Key::optional(
            "template",
            Kind::Text,
            "none",
            "A text in which `${env:NAME}`, `${file:PATH}` (trimmed), `${file64:PATH}` (in base64) and `${cmd:COMMAND}` \
             (trimmed) are replaced once. A part ends at the first `}`; a `$` with anything else behind it stays.",
        ),
        Key::optional(
            "from_file",
            Kind::Path,
            "none",
            "A file whose bytes it gets, relative to the manifest's directory.",
        ),
        Key::optional(
            "from_cmd",
            Kind::Command,
            "none",
            "A command whose standard output it gets, run in the manifest's directory.",
        ),
        Key::optional("mode", Kind::Text, "\"0600\"", "Its permission bits, in octal."),
    ],
    rules: &[Rule::OneOf(&["template", "from_file", "from_cmd"])],
    example: "[[agent.relay]]\ndest = \"/sandbox/home/.netrc\"\ntemplate = \"machine git.example login me password \
              ${env:GIT_TOKEN}\\n\"\nmode = \"0600\"\n",
};

impl RelayError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Sources { found: 0 } => "write one of them",
            Self::Sources { .. } => "keep one of them",
            Self::Dest { .. } => "write an absolute path below /sandbox/home or /tmp, without `..`",
            Self::SameDest { .. } => "give each its own place",
            Self::Mode => "write it in quotes, such as \"0600\"",
            Self::Unclosed { .. } => "close it with `}`",
            Self::Unknown { .. } => {
                "write ${env:NAME}, ${file:PATH}, ${file64:PATH} or ${cmd:COMMAND}; other text goes into a file, by from_file"
            }
            Self::Part { .. } => return None,
            Self::NoSandbox => "remove it, or write backend = \"openshell\" for a sandbox",
            Self::TooMany { .. } => "put the files into one directory of read_only_paths",
        };
        Some(hint.to_owned())
    }
}

impl Relay {
    /// The variables of the operator's environment that it reads.
    pub fn variables(&self) -> impl Iterator<Item = &EnvName> {
        let pieces = match &self.source {
            RelaySource::Template(pieces) => pieces.as_slice(),
            RelaySource::File(_) | RelaySource::Command(_) => &[],
        };
        pieces.iter().filter_map(|piece| match piece {
            Piece::Env(name) => Some(name),
            _ => None,
        })
    }

    /// The files of this host that it reads.
    pub fn files(&self) -> Vec<&ManifestPath> {
        match &self.source {
            RelaySource::File(path) => vec![path],
            RelaySource::Command(_) => Vec::new(),
            RelaySource::Template(pieces) => {
                let files = pieces.iter().filter_map(|piece| match piece {
                    Piece::File(path) | Piece::File64(path) => Some(path),
                    _ => None,
                });
                files.collect()
            }
        }
    }

    /// Whether it runs a command on this host.
    pub fn runs_commands(&self) -> bool {
        match &self.source {
            RelaySource::Template(pieces) => pieces.iter().any(|piece| matches!(piece, Piece::Command(_))),
            RelaySource::File(_) => false,
            RelaySource::Command(_) => true,
        }
    }

    /// What it is made of, as the disclosure names it: `env:NAME`, `file:PATH`, `file64:PATH`, `cmd:COMMAND`. A template
    /// without any is the manifest's own text, which names no source.
    pub fn sources(&self) -> Vec<String> {
        match &self.source {
            RelaySource::File(path) => vec![format!("file:{path}")],
            RelaySource::Command(command) => vec![format!("cmd:{command}")],
            RelaySource::Template(pieces) => pieces.iter().filter_map(Piece::source).collect(),
        }
    }
}

impl Piece {
    fn source(&self) -> Option<String> {
        match self {
            Self::Text(_) => None,
            Self::Env(name) => Some(format!("env:{name}")),
            Self::File(path) => Some(format!("file:{path}")),
            Self::File64(path) => Some(format!("file64:{path}")),
            Self::Command(command) => Some(format!("cmd:{command}")),
        }
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            other => f.write_str(&other.source().unwrap_or_default()),
        }
    }
}

/// Reads the list.
pub(super) fn decode(section: &Section<'_>, sandboxed: bool, sink: &mut Sink) -> Vec<At<Relay>> {
    let tables = section.tables("relay", &TABLE, sink);
    let (Some(place), false) = (section.place("relay"), tables.is_empty()) else { return Vec::new() };
    if tables.len() > MOST {
        sink.put(place, RelayError::TooMany { count: tables.len() });
        return Vec::new();
    }
    if !sandboxed {
        sink.put(place, RelayError::NoSandbox);
    }
    let relays: Vec<_> = tables.iter().filter_map(|(table, span)| decode_one(table, span, sink)).collect();
    apart(&relays, sink);
    relays
}

fn decode_one(table: &Section<'_>, span: &std::ops::Range<usize>, sink: &mut Sink) -> Option<At<Relay>> {
    let dest = table.parse("dest", sink, SandboxPath::parse);
    let mode = table.parse("mode", sink, parse_mode);
    let template = table.parse("template", sink, parse_template).map(|at| RelaySource::Template(at.value));
    let file = table.value("from_file", sink, ManifestPath::parse).map(|at| RelaySource::File(at.value));
    let command = table.value("from_cmd", sink, Command::parse).map(|at| RelaySource::Command(at.value));
    let written = ["template", "from_file", "from_cmd"].into_iter().filter_map(|key| table.place(key));
    let written: Vec<_> = written.collect();
    if written.len() != 1 && !(written.is_empty() && misspelt(table)) {
        let place = written.get(1).unwrap_or(span).clone();
        sink.put(place, RelayError::Sources { found: written.len() });
        return None;
    }
    if table.place("mode").is_some() && mode.is_none() {
        return None;
    }
    let At { value: dest, span } = dest?;
    let source = template.or(file).or(command)?;
    Some(At { value: Relay { dest, source, mode: mode.map_or(DEFAULT_MODE, |mode| mode.value) }, span })
}

fn misspelt(table: &Section<'_>) -> bool {
    ["template", "from_file", "from_cmd"].into_iter().any(|key| table.misspells(key))
}

/// Refuses two files at one place, and one below another.
fn apart(relays: &[At<Relay>], sink: &mut Sink) {
    let mut sorted: BTreeMap<&Path, &At<Relay>> = BTreeMap::new();
    for relay in relays {
        let path = Path::new(relay.value.dest.as_str());
        let other = sorted.values().find(|other| {
            let other = Path::new(other.value.dest.as_str());
            path.starts_with(other) || other.starts_with(path)
        });
        if let Some(other) = other {
            let same = RelayError::SameDest { dest: relay.value.dest.to_string() };
            sink.put_related(relay.span.clone(), same, (other.span.clone(), "the other one"));
        } else {
            sorted.insert(path, relay);
        }
    }
}

fn parse_mode(text: &str) -> Result<u32, RelayError> {
    let octal = matches!(text.len(), 3 | 4) && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| octal && *mode <= 0o777);
    mode.ok_or(RelayError::Mode)
}

/// Cuts a template into its parts.
fn parse_template(text: &str) -> Result<Vec<Piece>, RelayError> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        plain.push_str(before);
        let Some((word, value)) = part_word(after) else {
            plain.push_str("${");
            rest = after;
            continue;
        };
        let word = ["env", "file", "file64", "cmd"].into_iter().find(|known| *known == word);
        let word = word
            .ok_or_else(|| RelayError::Unknown { word: shorten(part_word(after).unwrap_or_default().0) })?;
        let (value, after) = value.split_once('}').ok_or(RelayError::Unclosed { word })?;
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(piece(word, value)?);
        rest = after;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

/// The word before the colon of a part, and what follows it; none where the text is no part at all.
fn part_word(text: &str) -> Option<(&str, &str)> {
    let (word, value) = text.split_once(':')?;
    let plain = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (plain && !word.is_empty()).then_some((word, value))
}

fn piece(word: &'static str, value: &str) -> Result<Piece, RelayError> {
    let part = |error: &dyn fmt::Display| RelayError::Part { word, error: error.to_string() };
    let path = || ManifestPath::parse(value).map_err(|error| part(&error));
    match word {
        "env" => EnvName::parse(value).map(Piece::Env).map_err(|_| part(&"is no name that a relay may read")),
        "file" => path().map(Piece::File),
        "file64" => path().map(Piece::File64),
        _ => Command::parse(value).map(Piece::Command).map_err(|error| part(&error)),
    }
}

impl SandboxPath {
    /// Reads a path; doubled slashes and `.` go away.
    ///
    /// # Errors
    /// Relative, with `..`, a directory's, not below where the agent may write, or not a path.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let written = ManifestPath::parse(text)
            .map_err(|error: ValueError| Mistake::from(("[agent.relay].dest", error)))?;
        let dest = |why| Mistake::from(RelayError::Dest { why });
        if text.ends_with('/') {
            return Err(dest("ends in `/`, and a file is meant"));
        }
        let path = Path::new(written.as_str());
        if !path.is_absolute() {
            return Err(dest("is not absolute"));
        }
        let mut names = String::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => names.extend(["/", name.to_str().unwrap_or_default()]),
                Component::ParentDir => return Err(dest("goes up by `..`")),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        let inside = |place: &str| Path::new(&names).starts_with(place) && names.len() > place.len();
        if names == OWN {
            return Err(dest("is where the engine tells the agent of its tools"));
        }
        match PLACES.into_iter().any(inside) {
            true => Ok(Self(names)),
            false => Err(dest(
                "is not below /sandbox/home or /tmp, where the agent may write and nothing comes back from",
            )),
        }
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match parse_template(text) {
            Ok(pieces) => {
                let one = |piece: &Piece| match piece {
                    Piece::Text(text) => format!("{text:?}"),
                    piece => piece.source().unwrap(),
                };
                pieces.iter().map(one).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_template_is_cut_at_its_parts_once() {
        for (text, pieces) in [
            ("plain", "\"plain\""),
            ("${env:A}", "env:A"),
            (
                "a ${env:A}b${file:x/y}${file64:/z}${cmd:echo '$x'}",
                "\"a \" env:A \"b\" file:x/y file64:/z cmd:echo '$x'",
            ),
            ("$HOME ${HOME} ${HOME:-x} $ {env:A} ${", "\"$HOME ${HOME} ${HOME:-x} $ {env:A} ${\""),
            ("${env:A}}", "env:A \"}\""),
            ("$${env:A}", "\"$\" env:A"),
        ] {
            assert_eq!(shown(text), pieces, "{text}");
        }
        for (text, said) in [
            ("${env:A", "without a closing brace"),
            ("${envv:A}", "`${envv:…}`, which nothing replaces"),
            ("${env:}", "no name that a relay may read"),
            ("${env:BROKER_TOKEN}", "no name that a relay may read"),
            ("${env:CRUCIBLE_INFERENCE}", "no name that a relay may read"),
            ("${file:}", "is empty"),
            ("${cmd: }", "is empty"),
        ] {
            assert!(shown(text).contains(said), "{text}: {}", shown(text));
        }
    }

    #[test]
    fn a_destination_is_where_the_agent_may_write() {
        for (text, read) in [("/sandbox/home/.netrc", "/sandbox/home/.netrc"), ("/tmp//a/./b", "/tmp/a/b")] {
            assert_eq!(SandboxPath::parse(text).unwrap().as_str(), read);
        }
        for text in [
            "a",
            "/etc/passwd",
            "/tmp",
            "/tmp/",
            "/sandbox/home",
            "/sandbox/work/x",
            "/sandbox/home/../x",
            "/tmpx/y",
        ] {
            assert!(SandboxPath::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mode_is_octal_and_has_no_special_bits() {
        for (text, mode) in [
            ("0600", Some(0o600)),
            ("755", Some(0o755)),
            ("0777", Some(0o777)),
            ("4755", None),
            ("0800", None),
            ("6", None),
            ("+600", None),
            ("00600", None),
        ] {
            assert_eq!(parse_mode(text).ok(), mode, "{text}");
        }
    }

    #[test]
    fn debug_output_holds_no_text_of_a_template() {
        let pieces = parse_template("hunter2 ${env:A}").unwrap();
        assert_eq!(format!("{pieces:?}"), "[Text(8 bytes), env:A]");
    }
}

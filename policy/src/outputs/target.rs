//! Turns the text of a scope or an address into values that admit each other or not (N4).
//! It refuses to know which run asks.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::kind::{Addresses, Kind};

/// The longest text of a scope or an address, in bytes.
const TEXT_MAX: usize = 512;
/// Where a value may go on after a literal scope.
const BOUNDARIES: [char; 4] = ['/', ':', '@', '#'];
/// The operator channel: what a message is addressed to that goes to the run's own log.
pub const OPERATOR: &str = "operator";

/// A part of a kind's address space, narrower than the whole of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scope(Box<str>);

/// Why a text is no scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// Nothing but wildcards and separators.
    #[error("the scope admits everything")]
    Unbounded,
    /// A blank, a control or another character that no address has.
    #[error("the scope has a character that no address has")]
    Character,
    /// Too long.
    #[error("the scope is longer than {TEXT_MAX} bytes")]
    TooLong,
}

impl ScopeError {
    /// What to write instead.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Unbounded => "name at least a part of the address, such as \"PROJ-*\" or \"owner/*\"",
            Self::Character => {
                "an address has letters, digits and . _ - / : @ # only; `*` stands for any of them"
            }
            Self::TooLong => "name a shorter part of the address",
        }
    }
}

impl Scope {
    /// Reads a scope; `*` stands for any run of characters.
    ///
    /// # Errors
    /// See [`ScopeError`].
    pub fn parse(text: &str) -> Result<Self, ScopeError> {
        if text.len() > TEXT_MAX {
            return Err(ScopeError::TooLong);
        }
        if !text.contains(|c: char| c.is_ascii_alphanumeric()) {
            return Err(ScopeError::Unbounded);
        }
        let known = |c: char| c == '*' || is_part(c) || BOUNDARIES.contains(&c);
        if !text.chars().all(known) {
            return Err(ScopeError::Character);
        }
        Ok(Self(text.into()))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a value lies in it: by an anchored glob where it has a `*`; otherwise itself, and what extends it at a
    /// boundary of an address. That the value is an address at all is asked of [`address`].
    pub fn admits(&self, value: &str) -> bool {
        if self.0.contains('*') {
            return glob(&self.0, value);
        }
        value.strip_prefix(&*self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with(BOUNDARIES))
    }
}

impl TryFrom<String> for Scope {
    type Error = ScopeError;

    fn try_from(text: String) -> Result<Self, ScopeError> {
        Self::parse(&text)
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.0.into()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where writes of a kind may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Target {
    /// One place, and what lies below it.
    Fixed(Scope),
    /// Any place in a scope; with a parameter, only its value.
    #[serde(rename = "open")]
    Open {
        /// The scope.
        scope: Scope,
        /// The parameter of the run whose value the target must be.
        #[serde(default)]
        param: Option<String>,
    },
}

/// Whether `*` in the pattern can be filled so that it is the value. Greedy from the left, which needs no way back: the
/// first place of each part leaves the most for the rest.
fn glob(pattern: &str, value: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = value.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// A character inside a part of an address.
fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// Whether a text is an address of this kind, in full. What is none lies outside of every scope.
pub fn address(kind: Kind, text: &str) -> bool {
    if text.len() > TEXT_MAX {
        return false;
    }
    match kind.addresses() {
        Addresses::Repository => repository(text),
        Addresses::TrackerItem => tracker_item(text),
        Addresses::Chat => channel(text),
        Addresses::Registry => image(text),
        Addresses::Deployment => {
            text.split_once('/').is_some_and(|(space, name)| label(space) && label(name))
        }
        Addresses::Nothing => false,
    }
}

fn repository(text: &str) -> bool {
    let owner = |text: &str| {
        (1..=39).contains(&text.len())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !text.starts_with('-')
    };
    let name = |text: &str| {
        (1..=100).contains(&text.len()) && text.chars().all(is_part) && !matches!(text, "." | "..")
    };
    text.split_once('/').is_some_and(|(first, second)| owner(first) && name(second))
}

fn tracker_item(text: &str) -> bool {
    if let Some((repo, number)) = text.split_once('#') {
        return repository(repo) && counting(number);
    }
    let Some((project, number)) = text.rsplit_once('-') else { return false };
    let key = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    project.starts_with(|c: char| c.is_ascii_uppercase()) && project.chars().all(key) && counting(number)
}

/// A number from 1, without sign or leading zero.
fn counting(text: &str) -> bool {
    (1..=18).contains(&text.len()) && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn channel(text: &str) -> bool {
    let name = text.strip_prefix('#').unwrap_or(text);
    (1..=80).contains(&name.len())
        && name.chars().all(is_part)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// `registry[:port]/path[:tag][@sha256:digest]`: the registry is always named, so that no client may guess one.
fn image(text: &str) -> bool {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    let Some((registry, path)) = rest.split_once('/') else { return false };
    let (path, tag) = match path.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (path, None),
    };
    crate::host::Target::parse_or(registry, crate::host::Port::HTTPS).is_ok()
        && registry.chars().all(|c| is_part(c) || c == ':')
        && path.split('/').all(component)
        && tag.is_none_or(tag_name)
        && digest.is_none_or(sha256)
}

/// Lower-case letters and digits, with single separators between.
fn component(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || matches!(c, '.' | '_' | '-'))
        && !text.contains("..")
}

fn tag_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(is_part)
}

fn sha256(text: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix("sha256:").is_some_and(|digest| digest.len() == 64 && digest.bytes().all(hex))
}

/// A label as deployments have it.
fn label(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || c == '-')
}

//! Turns `[agent.requires]` and `[agent.prefers]` into nothing but their mistakes: both are for a controller (contract §1).
//! It refuses to know what an image provides.

use toml::de::DeTable;

use super::error::Sink;
use super::keys::Table;
use super::section::found;
use super::value::{check_line, shorten};

const NAME_BYTES: usize = 128;

/// What can be wrong with a demand on an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Not a capability's name.
    #[error("`{name}` is not a capability's name: it has letters, digits, `.`, `-` and `_`")]
    Name {
        /// As written, shortened.
        name: String,
    },
    /// Not one line of text.
    #[error("the demand on `{name}` is {found}: it must be one line of text")]
    Demand {
        /// The capability, shortened.
        name: String,
        /// With its article.
        found: &'static str,
    },
}

/// `[agent.requires]`.
pub(super) static REQUIRES: Table = Table {
    path: "agent.requires",
    doc: "For a controller: what the sandbox image must provide, by capability, or it refuses the launch. The engine, whose \
          sandboxes show this machine's own files, reads its form only.",
    keys: &[],
    rules: &[],
    example: "[agent.requires]\n\"toolchain.go\" = \">=1.25\"\n",
};

/// `[agent.prefers]`.
pub(super) static PREFERS: Table = Table {
    path: "agent.prefers",
    doc: "For a controller: how it ranks images that will do. The engine reads its form only.",
    keys: &[],
    rules: &[],
    example: "[agent.prefers]\n\"toolchain.go\" = \">=1.26\"\n",
};

/// What the schema says of a name.
pub(super) const CAPABILITY_PATTERN: &str = "^[A-Za-z0-9._-]{1,128}$";

impl ImageError {
    pub(super) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Name { .. } => "write a name such as \"toolchain.go\", in quotes".to_owned(),
            Self::Demand { .. } => "write a demand such as \">=1.25\"".to_owned(),
        })
    }
}

/// Looks at the form of one of the two tables.
pub(super) fn check(entries: &DeTable<'_>, sink: &mut Sink) {
    for (key, value) in entries {
        let name = key.get_ref();
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(good) {
            sink.put(key.span(), ImageError::Name { name: shorten(name) });
        }
        let found = match value.get_ref().as_str() {
            Some(text) if check_line(text).is_ok() => continue,
            Some(_) => "empty or several lines",
            None => found(value.get_ref()),
        };
        sink.put(value.span(), ImageError::Demand { name: shorten(name), found });
    }
}

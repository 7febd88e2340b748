//! Turns `[agent.env]` into variables for the agent's process (contract §1).
//! It refuses to know what they mean, and never prints a value.

use std::collections::BTreeMap;
use std::fmt;

use toml::de::{DeTable, DeValue};

use super::error::Sink;
use super::keys::Table;
use super::section;
use super::value::shorten;

const NAME_BYTES: usize = 128;
const VALUE_BYTES: usize = 128 * 1024 - NAME_BYTES - 2;
/// What OpenShell's gateways take as one value.
const SANDBOX_VALUE_BYTES: usize = 32 * 1024;

/// A variable's name: a letter or `_`, then letters, digits and `_`; none that the engine sets itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvName(String);

/// A variable's value, which may be a secret: it has no `Display`, and its `Debug` shows its length only.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvValue(String);

/// What can be wrong with a variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// No shell could read it.
    #[error("`{name}` is not a variable's name: it has letters, digits and `_`, and no digit first")]
    Name {
        /// As written, shortened.
        name: String,
    },
    /// A name that the engine sets.
    #[error("`{name}` begins with `{prefix}`: such names are the engine's")]
    Reserved {
        /// As written, shortened.
        name: String,
        /// `CRUCIBLE_` or `BROKER_`.
        prefix: &'static str,
    },
    /// Another type than text.
    #[error("the variable `{name}` is {found}: it must be a string")]
    NotText {
        /// As written.
        name: String,
        /// With its article.
        found: &'static str,
    },
    /// A value that no process can be given.
    #[error("the variable `{name}` holds a NUL character")]
    Nul {
        /// As written.
        name: String,
    },
    /// A name that the sandbox sets.
    #[error("`{name}` begins with `OPENSHELL_`: such names are the sandbox's")]
    SandboxName {
        /// As written, shortened.
        name: String,
    },
    /// A value that no sandbox is given.
    #[error("the variable `{name}` {why}: a sandbox is not given it")]
    SandboxValue {
        /// As written, shortened.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A value that no process can be given.
    #[error("the variable `{name}` is longer than {VALUE_BYTES} bytes")]
    TooLong {
        /// As written.
        name: String,
    },
}

/// `[agent.env]`.
pub(super) static TABLE: Table = Table {
    path: "agent.env",
    doc: "Variables for the agent's process. Names beginning with `CRUCIBLE_` or `BROKER_` are the engine's. For a \
          sandbox, names beginning with `OPENSHELL_` are its own, and a value has no line break and at most 32 KiB.",
    keys: &[],
    rules: &[],
    example: "[agent.env]\nANTHROPIC_VERTEX_PROJECT_ID = \"my-gcp-project\"\n",
};

/// What the schema says of a name.
pub(super) const NAME_PATTERN: &str = "^(?!CRUCIBLE_|BROKER_)[A-Za-z_][A-Za-z0-9_]*$";

impl EnvError {
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::NotText { .. } => Some("put it in quotes".to_owned()),
            Self::Reserved { .. } | Self::SandboxName { .. } => Some("give it another name".to_owned()),
            Self::TooLong { .. } => Some("put it in a file and name the file".to_owned()),
            Self::SandboxValue { .. } => Some("let agent_cmd set it inside the sandbox".to_owned()),
            Self::Name { .. } | Self::Nul { .. } => None,
        }
    }
}

/// Reads the table.
pub(super) fn decode(entries: &DeTable<'_>, sink: &mut Sink) -> BTreeMap<EnvName, EnvValue> {
    let mut variables = BTreeMap::new();
    for (key, value) in entries {
        let name = EnvName::parse(key.get_ref()).map_err(|error| sink.put(key.span(), error));
        let value = read_value(key.get_ref(), value.get_ref()).map_err(|error| sink.put(value.span(), error));
        if let (Ok(name), Ok(value)) = (name, value) {
            variables.insert(name, value);
        }
    }
    variables
}

/// Refuses what is good for a process and not for a sandbox.
pub(super) fn check_for_sandbox(entries: &DeTable<'_>, sink: &mut Sink) {
    for (key, value) in entries {
        let name = || shorten(key.get_ref());
        if key.get_ref().starts_with("OPENSHELL_") {
            sink.put(key.span(), EnvError::SandboxName { name: name() });
        }
        let text = value.get_ref().as_str().unwrap_or_default();
        let why = match text {
            _ if text.contains(['\n', '\r']) => "holds a line break",
            _ if text.len() > SANDBOX_VALUE_BYTES => "is longer than 32 KiB",
            _ => continue,
        };
        sink.put(value.span(), EnvError::SandboxValue { name: name(), why });
    }
}

fn read_value(name: &str, value: &DeValue<'_>) -> Result<EnvValue, EnvError> {
    let name = || shorten(name);
    let text =
        value.as_str().ok_or_else(|| EnvError::NotText { name: name(), found: section::found(value) })?;
    if text.contains('\0') {
        return Err(EnvError::Nul { name: name() });
    }
    if text.len() > VALUE_BYTES {
        return Err(EnvError::TooLong { name: name() });
    }
    Ok(EnvValue(text.to_owned()))
}

impl EnvName {
    /// Reads a name.
    ///
    /// # Errors
    /// What no shell could read, and names of the engine's own.
    pub fn parse(text: &str) -> Result<Self, EnvError> {
        let name = || shorten(text);
        let good = text.len() <= NAME_BYTES
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !good {
            return Err(EnvError::Name { name: name() });
        }
        match ["CRUCIBLE_", "BROKER_"].into_iter().find(|prefix| text.starts_with(prefix)) {
            Some(prefix) => Err(EnvError::Reserved { name: name(), prefix }),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl EnvValue {
    /// The value itself, for the process that is given it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EnvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EnvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EnvValue({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_a_shell_reads_and_not_the_engines() {
        for good in ["A", "_a1", "PATH", "CRUCIBLE", "BROKERAGE"] {
            assert!(EnvName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "1A", "A-B", "A B", "Ä", "A=B", &"A".repeat(129)] {
            assert!(matches!(EnvName::parse(bad), Err(EnvError::Name { .. })), "{bad}");
        }
        for taken in ["CRUCIBLE_X", "BROKER_TOKEN"] {
            assert!(matches!(EnvName::parse(taken), Err(EnvError::Reserved { .. })), "{taken}");
        }
    }

    #[test]
    fn debug_output_holds_no_value() {
        let value = EnvValue("hunter2".into());
        assert_eq!(format!("{value:?}"), "EnvValue(7 bytes)");
    }
}

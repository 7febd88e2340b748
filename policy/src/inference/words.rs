//! Turns texts into names of models and of the variables that hold keys, which cannot be wrong any more.
//! It refuses to know which document or manifest they stand in.

use std::fmt;

/// The longest name of a model, in characters.
pub(super) const MODEL_MAX: usize = 128;
/// The longest name of a variable, in bytes.
const KEY_MAX: usize = 128;

/// The name of a model: 1 to 128 characters, none of which is blank or a control character.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelName(String);

/// Why a text is no model's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelFault {
    /// Nothing.
    #[error("is empty")]
    Empty,
    /// More than a name.
    #[error("has {0} characters: it has at most {MODEL_MAX}")]
    Long(usize),
    /// A blank, a line break or a control character.
    #[error("holds a blank or a control character")]
    Blank,
}

/// The name of a variable that holds a key: a letter or `_`, then letters, digits and `_`, at most 128.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyName(String);

/// Why a text cannot name a key's variable. The text is not shown: somebody may have put the key there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// No shell could read it.
    #[error("is no variable's name: it has letters, digits and `_`, no digit first, and at most {KEY_MAX}")]
    Name,
    /// The document's own variable.
    #[error("is CRUCIBLE_INFERENCE, which holds the document")]
    Document,
    /// One that programs are found, started or connected by.
    #[error(
        "is one that programs are started by, such as PATH, HOME, LD_PRELOAD or HTTPS_PROXY: a key has one of its own"
    )]
    Needed,
}

/// What shells, loaders and interpreters find their way by.
const NEEDED: [&str; 27] = [
    "BASH_ENV",
    "CDPATH",
    "CODEX_HOME",
    "CLAUDE_CONFIG_DIR",
    "DISPLAY",
    "EDITOR",
    "ENV",
    "GLIBC_TUNABLES",
    "HOME",
    "HOSTNAME",
    "IFS",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NODE_OPTIONS",
    "NODE_PATH",
    "OLDPWD",
    "PATH",
    "PWD",
    "SHELL",
    "SHLVL",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
];
/// How families of such names begin.
const NEEDED_PREFIXES: [&str; 8] = ["BROKER_", "DYLD_", "GIT_", "LC_", "LD_", "PYTHON", "SSL_CERT_", "XDG_"];

fn is_needed(name: &str) -> bool {
    NEEDED.contains(&name)
        || NEEDED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.to_ascii_uppercase().ends_with("_PROXY")
        || name.ends_with("_CA_CERTS")
}

impl ModelName {
    /// Reads a name.
    ///
    /// # Errors
    /// Empty, longer than 128 characters, with blanks or control characters.
    pub fn parse(text: &str) -> Result<Self, ModelFault> {
        if text.is_empty() {
            return Err(ModelFault::Empty);
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(ModelFault::Blank);
        }
        match text.chars().count() {
            chars if chars > MODEL_MAX => Err(ModelFault::Long(chars)),
            _ => Ok(Self(text.to_owned())),
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl KeyName {
    /// Reads a name.
    ///
    /// # Errors
    /// What no shell could read, the variable of the document itself, and those that a process needs for something else:
    /// a key there would be taken away from pack commands, or take the place of what they need.
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        let good = text.len() <= KEY_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        match text {
            super::VARIABLE => Err(KeyFault::Document),
            _ if is_needed(text) => Err(KeyFault::Needed),
            _ if good => Ok(Self(text.to_owned())),
            _ => Err(KeyFault::Name),
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

//! Turns the paths of programs into sets, and a connecting process into whether a set admits it (N12).
//! It refuses to know how the process was found.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::reason::Reason;

/// The longest path of a program.
const PATH_MAX: usize = 4096;

/// An absolute path of a program inside the sandbox, without `.`, `..`, doubled slashes and control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BinaryPath(Box<str>);

/// Why a text is no path of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BinaryPathError {
    /// Not from the root.
    #[error("a binary is an absolute path in the sandbox")]
    Relative,
    /// `.`, `..`, `//`, or a slash at the end.
    #[error("a binary's path has no `.`, `..`, doubled slash or slash at its end")]
    Normal,
    /// A wildcard.
    #[error("a binary's path has no wildcard")]
    Wildcard,
    /// Controls, or too long.
    #[error("a binary's path has at most {PATH_MAX} bytes and no control characters")]
    Text,
}

impl BinaryPath {
    /// Reads a path.
    ///
    /// # Errors
    /// See [`BinaryPathError`].
    pub fn parse(text: &str) -> Result<Self, BinaryPathError> {
        let rest = text.strip_prefix('/').ok_or(BinaryPathError::Relative)?;
        if text.len() > PATH_MAX || text.chars().any(char::is_control) {
            return Err(BinaryPathError::Text);
        }
        if text.contains(['*', '?']) {
            return Err(BinaryPathError::Wildcard);
        }
        if rest.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(BinaryPathError::Normal);
        }
        Ok(Self(text.into()))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BinaryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which programs an entry admits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binaries {
    /// Every one: plumbing only.
    Any,
    /// These, and what they start.
    Of(Arc<HashSet<BinaryPath>>),
}

/// A process by its executable, in the sandbox's own names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The executable's path as the kernel tells it.
    pub path: String,
    /// The listed path that leads to the same file by links, where there is one.
    pub also: Option<String>,
}

/// Who connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The process, then its ancestors inside the sandbox.
    Known(Vec<Process>),
    /// No process holds the connection, or it cannot be looked at.
    Unknown,
    /// Processes with different executables hold it.
    Ambiguous,
    /// The executable is no longer what its path names.
    Deleted(String),
}

impl Process {
    /// A process whose path is the listed one or none.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), also: None }
    }
}

impl Caller {
    /// The executable for the record, where it is known.
    pub fn binary(&self) -> Option<&str> {
        match self {
            Self::Known(chain) => chain.first().map(|process| process.path.as_str()),
            Self::Deleted(path) => Some(path),
            Self::Unknown | Self::Ambiguous => None,
        }
    }
}

impl Binaries {
    /// A set of paths.
    pub fn of(paths: impl IntoIterator<Item = BinaryPath>) -> Self {
        Self::Of(Arc::new(paths.into_iter().collect()))
    }

    /// Whether the caller may use an entry with these.
    ///
    /// # Errors
    /// The reason why not.
    pub fn admit(&self, caller: &Caller) -> Result<(), Reason> {
        let Self::Of(set) = self else { return Ok(()) };
        let listed = |path: &str| set.contains(path);
        match caller {
            Caller::Known(chain) => {
                let admitted = chain
                    .iter()
                    .any(|process| listed(&process.path) || process.also.as_deref().is_some_and(listed));
                if admitted { Ok(()) } else { Err(Reason::BinaryNotListed) }
            }
            Caller::Unknown => Err(Reason::BinaryUnknown),
            Caller::Ambiguous => Err(Reason::BinaryAmbiguous),
            Caller::Deleted(_) => Err(Reason::BinaryDeleted),
        }
    }
}

impl std::borrow::Borrow<str> for BinaryPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_normal() {
        use BinaryPathError as E;
        let cases = [
            ("/usr/bin/curl", Ok(())),
            ("/a b", Ok(())),
            ("usr/bin/curl", Err(E::Relative)),
            ("", Err(E::Relative)),
            ("/", Err(E::Normal)),
            ("/usr//bin", Err(E::Normal)),
            ("/usr/../bin", Err(E::Normal)),
            ("/usr/./bin", Err(E::Normal)),
            ("/usr/bin/", Err(E::Normal)),
            ("/usr/bin/*", Err(E::Wildcard)),
            ("/usr/\0", Err(E::Text)),
        ];
        for (text, expected) in cases {
            assert_eq!(BinaryPath::parse(text).map(drop), expected, "{text}");
        }
    }

    #[test]
    fn row_85_86_a_program_is_admitted_by_itself_its_ancestor_or_its_other_name() {
        let of = Binaries::of([BinaryPath::parse("/usr/bin/git").unwrap()]);
        let known = |paths: &[&str]| Caller::Known(paths.iter().map(|path| Process::new(*path)).collect());
        let linked = Process { path: "/opt/git/git".to_owned(), also: Some("/usr/bin/git".to_owned()) };
        let cases = [
            (known(&["/usr/bin/git"]), Ok(())),
            (known(&["/usr/lib/git-core/git-remote-http", "/usr/bin/git"]), Ok(())),
            (Caller::Known(vec![linked]), Ok(())),
            (known(&["/usr/bin/curl", "/bin/sh"]), Err(Reason::BinaryNotListed)),
            (known(&[]), Err(Reason::BinaryNotListed)),
            (known(&["/usr/bin/git (deleted)"]), Err(Reason::BinaryNotListed)),
            (Caller::Deleted("/usr/bin/git".to_owned()), Err(Reason::BinaryDeleted)),
            (Caller::Unknown, Err(Reason::BinaryUnknown)),
            (Caller::Ambiguous, Err(Reason::BinaryAmbiguous)),
        ];
        for (caller, expected) in cases {
            assert_eq!(of.admit(&caller), expected, "{caller:?}");
            assert_eq!(Binaries::Any.admit(&caller), Ok(()));
        }
        assert_eq!(Binaries::of([]).admit(&known(&["/usr/bin/git"])), Err(Reason::BinaryNotListed));
    }
}

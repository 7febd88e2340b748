//! Turns the text of a path into one that can only lead downwards.
//! It refuses to know what stands at it.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// A relative path of at least one component, all of them names: no `..`, no root, no NUL.
/// `.` and doubled slashes are taken out, so equal paths compare equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(PathBuf);

/// Why a text is no [`RelPath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RelPathError {
    /// Nothing, or nothing but dots.
    #[error("the path is empty")]
    Empty,
    /// It begins with a slash.
    #[error("the path is absolute")]
    Absolute,
    /// It has a `..`.
    #[error("the path has a `..` in it")]
    Parent,
    /// It has a NUL byte.
    #[error("the path has a NUL byte in it")]
    Nul,
}

impl RelPath {
    /// Reads a path.
    ///
    /// # Errors
    /// See [`RelPathError`].
    pub fn parse(path: impl AsRef<Path>) -> Result<RelPath, RelPathError> {
        let path = path.as_ref();
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(RelPathError::Nul);
        }
        let mut names = PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name),
                Component::CurDir => {}
                Component::ParentDir => return Err(RelPathError::Parent),
                Component::RootDir | Component::Prefix(_) => return Err(RelPathError::Absolute),
            }
        }
        if names.as_os_str().is_empty() { Err(RelPathError::Empty) } else { Ok(RelPath(names)) }
    }

    /// As a path, for joining it to a directory that is trusted.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Its names, from the top.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &OsStr> {
        self.0.iter()
    }

    /// Its last name.
    pub fn name(&self) -> &OsStr {
        self.0.file_name().unwrap_or(self.0.as_os_str())
    }

    /// Its first name.
    pub fn first(&self) -> &OsStr {
        self.names().next().unwrap_or(self.0.as_os_str())
    }

    /// The path without its last name, if a name is left.
    pub fn parent(&self) -> Option<RelPath> {
        self.0
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .map(|parent| RelPath(parent.to_owned()))
    }

    /// The path with another below it.
    #[must_use]
    pub fn join(&self, below: &RelPath) -> RelPath {
        RelPath(self.0.join(&below.0))
    }

    /// Whether it is `prefix` or below it, by whole names: `.github` is not below `.git`.
    pub fn starts_with(&self, prefix: &RelPath) -> bool {
        self.0.starts_with(&prefix.0)
    }

    /// One name below `parent`, or at the top without one. The name comes from a directory, so it is one.
    pub(super) fn child(parent: Option<&RelPath>, name: &OsStr) -> RelPath {
        match parent {
            Some(parent) => RelPath(parent.0.join(name)),
            None => RelPath(name.into()),
        }
    }
}

impl AsRef<Path> for RelPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_lead_downwards_are_taken() {
        for (text, expect) in [
            ("a", Ok("a")),
            ("a/b", Ok("a/b")),
            ("./a//b/./c/", Ok("a/b/c")),
            ("..a/b..", Ok("..a/b..")),
            ("a b\n", Ok("a b\n")),
            ("", Err(RelPathError::Empty)),
            ("./.", Err(RelPathError::Empty)),
            ("/", Err(RelPathError::Absolute)),
            ("/a", Err(RelPathError::Absolute)),
            ("..", Err(RelPathError::Parent)),
            ("a/../b", Err(RelPathError::Parent)),
            ("a/..", Err(RelPathError::Parent)),
            ("a\0b", Err(RelPathError::Nul)),
        ] {
            let parsed = RelPath::parse(text).map(|path| path.to_string());
            assert_eq!(parsed, expect.map(str::to_owned), "{text:?}");
        }
    }

    #[test]
    fn prefixes_count_whole_names() {
        let path = |text| RelPath::parse(text).unwrap();
        assert!(path(".git/hooks").starts_with(&path(".git")));
        assert!(!path(".github/x").starts_with(&path(".git")));
        assert_eq!(path("a/b").parent(), Some(path("a")));
        assert_eq!(path("a").parent(), None);
        assert_eq!((path("a/b").name(), path("a/b").first()), (OsStr::new("b"), OsStr::new("a")));
    }
}

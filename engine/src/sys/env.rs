//! Turns this process's environment and working directory into values that are passed on.
//! It refuses to know what any variable means, beyond which names are the engine's own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Prefixes of the names that the engine and its broker use among themselves (N12).
const RESERVED: [&str; 2] = ["BROKER_", "CRUCIBLE_"];

/// The variables a child is given: exactly these, nothing inherited.
///
/// `Debug` shows names only, because values may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The environment of this process. Nothing else in the program reads it.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub fn of_this_process() -> Environment {
        Environment(std::env::vars_os().collect())
    }

    /// An environment with no variable in it.
    pub fn empty() -> Environment {
        Environment::default()
    }

    /// What pack commands may see (N12): no `BROKER_*`, no `CRUCIBLE_*`, and none of `names`, which are
    /// the secrets and keys of this run.
    #[must_use]
    pub fn without_reserved<I>(&self, names: I) -> Environment
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut kept = self.clone();
        kept.0.retain(|name, _| !is_reserved(name));
        for name in names {
            kept.0.remove(name.as_ref());
        }
        kept
    }

    /// The value of `name`, if it is set.
    pub fn value(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.0.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// Sets `name`, replacing what it had. A name with `=` or NUL makes the later start of a child fail.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> &mut Environment {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Takes `name` out, and says what it had.
    pub fn remove(&mut self, name: impl AsRef<OsStr>) -> Option<OsString> {
        self.0.remove(name.as_ref())
    }

    /// All variables, in byte order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// How many variables there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no variable at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Environment").field(&self.0.keys().collect::<Vec<_>>()).finish()
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Environment {
        Environment(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Whether `name` is one of the names that only the engine and its broker use.
pub fn is_reserved(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    RESERVED.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// The directory that relative arguments of the command line are resolved against.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the working directory")]
pub fn current_dir() -> io::Result<PathBuf> {
    std::env::current_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_and_named_variables_are_dropped_and_all_else_stays() {
        let full: Environment = [
            ("BROKER_TOKEN", "t"),
            ("CRUCIBLE_INFERENCE", "{}"),
            ("CRUCIBLE_", ""),
            ("GITHUB_TOKEN", "s"),
            ("crucible_lower", "kept"),
            ("CRUCIBLES", "kept"),
            ("PATH", "/bin"),
        ]
        .into_iter()
        .collect();
        let kept = full.without_reserved(["GITHUB_TOKEN", "NOT_SET"]);
        let names: Vec<_> = kept.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["CRUCIBLES", "PATH", "crucible_lower"]);
    }

    #[test]
    fn values_never_reach_debug_output() {
        let mut secret = Environment::empty();
        secret.set("TOKEN", "hunter2");
        assert_eq!(format!("{secret:?}"), r#"Environment(["TOKEN"])"#);
    }

    #[test]
    fn set_replaces_and_remove_returns_the_old_value() {
        let mut env = Environment::empty();
        env.set("A", "1").set("A", "2");
        assert_eq!(env.value("A"), Some(OsStr::new("2")));
        assert_eq!(env.remove("A"), Some(OsString::from("2")));
        assert!(env.is_empty());
    }
}

//! Turns commit names and domain tokens into the opaque token that the loop keeps, and back (contract §5).
//! It refuses to know what a domain's half means.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::WorldError;

/// The full name of a commit: 40 or 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommitSha(String);

impl TryFrom<String> for CommitSha {
    type Error = &'static str;

    fn try_from(text: String) -> Result<CommitSha, &'static str> {
        CommitSha::parse(&text).ok_or("a full commit name was expected")
    }
}

impl From<CommitSha> for String {
    fn from(sha: CommitSha) -> String {
        sha.0
    }
}

impl CommitSha {
    /// Reads `text` when it is a full commit name, and nothing shorter or longer.
    pub fn parse(text: &str) -> Option<CommitSha> {
        let full = matches!(text.len(), 40 | 64);
        let hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (full && hex).then(|| CommitSha(text.to_owned()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the repository counts in SHA-256 rather than SHA-1.
    pub fn is_sha256(&self) -> bool {
        self.0.len() == 64
    }
}

impl fmt::Display for CommitSha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a snapshot is called: `<git-sha>`, or `<git-sha>\t<domain-token>`. The loop only hands it back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SnapshotToken {
    commit: CommitSha,
    domain: Option<String>,
}

impl SnapshotToken {
    /// The token of a state that git alone can bring back.
    pub fn of_git(commit: CommitSha) -> SnapshotToken {
        SnapshotToken { commit, domain: None }
    }

    /// The token of a state that also has a domain half.
    pub fn composite(commit: CommitSha, domain: String) -> SnapshotToken {
        SnapshotToken { commit, domain: Some(domain) }
    }

    /// Reads back what `Display` wrote, as the session log keeps it.
    ///
    /// # Errors
    /// [`WorldError::BadToken`] when the git half is no full commit name or a domain half is empty.
    pub fn parse(text: &str) -> Result<SnapshotToken, WorldError> {
        let bad = || WorldError::BadToken { token: text.chars().take(200).collect() };
        let (sha, domain) = match text.split_once('\t') {
            Some((sha, domain)) => (sha, Some(domain)),
            None => (text, None),
        };
        if domain.is_some_and(str::is_empty) {
            return Err(bad());
        }
        let commit = CommitSha::parse(sha).ok_or_else(bad)?;
        Ok(SnapshotToken { commit, domain: domain.map(str::to_owned) })
    }

    /// The git half.
    pub fn commit(&self) -> &CommitSha {
        &self.commit
    }

    /// The domain half, verbatim, where there is one.
    pub fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }
}

impl FromStr for SnapshotToken {
    type Err = WorldError;

    fn from_str(text: &str) -> Result<SnapshotToken, WorldError> {
        SnapshotToken::parse(text)
    }
}

impl fmt::Display for SnapshotToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.domain {
            Some(domain) => write!(f, "{}\t{domain}", self.commit),
            None => write!(f, "{}", self.commit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn only_full_lower_case_names_are_commits() {
        let sha256 = "a".repeat(64);
        for (text, expect) in [
            (SHA, true),
            (sha256.as_str(), true),
            ("HEAD", false),
            ("0123456", false),
            ("", false),
            ("-123456789abcdef0123456789abcdef01234567", false),
            ("0123456789ABCDEF0123456789abcdef01234567", false),
            ("0123456789abcdef0123456789abcdef01234567\n", false),
        ] {
            assert_eq!(CommitSha::parse(text).is_some(), expect, "{text:?}");
        }
    }

    #[test]
    fn tokens_read_back_as_they_were_written() {
        for domain in [None, Some("x"), Some(" spaces "), Some("tab\tinside"), Some("\t"), Some("é{}\"")] {
            let commit = CommitSha::parse(SHA).unwrap();
            let token = match domain {
                None => SnapshotToken::of_git(commit),
                Some(domain) => SnapshotToken::composite(commit, domain.to_owned()),
            };
            assert_eq!(SnapshotToken::parse(&token.to_string()).unwrap(), token);
        }
    }

    #[test]
    fn damaged_tokens_are_refused() {
        for text in ["", "\t", "\tx", "HEAD\tx", &format!("{SHA}\t"), &format!(" {SHA}")] {
            assert!(matches!(SnapshotToken::parse(text), Err(WorldError::BadToken { .. })), "{text:?}");
        }
    }
}

//! Turns `[repo]` into the place the upstream comes from (contract §1).
//! It refuses to know whether that place exists and how it is fetched.

use std::fmt;
use std::ops::Range;

use super::At;
use super::error::{Mistake, Sink};
use super::keys::{Key, Kind, Rule, Table};
use super::section::Section;
use super::value::{self, ManifestPath};

/// The upstream that the agent edits a checkout of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repo {
    /// Where it is.
    pub source: RepoSource,
    /// The branch, tag or commit to check out; the upstream's default branch where it is left out.
    pub reference: Option<At<GitRef>>,
}

/// One of the two ways to name an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepoSource {
    /// Something that git clones.
    Url(At<RepoUrl>),
    /// A directory of this machine.
    Path(At<ManifestPath>),
}

/// An address that git can clone, without a password in it: `https`, `http`, `ssh`, `git` or `file`, or `user@host:path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RepoUrl(String);

/// A branch, tag or commit by a name that git itself allows and no program takes for an option.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GitRef(String);

/// What can be wrong with `[repo]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepoError {
    /// Two upstreams.
    #[error("[repo] has both `url` and `path`")]
    Both,
    /// No upstream.
    #[error("[repo] has neither `url` nor `path`")]
    Neither,
    /// Git would take it for an option.
    #[error("[repo].{key} begins with `-`: git would read it as an option")]
    Option {
        /// `url` or `ref`.
        key: &'static str,
    },
    /// Blanks or control characters.
    #[error("[repo].url holds a blank or a control character")]
    UrlBlank,
    /// A local path.
    #[error("[repo].url is a path of this machine")]
    UrlIsPath,
    /// A way of transport that is not used.
    #[error("[repo].url begins with `{scheme}`, which is not a transport that is used here")]
    UrlScheme {
        /// As written, with what follows it up to the path.
        scheme: String,
    },
    /// No host or no path.
    #[error("[repo].url has no {part}")]
    UrlPart {
        /// `host` or `path`.
        part: &'static str,
    },
    /// A password or a token.
    #[error("[repo].url holds a credential")]
    UrlCredential,
    /// Git does not allow such a name.
    #[error("[repo].ref is not a name that git allows: {why}")]
    Ref {
        /// What git's rule is.
        why: &'static str,
    },
}

/// `[repo]`.
pub(super) static TABLE: Table = Table {
    path: "repo",
    doc: "The upstream that the agent edits a checkout of.",
    keys: &[
        Key::optional(
            "url",
            Kind::Text,
            "none",
            "An address that git clones: `https://`, `http://`, `ssh://`, `git://`, `file://` or `user@host:path`, \
             without a password or token in it.",
        ),
        Key::optional(
            "path",
            Kind::Path,
            "none",
            "A directory, relative to the manifest's: the root of a repository is cloned, any other directory is \
             copied and made a repository.",
        ),
        Key::optional(
            "ref",
            Kind::Text,
            "the upstream's default branch",
            "The branch, tag or commit to check out.",
        ),
    ],
    rules: &[Rule::OneOf(&["url", "path"])],
    example: "[repo]\nurl = \"https://github.com/owner/name.git\"\nref = \"main\"\n",
};

impl RepoError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Both => "keep the one that is meant",
            Self::Neither => "write path = \".\" for the manifest's own directory, or url = \"https://…\"",
            Self::Option { .. } | Self::UrlBlank => return None,
            Self::UrlIsPath => "write path = \"…\" instead, or file:// before an absolute path",
            Self::UrlScheme { .. } => "write https://, http://, ssh://, git:// or file://, or user@host:path",
            Self::UrlPart { .. } => "write it as https://host/owner/name.git",
            Self::UrlCredential => {
                "remove it from the manifest and give it to git through a credential helper or an ssh key"
            }
            Self::Ref { .. } => "write a branch, a tag or a commit, such as \"main\"",
        };
        Some(hint.to_owned())
    }
}

/// Reads the table.
pub(super) fn decode(section: &Section<'_>, at: &Range<usize>, sink: &mut Sink) -> Option<Repo> {
    let url = section.parse("url", sink, RepoUrl::parse).map(RepoSource::Url);
    let path = section.value("path", sink, ManifestPath::parse).map(RepoSource::Path);
    let reference = section.parse("ref", sink, GitRef::parse);
    match (section.place("url"), section.place("path")) {
        (Some(url), Some(path)) => {
            let (first, second) = if url.start < path.start { (url, path) } else { (path, url) };
            sink.put_related(second, RepoError::Both, (first, "the other one"));
        }
        (None, None) if !section.misspells("url") && !section.misspells("path") => {
            sink.put(at.clone(), RepoError::Neither);
        }
        _ => {}
    }
    if section.place("ref").is_some() && reference.is_none() {
        return None;
    }
    Some(Repo { source: url.or(path)?, reference })
}

impl RepoUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// What git would misread, what is no address, and what holds a credential.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        check_url(text)?;
        Ok(Self(text.to_owned()))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl GitRef {
    /// Reads a name by the rules of `git check-ref-format --allow-onelevel`.
    ///
    /// # Errors
    /// The rule that the name breaks.
    pub fn parse(text: &str) -> Result<Self, RepoError> {
        if text.starts_with('-') {
            return Err(RepoError::Option { key: "ref" });
        }
        match broken_rule(text) {
            Some(why) => Err(RepoError::Ref { why }),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RepoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for GitRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_url(text: &str) -> Result<(), RepoError> {
    if text.starts_with('-') {
        return Err(RepoError::Option { key: "url" });
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(RepoError::UrlBlank);
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        return check_scheme(scheme, rest);
    }
    let head = text.split('/').next().unwrap_or_default();
    if text.contains("::") && !head.starts_with('[') {
        let scheme = text.split("::").next().unwrap_or_default();
        return Err(RepoError::UrlScheme { scheme: format!("{}::", value::shorten(scheme)) });
    }
    match head.split_once(':') {
        Some((host, _)) => check_scp(host, text),
        None => Err(RepoError::UrlIsPath),
    }
}

fn check_scheme(scheme: &str, rest: &str) -> Result<(), RepoError> {
    let known = ["https", "http", "ssh", "git", "file"];
    if !known.contains(&scheme) {
        return Err(RepoError::UrlScheme { scheme: format!("{}://", value::shorten(scheme)) });
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    // On http a user name alone is where tokens are put; on ssh it is only a name.
    if user.is_some_and(|user| scheme != "ssh" || user.contains(':')) {
        return Err(RepoError::UrlCredential);
    }
    if user.is_some_and(|user| user.starts_with('-')) || host.starts_with('-') {
        return Err(RepoError::Option { key: "url" });
    }
    if scheme != "file" && host.is_empty() {
        return Err(RepoError::UrlPart { part: "host" });
    }
    if path.is_empty() {
        return Err(RepoError::UrlPart { part: "path" });
    }
    Ok(())
}

fn check_scp(before: &str, text: &str) -> Result<(), RepoError> {
    let host = before.rsplit('@').next().unwrap_or_default();
    if before.is_empty() || host.is_empty() {
        return Err(RepoError::UrlPart { part: "host" });
    }
    if host.starts_with('-') {
        return Err(RepoError::Option { key: "url" });
    }
    if text.split_once(':').is_none_or(|(_, path)| path.is_empty()) {
        return Err(RepoError::UrlPart { part: "path" });
    }
    if text.split_once(':').is_some_and(|(_, rest)| rest.split('/').next().is_some_and(|r| r.contains('@'))) {
        return Err(RepoError::UrlCredential);
    }
    Ok(())
}

fn broken_rule(name: &str) -> Option<&'static str> {
    if name.chars().any(|c| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\')) {
        return Some("it holds a blank, a control character or one of ~ ^ : ? * [ \\");
    }
    if name.contains("..") || name.contains("@{") {
        return Some("it holds `..` or `@{`");
    }
    if name == "@" || name.ends_with('.') {
        return Some("it is `@` or ends in a dot");
    }
    if name.split('/').any(|part| part.is_empty() || part.starts_with('.') || part.ends_with(".lock")) {
        return Some("a part between slashes is empty, begins with a dot or ends in `.lock`");
    }
    (name.len() > 1024).then_some("it is longer than 1024 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_git_clones_and_no_others() {
        let scheme = |scheme: &str| Err(RepoError::UrlScheme { scheme: scheme.into() });
        let cases = [
            ("https://github.com/owner/name.git", Ok(())),
            ("http://localhost:8080/x", Ok(())),
            ("ssh://git@host:22/x.git", Ok(())),
            ("git@github.com:owner/name.git", Ok(())),
            ("host:name", Ok(())),
            ("file:///srv/x", Ok(())),
            ("https://[::1]/x", Ok(())),
            ("--upload-pack=x", Err(RepoError::Option { key: "url" })),
            ("ssh://-oProxyCommand=x/y", Err(RepoError::Option { key: "url" })),
            ("ssh://-l@h/y", Err(RepoError::Option { key: "url" })),
            ("-x@-host:y", Err(RepoError::Option { key: "url" })),
            ("git@-oProxyCommand=x:y", Err(RepoError::Option { key: "url" })),
            ("https://a b/c", Err(RepoError::UrlBlank)),
            ("https://a/\u{1b}c", Err(RepoError::UrlBlank)),
            ("../up", Err(RepoError::UrlIsPath)),
            ("/srv/x", Err(RepoError::UrlIsPath)),
            ("./a:b", Err(RepoError::UrlIsPath)),
            ("ext::sh -c x", Err(RepoError::UrlBlank)),
            ("ext::x", scheme("ext::")),
            ("ftp://h/x", scheme("ftp://")),
            ("HTTPS://h/x", scheme("HTTPS://")),
            ("https:///x", Err(RepoError::UrlPart { part: "host" })),
            ("https://h", Err(RepoError::UrlPart { part: "path" })),
            ("host:", Err(RepoError::UrlPart { part: "path" })),
            (":x", Err(RepoError::UrlPart { part: "host" })),
            ("https://me:secret@h/x", Err(RepoError::UrlCredential)),
            ("https://ghp_token@h/x", Err(RepoError::UrlCredential)),
            ("ssh://git:secret@h/x", Err(RepoError::UrlCredential)),
            ("me:secret@h:x", Err(RepoError::UrlCredential)),
        ];
        for (url, expected) in cases {
            assert_eq!(check_url(url), expected, "{url}");
        }
    }

    #[test]
    fn refs_follow_gits_rules() {
        for good in ["main", "v1.0", "feature/a-b", "0123abcd", "refs/heads/x", "ü"] {
            assert!(GitRef::parse(good).is_ok(), "{good}");
        }
        let bad = [
            "a b", "a..b", "a~1", "a^", "a:b", "@", "a@{1}", "/a", "a/", "a//b", ".a", "a.lock", "a.",
            "a\u{7}",
        ];
        for bad in bad {
            assert!(matches!(GitRef::parse(bad), Err(RepoError::Ref { .. })), "{bad:?}");
        }
        assert_eq!(GitRef::parse("-x"), Err(RepoError::Option { key: "ref" }));
    }
}

//! Turns nothing into the fixed files of the engine's own repository and of those that it makes for others.
//! It refuses to know commits: these are the parts that are the same in every run.

use std::fs;
use std::path::Path;

use super::{WorldError, claim, tidy};
use crate::sys::fs::create_private_dir;

/// Makes a repository in `dir`, empty, closed to other users, and on the branch `head`. `durable` says whether its files are
/// on disk when the call returns.
pub(super) fn lay_out(
    dir: &Path,
    head: &str,
    (config, exclude): (&str, &[u8]),
    durable: bool,
) -> Result<(), WorldError> {
    create_private_dir(dir).map_err(tidy::failed)?;
    for sub in ["objects/pack", "objects/info", "refs/heads", "refs/tags", "info"] {
        let path = dir.join(sub);
        fs::create_dir_all(&path).map_err(WorldError::io("make", &path))?;
    }
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        if durable { claim::write_private(&path, bytes) } else { claim::write_passing(&path, bytes) }
    };
    write("HEAD", format!("ref: {head}\n").as_bytes())?;
    write("config", config.as_bytes())?;
    write("info/attributes", ATTRIBUTES.as_bytes())?;
    write("info/exclude", exclude)
}

/// The configuration of the engine's own repository, `state/git`: all that git ever reads besides its defaults.
///
/// Objects are counted in SHA-256 when `sha256` says so, as the source does.
pub(super) fn private_config(sha256: bool) -> String {
    format!(
        "{}\
         \tfileMode = true\n\tsymlinks = true\n\tignoreCase = false\n\tprecomposeUnicode = false\n\
         \tlogAllRefUpdates = false\n\thooksPath = /dev/null\n\tfsmonitor = false\n\tuntrackedCache = false\n\
         \tsplitIndex = false\n\tsparseCheckout = false\n\tautocrlf = false\n\tsafecrlf = false\n\teol = lf\n\
         \texcludesFile = /dev/null\n\tattributesFile = /dev/null\n\tprotectHFS = true\n\tprotectNTFS = true\n\
         \tbigFileThreshold = 32m\n\tcompression = 1\n\tsharedRepository = 0600\n\
         [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[commit]\n\tgpgSign = false\n[tag]\n\tgpgSign = false\n\
         [fetch]\n\trecurseSubmodules = false\n[submodule]\n\trecurse = false\n\
         [diff]\n\tignoreSubmodules = all\n\tsubmodule = short\n[advice]\n\taddEmbeddedRepo = false\n",
        core(sha256)
    )
}

/// The configuration of a repository that the engine makes for a person or an agent.
pub(super) fn projected_config(sha256: bool, origin: Option<&str>) -> String {
    let origin = origin.map_or_else(String::new, |url| {
        let url = quoted(url);
        format!("[remote \"origin\"]\n\turl = {url}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n")
    });
    // A collector that an agent's own commit starts in the background would run into the judge's time.
    let quiet =
        "\tfileMode = true\n\tlogAllRefUpdates = true\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n";
    format!("{}{quiet}{origin}", core(sha256))
}

fn core(sha256: bool) -> String {
    let (version, extensions) = if sha256 { (1, "[extensions]\n\tobjectFormat = sha256\n") } else { (0, "") };
    format!("{extensions}[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n")
}

/// A value as git's configuration syntax writes it.
fn quoted(value: &str) -> String {
    let mut quoted = String::from("\"");
    for char in value.chars().filter(|char| !char.is_control()) {
        if matches!(char, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(char);
    }
    quoted.push('"');
    quoted
}

/// `info/attributes` of every repository that the engine makes. It beats every `.gitattributes` of the tree, so that what is
/// staged and what is written back are the same bytes, and no attribute hides a change from the diff.
pub(super) const ATTRIBUTES: &str =
    "* -text -crlf -ident -filter -working-tree-encoding !eol !diff !merge !export-ignore !export-subst\n";

/// `url` without a user name or password, for a file that an agent reads.
pub(super) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_taken_out_of_urls() {
        for (url, expect) in [
            ("https://u:p@example.com/a@b.git", "https://example.com/a@b.git"),
            ("https://token@example.com", "https://example.com"),
            ("https://a@b@example.com/x", "https://example.com/x"),
            ("https://example.com/x", "https://example.com/x"),
            ("git@example.com:a/b", "git@example.com:a/b"),
            ("/srv/a@b", "/srv/a@b"),
        ] {
            assert_eq!(without_credentials(url), expect);
        }
    }

    #[test]
    fn a_url_cannot_open_a_new_section() {
        let config = projected_config(false, Some("x\"\n[core]\n\thooksPath = /tmp\\"));
        assert!(config.contains(r#"url = "x\"[core]hooksPath = /tmp\\""#), "{config}");
        assert_eq!(config.matches("\n[core]").count() + usize::from(config.starts_with("[core]")), 1);
    }
}

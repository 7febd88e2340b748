//! Turns what makes two runs' scores comparable into one value (contract §7, RunIdentity).
//! It refuses to know where its parts were read.

use std::fmt;

use sha2::{Digest, Sha256};

use super::InjectFile;
use crate::score::Direction;

/// Two runs' scores are comparable only if this is equal: `v1:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunIdentity(String);

/// What a run is made of, as far as its score goes.
#[derive(Clone, Debug)]
pub struct IdentityParts<'p> {
    /// The repositories: one without a name unless the run is a composite.
    pub components: Vec<Component<'p>>,
    /// The frozen manifest's text.
    pub manifest: &'p str,
    /// All injects, in any order.
    pub injects: Vec<InjectIdentity<'p>>,
    /// `[judge].measure_cmd`.
    pub measure_cmd: &'p str,
    /// `[judge].direction`.
    pub direction: Direction,
}

/// One repository of a run.
#[derive(Clone, Copy, Debug)]
pub struct Component<'p> {
    /// Empty in a run of one repository.
    pub name: &'p str,
    /// `[repo].url` or `[repo].path`, as written.
    pub repo: &'p str,
    /// The workspace's pristine base commit, in hexadecimal.
    pub base: &'p str,
}

/// One inject, as far as its effect goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InjectIdentity<'p> {
    /// Relative to the workspace.
    pub dst: &'p str,
    /// Of the content.
    pub sha256: [u8; 32],
}

impl<'p> From<&'p InjectFile> for InjectIdentity<'p> {
    fn from(file: &'p InjectFile) -> Self {
        Self { dst: file.dst.as_str(), sha256: file.sha256 }
    }
}

impl RunIdentity {
    /// Hashes the parts' hashes. Every field is written with its length, so that no two runs share a text to hash.
    pub fn of(parts: &IdentityParts<'_>) -> Self {
        let mut components: Vec<_> = parts.components.iter().map(|c| [c.name, c.repo, c.base]).collect();
        components.sort_unstable();
        let mut injects = parts.injects.clone();
        injects.sort_unstable();
        let repos = digest(components.iter().flatten().map(|field| field.as_bytes()));
        let injects = digest(injects.iter().flat_map(|inject| [inject.dst.as_bytes(), &inject.sha256]));
        let direction = parts.direction.to_string();
        let rest = [parts.manifest, parts.measure_cmd, &direction].map(|field| digest([field.as_bytes()]));
        let whole = digest([&repos, &injects].into_iter().chain(&rest).map(<[u8; 32]>::as_slice));
        Self(format!("v1:{}", hex(&whole)))
    }

    /// The value as it stands in the log.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn digest<'f>(fields: impl IntoIterator<Item = &'f [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for field in fields {
        let length = u64::try_from(field.len()).unwrap_or(u64::MAX);
        hash.update(length.to_be_bytes());
        hash.update(field);
    }
    hash.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> IdentityParts<'static> {
        IdentityParts {
            components: vec![Component { name: "", repo: "https://h/x", base: "abc" }],
            manifest: "text",
            injects: vec![
                InjectIdentity { dst: "a", sha256: [1; 32] },
                InjectIdentity { dst: "b", sha256: [2; 32] },
            ],
            measure_cmd: "./measure.sh",
            direction: Direction::Lower,
        }
    }

    #[test]
    fn an_identity_is_v1_and_64_digits_and_stays_what_it_was() {
        let identity = RunIdentity::of(&parts());
        insta::assert_snapshot!(identity, @r#"
        v1:e101cbde9804abb2f13667dfb8b4f74953d3e7e5fc9f797e73eb847c4a2694fe
        "#);
        assert_eq!(identity.as_str().len(), 3 + 64);
    }

    #[test]
    fn every_part_changes_it() {
        let changes: [fn(&mut IdentityParts<'static>); 11] = [
            |parts| parts.components[0].name = "x",
            |parts| parts.components[0].repo = "https://h/y",
            |parts| parts.components[0].base = "abd",
            |parts| parts.components.push(parts.components[0]),
            |parts| parts.manifest = "texu",
            |parts| parts.injects[0].dst = "c",
            |parts| parts.injects[0].sha256 = [3; 32],
            |parts| parts.injects.truncate(1),
            |parts| parts.measure_cmd = "./measure.sh ",
            |parts| parts.direction = Direction::Higher,
            // The boundary between two fields moves.
            |parts| (parts.components[0].repo, parts.components[0].base) = ("https://h/xa", "bc"),
        ];
        let mut seen = std::collections::HashSet::from([RunIdentity::of(&parts())]);
        for (number, change) in changes.into_iter().enumerate() {
            let mut changed = parts();
            change(&mut changed);
            assert!(seen.insert(RunIdentity::of(&changed)), "change {number}");
        }
    }

    #[test]
    fn the_order_of_injects_does_not_matter() {
        let mut turned = parts();
        turned.injects.reverse();
        assert_eq!(RunIdentity::of(&turned), RunIdentity::of(&parts()));
    }
}

//! Turns a URL that somebody wonders about into the verdict, the entry that decided, and the smallest line that would change it.
//! It refuses to resolve names: what an address would add is said, not looked up.

use std::fmt;

use super::binary::{Binaries, BinaryPath, Caller, Process};
use super::decide::{Ask, Way};
use super::defaults;
use super::resolve::{Declared, Egress};
use crate::access::Access;
use crate::endpoint::never;
use crate::host::{Host, HostError, Port, Target};
use crate::reason::Reason;

/// What is wondered about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wonder {
    /// Where to.
    pub target: Target,
    /// Whether it is plain HTTP, so that single requests are judged.
    pub plain: bool,
    /// The method; GET where none is given.
    pub method: String,
    /// The program; where none is given, one that is listed.
    pub binary: Option<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Where to.
    pub target: Target,
    /// Why not; none is a yes.
    pub reason: Option<Reason>,
    /// What an entry that only audits lets pass.
    pub audited: Option<Reason>,
    /// The entry that decided, and where it comes from.
    pub entry: Option<(String, String)>,
    /// What would turn a no into a yes in `[agent.openshell]`: one line, or two where no program may use what the first adds.
    pub change: Option<String>,
    /// What else decides, once the name is resolved.
    pub note: Option<&'static str>,
}

impl Wonder {
    /// Reads `http[s]://host[:port][/…]` or `host:port`, which is taken for TLS.
    ///
    /// # Errors
    /// A host or port that is none.
    pub fn parse(url: &str, method: Option<&str>, binary: Option<&str>) -> Result<Self, HostError> {
        let method = method.unwrap_or("GET").to_owned();
        let binary = binary.map(str::to_owned);
        let Some((scheme, rest)) = url.split_once("://") else {
            return Ok(Self { target: Target::parse(url)?, plain: false, method, binary });
        };
        let plain = matches!(scheme.to_ascii_lowercase().as_str(), "http" | "ws");
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let target = Target::parse_or(authority, if plain { Port::HTTP } else { Port::HTTPS })?;
        Ok(Self { target, plain, method, binary })
    }
}

impl Egress {
    /// What would be decided, and what would change it in the manifest whose lists are `declared`.
    pub fn explain(&self, wonder: &Wonder, declared: &Declared) -> Explanation {
        let caller = match &wonder.binary {
            Some(path) => Caller::Known(vec![Process::new(path.as_str())]),
            None => Caller::Known(self.listed().map(Process::new).collect()),
        };
        let (way, method) =
            if wonder.plain { (Way::Forward, Some(wonder.method.as_str())) } else { (Way::Connect, None) };
        let answer = self.decide(&Ask { way, target: &wonder.target, caller: &caller, method });
        let (reason, audited, entry) = match &answer {
            Ok(grant) => (None, grant.audited, Some(grant.entry)),
            Err(denial) => (Some(denial.reason), None, denial.entry),
        };
        let note = answer.as_ref().ok().filter(|_| wonder.target.host.name().is_some()).map(|grant| {
            if grant.entry.named {
                "private addresses are dialled, because the manifest names this host; loopback and link-local are not"
            } else {
                "only public addresses are dialled, because the manifest does not name this very host"
            }
        });
        Explanation {
            target: wonder.target.clone(),
            reason,
            audited,
            entry: entry.map(|entry| (entry.endpoint.to_string(), entry.source.to_string())),
            change: reason.and_then(|reason| change(reason, wonder, declared)),
            note,
        }
    }

    fn listed(&self) -> impl Iterator<Item = String> {
        let sets = self.entries().iter().filter_map(|entry| match &entry.binaries {
            Binaries::Of(set) => Some(set),
            Binaries::Any => None,
        });
        sets.flat_map(|set| set.iter().map(ToString::to_string))
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
    }
}

/// The smallest change; none where no line can.
fn change(reason: Reason, wonder: &Wonder, declared: &Declared) -> Option<String> {
    let target = &wonder.target;
    if matches!(target.host, Host::Ip(address) if never(address)) {
        return None;
    }
    let access = match Access::ReadOnly {
        _ if !wonder.plain => Access::Full,
        access if access.covers(&wonder.method) => access,
        _ if Access::ReadWrite.covers(&wonder.method) => Access::ReadWrite,
        _ => Access::Full,
    };
    let program = || {
        let path = wonder.binary.as_deref().unwrap_or("/path/of/the/program");
        format!("binaries = [{}]", serde_json::Value::from(path))
    };
    match reason {
        Reason::HostNotListed
        | Reason::PortNotListed
        | Reason::NeedsTermination
        | Reason::MethodNotCovered => {
            let line = format!("endpoints = [\"{target}:{access}\"]");
            Some(if admits(declared, wonder) { line } else { format!("{line} and {}", program()) })
        }
        Reason::BinaryNotListed => Some(program()),
        _ => None,
    }
}

/// Whether the program, or any where none is named, may use an entry of the manifest's.
fn admits(declared: &Declared, wonder: &Wonder) -> bool {
    let inherited = defaults::BINARIES.iter().copied().filter(|_| declared.inherit_defaults);
    let mut paths = inherited.chain(declared.binaries.iter().map(BinaryPath::as_str));
    match &wonder.binary {
        Some(program) => paths.any(|path| path == program),
        None => paths.next().is_some(),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            None => writeln!(f, "{}: allowed", self.target)?,
            Some(reason) => writeln!(f, "{}: denied, {reason}: {}", self.target, reason.public())?,
        }
        if let Some((entry, source)) = &self.entry {
            writeln!(f, "  decided by \"{entry}\" ({source})")?;
        }
        if let Some(reason) = self.audited {
            writeln!(f, "  let pass and recorded, {reason}: {}", reason.public())?;
        }
        if let Some(note) = self.note {
            writeln!(f, "  {note}")?;
        }
        match &self.change {
            Some(line) => writeln!(f, "  to allow it, in [agent.openshell]: {line}"),
            None if self.reason.is_some() => writeln!(f, "  no line of a manifest allows it"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;

    fn told(endpoints: &[&str], binaries: &[&str], wonder: &Wonder) -> Explanation {
        let endpoints = endpoints.iter().map(|text| Endpoint::parse(text).unwrap()).collect();
        let binaries = binaries.iter().map(|path| BinaryPath::parse(path).unwrap()).collect();
        let declared = Declared { endpoints, binaries, inherit_defaults: false };
        Egress::resolve(&declared, &[]).explain(wonder, &declared)
    }

    #[test]
    fn the_smallest_line_is_named_and_does_change_the_verdict() {
        let endpoints = ["a.example:443:full", "r.example:443:read-only", "r.example:80:read-only"];
        let curl = ["/usr/bin/curl"];
        let cases = [
            ("https://a.example/x", "GET", None, None),
            (
                "https://b.example",
                "GET",
                Some(Reason::HostNotListed),
                Some("endpoints = [\"b.example:443:full\"]"),
            ),
            (
                "http://b.example",
                "GET",
                Some(Reason::HostNotListed),
                Some("endpoints = [\"b.example:80:read-only\"]"),
            ),
            (
                "http://b.example",
                "PUT",
                Some(Reason::HostNotListed),
                Some("endpoints = [\"b.example:80:read-write\"]"),
            ),
            (
                "http://b.example",
                "DELETE",
                Some(Reason::HostNotListed),
                Some("endpoints = [\"b.example:80:full\"]"),
            ),
            ("a.example:22", "GET", Some(Reason::PortNotListed), Some("endpoints = [\"a.example:22:full\"]")),
            (
                "https://r.example",
                "GET",
                Some(Reason::NeedsTermination),
                Some("endpoints = [\"r.example:443:full\"]"),
            ),
            (
                "http://r.example",
                "POST",
                Some(Reason::MethodNotCovered),
                Some("endpoints = [\"r.example:80:read-write\"]"),
            ),
            ("http://169.254.169.254", "GET", Some(Reason::HostNotListed), None),
        ];
        for (url, method, reason, line) in cases {
            let wonder = Wonder::parse(url, Some(method), None).unwrap();
            let now = told(&endpoints, &curl, &wonder);
            assert_eq!((now.reason, now.change.as_deref()), (reason, line), "{url}");
            if let Some(line) = line {
                let added = line.trim_start_matches("endpoints = [\"").trim_end_matches("\"]");
                let more: Vec<&str> = endpoints.iter().copied().chain([added]).collect();
                assert_eq!(told(&more, &curl, &wonder).reason, None, "{line} allows {method} {url}");
            }
        }
    }

    #[test]
    fn a_program_that_is_not_listed_is_told_so() {
        let wget = Wonder::parse("https://a.example", None, Some("/usr/bin/wget")).unwrap();
        let told = told(&["a.example:443:full"], &["/usr/bin/curl"], &wget);
        assert_eq!(told.change.as_deref(), Some("binaries = [\"/usr/bin/wget\"]"));
        let text = told.to_string();
        assert!(text.contains("denied, binary-not-listed") && text.contains("(manifest)"), "{text}");
        assert!(Wonder::parse("https://user@a.example", None, None).is_err());
        assert!(Wonder::parse("a.example", None, None).is_err());
    }

    #[test]
    fn an_endpoint_that_no_program_may_use_is_no_remedy_alone() {
        let line = "endpoints = [\"a.example:443:full\"]";
        for (binaries, binary, more) in [
            (&[][..], None, Some("/path/of/the/program")),
            (&["/usr/bin/curl"], None, None),
            (&["/usr/bin/curl"], Some("/usr/bin/curl"), None),
            (&["/usr/bin/curl"], Some("/usr/bin/wget"), Some("/usr/bin/wget")),
        ] {
            let wonder = Wonder::parse("https://a.example", None, binary).unwrap();
            let change = told(&[], binaries, &wonder).change;
            let both = more.map(|path| format!("{line} and binaries = [\"{path}\"]"));
            assert_eq!(change, Some(both.unwrap_or_else(|| line.to_owned())), "{binaries:?} {binary:?}");
            let all: Vec<&str> = binaries.iter().copied().chain(more).collect();
            assert_eq!(told(&["a.example:443:full"], &all, &wonder).reason, None, "{binaries:?} {binary:?}");
        }
    }
}

//! Turns a resolved list into lines for a person, and into warnings about what will not do what its author meant.
//! It refuses to know how they are shown.

use super::binary::Binaries;
use super::decide::address;
use super::resolve::{Declared, Egress, Entry, Source};
use crate::access::Protocol;
use crate::endpoint::{Endpoint, Pattern};
use crate::host::{Host, Port};

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LintKind {
    /// An entry that another one always answers for.
    Shadowed,
    /// An entry that nothing can come through.
    CannotWork,
    /// A forge is reachable while the goal names an issue or a pull request of one.
    ForgeReachable,
    /// A container runtime's socket in the sandbox's view: whoever talks to it is root on the host.
    ContainerSocket,
    /// A program that runs what it is told: listing it is no boundary (row 87).
    Interpreter,
}

/// One warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lint {
    /// What it is about.
    pub kind: LintKind,
    /// The entry, program or path as written.
    pub subject: String,
    /// What to know about it, in lower case without a full stop.
    pub message: String,
}

/// Programs that run whatever they are given.
const INTERPRETERS: [&str; 17] = [
    "sh", "bash", "dash", "zsh", "fish", "ksh", "busybox", "env", "python", "node", "deno", "bun", "perl",
    "ruby", "php", "lua", "awk",
];
/// Names of sockets that give the host away.
const SOCKETS: [&str; 6] =
    ["docker.sock", "containerd.sock", "crio.sock", "podman.sock", "buildkitd.sock", "cri-dockerd.sock"];
/// Directories that hold them.
const SOCKET_DIRS: [&str; 8] =
    ["/run", "/var/run", "/", "/var", "/run/docker", "/run/containerd", "/run/podman", "/run/crio"];

/// The list as lines, one entry each: endpoint, source, and what to know.
pub fn rendered(egress: &Egress) -> Vec<String> {
    let wide = egress.entries().iter().map(|entry| entry.endpoint.to_string().len()).max().unwrap_or(0);
    let line = |entry: &Entry| {
        let text = entry.endpoint.to_string();
        let note = cannot_work(entry).map(|why| format!("  unreachable: {why}")).unwrap_or_default();
        format!("{text:wide$}  {}{note}", entry.source)
    };
    egress.entries().iter().map(line).collect()
}

/// Every warning about a manifest's reach. `goal` is the goal's text and `host_paths` what `read_only_paths` joins.
pub fn lints(egress: &Egress, declared: &Declared, goal: Option<&str>, host_paths: &[String]) -> Vec<Lint> {
    let mut found = Vec::new();
    let own = egress.entries().iter().filter(|entry| entry.source == Source::Manifest);
    for entry in own {
        let subject = || entry.endpoint.to_string();
        if let Some(why) = cannot_work(entry) {
            found.push(Lint { kind: LintKind::CannotWork, subject: subject(), message: why.to_owned() });
        }
        if let Some(other) = shadow(egress, entry) {
            let message = format!("\"{}\" already allows all of it", other.endpoint);
            found.push(Lint { kind: LintKind::Shadowed, subject: subject(), message });
        }
    }
    found.extend(repeats(declared));
    found.extend(goal.and_then(|goal| forge(egress, goal)));
    found.extend(declared.binaries.iter().filter_map(|path| interpreter(path.as_str())));
    found.extend(host_paths.iter().filter_map(|path| socket(path)));
    found
}

/// Why nothing can come through an entry.
pub(super) fn cannot_work(entry: &Entry) -> Option<&'static str> {
    if matches!(&entry.binaries, Binaries::Of(set) if set.is_empty()) {
        return Some("no binary may use it: `binaries` is empty");
    }
    let endpoint = &entry.endpoint;
    match &endpoint.pattern {
        Pattern::Exact(Host::Ip(ip)) if address(entry, *ip).is_err() => {
            return Some("its address is never dialled");
        }
        Pattern::Exact(Host::Name(name))
            if name.as_str().starts_with("metadata.") && name.as_str().ends_with("internal") =>
        {
            return Some("it leads to a cloud's metadata service, which is never dialled");
        }
        _ => {}
    }
    match endpoint.protocol {
        Some(Protocol::Websocket) => {
            Some("websocket needs TLS to be ended by the broker, which this build does not do")
        }
        Some(Protocol::Rest) if endpoint.port == Port::HTTPS => Some(
            "rest on port 443 needs TLS to be ended by the broker, which this build does not do; full reaches it",
        ),
        _ => None,
    }
}

/// Another entry that grants all that this one does to the same programs, and as specifically.
fn shadow<'a>(egress: &'a Egress, entry: &Entry) -> Option<&'a Entry> {
    let other = |other: &&Entry| {
        let (a, b) = (&other.endpoint, &entry.endpoint);
        !std::ptr::eq(*other, entry)
            && other.binaries == entry.binaries
            && a != b
            && a.port == b.port
            && ((a.pattern == b.pattern && wider(a, b))
                || (same_grant(a, b) && a.pattern != b.pattern && a.pattern.covers(&b.pattern)))
    };
    egress.entries().iter().find(other).filter(|other| other.named == entry.named || !entry.named)
}

/// Whether `a` allows at least what `b` does, and more.
fn wider(a: &Endpoint, b: &Endpoint) -> bool {
    let grants_all = a.protocol.is_none() || a.protocol == Some(Protocol::Tcp);
    (grants_all && a.protocol != b.protocol && b.protocol != Some(Protocol::Tcp))
        || (a.protocol == b.protocol && a.enforcement == b.enforcement && a.access > b.access)
}

fn same_grant(a: &Endpoint, b: &Endpoint) -> bool {
    (a.access, a.protocol, a.enforcement) == (b.access, b.protocol, b.enforcement)
}

/// What stands in one list more than once; it counts once.
fn repeats(declared: &Declared) -> Vec<Lint> {
    let endpoints = again(&declared.endpoints).chain(again(&declared.binaries));
    let lint = |subject| Lint { kind: LintKind::Shadowed, subject, message: "it is listed twice".to_owned() };
    endpoints.map(lint).collect()
}

fn again<T: Eq + std::hash::Hash + ToString>(list: &[T]) -> impl Iterator<Item = String> {
    let mut seen = std::collections::HashSet::new();
    list.iter().filter(move |item| !seen.insert(*item)).map(ToString::to_string)
}

/// A forge that stays reachable while the goal names an issue there: the fix may be read from it.
fn forge(egress: &Egress, goal: &str) -> Option<Lint> {
    let issue = upstream_issue(goal)?;
    let forge = egress.entries().iter().find(|entry| {
        let host = entry.endpoint.pattern.to_string();
        entry.source == Source::Builtin("forge".to_owned())
            || ["github.", "gitlab.", "codeberg."].iter().any(|name| host.contains(name))
    })?;
    let message = format!(
        "the goal names {issue}, and the fix can be read from this forge; write inherit_defaults = false and list what is needed"
    );
    Some(Lint { kind: LintKind::ForgeReachable, subject: forge.endpoint.to_string(), message })
}

/// `owner/repo#12`, or an URL with `/issues/`, `/pull/` or `/merge_requests/` and a number.
fn upstream_issue(goal: &str) -> Option<&str> {
    let words =
        goal.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '<' | '>' | '"' | ',' | '`'));
    let number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    words.map(|word| word.trim_end_matches(['.', ';', ':'])).find(|word| {
        let path = ["/issues/", "/pull/", "/merge_requests/"];
        path.iter().any(|part| word.split_once(part).is_some_and(|(_, rest)| number(rest)))
            || word.split_once('#').is_some_and(|(repo, rest)| {
                number(rest) && repo.split('/').count() == 2 && repo.split('/').all(|part| !part.is_empty())
            })
    })
}

fn interpreter(path: &str) -> Option<Lint> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    INTERPRETERS.contains(&bare).then(|| Lint {
        kind: LintKind::Interpreter,
        subject: path.to_owned(),
        message: "it runs whatever it is given, so listing it is not a boundary between programs".to_owned(),
    })
}

fn socket(path: &str) -> Option<Lint> {
    let plain = path.trim_end_matches('/');
    let name = plain.rsplit('/').next().unwrap_or_default();
    let holds = SOCKETS.contains(&name) || SOCKET_DIRS.contains(&if plain.is_empty() { "/" } else { plain });
    holds.then(|| Lint {
        kind: LintKind::ContainerSocket,
        subject: path.to_owned(),
        message: "it shows a container runtime's socket, and whoever talks to that is root on the host"
            .to_owned(),
    })
}

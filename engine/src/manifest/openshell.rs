//! Turns `[agent.openshell]` into what a sandbox shows of the host and may use (contract §6.1).
//! It refuses to know how a sandbox is made and which of the host's paths exist.

use std::fmt;
use std::ops::Range;
use std::path::{Component, Path};

pub use driver::Limits as SandboxLimits;
use policy::egress::{BinaryPath, BinaryPathError, Declared};
use policy::endpoint::{Endpoint, EndpointError, EndpointErrorKind};

use super::At;
use super::error::{Mistake, Sink};
use super::keys::{Key, Kind, Table};
use super::number::Bounds;
use super::section::Section;
use super::traffic::{self, TrafficLimits};
use super::value::{ManifestPath, shorten};

/// What to write where no better advice is known.
const ENDPOINT_HINT: &str = "write host:port:access, such as \"api.example.com:443:full\"";
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
/// Where a sandbox has directories of its own, which nothing of the host may cover.
const TAKEN: [&str; 9] =
    ["/proc", "/sys", "/dev", "/run", "/sandbox", "/etc", "/boot", "/var/tmp", "/var/run"];

/// What a sandbox shows of the host, and what it may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// What it may reach, before the built-ins are added and what is there twice goes (contract §6.1).
    pub declared: Declared,
    /// Paths of this machine that stand in the sandbox at the same place, to read and to execute. None is there twice.
    pub read_only_paths: Vec<At<HostPath>>,
    /// A file of certificates that are trusted beside the system's (note N11).
    pub ca_file: Option<At<ManifestPath>>,
    /// What one turn's sandbox may use.
    pub limits: SandboxLimits,
    /// What bounds its traffic.
    pub traffic: TrafficLimits,
}

/// An absolute path of this machine with nothing but names in it, outside of what a sandbox has of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPath(String);

/// What can be wrong with `[agent.openshell]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenshellError {
    /// An entry that is no endpoint.
    #[error("the endpoint `{text}` cannot be read: {error}")]
    Endpoint {
        /// As written, shortened.
        text: String,
        /// Why.
        error: EndpointErrorKind,
    },
    /// A program that cannot be listed.
    #[error("the binary `{text}` cannot be listed: {error}")]
    Binary {
        /// As written, shortened.
        text: String,
        /// Why.
        error: BinaryPathError,
    },
    /// One item twice in its list.
    #[error("[agent.openshell].{key} holds `{item}` twice")]
    Twice {
        /// The list.
        key: &'static str,
        /// As it is read, shortened.
        item: String,
    },
    /// A path that does not start at the root.
    #[error("the read-only path `{path}` is not absolute")]
    Relative {
        /// As written, shortened.
        path: String,
    },
    /// A path that goes up.
    #[error("the read-only path `{path}` goes up by `..`")]
    Up {
        /// As written, shortened.
        path: String,
    },
    /// The root itself.
    #[error("the read-only path `/` is the whole machine")]
    Root,
    /// Where a sandbox has its own.
    #[error("the read-only path `{path}` lies in {taken}: a sandbox has its own there")]
    Taken {
        /// As written, shortened.
        path: String,
        /// The directory that is the sandbox's own.
        taken: &'static str,
    },
}

/// `[agent.openshell]`.
pub(super) static TABLE: Table = Table {
    path: "agent.openshell",
    doc: "What the sandbox of `backend = \"openshell\"` reaches, shows and may use. It is denied everything that no entry \
          names; with `inherit_defaults = false` and both lists empty it reaches nothing at all.",
    keys: &[
        Key::optional(
            "inherit_defaults",
            Kind::Flag,
            "true",
            "Whether the lists are added to the built-in endpoints and programs: the public forges, PyPI, Vertex, Anthropic, and \
             the agent programs.",
        ),
        Key::optional(
            "endpoints",
            Kind::Texts,
            "empty",
            "What the sandbox may connect to, as `host:port:access[:protocol[:enforcement]]`. Every host but one that is named \
             here exactly must have public addresses.",
        ),
        Key::optional(
            "binaries",
            Kind::Texts,
            "empty",
            "The programs that may open a connection, themselves or by what they start, as absolute paths in the sandbox.",
        ),
        Key::optional(
            "read_only_paths",
            Kind::Distinct,
            "empty",
            "Absolute paths of this machine that stand in the sandbox at the same place, to read and to execute. Not `/`, \
             and not where a sandbox has its own: `/proc`, `/sys`, `/dev`, `/run`, `/sandbox`, `/etc`, `/boot`, \
             `/var/tmp`, `/var/run`.",
        ),
        Key::optional(
            "ca_file",
            Kind::Path,
            "none",
            "A PEM file of certificates that are trusted beside the system's: by programs in the sandbox, which find both in \
             one bundle, and by the broker's own calls. At most 1 MiB, and no private key.",
        ),
        Key::optional("limits", Kind::Table(&LIMITS), "all defaults", LIMITS.doc),
        Key::absent("gateway", "drives its own embedded gateway only"),
    ],
    rules: &[],
    example: "[agent.openshell]\nendpoints = [\"api.example.com:443:full\"]\nbinaries = [\"/usr/bin/curl\"]\ninherit_defaults = false\nread_only_paths = [\"/opt/toolchain\"]\n",
};

/// `[agent.openshell.limits]`.
pub(super) static LIMITS: Table = Table {
    path: "agent.openshell.limits",
    doc: "What the sandbox of one turn may use at most.",
    keys: &[
        Key::optional(
            "memory",
            Kind::Size(Bounds::new(16 * MIB, 4 * TIB)),
            "\"8G\"",
            "Memory, with what was written to the workspace, the home and `/tmp`.",
        ),
        Key::optional(
            "disk",
            Kind::Size(Bounds::new(MIB, 4 * TIB)),
            "\"4G\"",
            "What a turn may change in the workspace.",
        ),
        Key::optional(
            "tmp",
            Kind::Size(Bounds::new(MIB, 4 * TIB)),
            "\"2G\"",
            "The home, `/tmp` and `/dev/shm` together.",
        ),
        Key::optional(
            "processes",
            // The kernel has no more than 2^22.
            Kind::Whole(Bounds::new(16, 1 << 22)),
            "2048",
            "Processes and threads alive at once.",
        ),
        Key::optional(
            "open_files",
            Kind::Whole(Bounds::new(64, 1 << 20)),
            "65536",
            "Open files of one process.",
        ),
        Key::optional(
            "cpus",
            // The kernel takes no less than 1 ms of each 100 ms.
            Kind::Thousandths(Bounds::new(10, 1_024_000)),
            "all of them",
            "Processors, with at most three decimals.",
        ),
        Key::optional("egress", Kind::Table(&traffic::TABLE), "all defaults", traffic::TABLE.doc),
    ],
    rules: &[],
    example: "[agent.openshell.limits]\nmemory = \"2G\"\ndisk = \"512M\"\nprocesses = 256\ncpus = 1.5\n",
};

impl OpenshellError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Endpoint { error: EndpointErrorKind::Never, .. } => return None,
            Self::Endpoint { error, .. } => {
                return Some(error.hint().unwrap_or(ENDPOINT_HINT).to_owned());
            }
            Self::Binary { .. } => "write the program's path in the sandbox, such as \"/usr/bin/curl\"",
            Self::Twice { .. } => "keep one of them",
            Self::Relative { .. } | Self::Up { .. } => "write an absolute path without `..`",
            Self::Root | Self::Taken { .. } => {
                "name the directories that the agent needs, such as \"/opt/tool\""
            }
        };
        Some(hint.to_owned())
    }
}

/// Reads the table.
pub(super) fn decode(section: &Section<'_>, sink: &mut Sink) -> Sandbox {
    let declared = Declared {
        endpoints: endpoints(section, sink),
        binaries: binaries(section, sink),
        inherit_defaults: section.flag("inherit_defaults").is_none_or(|flag| flag.value),
    };
    let mut paths = Vec::new();
    for At { value, span } in section.texts("read_only_paths") {
        match HostPath::parse(value) {
            Ok(value) => paths.push(At { value, span }),
            Err(mistake) => sink.put(span, mistake),
        }
    }
    let read_only_paths = once("read_only_paths", paths, ToString::to_string, sink);
    let ca_file = section.value("ca_file", sink, ManifestPath::parse);
    let (limits, traffic) = limits(section, sink);
    Sandbox { declared, read_only_paths, ca_file, limits, traffic }
}

/// Reads `endpoints`; a mistake is shown at its part of the item.
fn endpoints(section: &Section<'_>, sink: &mut Sink) -> Vec<Endpoint> {
    let mut read = Vec::new();
    for At { value, span } in section.texts("endpoints") {
        match Endpoint::parse(value) {
            Ok(endpoint) => read.push(endpoint),
            Err(EndpointError { span: part, kind }) => {
                let mistake = OpenshellError::Endpoint { text: shorten(value), error: kind };
                sink.put(within(&span, value, &part), mistake);
            }
        }
    }
    read
}

/// A part of a text in quotes, as a place in the manifest; the whole text where it holds escapes.
fn within(span: &Range<usize>, text: &str, part: &Range<usize>) -> Range<usize> {
    let quotes = span.len().saturating_sub(text.len());
    if quotes == 2 && part.end <= text.len() {
        let start = span.start.saturating_add(1);
        return start.saturating_add(part.start)..start.saturating_add(part.end);
    }
    span.clone()
}

fn binaries(section: &Section<'_>, sink: &mut Sink) -> Vec<BinaryPath> {
    let mut read = Vec::new();
    for At { value, span } in section.texts("binaries") {
        match BinaryPath::parse(value) {
            Ok(path) => read.push(path),
            Err(error) => sink.put(span, OpenshellError::Binary { text: shorten(value), error }),
        }
    }
    read
}

fn limits(section: &Section<'_>, sink: &mut Sink) -> (SandboxLimits, TrafficLimits) {
    let default = SandboxLimits::default();
    let Some((entries, at)) = section.table("limits") else { return (default, TrafficLimits::default()) };
    let limits = Section::open(&LIMITS, Some(entries), &at, sink);
    let or = |key, default| limits.number(key).unwrap_or(default);
    let sandbox = SandboxLimits {
        memory: or("memory", default.memory),
        processes: or("processes", default.processes),
        cpu_millis: or("cpus", default.cpu_millis),
        open_files: or("open_files", default.open_files),
        disk: or("disk", default.disk),
        tmp: or("tmp", default.tmp),
    };
    (sandbox, traffic::decode(&limits, sink))
}

/// The items without those that were there before, each of which is reported.
fn once<T>(key: &'static str, items: Vec<At<T>>, text: impl Fn(&T) -> String, sink: &mut Sink) -> Vec<At<T>> {
    let mut seen = std::collections::BTreeMap::new();
    let mut kept = Vec::new();
    for item in items {
        let name = text(&item.value);
        if let Some(first) = seen.get(&name).cloned() {
            let twice = OpenshellError::Twice { key, item: shorten(&name) };
            sink.put_related(item.span, twice, (first, "the first one"));
            continue;
        }
        seen.insert(name, item.span.clone());
        kept.push(item);
    }
    kept
}

impl HostPath {
    /// Reads a path; doubled and closing slashes and `.` go away.
    ///
    /// # Errors
    /// Relative, with `..`, the root, where a sandbox has its own, or not a path.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let written = ManifestPath::parse(text)
            .map_err(|error| Mistake::from(("an item of [agent.openshell].read_only_paths", error)))?;
        let path = Path::new(written.as_str());
        let shown = || shorten(text);
        if !path.is_absolute() {
            return Err(OpenshellError::Relative { path: shown() }.into());
        }
        let mut names = String::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => names.extend(["/", name.to_str().unwrap_or_default()]),
                Component::ParentDir => return Err(OpenshellError::Up { path: shown() }.into()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        if names.is_empty() {
            return Err(OpenshellError::Root.into());
        }
        match TAKEN.into_iter().find(|taken| Path::new(&names).starts_with(taken)) {
            Some(taken) => Err(OpenshellError::Taken { path: shown(), taken }.into()),
            None => Ok(Self(names)),
        }
    }

    /// The path, without a closing slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same as a path.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Presence;
    use super::super::number::size_text;
    use super::*;

    #[test]
    fn host_paths_are_absolute_and_cover_nothing_of_a_sandboxs_own() {
        for (text, read) in [
            ("/opt/tool", "/opt/tool"),
            ("/opt//tool/./x/", "/opt/tool/x"),
            ("/processes", "/processes"),
            ("/usr", "/usr"),
            ("/var/lib/ü", "/var/lib/ü"),
        ] {
            assert_eq!(HostPath::parse(text).unwrap().as_str(), read, "{text}");
        }
        let shown = |text: &str| HostPath::parse(text).unwrap_err().to_string();
        for text in ["opt", "./opt", ".", "~/x", "../opt"] {
            assert!(shown(text).ends_with("is not absolute"), "{text}");
        }
        for text in ["/opt/../etc", "/..", "/opt/.."] {
            assert!(shown(text).ends_with("goes up by `..`"), "{text}");
        }
        for text in ["/", "//", "/./"] {
            assert!(shown(text).ends_with("the whole machine"), "{text}");
        }
        for taken in TAKEN {
            for text in [taken.to_owned(), format!("{taken}/"), format!("/.{taken}/x")] {
                assert!(shown(&text).contains(&format!("lies in {taken}: ")), "{text}");
            }
        }
        assert!(shown(&format!("/{}", "a".repeat(256))).ends_with("is longer than the system allows"));
    }

    #[test]
    fn the_defaults_that_are_documented_are_the_drivers() {
        let limits = SandboxLimits::default();
        let expected = [
            ("memory", format!("\"{}\"", size_text(limits.memory))),
            ("disk", format!("\"{}\"", size_text(limits.disk))),
            ("tmp", format!("\"{}\"", size_text(limits.tmp))),
            ("processes", limits.processes.to_string()),
            ("open_files", limits.open_files.to_string()),
            ("cpus", if limits.cpu_millis == 0 { "all of them".to_owned() } else { String::new() }),
        ];
        assert_eq!(LIMITS.keys.len(), expected.len() + 1, "and the table of the traffic");
        for (key, expected) in expected {
            let Presence::Optional(documented) = LIMITS.key(key).unwrap().presence else { panic!("{key}") };
            assert_eq!(documented, expected, "{key}");
        }
    }
}

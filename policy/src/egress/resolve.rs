//! Turns declared endpoints, built-ins and plumbing into the one resolved list that provisioning and disclosure share.
//! It refuses to know who is connecting and where the list is sent.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::binary::{Binaries, BinaryPath};
use super::defaults;
use super::index::Index;
use crate::endpoint::{Endpoint, Pattern};
use crate::host::{Host, HostError, Port, Target};

/// The version of [`Document`].
const VERSION: u32 = 1;
/// What the broker's own entry is for.
const BROKER: &str = "broker";
/// More entries than this are refused.
const ENTRIES_MAX: usize = 100_000;

/// What a manifest asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// `[agent.openshell].endpoints`, in order.
    pub endpoints: Vec<Endpoint>,
    /// `[agent.openshell].binaries`, in order.
    pub binaries: Vec<BinaryPath>,
    /// `[agent.openshell].inherit_defaults`.
    pub inherit_defaults: bool,
}

/// An entry that the engine adds because the run needs it: the broker's own URL, an operator's inference endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plumbing {
    /// `broker` or `inference`.
    pub what: String,
    /// Where it is.
    pub target: Target,
}

/// Where an entry comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The engine's table, by group.
    Builtin(String),
    /// The manifest.
    Manifest,
    /// The engine's plumbing, by what it is for.
    Engine(String),
}

/// One line of the resolved list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it reaches.
    pub endpoint: Endpoint,
    /// Who put it there.
    pub source: Source,
    /// Which programs it admits.
    pub binaries: Binaries,
    /// Whether the manifest or the engine names this very host, so that it may lead to a private address (N13).
    pub named: bool,
}

/// The resolved list with its index and its hash.
#[derive(Clone, Debug)]
pub struct Egress {
    entries: Vec<Entry>,
    pub(super) index: Index,
    hash: String,
}

/// The list as it travels to the broker and through the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    version: u32,
    sets: Vec<Vec<String>>,
    entries: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    endpoint: String,
    source: String,
    /// A position in `sets`; absent is every program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    set: Option<usize>,
    named: bool,
}

/// Why a document is no list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Another version than this build's.
    #[error("read a network policy of version {0}")]
    Version(u32),
    /// Too many entries.
    #[error("read a network policy of more than {ENTRIES_MAX} entries")]
    TooMany,
    /// An entry that cannot be read, by its text.
    #[error("read the network policy's entry {0:?}")]
    Entry(String),
}

impl PartialEq for Egress {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for Egress {}

impl Egress {
    /// Resolves a manifest's lists (contract §6.1): built-ins unless it opts out, then its own, without repeats, then the
    /// engine's plumbing whatever it says.
    pub fn resolve(declared: &Declared, plumbing: &[Plumbing]) -> Self {
        let inherited = declared.inherit_defaults;
        let builtin =
            defaults::BINARIES.iter().filter_map(|path| BinaryPath::parse(path).ok()).filter(|_| inherited);
        let binaries = Binaries::of(builtin.chain(declared.binaries.iter().cloned()));
        let builtin = defaults::ENDPOINTS.iter().filter(|_| inherited).filter_map(|row| {
            let endpoint = Endpoint::parse(row.endpoint).ok()?;
            Some((endpoint, Source::Builtin(row.group.to_owned())))
        });
        let own = declared.endpoints.iter().map(|endpoint| (endpoint.clone(), Source::Manifest));
        let hosts: HashSet<&Host> =
            declared.endpoints.iter().filter_map(|endpoint| exact(&endpoint.pattern)).collect();
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        for (endpoint, source) in builtin.chain(own).filter(|(endpoint, _)| seen.insert(endpoint.clone())) {
            let named = exact(&endpoint.pattern).is_some_and(|host| hosts.contains(host));
            entries.push(Entry { endpoint, source, binaries: binaries.clone(), named });
        }
        entries.extend(plumbing.iter().map(Entry::plumbing));
        Self::new(entries)
    }

    /// A list of entries that somebody else resolved: a gateway's network policies.
    pub fn new(entries: Vec<Entry>) -> Self {
        let mut index = Index::default();
        for (row, entry) in (0_u32..).zip(&entries) {
            index.add(&entry.endpoint.pattern, row);
        }
        let mut egress = Self { entries, index, hash: String::new() };
        let text = serde_json::to_vec(&egress.document()).unwrap_or_default();
        egress.hash = hex(&Sha256::digest(&text));
        egress
    }

    /// Every entry, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn entry(&self, row: u32) -> Option<&Entry> {
        self.entries.get(usize::try_from(row).ok()?)
    }

    /// SHA-256 of the document, in hex: the same list has the same hash everywhere.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Whether any entry is for this host, with whatever port: then its name may be known inside.
    pub fn knows(&self, host: &Host) -> bool {
        self.index.find(host, |_| Some(())).is_some()
    }

    /// The ports on which connections to names and addresses are taken without a proxy.
    pub fn transparent_ports(&self) -> BTreeSet<Port> {
        let away = self.entries.iter().filter(|entry| !entry.is_local() && !entry.is_own());
        away.map(|entry| entry.endpoint.port).collect()
    }

    /// The listed addresses that are to lead to the broker inside the sandbox.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        let away = self.entries.iter().filter(|entry| !entry.is_local());
        away.filter_map(|entry| match exact(&entry.endpoint.pattern) {
            Some(Host::Ip(address)) => Some(*address),
            _ => None,
        })
        .collect()
    }

    /// Where entries that name loopback are served inside the sandbox, and for which target (N13).
    pub fn loopback_listeners(&self) -> Vec<(SocketAddr, Target)> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.is_local() && !entry.is_own()) {
            let Some(host) = exact(&entry.endpoint.pattern) else { continue };
            let addresses = match host {
                Host::Ip(address) => vec![*address],
                Host::Name(_) => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            };
            let target = Target { host: host.clone(), port: entry.endpoint.port };
            for address in addresses.into_iter().map(|address| SocketAddr::new(address, target.port.get())) {
                if seen.insert(address) {
                    found.push((address, target.clone()));
                }
            }
        }
        found
    }

    /// The broker's own URL and the address inside the sandbox at which it is served (N14): its own, where it is one, and
    /// otherwise loopback, to which the sandbox's `/etc/hosts` leads its name.
    pub fn own(&self) -> Option<(Target, IpAddr)> {
        let entry = self.entries.iter().find(|entry| entry.is_own())?;
        let host = exact(&entry.endpoint.pattern)?.clone();
        let at = match &host {
            Host::Ip(address) => *address,
            Host::Name(_) => Ipv4Addr::LOCALHOST.into(),
        };
        Some((Target { host, port: entry.endpoint.port }, at))
    }

    /// The list as it travels.
    pub fn document(&self) -> Document {
        let mut sets: Vec<Vec<String>> = Vec::new();
        let mut places: HashMap<*const HashSet<BinaryPath>, usize> = HashMap::new();
        let mut set = |binaries: &Binaries| match binaries {
            Binaries::Any => None,
            Binaries::Of(set) => Some(*places.entry(Arc::as_ptr(set)).or_insert_with(|| {
                let mut paths: Vec<String> = set.iter().map(ToString::to_string).collect();
                paths.sort();
                sets.push(paths);
                sets.len() - 1
            })),
        };
        let row = |entry: &Entry| Row {
            endpoint: entry.endpoint.to_string(),
            source: entry.source.to_string(),
            set: set(&entry.binaries),
            named: entry.named,
        };
        let entries = self.entries.iter().map(row).collect();
        Document { version: VERSION, sets, entries }
    }
}

fn exact(pattern: &Pattern) -> Option<&Host> {
    match pattern {
        Pattern::Exact(host) => Some(host),
        Pattern::Wild(_) => None,
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        for half in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(half.into(), 16));
        }
        text
    })
}

impl Entry {
    fn plumbing(plumbing: &Plumbing) -> Self {
        let Target { host, port } = plumbing.target.clone();
        Self {
            endpoint: Endpoint::full(host, port),
            source: Source::Engine(plumbing.what.clone()),
            binaries: Binaries::Any,
            named: true,
        }
    }

    /// Whether it is the broker's own URL, which a listener inside the sandbox serves and nothing is dialled for.
    pub fn is_own(&self) -> bool {
        matches!(&self.source, Source::Engine(what) if what == BROKER)
    }

    /// Which addresses beside public ones it may lead to: private ones, and this host's own (N13).
    pub fn addresses(&self) -> (bool, bool) {
        let engine = matches!(self.source, Source::Engine(_));
        (self.is_exact() && self.named, self.is_local() || engine)
    }

    /// Whether it is for exactly one host.
    pub fn is_exact(&self) -> bool {
        exact(&self.endpoint.pattern).is_some()
    }

    /// Whether it names this host's loopback literally.
    pub fn is_local(&self) -> bool {
        match exact(&self.endpoint.pattern) {
            Some(Host::Ip(address)) => address.is_loopback(),
            Some(Host::Name(name)) => name.as_str() == "localhost",
            None => false,
        }
    }
}

impl Document {
    /// Reads the list; the hash is of what was read.
    ///
    /// # Errors
    /// An unknown version, or an entry that is none.
    pub fn read(&self) -> Result<Egress, DocumentError> {
        if self.version != VERSION {
            return Err(DocumentError::Version(self.version));
        }
        if self.entries.len() > ENTRIES_MAX {
            return Err(DocumentError::TooMany);
        }
        let path = |text: &String| BinaryPath::parse(text).map_err(|_| DocumentError::Entry(text.clone()));
        let sets = self
            .sets
            .iter()
            .map(|set| Ok(Binaries::of(set.iter().map(path).collect::<Result<Vec<_>, _>>()?)));
        let sets = sets.collect::<Result<Vec<_>, DocumentError>>()?;
        let entries = self
            .entries
            .iter()
            .map(|row| row.read(&sets).ok_or_else(|| DocumentError::Entry(row.endpoint.clone())));
        Ok(Egress::new(entries.collect::<Result<_, _>>()?))
    }
}

impl Row {
    fn read(&self, sets: &[Binaries]) -> Option<Entry> {
        Some(Entry {
            endpoint: Endpoint::parse(&self.endpoint).ok()?,
            source: Source::parse(&self.source)?,
            binaries: self.set.map_or(Some(Binaries::Any), |at| sets.get(at).cloned())?,
            named: self.named,
        })
    }
}

impl Source {
    /// `builtin`, `manifest` or `engine`: what the disclosure says (N5).
    pub fn label(&self) -> &'static str {
        match self {
            Self::Builtin(_) => "builtin",
            Self::Manifest => "manifest",
            Self::Engine(_) => "engine",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text == "manifest" => Some(Self::Manifest),
            Some(("builtin", group)) => Some(Self::Builtin(group.to_owned())),
            Some(("engine", what)) => Some(Self::Engine(what.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(detail) | Self::Engine(detail) => write!(f, "{}:{detail}", self.label()),
            Self::Manifest => f.write_str(self.label()),
        }
    }
}

/// The broker's URL: where agents reach it, and what its own entry is derived from (contract §6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerUrl {
    /// Its host and port; without a port the scheme's.
    pub target: Target,
    /// Whether it is `https`.
    pub secure: bool,
}

/// Why a text is no broker URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerUrlError {
    /// Neither `http` nor `https`.
    #[error("the broker's URL starts with http:// or https://")]
    Scheme,
    /// The authority is none; a user in it is refused.
    #[error("the broker's URL has no host and port that can be used: {0}")]
    Host(#[from] HostError),
}

impl BrokerUrl {
    /// Reads `http[s]://host[:port][/…]`.
    ///
    /// # Errors
    /// See [`BrokerUrlError`].
    pub fn parse(text: &str) -> Result<Self, BrokerUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(BrokerUrlError::Scheme)?;
        let (secure, default) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (false, Port::HTTP),
            "https" => (true, Port::HTTPS),
            _ => return Err(BrokerUrlError::Scheme),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        Ok(Self { target: Target::parse_or(authority, default)?, secure })
    }

    /// Its entry in the list.
    pub fn plumbing(&self) -> Plumbing {
        Plumbing { what: BROKER.to_owned(), target: self.target.clone() }
    }
}

//! Turns `host:port:access[:protocol[:enforcement]]` (contract §6.1) into an endpoint, or an error with the bytes it is about.
//! It refuses to know which list the endpoint stands in.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use crate::access::{Access, Enforcement, Protocol};
use crate::host::{Host, HostError, Name, Port, host_of};
use crate::ip::{Class, classify};

/// The longest text of an endpoint that is read, in bytes.
const TEXT_MAX: usize = 1024;

/// Which hosts an endpoint is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// One name or address.
    Exact(Host),
    /// A wildcard in the first label.
    Wild(Wild),
}

/// A wildcard: what may stand before a suffix of at least two labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wild {
    first: First,
    suffix: Name,
}

/// The first label of a wildcard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum First {
    /// `*`: one label; or with a text before or after it: one label with at least one more character.
    Label {
        /// What the label starts with.
        before: Box<str>,
        /// What it ends with.
        after: Box<str>,
    },
    /// `**`: one label or more.
    Labels,
}

/// One line of an allowlist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Which hosts.
    pub pattern: Pattern,
    /// Which port.
    pub port: Port,
    /// What may be done there.
    pub access: Access,
    /// What is spoken there; any access but `full` is [`Protocol::Rest`].
    pub protocol: Option<Protocol>,
    /// Whether the access is enforced.
    pub enforcement: Enforcement,
    /// Whether the text said so, for `Display` to give it back.
    explicit: bool,
}

/// What is wrong with an endpoint, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct EndpointError {
    /// Bytes of the text.
    pub span: Range<usize>,
    /// What is wrong.
    pub kind: EndpointErrorKind,
}

/// What can be wrong with an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointErrorKind {
    /// Fewer than three or more than five parts, or too long.
    #[error("an endpoint is host:port:access[:protocol[:enforcement]]")]
    Shape,
    /// The host or port is none.
    #[error(transparent)]
    Host(HostError),
    /// An address that is never dialled, so the entry could not work (N13).
    #[error(
        "an address of this kind is never reached: link-local, metadata, unspecified, multicast or reserved"
    )]
    Never,
    /// No access.
    #[error("the access is one of full, read-only, read-write")]
    Access,
    /// No protocol.
    #[error("the protocol is one of rest, websocket, tcp")]
    Protocol,
    /// An access that needs requests to be judged, over something that is not judged so.
    #[error("any access but full needs the protocol rest")]
    NeedsRest,
    /// No enforcement.
    #[error("the enforcement is enforce or audit")]
    Enforcement,
}

impl EndpointErrorKind {
    /// What to write instead, where there is something to say.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Shape => Some("for example \"api.example.com:443:full\""),
            Self::Host(HostError::Unbracketed) => Some("write [2001:db8::1]:443:full"),
            Self::Host(HostError::WildcardTooWide) => {
                Some("name the hosts, or a domain that is yours: *.example.com")
            }
            Self::Host(HostError::Numeric) => Some("write the address as four decimal numbers"),
            Self::NeedsRest => Some("write full, or leave the protocol out"),
            _ => None,
        }
    }
}

impl Endpoint {
    /// An endpoint with everything allowed, as the engine makes for its own plumbing.
    pub fn full(host: Host, port: Port) -> Self {
        let (access, enforcement) = (Access::Full, Enforcement::Enforce);
        Self { pattern: Pattern::Exact(host), port, access, protocol: None, enforcement, explicit: false }
    }

    /// Reads an endpoint.
    ///
    /// # Errors
    /// The first part that is wrong, with its bytes in `text`.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let whole = 0..text.len();
        let shape = || EndpointError { span: whole.clone(), kind: EndpointErrorKind::Shape };
        if text.len() > TEXT_MAX {
            return Err(shape());
        }
        let mut parts = Parts { text, at: 0 };
        let host = parts.host().ok_or_else(shape)?;
        let (port, access) = parts.next().zip(parts.next()).ok_or_else(shape)?;
        let (protocol, enforcement) = (parts.next(), parts.next());
        if parts.next().is_some() {
            return Err(shape());
        }
        let pattern = host.read(text, Pattern::parse)?;
        let port = port.read(text, |text| Port::parse(text).map_err(EndpointErrorKind::Host))?;
        let access = access.read(text, |word| Access::parse(word).ok_or(EndpointErrorKind::Access))?;
        let word = |word: &str| Protocol::parse(word).ok_or(EndpointErrorKind::Protocol);
        let protocol =
            protocol.map(|part| part.read(text, |text| judged(word(text)?, access))).transpose()?;
        let implied = (access != Access::Full).then_some(Protocol::Rest);
        let word = |word: &str| Enforcement::parse(word).ok_or(EndpointErrorKind::Enforcement);
        let explicit = enforcement.is_some();
        let enforcement = enforcement.map(|part| part.read(text, word)).transpose()?.unwrap_or_default();
        Ok(Self { pattern, port, access, protocol: protocol.or(implied), enforcement, explicit })
    }

    /// Whether its requests must be seen one by one, so that over TLS it is unreachable until the broker ends TLS (N13).
    pub fn needs_termination(&self) -> bool {
        matches!(self.protocol, Some(Protocol::Rest | Protocol::Websocket))
    }
}

fn judged(protocol: Protocol, access: Access) -> Result<Protocol, EndpointErrorKind> {
    if access != Access::Full && protocol != Protocol::Rest {
        return Err(EndpointErrorKind::NeedsRest);
    }
    Ok(protocol)
}

/// A part of the text, by its place.
struct Part(Range<usize>);

impl Part {
    fn read<T>(
        &self,
        text: &str,
        parse: impl FnOnce(&str) -> Result<T, EndpointErrorKind>,
    ) -> Result<T, EndpointError> {
        let part = text.get(self.0.clone()).unwrap_or_default();
        parse(part).map_err(|kind| EndpointError { span: self.0.clone(), kind })
    }
}

/// The parts between colons; the first may be a bracketed address.
struct Parts<'a> {
    text: &'a str,
    at: usize,
}

impl Parts<'_> {
    fn host(&mut self) -> Option<Part> {
        let end = match self.text.strip_prefix('[') {
            Some(_) => self.text.find(']')? + 1,
            None => 0,
        };
        let rest = self.text.get(end..)?;
        let end = end + rest.find(':').unwrap_or(rest.len());
        self.at = end;
        Some(Part(0..end))
    }

    fn next(&mut self) -> Option<Part> {
        let rest = self.text.get(self.at..)?.strip_prefix(':')?;
        let start = self.at + 1;
        self.at = start + rest.find(':').unwrap_or(rest.len());
        Some(Part(start..self.at))
    }
}

impl Pattern {
    /// Reads the host part of an endpoint: exact, or with a wildcard in its first label.
    ///
    /// # Errors
    /// What is no host, what is too wide, and an address that is never dialled.
    pub fn parse(text: &str) -> Result<Self, EndpointErrorKind> {
        if text.contains('*') {
            return Wild::parse(text).map(Self::Wild).map_err(EndpointErrorKind::Host);
        }
        let host = host_of(text).map_err(EndpointErrorKind::Host)?;
        match &host {
            Host::Ip(address) if never(*address) => Err(EndpointErrorKind::Never),
            _ => Ok(Self::Exact(host)),
        }
    }

    /// Whether every host of `other` is one of its own.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (own, Self::Exact(host)) => own.matches(host),
            (Self::Exact(_), Self::Wild(_)) => false,
            (Self::Wild(own), Self::Wild(other)) => own.covers(other),
        }
    }

    /// Whether some host may be one of both. Where a label could be made of both texts the answer is yes.
    pub fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (own, Self::Exact(host)) => own.matches(host),
            (Self::Exact(host), other) => other.matches(host),
            (Self::Wild(own), Self::Wild(other)) => own.meets(other),
        }
    }

    /// Whether it is for this host. Wildcards match names label by label, and never addresses.
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(own), host) => own == host,
            (Self::Wild(wild), Host::Name(name)) => wild.matches(name),
            (Self::Wild(_), Host::Ip(_)) => false,
        }
    }
}

/// Whether an address is never dialled, whoever names it.
pub fn never(address: IpAddr) -> bool {
    matches!(classify(address), Class::LinkLocal | Class::Metadata | Class::Reserved)
}

impl Wild {
    fn parse(text: &str) -> Result<Self, HostError> {
        let (first, suffix) = text.split_once('.').ok_or(HostError::WildcardTooWide)?;
        if suffix.contains('*') {
            return Err(HostError::Wildcard);
        }
        let first = First::parse(first)?;
        let suffix = Name::parse(suffix)?;
        if suffix.as_str().contains('.') {
            Ok(Self { first, suffix })
        } else {
            Err(HostError::WildcardTooWide)
        }
    }

    /// Whether a name stands under it.
    pub fn matches(&self, name: &Name) -> bool {
        let rest = name.as_str().strip_suffix(self.suffix.as_str()).and_then(|rest| rest.strip_suffix('.'));
        rest.is_some_and(|rest| self.first.matches(rest))
    }

    fn covers(&self, other: &Self) -> bool {
        if self.suffix != other.suffix {
            return self.first == First::Labels && other.suffix.is_below(&self.suffix);
        }
        match (&self.first, &other.first) {
            (First::Labels, _) => true,
            (First::Label { .. }, First::Labels) => false,
            (First::Label { before, after }, First::Label { before: longer, after: other }) => {
                longer.starts_with(&**before) && other.ends_with(&**after)
            }
        }
    }

    fn meets(&self, other: &Self) -> bool {
        if self.suffix != other.suffix {
            return self.covers(other) || other.covers(self);
        }
        let (First::Label { before: a, after: x }, First::Label { before: b, after: y }) =
            (&self.first, &other.first)
        else {
            return true;
        };
        (a.starts_with(&**b) || b.starts_with(&**a)) && (x.ends_with(&**y) || y.ends_with(&**x))
    }

    /// What stands in the first label.
    pub fn first(&self) -> &First {
        &self.first
    }

    /// The labels after it.
    pub fn suffix(&self) -> &Name {
        &self.suffix
    }
}

impl First {
    fn parse(label: &str) -> Result<Self, HostError> {
        if label == "**" {
            return Ok(Self::Labels);
        }
        let (before, after) = label.split_once('*').ok_or(HostError::Wildcard)?;
        if after.contains('*') {
            return Err(HostError::Wildcard);
        }
        // The label must be one with any letter in the wildcard's place.
        let filled = Name::parse(&format!("{before}x{after}.example"))?;
        if !label.is_ascii() {
            return Err(HostError::Wildcard);
        }
        drop(filled);
        Ok(Self::Label {
            before: before.to_ascii_lowercase().into(),
            after: after.to_ascii_lowercase().into(),
        })
    }

    /// Whether it covers what stands before the suffix, without the dot between.
    fn matches(&self, rest: &str) -> bool {
        match self {
            Self::Labels => !rest.is_empty(),
            Self::Label { before, after } => {
                rest.len() > before.len() + after.len()
                    && rest.starts_with(&**before)
                    && rest.ends_with(&**after)
                    && !rest.contains('.')
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => host.fmt(f),
            Self::Wild(Wild { first: First::Labels, suffix }) => write!(f, "**.{suffix}"),
            Self::Wild(Wild { first: First::Label { before, after }, suffix }) => {
                write!(f, "{before}*{after}.{suffix}")
            }
        }
    }
}

impl fmt::Display for Endpoint {
    /// The shortest text that reads back as this endpoint.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Exact(Host::Ip(IpAddr::V6(address))) => write!(f, "[{address}]")?,
            pattern => pattern.fmt(f)?,
        }
        write!(f, ":{}:{}", self.port, self.access)?;
        let Some(protocol) = self.protocol else { return Ok(()) };
        if self.access == Access::Full || self.explicit {
            write!(f, ":{protocol}")?;
        }
        if self.explicit { write!(f, ":{}", self.enforcement) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CASES: &str = include_str!("../../tests/cases/endpoints.json");
    const MATCHES: &str = include_str!("../../tests/cases/host-match.json");

    #[test]
    fn the_table_of_accepted_endpoints() {
        let table: serde_json::Value = serde_json::from_str(CASES).unwrap();
        for row in table["accepted"].as_array().unwrap() {
            let text = row["text"].as_str().unwrap();
            let found = Endpoint::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let word = |key: &str| row.get(key).and_then(|value| value.as_str());
            assert_eq!(Some(found.pattern.to_string().as_str()), word("host"), "{text}");
            assert_eq!(u64::from(found.port.get()), row["port"].as_u64().unwrap(), "{text}");
            assert_eq!(Some(found.access.as_str()), word("access"), "{text}");
            assert_eq!(found.protocol.map(Protocol::as_str), word("protocol"), "{text}");
            assert_eq!(found.enforcement.as_str(), word("enforcement").unwrap_or("enforce"), "{text}");
            assert_eq!(Endpoint::parse(&found.to_string()).unwrap(), found, "{text} reads back");
        }
    }

    #[test]
    fn the_table_of_refused_endpoints() {
        let table: serde_json::Value = serde_json::from_str(CASES).unwrap();
        for row in table["refused"].as_array().unwrap() {
            let text = row.as_str().unwrap();
            let error = Endpoint::parse(text).expect_err(text);
            assert!(text.get(error.span).is_some(), "{text}: a span within the text");
        }
    }

    #[test]
    fn the_table_of_wildcards() {
        let table: serde_json::Value = serde_json::from_str(MATCHES).unwrap();
        for row in table.as_array().unwrap() {
            let host = Host::parse(row["host"].as_str().unwrap()).unwrap();
            let pattern = Pattern::parse(row["pattern"].as_str().unwrap()).unwrap();
            assert_eq!(pattern.matches(&host), row["matches"].as_bool().unwrap(), "{row}");
        }
    }

    #[test]
    fn an_error_names_its_bytes() {
        let cases = [
            ("api.example.com:+443:full", "+443"),
            ("api.example.com:443:all", "all"),
            ("a..b:443:full", "a..b"),
            ("api.example.com:443:full:gopher", "gopher"),
            ("api.example.com:443:read-only:tcp", "tcp"),
            ("api.example.com:443:full:rest:maybe", "maybe"),
            ("[::]:80:full", "[::]"),
            ("nothing", "nothing"),
        ];
        for (text, at) in cases {
            let error = Endpoint::parse(text).unwrap_err();
            assert_eq!(text.get(error.span), Some(at), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_reads_back(text in "[a-z*.\\[\\]:0-9\\-]{1,24}:[0-9]{1,5}:(full|read-only|read-write)(:rest|:tcp|:websocket)?(:enforce|:audit)?") {
            if let Ok(endpoint) = Endpoint::parse(&text) {
                prop_assert_eq!(Endpoint::parse(&endpoint.to_string()), Ok(endpoint));
            }
        }

        #[test]
        fn any_text_has_an_answer(text in any::<String>()) {
            if let Err(error) = Endpoint::parse(&text) {
                prop_assert!(text.get(error.span).is_some());
            }
        }
    }
}

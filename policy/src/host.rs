//! Turns the text of a host, a port or an authority into values that can only be canonical.
//! It refuses to know what may be reached.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::ip;

/// The longest name in characters, without a final dot.
const NAME_MAX: usize = 253;
/// The longest label of a name.
const LABEL_MAX: usize = 63;

/// A DNS name in its one spelling: lower case, A-labels, letters, digits and inner hyphens, no final dot, and a last
/// label that no client reads as a number.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<str>);

/// What is connected to: a name, or an address in its one spelling (an IPv4 address never hides in an IPv6 one).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name that is still to be resolved.
    Name(Name),
    /// A literal address.
    Ip(IpAddr),
}

/// A TCP port from 1 to 65535, written in digits without sign, blank or leading zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(u16);

/// A host and a port: what one connection is for. Shown as an authority, with brackets around IPv6.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: Port,
}

/// Why a text is no host, port or authority. Nothing is repaired: what is not canonical after case, IDNA and a final dot
/// is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// Nothing at all.
    #[error("the host is empty")]
    Empty,
    /// More than 253 characters, or a label of more than 63.
    #[error("the host is too long: a name has at most {NAME_MAX} characters, a label {LABEL_MAX}")]
    TooLong,
    /// Two dots in a row, or one at the start.
    #[error("the host has an empty label")]
    EmptyLabel,
    /// A byte that no name has: blanks, controls, `_`, `@`, `/`, `%`.
    #[error("the host has a character that no name has")]
    Character,
    /// A hyphen at an end of a label.
    #[error("a label of the host starts or ends with a hyphen")]
    Hyphen,
    /// Not IDNA, or an A-label that does not decode to a valid one.
    #[error("the host is not a valid international name")]
    Idna,
    /// The last label is a number and the whole is not four decimal octets.
    #[error("the host looks like an address and is not one in dotted-quad form")]
    Numeric,
    /// Brackets around something else than an IPv6 address.
    #[error("brackets stand around something that is not an IPv6 address")]
    Brackets,
    /// An IPv6 address without brackets where a port may follow.
    #[error("an IPv6 address needs brackets around it")]
    Unbracketed,
    /// `%eth0`: a zone has a meaning on one machine only.
    #[error("an address with a zone is refused")]
    Zone,
    /// Not a number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// No port at all.
    #[error("the port is missing")]
    NoPort,
    /// A wildcard somewhere else than in the first label, or more than one.
    #[error("a wildcard stands only in the first label, once")]
    Wildcard,
    /// A wildcard with fewer than two labels after it.
    #[error("a wildcard needs at least two labels after it")]
    WildcardTooWide,
}

impl Name {
    /// Reads a name that is no address.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let name = Self::canonical(text)?;
        if ends_in_number(&name) { Err(HostError::Numeric) } else { Ok(Self(name.into())) }
    }

    /// Case, IDNA and the final dot put right; the alphabet checked; a number at the end let through.
    fn canonical(text: &str) -> Result<String, HostError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        let lower = if text.is_ascii() && !has_a_label(text) {
            text.to_ascii_lowercase()
        } else {
            international(text)?
        };
        check(&lower)?;
        Ok(lower)
    }

    /// The canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it stands below `other`, by whole labels.
    pub fn is_below(&self, other: &Self) -> bool {
        self.as_str().strip_suffix(other.as_str()).is_some_and(|rest| rest.ends_with('.'))
    }

    /// Whether this is `localhost` or below it.
    pub fn is_local(&self) -> bool {
        self.as_str() == "localhost" || self.as_str().ends_with(".localhost")
    }
}

fn has_a_label(text: &str) -> bool {
    text.split('.').any(|label| label.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("xn--")))
}

/// The A-labels of a name. A dot that is only one to IDNA (`。`) is refused, because other readers keep it.
fn international(text: &str) -> Result<String, HostError> {
    if text.chars().any(|c| matches!(c, '\u{3002}' | '\u{ff0e}' | '\u{ff61}')) || text.len() > NAME_MAX * 4 {
        return Err(HostError::Idna);
    }
    if let Some(byte) = text.bytes().find(|byte| byte.is_ascii() && !is_name_byte(*byte)) {
        return Err(if byte == b'%' { HostError::Zone } else { HostError::Character });
    }
    idna::domain_to_ascii_strict(text).map_err(|_| HostError::Idna)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')
}

/// Lengths, alphabet and hyphens of a name in lower case.
fn check(name: &str) -> Result<(), HostError> {
    if name.len() > NAME_MAX {
        return Err(HostError::TooLong);
    }
    for label in name.split('.') {
        match label.as_bytes() {
            [] => return Err(HostError::EmptyLabel),
            bytes if bytes.len() > LABEL_MAX => return Err(HostError::TooLong),
            bytes if !bytes.iter().all(|byte| is_name_byte(*byte)) => return Err(HostError::Character),
            [b'-', ..] | [.., b'-'] => return Err(HostError::Hyphen),
            _ => {}
        }
    }
    Ok(())
}

/// Whether clients read the last label as a number, as browsers and C libraries do.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x");
    last.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl Host {
    /// Reads a name or an address without brackets; IPv6 is let through bare.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if text.contains(':') {
            return v6(text).map(Self::Ip);
        }
        let name = Name::canonical(text)?;
        if !ends_in_number(&name) {
            return Ok(Self::Name(Name(name.into())));
        }
        // A final dot after an address is a name to some readers and an address to others.
        if text.ends_with('.') {
            return Err(HostError::Numeric);
        }
        name.parse::<Ipv4Addr>().map(|address| Self::Ip(address.into())).map_err(|_| HostError::Numeric)
    }

    /// The name, if it is one.
    pub fn name(&self) -> Option<&Name> {
        match self {
            Self::Name(name) => Some(name),
            Self::Ip(_) => None,
        }
    }
}

fn v6(text: &str) -> Result<IpAddr, HostError> {
    if text.contains('%') {
        return Err(HostError::Zone);
    }
    let address = Ipv6Addr::from_str(text).map_err(|_| HostError::Brackets)?;
    Ok(ip::canonical(address.into()))
}

impl Port {
    /// The port of plain HTTP.
    pub const HTTP: Self = Self(80);
    /// The port of HTTP over TLS.
    pub const HTTPS: Self = Self(443);

    /// A port from its number.
    pub fn new(number: u16) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// Reads digits only.
    ///
    /// # Errors
    /// [`HostError::Port`] for signs, blanks, leading zeros, zero and what is above 65535.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
        if !plain {
            return Err(HostError::Port);
        }
        text.parse().map(Self).map_err(|_| HostError::Port)
    }

    /// Its number.
    pub fn get(self) -> u16 {
        self.0
    }
}

impl Target {
    /// Reads `host:port`, with brackets around IPv6 and no user.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let (host, port) = split_authority(text)?;
        let port = Port::parse(port.ok_or(HostError::NoPort)?)?;
        Ok(Self { host: host_of(host)?, port })
    }

    /// Reads `host` or `host:port`; without a port it is `default`.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn parse_or(text: &str, default: Port) -> Result<Self, HostError> {
        let (host, port) = split_authority(text)?;
        let port = port.map_or(Ok(default), Port::parse)?;
        Ok(Self { host: host_of(host)?, port })
    }
}

/// Splits an authority at the colon before the port; brackets stay on the host.
pub(crate) fn split_authority(text: &str) -> Result<(&str, Option<&str>), HostError> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or(HostError::Brackets)?;
        let (host, rest) = text.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(HostError::Brackets),
        };
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(HostError::Unbracketed),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

/// Reads the host of an authority: brackets only around IPv6, and always around it.
pub(crate) fn host_of(text: &str) -> Result<Host, HostError> {
    match text.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(Some(inner)) if inner.contains(':') => v6(inner).map(Host::Ip),
        Some(_) => Err(HostError::Brackets),
        None if text.contains(':') => Err(HostError::Unbracketed),
        None => Host::parse(text),
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

impl FromStr for Target {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_target_has_one_spelling_or_none() {
        use HostError as E;
        let cases: [(&str, Result<&str, HostError>); 42] = [
            ("example.com:443", Ok("example.com:443")),
            ("EXAMPLE.com.:443", Ok("example.com:443")),
            ("bücher.example:443", Ok("xn--bcher-kva.example:443")),
            ("BÜCHER.example:443", Ok("xn--bcher-kva.example:443")),
            ("xn--bcher-kva.example:443", Ok("xn--bcher-kva.example:443")),
            ("127.0.0.1:80", Ok("127.0.0.1:80")),
            ("[::ffff:127.0.0.1]:80", Ok("127.0.0.1:80")),
            ("[2001:DB8::1]:443", Ok("[2001:db8::1]:443")),
            ("registry:5000", Ok("registry:5000")),
            ("1password.com:443", Ok("1password.com:443")),
            ("0x.com:443", Ok("0x.com:443")),
            ("[example.com]:443", Err(E::Brackets)),
            ("[127.0.0.1]:443", Err(E::Brackets)),
            ("[::1:443", Err(E::Brackets)),
            ("[::1]443", Err(E::Brackets)),
            ("[::1%lo]:443", Err(E::Zone)),
            ("::1:443", Err(E::Unbracketed)),
            ("127.1:80", Err(E::Numeric)),
            ("127.0.0.1.:80", Err(E::Numeric)),
            ("2130706433:80", Err(E::Numeric)),
            ("0x7f.1:80", Err(E::Numeric)),
            ("0x7f000001:80", Err(E::Numeric)),
            ("0177.0.0.1:80", Err(E::Numeric)),
            ("foo.0x10:80", Err(E::Numeric)),
            ("foo.0x:80", Err(E::Numeric)),
            ("foo.16:80", Err(E::Numeric)),
            ("１２７.0.0.1:80", Ok("127.0.0.1:80")),
            ("evil\0.google.com:80", Err(E::Character)),
            ("a_b.example:80", Err(E::Character)),
            ("a b.example:80", Err(E::Character)),
            ("user@example.com:80", Err(E::Character)),
            ("a%2eb.example:80", Err(E::Character)),
            ("example。com:80", Err(E::Idna)),
            ("xn--a.example:80", Err(E::Idna)),
            ("a..b:80", Err(E::EmptyLabel)),
            (".a.b:80", Err(E::EmptyLabel)),
            ("-a.b:80", Err(E::Hyphen)),
            ("*.example.com:80", Err(E::Character)),
            ("example.com:0", Err(E::Port)),
            ("example.com:+80", Err(E::Port)),
            ("example.com:080", Err(E::Port)),
            ("example.com", Err(E::NoPort)),
        ];
        for (text, expected) in cases {
            let found = Target::parse(text).map(|target| target.to_string());
            assert_eq!(found.as_deref(), expected.as_ref().map(|text| &**text), "{text:?}");
        }
        assert_eq!(Target::parse(&format!("{}:1", "a".repeat(64))), Err(E::TooLong));
        assert_eq!(Target::parse(&format!("{}a:1", "ab.".repeat(85))), Err(E::TooLong));
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back_as_itself(text in "[a-zA-Z0-9.\\-:\\[\\]_ü]{0,40}:[0-9]{1,5}") {
            if let Ok(target) = Target::parse(&text) {
                prop_assert_eq!(Target::parse(&target.to_string()), Ok(target));
            }
        }

        #[test]
        fn any_text_is_read_without_a_panic_and_only_to_the_alphabet(text in any::<String>()) {
            if let Ok(Host::Name(name)) = Host::parse(&text) {
                prop_assert!(name.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.'));
                prop_assert!(name.as_str().parse::<IpAddr>().is_err());
            }
        }
    }
}

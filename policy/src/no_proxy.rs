//! Turns the host's `NO_PROXY` into which targets go past its parent proxy (row 71).
//! It refuses to know the proxy.

use std::net::IpAddr;

use crate::host::{Host, Port, Target};

/// The entries that could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoProxy {
    rules: Vec<(Rule, Option<Port>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    All,
    /// A name and everything below it.
    Domain(String),
    /// Addresses with these first bits.
    Network(IpAddr, u8),
}

impl NoProxy {
    /// Reads entries between commas or blanks: `*`, `name`, `.name`, `*.name`, an address or CIDR, each with an optional
    /// port. What is none of these is left out, so that its targets go through the proxy.
    pub fn parse(text: &str) -> Self {
        let entries = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|entry| !entry.is_empty());
        Self { rules: entries.filter_map(rule).collect() }
    }

    /// Whether a target goes past the proxy.
    pub fn covers(&self, target: &Target) -> bool {
        self.rules.iter().any(|(rule, port)| {
            port.is_none_or(|port| port == target.port)
                && match (rule, &target.host) {
                    (Rule::All, _) => true,
                    (Rule::Domain(domain), Host::Name(name)) => {
                        let rest = name.as_str().strip_suffix(domain.as_str());
                        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                    }
                    (Rule::Network(network, bits), Host::Ip(address)) => within(*address, *network, *bits),
                    _ => false,
                }
        })
    }
}

fn rule(entry: &str) -> Option<(Rule, Option<Port>)> {
    if entry == "*" {
        return Some((Rule::All, None));
    }
    if let Some((network, bits)) = entry.split_once('/') {
        let network: IpAddr = network.parse().ok()?;
        let bits: u8 = bits.parse().ok()?;
        return (bits <= width(network)).then_some((Rule::Network(network, bits), None));
    }
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Some((Rule::Network(address, width(address)), None));
    }
    let (host, port) = crate::host::split_authority(entry).ok()?;
    let port = port.map(Port::parse).transpose().ok()?;
    let bare = host.strip_prefix("*.").or_else(|| host.strip_prefix('.')).unwrap_or(host);
    match crate::host::host_of(bare).ok()? {
        Host::Name(name) => Some((Rule::Domain(name.as_str().to_owned()), port)),
        Host::Ip(address) => Some((Rule::Network(address, width(address)), port)),
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let shift = u32::from(width(network) - bits);
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).checked_shr(shift).unwrap_or(0) == 0,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).checked_shr(shift).unwrap_or(0) == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_71_every_common_spelling_is_understood() {
        let cases = [
            ("*", "a.example:443", true),
            ("example.com", "example.com:443", true),
            ("example.com", "www.example.com:443", true),
            ("example.com", "notexample.com:443", false),
            (".example.com", "www.example.com:443", true),
            ("*.example.com", "www.example.com:443", true),
            ("EXAMPLE.com.", "www.example.com:443", true),
            ("a.example, b.example", "b.example:443", true),
            ("a.example b.example", "b.example:443", true),
            ("example.com:8080", "example.com:443", false),
            ("example.com:8080", "example.com:8080", true),
            ("10.0.0.0/8", "10.1.2.3:443", true),
            ("10.0.0.0/8", "11.1.2.3:443", false),
            ("0.0.0.0/0", "11.1.2.3:443", true),
            ("0.0.0.0/0", "a.example:443", false),
            ("10.0.0.1", "10.0.0.1:443", true),
            ("10.0.0.1:80", "10.0.0.1:443", false),
            ("fd00::/8", "[fd12::1]:443", true),
            ("::1", "[::1]:443", true),
            ("[::1]:80", "[::1]:80", true),
            ("10.0.0.0/33", "10.0.0.1:443", false),
            ("", "a.example:443", false),
            ("exa mple.*", "a.example:443", false),
        ];
        for (text, target, expected) in cases {
            let covers = NoProxy::parse(text).covers(&Target::parse(target).unwrap());
            assert_eq!(covers, expected, "{text:?} {target}");
        }
    }
}

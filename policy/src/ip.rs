//! Turns an address into its one spelling and into the class that decides whether it may ever be dialled (N13).
//! It refuses to know names and allowlists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What kind of place an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Anywhere on the internet.
    Public,
    /// RFC 1918, shared carrier space, unique local, and documentation ranges: somebody's own network.
    Private,
    /// This host.
    Loopback,
    /// This link.
    LinkLocal,
    /// A cloud's metadata service: whoever reaches it is the machine.
    Metadata,
    /// Multicast, broadcast, unspecified, reserved and benchmark ranges: nothing to connect to.
    Reserved,
}

/// Metadata services outside link-local space: Alibaba, Azure's host, Oracle, and IPv6 of AWS and Google.
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// The one spelling of an address: an IPv4 address mapped into IPv6 is the IPv4 address.
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The class of an address. One that carries an IPv4 address inside (mapped, compatible, NAT64, 6to4) has that one's
/// class where it is the stricter.
pub fn classify(address: IpAddr) -> Class {
    match canonical(address) {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

fn v4(address: Ipv4Addr) -> Class {
    if METADATA_V4.contains(&address) {
        return Class::Metadata;
    }
    match address.octets() {
        [127, ..] => Class::Loopback,
        [169, 254, ..] => Class::LinkLocal,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Class::Private,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Class::Private,
        [0 | 224..=255, ..] | [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] => Class::Reserved,
        _ => Class::Public,
    }
}

fn v6(address: Ipv6Addr) -> Class {
    if METADATA_V6.contains(&address) {
        return Class::Metadata;
    }
    let [a, b, c, _, _, f, g, h] = address.segments();
    let low = || join(g, h);
    match (a, b, c) {
        _ if address == Ipv6Addr::UNSPECIFIED => Class::Reserved,
        _ if address == Ipv6Addr::LOCALHOST => Class::Loopback,
        (0, 0, 0) if f == 0 => inner(low(), Class::Reserved),
        (0x64, 0xff9b, 0) => inner(low(), Class::Public),
        (0x64, 0xff9b, 1) => inner(low(), Class::Private),
        (0x2002, _, _) => inner(join(b, c), Class::Public),
        (0x2001, 0, _) => inner(Ipv4Addr::from_bits(!low().to_bits()), Class::Reserved),
        (0x2001, 0xdb8, _) | (0x3fff, 0..=0xfff, _) => Class::Private,
        (0xfc00..=0xfdff, _, _) => Class::Private,
        (0xfe80..=0xfebf, _, _) => Class::LinkLocal,
        (0x2000..=0x3fff, _, _) => Class::Public,
        // fec0::/10, multicast, discard, SRv6 and everything that nobody has been given.
        _ => Class::Reserved,
    }
}

fn join(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

/// The stricter of an embedded address's class and of the range that embeds it.
fn inner(address: Ipv4Addr, range: Class) -> Class {
    v4(address).max(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_place_has_its_class() {
        use Class::*;
        let cases = [
            ("8.8.8.8", Public),
            ("2606:4700::1111", Public),
            ("10.1.2.3", Private),
            ("172.15.0.1", Public),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.0.1", Private),
            ("100.64.0.1", Private),
            ("203.0.113.9", Private),
            ("fd12::1", Private),
            ("2001:db8::1", Private),
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("::1", Loopback),
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:10.0.0.1", Private),
            ("::127.0.0.1", Reserved),
            ("64:ff9b::7f00:1", Loopback),
            ("64:ff9b::a9fe:a9fe", Metadata),
            ("64:ff9b::808:808", Public),
            ("2002:7f00:1::", Loopback),
            ("2001:0:1::5601:101", Reserved),
            ("169.254.1.1", LinkLocal),
            ("fe80::1", LinkLocal),
            ("169.254.169.254", Metadata),
            ("::ffff:169.254.169.254", Metadata),
            ("fd00:ec2::254", Metadata),
            ("168.63.129.16", Metadata),
            ("100.100.100.200", Metadata),
            ("0.0.0.0", Reserved),
            ("0.1.2.3", Reserved),
            ("::", Reserved),
            ("224.0.0.1", Reserved),
            ("255.255.255.255", Reserved),
            ("240.0.0.1", Reserved),
            ("198.18.0.1", Reserved),
            ("198.19.255.255", Reserved),
            ("ff02::1", Reserved),
            ("fec0::1", Reserved),
        ];
        for (text, class) in cases {
            assert_eq!(classify(text.parse().unwrap()), class, "{text}");
        }
    }

    #[test]
    fn a_mapped_address_is_its_ipv4_address() {
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(canonical(mapped).to_string(), "192.0.2.1");
    }
}

use proptest::prelude::*;

use super::*;
use crate::endpoint::{Endpoint, Pattern};
use crate::host::{Host, Target};
use crate::reason::Reason;

const CURL: &str = "/usr/bin/curl";

fn declared(endpoints: &[&str]) -> Declared {
    Declared {
        endpoints: endpoints.iter().map(|text| Endpoint::parse(text).unwrap()).collect(),
        binaries: vec![BinaryPath::parse(CURL).unwrap()],
        inherit_defaults: false,
    }
}

fn list(endpoints: &[&str]) -> Egress {
    Egress::resolve(&declared(endpoints), &[])
}

fn curl() -> Caller {
    Caller::Known(vec![Process::new(CURL)])
}

fn decide(egress: &Egress, way: Way, target: &str, method: Option<&str>) -> Result<Carry, Reason> {
    let target = Target::parse(target).unwrap();
    let ask = Ask { way, target: &target, caller: &curl(), method };
    egress.decide(&ask).map(|grant| grant.carry).map_err(|denial| denial.reason)
}

#[test]
fn rows_1_to_21_a_target_is_judged_in_its_one_spelling() {
    let egress = list(&[
        "example.com:443:full",
        "*.wild.example:443:full",
        "**.deep.example:443:full",
        "127.0.0.1:5173:full",
        "10.0.0.7:443:full",
    ]);
    let cases = [
        ("example.com.:443", Ok(Carry::Tls)),
        ("EXAMPLE.COM:443", Ok(Carry::Tls)),
        ("notexample.com:443", Err(Reason::HostNotListed)),
        ("www.example.com:443", Err(Reason::HostNotListed)),
        ("example.com:80", Err(Reason::PortNotListed)),
        ("a.wild.example:443", Ok(Carry::Tls)),
        ("a.b.wild.example:443", Err(Reason::HostNotListed)),
        ("wild.example:443", Err(Reason::HostNotListed)),
        ("a.b.deep.example:443", Ok(Carry::Tls)),
        ("deep.example:443", Err(Reason::HostNotListed)),
        ("127.0.0.1:5173", Ok(Carry::Tls)),
        ("[::ffff:127.0.0.1]:5173", Ok(Carry::Tls)),
        ("127.0.0.1:5174", Err(Reason::PortNotListed)),
        ("127.0.0.2:5173", Err(Reason::HostNotListed)),
        ("localhost:5173", Err(Reason::HostNotListed)),
        ("10.0.0.7:443", Ok(Carry::Tls)),
        ("93.184.216.34:443", Err(Reason::HostNotListed)),
    ];
    for (target, expected) in cases {
        assert_eq!(decide(&egress, Way::Connect, target, None), expected, "{target}");
        let plain = decide(&egress, Way::Forward, target, Some("GET"));
        assert_eq!(plain.is_ok(), expected.is_ok(), "row 22, {target}: the same verdict over plain HTTP");
        assert_eq!(plain.err(), expected.err(), "{target}");
        assert_eq!(decide(&egress, Way::Transparent, target, None).err(), expected.err(), "{target}");
    }
}

#[test]
fn row_15_the_most_specific_entry_decides_alone() {
    let egress = list(&[
        "**.example.com:80:full",
        "*.example.com:80:read-write",
        "api-*.example.com:80:read-only",
        "api-one.example.com:80:full",
        "api-two.example.com:443:full",
    ]);
    let cases = [
        ("api-one.example.com:80", "DELETE", Ok(Carry::Http)),
        ("api-two.example.com:80", "GET", Ok(Carry::Http)),
        ("api-two.example.com:80", "POST", Err(Reason::MethodNotCovered)),
        ("www.example.com:80", "POST", Ok(Carry::Http)),
        ("www.example.com:80", "DELETE", Err(Reason::MethodNotCovered)),
        ("a.b.example.com:80", "DELETE", Ok(Carry::Http)),
    ];
    for (target, method, expected) in cases {
        assert_eq!(decide(&egress, Way::Forward, target, Some(method)), expected, "{method} {target}");
    }
}

#[test]
fn rows_23_32_what_is_spoken_follows_from_the_protocol_and_the_way() {
    let egress = list(&[
        "a.example:80:read-only",
        "b.example:22:full:tcp",
        "c.example:443:full:rest",
        "d.example:80:read-only:rest:audit",
        "e.example:80:full:websocket",
    ]);
    let cases = [
        ("a.example:80", Way::Forward, Some("GET"), Ok(Carry::Http)),
        ("a.example:80", Way::Forward, Some("POST"), Err(Reason::MethodNotCovered)),
        ("a.example:80", Way::Transparent, None, Ok(Carry::Http)),
        ("a.example:80", Way::Connect, None, Err(Reason::NeedsTermination)),
        ("b.example:22", Way::Connect, None, Ok(Carry::Raw)),
        ("b.example:22", Way::Transparent, None, Ok(Carry::Raw)),
        ("c.example:443", Way::Connect, None, Err(Reason::NeedsTermination)),
        ("d.example:80", Way::Forward, Some("POST"), Ok(Carry::Http)),
        ("d.example:80", Way::Connect, None, Err(Reason::NeedsTermination)),
        ("e.example:80", Way::Forward, Some("GET"), Err(Reason::NeedsTermination)),
    ];
    for (target, way, method, expected) in cases {
        assert_eq!(decide(&egress, way, target, method), expected, "{way:?} {target} {method:?}");
    }
    let target = Target::parse("d.example:80").unwrap();
    let ask = Ask { way: Way::Forward, target: &target, caller: &curl(), method: Some("POST") };
    assert_eq!(egress.decide(&ask).unwrap().audited, Some(Reason::MethodNotCovered));
}

#[test]
fn n13_an_address_is_dialled_by_its_class_and_its_entry() {
    let declared = declared(&[
        "in.example:443:full",
        "*.wild.example:443:full",
        "localhost:80:full",
        "10.0.0.7:443:full",
    ]);
    let broker = BrokerUrl::parse("http://host.internal:8080").unwrap();
    let egress = Egress::resolve(&declared, &[broker.plumbing()]);
    let [named, wild, local, literal, plumbing] = egress.entries() else { panic!("five entries") };
    let cases = [
        ("93.184.216.34", [Ok(()); 5]),
        ("10.0.0.7", [Ok(()), Err(Reason::AddressPrivate), Ok(()), Ok(()), Ok(())]),
        (
            "127.0.0.1",
            [
                Err(Reason::AddressLoopback),
                Err(Reason::AddressLoopback),
                Ok(()),
                Err(Reason::AddressLoopback),
                Ok(()),
            ],
        ),
        (
            "::ffff:127.0.0.1",
            [
                Err(Reason::AddressLoopback),
                Err(Reason::AddressLoopback),
                Ok(()),
                Err(Reason::AddressLoopback),
                Ok(()),
            ],
        ),
        ("169.254.169.254", [Err(Reason::AddressMetadata); 5]),
        ("169.254.7.7", [Err(Reason::AddressLinkLocal); 5]),
        ("198.18.0.1", [Err(Reason::AddressReserved); 5]),
    ];
    for (ip, expected) in cases {
        for (entry, expected) in [named, wild, local, literal, plumbing].into_iter().zip(expected) {
            assert_eq!(address(entry, ip.parse().unwrap()), expected, "{ip} under {}", entry.endpoint);
        }
    }
}

#[test]
fn a_builtin_leads_to_private_addresses_only_when_the_manifest_names_its_host() {
    let mut declared = declared(&["github.com:443:full"]);
    declared.inherit_defaults = true;
    let egress = Egress::resolve(&declared, &[]);
    let private = "10.0.0.1".parse().unwrap();
    let find = |host: &str| egress.entries().iter().find(|e| e.endpoint.pattern.to_string() == host).unwrap();
    assert_eq!(find("github.com").source.label(), "builtin");
    assert_eq!(address(find("github.com"), private), Ok(()));
    assert_eq!(address(find("pypi.org"), private), Err(Reason::AddressPrivate));
}

#[test]
fn built_ins_are_kept_or_gone_as_a_whole_and_the_broker_stays() {
    let mut inherit = declared(&["github.com:443:full", "my.example:443:full"]);
    inherit.inherit_defaults = true;
    let broker = BrokerUrl::parse("http://[::1]/").unwrap();
    let with = Egress::resolve(&inherit, &[broker.plumbing()]);
    assert_eq!(with.entries().len(), BUILTIN_ENDPOINTS.len() + 2);
    let air = Egress::resolve(&Declared::default(), &[broker.plumbing()]);
    assert_eq!(air.entries().len(), 1);
    assert_eq!(air.entries()[0].endpoint.to_string(), "[::1]:80:full");
    assert_eq!(air.entries()[0].source.to_string(), "engine:broker");
    assert_eq!(Egress::resolve(&Declared::default(), &[]).entries().len(), 0);
    inherit.inherit_defaults = false;
    assert!(Egress::resolve(&inherit, &[]).entries().iter().all(|entry| entry.source == Source::Manifest));
}

#[test]
fn every_builtin_reads() {
    for row in BUILTIN_ENDPOINTS {
        assert_eq!(Endpoint::parse(row.endpoint).unwrap().to_string(), row.endpoint);
    }
    for path in BUILTIN_BINARIES {
        BinaryPath::parse(path).unwrap();
    }
}

#[test]
fn a_broker_url_gives_its_host_and_port() {
    let cases = [
        ("http://broker.internal", Some("broker.internal:80")),
        ("https://broker.internal/mcp", Some("broker.internal:443")),
        ("HTTP://Broker.Internal:8080/x?y", Some("broker.internal:8080")),
        ("http://[fd00::1]:99", Some("[fd00::1]:99")),
        ("http://[fd00::1]", Some("[fd00::1]:80")),
        ("http://user@broker.internal", None),
        ("ftp://broker.internal", None),
        ("broker.internal:80", None),
        ("http://", None),
        ("http://fd00::1", None),
    ];
    for (text, expected) in cases {
        let found = BrokerUrl::parse(text).ok().map(|url| url.target.to_string());
        assert_eq!(found.as_deref(), expected, "{text}");
    }
}

#[test]
fn a_document_reads_back_with_the_same_hash() {
    let mut declared = declared(&[
        "*.x.example:443:full",
        "localhost:80:full",
        "[2001:db8::1]:443:full",
        "a.example:80:read-only:rest:audit",
    ]);
    declared.inherit_defaults = true;
    let egress = Egress::resolve(&declared, &[BrokerUrl::parse("http://b.example").unwrap().plumbing()]);
    let text = serde_json::to_string(&egress.document()).unwrap();
    let read = serde_json::from_str::<Document>(&text).unwrap().read().unwrap();
    assert_eq!(read.entries(), egress.entries());
    assert_eq!(read.hash(), egress.hash());
    let other: Document = serde_json::from_str(&text.replace("\"version\":1", "\"version\":9")).unwrap();
    assert_eq!(other.read().unwrap_err(), DocumentError::Version(9));
    let broken: Document =
        serde_json::from_str(&text.replace("localhost:80:full", "169.254.169.254:80:full")).unwrap();
    assert!(matches!(broken.read(), Err(DocumentError::Entry(_))), "row 14");
}

#[test]
fn what_the_gateway_makes_follows_from_the_list() {
    let egress = list(&[
        "a.example:443:full",
        "b.example:22:full:tcp",
        "localhost:5173:full",
        "127.0.0.1:6000:full",
        "10.0.0.7:8011:full",
    ]);
    let ports: Vec<u16> = egress.transparent_ports().into_iter().map(|port| port.get()).collect();
    assert_eq!(ports, [22, 443, 8011]);
    let listeners: Vec<String> =
        egress.loopback_listeners().iter().map(|(at, to)| format!("{at} {to}")).collect();
    assert_eq!(
        listeners,
        ["127.0.0.1:5173 localhost:5173", "[::1]:5173 localhost:5173", "127.0.0.1:6000 127.0.0.1:6000"]
    );
    assert_eq!(egress.addresses().len(), 1);
}

#[test]
fn lints_name_what_will_not_do_what_was_meant() {
    let mut declared = declared(&[
        "a.example:80:full",
        "a.example:80:read-only",
        "b.example:443:read-only",
        "*.c.example:443:full",
        "x.c.example:443:full",
        "d.example:443:full",
        "d.example:443:full",
        "metadata.google.internal:80:full",
    ]);
    declared.binaries.push(BinaryPath::parse("/usr/bin/python3.11").unwrap());
    declared.inherit_defaults = true;
    let egress = Egress::resolve(&declared, &[]);
    let goal = Some("Fix acme/widget#12 in the parser");
    let paths = ["/var/run/docker.sock".to_owned(), "/opt/tool".to_owned(), "/run/".to_owned()];
    let found = lints(&egress, &declared, goal, &paths);
    let kinds: Vec<(LintKind, &str)> = found.iter().map(|lint| (lint.kind, lint.subject.as_str())).collect();
    assert_eq!(
        kinds,
        [
            (LintKind::Shadowed, "a.example:80:read-only"),
            (LintKind::CannotWork, "b.example:443:read-only"),
            (LintKind::CannotWork, "metadata.google.internal:80:full"),
            (LintKind::Shadowed, "d.example:443:full"),
            (LintKind::ForgeReachable, "github.com:443:full"),
            (LintKind::Interpreter, "/usr/bin/python3.11"),
            (LintKind::ContainerSocket, "/var/run/docker.sock"),
            (LintKind::ContainerSocket, "/run/"),
        ]
    );
    let empty = Declared { binaries: Vec::new(), ..self::declared(&["a.example:443:full"]) };
    let found = lints(&Egress::resolve(&empty, &[]), &empty, Some("make it faster #1"), &[]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].kind, LintKind::CannotWork);
}

/// Every pattern against every host, without an index.
fn plainly(egress: &Egress, target: &Target) -> bool {
    egress
        .entries()
        .iter()
        .any(|entry| entry.endpoint.port == target.port && entry.endpoint.pattern.matches(&target.host))
}

proptest! {
    #[test]
    fn the_index_finds_what_a_plain_search_finds(
        patterns in proptest::collection::vec("(a|b|\\*|\\*\\*|a\\*|\\*b|a\\*b)(\\.(a|b|ab)){2,3}", 1..12),
        hosts in proptest::collection::vec("(a|b|ab|aab|abb)(\\.(a|b|ab)){1,4}", 1..12),
    ) {
        let endpoints: Vec<String> = patterns.iter().map(|pattern| format!("{pattern}:443:full")).collect();
        let egress = list(&endpoints.iter().map(String::as_str).collect::<Vec<_>>());
        for host in hosts {
            let target = Target::parse(&format!("{host}:443")).unwrap();
            let ask = Ask { way: Way::Connect, target: &target, caller: &curl(), method: None };
            prop_assert_eq!(egress.decide(&ask).is_ok(), plainly(&egress, &target), "{}", host);
            prop_assert_eq!(egress.knows(&target.host), plainly(&egress, &target));
        }
    }

    #[test]
    fn a_wildcard_never_matches_an_address(octets in any::<[u8; 4]>()) {
        let host = Host::Ip(octets.into());
        prop_assert!(!Pattern::parse("*.b.c").unwrap().matches(&host));
    }
}

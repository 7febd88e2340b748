//! Turns every spelling of a host, with every port, by every way into one verdict, seen from inside a sandbox.

use policy::reason::Reason;

use crate::Test;
use crate::expected::{Attempt, By, Judge, Outcome, caller, compare};
use crate::lab::{decisions, listed, pack, probe, probed};
use crate::server::{PORTS, World};

pub(crate) const TESTS: &[Test] = &[
    ("rows_1_to_32_one_verdict_for_each_host_and_port_by_every_way", hosts),
    ("row_23_32_methods_are_judged_where_they_can_be_seen", methods),
];

const LISTS: &str = r#"inherit_defaults = false
endpoints = [
    "a.test:80:full", "a.test:443:full", "bücher.test:443:full:tcp",
    "*.wild.test:80:full", "*.wild.test:443:full", "**.deep.test:80:full",
    "named.test:80:full", "metadata.test:80:full", "link.test:80:full", "loop.test:80:full", "zero.test:80:full",
    "nat.test:80:full", "two.test:80:full", "gone.test:80:full", "203.0.113.9:443:full", "127.0.0.1:5173:full",
    "localhost:5174:full:tcp",
]
binaries = ["/usr/bin/python3"]
"#;

/// What clients may write where a host belongs.
const HOSTS: [&str; 50] = [
    // Row 1: one name, however it is spelled.
    "a.test",
    "A.TEST",
    "a.test.",
    "bücher.test",
    "xn--bcher-kva.test",
    // Row 2: brackets are for IPv6 alone.
    "[a.test]",
    "[203.0.113.9]",
    // Row 5: what is no name.
    "evil\0.a.test",
    "a.test\u{1}",
    "a_b.test",
    "a..test",
    "-a.test",
    "a.test/x",
    "u@a.test",
    "a.test%00",
    "*.wild.test",
    // Row 6: labels are whole.
    "nota.test",
    "b.a.test",
    "a.test.evil.test",
    "test",
    "x.wild.test",
    "y.x.wild.test",
    "wild.test",
    "x.y.deep.test",
    // Rows 8, 9, 17, 21: addresses are names of their own, in one spelling.
    "203.0.113.9",
    "[::ffff:203.0.113.9]",
    "203.0.113.5",
    "93.184.216.10",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::]",
    "0.0.0.0",
    // Row 12: what a C library would read as an address.
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0x7f.1",
    "203.0.113.09",
    "127.0.0.1.",
    // Row 14, N13: where a name may lead.
    "private.wild.test",
    "metadata.wild.test",
    "loop.wild.test",
    "named.test",
    "metadata.test",
    "link.test",
    "loop.test",
    "zero.test",
    "nat.test",
    "two.test",
    "gone.test",
];
/// Where all of it leads.
const REACHED: [&str; 11] = [
    "10.0.0.10:80",
    "93.184.216.10:80",
    "93.184.216.10:443",
    "93.184.216.11:443",
    "93.184.216.12:80",
    "93.184.216.12:443",
    "93.184.216.14:80",
    "93.184.216.15:80",
    "127.0.0.1:5173",
    "127.0.0.1:5174",
    "203.0.113.9:443",
];
/// Rows 16 and 72: what names this host.
const LOCAL: [&str; 4] = ["127.0.0.1", "localhost", "127.0.0.2", "LOCALHOST."];

fn hosts(world: &World) {
    let hosts = HOSTS.iter().chain(&LOCAL);
    let attempts: Vec<Attempt> = hosts.flat_map(|host| Attempt::every(host, &PORTS, "GET")).collect();
    let pack = pack(world, probe(), LISTS);
    let egress = listed(&pack);
    let judge = Judge { egress: &egress, caller: caller() };
    // A connection to an address does not tell by which of its names it was meant, and both are this host.
    let this_host = ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::]", "0.0.0.0"];
    let by_address = |attempt: &Attempt| {
        this_host.contains(&attempt.host.as_str()) && [5173, 5174].contains(&attempt.port)
    };
    let same = |one: &Attempt, other: &Attempt| (&one.host, one.port) == (&other.host, other.port);
    for alike in attempts.chunk_by(same).filter(|alike| !by_address(&alike[0])) {
        one_verdict(alike, &alike.iter().map(|attempt| judge.of(attempt)).collect::<Vec<_>>());
    }
    world.came();
    let results = probed(&pack, attempts.iter().map(Attempt::json));
    let came = world.came();
    compare(&judge, &attempts, &results, &decisions(&pack), &came);
    let came: Vec<String> = came.iter().map(ToString::to_string).collect();
    assert_eq!(came, REACHED, "by hand, and not by the policy");
}

/// Whatever the client speaks and whichever way it goes, the answer is the same. Without a proxy it may be that nothing is
/// there at all, which is a refusal without words.
fn one_verdict(alike: &[Attempt], outcomes: &[Outcome]) {
    let verdicts: Vec<bool> = outcomes.iter().map(|outcome| outcome.reached).collect();
    assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{alike:?}: {outcomes:?}");
    let told: Vec<Reason> = outcomes.iter().filter_map(|outcome| outcome.told).collect();
    let first = told.first();
    // What calls this host by another of its names arrives at an address, and is then told that the two differ.
    let this_host = ["localhost", "LOCALHOST.", "[::]", "0.0.0.0"].contains(&alike[0].host.as_str());
    assert!(this_host || told.iter().all(|reason| Some(reason) == first), "{alike:?}: {outcomes:?}");
}

fn methods(world: &World) {
    let lists = r#"inherit_defaults = false
endpoints = ["a.test:80:read-only", "x.wild.test:80:read-write", "named.test:80:full:rest", "two.test:80:read-only:rest:audit"]
binaries = ["/usr/bin/python3"]
"#;
    let mut attempts = Vec::new();
    for host in ["a.test", "x.wild.test", "named.test", "two.test"] {
        // An answer to HEAD has no body that a page could be known by.
        for method in ["GET", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "BREW"] {
            attempts.extend(Attempt::every(host, &[80], method));
        }
    }
    let pack = pack(world, probe(), lists);
    let egress = listed(&pack);
    let judge = Judge { egress: &egress, caller: caller() };
    for attempt in &attempts {
        let tls = matches!(attempt.by, By::Connect | By::DirectTls);
        assert!(
            !(tls && judge.of(attempt).reached),
            "row 32: no request can be judged inside TLS: {attempt:?}"
        );
    }
    world.came();
    let results = probed(&pack, attempts.iter().map(Attempt::json));
    let records = decisions(&pack);
    let audited =
        records.iter().filter(|record| record["verdict"] == "allow" && record["reason"].is_string());
    assert!(audited.count() >= 8, "what an entry audits passes and is told");
    let strict: Vec<_> = records
        .iter()
        .cloned()
        .map(|mut record| {
            if record["verdict"] == "allow" {
                record.as_object_mut().unwrap().remove("reason");
            }
            record
        })
        .collect();
    compare(&judge, &attempts, &results, &strict, &world.came());
}

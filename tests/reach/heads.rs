//! Turns heads, hellos and bodies that are not plain into bytes from inside a sandbox, the same by every way that reads them.

use policy::reason::Reason;
use serde_json::{Value, json};

use crate::Test;
use crate::lab::{decisions, pack, probe, probed};
use crate::server::World;

pub(crate) const TESTS: &[Test] = &[
    ("rows_38_to_55_what_is_not_plain_reaches_no_server_by_any_way", refused),
    ("rows_38_to_43_a_hello_names_the_target_or_nothing_flows", hellos),
    ("rows_50_52_bodies_arrive_whole_by_both_ways_that_read_them", bodies),
];

const LISTS: &str = r#"inherit_defaults = false
endpoints = ["a.test:80:full", "a.test:443:full", "203.0.113.9:443:full"]
binaries = ["/usr/bin/python3"]
"#;

/// A request with these lines after its `Host`, by tunnel, to the proxy, and past it.
fn three(lines: &str) -> [Value; 3] {
    [
        json!({"way": "raw", "bytes": format!("CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n{lines}\r\n")}),
        json!({"way": "raw", "bytes": format!("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n0\r\n\r\n")}),
        direct(&format!("POST / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n0\r\n\r\n")),
    ]
}

fn direct(bytes: &str) -> Value {
    json!({"way": "raw-direct", "host": "a.test", "port": 80, "address": null, "bytes": bytes})
}

fn proxied(bytes: &str) -> Value {
    json!({"way": "raw", "bytes": bytes})
}

fn refused(world: &World) {
    use Reason::*;
    let long = format!("X-Forwarded-For: {}\r\n", "1, ".repeat(22_000));
    let lines = [
        // Rows 44 to 47, 51: how long the body is.
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", FramingInvalid),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", FramingInvalid),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", FramingInvalid),
        ("Transfer-Encoding: chunked,\r\n", FramingInvalid),
        ("Transfer-Encoding: xchunked\r\n", FramingInvalid),
        ("Transfer-Encoding:\tchunked\x0b\r\n", HeadMalformed),
        ("Transfer-Encoding: gzip, chunked\r\n", CodingNotServed),
        ("Transfer-Encoding : chunked\r\n", HeadMalformed),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", FramingInvalid),
        ("Content-Length: +1\r\n", FramingInvalid),
        ("Content-Length: 99999999999999999999\r\n", FramingInvalid),
        // What no reader may repair.
        ("X: a\r\n b\r\n", HeadMalformed),
        ("X: a\nTransfer-Encoding: chunked\r\n", HeadMalformed),
        ("X: a\rb\r\n", HeadMalformed),
        ("X: a\0b\r\n", HeadMalformed),
        ("no colon\r\n", HeadMalformed),
        (": no name\r\n", HeadMalformed),
        ("Host: b.test\r\n", HeadMalformed),
        // Row 54.
        (&long, HeadTooLarge),
    ];
    let mut attempts = Vec::new();
    for (lines, reason) in lines {
        attempts.extend(three(lines).map(|attempt| (attempt, reason)));
    }
    let http = |line: &str, host: &str| format!("{line}\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
    attempts.extend([
        // Row 38: the target and the Host differ.
        (proxied(&http("CONNECT a.test:443 HTTP/1.1", "b.test:443")), HostMismatch),
        (proxied(&http("GET http://a.test/ HTTP/1.1", "b.test")), HostMismatch),
        (direct(&http("GET / HTTP/1.1", "b.test")), HostMismatch),
        (direct(&http("GET http://b.test/ HTTP/1.1", "b.test")), HostMismatch),
        // Row 55: schemes, and forms in the wrong place.
        (proxied(&http("GET gopher://a.test/ HTTP/1.1", "a.test")), SchemeInvalid),
        (proxied(&http("GET file:///etc/passwd HTTP/1.1", "a.test")), SchemeInvalid),
        (proxied(&http("GET https://a.test/ HTTP/1.1", "a.test")), NeedsTermination),
        (proxied(&http("GET / HTTP/1.1", "a.test")), TargetInvalid),
        (proxied(&http("GET http://a.test/ HTTP/3.0", "a.test")), VersionInvalid),
        (direct(&http("GET / HTTP/3.0", "a.test")), VersionInvalid),
        (proxied("POST http://a.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), FramingInvalid),
        (direct("POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"), FramingInvalid),
    ]);
    let pack = pack(world, probe(), LISTS);
    world.came();
    let results = probed(&pack, attempts.iter().map(|(attempt, _)| attempt.clone()));
    let records = decisions(&pack);
    assert_eq!(records.len(), attempts.len(), "row 62: each has exactly one record");
    for (((attempt, reason), result), record) in
        attempts.iter().zip(results.as_array().unwrap()).zip(&records)
    {
        let shown: String = attempt["bytes"].as_str().unwrap().chars().take(120).collect();
        let told = (&result["status"], &result["reason"]);
        assert_eq!(told, (&reason.status().into(), &reason.token().into()), "{shown:?}: {result}");
        let recorded = (&record["verdict"], &record["reason"]);
        assert_eq!(recorded, (&"deny".into(), &reason.token().into()), "{shown:?}: {record}");
    }
    assert!(world.came().is_empty(), "nobody was connected to");
}

fn hellos(world: &World) {
    let cases = [
        ("a.test", None, "a.test", None),
        ("a.test", None, "b.a.test", Some("sni-mismatch")),
        ("a.test", None, "wild.test", Some("sni-mismatch")),
        // A name that is an address is not sent.
        ("a.test", None, "93.184.216.10", Some("sni-absent")),
        ("203.0.113.9", Some("203.0.113.9"), "203.0.113.9", None),
        ("203.0.113.9", Some("203.0.113.9"), "a.test", Some("sni-unexpected")),
    ];
    let both = cases.iter().flat_map(|(host, address, server, reason)| {
        // Row 40: over many records a hello says the same.
        [("connect", false), ("direct-tls", false), ("connect", true), ("direct-tls", true)].map(
            |(way, split)| {
                let hello = json!({"way": way, "host": host, "port": 443, "method": "GET", "address": address,
                "server": server, "split": split});
                (hello, *reason)
            },
        )
    });
    let attempts: Vec<(Value, Option<&str>)> = both.collect();
    let pack = pack(world, probe(), LISTS);
    let results = probed(&pack, attempts.iter().map(|(attempt, _)| attempt.clone()));
    let records = decisions(&pack);
    let mut records = records.iter();
    for ((attempt, reason), result) in attempts.iter().zip(results.as_array().unwrap()) {
        assert_eq!(result["reached"], reason.is_none(), "{attempt}: {result}");
        // A tunnel is let through before there is a hello, and cut by it.
        if attempt["way"] == "connect" || reason.is_none() {
            assert_eq!(records.next().unwrap()["verdict"], "allow", "{attempt}");
        }
        if let Some(reason) = reason {
            let record = records.next().unwrap();
            assert_eq!(
                (&record["verdict"], &record["reason"]),
                (&"deny".into(), &(*reason).into()),
                "{attempt}"
            );
        }
    }
    assert_eq!(records.next(), None);
}

fn bodies(world: &World) {
    let cases = [
        ("DELETE", "Transfer-Encoding: chunked", "5;x=y\r\nhel\0o\r\n0\r\nSum: 1\r\n\r\n", 5),
        ("OPTIONS", "Transfer-Encoding: chunked", "0\r\n\r\n", 0),
        ("GET", "Content-Length: 4", "body", 4),
        ("GET", "Transfer-Encoding: chunked", "4\r\nbody\r\n0\r\n\r\n", 4),
        ("POST", "Content-Length: 0", "", 0),
    ];
    let mut attempts = Vec::new();
    for (method, field, body, _) in cases {
        let rest = format!("HTTP/1.1\r\nHost: a.test\r\n{field}\r\n\r\n{body}");
        attempts.push(proxied(&format!("{method} http://a.test/ {rest}")));
        attempts.push(direct(&format!("{method} / {rest}")));
    }
    let pack = pack(world, probe(), LISTS);
    let results = probed(&pack, attempts.into_iter());
    for (pair, (method, _, body, length)) in results.as_array().unwrap().chunks(2).zip(cases) {
        for result in pair {
            assert_eq!(result["said"], format!("hello {method} a.test {length}\n"), "{body:?}: {result}");
        }
    }
}

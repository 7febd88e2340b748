//! Turns the rows about hosts, addresses and ways in into targets that pass or are denied, by every way alike.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::Test;
use crate::lab::{Lab, Plan, Reply, echo, hello, http, origin, run, take};

pub(crate) const TESTS: &[Test] = &[
    ("rows_1_to_22_one_verdict_by_every_way", rows_1_to_22_one_verdict_by_every_way),
    ("row_16_72_an_entry_that_names_loopback_opens_just_that", row_16_72_loopback),
    ("row_17_21_an_address_is_denied_unless_listed", row_17_21_addresses),
    ("row_18_a_dead_family_does_not_stop_the_other", row_18_families),
    ("row_19_a_name_is_resolved_once_and_only_that_is_dialled", row_19_flipping),
    ("row_20_n13_a_name_that_leads_inside_is_denied", n13_classes),
    ("row_27_a_refusal_shows_the_policy_in_force", row_27_reload),
    ("row_30_a_denied_name_is_never_resolved", row_30_names),
    ("row_25_85_a_program_that_is_not_listed_gets_nothing", binaries),
    ("row_95_a_parent_proxy_is_told_the_name", row_95_parent),
];

/// Asks for a target by one way and gives the reason in the record, none for a yes.
async fn tried(lab: &Lab, way: &str, name: &str, port: u16) -> Option<String> {
    let before = lab.decisions().len();
    match way {
        "connect" => drop(lab.connect(&format!("{name}:{port}")).await),
        "forward" => drop(lab.get(&format!("{name}:{port}"), "/").await),
        _ => {
            if let Some(ip) = lab.lookup(name).await
                && let Ok(mut stream) = TcpStream::connect((ip, port)).await
            {
                let text = format!("GET / HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\n\r\n");
                stream.write_all(text.as_bytes()).await.unwrap();
                Reply::read(&mut stream).await;
            }
        }
    }
    let decisions = lab.decisions();
    assert_eq!(decisions.len(), before + 1, "row 62: {way} {name} has exactly one record");
    lab.verdict()
}

fn rows_1_to_22_one_verdict_by_every_way() {
    run(async {
        let lab =
            Lab::new(&["a.example:80:full", "*.wild.example:80:full", "**.deep.example:80:read-only"]).await;
        let (_, origin) = http("93.184.216.5:80", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        for name in ["a.example", "x.wild.example", "x.y.deep.example"] {
            lab.names.put(name, &["93.184.216.5"]);
        }
        let cases = [
            ("a.example", None),
            ("A.EXAMPLE", None),
            ("x.wild.example", None),
            ("x.y.wild.example", Some("host-not-listed")),
            ("wild.example", Some("host-not-listed")),
            ("nota.example", Some("host-not-listed")),
            ("a.example.evil.org", Some("host-not-listed")),
            ("b.a.example", Some("host-not-listed")),
        ];
        for (name, expected) in cases {
            for way in ["connect", "forward", "transparent"] {
                assert_eq!(tried(&lab, way, name, 80).await.as_deref(), expected, "{way} {name}");
            }
        }
        for way in ["forward", "transparent"] {
            assert_eq!(tried(&lab, way, "x.y.deep.example", 80).await, None, "row 23: GET, {way}");
        }
        let post =
            "POST http://x.y.deep.example/ HTTP/1.1\r\nHost: x.y.deep.example\r\nContent-Length: 0\r\n\r\n";
        let reply = lab.send(post.as_bytes()).await.1;
        assert_eq!((reply.status, reply.reason().as_deref()), (403, Some("method-not-covered")), "row 23");
        let reply = lab.connect("x.y.deep.example:80").await.1;
        assert_eq!((reply.status, reply.reason().as_deref()), (403, Some("needs-termination")), "row 32");
        for text in
            ["[a.example]", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "a_b.example", "u@a.example"]
        {
            let reply = lab.connect(&format!("{text}:80")).await.1;
            assert_eq!((reply.status, reply.reason().as_deref()), (400, Some("host-invalid")), "{text:?}");
            let text = format!("GET http://{text}/ HTTP/1.1\r\nHost: a.example\r\n\r\n");
            assert_eq!(lab.send(text.as_bytes()).await.1.status, 400, "{text:?}");
        }
        assert_eq!(lab.connect("evil\0.a.example:80").await.1.status, 400, "row 5");
        for record in lab.decisions().iter().filter(|record| record["verdict"] == "allow") {
            assert_eq!(
                record["target"].as_str().unwrap().to_lowercase(),
                record["target"],
                "row 1: one spelling in the record"
            );
        }
        origin.abort();
    });
}

fn row_16_72_loopback() {
    run(async {
        let lab = Lab::new(&["127.0.0.1:5173:full"]).await;
        let _service = http("127.0.0.1:5173", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        assert_eq!(lab.get("127.0.0.1:5173", "/").await.status, 200);
        let mut stream = TcpStream::connect("127.0.0.1:5173").await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:5173\r\n\r\n").await.unwrap();
        assert_eq!(Reply::read(&mut stream).await.body, "ok", "row 72: without the proxy too");
        let reply = lab.get("127.0.0.1:5174", "/").await;
        assert_eq!(reply.reason().as_deref(), Some("port-not-listed"));
        let reply = lab.get("127.0.0.2:5173", "/").await;
        assert_eq!(reply.reason().as_deref(), Some("host-not-listed"));
        let reply = lab.get("localhost:5173", "/").await;
        assert_eq!(reply.reason().as_deref(), Some("host-not-listed"));
        let mapped = lab.connect("[::ffff:127.0.0.1]:5173").await;
        assert_eq!(mapped.1.status, 200, "row 8");
        let mut stream = TcpStream::connect("127.0.0.1:5173").await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n").await.unwrap();
        assert_eq!(Reply::read(&mut stream).await.reason().as_deref(), Some("host-mismatch"));
    });
}

fn row_17_21_addresses() {
    run(async {
        let lab = Lab::new(&["a.example:443:full", "203.0.113.9:443:full"]).await;
        lab.names.put("a.example", &["203.0.113.5"]);
        let (_one, _two) = (echo("203.0.113.5:443").await, echo("203.0.113.9:443").await);
        assert_eq!(
            lab.connect("203.0.113.5:443").await.1.reason().as_deref(),
            Some("host-not-listed"),
            "row 21"
        );
        let (mut stream, reply) = lab.connect("203.0.113.9:443").await;
        assert_eq!(reply.status, 200, "row 17");
        let bytes = hello(None, 9000);
        stream.write_all(&bytes).await.unwrap();
        assert_eq!(take(&mut stream, bytes.len()).await, bytes);
        let (mut stream, _) = lab.connect("203.0.113.9:443").await;
        stream.write_all(&hello(Some("a.example"), 9000)).await.unwrap();
        assert_eq!(take(&mut stream, 100).await, broker::core::answer::TLS_REFUSAL);
        assert_eq!(lab.verdict().as_deref(), Some("sni-unexpected"));
        for address in ["169.254.169.254", "[fe80::1]", "0.0.0.0", "[::]"] {
            assert_eq!(lab.connect(&format!("{address}:443")).await.1.status, 403, "{address}");
        }
    });
}

fn row_18_families() {
    run(async {
        let lab = Lab::new(&["a.example:443:full:tcp"]).await;
        lab.names.put("a.example", &["2606:4700::1", "93.184.216.5"]);
        let _origin = echo("93.184.216.5:443").await;
        let (mut stream, reply) = lab.connect("a.example:443").await;
        assert_eq!(reply.status, 200);
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(take(&mut stream, 5).await, b"hello");
    });
}

fn row_19_flipping() {
    run(async {
        let lab = Lab::new(&["a.example:443:full:tcp"]).await;
        lab.names.put("a.example", &["93.184.216.5", "127.0.0.1"]);
        lab.names.put("a.example", &["127.0.0.1"]);
        let _origin = echo("93.184.216.5:443").await;
        let (mut stream, reply) = lab.connect("a.example:443").await;
        assert_eq!((reply.status, lab.names.calls()), (200, 1));
        stream.write_all(b"x").await.unwrap();
        assert_eq!(take(&mut stream, 1).await, b"x");
        let addresses = lab.decisions().pop().unwrap()["addresses"].clone();
        assert_eq!(addresses[0]["ip"], "93.184.216.5");
        assert_eq!(addresses[1]["refused"], "address-loopback", "classified, not dialled");
        assert_eq!(lab.connect("a.example:443").await.1.reason().as_deref(), Some("address-loopback"));
    });
}

fn n13_classes() {
    run(async {
        let lab = Lab::new(&["named.example:443:full:tcp", "*.wild.example:443:full:tcp"]).await;
        let _origin = echo("10.0.0.9:443").await;
        let cases = [
            ("named.example", "10.0.0.9", None),
            ("a.wild.example", "10.0.0.9", Some("address-private")),
            ("b.wild.example", "::ffff:10.0.0.9", Some("address-private")),
            ("c.wild.example", "169.254.169.254", Some("address-metadata")),
            ("d.wild.example", "169.254.1.1", Some("address-link-local")),
            ("e.wild.example", "127.0.0.1", Some("address-loopback")),
            ("f.wild.example", "198.18.0.1", Some("address-reserved")),
            ("g.wild.example", "64:ff9b::a9fe:a9fe", Some("address-metadata")),
            ("h.wild.example", "0.0.0.0", Some("address-reserved")),
        ];
        for (name, ip, expected) in cases {
            lab.names.put(name, &[ip]);
            let reply = lab.connect(&format!("{name}:443")).await.1;
            assert_eq!(reply.reason().as_deref(), expected, "{name} {ip}");
        }
        assert_eq!(lab.connect("i.wild.example:443").await.1.reason().as_deref(), Some("unresolved"));
    });
}

fn row_27_reload() {
    run(async {
        let lab = Lab::new(&["a.example:443:full"]).await;
        let reply = lab.connect("b.example:443").await.1;
        let body: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(body["policy"], lab.hash.as_str());
        assert_eq!(body["target"], "b.example:443");
        let other = Plan::new(&["c.example:443:full"]).egress();
        let hash = lab.client.reload("box", other.document()).await.unwrap();
        assert_ne!(hash, lab.hash);
        let reply = lab.connect("a.example:443").await.1;
        assert!(reply.body.contains(&hash) && reply.body.contains("host-not-listed"), "{}", reply.body);
        let canary = Plan::new(&["**.crucible.invalid:443:full"]);
        let open = Plan { binaries: vec!["/canary".to_owned()], ..canary }.egress();
        let refused = lab.client.reload("box", open.document()).await.unwrap_err();
        assert!(refused.to_string().contains("canary"), "row 26: {refused}");
    });
}

fn row_30_names() {
    run(async {
        let lab = Lab::new(&["a.example:443:full"]).await;
        assert_eq!(lab.lookup("secret-data.evil.example").await, None);
        assert_eq!(lab.verdict().as_deref(), Some("host-not-listed"));
        lab.connect("secret-data.evil.example:443").await;
        lab.get("secret-data.evil.example", "/").await;
        let known = lab.lookup("a.example").await.unwrap();
        assert_eq!(known.to_string(), "198.18.0.1");
        assert_eq!(lab.names.calls(), 0);
        let unknown: std::net::SocketAddr = "198.18.9.9:443".parse().unwrap();
        let mut stream = TcpStream::connect(unknown).await.unwrap();
        stream.write_all(&hello(Some("a.example"), 9000)).await.unwrap();
        take(&mut stream, 1000).await;
        assert_eq!(lab.verdict().as_deref(), Some("not-a-target"));
        // Row 28: no other port of a known address answers.
        assert!(TcpStream::connect((known, 444)).await.is_err());
    });
}

fn binaries() {
    run(async {
        let other = Plan { binaries: vec!["/usr/bin/curl".to_owned()], ..Plan::new(&["a.example:80:full"]) };
        let lab = Lab::with(other).await;
        lab.names.put("a.example", &["203.0.113.5"]);
        for way in ["connect", "forward", "transparent"] {
            assert_eq!(
                tried(&lab, way, "a.example", 80).await.as_deref(),
                Some("binary-not-listed"),
                "{way}"
            );
        }
        let own = std::env::current_exe().unwrap().canonicalize().unwrap();
        assert_eq!(lab.decisions()[0]["binary"], own.to_str().unwrap());
        assert_eq!(lab.names.calls(), 0);
        drop(lab);
    });
    run(async {
        let blind = Plan { inside: false, ..Plan::new(&["a.example:80:full"]) };
        let lab = Lab::with(blind).await;
        assert_eq!(tried(&lab, "connect", "a.example", 80).await.as_deref(), Some("binary-unknown"));
    });
}

fn row_95_parent() {
    run(async {
        let mut plan = Plan::new(&["a.example:443:full:tcp", "direct.example:443:full:tcp"]);
        let url = "http://me:canary-password@203.0.113.77:3128";
        plan.launch.parent = Some(broker::launch::Parent::from_url(url, |_| "Y2FuYXJ5".to_owned()).unwrap());
        plan.launch.no_proxy = "direct.example".to_owned();
        let lab = Lab::with(plan).await;
        let _parent = origin("203.0.113.77:3128", |mut stream| async move {
            let head = String::from_utf8(take(&mut stream, 92).await).unwrap();
            let asked = "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nProxy-Authorization: Basic Y2FuYXJ5\r\n\r\n";
            let answer = if head == asked { "HTTP/1.1 200 OK\r\n\r\n" } else { "HTTP/1.1 407 No\r\n\r\n" };
            stream.write_all(answer.as_bytes()).await.unwrap();
            let bytes = take(&mut stream, 2).await;
            stream.write_all(&bytes).await.unwrap();
        })
        .await;
        let (mut stream, reply) = lab.connect("a.example:443").await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        stream.write_all(b"hi").await.unwrap();
        assert_eq!(take(&mut stream, 2).await, b"hi");
        assert_eq!((lab.decisions()[0]["via"].as_str(), lab.names.calls()), (Some("parent"), 0));
        lab.names.put("direct.example", &["203.0.113.5"]);
        let _origin = echo("203.0.113.5:443").await;
        assert_eq!(lab.connect("direct.example:443").await.1.status, 200);
        assert_eq!(lab.names.calls(), 1);
        let text = std::fs::read_to_string(lab.audit.path()).unwrap();
        assert!(!text.contains("Y2FuYXJ5") && !text.contains("canary-password"), "row 91");
    });
}

//! Turns the rows about SNI, half-closed and idle tunnels into connections that pass or are cut.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::Test;
use crate::lab::{Lab, Plan, echo, hello, origin, run, take};

pub(crate) const TESTS: &[Test] = &[
    ("rows_38_to_43_a_tunnel_carries_only_its_own_server", rows_38_to_43),
    ("rows_38_to_43_the_transparent_way_too", rows_38_to_43_transparent),
    ("row_62_a_tunnel_has_a_decision_and_a_close_with_its_bytes", row_62_records),
    ("row_79_descriptors_do_not_leak", row_79_descriptors),
    ("row_82_a_reply_after_the_client_s_end_arrives", row_82_half_close),
    ("a_server_that_speaks_first_is_heard_over_tcp_entries", speaks_first),
];

fn rows_38_to_43() {
    run(async {
        let lab = Lab::new(&["a.example:443:full"]).await;
        lab.names.put("a.example", &["203.0.113.5"]);
        let _origin = echo("203.0.113.5:443").await;
        let cases: [(Vec<u8>, Option<&str>); 6] = [
            (hello(Some("a.example"), 9000), None),
            (hello(Some("a.example"), 3), None),
            (hello(Some("b.example"), 9000), Some("sni-mismatch")),
            (hello(Some("b.example"), 3), Some("sni-mismatch")),
            (hello(None, 9000), Some("sni-absent")),
            (b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n".to_vec(), Some("not-tls")),
        ];
        for (bytes, expected) in cases {
            let (mut stream, reply) = lab.connect("a.example:443").await;
            assert_eq!(reply.status, 200);
            stream.write_all(&bytes).await.unwrap();
            let back = take(&mut stream, bytes.len()).await;
            assert_eq!(lab.verdict().as_deref(), expected);
            assert_eq!(back == bytes, expected.is_none(), "nothing passes before it is judged: {expected:?}");
        }
    });
}

fn rows_38_to_43_transparent() {
    run(async {
        let lab = Lab::new(&["a.example:443:full", "rest.example:443:read-only"]).await;
        lab.names.put("a.example", &["203.0.113.5"]);
        let _origin = echo("203.0.113.5:443").await;
        let cases: [(&str, Vec<u8>, Option<&str>); 6] = [
            ("a.example", hello(Some("a.example"), 3), None),
            ("a.example", hello(Some("b.example"), 9000), Some("sni-mismatch")),
            ("a.example", hello(None, 9000), Some("sni-absent")),
            ("a.example", b"SSH-2.0-x\r\n".to_vec(), Some("head-malformed")),
            ("a.example", b"\x16\x09".to_vec(), Some("hello-malformed")),
            ("rest.example", hello(Some("rest.example"), 9000), Some("needs-termination")),
        ];
        for (name, bytes, expected) in cases {
            let ip = lab.lookup(name).await.unwrap();
            let mut stream = TcpStream::connect((ip, 443)).await.unwrap();
            let before = lab.decisions().len();
            stream.write_all(&bytes).await.unwrap();
            if expected == Some("head-malformed") {
                stream.write_all(b"\r\n\r\n").await.unwrap();
            }
            let back = take(&mut stream, bytes.len()).await;
            assert_eq!(lab.verdict().as_deref(), expected, "{name}");
            assert_eq!(back == bytes, expected.is_none());
            assert_eq!(lab.decisions().len(), before + 1, "row 62");
        }
    });
}

fn row_62_records() {
    run(async {
        let lab = Lab::new(&["a.example:443:full:tcp"]).await;
        lab.names.put("a.example", &["203.0.113.5"]);
        let _origin = echo("203.0.113.5:443").await;
        let (mut stream, _) = lab.connect("a.example:443").await;
        stream.write_all(b"12345").await.unwrap();
        assert_eq!(take(&mut stream, 5).await, b"12345");
        stream.shutdown().await.unwrap();
        assert_eq!(take(&mut stream, 1).await, b"");
        let (mut open, _) = lab.connect("a.example:443").await;
        open.write_all(b"123").await.unwrap();
        assert_eq!(take(&mut open, 3).await, b"123");
        lab.connect("b.example:443").await;
        let records = lab.records().await;
        let of = |kind: &str| records.iter().filter(|record| record["kind"] == kind).collect::<Vec<_>>();
        assert_eq!(of("decision").len(), 3);
        let closes = of("close");
        assert_eq!(closes.len(), 2, "{records:?}");
        assert_eq!((closes[0]["up"].as_u64(), closes[0]["down"].as_u64()), (Some(5), Some(5)));
        assert_eq!((closes[1]["up"].as_u64(), closes[1]["reason"].as_str()), (Some(3), Some("ending")));
        assert_eq!(closes[0]["conn"], of("decision")[0]["conn"]);
        assert_eq!(of("end")[0]["allowed"], 2);
        assert_eq!(of("end")[0]["denied"], 1);
        assert_eq!(take(&mut open, 1).await, b"", "the turn's end closes what is open");
        assert!(TcpStream::connect(lab.proxy).await.is_err());
    });
}

fn row_79_descriptors() {
    run(async {
        let lab = Lab::new(&["a.example:443:full:tcp"]).await;
        lab.names.put("a.example", &["203.0.113.5"]);
        let _origin = echo("203.0.113.5:443").await;
        let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let cycle = async || {
            let (mut stream, reply) = lab.connect("a.example:443").await;
            assert_eq!(reply.status, 200);
            stream.shutdown().await.unwrap();
            assert_eq!(take(&mut stream, 1).await, b"");
        };
        for _ in 0..20 {
            cycle().await;
        }
        let before = count();
        for _ in 0..300 {
            cycle().await;
        }
        // Closing follows the last byte at once, but in another task.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert!(count() <= before + 8, "{before} before, {} after", count());
    });
}

fn row_82_half_close() {
    run(async {
        let lab = Lab::new(&["a.example:443:full:tcp"]).await;
        lab.names.put("a.example", &["203.0.113.5"]);
        let _origin = origin("203.0.113.5:443", |mut stream| async move {
            let got = take(&mut stream, 1000).await;
            stream.write_all(format!("got {}", got.len()).as_bytes()).await.unwrap();
        })
        .await;
        let (mut stream, _) = lab.connect("a.example:443").await;
        stream.write_all(b"1234567").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(take(&mut stream, 100).await, b"got 7");
    });
}

fn speaks_first() {
    run(async {
        let lab = Lab::with(Plan::new(&["ssh.example:22:full:tcp"])).await;
        lab.names.put("ssh.example", &["203.0.113.5"]);
        let _origin = origin("203.0.113.5:22", |mut stream| async move {
            stream.write_all(b"SSH-2.0-server\r\n").await.unwrap();
        })
        .await;
        let ip = lab.lookup("ssh.example").await.unwrap();
        let mut direct = TcpStream::connect((ip, 22)).await.unwrap();
        assert_eq!(take(&mut direct, 100).await, b"SSH-2.0-server\r\n");
        let (mut tunnel, _) = lab.connect("ssh.example:22").await;
        assert_eq!(take(&mut tunnel, 100).await, b"SSH-2.0-server\r\n");
    });
}

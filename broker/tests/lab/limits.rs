//! Turns each limit into a connection that meets it, and its reason in the record.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::Test;
use crate::lab::{Lab, Plan, Reply, echo, http, run, take};

pub(crate) const TESTS: &[Test] = &[
    ("each_limit_has_its_reason", each_limit),
    ("a_full_record_lets_nothing_pass", full_record),
    ("a_denial_is_written_before_its_answer", written_first),
    ("a_record_that_cannot_be_written_lets_nothing_pass", unwritable),
];

fn each_limit() {
    run(async {
        let mut plan = Plan::new(&["a.example:443:full:tcp", "t.example:443:full", "h.example:80:full"]);
        let limits = &mut plan.launch.limits;
        (limits.head_timeout, limits.hello_timeout, limits.idle_timeout, limits.connections) =
            (150, 150, 300, 3);
        let lab = Lab::with(plan).await;
        for name in ["a.example", "t.example", "h.example"] {
            lab.names.put(name, &["203.0.113.5"]);
        }
        let _echo = echo("203.0.113.5:443").await;
        let mut slow = TcpStream::connect(lab.proxy).await.unwrap();
        slow.write_all(b"GET http://h.exam").await.unwrap();
        let reply = Reply::read(&mut slow).await;
        assert_eq!((reply.status, reply.reason().as_deref()), (408, Some("head-late")));
        drop(slow);
        let (mut still, reply) = lab.connect("t.example:443").await;
        assert_eq!(reply.status, 200);
        assert_eq!(take(&mut still, 100).await, broker::core::answer::TLS_REFUSAL);
        assert_eq!(lab.verdict().as_deref(), Some("hello-late"));
        drop(still);
        let mut open = Vec::new();
        for _ in 0..3 {
            let (stream, reply) = lab.connect("a.example:443").await;
            assert_eq!(reply.status, 200);
            open.push(stream);
        }
        let mut more = TcpStream::connect(lab.proxy).await.unwrap();
        assert_eq!(Reply::read(&mut more).await.reason().as_deref(), Some("too-many-connections"));
        for mut stream in open {
            assert_eq!(take(&mut stream, 1).await, b"", "idle");
        }
        let records = lab.records().await;
        assert_eq!(records.iter().filter(|record| record["reason"] == "idle").count(), 3);
    });
    run(async {
        let mut plan = Plan::new(&["a.example:443:full:tcp"]);
        (
            plan.launch.limits.bytes,
            plan.launch.limits.requests_burst,
            plan.launch.limits.requests_per_second,
        ) = (1000, 3, 1);
        let lab = Lab::with(plan).await;
        lab.names.put("a.example", &["203.0.113.5"]);
        let _echo = echo("203.0.113.5:443").await;
        let (mut stream, _) = lab.connect("a.example:443").await;
        stream.write_all(&[7; 5000]).await.unwrap();
        assert!(take(&mut stream, 100_000).await.len() < 10_001);
        let mut reasons = Vec::new();
        for _ in 0..3 {
            reasons.push(lab.connect("b.example:443").await.1.status);
        }
        assert_eq!(reasons, [403, 403, 429]);
        let records = lab.records().await;
        assert!(records.iter().any(|record| record["reason"] == "too-many-bytes"));
    });
}

fn full_record() {
    run(async {
        let mut plan = Plan::new(&["h.example:80:full"]);
        plan.launch.limits.records = 3;
        let lab = Lab::with(plan).await;
        lab.names.put("h.example", &["203.0.113.5"]);
        let (seen, _origin) = http("203.0.113.5:80", "HTTP/1.1 204 No\r\n\r\n").await;
        for _ in 0..3 {
            lab.connect("evil.example:443").await;
        }
        let reply = lab.get("h.example", "/").await;
        assert_eq!((reply.status, reply.reason().as_deref()), (503, Some("audit-full")));
        assert_eq!(lab.connect("evil.example:443").await.1.reason().as_deref(), Some("audit-full"));
        assert!(seen.lock().unwrap().is_empty());
        let records = lab.records().await;
        let kinds: Vec<&str> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["decision", "decision", "decision", "cut", "end"]);
        assert_eq!((records[4]["denied"].as_u64(), records[4]["unrecorded"].as_u64()), (Some(5), Some(2)));
    });
}

fn written_first() {
    run(async {
        let lab = Lab::new(&["a.example:443:full"]).await;
        for number in 1..20 {
            lab.connect("b.example:443").await;
            assert_eq!(lab.decisions().len(), number);
        }
    });
}

fn unwritable() {
    run(async {
        let plan = Plan::new(&["h.example:80:full"]);
        let egress = plan.egress();
        let full = std::fs::OpenOptions::new().append(true).open("/dev/full").unwrap();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
        tokio::spawn(broker::serve::serve(
            theirs,
            std::sync::Arc::new(broker::outside::Host),
            Vec::new(),
            None,
        ));
        let client = broker::client::Client::launch(ours, &plan.launch, std::os::fd::AsFd::as_fd(&full))
            .await
            .unwrap();
        let made = crate::lab::listeners(&egress).await;
        let proxy = made[0].2;
        let sockets = made.into_iter().map(|(role, fd, _)| (role, fd)).collect();
        let (id, turn, policy) = ("box".to_owned(), "1".to_owned(), egress.document());
        client
            .attach(broker::client::Attachment { id, turn, policy, sockets, token: None, inside: None })
            .await
            .unwrap();
        let mut stream = TcpStream::connect(proxy).await.unwrap();
        stream.write_all(b"GET http://h.example/ HTTP/1.1\r\nHost: h.example\r\n\r\n").await.unwrap();
        let reply = Reply::read(&mut stream).await;
        assert_eq!((reply.status, reply.reason().as_deref()), (503, Some("audit-failed")));
    });
}

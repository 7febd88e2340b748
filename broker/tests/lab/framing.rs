//! Turns the rows about smuggling and framing into raw bytes on the wire, with a server that keeps all that reaches it.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Test;
use crate::lab::{Lab, Reply, http, origin, run, take};

pub(crate) const TESTS: &[Test] = &[
    ("rows_38_to_57_what_is_not_plain_reaches_no_server", rows_38_to_57_refused),
    ("row_49_an_undrained_server_is_not_used_again", row_49_undrained),
    ("row_50_52_bodies_arrive_byte_for_byte", row_50_52_bodies),
    ("row_56_a_malformed_answer_is_502_and_recorded", row_56_malformed),
    ("row_76_a_truncated_answer_has_no_clean_end", row_76_truncated),
    ("row_92_what_is_for_the_broker_stays_here", row_92_hop),
    ("row_4_every_request_on_a_connection_is_a_new_decision", row_4_each),
];

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn lab() -> Lab {
    let lab = Lab::new(&["a.example:80:full", "b.example:80:full"]).await;
    lab.names.put("a.example", &["203.0.113.5"]);
    lab.names.put("b.example", &["203.0.113.5"]);
    lab
}

fn rows_38_to_57_refused() {
    run(async {
        let lab = lab().await;
        let (seen, _origin) = http("203.0.113.5:80", OK).await;
        let request = |lines: &str| {
            format!("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n0\r\n\r\n")
        };
        let cases = [
            (request("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400, "framing-invalid"),
            (request("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400, "framing-invalid"),
            (request("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400, "framing-invalid"),
            (request("Transfer-Encoding: chunked,\r\n"), 400, "framing-invalid"),
            (request("Transfer-Encoding:\tchunked\x0b\r\n"), 400, "head-malformed"),
            (request("Transfer-Encoding: gzip, chunked\r\n"), 501, "coding-not-served"),
            (request("Content-Length: 1\r\nContent-Length: 1\r\n"), 400, "framing-invalid"),
            (request("Transfer-Encoding : chunked\r\n"), 400, "head-malformed"),
            (request("X: a\r\n b\r\n"), 400, "head-malformed"),
            (request("X: a\nTransfer-Encoding: chunked\r\n"), 400, "head-malformed"),
            (request(&format!("X-Forwarded-For: {}\r\n", "1, ".repeat(22_000))), 431, "head-too-large"),
            ("GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n".to_owned(), 403, "host-mismatch"),
            (
                "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n".to_owned(),
                400,
                "head-malformed",
            ),
            ("GET gopher://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(), 400, "scheme-invalid"),
            (
                "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(),
                403,
                "needs-termination",
            ),
            ("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(), 400, "target-invalid"),
            ("GET http://a.example/ HTTP/3.0\r\nHost: a.example\r\n\r\n".to_owned(), 400, "version-invalid"),
            (
                "POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
                400,
                "framing-invalid",
            ),
        ];
        for (text, status, reason) in cases {
            let before = lab.decisions().len();
            let reply = lab.send(text.as_bytes()).await.1;
            let shown = &text[..text.len().min(90)];
            assert_eq!((reply.status, reply.reason().as_deref()), (status, Some(reason)), "{shown:?}");
            assert_eq!(lab.decisions().len(), before + 1, "row 62: {shown:?}");
        }
        assert!(seen.lock().unwrap().is_empty(), "nothing reached the server");
        let chunk = "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX0\r\n\r\nGET /smuggled";
        let reply = lab.send(chunk.as_bytes()).await.1;
        assert_eq!(reply.reason().as_deref(), Some("body-malformed"));
        let kept = seen.lock().unwrap().concat();
        assert!(!String::from_utf8_lossy(&kept).contains("smuggled"));
    });
}

fn row_49_undrained() {
    run(async {
        let lab = lab().await;
        // Answers before the body is there; what follows must come on a new connection.
        let (seen, _origin) = http("203.0.113.5:80", OK).await;
        let mut stream = TcpStream::connect(lab.proxy).await.unwrap();
        let head = "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(Reply::read(&mut stream).await.status, 200);
        assert_eq!(take(&mut stream, 10).await, b"", "the client's connection is over too");
        assert_eq!(lab.get("a.example", "/next").await.status, 200);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 2);
        assert!(seen[1].starts_with(b"GET /next"));
    });
}

fn row_50_52_bodies() {
    run(async {
        let lab = lab().await;
        let expected: Arc<Mutex<String>> = Arc::default();
        let wanted = Arc::clone(&expected);
        let _origin = origin("203.0.113.5:80", move |mut stream| {
            let wanted = Arc::clone(&wanted);
            async move {
                let mut got = Vec::new();
                while matches!(stream.read_buf(&mut got).await, Ok(1..)) {
                    if got == wanted.lock().unwrap().as_bytes() {
                        got.clear();
                        stream.write_all(OK.as_bytes()).await.unwrap();
                    }
                }
            }
        })
        .await;
        let cases = [
            ("DELETE", "Transfer-Encoding: chunked", "5;x=y\r\nhel\0o\r\n0\r\nSum: 1\r\n\r\n"),
            ("OPTIONS", "Transfer-Encoding: chunked", "0\r\n\r\n"),
            ("GET", "Content-Length: 4", "body"),
            ("POST", "Content-Length: 0", ""),
        ];
        let mut stream = TcpStream::connect(lab.proxy).await.unwrap();
        for (method, field, body) in cases {
            let text =
                format!("{method} http://a.example/p?q HTTP/1.1\r\nHost: a.example\r\n{field}\r\n\r\n{body}");
            *expected.lock().unwrap() =
                format!("{method} /p?q HTTP/1.1\r\nHost: a.example\r\n{field}\r\n\r\n{body}");
            for part in text.as_bytes().chunks(7) {
                stream.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
            let reply = Reply::read(&mut stream).await;
            assert_eq!((reply.status, reply.body.as_str()), (200, "ok"), "{method}");
        }
        assert_eq!(lab.names.calls(), 1, "one connection served them all");
    });
}

fn row_56_malformed() {
    run(async {
        let lab = lab().await;
        let answers = [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n",
            "nonsense\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        ];
        for answer in answers {
            let (_, origin) = http("203.0.113.5:80", answer).await;
            let reply = lab.get("a.example", "/").await;
            assert_eq!(
                (reply.status, reply.reason().as_deref()),
                (502, Some("upstream-malformed")),
                "{answer:?}"
            );
            origin.abort();
            while tokio::net::TcpListener::bind("203.0.113.5:10080").await.is_err() {
                tokio::task::yield_now().await;
            }
        }
        let reply = lab.get("b.example", "/").await;
        assert_eq!((reply.status, reply.reason().as_deref()), (502, Some("unreachable")));
        let records = lab.records().await;
        let closes = records
            .iter()
            .filter(|record| record["kind"] == "close" && record["reason"] == "upstream-malformed");
        assert_eq!(closes.count(), answers.len());
    });
}

fn row_76_truncated() {
    run(async {
        let lab = lab().await;
        let _origin = origin("203.0.113.5:80", |mut stream| async move {
            take(&mut stream, 20).await;
            let part = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nwor";
            stream.write_all(part).await.unwrap();
        })
        .await;
        let mut stream = TcpStream::connect(lab.proxy).await.unwrap();
        stream.write_all(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
        let all = take(&mut stream, 100_000).await;
        assert!(all.ends_with(b"5\r\nhello\r\n5\r\nwor"), "{}", String::from_utf8_lossy(&all));
    });
}

fn row_92_hop() {
    run(async {
        let lab = lab().await;
        let (seen, _origin) = http("203.0.113.5:80", OK).await;
        let text = "GET http://user.example/ HTTP/1.1\r\nHost: user.example\r\nProxy-Authorization: Basic Y2FuYXJ5\r\n\r\n";
        lab.send(text.as_bytes()).await;
        let text = "GET http://a.example/?token=canary HTTP/1.1\r\nHost: a.example\r\nProxy-Authorization: Basic Y2FuYXJ5\r\n\
                    Crucible-Broker-Token: canary-token\r\nProxy-Connection: keep-alive\r\nUpgrade: websocket\r\nAccept: x\r\n\r\n";
        assert_eq!(lab.send(text.as_bytes()).await.1.status, 200);
        let kept = String::from_utf8(seen.lock().unwrap().concat()).unwrap();
        assert_eq!(kept, "GET /?token=canary HTTP/1.1\r\nHost: a.example\r\nAccept: x\r\n\r\n");
        let audit = std::fs::read_to_string(lab.audit.path()).unwrap();
        assert!(
            !audit.contains("canary\"") && !audit.contains("canary-token") && !audit.contains("Y2FuYXJ5"),
            "row 91: {audit}"
        );
    });
}

fn row_4_each() {
    run(async {
        let lab = lab().await;
        let (seen, _origin) = http("203.0.113.5:80", OK).await;
        let mut stream = TcpStream::connect(lab.proxy).await.unwrap();
        let expected = [("a.example", 200), ("a.example", 200), ("evil.example", 403), ("b.example", 200)];
        for (host, status) in expected {
            let text = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
            stream.write_all(text.as_bytes()).await.unwrap();
            assert_eq!(Reply::read(&mut stream).await.status, status, "{host}");
            if status == 403 {
                stream = TcpStream::connect(lab.proxy).await.unwrap();
            }
        }
        assert_eq!(lab.decisions().len(), expected.len());
        assert_eq!(seen.lock().unwrap().len(), 2, "the first server's connection served two requests");
        assert_eq!(lab.names.calls(), 2);
    });
}

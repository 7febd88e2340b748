//! What goes wrong at a system: each with its own failure, nothing written twice, and no credential shown.

use broker::systems::{Chat, Secret, Systems, TrackerKind};
use policy::outputs::Kind;
use serde_json::{Value, json};

use crate::Test;
use crate::lab::{CANARY, Lab, State, TOKEN, bounds, fixed, run};
use crate::server::{Answer, Asked, Server, status};
use crate::tracker::{jira_server, tracker};

pub(crate) const TESTS: &[Test] = &[
    ("every_fault_of_a_system_is_told_apart_and_counted_as_it_must_be", table),
    ("a_reply_lost_after_the_write_is_not_repeated", lost),
    ("a_system_over_tls_is_trusted_by_the_operators_certificate_alone", tls),
    ("row_36_the_brokers_own_calls_never_reach_metadata", metadata),
    ("row_91_no_credential_is_in_any_file_answer_or_record", credentials),
];

/// A Jira whose comments are answered so.
async fn failing(answer: Answer) -> Server {
    Server::new(move |asked: &Asked| match asked.method.as_str() {
        "GET" => jira_server(asked, "PROJ-1"),
        _ => answer.clone(),
    })
    .await
}

fn fields(name: &'static str, value: &str) -> Vec<(&'static str, String)> {
    vec![(name, value.to_owned())]
}

fn table() {
    run(async {
        let now = |status, fields| Answer::Now(status, fields, "{}".to_owned());
        for (answer, reason, counted) in [
            (status(401), "credential-refused", false),
            (status(403), "forbidden", false),
            (status(404), "absent", false),
            (status(409), "conflict", false),
            (now(429, fields("Retry-After", "37")), "too-many-requests", false),
            (status(500), "server-failed", true),
            (status(503), "server-failed", true),
            (now(302, fields("Location", "http://elsewhere.example/x?token=1")), "leads-elsewhere", false),
            (now(307, fields("Location", "/other")), "leads-elsewhere", false),
            (Answer::Close, "reply-lost", true),
        ] {
            let server = failing(answer.clone()).await;
            let state = State::new();
            let lab = Lab::new(
                &state,
                bounds(Kind::TrackerComment, 1, fixed("PROJ-1")),
                tracker(TrackerKind::Jira, &server),
            )
            .await;
            let (failed, said) = lab.comment(None, "x").await;
            assert!(failed && said["reason"] == reason, "{answer:?}: {said}");
            assert!(!said.to_string().contains("token=1"), "{said}");
            assert_eq!(said["outcome"].is_string(), counted, "{said}");
            if reason == "too-many-requests" {
                assert_eq!(said["retry_after"], 37);
            }
            // What certainly was not written gives its count back; what may have been stays counted.
            let (_, said) = lab.comment(None, "x").await;
            assert_eq!(said["reason"] == "over-count", counted, "{answer:?}: {said}");
            assert_eq!(server.count("POST"), if counted { 1 } else { 2 });
            let outcome = &state.lines("outputs.jsonl", "ended")[0]["outcome"];
            assert_eq!(outcome, if counted { "unknown" } else { "failed" });
        }
        // After a 2xx the comment is there, however large the rest of the answer is.
        let server = failing(Answer::Endless(100 << 20)).await;
        let state = State::new();
        let lab = Lab::new(
            &state,
            bounds(Kind::TrackerComment, 1, fixed("PROJ-1")),
            tracker(TrackerKind::Jira, &server),
        )
        .await;
        let (failed, said) = lab.comment(None, "x").await;
        assert!(!failed && said["written"] == true, "{said}");
        // A read of so much is refused.
        let server = Server::new(|_| Answer::Endless(100 << 20)).await;
        let lab = Lab::new(
            &State::new(),
            bounds(Kind::TrackerComment, 1, fixed("PROJ-1")),
            tracker(TrackerKind::Jira, &server),
        )
        .await;
        assert_eq!(lab.call("tracker_get", json!({})).await.1["reason"], "too-large");
        // GitHub's way to say when to come back.
        let server = Server::new(|_| {
            let later = "99999999999".to_owned();
            let fields = vec![("x-ratelimit-remaining", "0".to_owned()), ("x-ratelimit-reset", later)];
            Answer::Now(403, fields, "{}".to_owned())
        })
        .await;
        let systems = tracker(TrackerKind::Github, &server);
        let lab = Lab::new(&State::new(), bounds(Kind::TrackerComment, 1, fixed("o/r#1")), systems).await;
        let (_, said) = lab.comment(None, "x").await;
        assert_eq!(said["reason"], "too-many-requests");
        assert!(said["retry_after"].as_u64().unwrap() > 1_000_000, "{said}");
    });
}

fn lost() {
    run(async {
        for answer in [Answer::Close, Answer::Hang] {
            let hangs = matches!(answer, Answer::Hang);
            let server = failing(answer).await;
            let state = State::new();
            let lab = Lab::new(
                &state,
                bounds(Kind::TrackerComment, 2, fixed("PROJ-1")),
                tracker(TrackerKind::Jira, &server),
            )
            .await;
            if hangs {
                // Once the request is there, time is made to pass.
                let asked = server.clone();
                tokio::spawn(async move {
                    while asked.count("POST") == 0 {
                        tokio::task::yield_now().await;
                    }
                    tokio::time::pause();
                    tokio::time::advance(std::time::Duration::from_secs(31)).await;
                    tokio::time::resume();
                });
            }
            let (failed, said) = lab.comment(Some("k"), "x").await;
            assert!(failed && said["reason"] == if hangs { "late" } else { "reply-lost" }, "{said}");
            let (failed, said) = lab.comment(Some("k"), "x").await;
            assert!(failed && said["reason"] == "outcome-unknown", "{said}");
            assert_eq!(server.count("POST"), 1, "not repeated");
            assert_eq!(state.refusals()[0]["reason"], "outcome-unknown");
        }
    });
}

fn tls() {
    run(async {
        use std::sync::{Arc, Mutex};
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let asked = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let script: crate::server::Script = Arc::new(|asked| jira_server(asked, "PROJ-1"));
                tokio::spawn(crate::server::serve(stream, script, Arc::clone(&asked)));
            }
        });
        let server = Server { url, asked: seen };
        let bound = || bounds(Kind::TrackerComment, 1, fixed("PROJ-1"));
        let systems = || tracker(TrackerKind::Jira, &server);
        let lab = Lab::new(&State::new(), bound(), systems()).await;
        let (failed, said) = lab.comment(None, "x").await;
        assert!(failed && said["reason"] == "tls", "{said}");
        assert!(server.asked().is_empty(), "no credential was sent");
        let ca = Some(made.cert.pem());
        let lab = Lab::with(&State::new(), bound(), systems(), crate::lab::swift(), ca).await;
        let (failed, said) = lab.comment(None, "x").await;
        assert!(!failed, "{said}");
        assert_eq!(server.count("POST"), 1);
    });
}

fn metadata() {
    run(async {
        let webhook = Secret::new("https://169.254.169.254/latest/meta-data");
        let systems = Systems { chat: Some(Chat { webhook }), ..Systems::default() };
        let lab = Lab::new(&State::new(), bounds(Kind::ChatMessage, 1, fixed("#ops")), systems).await;
        let (failed, said) = lab.call("chat_message", json!({"text": "x"})).await;
        assert!(failed && said["reason"] == "unreachable", "{said}");
    });
}

fn credentials() {
    run(async {
        // The tracker repeats the credential in all that it says.
        let echo = |asked: &Asked| match asked.method.as_str() {
            "GET" => jira_server(asked, "PROJ-1"),
            _ => {
                let body = json!({"id": CANARY, "self": format!("http://jira/{CANARY}")}).to_string();
                Answer::Now(201, vec![("Location", format!("http://{CANARY}.example/"))], body)
            }
        };
        let server = Server::new(echo).await;
        let state = State::new();
        let lab = Lab::new(
            &state,
            bounds(Kind::TrackerComment, 2, fixed("PROJ-1")),
            tracker(TrackerKind::Jira, &server),
        )
        .await;
        let mut said: Vec<Value> = vec![lab.comment(None, "x").await.1];
        said.push(lab.call("tracker_comment", json!({"body": "x", "item": CANARY})).await.1);
        said.push(lab.call("tracker_comment", json!({"body": "x", CANARY: 1})).await.1);
        said.push(lab.call("tracker_get", json!({})).await.1);
        lab.client.detach("turn-1").await.unwrap();
        let mut seen = 0;
        for entry in std::fs::read_dir(state.0.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                seen += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(!text.contains(CANARY) && !text.contains(TOKEN), "{}: {text}", path.display());
            }
        }
        assert!(seen >= 2, "session log and ledger");
        let audit = std::fs::read_to_string(lab.audit.path()).unwrap();
        assert!(!audit.contains(CANARY) && !audit.contains(TOKEN));
        assert!(said.iter().all(|said| !said.to_string().contains(CANARY)), "{said:?}");
        assert!(
            server.asked().iter().any(|asked| asked.head.contains(CANARY)),
            "it was sent where it belongs"
        );
    });
}

//! Jira's and GitHub's REST and Slack's webhook, in exchanges written from the vendors' documentation.

use broker::systems::{Chat, Secret, Systems, Tracker, TrackerKind};
use policy::outputs::Kind;
use serde_json::{Value, json};

use crate::Test;
use crate::lab::{CANARY, Lab, State, bounds, fixed, open, run};
use crate::server::{Answer, Asked, Server, ok, status};

pub(crate) const TESTS: &[Test] = &[
    ("documented_jira_comments_and_reads", jira),
    ("documented_github_comments_and_reads", github),
    ("documented_slack_takes_a_message_that_calls_nobody", slack),
    ("row_102_an_item_that_was_moved_is_judged_by_its_real_name", moved),
    ("a_read_is_bounded_by_the_scope_and_costs_nothing", reads),
];

pub(crate) fn tracker(kind: TrackerKind, server: &Server) -> Systems {
    let tracker = Tracker { kind, url: server.url.clone(), user: None, token: Secret::new(CANARY) };
    Systems { tracker: Some(tracker), ..Systems::default() }
}

/// <https://docs.atlassian.com/software/jira/docs/api/REST/9.17.0/#api/2/issue>
pub(crate) fn jira_server(asked: &Asked, name: &str) -> Answer {
    match asked.method.as_str() {
        "GET" => ok(&json!({
            "id": "10002", "key": name, "self": format!("http://jira/rest/api/2/issue/{name}"),
            "fields": {"summary": "Sorting is slow", "status": {"name": "Open"}, "description": "Too many comparisons."},
        })),
        _ => Answer::Now(
            201,
            Vec::new(),
            json!({"id": "10000", "self": "http://jira/c/10000", "body": "x"}).to_string(),
        ),
    }
}

fn jira() {
    run(async {
        let server = Server::new(|asked| jira_server(asked, "PROJ-1")).await;
        let state = State::new();
        let mut systems = tracker(TrackerKind::Jira, &server);
        let bound = || bounds(Kind::TrackerComment, 2, fixed("PROJ-1"));
        let lab = Lab::new(&state, bound(), systems.clone()).await;
        let (failed, said) = lab.comment(None, "a *bold* claim").await;
        assert!(!failed, "{said}");
        assert_eq!(
            said,
            json!({"written": true, "target": "PROJ-1", "comment": "10000", "link": "http://jira/c/10000"})
        );
        let post = server.asked().into_iter().find(|asked| asked.method == "POST").unwrap();
        assert_eq!(post.path, "/rest/api/2/issue/PROJ-1/comment");
        assert_eq!(serde_json::from_str::<Value>(&post.body).unwrap(), json!({"body": "a *bold* claim"}));
        assert!(post.head.contains(&format!("authorization: Bearer {CANARY}\r\n")), "{}", post.head);
        let (failed, said) = lab.call("tracker_get", json!({})).await;
        assert!(!failed, "{said}");
        assert_eq!(
            said,
            json!({"item": "PROJ-1", "title": "Sorting is slow", "state": "Open", "description": "Too many comparisons."})
        );
        // Jira Cloud wants the user too.
        systems.tracker.as_mut().unwrap().user = Some("bot@example.com".to_owned());
        let lab = Lab::new(&state, bound(), systems).await;
        assert!(!lab.comment(None, "x").await.0);
        let last = server.asked().pop().unwrap();
        assert!(
            last.head.contains("authorization: Basic Ym90QGV4YW1wbGUuY29tOmNhbmFyeS1jcmVkZW50aWFsLTc3YWE="),
            "{}",
            last.head
        );
    });
}

/// <https://docs.github.com/en/rest/issues/comments#create-an-issue-comment>
fn github_server(asked: &Asked, repository: &str) -> Answer {
    match asked.method.as_str() {
        "GET" => ok(&json!({
            "number": 7, "title": "Sorting is slow", "state": "open", "body": null,
            "repository_url": format!("https://api.github.com/repos/{repository}"),
        })),
        _ => {
            let link = "https://github.com/owner/repo/issues/7#issuecomment-1";
            Answer::Now(201, Vec::new(), json!({"id": 1, "html_url": link}).to_string())
        }
    }
}

fn github() {
    run(async {
        let server = Server::new(|asked| github_server(asked, "Owner/Repo")).await;
        let state = State::new();
        let systems = tracker(TrackerKind::Github, &server);
        let lab = Lab::new(&state, bounds(Kind::TrackerComment, 2, open("owner/*")), systems).await;
        let (failed, said) = lab.call("tracker_comment", json!({"item": "owner/repo#7", "body": "x"})).await;
        assert!(!failed, "{said}");
        assert_eq!(said["link"], "https://github.com/owner/repo/issues/7#issuecomment-1");
        let paths: Vec<String> = server.asked().into_iter().map(|asked| asked.path).collect();
        assert_eq!(paths, ["/repos/owner/repo/issues/7", "/repos/owner/repo/issues/7/comments"]);
        let (failed, said) = lab.call("tracker_comment", json!({"item": "PROJ-1", "body": "x"})).await;
        assert!(failed && said["reason"] == "outside-scope", "{said}");
    });
}

/// <https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks>
fn slack() {
    run(async {
        let server = Server::new(|_| Answer::Now(200, Vec::new(), "ok".to_owned())).await;
        let chat = Chat { webhook: Secret::new(format!("{}/services/T0/B0/{CANARY}", server.url)) };
        let systems = Systems { chat: Some(chat), ..Systems::default() };
        let state = State::new();
        let lab = Lab::new(&state, bounds(Kind::ChatMessage, 1, fixed("#ops")), systems).await;
        let (failed, said) = lab.call("chat_message", json!({"text": "<!channel> done & dusted"})).await;
        assert!(!failed, "{said}");
        let asked = server.asked().pop().unwrap();
        assert_eq!(asked.path, format!("/services/T0/B0/{CANARY}"));
        assert_eq!(
            serde_json::from_str::<Value>(&asked.body).unwrap()["text"],
            "&lt;!channel&gt; done &amp; dusted"
        );
        assert!(!said.to_string().contains(CANARY));
    });
}

fn moved() {
    run(async {
        // PROJ-1 lives on as another item, inside of the scope or outside.
        for (real, target, written) in [("OTHER-9", open("PROJ-*"), false), ("PROJ-9", open("PROJ-*"), true)]
        {
            let server = Server::new(move |asked| jira_server(asked, real)).await;
            let state = State::new();
            let systems = tracker(TrackerKind::Jira, &server);
            let lab = Lab::new(&state, bounds(Kind::TrackerComment, 1, target), systems).await;
            let (failed, said) = lab.call("tracker_comment", json!({"item": "PROJ-1", "body": "x"})).await;
            assert_eq!((!failed, server.count("POST")), (written, usize::from(written)), "{said}");
            if !written {
                assert_eq!(state.refusals()[0]["requested"], "OTHER-9");
                assert_eq!(state.refusals()[0]["bound"], "[outputs.tracker-comment].target");
                let (failed, said) = lab.call("tracker_get", json!({"item": "PROJ-1"})).await;
                assert!(failed && said["title"].is_null(), "{said}: nor is it shown");
            }
        }
        // A repository that was renamed answers with a redirect, which is not followed.
        let to = Server::new(|_| status(200)).await;
        let elsewhere = to.url.clone();
        let server = Server::new(move |_| {
            Answer::Now(
                301,
                vec![("Location", format!("{elsewhere}/repositories/1/issues/7"))],
                String::new(),
            )
        })
        .await;
        let state = State::new();
        let systems = tracker(TrackerKind::Github, &server);
        let lab = Lab::new(&state, bounds(Kind::TrackerComment, 1, fixed("owner/repo")), systems).await;
        let (failed, said) = lab.call("tracker_comment", json!({"item": "owner/repo#7", "body": "x"})).await;
        assert!(failed && said["reason"] == "leads-elsewhere", "{said}");
        assert!(to.asked().is_empty(), "no credential went there");
    });
}

fn reads() {
    run(async {
        let server = Server::new(|asked| jira_server(asked, "PROJ-1")).await;
        let state = State::new();
        let systems = tracker(TrackerKind::Jira, &server);
        let lab = Lab::new(&state, bounds(Kind::TrackerComment, 1, fixed("PROJ-1")), systems).await;
        for _ in 0..5 {
            assert!(!lab.call("tracker_get", json!({})).await.0);
        }
        let (failed, said) = lab.call("tracker_get", json!({"item": "SECRET-1"})).await;
        assert!(failed && said["bound"] == "[outputs.tracker-comment].target", "{said}");
        assert_eq!(server.asked().len(), 5);
        assert!(!lab.comment(None, "x").await.0);
    });
}

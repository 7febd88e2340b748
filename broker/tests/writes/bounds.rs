//! Rows 97 to 106 of the table of faults: what is over a bound is refused now, told to the log first, and never written.

use std::sync::Arc;

use broker::client::Leave;
use broker::control::Wish;
use broker::limits::Limits;
use broker::mcp::call::{CallError, Caller};
use broker::systems::Systems;
use policy::outputs::{Declared, Kind, Outcome, Outputs, RunContext};
use serde_json::json;

use crate::Test;
use crate::lab::{Lab, State, attach, bounds, fixed, open, run, swift};

pub(crate) const TESTS: &[Test] = &[
    ("row_97_the_call_above_the_count_fails_now_and_its_row_is_there_before_the_answer", above_the_count),
    ("row_100_a_target_outside_of_the_scope_is_refused", outside),
    ("row_101_an_unknown_field_is_refused_and_costs_nothing", unknown_field),
    ("row_103_a_retry_gets_the_stored_answer_and_the_key_fits_no_other_arguments", retries),
    ("row_105_a_loop_is_slowed_down_and_ends_at_the_ceiling", runaway),
    ("row_106_a_thousand_calls_at_once_against_a_bound_of_three", thousand),
    ("only_granted_tools_are_listed", granted),
    ("nobody_calls_without_the_turns_token", tokens),
    ("a_new_broker_goes_on_from_the_same_count", goes_on),
    ("the_engines_own_writes_are_admitted_by_the_same_bounds", own_writes),
    ("messages_without_a_chat_go_to_the_operators_log", operator),
    ("a_caller_that_goes_away_does_not_cut_a_write_in_two", goes_away),
    ("a_record_that_cannot_be_written_means_no_write", no_record),
];

fn above_the_count() {
    run(async {
        let state = State::new();
        let lab =
            Lab::new(&state, bounds(Kind::TrackerComment, 2, fixed("PROJ-1")), Systems::default()).await;
        for number in 1..=2 {
            let (failed, said) = lab.comment(None, "hello").await;
            assert!(!failed, "{said}");
            assert_eq!(said, json!({"staged": true, "target": "PROJ-1", "write": number}));
        }
        assert!(state.refusals().is_empty());
        let (failed, said) = lab.comment(None, "hello").await;
        assert!(failed);
        assert_eq!(said["bound"], "[outputs.tracker-comment].count");
        assert_eq!(said["reason"], "over-count");
        assert!(said["error"].as_str().unwrap().contains("[outputs.tracker-comment].count"), "{said}");
        let [row] = &state.refusals()[..] else { panic!("{:?}", state.refusals()) };
        assert_eq!(
            [&row["output"], &row["tool"], &row["bound"], &row["requested"], &row["reason"], &row["turn"]],
            [
                "tracker-comment",
                "tracker_comment",
                "[outputs.tracker-comment].count",
                "PROJ-1",
                "over-count",
                "turn-1"
            ]
        );
        assert_eq!((&row["v"], &row["seq"]), (&json!(1), &json!(2)), "it goes on in the session log's count");
        assert!(row["ts"].is_string());
        assert_eq!(state.outbox(), ["000001.json", "000002.json"]);
    });
}

fn outside() {
    run(async {
        let state = State::new();
        let lab = Lab::new(&state, bounds(Kind::TrackerComment, 2, open("PROJ-*")), Systems::default()).await;
        for (item, reason) in [
            ("OTHER-1", "outside-scope"),
            ("*", "not-an-address"),
            ("PROJ-1/../OTHER-1", "not-an-address"),
            ("proj-1", "not-an-address"),
        ] {
            let (failed, said) = lab.call("tracker_comment", json!({"body": "x", "item": item})).await;
            assert!(failed, "{item}");
            assert_eq!(
                (said["bound"].as_str().unwrap(), &said["reason"]),
                ("[outputs.tracker-comment].target", &json!(reason))
            );
            assert_eq!(state.refusals().last().unwrap()["requested"], item);
        }
        let (failed, said) = lab.call("tracker_comment", json!({"body": "x", "item": "PROJ-1"})).await;
        assert!(!failed, "{said}: what was refused cost nothing");
        assert_eq!(state.outbox(), ["000001.json"]);
    });
}

fn unknown_field() {
    run(async {
        let state = State::new();
        let lab =
            Lab::new(&state, bounds(Kind::TrackerComment, 1, fixed("PROJ-1")), Systems::default()).await;
        let (failed, said) = lab.call("tracker_comment", json!({"body": "x", "visibility": "all"})).await;
        assert!(failed && said["error"].as_str().unwrap().contains("visibility"), "{said}");
        let (failed, said) = lab.call("tracker_destroy", json!({})).await;
        assert!(failed && said["reason"] == "unknown-tool", "{said}");
        assert!(!lab.comment(None, "x").await.0);
    });
}

fn retries() {
    run(async {
        let state = State::new();
        let lab =
            Lab::new(&state, bounds(Kind::TrackerComment, 2, fixed("PROJ-1")), Systems::default()).await;
        let first = lab.comment(Some("k"), "hello").await;
        assert_eq!(lab.comment(Some("k"), "hello").await, first);
        assert_eq!(state.outbox(), ["000001.json"]);
        let (failed, said) = lab.comment(Some("k"), "other").await;
        assert!(failed && said["reason"] == "key-reused", "{said}");
        assert_eq!(state.refusals()[0]["bound"], "idempotency_key");
        assert!(!lab.comment(Some("l"), "hello").await.0, "the retry cost nothing");
        assert!(lab.comment(Some("m"), "hello").await.0);
        // At once, one is written and the others get its answer.
        let state = State::new();
        let lab =
            Lab::new(&state, bounds(Kind::TrackerComment, 9, fixed("PROJ-1")), Systems::default()).await;
        let calls = (0..20).map(|_| {
            let caller = Arc::clone(&lab.caller);
            let arguments = json!({"body": "x", "idempotency_key": "k"}).as_object().unwrap().clone();
            tokio::spawn(async move { caller.call("tracker_comment", arguments).await.unwrap() })
        });
        let calls: Vec<_> = calls.collect();
        for call in calls {
            assert_eq!(call.await.unwrap(), (false, json!({"staged": true, "target": "PROJ-1", "write": 1})));
        }
        assert_eq!(state.outbox(), ["000001.json"]);
    });
}

fn runaway() {
    run(async {
        let limits =
            Limits { tool_calls_per_second: 1, tool_calls_burst: 3, tool_calls: 5, ..Limits::default() };
        let state = State::new();
        let bound = bounds(Kind::TrackerComment, 100, fixed("PROJ-1"));
        let lab = Lab::with(&state, bound, Systems::default(), limits, None).await;
        let mut fast = 0;
        for _ in 0..8 {
            let (failed, said) = lab.comment(None, "x").await;
            fast += usize::from(failed && said["reason"] == "too-fast");
        }
        assert!(fast >= 1, "a burst of three is spent");
        assert_eq!(
            state.refusals().len(),
            state.refusals().iter().filter(|row| row["bound"] == "pace of calls").count()
        );
        let limits = Limits { tool_calls: 5, ..swift() };
        let state = State::new();
        let bound = bounds(Kind::TrackerComment, 100, fixed("PROJ-1"));
        let lab = Lab::with(&state, bound, Systems::default(), limits, None).await;
        for number in 0..7 {
            let (failed, said) = lab.comment(None, "x").await;
            assert_eq!(failed, number >= 5, "{said}");
        }
        assert_eq!(state.refusals()[0]["reason"], "call-ceiling");
        assert_eq!(state.outbox().len(), 5);
    });
}

fn thousand() {
    run(async {
        let state = State::new();
        let bound = bounds(Kind::TrackerComment, 3, fixed("PROJ-1"));
        let lab = Lab::with(&state, bound, Systems::default(), Limits::default(), None).await;
        let calls: Vec<_> = (0..1000)
            .map(|number| {
                let caller = Arc::clone(&lab.caller);
                tokio::spawn(async move {
                    let arguments = json!({"body": format!("number {number}")}).as_object().unwrap().clone();
                    caller.call("tracker_comment", arguments).await.unwrap()
                })
            })
            .collect();
        let (mut written, mut refused) = (0, 0);
        for call in calls {
            let (failed, said) = call.await.unwrap();
            if failed {
                assert_eq!(said["bound"], "[outputs.tracker-comment].count", "{said}");
                refused += 1;
            } else {
                written += 1;
            }
        }
        assert_eq!((written, refused), (3, 997));
        assert_eq!(state.refusals().len(), 997);
        assert_eq!(state.lines("outputs.jsonl", "intent").len(), 3);
        assert_eq!(state.lines("outputs.jsonl", "ended").len(), 3);
        assert_eq!(state.outbox().len(), 3);
        let mut numbers: Vec<u64> = state.refusals().iter().map(|row| row["seq"].as_u64().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (2..=998).collect::<Vec<u64>>(), "each row once, none missing");
    });
}

fn granted() {
    run(async {
        let state = State::new();
        let none = Outputs::resolve(&Declared::default(), &RunContext::default());
        let lab = Lab::new(&state, none, Systems::default()).await;
        let names = |listed: Vec<serde_json::Value>| {
            listed.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(lab.caller.list().await.unwrap()), ["chat_message"]);
        let (failed, said) = lab.comment(None, "x").await;
        assert!(
            failed && said["reason"] == "target-unresolved",
            "{said}: a default without a target refuses every write"
        );
        let lab =
            Lab::new(&state, bounds(Kind::TrackerComment, 1, fixed("PROJ-1")), Systems::default()).await;
        let listed = lab.caller.list().await.unwrap();
        assert_eq!(listed[0]["inputSchema"]["additionalProperties"], false, "{}", listed[0]);
        assert_eq!(names(listed), ["tracker_comment", "chat_message"]);
        let lab =
            Lab::new(&state, bounds(Kind::TrackerComment, 0, fixed("PROJ-1")), Systems::default()).await;
        assert_eq!(names(lab.caller.list().await.unwrap()), ["chat_message"]);
    });
}

fn tokens() {
    run(async {
        let state = State::new();
        let lab =
            Lab::new(&state, bounds(Kind::TrackerComment, 1, fixed("PROJ-1")), Systems::default()).await;
        for token in ["", "canary-token-5b1d", "canary-token-5b1c-and-more"] {
            let caller = Caller::new(&lab.url, token.to_owned()).unwrap();
            let refused = caller.list().await;
            let is_401 = matches!(&refused, Err(CallError::Refused { status: 401, reason }) if reason.as_deref() == Some("bad-token"));
            assert!(is_401, "{refused:?}");
        }
        let audit = std::fs::read_to_string(lab.audit.path()).unwrap();
        assert_eq!(audit.matches("\"bad-token\"").count(), 3);
        assert!(!audit.contains("5b1d"), "a guess is not recorded");
        // Another turn's socket takes that turn's token alone; this one's ends with it.
        lab.client.detach("turn-1").await.unwrap();
        assert!(lab.caller.list().await.is_err());
        let url = attach(&lab.client, "turn-2").await;
        assert!(Caller::new(&url, crate::lab::TOKEN.to_owned()).unwrap().list().await.is_ok());
    });
}

fn goes_on() {
    run(async {
        let state = State::new();
        let bound = || bounds(Kind::TrackerComment, 2, fixed("PROJ-1"));
        let lab = Lab::new(&state, bound(), Systems::default()).await;
        let first = lab.comment(Some("k"), "one").await;
        assert!(!first.0);
        drop(lab);
        let lab = Lab::new(&state, bound(), Systems::default()).await;
        assert_eq!(lab.comment(Some("k"), "one").await, first, "a retry at a new broker");
        assert!(!lab.comment(None, "two").await.0);
        assert!(lab.comment(None, "three").await.0);
        // A line torn by a crash is passed over, and the count stays.
        drop(lab);
        let ledger = std::fs::read(state.path("outputs.jsonl")).unwrap();
        std::fs::write(
            state.path("outputs.jsonl"),
            [&ledger[..], b"{\"v\":1,\"seq\":5,\"ts\":\"x\",\"ki"].concat(),
        )
        .unwrap();
        let lab = Lab::new(&state, bound(), Systems::default()).await;
        assert!(lab.comment(None, "four").await.0);
        assert_eq!(state.outbox().len(), 2);
    });
}

fn own_writes() {
    run(async {
        let state = State::new();
        let run = RunContext { publish: Some("owner/repo".to_owned()), ..RunContext::default() };
        let lab = Lab::new(&state, Outputs::resolve(&Declared::default(), &run), Systems::default()).await;
        let wish = |key: &str, target: Option<&str>| Wish {
            kind: Kind::DraftPr,
            tool: "publish".to_owned(),
            target: target.map(str::to_owned),
            key: Some(key.to_owned()),
            arguments: "diff".to_owned(),
            turn: "turn-1".to_owned(),
        };
        for key in ["a", "b"] {
            let Leave::Permit(permit) = lab.client.admit(wish(key, None)).await.unwrap() else {
                panic!("{key}")
            };
            assert_eq!(permit.target(), "owner/repo");
            lab.client.settle(permit, Outcome::Done, format!("pr {key}")).await.unwrap();
        }
        assert!(
            matches!(lab.client.admit(wish("a", None)).await.unwrap(), Leave::Stored(answer) if answer == "pr a")
        );
        let Leave::Refused(refusal) = lab.client.admit(wish("c", None)).await.unwrap() else { panic!() };
        assert_eq!(refusal.bound, "[outputs.draft-pr].count");
        let Leave::Refused(refusal) = lab.client.admit(wish("d", Some("owner/other"))).await.unwrap() else {
            panic!()
        };
        assert_eq!(refusal.bound, "[outputs.draft-pr].target");
        assert_eq!(state.refusals().len(), 2);
    });
}

fn operator() {
    run(async {
        let state = State::new();
        let lab =
            Lab::new(&state, bounds(Kind::TrackerComment, 1, fixed("PROJ-1")), Systems::default()).await;
        let (failed, said) = lab.call("chat_message", json!({"text": "stuck on \u{1b}[31mx"})).await;
        assert!(!failed && said["target"] == "operator", "{said}");
        let notes = state.lines("session.jsonl", "note");
        assert_eq!(notes[0]["msg"], "message of turn-1: stuck on \u{1b}[31mx");
        let text = std::fs::read_to_string(state.path("session.jsonl")).unwrap();
        assert!(!text.contains('\u{1b}'), "a control character is escaped in the file");
        for _ in 0..7 {
            assert!(!lab.call("chat_message", json!({"text": "x"})).await.0);
        }
        assert!(lab.call("chat_message", json!({"text": "x"})).await.0, "eight of a run");
    });
}

fn goes_away() {
    run(async {
        let state = State::new();
        let lab =
            Lab::new(&state, bounds(Kind::TrackerComment, 50, fixed("PROJ-1")), Systems::default()).await;
        for number in 0..20 {
            let caller = Arc::clone(&lab.caller);
            let call = tokio::spawn(async move {
                let arguments = json!({"body": "x"}).as_object().unwrap().clone();
                caller.call("tracker_comment", arguments).await
            });
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
            call.abort();
        }
        lab.client.detach("turn-1").await.unwrap();
        // What began has ended, each with its file.
        let (begun, ended) = loop {
            let (begun, ended) =
                (state.lines("outputs.jsonl", "intent"), state.lines("outputs.jsonl", "ended"));
            if begun.len() == ended.len() {
                break (begun, ended);
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        assert!(ended.iter().all(|line| line["outcome"] == "staged"), "{ended:?}");
        assert_eq!(state.outbox().len(), begun.len());
    });
}

fn no_record() {
    run(async {
        let state = State::new();
        std::fs::create_dir(state.path("outbox")).unwrap();
        // A directory where the file would be, as a disk that refuses it.
        std::fs::create_dir(state.path("outbox/.000001.new")).unwrap();
        let lab =
            Lab::new(&state, bounds(Kind::TrackerComment, 1, fixed("PROJ-1")), Systems::default()).await;
        let (failed, said) = lab.comment(None, "x").await;
        assert!(failed && said["reason"] == "not-recorded", "{said}");
        assert!(lab.comment(None, "x").await.0, "it counts, since nobody can tell");
    });
}

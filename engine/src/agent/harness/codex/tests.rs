use super::*;
use crate::agent::harness::{Budget, McpServer, Secrets};

const ID: &str = "01a22cc2-689c-7c50-9474-f4233299f286";
const STARTED: &str = r#"{"type":"thread.started","thread_id":"01a22cc2-689c-7c50-9474-f4233299f286"}"#;
const COMPLETED: &str =
    r#"{"type":"turn.completed","usage":{"input_tokens":4000,"cached_input_tokens":0,"output_tokens":400}}"#;
const ERROR: &str = r#"{"type":"error","message":"Reconnecting... waiting"}"#;

fn read(ask: &Ask<'_>, lines: &[&str]) -> (Box<dyn Decoder>, Vec<AgentEvent>) {
    let mut decoder = Codex.decoder(ask).unwrap();
    let (mut events, mut budget) = (Vec::new(), Budget::default());
    let mut tell = |event| events.push(event);
    let secrets = Secrets::default();
    let mut teller = Teller::new(&mut tell, &secrets, &mut budget);
    for line in lines {
        decoder.line(Line::Whole(line.as_bytes()), &mut teller);
    }
    (decoder, events)
}

#[test]
fn its_settings_are_arguments_and_secrets_are_not() {
    let server = McpServer { url: "http://broker:1/mcp".into(), token: "sk-token".into() };
    let conversation = Some(Conversation::Resume(ID, b""));
    let endpoint = Some("http://h/v1/");
    let call = Codex.call(&Ask { model: "m", endpoint, conversation, mcp: Some(&server), ..Ask::default() });
    let args = call.args.join(" ");
    assert!(args.starts_with("exec resume --json "), "{args}");
    assert!(args.ends_with(&format!(" {ID} -")), "{args}");
    assert!(args.contains(r#"model_providers.crucible.base_url="http://h/v1" "#), "{args}");
    assert!(args.contains(r#"mcp_servers.crucible.bearer_token_env_var="CRUCIBLE_MCP_TOKEN""#), "{args}");
    assert!(!args.contains("sk-token"));
    assert_eq!(call.env, [("CRUCIBLE_MCP_TOKEN".to_owned(), "sk-token".to_owned())]);
}

#[test]
fn a_turn_is_judged_by_how_it_ended() {
    let failed = r#"{"type":"turn.failed","error":{"message":"401"}}"#;
    let hopeless = [STARTED, ERROR, ERROR, ERROR, ERROR, ERROR, ERROR];
    for (lines, exit, expect) in [
        (&[STARTED, COMPLETED][..], Some(0), None),
        (&[STARTED, COMPLETED], None, None),
        (&[STARTED, COMPLETED], Some(1), Some(("ended with exit code 1", false))),
        (&[STARTED, failed], Some(1), Some(("could not use its model: 401", true))),
        (&[STARTED], Some(0), Some(("ended without a result", false))),
        (&hopeless, None, Some(("could not reach its model: Reconnecting... waiting", true))),
        (
            &[STARTED, ERROR],
            Some(1),
            Some(("ended with exit code 1 and without a result: Reconnecting... waiting", false)),
        ),
    ] {
        let failure = read(&Ask::default(), lines).0.verdict(exit).failure;
        let failure = failure.as_ref().map(|failure| (failure.how.as_str(), failure.provider));
        assert_eq!(failure, expect, "{lines:?} {exit:?}");
    }
}

#[test]
fn it_is_hopeless_only_after_more_errors_in_a_row_than_it_ever_counts() {
    let item = r#"{"type":"item.completed","item":{"type":"agent_message","text":"on"}}"#;
    let some = [ERROR; 5];
    assert!(!read(&Ask::default(), &some).0.is_hopeless());
    assert!(!read(&Ask::default(), &[&some[..], &[item], &some].concat()).0.is_hopeless());
    assert!(read(&Ask::default(), &[ERROR; 6]).0.is_hopeless());
}

#[test]
fn a_resumed_thread_goes_on_counting_and_only_the_turn_is_paid() {
    let count = |input: u32, output: u32| {
        format!(
            "{{\"type\":\"event_msg\",\"payload\":{{\"type\":\"token_count\",\"info\":{{\"total_token_usage\":{{\"input_tokens\":{input},\"output_tokens\":{output}}}}}}}}}\n"
        )
    };
    let transcript = format!(
        "{}{}{{\"type\":\"event_msg\",\"payload\":{{}}}}\n{{torn",
        count(1000, 100),
        count(1500, 150)
    );
    let conversation = Some(Conversation::Resume(ID, transcript.as_bytes()));
    let verdict = read(&Ask { conversation, ..Ask::default() }, &[STARTED, COMPLETED]).0.verdict(Some(0));
    assert_eq!(verdict.usage, Usage::new(None, Some(2500), Some(250)));
    assert_eq!(verdict.conversation.as_deref(), Some(ID));
    let fresh = read(&Ask::default(), &[STARTED, COMPLETED]).0.verdict(Some(0));
    assert_eq!(fresh.usage, Usage::new(None, Some(4000), Some(400)));
}

#[test]
fn what_the_model_thinks_says_and_does_becomes_events() {
    let (_, events) = read(
        &Ask::default(),
        &[
            STARTED,
            r#"{"type":"item.completed","item":{"type":"reasoning","text":"hmm"}}"#,
            r#"{"type":"item.started","item":{"type":"command_execution","command":"ls"}}"#,
            r#"{"type":"item.completed","item":{"type":"command_execution","command":"ls","aggregated_output":"a\n","exit_code":1}}"#,
            r#"{"type":"item.completed","item":{"type":"agent_message","text":"so"}}"#,
            r#"{"type":"item.completed","item":{"type":"new_kind"}}"#,
            ERROR,
            COMPLETED,
        ],
    );
    let text = serde_json::to_string_pretty(&events).unwrap();
    assert!(!text.contains(ID));
    insta::assert_snapshot!(text);
}

#[test]
fn a_rollout_is_its_threads_or_nobodys() {
    let path = |path: String| conversation_of(Path::new(&path));
    assert_eq!(path(format!("2026/11/30/rollout-2026-11-30T14-01-08-{ID}.jsonl")).as_deref(), Some(ID));
    for other in
        [format!("rollout-x-{ID}.jsonl"), format!("a/b/c/{ID}.jsonl"), "a/b/c/rollout-é.jsonl".to_owned()]
    {
        assert_eq!(path(other.clone()), None, "{other}");
    }
    let meta = |id: &str| format!("{{\"type\":\"session_meta\",\"payload\":{{\"id\":\"{id}\"}}}}\n");
    assert!(belongs(ID, meta(ID).as_bytes()));
    assert!(belongs(ID, format!("{}{{\"torn", meta(ID)).as_bytes()));
    assert!(!belongs(ID, meta("other").as_bytes()));
    assert!(!belongs(ID, b""));
    assert!(!belongs(ID, format!("{{}}\n{}", meta(ID)).as_bytes()));
}

use super::*;
use crate::agent::harness::{Budget, McpServer, Secrets};

fn call(ask: &Ask<'_>) -> Call {
    Claude { root: true }.call(ask)
}

fn read(lines: &[&str]) -> (Box<dyn Decoder>, Vec<AgentEvent>) {
    let mut decoder = Claude { root: false }.decoder(&Ask::default()).unwrap();
    let (mut events, mut budget) = (Vec::new(), Budget::default());
    let mut tell = |event| events.push(event);
    let secrets = Secrets::default();
    let mut teller = Teller::new(&mut tell, &secrets, &mut budget);
    for line in lines {
        decoder.line(Line::Whole(line.as_bytes()), &mut teller);
    }
    (decoder, events)
}

const WELL: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"Done.","stop_reason":"end_turn","total_cost_usd":0.5,"usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":7,"output_tokens":3}}"#;

#[test]
fn a_first_turn_names_its_session_and_a_later_one_resumes_it() {
    let ask = Ask { model: "m", conversation: Some(Conversation::Start("id")), ..Ask::default() };
    let args = call(&ask).args.join(" ");
    assert!(args.ends_with("--strict-mcp-config --model m --session-id id"), "{args}");
    let resumed = Ask { conversation: Some(Conversation::Resume("id", b"")), cost_left: Some(1.5), ..ask };
    let args = call(&resumed).args.join(" ");
    assert!(args.ends_with("--model m --resume id --max-budget-usd 1.5"), "{args}");
}

#[test]
fn no_secret_is_an_argument_and_telemetry_is_off() {
    let server = McpServer { url: "http://broker:1/mcp".into(), token: "sk-token".into() };
    let call = call(&Ask { model: "m", mcp: Some(&server), ..Ask::default() });
    assert!(call.args.iter().any(|arg| arg.contains("Bearer ${CRUCIBLE_MCP_TOKEN}")), "{call:?}");
    assert!(!call.args.iter().any(|arg| arg.contains("sk-token")), "{call:?}");
    let set = |name: &str| call.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!(set("CRUCIBLE_MCP_TOKEN"), Some("sk-token"));
    for name in QUIET.iter().chain(&["IS_SANDBOX"]) {
        assert_eq!(set(name), Some("1"), "{name}");
    }
    assert!(!format!("{server:?}").contains("sk-token"));
}

#[test]
fn a_result_is_judged_by_what_was_observed_and_never_by_its_subtype() {
    let failed = r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 500","stop_reason":"stop_sequence"}"#;
    let cut = r#"{"type":"result","subtype":"success","is_error":false,"result":"I beg","stop_reason":null}"#;
    let spent = r#"{"type":"result","subtype":"error_max_budget_usd","is_error":true}"#;
    let odd =
        r#"{"type":"result","subtype":"success","result":"no word on errors","stop_reason":"end_turn"}"#;
    for (line, exit, expect) in [
        (WELL, Some(0), None),
        (WELL, None, None),
        (WELL, Some(3), Some(("ended with exit code 3", false))),
        (cut, Some(0), Some(("got an answer of its model that was cut off", true))),
        (cut, None, Some(("got an answer of its model that was cut off", true))),
        (failed, Some(1), Some(("could not use its model: API Error: 500", true))),
        (odd, Some(0), Some(("could not use its model: no word on errors", true))),
        (spent, Some(1), Some(("was stopped by its tool: the cost ceiling is reached", false))),
        ("", Some(0), Some(("ended without a result", false))),
        ("not json", Some(1), Some(("ended with exit code 1 and without a result", false))),
    ] {
        let failure = read(&[line]).0.verdict(exit).failure;
        let failure = failure.as_ref().map(|failure| (failure.how.as_str(), failure.provider));
        assert_eq!(failure, expect, "{line} {exit:?}");
    }
}

#[test]
fn a_refusal_tells_until_when_where_the_provider_said_so() {
    let retry = |wait: &str| {
        format!(
            "{{\"type\":\"system\",\"subtype\":\"api_retry\",\"error_status\":429,\"retry_delay_ms\":{wait}}}"
        )
    };
    let limit = |status: &str| {
        format!(
            "{{\"type\":\"rate_limit_event\",\"rate_limit_info\":{{\"status\":\"{status}\",\"resetsAt\":1796062710}}}}"
        )
    };
    let refused = r#"{"type":"assistant","error":"rate_limit","message":{"content":[]}}"#;
    let answered = r#"{"type":"assistant","message":{"content":[]}}"#;
    let failed = r#"{"type":"result","subtype":"success","is_error":true,"result":"429"}"#;
    let seven = Some(Reset::After(Duration::from_secs(7)));
    let at = Some(Reset::At(1_796_062_710));
    for (lines, expect) in [
        (vec![retry("7000"), refused.to_owned()], seven),
        // Its own wait is a random one.
        (vec![retry("539.7127061107041")], None),
        (vec![retry("0")], None),
        (vec![retry("null")], None),
        (vec![retry("7000"), retry("1068.6")], None),
        (vec![retry("7000"), answered.to_owned()], None),
        (vec![limit("rejected"), refused.to_owned()], at),
        (vec![limit("allowed_warning")], None),
        (vec![limit("rejected"), limit("allowed")], None),
    ] {
        let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(read(&lines).0.verdict(None).reset, expect, "{lines:?}");
        lines.push(failed);
        assert_eq!(read(&lines).0.verdict(Some(1)).reset, expect, "{lines:?}");
    }
    let from = |reset: Option<Reset>, now| reset.map(|reset| reset.from(now).as_secs());
    assert_eq!(
        (from(seven, 0), from(at, 1_796_062_700), from(at, 1_796_062_711)),
        (Some(7), Some(10), Some(0))
    );
}

#[test]
fn the_last_result_counts_and_usage_is_never_summed() {
    let message =
        r#"{"type":"assistant","message":{"content":[],"usage":{"input_tokens":1000,"output_tokens":9}}}"#;
    let first = r#"{"type":"result","subtype":"success","is_error":true,"result":"x","total_cost_usd":9}"#;
    let (decoder, _) = read(&[message, first, message, WELL, message]);
    assert!(decoder.is_done());
    let verdict = decoder.verdict(Some(0));
    assert_eq!(verdict.failure, None);
    assert_eq!(verdict.usage, Usage::new(Some(0.5), Some(22), Some(3)));
}

#[test]
fn what_the_model_thinks_says_and_does_becomes_events() {
    let (_, events) = read(&[
        r#"{"type":"system","subtype":"init","session_id":"SECRET-CURSOR","model":"m","claude_code_version":"2.1"}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hmm"},{"type":"text","text":"so"},{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]}}"#,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"content":[{"type":"text","text":"no"}]}]}}"#,
        r#"{"type":"system","subtype":"api_retry","attempt":1,"retry_delay_ms":500,"error_status":529,"error":"overloaded"}"#,
        r#"{"type":"new_kind_of_line"}"#,
        "plain text",
        WELL,
    ]);
    let text = serde_json::to_string_pretty(&events).unwrap();
    assert!(!text.contains("SECRET-CURSOR"));
    insta::assert_snapshot!(text);
}

#[test]
fn a_transcript_is_its_sessions_or_nobodys() {
    let id = "46d6e2d4-5930-4044-a35b-e6ae47edf159";
    let path = |path: String| conversation_of(Path::new(&path));
    assert_eq!(path(format!("-w/{id}.jsonl")).as_deref(), Some(id));
    for other in [
        format!("{id}.jsonl"),
        format!("-w/x/{id}.jsonl"),
        format!("-w/{id}.json"),
        "-w/agent-1.jsonl".into(),
    ] {
        assert_eq!(path(other.clone()), None, "{other}");
    }
    let line = format!("{{\"sessionId\":\"{id}\",\"type\":\"user\"}}\n");
    let foreign = line.replace("46d6", "ffff");
    for (text, expect) in [
        (line.clone(), true),
        (format!("{line}{{\"type\":\"summary\"}}\n{line}"), true),
        (format!("{line}{{\"torn"), true),
        (format!("{line}{foreign}"), false),
        (format!("{{\"torn\n{line}"), false),
        (String::new(), false),
        ("{}\n".into(), false),
        ("\u{0}\n".into(), false),
    ] {
        assert_eq!(belongs(id, text.as_bytes()), expect, "{text:?}");
    }
}

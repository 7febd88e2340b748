//! A model's provider that turns a turn down until some time, and the pause that the run makes for it.

use serde_json::json;

use super::*;

/// What the run made of the first turn that was turned down: the time that it was told, and the pause before the next try.
fn told(log: &[Value]) -> Option<(f64, f64)> {
    let of = |kind: &str| log.iter().find(|line| line["kind"] == kind);
    let after = of("agent_done")?["retry_after_secs"].as_f64()?;
    Some((after, of("retry")?["wait_secs"].as_f64()?))
}

#[test]
fn a_turn_that_was_refused_for_some_seconds_is_tried_again_after_as_many() {
    if !installed() {
        return;
    }
    let refused = json!({ "status": 429, "error": "slow down", "retry_after": 6 });
    for way in [WAYS[0], WAYS[1]] {
        // The tool asks twice.
        let model = Model::replies(
            &json!([refused, refused, { "text": "I raise it.", "run": RAISE }, { "text": "Done." }]),
        );
        let pack = pack(way, &model, "", "");
        let ran = run(&pack, &model, &["--iterations", "1"]);
        assert_eq!(ran.decisions(), ["baseline", "keep"], "{way:?}: {} {:?}", ran.stderr(), ran.rows());
        assert_eq!(told(&ran.log), Some((6.0, 6.0)), "{way:?}");
    }
}

#[test]
fn a_subscription_that_is_used_up_is_waited_for_until_it_is_reset() {
    if !installed() {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "a provider tells a reset by the wall clock")]
    let hour = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    let reset = hour.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let model = Model::replies(&json!([{ "status": 429, "error": "used up", "headers": {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-reset": reset.to_string(),
    } }]));
    let pack = pack(WAYS[0], &model, "", "");
    let mut command = command(&pack, &model, &["--iterations", "1"]);
    command.env_remove("ANTHROPIC_API_KEY").env("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-canary");
    let mut child = command.spawn().unwrap();
    let over = |log: &str| log.contains("\"kind\":\"retry\"") || log.contains("\"kind\":\"shutdown\"");
    while !over(&pack.log_text()) && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let (after, wait) = told(&pack.log()).unwrap_or_else(|| panic!("{output:?} {}", pack.log_text()));
    assert_eq!(after, wait);
    assert!(wait > 60.0 && wait <= 3600.0, "{wait}");
}

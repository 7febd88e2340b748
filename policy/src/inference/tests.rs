use serde_json::json;

use super::*;

fn agent(fields: &serde_json::Value) -> String {
    let mut binding = json!({"role": "agent", "protocol": "messages", "model": "m"});
    for (name, value) in fields.as_object().unwrap() {
        binding.as_object_mut().unwrap().insert(name.clone(), value.clone());
    }
    json!({"version": 1, "bindings": [binding]}).to_string()
}

fn error(text: &str) -> String {
    Bindings::parse(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn an_absent_or_empty_document_binds_nothing() {
    for text in ["", " \n", r#"{"version":1,"bindings":[]}"#] {
        assert_eq!(Bindings::parse(text.as_bytes()), Ok(Bindings::default()), "{text}");
    }
}

#[test]
fn a_whole_document_is_read() {
    let text = json!({"version": 1, "bindings": [
        {"role": "decision", "protocol": "system_one", "url": "https://d.example:8443/v1", "model": "small",
         "key_env": "CRUCIBLE_INFERENCE_KEY_DECISION"},
        {"role": "agent", "protocol": "responses", "url": "http://10.0.0.5:8080/v1", "model": "gpt/x:1",
         "key_env": "CRUCIBLE_INFERENCE_KEY_AGENT"},
    ]});
    let Bindings { agent, decision } = Bindings::parse(text.to_string().as_bytes()).unwrap();
    let (agent, decision) = (agent.unwrap(), decision.unwrap());
    assert_eq!(agent.protocol, AgentProtocol::Responses);
    assert_eq!(agent.url.as_ref().unwrap().as_str(), "http://10.0.0.5:8080/v1");
    assert_eq!(agent.target().to_string(), "10.0.0.5:8080");
    assert_eq!(agent.model.as_str(), "gpt/x:1");
    assert_eq!(agent.key_env.unwrap().as_str(), "CRUCIBLE_INFERENCE_KEY_AGENT");
    assert!(matches!(decision.protocol, DecisionProtocol::SystemOne(url) if url.target().port.get() == 8443));
}

#[test]
fn without_a_url_the_protocol_has_its_own_endpoint() {
    for (protocol, target) in [
        ("messages", "api.anthropic.com:443"),
        ("responses", "api.openai.com:443"),
        ("chat_completions", "api.openai.com:443"),
    ] {
        let text = agent(&json!({"protocol": protocol, "url": null, "key_env": null}));
        let binding = Bindings::parse(text.as_bytes()).unwrap().agent.unwrap();
        assert_eq!(binding.target().to_string(), target, "{protocol}");
        assert_eq!(binding.plumbing().what, "inference");
    }
    let text =
        json!({"version": 1, "bindings": [{"role": "decision", "protocol": "decisions", "model": "m"}]});
    let bindings = Bindings::parse(text.to_string().as_bytes()).unwrap();
    assert_eq!(bindings.decision.unwrap().protocol, DecisionProtocol::Decisions);
}

#[test]
fn the_document_is_refused_as_a_whole() {
    for (text, expected) in [
        ("[]", "the document: it is an array: it must be an object"),
        ("{", "the document: EOF while parsing an object at line 1 column 1"),
        (r#"{"version":1,"version":1}"#, "the document: the key `version` stands twice at line 1 column 22"),
        ("{}", "version: the field `version` is missing"),
        (r#"{"version":2,"roles":{}}"#, "version: the version 2 is unknown: this build reads version 1"),
        (r#"{"version":"1"}"#, "version: the version a string is unknown: this build reads version 1"),
        (
            r#"{"version":1.0,"bindings":[]}"#,
            "version: the version 1.0 is unknown: this build reads version 1",
        ),
        (r#"{"version":1}"#, "bindings: the field `bindings` is missing"),
        (r#"{"version":1,"bindings":[],"extra":1}"#, "extra: the field `extra` is unknown"),
        (r#"{"version":1,"bindings":{}}"#, "bindings: it is an object: it must be an array"),
        (r#"{"version":1,"bindings":[7]}"#, "bindings[0]: it is a number: it must be an object"),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert_eq!(Bindings::parse(b"\xff").unwrap_err().fault, Fault::NotUtf8);
    let long = " ".repeat(DOCUMENT_MAX + 1);
    assert_eq!(Bindings::parse(long.as_bytes()).unwrap_err().fault, Fault::TooLong);
}

#[test]
fn each_rule_of_a_binding_is_refused_by_its_place() {
    let long = "m".repeat(129);
    for (fields, expected) in [
        (json!({"key": "x"}), "bindings[0].key: the field `key` is unknown"),
        (json!({"role": "judge"}), "bindings[0].role: the role `judge` is unknown: it is agent or decision"),
        (json!({"role": null}), "bindings[0].role: the field `role` is missing"),
        (json!({"role": 1}), "bindings[0].role: it is a number: it must be a string"),
        (json!({"protocol": null}), "bindings[0].protocol: the field `protocol` is missing"),
        (
            json!({"protocol": "decisions"}),
            "bindings[0].protocol: the protocol `decisions` is not one of the role agent, which has messages, \
             chat_completions and responses",
        ),
        (
            json!({"role": "decision"}),
            "bindings[0].protocol: the protocol `messages` is not one of the role decision, which has system_one and \
             decisions",
        ),
        (
            json!({"role": "decision", "protocol": "system_one"}),
            "bindings[0].url: the protocol system_one has no endpoint of its own: `url` is missing",
        ),
        (
            json!({"role": "decision", "protocol": "decisions", "url": "https://a.example"}),
            "bindings[0].url: the protocol decisions takes no `url`",
        ),
        (json!({"model": null}), "bindings[0].model: the field `model` is missing"),
        (json!({"model": ""}), "bindings[0].model: the model's name is empty"),
        (json!({"model": "a b"}), "bindings[0].model: the model's name holds a blank or a control character"),
        (
            json!({"model": "a\u{a0}b"}),
            "bindings[0].model: the model's name holds a blank or a control character",
        ),
        (
            json!({"model": long}),
            "bindings[0].model: the model's name has 129 characters: it has at most 128",
        ),
        (
            json!({"key_env": "CRUCIBLE_INFERENCE"}),
            "bindings[0].key_env: the name of the key's variable is CRUCIBLE_INFERENCE, which holds the document",
        ),
    ] {
        assert_eq!(error(&agent(&fields)), expected, "{fields}");
    }
    let two = json!({"version": 1, "bindings": [
        {"role": "agent", "protocol": "messages", "model": "a"},
        {"role": "agent", "protocol": "responses", "model": "b"},
    ]});
    assert_eq!(error(&two.to_string()), "bindings[1].role: the role agent is bound twice");
}

#[test]
fn a_url_is_absolute_with_a_host_and_without_credentials() {
    let fault = |url: &str| InferenceUrl::parse(url).unwrap_err();
    for good in [
        "http://localhost:1",
        "HTTPS://api.example.com",
        "https://[2001:db8::1]:8443/v1",
        "http://127.0.0.1:8080/",
        "https://a.example/@user",
    ] {
        assert_eq!(InferenceUrl::parse(good).unwrap().as_str(), good);
    }
    for bad in ["", "api.example.com", "/v1", "ftp://a.example", "https:/a.example"] {
        assert_eq!(fault(bad), UrlFault::Scheme, "{bad}");
    }
    for bad in ["https://user@a.example", "https://u:p@a.example/x", "https://@a.example"] {
        assert_eq!(fault(bad), UrlFault::Credentials, "{bad}");
    }
    for bad in ["https://a.example?key=SECRET", "https://a.example/v1?x", "http://a.example/#f"] {
        assert_eq!(fault(bad), UrlFault::Query, "{bad}");
    }
    for bad in ["https://", "https:///v1", "https://a.example:0", "https://a.example:x", "https://a..b"] {
        assert!(matches!(fault(bad), UrlFault::Host(_)), "{bad}");
    }
    for bad in [
        "https://a.example/ x",
        "https://a.example\n",
        "https://ä.example",
        "https://a.example\\@b",
        "http://a/\"",
    ] {
        assert_eq!(fault(bad), UrlFault::Character, "{bad}");
    }
    for bad in ["http://169.254.169.254/", "http://0.0.0.0:80", "http://[fe80::1]/"] {
        assert_eq!(fault(bad), UrlFault::Never, "{bad}");
    }
    let exact = format!("https://a.example/{}", "x".repeat(512 - 18));
    assert_eq!(exact.len(), 512);
    assert!(InferenceUrl::parse(&exact).is_ok());
    assert_eq!(fault(&format!("{exact}x")), UrlFault::Long(513));
}

#[test]
fn a_keys_variable_is_a_name_and_what_is_none_is_never_shown() {
    assert!(KeyName::parse(&"K".repeat(128)).is_ok());
    for bad in ["", "1A", "A-B", "A B", "sk-ant-SECRET", &"K".repeat(129)] {
        assert_eq!(KeyName::parse(bad), Err(KeyFault::Name), "{bad}");
    }
    for bad in [
        "PATH",
        "HOME",
        "LD_PRELOAD",
        "LC_ALL",
        "https_proxy",
        "NO_PROXY",
        "GIT_SSH_COMMAND",
        "BROKER_OUTPUTS",
    ] {
        assert_eq!(KeyName::parse(bad), Err(KeyFault::Needed), "{bad}");
    }
    for good in ["OPENAI_API_KEY", "CRUCIBLE_INFERENCE_KEY_AGENT", "PATH_KEY", "GITHUB_TOKEN", "MY_HOME"] {
        assert!(KeyName::parse(good).is_ok(), "{good}");
    }
    for fields in [json!({"key_env": "sk-ant-SECRET"}), json!({"url": "https://u:SECRET@a.example"})] {
        assert!(!error(&agent(&fields)).contains("SECRET"));
    }
}

use super::*;
use crate::manifest::Manifest;
use crate::plan::Overrides;

const DOCUMENT: &str = r#"{"version":1,"bindings":[
    {"role":"agent","protocol":"messages","url":"http://127.0.0.1:8080/base","model":"bound","key_env":"MY_KEY"},
    {"role":"decision","protocol":"decisions","model":"small","key_env":"DECISION_KEY"}]}"#;

fn env(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn agent(keys: &str) -> Agent {
    let text = format!(
        "[repo]\npath = \".\"\n[agent]\n{keys}\n[judge]\nmeasure_cmd = \"m\"\ndirection = \"lower\"\n"
    );
    Manifest::parse("c.toml", &text).unwrap_or_else(|errors| panic!("{errors}")).agent
}

fn with(document: &str, more: &[(&str, &str)]) -> Environment {
    let mut all = env(more);
    all.set(VARIABLE, document);
    all
}

fn resolve(keys: &str, env: &Environment) -> Result<Model, PlanError> {
    Model::resolve(&agent(keys), &Inference::of(env).unwrap())
}

const COMMAND: &str = "backend = \"command\"\nagent_cmd = \"a\"";

#[test]
fn the_harness_goes_by_the_protocol_but_a_command_stays_one() {
    use AgentProtocol::{ChatCompletions, Messages, Responses};
    let rows = [
        (Harness::Claude, Messages, Some(Harness::Claude)),
        (Harness::Codex, Messages, Some(Harness::Claude)),
        (Harness::Claude, Responses, Some(Harness::Codex)),
        (Harness::Claude, ChatCompletions, None),
        (Harness::Command, ChatCompletions, Some(Harness::Command)),
        (Harness::Command, Messages, Some(Harness::Command)),
    ];
    for (manifests, protocol, expected) in rows {
        assert_eq!(harness_of(manifests, protocol).ok(), expected, "{manifests} {protocol}");
    }
}

#[test]
fn a_binding_is_the_whole_answer_and_what_it_replaces_is_told_without_values() {
    let ambient =
        [("ANTHROPIC_API_KEY", "SECRET-1"), ("CLAUDE_CODE_USE_VERTEX", "1"), ("MY_KEY", "SECRET-2")];
    let env = with(DOCUMENT, &ambient);
    let keys = format!(
        "{COMMAND}\nmodel = \"written\"\nenv = {{ ANTHROPIC_BASE_URL = \"http://SECRET-3\", OWN = \"x\" }}"
    );
    let agent = agent(&keys);
    let model = Model::resolve(&agent, &Inference::of(&env).unwrap()).unwrap();
    assert_eq!((model.name.as_str(), model.harness), ("bound", Harness::Command));
    insta::assert_snapshot!(model.told().join("\n"), @r"
    CRUCIBLE_INFERENCE binds the agent to bound over messages at 127.0.0.1:8080, with the key in `MY_KEY`
    by CRUCIBLE_INFERENCE the model bound in place of [agent].model, written
    by CRUCIBLE_INFERENCE `ANTHROPIC_BASE_URL` of [agent.env] does not count
    by CRUCIBLE_INFERENCE `ANTHROPIC_API_KEY` of the environment does not count
    by CRUCIBLE_INFERENCE `CLAUDE_CODE_USE_VERTEX` of the environment does not count
    CRUCIBLE_INFERENCE binds decisions to small over decisions; no task asks for one
    ");
    assert!(!format!("{model:?}").contains("SECRET"));
    assert_eq!(model.own(&agent.env), [("OWN", "x")]);
    let given = model.variables(&env, true).unwrap();
    let expected = [("ANTHROPIC_BASE_URL", "http://127.0.0.1:8080/base"), ("ANTHROPIC_API_KEY", "SECRET-2")];
    assert_eq!(given, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let told = model.relayed(true);
    assert_eq!(told, [("ANTHROPIC_BASE_URL", Holds::Url), ("ANTHROPIC_API_KEY", Holds::Key)]);
}

#[test]
fn keys_are_hidden_from_who_does_not_need_them() {
    let model = resolve(COMMAND, &with(DOCUMENT, &[("OPENAI_API_KEY", "k")])).unwrap();
    for name in ["MY_KEY", "DECISION_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"] {
        assert!(model.hidden_from_pack().contains(&name), "{name}");
        assert!(model.hidden_from_agent().contains(&name), "{name}");
    }
    assert!(!model.hidden_from_pack().contains(&"ANTHROPIC_BASE_URL"));
    assert!(model.hidden_from_agent().contains(&"CLAUDE_CODE_USE_VERTEX"));
    let unbound = resolve(COMMAND, &env(&[("ANTHROPIC_API_KEY", "k")])).unwrap();
    assert_eq!(unbound.hidden_from_agent(), Vec::<&str>::new());
    assert!(unbound.hidden_from_pack().contains(&"ANTHROPIC_API_KEY"));
}

#[test]
fn a_key_that_is_not_there_is_an_error_that_names_it() {
    let shown = |more: &[(&str, &str)]| {
        let env = with(DOCUMENT, more);
        resolve(COMMAND, &env).unwrap().variables(&env, false).unwrap_err().to_string()
    };
    let text = |fault| {
        format!("read the model's key: the variable `MY_KEY`, which CRUCIBLE_INFERENCE names, {fault}")
    };
    assert_eq!(shown(&[]), text("is not set"));
    assert_eq!(shown(&[("MY_KEY", "")]), text("is empty"));
    assert_eq!(shown(&[("MY_KEY", " \t")]), text("is empty"));
    assert_eq!(shown(&[("MY_KEY", "a\nb")]), text("holds a control character"));
}

#[test]
fn without_a_document_the_manifest_and_the_environment_decide() {
    let ambient = [
        ("ANTHROPIC_API_KEY", "k"),
        ("CLAUDE_CODE_USE_VERTEX", "1"),
        ("ANTHROPIC_VERTEX_PROJECT_ID", "p"),
        ("CLOUD_ML_REGION", "us-east5"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/adc.json"),
        ("OPENAI_API_KEY", "o"),
        ("ANTHROPIC_BASE_URL", ""),
        ("PATH", "/bin"),
    ];
    let env = env(&ambient);
    let names = |harness, sandboxed| {
        let known = Inference::of(&env).unwrap().ambient;
        let ambient = known.into_iter().filter(|known| reads(harness, known.family)).collect();
        let model = Model { harness, ambient, ..resolve(COMMAND, &env).unwrap() };
        let given: Vec<_> =
            model.variables(&env, sandboxed).unwrap().into_iter().map(|(name, _)| name).collect();
        let told: Vec<_> = model.relayed(sandboxed).iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(given, told, "what is given is what is disclosed");
        given
    };
    let vertex =
        ["ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION"];
    assert_eq!(names(Harness::Claude, true), vertex);
    assert_eq!(names(Harness::Claude, false).last().unwrap(), "GOOGLE_APPLICATION_CREDENTIALS");
    assert_eq!(names(Harness::Codex, true), ["OPENAI_API_KEY"]);
    assert_eq!(names(Harness::Command, true), Vec::<String>::new());
    let model = resolve(&format!("{COMMAND}\nmodel = \"written\""), &env).unwrap();
    assert_eq!((model.name.as_str(), model.told()), ("written", Vec::new()));
    assert_eq!(resolve(COMMAND, &env).unwrap().name.as_str(), DEFAULT_MODEL);
}

#[test]
fn the_endpoint_joins_the_list_as_plumbing_of_the_programs_that_are_listed() {
    use policy::egress::{Binaries, Source};
    let text = "[repo]\npath = \".\"\n[agent]\nbackend = \"openshell\"\nharness = \"command\"\nagent_cmd = \"a\"\n\
                [agent.openshell]\ninherit_defaults = false\nbinaries = [\"/usr/bin/curl\"]\n[judge]\nmeasure_cmd = \"m\"\n\
                direction = \"lower\"\n";
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("crucible.toml"), text).unwrap();
    let pack = crate::pack::Pack::load(&dir.path().join("crucible.toml")).unwrap();
    let inference = Inference::of(&with(DOCUMENT, &[])).unwrap();
    let plan = crate::plan::RunPlan::resolve(pack, &Overrides { inference, ..Overrides::default() }).unwrap();
    let mut sandbox = plan.agent.sandbox.unwrap();
    let [entry] = sandbox.egress.entries() else { panic!("one entry") };
    assert_eq!(
        (entry.endpoint.to_string().as_str(), &entry.source),
        ("127.0.0.1:8080:full", &Source::Engine("inference".into()))
    );
    sandbox.admit(policy::egress::BinaryPath::parse("/opt/agent/bin/claude").unwrap());
    let Binaries::Of(programs) = &sandbox.egress.entries()[0].binaries else {
        panic!("not for every program")
    };
    let mut programs: Vec<_> = programs.iter().map(ToString::to_string).collect();
    programs.sort();
    assert_eq!(programs, ["/opt/agent/bin/claude", "/usr/bin/curl"]);
}

//! What a real tool finds in a sandbox beside its model: the broker's tools and their bounds, and a key that is disclosed.

use serde_json::json;

use super::*;

/// The two ways into a sandbox.
const SANDBOXED: [Way; 2] = [WAYS[1], WAYS[3]];

/// The broker's tool, as a model knows it.
const COMMENT: &str = "mcp__crucible__tracker_comment";

/// What an agent may write, and that it has tools for it.
const BOUND: &str =
    "[agent.broker]\nenabled = true\n[outputs.tracker-comment]\ncount = 2\ntarget = { fixed = \"PROJ-1\" }\n";

/// What a bound says that is used up.
const SPENT: &str = "[outputs.tracker-comment].count";

#[test]
fn a_tool_comments_as_often_as_its_bound_and_is_told_of_it() {
    if !installed() {
        return;
    }
    for way in SANDBOXED {
        let comment = |body: &str| json!({ "tool": { "name": COMMENT, "input": { "body": body } } });
        let model = Model::replies(&json!([
            comment("one"), comment("two"), comment("three"), { "run": RAISE }, { "text": "Done." }
        ]));
        let pack = pack(way, &model, "", BOUND);
        let ran = run(&pack, &model, &["--iterations", "1"]);
        ran.ended("finished", 0);
        assert_eq!(ran.decisions(), ["baseline", "keep"], "{way:?}: {} {}", ran.stderr(), pack.log_text());
        // A request holds all results before it: the first with the refusal is the one after the third call.
        let requests = model.requests();
        let told: Vec<bool> = requests.iter().map(|request| request.to_string().contains(SPENT)).collect();
        assert_eq!(told, [false, false, false, true, true], "{way:?}: {}", pack.log_text());
        let outbox: Vec<Value> = ["000001.json", "000002.json"]
            .iter()
            .map(|name| serde_json::from_str(&pack.read(&format!("state/outbox/{name}"))).unwrap())
            .collect();
        assert_eq!(std::fs::read_dir(pack.path("state/outbox")).unwrap().count(), 2, "{way:?}");
        let bodies: Vec<&Value> = outbox.iter().map(|kept| &kept["arguments"]["body"]).collect();
        assert_eq!(bodies, ["one", "two"], "{way:?}");
        let refused: Vec<_> = ran.events("output_refused").map(|row| (&row["bound"], &row["turn"])).collect();
        assert_eq!(refused, [(&SPENT.into(), &"turn-1".into())], "{way:?}");
        let failures = ran.events("agent").filter(|line| line["event"]["step"] == "failure");
        assert_eq!(failures.filter(|line| line.to_string().contains(SPENT)).count(), 1, "{way:?}");
    }
}

/// The credentials that `check` tells of a pack, each with its system.
fn credentials(command: &mut std::process::Command) -> Vec<(String, String)> {
    let output = command.output().unwrap();
    let check: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = check["exposure"]["capabilities"].as_array().unwrap().iter();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let credentials = rows.filter(|row| row["kind"] == "credential");
    credentials.map(|row| (text(row, "name"), text(row, "system"))).collect()
}

#[test]
fn a_bound_model_needs_no_declaration() {
    if !installed() {
        return;
    }
    for (way, protocol, path) in [(WAYS[1], "messages", ""), (WAYS[3], "responses", "/v1")] {
        let model = Model::replies(&turn(RAISE));
        let pack = pack(way, &model, "", "");
        let manifest = pack.read("crucible.toml").replace(&declared(way), "");
        assert!(!manifest.contains("capabilities"), "{manifest}");
        pack.write("crucible.toml", &manifest);
        let document = json!({ "version": 1, "bindings": [{
            "role": "agent", "protocol": protocol, "url": format!("{}{path}", model.url), "model": "bound-1", "key_env": "MY_KEY",
        }] });
        let bound = |args: &[&str]| {
            let mut command = pack.command(args);
            command.env("PATH", on_path()).env("MY_KEY", KEY).env("CRUCIBLE_INFERENCE", document.to_string());
            // Beside a document they count for nothing, so nothing is to be declared.
            command.env("ANTHROPIC_API_KEY", "ambient").env("OPENAI_API_KEY", "ambient");
            command
        };
        assert!(bound(&["plan", "exposure"]).output().unwrap().status.success(), "{way:?}");
        let disclosed = credentials(&mut bound(&["check", "--no-run", "--json"]));
        assert_eq!(disclosed.iter().filter(|(_, system)| system == "inference").count(), 2, "{disclosed:?}");
        let ran = Ran { output: bound(&["--iterations", "1"]).output().unwrap(), log: pack.log() };
        assert_eq!(ran.code(), 0, "{way:?}: {}", ran.stderr());
        let ran = Ran { log: pack.log(), ..ran };
        assert_eq!(ran.decisions(), ["baseline", "keep"], "{way:?}: {}", pack.log_text());
        assert!(model.requests().iter().all(|request| request["body"]["model"] == "bound-1"), "{way:?}");
        assert_eq!(holding(&pack.path("."), KEY), Vec::<String>::new(), "{way:?}");
    }
}

#[test]
fn an_ambient_key_is_refused_until_it_is_declared() {
    if !installed() {
        return;
    }
    for (way, key, url) in
        [(WAYS[1], "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"), (WAYS[3], "OPENAI_API_KEY", "OPENAI_BASE_URL")]
    {
        let model = Model::replies(&turn(RAISE));
        let pack = pack(way, &model, "", "");
        let manifest = pack.read("crucible.toml");
        pack.write("crucible.toml", &manifest.replace(&declared(way), ""));
        let refused = run(&pack, &model, &["--iterations", "1"]);
        assert_eq!(refused.code(), 14, "{way:?}: {}", refused.stderr());
        for name in [key, url] {
            let said = format!(
                "give the agent the variable `{name}`: no capability discloses it; \
                 declare it as [[capabilities.secret]] with context = \"agent\""
            );
            assert!(refused.stderr().contains(&said), "{way:?}: {}", refused.stderr());
        }
        assert!(refused.stderr().contains("CRUCIBLE_INFERENCE") && !refused.stderr().contains(KEY));
        assert!(!pack.exists("state") && !pack.exists("workspace"), "{way:?}: nothing was begun");
        let checked = run(&pack, &model, &["check", "--no-run"]);
        assert_eq!(checked.code(), 7, "{way:?}: {}", checked.stdout());
        assert!(checked.stdout().contains(key), "{way:?}: {}", checked.stdout());
        assert_eq!(model.requests().len(), 0, "{way:?}");
        pack.write("crucible.toml", &manifest);
        let ran = run(&pack, &model, &["--iterations", "1"]);
        assert_eq!(ran.decisions(), ["baseline", "keep"], "{way:?}: {}", ran.stderr());
    }
}

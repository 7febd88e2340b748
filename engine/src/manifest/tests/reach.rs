//! Declared writes, credentials, relays and the broker's face: contract §1.9 and notes N4, N5, N14, N16.

use policy::outputs::{Kind, Scope, Target};

use super::*;

const SECRET: &str = "[[capabilities.secret]]\nname = \"TOKEN\"\ncontext = \"broker\"\nsystem = \"jira\"\nscope = \"comment\"\n";

#[test]
fn outputs_are_read_with_their_targets() {
    let text = with(
        "[outputs.image-push]\ncount = 20\ntarget = { fixed = \"quay.io/aipcc\" }\n\
         [outputs.tracker-comment]\ncount = 3\ntarget = { open = { scope = \"PROJ-*\", param = \"issue_key\" } }\n\
         [outputs.deploy]\ncount = 0\ntarget = { open = { scope = \"staging/*\" } }\n[outputs.gpu-capture]\ncount = 7\n",
    );
    let outputs = Manifest::parse("c.toml", &text).unwrap().outputs;
    let scope = |text: &str| Scope::parse(text).unwrap();
    let of = |kind: Kind| outputs.of(kind).map(|one| (one.count, one.target.clone()));
    assert_eq!(of(Kind::ImagePush), Some((20, Some(Target::Fixed(scope("quay.io/aipcc"))))));
    let open = |text: &str, param: Option<&str>| Target::Open {
        scope: scope(text),
        param: param.map(str::to_owned),
    };
    assert_eq!(of(Kind::TrackerComment), Some((3, Some(open("PROJ-*", Some("issue_key"))))));
    assert_eq!(of(Kind::Deploy), Some((0, Some(open("staging/*", None)))));
    assert_eq!(of(Kind::GpuCapture), Some((7, None)));
    assert_eq!(of(Kind::DraftPr), None);
}

#[test]
fn every_scope_that_admits_everything_is_refused() {
    let table: serde_json::Value =
        serde_json::from_str(include_str!("../../../../tests/cases/scopes.json")).unwrap();
    for (key, good) in [("unbounded", false), ("bounded", true)] {
        for scope in table[key].as_array().unwrap() {
            let target =
                format!("[outputs.tracker-comment]\ncount = 1\ntarget = {{ open = {{ scope = {scope} }} }}");
            let parsed = Manifest::parse("c.toml", &with(&target));
            assert_eq!(parsed.is_ok(), good, "{scope}");
            if let Err(errors) = parsed {
                let place = errors.source().position(errors.diagnostics()[0].span.start);
                assert_eq!((place.line, place.column), (15, 29), "{errors}");
            }
        }
    }
}

#[test]
fn outputs_mistakes() {
    let text = with(
        r#"[outputs.emails]
count = 1
[outputs.draft-prs]
count = 1
[outputs.deploy]
count = 1
[outputs.image-push]
target = { fixed = "quay.io/*" }
[outputs.chat-message]
count = -1
target = { fixed = "a", open = { scope = "b" } }
[outputs.workflow-dispatch]
count = 1
target = { open = { scope = "owner/*", parm = "x" } }
[outputs.tracker-comment]
count = 1
target = { open = { scope = "PROJ-*", param = "issue key" } }
[outputs.draft-pr]
count = 1
target = {}
[outputs.gpu-capture]
count = 1
target = { fixed = "x" }
"#,
    );
    insta::assert_snapshot!(brief(&text), @r#"
    13:10 unknown key `emails` in [outputs] // [outputs] has draft-pr, tracker-comment, chat-message, image-push, deploy, workflow-dispatch, gpu-capture
    15:10 unknown key `draft-prs` in [outputs] // did you mean `draft-pr`?
    17:10 [outputs.deploy].target is missing // add it: Where they may go: `{ fixed = "…" }` or `{ open = { scope = "…", param = "…" } }`
    19:10 [outputs.image-push].count is missing // add it: How many of them the run may make; 0 is none
    20:20 the fixed target `quay.io/*` of [outputs.image-push] has a wildcard // write { open = { scope = "…" } } for more than one place
    22:9 [outputs.chat-message].count is negative
    23:25 the target of [outputs.chat-message] has 2 of `fixed` and `open`: it has exactly one // keep one of them
    26:40 unknown key `parm` in [outputs.<kind>.target.open] // did you mean `param`?
    29:47 `issue key` is not a parameter's name: it has letters, digits, `_` and `-`, and begins with a letter or `_`
    32:1 the target of [outputs.draft-pr] has 0 of `fixed` and `open`: it has exactly one // write { fixed = "…" } or { open = { scope = "…" } }
    35:1 [outputs.gpu-capture].target is there: a `gpu-capture` is addressed to nothing // remove it
    "#);
}

#[test]
fn secret_mistakes() {
    let text = with(&format!(
        "{SECRET}{SECRET}[[capabilities.secret]]\nname = \"BROKER_X\"\ncontext = \"both\"\nsystem = \"\"\nscope = \"{}\"\n\
         [capabilities.secrets]\n",
        "x".repeat(201)
    ));
    insta::assert_snapshot!(brief(&text), @r#"
    19:8 two [[capabilities.secret]] have the name `TOKEN` (the first one at 14:8) // keep one of them
    24:8 `BROKER_X` begins with `BROKER_`: such names are the engine's // give it another name
    25:11 [capabilities.secret].context = "both" is none of its words // write "broker" or "agent"
    26:10 [capabilities.secret].system is empty
    27:9 [capabilities.secret].scope has 201 characters: it has at most 200 // say it in one line, such as "read + comment on PROJ"
    28:15 unknown key `secrets` in [capabilities] // did you mean `secret`?
    "#);
    insta::assert_snapshot!(brief(&with("[capabilities.secret]\nname = \"A\"")), @r#"
    13:1 [capabilities].secret is a table: it must be an array of tables // write the header with two pairs of brackets
    "#);
}

#[test]
fn what_the_broker_holds_is_never_given_to_the_agent() {
    insta::assert_snapshot!(brief(&with(&format!("[agent.env]\nTOKEN = \"x\"\n{SECRET}"))), @r#"
    14:1 `TOKEN` has context = "broker", and [agent.env] gives it to the agent (declared here at 15:1) // remove it from [agent.env], or write context = "agent" to let it enter the sandbox
    "#);
    let relay = "[[agent.relay]]\ndest = \"/tmp/a\"\ntemplate = \"t ${env:TOKEN}\"\n";
    insta::assert_snapshot!(brief(&sandboxed(&format!("{relay}{SECRET}"))), @r#"
    17:8 `TOKEN` has context = "broker", and the relay to /tmp/a puts it into the sandbox (declared here at 19:1) // relay something else, or write context = "agent" to let it enter the sandbox
    "#);
    let agents = SECRET.replace("broker", "agent");
    assert!(Manifest::parse("c.toml", &with(&format!("[agent.env]\nTOKEN = \"x\"\n{agents}"))).is_ok());
    assert!(Manifest::parse("c.toml", &sandboxed(&format!("{relay}{agents}"))).is_ok());
}

#[test]
fn relays_are_read_with_their_sources() {
    let text = sandboxed(
        r#"
        [[agent.relay]]
        dest = "/sandbox/home/.netrc"
        template = "machine a login ${env:USER} password ${cmd:pass show a}\n"
        [[agent.relay]]
        dest = "/tmp/kubeconfig"
        from_file = "../kube/config"
        mode = "0400"
        [[agent.relay]]
        dest = "/tmp/token"
        from_cmd = "oc whoami -t"
        [[agent.relay]]
        dest = "/tmp/plain"
        template = "plain"
        "#,
    );
    let relays = Manifest::parse("c.toml", &text).unwrap().agent.relays;
    let shown: Vec<_> = relays
        .iter()
        .map(|relay| {
            let relay = &relay.value;
            format!("{} {:o} {}", relay.dest, relay.mode, relay.sources().join(", "))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "/sandbox/home/.netrc 600 env:USER, cmd:pass show a",
            "/tmp/kubeconfig 400 file:../kube/config",
            "/tmp/token 600 cmd:oc whoami -t",
            "/tmp/plain 600 "
        ]
    );
}

#[test]
fn relay_mistakes_show_no_text_of_a_template() {
    let text = sandboxed(
        r#"
[[agent.relay]]
dest = "/etc/passwd"
template = "hunter2 ${env:A"
[[agent.relay]]
dest = "/tmp/a"
[[agent.relay]]
dest = "/tmp/b"
template = "hunter2"
from_file = "x"
[[agent.relay]]
dest = "/tmp/c/d"
template = "hunter2 ${secret:A}"
mode = "4755"
[[agent.relay]]
dest = "/tmp/c"
from_cmd = "x"
[[agent.relay]]
dest = "/tmp/c/e"
from_cmd = "x"
mod = "0600"
"#,
    );
    let errors = Manifest::parse("c.toml", &text).unwrap_err();
    assert!(!errors.to_string().contains("hunter2"), "{errors}");
    insta::assert_snapshot!(lines(errors.source(), errors.diagnostics()), @r#"
    18:8 the relay's `dest` is not below /sandbox/home or /tmp, where the agent may write and nothing comes back from // write an absolute path below /sandbox/home or /tmp, without `..`
    19:12 the relay's template has `${env:` without a closing brace // close it with `}`
    20:1 a relay has 0 of `template`, `from_file` and `from_cmd`: it has exactly one // write one of them
    25:1 a relay has 2 of `template`, `from_file` and `from_cmd`: it has exactly one // keep one of them
    28:12 the relay's template has `${secret:…}`, which nothing replaces // write ${env:NAME}, ${file:PATH}, ${file64:PATH} or ${cmd:COMMAND}; other text goes into a file, by from_file
    29:8 the relay's `mode` is not three or four octal digits up to "0777" // write it in quotes, such as "0600"
    34:8 two relays have the destination `/tmp/c/e`, or one lies below the other (the other one at 31:8) // give each its own place
    36:1 unknown key `mod` in [agent.relay] // did you mean `mode`?
    "#);
    insta::assert_snapshot!(brief(&with_agent("[[agent.relay]]\ndest = \"/tmp/a\"\nfrom_file = \"x\"")), @r#"
    9:9 [[agent.relay]] goes with backend = "openshell": without a sandbox the agent sees the host's own files // remove it, or write backend = "openshell" for a sandbox
    "#);
    insta::assert_snapshot!(brief(&with_agent("relay = [1]").replace("backend = \"command\"", OPENSHELL)), @r#"
    10:10 an item of [agent].relay is an integer: it must be a table
    "#);
    insta::assert_snapshot!(brief(&sandboxed("[agent.relay]\ndest = \"/tmp/a\"")), @r#"
    16:1 [agent].relay is a table: it must be an array of tables // write the header with two pairs of brackets
    "#);
}

#[test]
fn broker_mistakes() {
    let broker = |keys: &str| brief(&sandboxed(&format!("[agent.broker]\n{keys}")));
    insta::assert_snapshot!(broker("enabled = true\nurl = \"https://b.example\""), @r#"
    18:7 [agent.broker].url is https: inside a sandbox the broker speaks plain HTTP, and nothing of it leaves the sandbox // write http:// and a host, such as "http://broker.internal:8080"
    "#);
    insta::assert_snapshot!(broker("enabled = 1\nurl = \"b.example\"\nbin = \"/x\"\nport = 1"), @r#"
    17:11 [agent.broker].enabled is an integer: it must be a boolean // write true or false, without quotes
    18:7 [agent.broker].url cannot be used: the broker's URL starts with http:// or https:// // write http:// and a host, such as "http://broker.internal:8080"
    19:1 [agent.broker].bin is not in this build, which runs its own broker only: what another program would have to do is not defined // remove it, or use a build that has it
    20:1 unknown key `port` in [agent.broker] // [agent.broker] has enabled, url
    "#);
    insta::assert_snapshot!(broker("enabled = true\nurl = \"http://b.example:3128\""), @r#"
    18:7 [agent.broker].url has the port 3128, where a sandbox has its proxy // write another port
    "#);
    insta::assert_snapshot!(brief(&with_agent("[agent.broker]\nenabled = true")), @r#"
    9:8 [agent.broker] goes with backend = "openshell": the broker's tools are served inside a sandbox // remove it, or write backend = "openshell" for a sandbox
    "#);
}

#[test]
fn the_broker_serves_tools_only_where_it_is_told_to() {
    let url = |keys: &str| {
        let manifest = Manifest::parse("c.toml", &sandboxed(keys)).unwrap();
        let said: Vec<String> = manifest.warnings().iter().map(|warning| warning.message.clone()).collect();
        (manifest.agent.broker.map(|url| url.target.to_string()), said.concat())
    };
    let none = String::new;
    assert_eq!(url(""), (None, none()));
    assert_eq!(url("[agent.broker]\n"), (None, none()));
    assert_eq!(url("[agent.broker]\nenabled = false"), (None, none()));
    assert_eq!(url("[agent.broker]\nenabled = true").0.as_deref(), Some("host.openshell.internal:3129"));
    assert_eq!(
        url("[agent.broker]\nenabled = true\nurl = \"http://b.example\"").0.as_deref(),
        Some("b.example:80")
    );
    let idle = url("[agent.broker]\nurl = \"http://b.example\"");
    assert_eq!(idle, (None, "[agent.broker].url has no effect".to_owned()));
}

#[test]
fn a_sandboxs_table_is_kept_for_the_day_the_backend_changes() {
    let text = with_agent("[agent.openshell]\ninherit_defaults = false");
    let manifest = Manifest::parse("c.toml", &text).unwrap();
    assert!(manifest.agent.sandbox.is_none() && manifest.agent.isolated);
    assert_eq!(manifest.warnings()[0].message, "[agent.openshell] has no effect");
    assert!(!Manifest::parse("c.toml", &with_agent("[agent.openshell]")).unwrap().agent.isolated);
}

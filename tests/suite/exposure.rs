//! Contract §1.9: what is disclosed before anything runs, what is refused at the start, and what a sandbox really gets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::support::{COUNT, Pack, RAISE, Ran, hello_server, toml_string};

/// A value that must be nowhere.
const CANARY: &str = "canary-7f3a91c2";

const REACH: &str = "[outputs.tracker-comment]\ncount = 3\ntarget = { open = { scope = \"PROJ-*\", param = \"issue_key\" } }\n\
                     [[capabilities.secret]]\nname = \"JIRA_API_TOKEN\"\ncontext = \"broker\"\nsystem = \"jira\"\nscope = \"comment on PROJ\"\n";

/// A pack whose agent runs in a sandbox that reaches nothing but what `lists` names.
fn sandboxed(agent: &str, lists: &str, more: &str) -> Pack {
    let pack =
        Pack::new(agent, COUNT, &format!("[agent.openshell]\ninherit_defaults = false\n{lists}\n{more}"));
    let manifest = pack.read("crucible.toml");
    pack.write(
        "crucible.toml",
        &manifest.replace("backend = \"command\"", "backend = \"openshell\"\nharness = \"command\""),
    );
    pack
}

/// What `plan exposure` prints.
fn exposure(pack: &Pack, args: &[&str]) -> Value {
    let ran = pack.run(&[&["plan", "exposure"], args].concat());
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    serde_json::from_str(&ran.stdout()).unwrap()
}

/// The rows of one kind.
fn rows<'a>(exposure: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    exposure["capabilities"].as_array().unwrap().iter().filter(move |row| row["kind"] == kind)
}

fn run_with(pack: &Pack, args: &[&str], env: &[(&str, &str)]) -> Ran {
    let output = pack.command(args).envs(env.iter().copied()).output().unwrap();
    Ran { output, log: pack.log() }
}

#[test]
fn the_document_is_the_same_each_time_and_nothing_of_the_pack_is_run_for_it() {
    let touch = "touch \"$OUTSIDE\"";
    let relay = format!("[[agent.relay]]\ndest = \"/tmp/x\"\nfrom_cmd = {}\n", toml_string(touch));
    let pack = sandboxed(touch, "", &format!("{relay}{REACH}"));
    pack.write("measure.sh", touch);
    let manifest = pack.read("crucible.toml");
    pack.write(
        "crucible.toml",
        &manifest.replace("[workspace]\n", &format!("[workspace]\nsetup_cmd = {}\n", toml_string(touch))),
    );
    let mark = pack.path("mark");
    let mark = mark.to_str().unwrap();
    let first = run_with(&pack, &["plan", "exposure"], &[("OUTSIDE", mark)]);
    let again = run_with(&pack, &["plan", "exposure", "--manifest", "crucible.toml"], &[("OUTSIDE", mark)]);
    assert_eq!((first.code(), first.stdout()), (0, again.stdout()));
    for name in ["mark", "state", "workspace"] {
        assert!(!pack.exists(name), "{name}");
    }
    let document: Value = serde_json::from_str(&first.stdout()).unwrap();
    assert_eq!(document["outputs"][1]["target"]["open"]["param"], "issue_key");
    assert_eq!(rows(&document, "credential").next().unwrap()["system"], "jira");
    assert_eq!(rows(&document, "relay").next().unwrap()["sources"][0], format!("cmd:{touch}"));
    assert_eq!(rows(&document, "external-commands").next().unwrap()["present"], true);
    let schema: Value = serde_json::from_str(&pack.run(&["plan", "exposure", "--schema"]).stdout()).unwrap();
    assert_eq!(schema, policy::exposure::schema());
}

#[test]
fn check_prints_bounds_and_disclosure_before_all_else() {
    let pack = sandboxed(RAISE, "", &format!("[agent.env]\nAPP_KEY = \"x\"\n{REACH}"));
    let ran = pack.run(&["check", "--no-run", "--param", "issue_key=PROJ-1"]);
    assert_eq!(ran.code(), 0, "{}", ran.stderr());
    let labels: Vec<String> =
        ran.stdout().lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
    let at = |label: &str| labels.iter().position(|one| one == label).unwrap();
    assert_eq!(at("output"), 0);
    assert!(at("commands") < at("manifest") && at("credential") < at("manifest"), "{}", ran.stdout());
    assert!(ran.stdout().contains("APP_KEY  held by the agent  undeclared"), "{}", ran.stdout());
    assert!(ran.stdout().contains("warning: the agent gets `APP_KEY`"), "{}", ran.stdout());
    let json: Value = serde_json::from_str(&pack.run(&["check", "--no-run", "--json"]).stdout()).unwrap();
    assert_eq!(json["exposure"], exposure(&pack, &[]));
}

#[test]
fn the_brokers_own_entry_is_disclosed_where_it_serves_tools_and_nowhere_else() {
    let pack = sandboxed(RAISE, "", "");
    assert_eq!(rows(&exposure(&pack, &[]), "egress").count(), 0);
    let manifest = pack.read("crucible.toml");
    for (keys, host, port) in [
        ("enabled = true", "host.openshell.internal", 3129),
        ("enabled = true\nurl = \"http://tools.internal:8080/mcp\"", "tools.internal", 8080),
    ] {
        pack.write("crucible.toml", &format!("{manifest}[agent.broker]\n{keys}\n"));
        let exposure = exposure(&pack, &[]);
        let own: Vec<&Value> = rows(&exposure, "egress").collect();
        assert_eq!(own.len(), 1);
        assert_eq!(
            (&own[0]["host"], &own[0]["port"], &own[0]["source"]),
            (&host.into(), &port.into(), &"engine".into())
        );
    }
    pack.write("crucible.toml", &format!("{manifest}[agent.broker]\nbin = \"/x\"\n"));
    let refused = pack.run(&["plan", "exposure"]);
    assert_eq!(refused.code(), 3);
    assert!(refused.stderr().contains("[agent.broker].bin is not in this build"), "{}", refused.stderr());
}

#[test]
fn a_runs_item_and_parameters_are_where_its_targets_come_from() {
    let pack = Pack::counter();
    let target = |args: &[&str]| exposure(&pack, args)["outputs"][1]["target"].clone();
    assert_eq!(target(&[]), Value::Null);
    assert_eq!(target(&["--item", "PROJ-7"])["fixed"], "PROJ-7");
    assert_eq!(target(&["--item", "owner/repo#7"])["fixed"], "owner/repo#7");
    for args in [
        &["--item", "PROJ-*"][..],
        &["--item", "7"],
        &["--param", "a"],
        &["--param", "1a=b"],
        &["--param", "a=1", "--param", "a=2"],
    ] {
        for command in [&["plan", "exposure"][..], &["check", "--no-run"], &["run"]] {
            assert_eq!(pack.run(&[command, args].concat()).code(), 2, "{command:?} {args:?}");
        }
    }
    let check = pack.run(&["check", "--no-run", "--param", "unused=1"]).stdout();
    assert!(check.contains("warning: no target is bound to the parameter `unused`"), "{check}");
}

#[test]
fn a_change_that_widens_has_an_exit_code_of_its_own() {
    let pack =
        sandboxed(RAISE, "endpoints = [\"a.example:443:full\"]\nbinaries = [\"/usr/bin/curl\"]", REACH);
    let printed = pack.run(&["plan", "exposure"]).stdout();
    pack.write("old.json", &printed);
    let diff = || pack.run(&["plan", "exposure", "--diff", "old.json"]);
    assert_eq!((diff().code(), diff().stdout().as_str()), (0, "no difference\n"));
    let manifest = pack.read("crucible.toml");
    let change = |from: &str, to: &str| {
        assert!(manifest.contains(from), "{from}");
        pack.write("crucible.toml", &manifest.replacen(from, to, 1));
        let ran = diff();
        (ran.code(), ran.stdout())
    };
    let (code, said) = change("\"a.example:443:full\"", "\"a.example:443:full\", \"*.b.example:443:full\"");
    assert_eq!(code, 15, "{said}");
    assert!(said.starts_with("widens   egress *.b.example:443:full: "), "{said}");
    let (code, said) = change("count = 3", "count = 4");
    assert_eq!(
        (code, said.lines().next()),
        (15, Some("widens   [outputs.tracker-comment].count: from 3 to 4"))
    );
    let (code, said) = change("count = 3", "count = 2");
    assert_eq!((code, said.lines().last()), (0, Some("it widens nothing")), "{said}");
    let (code, said) = change("\"a.example:443:full\"", "");
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with("narrows  egress a.example:443:full: gone"), "{said}");
    let (code, _) = change("backend = \"openshell\"\nharness = \"command\"", "backend = \"command\"");
    assert_eq!(code, 15, "nothing is enforced any more");
    let json: Value =
        serde_json::from_str(&pack.run(&["plan", "exposure", "--diff", "old.json", "--json"]).stdout())
            .unwrap();
    assert_eq!(json["changes"][0]["effect"], "widens");
    for (text, why) in [
        ("", "EOF"),
        (&printed.replace("\"version\": 1", "\"version\": 2"), "version is 2"),
        (&printed.replace("\"host\"", "\"hots\""), "hots"),
    ] {
        pack.write("old.json", text);
        let ran = diff();
        assert_eq!(ran.code(), 2);
        assert!(ran.stderr().contains(why) && ran.stderr().contains("old.json"), "{}", ran.stderr());
    }
}

#[test]
fn isolation_that_nothing_enforces_is_refused_unless_the_operator_takes_it() {
    let pack = Pack::new(RAISE, COUNT, "[agent.openshell]\ninherit_defaults = false\n");
    assert_eq!(exposure(&pack, &[])["enforced"], false);
    let ran = pack.run(&["--iterations", "1"]);
    assert_eq!(ran.code(), 14);
    assert!(ran.stderr().contains("--unenforced-egress"), "{}", ran.stderr());
    assert!(!pack.exists("state") && !pack.exists("workspace"), "nothing was begun");
    let check = pack.run(&["check", "--no-run"]);
    assert_eq!(check.code(), 7);
    assert!(check.stdout().contains("enforced     no: "), "{}", check.stdout());
    assert_eq!(pack.run(&["check", "--no-run", "--unenforced-egress"]).code(), 0);
    let ran = pack.run(&["--iterations", "1", "--unenforced-egress"]);
    ran.ended("finished", 0);
    assert!(ran.events("note").any(|line| line["msg"].as_str().unwrap().contains("is not enforced")));
}

#[test]
fn what_the_broker_holds_reaches_no_command_of_the_pack_and_no_agent() {
    let secret = REACH.split("[[capabilities").nth(1).unwrap();
    let secret = format!("[[capabilities{secret}");
    let see = "env | grep -c -e JIRA_API_TOKEN -e \"$PART\" > seen.txt; env | grep -c ^KEPT= >> seen.txt";
    let judge = format!("{see}; cp seen.txt \"$OUTSIDE/measure\"\n{COUNT}");
    let pack = Pack::new(&format!("{see}; cp seen.txt \"$OUTSIDE/agent\"; {RAISE}"), &judge, &secret);
    let manifest = pack.read("crucible.toml");
    let setup = format!("cp -r start workspace; cd workspace; {see}; cp seen.txt \"$OUTSIDE/setup\"");
    let setup = format!("[workspace]\nsetup_cmd = {}\n", toml_string(&setup));
    let world =
        format!("[world]\napply_cmd = {}\n", toml_string(&format!("{see}; cp seen.txt \"$OUTSIDE/apply\"")));
    pack.write("crucible.toml", &(manifest.replace("[workspace]\n", &setup) + &world));
    let outside = tempfile::tempdir().unwrap();
    let env = [
        ("JIRA_API_TOKEN", CANARY),
        ("KEPT", "1"),
        ("PART", "canary-7f"),
        ("OUTSIDE", outside.path().to_str().unwrap()),
    ];
    let ran = run_with(&pack, &["--iterations", "1"], &env);
    ran.ended("finished", 0);
    for who in ["setup", "measure", "agent", "apply"] {
        let seen = std::fs::read_to_string(outside.path().join(who)).unwrap();
        // `PART` itself is the one line with a part of the value.
        assert_eq!(seen, "1\n1\n", "{who}");
    }
    assert_eq!(found(&pack.path("."), CANARY), Vec::<String>::new());
}

#[test]
fn the_value_of_what_the_broker_holds_is_refused_under_another_name() {
    let pack = Pack::new(RAISE, COUNT, &format!("[agent.env]\nURL = \"https://me:{CANARY}@h\"\n{REACH}"));
    let ran = run_with(&pack, &["--iterations", "1"], &[("JIRA_API_TOKEN", CANARY)]);
    assert_eq!(ran.code(), 14);
    assert!(ran.stderr().contains("`URL`") && ran.stderr().contains("`JIRA_API_TOKEN`"), "{}", ran.stderr());
    assert!(!ran.stderr().contains(CANARY) && !pack.exists("state"));
}

/// The files below a directory that hold a text, but for the manifest.
fn found(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                todo.push(path);
            } else if kind.is_file() && !path.ends_with("crucible.toml") {
                let bytes = std::fs::read(&path).unwrap_or_default();
                if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    found
}

#[test]
fn relayed_files_are_made_anew_for_each_turn_and_no_log_holds_them() {
    let agent = format!(
        "{RAISE}; for f in /sandbox/home/.netrc /tmp/raw /tmp/turn /tmp/deep/er/text; do stat -c '%a %u' $f; sha256sum < $f; done > seen.txt; \
         id -u >> seen.txt; cat /tmp/turn >> seen.txt"
    );
    let relays = format!(
        "[[agent.relay]]\ndest = \"/sandbox/home/.netrc\"\n\
         template = \"a ${{env:RELAYED}} ${{file:kept/file}} ${{file64:kept/file}} ${{cmd:cat kept/file; pwd}} ${{HOME}} ${{env:RELAYED}}\"\n\
         [[agent.relay]]\ndest = \"/tmp/raw\"\nfrom_file = \"kept/file\"\nmode = \"0444\"\n\
         [[agent.relay]]\ndest = \"/tmp/turn\"\nfrom_cmd = {}\n\
         [[agent.relay]]\ndest = \"/tmp/deep/er/text\"\ntemplate = \"text\"\nmode = \"0700\"\n",
        toml_string("echo turn >> kept/count; wc -l < kept/count")
    );
    let pack = sandboxed(&agent, "", &relays);
    pack.write("kept/file", &format!(" {CANARY}\n"));
    let ran = run_with(&pack, &["--iterations", "2"], &[("RELAYED", "${env:HOME}")]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep", "keep"], "{:?}", ran.rows());
    let here = std::fs::canonicalize(pack.path(".")).unwrap();
    let netrc = format!(
        "a ${{env:HOME}} {CANARY} {} {CANARY}\n{} ${{HOME}} ${{env:HOME}}",
        base64(&format!(" {CANARY}\n")),
        here.display()
    );
    for iter in [1, 2] {
        let candidate = ran.rows()[iter]["candidate"].as_str().unwrap();
        let seen = pack.git(&["show", &format!("{candidate}:seen.txt")]);
        let lines: Vec<&str> = seen.lines().collect();
        let user = lines[8];
        let text = |text: &str| format!("{}  -", sha256(text));
        let expect = [
            format!("600 {user}"),
            text(&netrc),
            format!("444 {user}"),
            text(&format!(" {CANARY}\n")),
            format!("600 {user}"),
            // The start of the run made it once already.
            text(&format!("{}\n", iter + 1)),
            format!("700 {user}"),
            text("text"),
            user.to_owned(),
            (iter + 1).to_string(),
        ];
        assert_eq!(lines, expect, "iteration {iter}");
    }
    assert_eq!(found(&pack.path("."), CANARY), [pack.path("./kept/file").display().to_string()]);
    assert!(!ran.stdout().contains(CANARY) && !ran.stderr().contains(CANARY));
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn sha256(text: &str) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(text).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

#[test]
fn check_prints_only_what_applies() {
    let ran = sandboxed(RAISE, "", "").run(&["check", "--no-run"]);
    let text = ran.stdout();
    assert_eq!(text.lines().filter(|line| line.starts_with("output ")).count(), 1, "{text}");
    assert!(text.contains("output       none: no tools are granted\n"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("model")), "a plain command asks no model: {text}");
}

#[test]
fn the_binding_and_the_tool_are_disclosed_and_a_change_of_them_widens() {
    let pack = sandboxed(RAISE, "", "");
    let manifest = pack.read("crucible.toml").replace("harness = \"command\"", "harness = \"claude\"");
    pack.write(
        "crucible.toml",
        &manifest
            .lines()
            .filter(|line| !line.starts_with("agent_cmd"))
            .fold(String::new(), |text, line| text + line + "\n"),
    );
    // A tool as npm installs it: the directory of its package is shown.
    let tool = pack.path("node_modules/tool");
    pack.write("node_modules/tool/package.json", "{}");
    pack.write("node_modules/tool/claude", "#!/bin/sh\n");
    std::fs::set_permissions(tool.join("claude"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let path = format!("{}:/usr/bin:/bin", tool.display());
    let document = |url: &str, model: &str| {
        format!(
            r#"{{"version":1,"bindings":[{{"role":"agent","protocol":"messages","url":"{url}","model":"{model}","key_env":"MY_KEY"}}]}}"#
        )
    };
    let run = |args: &[&str], url: &str, model: &str| {
        let document = document(url, model);
        let env = [("CRUCIBLE_INFERENCE", document.as_str()), ("MY_KEY", CANARY), ("PATH", path.as_str())];
        run_with(&pack, args, &env)
    };
    let first = run(&["plan", "exposure"], "https://models.example:8443/v1", "m-1");
    assert_eq!(first.code(), 0, "{}", first.stderr());
    let shown: Value = serde_json::from_str(&first.stdout()).unwrap();
    assert_eq!(
        rows(&shown, "inference").next().unwrap(),
        &serde_json::json!({
            "kind": "inference", "harness": "claude", "model": "m-1", "protocol": "messages", "endpoint": "models.example:8443",
            "variables": ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"], "key_env": "MY_KEY",
        })
    );
    let tool = std::fs::canonicalize(tool).unwrap();
    assert!(rows(&shown, "host-path").any(|row| row["path"] == tool.display().to_string()), "{shown:#}");
    assert!(!first.stdout().contains(CANARY));
    pack.write("old.json", &first.stdout());
    for (url, model, code, said) in [
        ("https://models.example:8443/v1", "m-1", 0, "no difference"),
        ("https://models.example:8443/v1", "m-2", 15, "keeps    inference: now claude  m-2"),
        (
            "https://other.example:8443/v1",
            "m-1",
            15,
            "widens   inference: now claude  m-1 over messages at other.example:8443",
        ),
    ] {
        let ran = run(&["plan", "exposure", "--diff", "old.json"], url, model);
        assert!(ran.stdout().contains(said), "{}", ran.stdout());
        assert_eq!(ran.code(), code, "{}", ran.stdout());
    }
    let gone = run_with(&pack, &["plan", "exposure"], &[("PATH", "/usr/bin:/bin")]);
    assert_eq!(gone.code(), 0);
    assert!(gone.stderr().contains("find `claude` on PATH"), "{}", gone.stderr());
    pack.write("old.json", "[1, [], [], true]");
    let ran = run(&["plan", "exposure", "--diff", "old.json"], "https://models.example:8443/v1", "m-1");
    assert!(ran.stderr().contains("it must be a JSON object, and is an array"), "{}", ran.stderr());
}

#[test]
fn a_relay_that_cannot_be_made_begins_nothing_and_check_says_so_too() {
    let held =
        "[[capabilities.secret]]\nname = \"HELD\"\ncontext = \"broker\"\nsystem = \"s\"\nscope = \"t\"\n";
    for (source, why) in [
        ("template = \"${cmd:true}${env:NOT_SET_ANYWHERE}\"", "the variable `NOT_SET_ANYWHERE` is not set"),
        ("from_file = \"gone\"", "No such file"),
        ("from_file = \"start\"", "directory"),
        ("from_file = \"link\"", "leads into the workspace"),
        ("from_cmd = \"echo canary-7f3a91c2 >&2; exit 3\"", "its command ended with exit code 3"),
        ("from_cmd = \"head -c 2000000 /dev/zero\"", "more than 1048576 bytes"),
        ("from_file = \"held\"", "it holds the value of `HELD`"),
        ("from_cmd = \"env | grep HELD\"", "its command ended with exit code 1"),
    ] {
        let pack = sandboxed(RAISE, "", &format!("[[agent.relay]]\ndest = \"/tmp/x\"\n{source}\n{held}"));
        std::os::unix::fs::symlink("workspace/counter.txt", pack.path("link")).unwrap();
        pack.write("held", &format!("x{CANARY}"));
        let ran = run_with(&pack, &["--iterations", "1"], &[("HELD", CANARY)]);
        ran.ended("error", 2);
        assert!(ran.rows().is_empty(), "{source}: nothing was measured or spent");
        assert!(ran.stderr().contains("/tmp/x") && ran.stderr().contains(why), "{source}: {}", ran.stderr());
        assert!(!pack.log_text().contains(CANARY) && !ran.stderr().contains(CANARY));
        let checked = run_with(&pack, &["check", "--no-run"], &[("HELD", CANARY)]);
        let command = source.starts_with("from_cmd");
        assert_eq!(checked.code(), if command { 0 } else { 7 }, "{source}: {}", checked.stdout());
        let told = if command { "relay        /tmp/x is made by a command on this host" } else { why };
        assert!(checked.stdout().contains(told), "{source}: {}", checked.stdout());
    }
}

#[test]
fn a_relay_that_a_turn_cannot_make_ends_the_turn_and_says_why() {
    let once = "[ ! -e made ] && touch made || exit 3";
    let relay = format!("[[agent.relay]]\ndest = \"/tmp/x\"\nfrom_cmd = {}\n", toml_string(once));
    let pack = sandboxed(RAISE, "", &relay);
    let ran = pack.run(&["--iterations", "1"]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "infra-dead"]);
    let note = ran.rows()[1]["note"].as_str().unwrap();
    assert!(note.contains("/tmp/x") && note.contains("its command ended with exit code 3"), "{note}");
}

#[test]
fn what_an_agent_could_write_is_not_relayed() {
    for (relay, why) in [
        ("dest = \"/tmp/x\"\nfrom_file = \"workspace/counter.txt\"", "lies in the workspace"),
        ("dest = \"/tmp/x\"\ntemplate = \"${file64:./workspace/counter.txt}\"", "lies in the workspace"),
    ] {
        let pack = sandboxed(RAISE, "", &format!("[[agent.relay]]\n{relay}\n"));
        let ran = pack.run(&["--iterations", "1"]);
        assert_eq!(ran.code(), 3, "{relay}");
        assert!(ran.stderr().contains(why), "{}", ran.stderr());
    }
}

/// Numbers that are the same in each run of the test.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// Some of them, in order.
    fn some<'a, T>(&mut self, all: &'a [T]) -> Vec<&'a T> {
        all.iter().filter(|_| self.roll(2) == 1).collect()
    }
}

const NAMES: [&str; 5] = ["APP_A", "APP_B", "APP_C", "EDITOR", "GIT_AUTHOR_NAME"];
const RELAYS: [(&str, &str); 5] = [
    ("/sandbox/home/.netrc", "template = \"${env:RELAYED}\""),
    ("/sandbox/home/.config/deep/tool", "from_file = \"kept/file\""),
    ("/tmp/token", "from_cmd = \"echo token\""),
    ("/tmp/b/c", "template = \"text\""),
    ("/sandbox/home/both", "template = \"${env:OTHER}${file:kept/file}\""),
];

/// Everything that an agent finds in its sandbox, by lines `what value`. Ports that it may try are in `$PORTS`.
const PROBE: &str = r#"
ask() { exec 3<>/dev/tcp/127.0.0.1/$1 || return; printf "$2" >&3; while IFS= read -r line <&3 || [ -n "$line" ]; do printf "%s\n" "$line"; done; exec 3>&-; }
{ env | sed "s/=.*//;s/^/env /"
  find /sandbox/home /tmp -type f | sed "s/^/file /"
  while read -r _ _ _ _ at _; do echo "mount $at"; done < /proc/self/mountinfo
  for port in $PORTS; do
    ask 3128 "CONNECT 127.0.0.1:$port HTTP/1.1\r\nHost: 127.0.0.1:$port\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n" | grep -q "^hello" && echo "port $port"
    ask $port "GET / HTTP/1.1\r\nHost: 127.0.0.1:$port\r\n\r\n" 2>/dev/null | grep -q "^hello" && echo "port $port"
  done; } > seen.txt
"#;

/// What a sandbox of this pack has, as its agent found it.
fn probed(pack: &Pack) -> BTreeSet<String> {
    let ran = run_with(pack, &["--iterations", "1"], &[("RELAYED", "r"), ("OTHER", "o"), ("HELD", CANARY)]);
    ran.ended("finished", 0);
    assert_eq!(ran.decisions().len(), 2, "{:?}", ran.rows());
    let candidate = ran.rows()[1]["candidate"].as_str().unwrap_or_else(|| panic!("{}", ran.rows()[1]));
    pack.git(&["show", &format!("{candidate}:seen.txt")]).lines().map(str::to_owned).collect()
}

/// A pack that probes: `lists` go into `[agent.openshell]`, `more` behind it.
fn probe(ports: &[u16], lists: &str, more: &str) -> Pack {
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    let agent = format!("export PORTS='{}'; bash probe.sh; {RAISE}", ports.join(" "));
    let pack = sandboxed(&agent, lists, more);
    pack.write("start/probe.sh", PROBE);
    pack.write("kept/file", "kept");
    pack
}

/// What the exposure says that a sandbox has.
fn disclosed(exposure: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let mut relayed = BTreeSet::new();
    for row in rows(exposure, "relay") {
        all.insert(format!("file {}", text(row, "path")));
        let sources = row["sources"].as_array().unwrap();
        relayed.extend(
            sources.iter().filter_map(|source| source.as_str()?.strip_prefix("env:").map(str::to_owned)),
        );
    }
    for row in rows(exposure, "credential").filter(|row| row["context"] == "agent") {
        // What a relay reads stands in its file, not in the environment.
        if !relayed.contains(&text(row, "name")) {
            all.insert(format!("env {}", text(row, "name")));
        }
    }
    all.extend(rows(exposure, "host-path").map(|row| format!("mount {}", text(row, "path"))));
    all.extend(rows(exposure, "egress").map(|row| format!("port {}", row["port"])));
    all
}

#[test]
fn a_sandbox_has_what_is_disclosed_and_nothing_else_over_generated_manifests() {
    let ports: Vec<u16> = (0..4).map(|_| hello_server()).collect();
    let host = tempfile::tempdir().unwrap();
    let paths: Vec<String> = ["a", "b", "c/d"]
        .iter()
        .map(|name| {
            let path = host.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path.display().to_string()
        })
        .collect();
    let binaries = "binaries = [\"/usr/bin/bash\"]\n";
    let own = probed(&probe(&ports, binaries, ""));
    assert!(own.iter().all(|line| !line.starts_with("port ") && !line.starts_with("file ")), "{own:?}");
    let mut dice = Dice(20_261_130);
    let mut kinds = BTreeSet::new();
    for round in 0..6 {
        let listed: Vec<String> =
            dice.some(&ports).iter().map(|port| format!("\"127.0.0.1:{port}:full:tcp\"")).collect();
        let shown: Vec<String> = dice.some(&paths).iter().map(|path| format!("{path:?}")).collect();
        let lists = format!(
            "{binaries}endpoints = [{}]\nread_only_paths = [{}]\n",
            listed.join(", "),
            shown.join(", ")
        );
        let mut more = String::from(
            "[[capabilities.secret]]\nname = \"HELD\"\ncontext = \"broker\"\nsystem = \"s\"\nscope = \"t\"\n[agent.env]\n",
        );
        for name in dice.some(&NAMES) {
            writeln!(more, "{name} = \"v\"").unwrap();
        }
        for (dest, source) in dice.some(&RELAYS) {
            writeln!(more, "[[agent.relay]]\ndest = \"{dest}\"\n{source}").unwrap();
        }
        let pack = probe(&ports, &lists, &more);
        let exposure = exposure(&pack, &[]);
        assert_eq!(exposure["enforced"], true);
        let got: BTreeSet<String> = probed(&pack).difference(&own).cloned().collect();
        let said = disclosed(&exposure);
        assert_eq!(got, said, "manifest {round}:\n{}", pack.read("crucible.toml"));
        kinds.extend(got.iter().map(|line| line.split(' ').next().unwrap().to_owned()));
        assert!(!got.contains("env HELD") && found(&pack.path("state"), CANARY).is_empty());
    }
    assert_eq!(kinds, ["env", "file", "mount", "port"].map(str::to_owned).into(), "each kind was tried");
}

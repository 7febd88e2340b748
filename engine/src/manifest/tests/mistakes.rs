//! What is said about each mistake, alone and beside others.

use ::broker::limits::{Limit, Unit};

use super::*;

#[test]
fn several_mistakes_of_one_file_are_drawn_together() {
    let text = "# größe\n[repo]\nurll = \"ü\"\n\n[judge]\nmeasure_cmd = ./measure.sh\ndirection = \"min\"\n\
                [world]\nsnapshot_cmd = \"snap\"\n[workspace]\ndir = \"../out\"\n";
    let errors = Manifest::parse("packs/crucible.toml", text).unwrap_err();
    insta::assert_snapshot!(errors, @r#"
    error: [agent] is missing
     --> packs/crucible.toml:1:1
      |
    1 | # größe
      | ^
      |
      = help: add it: Who proposes a candidate, and what it is told

    error: unknown key `urll` in [repo]
     --> packs/crucible.toml:3:1
      |
    3 | urll = "ü"
      | ^^^^
      |
      = help: did you mean `url`?

    error: the value of `measure_cmd` is not in quotes
     --> packs/crucible.toml:6:15
      |
    6 | measure_cmd = ./measure.sh
      |               ^
      |
      = help: write measure_cmd = "./measure.sh"

    error: `min` is no direction: it is "lower" or "higher"
     --> packs/crucible.toml:7:13
      |
    7 | direction = "min"
      |             ^^^^^
      |
      = help: did you mean "lower"?

    error: [world].snapshot_cmd is there, and [world].restore_cmd is not: they work as a pair
     --> packs/crucible.toml:9:1
      |
    9 | snapshot_cmd = "snap"
      | ^^^^^^^^^^^^
      |
      = help: write restore_cmd too, or remove the other

    error: [workspace].dir leads out with `..`
      --> packs/crucible.toml:11:7
       |
    11 | dir = "../out"
       |       ^^^^^^^^
       |
       = help: write a relative path without `..`
    "#);
}

#[test]
fn columns_count_characters_and_crlf_is_not_drawn() {
    let text = "[agent]\r\nenv = { \"größe\" = \"ü\", BROKER_X = \"é\" }\r\n\r\n";
    let errors = Manifest::parse("c.toml", text).unwrap_err();
    insta::assert_snapshot!(errors, @r#"
    error: [repo] is missing
     --> c.toml:1:1
      |
    1 | [agent]
      | ^
      |
      = help: add it: The upstream that the agent edits a checkout of

    error: [judge] is missing
     --> c.toml:1:1
      |
    1 | [agent]
      | ^
      |
      = help: add it: What scores a candidate, and which way is better

    error: `größe` is not a variable's name: it has letters, digits and `_`, and no digit first
    --> c.toml:2:9

    error: `BROKER_X` begins with `BROKER_`: such names are the engine's
    --> c.toml:2:24
     = help: give it another name
    "#);
}

#[test]
fn nothing_is_missing_but_said_once() {
    insta::assert_snapshot!(brief(""), @r#"
    1:1 [repo] is missing // add it: The upstream that the agent edits a checkout of
    1:1 [agent] is missing // add it: Who proposes a candidate, and what it is told
    1:1 [judge] is missing // add it: What scores a candidate, and which way is better
    "#);
    insta::assert_snapshot!(brief("[repo]\n[agent]\n[judge]\n"), @r#"
    1:2 [repo] has neither `url` nor `path` // write path = "." for the manifest's own directory, or url = "https://…"
    3:2 [judge].measure_cmd is missing // add it: Run by `sh -c` in the workspace
    3:2 [judge].direction is missing // add it: Which way a score is better
    "#);
}

#[test]
fn syntax_errors_do_not_hide_other_mistakes() {
    insta::assert_snapshot!(brief("[repo\npath = \".\"\n[judge]\ndirection = up\nobjective = 3\nx y\n[world]\napply_cmd=\ny\n"), @r#"
    1:6 unclosed table, expected `]`
    4:13 the value of `direction` is not in quotes // write direction = "up"
    5:13 [judge].objective is an integer: it must be a string // put it in quotes
    6:3 key with no value, expected `=`
    8:11 the value of `apply_cmd` is not in quotes // write apply_cmd = "…"
    9:2 key with no value, expected `=`
    "#);
    insta::assert_snapshot!(brief(&with("[judge]\ntimeout = \"1s\"\ntimeout = \"2s\"\n[agent.env]\nA = \"1\"\nA = \"2\"")), @r#"
    13:2 this key or table was written before // keep one of them
    15:1 this key or table was written before // keep one of them
    18:1 this key or table was written before // keep one of them
    "#);
}

#[test]
fn unknown_keys_get_the_nearest_or_their_own_table() {
    let text = format!(
        "url = \"x\"\n[jugde]\n{}",
        with_agent("measure_cmd = \"x\"\nzzz = 1\ngoal-file = \"x\"").replace("direction", "dierction")
    );
    insta::assert_snapshot!(brief(&text), @r#"
    1:1 unknown key `url` in the manifest // `url` is a key of [repo]
    2:2 unknown key `jugde` in the manifest // did you mean `judge`?
    11:1 unknown key `measure_cmd` in [agent] // `measure_cmd` is a key of [judge]
    12:1 unknown key `zzz` in [agent] // [agent] has backend, harness, agent_cmd, model, method_prompt, goal, goal_file, timeout, idle_timeout, env, openshell, toolbox_dir, allow_unverified_image, requires, prefers, broker, relay
    13:1 unknown key `goal-file` in [agent] // did you mean `goal_file`?
    16:1 unknown key `dierction` in [judge] // did you mean `direction`?
    "#);
    let long = with_agent(&format!("{} = 1", "k".repeat(200)));
    insta::assert_snapshot!(brief(&long), @r#"
    9:1 unknown key `kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk…` in [agent] // [agent] has backend, harness, agent_cmd, model, method_prompt, goal, goal_file, timeout, idle_timeout, env, openshell, toolbox_dir, allow_unverified_image, requires, prefers, broker, relay
    "#);
}

#[test]
fn repo_mistakes() {
    insta::assert_snapshot!(brief(&with_repo("path = \".\"\nurl = \"https://h/x\"")), @r#"
    4:1 [repo] has both `url` and `path` (the other one at 3:1) // keep the one that is meant
    "#);
    insta::assert_snapshot!(brief(&with_repo("url = \"../x\"\nref = \"-x\"")), @r#"
    3:7 [repo].url is a path of this machine // write path = "…" instead, or file:// before an absolute path
    4:7 [repo].ref begins with `-`: git would read it as an option
    "#);
    insta::assert_snapshot!(brief(&with_repo("url = \"https://me:secret@h/x\"\nref = \"a..b\"")), @r#"
    3:7 [repo].url holds a credential // remove it from the manifest and give it to git through a credential helper or an ssh key
    4:7 [repo].ref is not a name that git allows: it holds `..` or `@{` // write a branch, a tag or a commit, such as "main"
    "#);
    insta::assert_snapshot!(brief(&with_repo("url = \"ext::sh\"\nref = 1")), @r#"
    3:7 [repo].url begins with `ext::`, which is not a transport that is used here // write https://, http://, ssh://, git:// or file://, or user@host:path
    4:7 [repo].ref is an integer: it must be a string // put it in quotes
    "#);
    insta::assert_snapshot!(brief(&with_repo("path = \"\"\nref = \"\"")), @r#"
    3:8 [repo].path is empty
    4:7 [repo].ref is empty
    "#);
    insta::assert_snapshot!(brief(&with_repo("path = \"a\\u001bb\"")), @r#"
    3:8 [repo].path holds the control character U+001B
    "#);
}

#[test]
fn workspace_mistakes() {
    for (dir, said) in [
        ("../x", "leads out"),
        ("/x", "absolute"),
        (".git/x", "`.git`"),
        ("state", "`state`"),
        ("a/../..", "leads"),
    ] {
        let said_of_it = brief(&with(&format!("[workspace]\ndir = \"{dir}\"")));
        assert!(said_of_it.starts_with("14:7 [workspace].dir ") && said_of_it.contains(said), "{said_of_it}");
    }
    let in_place =
        with_repo("url = \"https://h/x\"") + "[workspace]\ndir = \".\"\nsetup_cmd = \"x\"\nhistory = \"no\"";
    insta::assert_snapshot!(brief(&in_place), @r#"
    13:7 [workspace].dir = "." works in place, and [repo].path is not "." // write path = "." in [repo], or leave `dir` out to work in a clone
    14:1 [workspace].setup_cmd is not run in place, and `dir` is "." (in place at 13:7) // remove `setup_cmd`, or leave `dir` out to work in a clone
    15:11 [workspace].history is a string: it must be a boolean // write true or false, without quotes
    "#);
    let other = with_repo("path = \"sub\"") + "[workspace]\ndir = \"./\"\ntimeout = 30\n";
    insta::assert_snapshot!(brief(&other), @r#"
    13:7 [workspace].dir = "." works in place, and [repo].path is not "." // write path = "." in [repo], or leave `dir` out to work in a clone
    14:11 [workspace].timeout is a number: a length of time has units // write a unit: "30s"
    "#);
    assert!(Manifest::parse("c.toml", &with("[workspace]\ndir = \".\"")).is_ok());
}

#[test]
fn inject_mistakes() {
    let text = with(
        r#"[workspace]
inject = [
  "../up.sh",
  "/etc/passwd",
  ".",
  "",
  ".git/hooks/x",
  "STEER.md",
  "a[",
  7,
  { src = "a" },
  { src = "a", dst = "../x" },
  { src = "a", dst = "x/" },
  { src = "a", dst = ".GIT/config" },
  { src = "a", dst = "RESULTS.md/x" },
  { src = "a", dst = "x", frozn = true },
  { src = "a", dst = "same" },
  { src = "b", dst = "./same" },
  { src = "b", dst = "same-not/x" },
  { src = "c", dst = "same/inner" },
]"#,
    );
    insta::assert_snapshot!(brief(&text), @r#"
    15:3 the inject leads out with `..`: a string entry stays below the manifest's directory // use the table form to reach outside: { src = "…", dst = "…" }
    16:3 the inject is an absolute path: a string entry stays below the manifest's directory // use the table form to reach outside: { src = "…", dst = "…" }
    17:3 an inject of the whole manifest directory would copy the workspace into itself // name the files or directories that are meant
    18:3 [workspace].inject is empty
    19:3 the inject's destination `.git/hooks/x` lies in `.git` // the engine keeps git's files: inject somewhere else
    20:3 the inject's destination `STEER.md` is a file that engine and agent speak through // give it another name
    21:3 the inject is not a glob: unclosed character class; missing ']' // use the table form for a name that holds *, ? or [
    22:3 an inject is a string or a table with `src` and `dst`: this is an integer // write "measure.sh" or { src = "…", dst = "…" }
    23:3 [workspace.inject].dst is missing // add it: Where it goes, relative to the workspace: not into `.git`, and not over a file that engine and agent speak through
    24:22 the inject's `dst` leads out with `..` // write a path relative to the workspace, without `..`
    25:22 the inject's `dst` ends in `/`, and a file is meant // name the file itself
    26:22 the inject's destination `.GIT/config` lies in `.git` // the engine keeps git's files: inject somewhere else
    27:22 the inject's destination `RESULTS.md` is a file that engine and agent speak through // give it another name
    28:27 unknown key `frozn` in [workspace.inject] // did you mean `frozen`?
    30:3 two injects have the destination `same` (the other inject at 29:3) // keep one of them, or rename one with the table form
    32:3 the inject's destination `same/inner` lies inside `same`, which another inject makes a file (the other inject at 29:3) // rename one of them with the table form
    "#);
    insta::assert_snapshot!(brief(&with("[workspace]\ninject = \"measure.sh\"")), @r#"
    14:10 [workspace].inject is a string: it must be an array of injects // put it in brackets: inject = ["…"]
    "#);
}

#[test]
fn agent_mistakes() {
    let backend = |name: &str| GOOD.replace("\"command\"", name);
    insta::assert_snapshot!(brief(&backend("\"magic\"")), @r#"
    6:11 [agent].backend = "magic" is no backend // "local" runs the harness on this host, "openshell" in a sandbox, and "command" runs agent_cmd
    "#);
    for text in [backend("\"local\""), GOOD.replace("backend = \"command\"", "")] {
        let manifest = Manifest::parse("c.toml", &text).unwrap();
        let [warning] = manifest.warnings() else { panic!("one warning") };
        assert_eq!(warning.message, "[agent].agent_cmd is not run: the harness is another");
        assert_eq!((manifest.agent.backend, manifest.agent.harness), (Backend::Local, Harness::Claude));
    }
    insta::assert_snapshot!(brief(&GOOD.replace("agent_cmd = \"./bump.sh\"", "")), @r#"
    5:2 [agent].agent_cmd is missing: it is what the backend "command" runs // write agent_cmd = "…" with the command that makes a candidate in the workspace
    "#);
    insta::assert_snapshot!(brief(&with_agent("goal = \"a\"\ngoal_file = \"b\"\nmodel = \"a b\"")), @r#"
    10:1 [agent] has both `goal` and `goal_file` (the other one at 9:1) // keep the one that is meant
    11:9 [agent].model holds a blank or a control character // write the name that the model's provider has for it
    "#);
    insta::assert_snapshot!(brief(&with_agent("timeout = \"0s\"\nidle_timeout = \"31 m ago\"")), @r#"
    9:11 [agent].timeout is no time at all // leave the key out for the default
    10:16 [agent].idle_timeout is negative
    "#);
}

#[test]
fn harness_mistakes() {
    let harness = |keys: &str| sandboxed("").replace("harness = \"command\"", keys);
    for (keys, expected) in [("", Harness::Claude), ("harness = \"codex\"", Harness::Codex)] {
        let agent = Manifest::parse("c.toml", &harness(keys)).unwrap().agent;
        assert_eq!((agent.backend, agent.harness, agent.command), (Backend::Openshell, expected, None));
    }
    for name in ["hermes", "opencode", "pi"] {
        let said = brief(&harness(&format!("harness = \"{name}\"")));
        let expected =
            format!("7:11 [agent].harness = \"{name}\" is not in this build: it has no driver that runs it");
        assert!(said.starts_with(&expected) && said.lines().count() == 1, "{said}");
    }
    insta::assert_snapshot!(brief(&with_agent("requires = { \"a b\" = \">=1\", ok = \"\" }\nprefers = { x = 1 }")), @r#"
    9:14 `a b` is not a capability's name: it has letters, digits, `.`, `-` and `_` // write a name such as "toolchain.go", in quotes
    9:34 the demand on `ok` is empty or several lines: it must be one line of text // write a demand such as ">=1.25"
    10:17 the demand on `x` is an integer: it must be one line of text // write a demand such as ">=1.25"
    "#);
    insta::assert_snapshot!(brief(&harness("harness = \"magic\"")), @r#"
    7:11 [agent].harness = "magic" is no harness // write "claude" or "codex", or "command" and, in agent_cmd, the command that runs your agent
    "#);
    insta::assert_snapshot!(brief(&harness("harness = 3")), @r#"
    7:11 [agent].harness is an integer: it must be a string // put it in quotes
    "#);
    insta::assert_snapshot!(brief(&harness("harnes = \"command\"")), @r#"
    7:1 unknown key `harnes` in [agent] // did you mean `harness`?
    "#);
    insta::assert_snapshot!(brief(&sandboxed("").replace("agent_cmd = \"./bump.sh\"", "")), @r#"
    5:2 [agent].agent_cmd is missing: it is what the harness "command" runs // write agent_cmd = "…" with the command that makes a candidate in the workspace
    "#);
    insta::assert_snapshot!(brief(&with_agent("harness = \"command\"\n[agent.openshell]\nzzz = 1")), @r#"
    9:1 [agent].harness does not go with backend = "command", which runs agent_cmd // remove it, or write backend = "local" to run a harness on this host
    11:1 unknown key `zzz` in [agent.openshell] // [agent.openshell] has inherit_defaults, endpoints, binaries, read_only_paths, ca_file, limits
    "#);
}

#[test]
fn mistakes_of_the_ways_out() {
    let bare = sandboxed("").replace("[agent.openshell]\ninherit_defaults = false\n", "");
    insta::assert_snapshot!(brief(&format!("{bare}[agent.openshell]\ninherit_default = false")), @r#"
    15:1 unknown key `inherit_default` in [agent.openshell] // did you mean `inherit_defaults`?
    "#);
    insta::assert_snapshot!(brief(&format!("{bare}[agent.openshell]\ninherit_defaults = \"no\"")), @r#"
    15:20 [agent.openshell].inherit_defaults is a string: it must be a boolean // write true or false, without quotes
    "#);
    insta::assert_snapshot!(brief(&format!("{bare}[[agent.openshell]]\ninherit_defaults = false")), @r#"
    14:1 [agent].openshell is an array: it must be a table // write the header with one pair of brackets
    "#);
    let lists = r#"endpoints = [
  "a.example:443:full",
  "A.example:443:full",
  "a.example",
  "*.com:443:full",
  "a.example:0:full",
  "a.example:443:all",
  "169.254.169.254:80:full",
]
binaries = ["/usr/bin/curl", "curl", "/usr/bin/*", "/usr/bin/curl"]
"#;
    insta::assert_snapshot!(brief(&sandboxed(lists)), @r#"
    19:4 the endpoint `a.example` cannot be read: an endpoint is host:port:access[:protocol[:enforcement]] // for example "api.example.com:443:full"
    20:4 the endpoint `*.com:443:full` cannot be read: a wildcard needs at least two labels after it // name the hosts, or a domain that is yours: *.example.com
    21:14 the endpoint `a.example:0:full` cannot be read: the port is not a number from 1 to 65535 // write host:port:access, such as "api.example.com:443:full"
    22:18 the endpoint `a.example:443:all` cannot be read: the access is one of full, read-only, read-write // write host:port:access, such as "api.example.com:443:full"
    23:4 the endpoint `169.254.169.254:80:full` cannot be read: an address of this kind is never reached: link-local, metadata, unspecified, multicast or reserved
    25:30 the binary `curl` cannot be listed: a binary is an absolute path in the sandbox // write the program's path in the sandbox, such as "/usr/bin/curl"
    25:38 the binary `/usr/bin/*` cannot be listed: a binary's path has no wildcard // write the program's path in the sandbox, such as "/usr/bin/curl"
    "#);
}

#[test]
fn a_sandbox_inherits_the_built_ins_unless_it_says_not_to() {
    let bare = sandboxed("").replace("[agent.openshell]\ninherit_defaults = false\n", "");
    for (text, inherits, count) in [
        (bare, true, 0),
        (sandboxed(""), false, 0),
        (sandboxed("endpoints = [\"a.example:443:full\", \"127.0.0.1:5173:full:tcp\"]"), false, 2),
    ] {
        let declared = Manifest::parse("c.toml", &text).unwrap().agent.sandbox.unwrap().declared;
        assert_eq!((declared.inherit_defaults, declared.endpoints.len()), (inherits, count), "{text}");
    }
}

#[test]
fn sandbox_mistakes() {
    let text = sandboxed(
        r#"gateway = "http://127.0.0.1:1"
ca_file = ["ca.pem"]
endpont = []
endpoints = "a:443:full"
binaries = [1, "", "a\u0007"]
read_only_paths = [
  "opt",
  "/opt/../etc",
  "/",
  "/proc/self",
  "/etc/ssl",
  "/opt/a",
  "/opt//a/",
  "/opt\u0000",
  ["/opt"],
]
"#,
    );
    insta::assert_snapshot!(brief(&text), @r#"
    16:1 [agent.openshell].gateway is not in this build, which drives its own embedded gateway only // remove it, or use a build that has it
    17:11 [agent.openshell].ca_file is an array: it must be a string
    18:1 unknown key `endpont` in [agent.openshell] // did you mean `endpoints`?
    19:13 [agent.openshell].endpoints is a string: it must be an array of strings // put it in brackets: endpoints = ["…"]
    20:13 an item of [agent.openshell].binaries is an integer: it must be a string // put it in quotes
    20:16 an item of [agent.openshell].binaries is empty
    20:20 an item of [agent.openshell].binaries holds the control character U+0007
    22:3 the read-only path `opt` is not absolute // write an absolute path without `..`
    23:3 the read-only path `/opt/../etc` goes up by `..` // write an absolute path without `..`
    24:3 the read-only path `/` is the whole machine // name the directories that the agent needs, such as "/opt/tool"
    25:3 the read-only path `/proc/self` lies in /proc: a sandbox has its own there // name the directories that the agent needs, such as "/opt/tool"
    26:3 the read-only path `/etc/ssl` lies in /etc: a sandbox has its own there // name the directories that the agent needs, such as "/opt/tool"
    28:3 [agent.openshell].read_only_paths holds `/opt/a` twice (the first one at 27:3) // keep one of them
    29:3 an item of [agent.openshell].read_only_paths holds a NUL character
    30:3 an item of [agent.openshell].read_only_paths is an array: it must be a string
    "#);
    let variables = sandboxed("[agent.env]\nOPENSHELL_X = \"a\"\nA = \"a\\nb\"\nB = \"fine\"");
    insta::assert_snapshot!(brief(&variables), @r#"
    17:1 `OPENSHELL_X` begins with `OPENSHELL_`: such names are the sandbox's // give it another name
    18:5 the variable `A` holds a line break: a sandbox is not given it // let agent_cmd set it inside the sandbox
    "#);
}

#[test]
fn limits_have_their_own_mistakes() {
    let limits = |keys: &str| brief(&sandboxed(&format!("[agent.openshell.limits]\n{keys}")));
    insta::assert_snapshot!(limits("memory = 8\ndisk = \"8GB\"\ntmp = \"0M\"\nprocesses = 0\nopen_files = -1\ncpus = nan"), @r#"
    17:10 [agent.openshell.limits].memory is a number: a size has a unit // write a whole number and K, M or G, such as "512M" or "8G"
    18:8 [agent.openshell.limits].disk is not a size // write a whole number and K, M or G, such as "512M" or "8G"
    19:7 [agent.openshell.limits].tmp is zero // leave the key out for the default
    20:13 [agent.openshell.limits].processes is zero // leave the key out for the default
    21:14 [agent.openshell.limits].open_files is negative
    22:8 [agent.openshell.limits].cpus is not a finite number
    "#);
    insta::assert_snapshot!(limits("memory = \"-1G\"\ndisk = \"1K\"\ntmp = \"5000G\"\nprocesses = 15\nopen_files = 1048577\ncpus = 0.009"), @r#"
    17:10 [agent.openshell.limits].memory is negative
    18:8 [agent.openshell.limits].disk is less than 1M
    19:7 [agent.openshell.limits].tmp is more than 4096G
    20:13 [agent.openshell.limits].processes is less than 16
    21:14 [agent.openshell.limits].open_files is more than 1048576
    22:8 [agent.openshell.limits].cpus is less than 0.01
    "#);
    insta::assert_snapshot!(limits("memory = true\ndisk = \"\"\ntmp = inf\nprocesses = 64.0\nopen_files = \"64\"\ncpus = \"2\""), @r#"
    17:10 [agent.openshell.limits].memory is a boolean: it must be a string // put it in quotes
    18:8 [agent.openshell.limits].disk is empty
    19:7 [agent.openshell.limits].tmp is a number: a size has a unit // write a whole number and K, M or G, such as "512M" or "8G"
    20:13 [agent.openshell.limits].processes is a float: it must be an integer // write a whole number
    21:14 [agent.openshell.limits].open_files is a string: it must be an integer // write it without quotes
    22:8 [agent.openshell.limits].cpus is a string: it must be a number // write it without quotes
    "#);
    insta::assert_snapshot!(limits("memry = \"1G\"\nprocesses = inf\nopen_files = 99999999999999999999\ncpus = -0.5"), @r#"
    17:1 unknown key `memry` in [agent.openshell.limits] // did you mean `memory`?
    18:13 [agent.openshell.limits].processes is not a finite number
    19:14 [agent.openshell.limits].open_files is more than 1048576
    20:8 [agent.openshell.limits].cpus is negative
    "#);
    insta::assert_snapshot!(limits("cpus = 0.0001\ncpus = 2"), @r#"
    17:8 [agent.openshell.limits].cpus has more than three decimals
    18:1 this key or table was written before // keep one of them
    "#);
    insta::assert_snapshot!(limits("cpus = 0.12345"), @r#"
    17:8 [agent.openshell.limits].cpus has more than three decimals
    "#);
    insta::assert_snapshot!(brief(&sandboxed("limits = 3")), @r#"
    16:10 [agent.openshell].limits is an integer: it must be a table
    "#);
}

/// A value of a limit of the traffic, by what it counts.
fn traffic(unit: Unit, number: u64) -> String {
    match unit {
        Unit::Time => format!("\"{number}ms\""),
        Unit::Size => format!("\"{}K\"", number / 1024),
        Unit::Count => number.to_string(),
    }
}

#[test]
fn every_limit_of_the_traffic_is_read_within_its_bounds_and_refused_by_place_outside() {
    let text =
        |name: &str, value: &str| sandboxed(&format!("[agent.openshell.limits.egress]\n{name} = {value}"));
    for limit in TrafficLimits::KEYS {
        let Limit { name, unit, least, most, .. } = *limit;
        for number in [least, most] {
            let manifest = Manifest::parse("c.toml", &text(name, &traffic(unit, number))).unwrap();
            let expected = TrafficLimits::of(|key| (key == name).then_some(number));
            assert_eq!(manifest.agent.sandbox.unwrap().traffic, expected, "{name}");
        }
        let column = name.len() + 4;
        let step = if unit == Unit::Size { 1024 } else { 1 };
        for (number, why) in [(least - step, "less than"), (most + step, "more than")] {
            let said = brief(&text(name, &traffic(unit, number)));
            let place = format!("17:{column} [agent.openshell.limits.egress].{name} is ");
            let zero = number == 0 && said.contains("zero");
            let long = number > most && said.contains("longer than 30 days");
            assert!(said.starts_with(&place) && (said.contains(why) || zero || long), "{said}");
        }
    }
    let said = brief(&text("idle_timeot", "5\nage = 90\nbytes = 5\nrecords = \"many\"\nhead_size = true"));
    insta::assert_snapshot!(said, @r#"
    17:1 unknown key `idle_timeot` in [agent.openshell.limits.egress] // did you mean `idle_timeout`?
    18:7 [agent.openshell.limits.egress].age is a number: a length of time has units // write a unit: "90s"
    19:9 [agent.openshell.limits.egress].bytes is a number: a size has a unit // write a whole number and K, M or G, such as "512M" or "8G"
    20:11 [agent.openshell.limits.egress].records is a string: it must be an integer // write it without quotes
    21:13 [agent.openshell.limits.egress].head_size is a boolean: it must be a string // put it in quotes
    "#);
}

#[test]
fn durations_have_their_own_mistakes() {
    let said = |value: &str| brief(&with(&format!("[world]\ntimeout = {value}")));
    insta::assert_snapshot!(said("\"0s\""), @r#"
    14:11 [world].timeout is no time at all // leave the key out for the default
    "#);
    insta::assert_snapshot!(said("\"-5m\""), @r#"
    14:11 [world].timeout is negative
    "#);
    insta::assert_snapshot!(said("\"1000h\""), @r#"
    14:11 [world].timeout is longer than 30 days
    "#);
    insta::assert_snapshot!(said("\"soon\""), @r#"
    14:11 [world].timeout is not a length of time // write hours, minutes and seconds, such as "90s", "10m" or "1h30m"
    "#);
    insta::assert_snapshot!(said("\"\""), @r#"
    14:11 [world].timeout is empty
    "#);
    insta::assert_snapshot!(said("30"), @r#"
    14:11 [world].timeout is a number: a length of time has units // write a unit: "30s"
    "#);
    insta::assert_snapshot!(said("nan"), @r#"
    14:11 [world].timeout is a number: a length of time has units // write hours, minutes and seconds, such as "90s", "10m" or "1h30m"
    "#);
    insta::assert_snapshot!(said("-1"), @r#"
    14:11 [world].timeout is a number: a length of time has units // write hours, minutes and seconds, such as "90s", "10m" or "1h30m"
    "#);
    insta::assert_snapshot!(said("1e999"), @r#"
    14:11 [world].timeout is a number: a length of time has units // write hours, minutes and seconds, such as "90s", "10m" or "1h30m"
    "#);
    insta::assert_snapshot!(said("true"), @r#"
    14:11 [world].timeout is a boolean: it must be a string // put it in quotes
    "#);
}

#[test]
fn env_mistakes() {
    let text = with(
        "[agent.env]\nCRUCIBLE_X = \"a\"\nBROKER_TOKEN = \"a\"\n\"1A\" = \"a\"\nN = 1\nZ = \"a\\u0000\"\n\"\" = \"\"",
    );
    insta::assert_snapshot!(brief(&text), @r#"
    14:1 `CRUCIBLE_X` begins with `CRUCIBLE_`: such names are the engine's // give it another name
    15:1 `BROKER_TOKEN` begins with `BROKER_`: such names are the engine's // give it another name
    16:1 `1A` is not a variable's name: it has letters, digits and `_`, and no digit first
    17:5 the variable `N` is an integer: it must be a string // put it in quotes
    18:5 the variable `Z` holds a NUL character
    19:1 `` is not a variable's name: it has letters, digits and `_`, and no digit first
    "#);
}

#[test]
fn judge_and_world_mistakes() {
    let text =
        with_judge("direction = \"maximise\"\ntiebreak_direction = \"sideways\"\nobjective = \"a\\nb\"");
    insta::assert_snapshot!(brief(&text), @r#"
    11:13 `maximise` is no direction: it is "lower" or "higher" // did you mean "higher"?
    12:22 `sideways` is no direction: it is "lower" or "higher" // write "lower" where a smaller score is better, else "higher"
    13:13 [judge].objective holds the control character U+000A
    "#);
    let long = with_judge(&format!("direction = \"lower\"\nobjective = \"{}\"", "é".repeat(65)));
    insta::assert_snapshot!(brief(&long), @r#"
    12:13 [judge].objective has 65 characters: a label has at most 64 // write a short label, such as "p99 ms"
    "#);
    insta::assert_snapshot!(brief(&GOOD.replace("\"./measure.sh\"", "\" \"")), @r#"
    10:15 [judge].measure_cmd is empty
    "#);
    insta::assert_snapshot!(brief(&GOOD.replace("\"./measure.sh\"", "\"a\\u0000\"")), @r#"
    10:15 [judge].measure_cmd holds a NUL character
    "#);
    insta::assert_snapshot!(brief(&with("[world]\nrestore_cmd = \"x\"")), @r#"
    14:1 [world].restore_cmd is there, and [world].snapshot_cmd is not: they work as a pair // write snapshot_cmd too, or remove the other
    "#);
    insta::assert_snapshot!(brief(&with("[[world]]\napply_cmd = \"x\"")), @r#"
    13:1 [world] is an array: it must be a table // write the header with one pair of brackets
    "#);
}

#[test]
fn a_bound_that_bounds_nothing_is_a_warning() {
    let manifest = Manifest::parse("c.toml", &with("[workspace]\ntimeout = \"1m\"")).unwrap();
    insta::assert_snapshot!(lines(manifest.source(), manifest.warnings()), @r#"
    14:11 [workspace].timeout has no effect // it bounds `setup_cmd`, which is not there
    "#);
}

/// The sample of contract §1, with both ways to name the upstream as it stands there.
const CONTRACT_SAMPLE: &str = r#"
[repo]
url  = "https://github.com/owner/name.git"
ref  = "main"

[workspace]
dir       = "workspace"
setup_cmd = "git clone ... && git checkout"
inject = [
  "measure.sh",
  "tools/*.py",
  { src = "judges/1489/judge_harness_test.go", dst = "pkg/.../judge_harness_test.go" },
  { src = "fixtures/seed.json", dst = "testdata/seed.json", frozen = false },
]

[agent]
model         = "claude-opus-4-6"
method_prompt = "method.md"
goal          = "raise the score"
toolbox_dir   = "commands"
backend       = "local"
sandbox_image = "ghcr.io/<org>/<domain>-sandbox:<tag>"
allow_unverified_image = false
agent_cmd     = "..."

[agent.requires]
"toolchain.go" = ">=1.25"

[agent.prefers]
"toolchain.go" = ">=1.26"

[agent.env]
ANTHROPIC_VERTEX_PROJECT_ID = "my-gcp-project"

[judge]
measure_cmd = "./measure.sh"
direction   = "lower"
tiebreak_direction = "lower"
objective   = "score"

[judge.selftest]
good_cmd = "..."
bad_cmd  = "..."
runs     = 1

[world]
apply_cmd    = "..."
snapshot_cmd = "..."
restore_cmd  = "..."

[search]
wide       = 0
approaches = ["...", "..."]
policy     = "top-k"
policy_k   = 1

[outputs.image-push]
count = 20
target = { fixed = "quay.io/aipcc" }

[outputs.tracker-comment]
count = 3
target = { open = { scope = "PROJ-*", param = "issue_key" } }

[[capabilities.secret]]
name    = "JIRA_API_TOKEN"
context = "broker"
system  = "jira"
scope   = "read + comment on PROJ"

[agent.broker]
bin = "/usr/local/bin/own-broker"

[[workflow.task]]
name = "x"

[[component]]
name = "x"
"#;

#[test]
fn the_contracts_sample_gets_one_error_per_absent_key() {
    insta::assert_snapshot!(brief(CONTRACT_SAMPLE), @r#"
    22:1 [agent].sandbox_image is not in this build, which launches no images // remove it, or use a build that has it
    51:2 [search] is not in this build, which has no wide rounds and runs one candidate at a time // remove it, or use a build that has it
    72:1 [agent.broker].bin is not in this build, which runs its own broker only: what another program would have to do is not defined // remove it, or use a build that has it
    74:1 [workflow.task].kind is missing // add it: What it does
    74:3 [workflow].result is missing // add it: The task whose verdict is the iteration's: a `decide`
    77:3 [component] is not in this build, which runs one repository at a time // remove it, or use a build that has it
    "#);
}

#[test]
fn bytes_that_are_no_text_are_placed() {
    let errors = Manifest::parse_bytes("c.toml", b"[repo]\npath = \"\xff\"").unwrap_err();
    insta::assert_snapshot!(lines(errors.source(), errors.diagnostics()), @r#"
    2:9 the manifest is not UTF-8: the byte at offset 15 begins no character // save the file as UTF-8
    "#);
    let errors = Manifest::parse("c.toml", &" ".repeat(MAX_BYTES + 1)).unwrap_err();
    insta::assert_snapshot!(lines(errors.source(), errors.diagnostics()), @r#"
    1:1 the manifest is 1048577 bytes long: at most 1048576 are read // keep long texts in files of their own, such as method.md
    "#);
}

#[test]
fn floods_of_mistakes_stay_bounded() {
    let keys: String = (0..60_000).map(|n| format!("k{n} = 1\n")).collect();
    assert_eq!(Manifest::parse("c.toml", &keys).unwrap_err().diagnostics().len(), 1000);
    let one_line = format!("a = [{}]", "1 ".repeat(200_000));
    assert!(Manifest::parse("c.toml", &one_line).is_err());
    let deep = format!("a = {}", "[".repeat(100_000));
    assert!(Manifest::parse("c.toml", &deep).unwrap_err().to_string().contains("c.toml:1:"));
}

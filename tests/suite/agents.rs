//! Contract §1.3, §6: the real tools of agents, Claude Code and Codex, on this host and in a sandbox, against a model
//! server on loopback that answers by a script.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{COUNT, Pack, Ran, Skip, program, skip};

mod faults;
mod private;
mod resets;
mod sessions;
mod tools;
mod turns;

/// The key of every test here. It may be seen in requests only.
const KEY: &str = "canary-key-5c1d";

/// A tool of an agent and what carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Way {
    harness: &'static str,
    backend: &'static str,
}

const WAYS: [Way; 4] = [
    Way { harness: "claude", backend: "local" },
    Way { harness: "claude", backend: "openshell" },
    Way { harness: "codex", backend: "local" },
    Way { harness: "codex", backend: "openshell" },
];

/// Where `.ci/run` installs the tools: beside what was built.
pub(crate) fn tools() -> PathBuf {
    let built = Path::new(crate::support::BINARY).ancestors().nth(2).unwrap();
    built.join("tools/agents/node_modules/.bin")
}

/// Whether the tools are there; says so where they are not.
pub(crate) fn installed() -> bool {
    let there = ["claude", "codex"].iter().all(|name| tools().join(name).exists());
    if !there {
        skip(Skip::NoAgents);
    }
    there
}

/// A model server that answers by a script until this value goes.
struct Model {
    child: Child,
    _stdin: ChildStdin,
    url: String,
    dir: TempDir,
}

impl Model {
    fn start(lanes: &Value) -> Model {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script.json");
        std::fs::write(&script, json!({ "lanes": lanes }).to_string()).unwrap();
        let mut command = program(env!("CARGO_BIN_EXE_fake-model"));
        command.arg(&script).arg("--record").arg(dir.path().join("requests"));
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Model { _stdin: child.stdin.take().unwrap(), child, url: url.trim().to_owned(), dir }
    }

    /// One conversation: these replies, over and over.
    fn replies(replies: &Value) -> Model {
        Model::start(&json!([{ "replies": replies }]))
    }

    fn requests(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.dir.path().join("requests")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A shell command that the model wants run, and then the end of the turn.
fn turn(run: &str) -> Value {
    json!([{ "thinking": "I think.", "text": "I raise it.", "run": run }, { "text": "Done." }])
}

/// Raises the counter.
const RAISE: &str = "n=$(cat counter.txt) && echo $((n + 1)) > counter.txt";

/// The engine's own four steps, with a session for proposals.
const SESSION: &str = r#"
[workflow]
result = "decide"
[[workflow.task]]
name = "propose"
kind = "engine"
op = "propose"
session = "solver"
[[workflow.task]]
name = "apply"
kind = "engine"
op = "apply"
depends_on = ["propose"]
[[workflow.task]]
name = "measure"
kind = "engine"
op = "measure"
depends_on = ["apply"]
[[workflow.task]]
name = "decide"
kind = "engine"
op = "decide"
source = "measure"
depends_on = ["measure"]
"#;

/// A counter that a tool raises.
fn pack(way: Way, model: &Model, agent: &str, more: &str) -> Pack {
    let pack = Pack::new("unused", COUNT, &format!("{more}{}", declared(way)));
    let Way { harness, backend } = way;
    let host = model.url.trim_start_matches("http://");
    let sandbox = match backend {
        "openshell" => format!("openshell = {{ inherit_defaults = false, endpoints = [\"{host}:full\"] }}\n"),
        _ => String::new(),
    };
    let table = format!(
        "backend = \"{backend}\"\nharness = \"{harness}\"\nmodel = \"model-1\"\n{sandbox}{agent}\n[agent.env]\nCLAUDE_CODE_MAX_RETRIES = \"1\"\n"
    );
    let manifest = pack.read("crucible.toml");
    pack.write("crucible.toml", &manifest.replace("backend = \"command\"\nagent_cmd = \"unused\"\n", &table));
    pack
}

/// What a sandbox is given of this environment has to be declared.
fn declared(way: Way) -> String {
    let names = match way {
        Way { backend: "local", .. } => [].as_slice(),
        Way { harness: "claude", .. } => &["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"],
        Way { .. } => &["OPENAI_API_KEY", "OPENAI_BASE_URL"],
    };
    let secret = |name: &&str| {
        format!(
            "[[capabilities.secret]]\nname = \"{name}\"\ncontext = \"agent\"\nsystem = \"model\"\nscope = \"ask model-1\"\n"
        )
    };
    names.iter().map(secret).collect()
}

/// `PATH` with the tools of agents in front.
#[expect(clippy::disallowed_methods, reason = "the tools are found beside what else is on PATH")]
fn on_path() -> String {
    format!("{}:{}", tools().display(), std::env::var("PATH").unwrap_or_default())
}

/// The run of a pack as a person starts it, with keys and tools from the environment.
fn command(pack: &Pack, model: &Model, args: &[&str]) -> std::process::Command {
    let mut command = pack.command(args);
    with_model(&mut command, model).env("PATH", on_path());
    command
}

/// A command with the model's keys and its address in its environment.
fn with_model<'c>(command: &'c mut std::process::Command, model: &Model) -> &'c mut std::process::Command {
    command.env("ANTHROPIC_API_KEY", KEY).env("ANTHROPIC_BASE_URL", &model.url);
    command.env("OPENAI_API_KEY", KEY).env("OPENAI_BASE_URL", format!("{}/v1", model.url))
}

fn run(pack: &Pack, model: &Model, args: &[&str]) -> Ran {
    let output = command(pack, model, args).output().unwrap();
    Ran { output, log: pack.log() }
}

/// The text of the last message of a request that a person or a tool sent.
fn last_words(request: &Value) -> String {
    let list = request["body"]["messages"].as_array().or(request["body"]["input"].as_array()).unwrap();
    let last = list.iter().rfind(|message| message["role"] == "user").unwrap();
    let content = &last["content"];
    let blocks = content.as_array().cloned().unwrap_or_default();
    let texts = blocks.iter().filter_map(|block| block["text"].as_str().or(block["content"].as_str()));
    let text = texts.filter(|text| !text.trim_start().starts_with("<system-reminder>")).collect::<Vec<_>>();
    content.as_str().map_or_else(|| text.join("\n"), str::to_owned)
}

/// The `agent_session` lines: action and turn.
fn sessions_of(ran: &Ran) -> Vec<(String, u64)> {
    ran.events("agent_session")
        .map(|line| (line["action"].as_str().unwrap().to_owned(), line["turn"].as_u64().unwrap()))
        .collect()
}

/// Every file below a directory that holds a text.
fn holding(dir: &Path, text: &str) -> Vec<String> {
    let (mut found, mut todo) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                    found.push(entry.path().display().to_string());
                }
            }
        }
    }
    found
}

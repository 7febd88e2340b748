//! Turns this machine and this environment into what a run would find of harnesses, models, credentials and sandboxes.
//! It refuses to know a value: of a credential it tells the variable's name, and whether something is in it.

use std::ffi::OsStr;
use std::time::Duration;

use policy::inference::{AMBIENT, Holds, VARIABLE};
use serde::Serialize;

use super::args::DoctorArgs;
use super::error::{CliError, absolute};
use super::exit::Exit;
use super::run::{load, print, runtime};
use crate::manifest::Harness;
use crate::plan::{Inference, Overrides, RunPlan};
use crate::report::plain;
use crate::run::turns::keys;
use crate::sys::chain;
use crate::sys::env::Environment;
use crate::sys::process::{Output, Tool, find_program};

/// How long a program may take to tell its version.
const VERSION: Duration = Duration::from_secs(20);
/// The longest version that is told, in characters.
const LINE_MAX: usize = 120;
/// The variables that a program is started with to tell its version: no key is among them.
const PLAIN: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// What was found, for a script.
#[derive(Debug, Serialize)]
struct Found {
    /// This program's own version.
    version: &'static str,
    /// Git, the harnesses, the sandbox.
    parts: Vec<Part>,
    /// The variables that hold keys or choose a model, by name; each is set and not empty.
    credentials: Vec<String>,
    /// What the inference document decides, a line each; empty without one.
    inference: Vec<String>,
    /// What is missing of what is needed.
    errors: Vec<String>,
}

/// One thing that a run may need.
#[derive(Debug, Serialize)]
struct Part {
    /// `git`, `harness claude`, `sandbox` and the like.
    name: String,
    /// Whether what was asked about cannot go without it.
    needed: bool,
    /// Where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// What it says of itself, a line each.
    told: Vec<String>,
    /// Why it cannot be used, with the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks: Option<String>,
}

/// What a pack needs. Without one nothing is but git.
#[derive(Debug, Default)]
struct Needs {
    harnesses: Vec<Harness>,
    sandbox: bool,
    key: Option<String>,
}

/// Looks at the machine, for a pack or for none in particular.
///
/// # Errors
/// A document or a pack that cannot be read. What is missing is an exit code.
pub fn doctor(args: &DoctorArgs) -> Result<Exit, CliError> {
    let env = Environment::of_this_process();
    let runtime = runtime()?;
    let inference = Inference::of(&env)?;
    let plan = match &args.manifest {
        Some(manifest) => {
            let pack = load(&absolute(manifest)?, None, &env, &runtime)?;
            let overrides = Overrides { inference: inference.clone(), ..Overrides::default() };
            Some(RunPlan::resolve(pack, &overrides)?)
        }
        None => None,
    };
    let needs = plan.as_ref().map(|plan| Needs::of(plan, &env)).unwrap_or_default();
    let mut parts = vec![runtime.block_on(program("git", "git", true, &env, "install git"))];
    for harness in Harness::ALL {
        parts.push(runtime.block_on(self::harness(harness, needs.harnesses.contains(&harness), &env)));
    }
    parts.push(sandbox(needs.sandbox)?);
    parts.push(gateway());
    let missing = parts.iter().filter(|part| part.needed);
    let mut errors: Vec<String> = missing
        .filter_map(|part| Some(format!("{} is needed: {}", part.name, part.lacks.as_ref()?)))
        .collect();
    errors.extend(needs.key);
    let found = Found {
        version: env!("CARGO_PKG_VERSION"),
        parts,
        credentials: credentials(&env, &inference),
        inference: plan.map(|plan| plan.agent.model.told()).unwrap_or_else(|| bound(&inference)),
        errors,
    };
    tell(args, &found)?;
    Ok(if found.errors.is_empty() { Exit::Ok } else { Exit::Check })
}

impl Needs {
    fn of(plan: &RunPlan, env: &Environment) -> Needs {
        Needs {
            harnesses: plan.agent.models().map(|model| model.harness).collect(),
            sandbox: plan.agent.sandbox.is_some() || plan.judge.confined.is_some(),
            key: keys(plan, env).err().map(|error| format!("the first turn would fail to {error}")),
        }
    }
}

/// A harness by the program that it runs.
async fn harness(harness: Harness, needed: bool, env: &Environment) -> Part {
    let name = format!("harness {harness}");
    let part = match harness {
        Harness::Claude => {
            program("claude", &name, needed, env, "npm install -g @anthropic-ai/claude-code").await
        }
        Harness::Codex => program("codex", &name, needed, env, "npm install -g @openai/codex").await,
        Harness::Command => {
            let told = vec!["runs [agent].agent_cmd".to_owned()];
            return Part { name, needed, path: None, told, lacks: None };
        }
        Harness::Hermes | Harness::Opencode | Harness::Pi => {
            let lacks = Some("no driver that runs it and reads its output is in this build".to_owned());
            return Part { name, needed, path: None, told: Vec::new(), lacks };
        }
    };
    match harness.is_built() {
        true => part,
        false => Part { lacks: Some("its driver is not in this build".to_owned()), ..part },
    }
}

/// A program of the machine, with what it says of its version.
async fn program(file: &str, name: &str, needed: bool, env: &Environment, remedy: &str) -> Part {
    let part = Part { name: name.to_owned(), needed, path: None, told: Vec::new(), lacks: None };
    let Some(path) = find_program(OsStr::new(file), env) else {
        return Part { lacks: Some(format!("`{file}` is on no directory of PATH: {remedy}")), ..part };
    };
    let shown = Some(path.display().to_string());
    let plain_env: Environment = PLAIN.iter().filter_map(|name| Some((*name, env.value(name)?))).collect();
    let tool = Tool::new(&path, plain_env).arg("--version").cwd("/").timeout(VERSION);
    let said =
        tool.output(Output::Capture { limit: 64 * 1024 }).run().await.and_then(|output| output.checked());
    match said {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line: String = text.lines().next().unwrap_or_default().chars().take(LINE_MAX).collect();
            Part { path: shown, told: vec![line], ..part }
        }
        Err(error) => Part { path: shown, lacks: Some(format!("failed to {}", chain(&error))), ..part },
    }
}

/// Whether a sandbox with every required layer can be made here: one is.
fn sandbox(needed: bool) -> Result<Part, CliError> {
    let scratch = tempfile::Builder::new().prefix("crucible-doctor-").tempdir();
    let scratch = scratch.map_err(|source| CliError::Io { doing: "make a scratch directory", source })?;
    let config = driver::GatewayConfig { state_dir: scratch.path().to_owned() };
    let (told, lacks) = match driver::Gateway::embedded(config) {
        Ok(gateway) => (gateway.layers().to_vec(), None),
        Err(error) => (Vec::new(), Some(format!("failed to {}", chain(&error)))),
    };
    Ok(Part { name: "sandbox".to_owned(), needed, path: None, told, lacks })
}

/// The gateways that a run could drive.
fn gateway() -> Part {
    let told = vec!["embedded: Linux namespaces of this machine, in this process".to_owned()];
    Part { name: "gateway".to_owned(), needed: false, path: None, told, lacks: None }
}

/// Which variables there are that hold a key or choose a model, by name.
fn credentials(env: &Environment, inference: &Inference) -> Vec<String> {
    let what = |holds| match holds {
        Holds::Key => "a key",
        Holds::Url => "an endpoint",
        Holds::Path => "a path",
        Holds::Setting => "a setting",
    };
    let set = |name: &str| env.value(name).is_some_and(|value| !value.is_empty());
    let ambient = AMBIENT.iter().filter(|known| set(known.name));
    let mut found: Vec<String> =
        ambient.map(|known| format!("{}: {}", known.name, what(known.holds))).collect();
    for name in inference.bindings.key_names() {
        let state = if set(name.as_str()) { "a key" } else { "not set, and named by the inference document" };
        found.push(format!("{name}: {state}"));
    }
    found
}

/// What a document says where no pack is asked about.
fn bound(inference: &Inference) -> Vec<String> {
    let agent = inference.bindings.agent.as_ref().map(|binding| {
        format!(
            "{VARIABLE} binds the agent to {} over {} at {}",
            binding.model,
            binding.protocol,
            binding.target()
        )
    });
    let decision = inference.bindings.decision.as_ref().map(|binding| {
        format!("{VARIABLE} binds decisions to {} over {}", binding.model, binding.protocol.token())
    });
    agent.into_iter().chain(decision).collect()
}

/// The last line: whether what is needed is there, and, where no pack says what is needed, what one may miss.
fn verdict(found: &Found, for_a_pack: bool) -> String {
    let lacking = found.parts.iter().filter(|part| part.lacks.is_some());
    let lacking: Vec<&str> = lacking.map(|part| part.name.as_str()).collect();
    match (found.errors.is_empty(), for_a_pack || lacking.is_empty()) {
        (false, _) => "not ok\n".to_owned(),
        (true, true) => "ok\n".to_owned(),
        (true, false) => format!("ok for a pack that does not need: {}\n", lacking.join(", ")),
    }
}

fn tell(args: &DoctorArgs, found: &Found) -> Result<(), CliError> {
    if args.json {
        let json = serde_json::to_string_pretty(found)
            .map_err(|error| CliError::Io { doing: "encode the findings", source: error.into() })?;
        return print(&format!("{json}\n"));
    }
    let mut lines = vec![("crucible".to_owned(), found.version.to_owned())];
    for part in &found.parts {
        let needed = if part.needed { " (needed)" } else { "" };
        let name = format!("{}{needed}", part.name);
        let lacks = part.lacks.iter().map(|lacks| format!("cannot be used: {lacks}"));
        let mut said: Vec<String> = part.told.iter().cloned().chain(lacks).collect();
        if let Some(path) = &part.path {
            let first = said.first_mut().map(std::mem::take).unwrap_or_default();
            said.splice(..said.len().min(1), [format!("{path}  {first}").trim_end().to_owned()]);
        }
        // The name stands once for all that is said of it.
        let names = std::iter::once(name).chain(std::iter::repeat(String::new()));
        lines.extend(names.zip(said));
    }
    lines.extend(found.credentials.iter().map(|line| ("variable".to_owned(), line.clone())));
    lines.extend(found.inference.iter().map(|line| ("inference".to_owned(), line.clone())));
    lines.extend(found.errors.iter().map(|line| ("error".to_owned(), line.clone())));
    let wide = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text: String =
        lines.iter().map(|(name, line)| format!("{name:<wide$}  {}\n", plain(line))).collect();
    text.push_str(&verdict(found, args.manifest.is_some()));
    print(&text)
}

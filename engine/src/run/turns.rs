//! Turns the agent of a plan into how its turns are run, and with which variables (contract §6, notes N6 and N12).
//! It refuses to know what a turn is told.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;

use policy::inference::{AMBIENT, Family, Holds};

use super::begin::{RunError, pack_env};
use super::hands::{AgentTask, Caller, Turn};
use super::provision::{Carrier, disclosed, held};
use crate::agent::harness::{Claude, Codex, Harness, Shell};
use crate::agent::relay::Relays;
use crate::agent::tools::ToolAccess;
use crate::agent::{Called, HostTurn, SandboxTurn, Sessions};
use crate::manifest::Harness as Name;
use crate::plan::{AgentPlan, KeyError, Model, RunPlan, TaskPlan, Tool};
use crate::sys::env::Environment;

/// What the names of variables begin with by which a tool's own settings are passed on.
const OF_TOOLS: [&str; 2] = ["CLAUDE", "CODEX_"];

/// Looks for the keys of all models of a plan.
///
/// # Errors
/// One that is not there.
pub fn keys(plan: &RunPlan, env: &Environment) -> Result<(), KeyError> {
    plan.agent.models().try_for_each(|model| variables(plan, model, env).map(drop))
}

/// The environment of a model's turns. On this host it is the engine's but for its own names and every model's key, and what
/// the model takes the place of; in a sandbox nothing of it but what its harness reads of a model.
fn variables(plan: &RunPlan, model: &Model, env: &Environment) -> Result<Environment, KeyError> {
    let AgentPlan { env: own, sandbox, .. } = &plan.agent;
    let given = model.variables(env, sandbox.is_some())?;
    let mut variables = match sandbox {
        Some(_) => Environment::empty(),
        None => {
            let hidden = model.hidden_from_agent().into_iter().chain(plan.broker_held());
            env.without_reserved(hidden.chain(settings(model, env)))
        }
    };
    for (name, value) in given {
        variables.set(name, value);
    }
    for (name, value) in model.own(own) {
        variables.set(name, value);
    }
    Ok(variables)
}

/// The variables of this host that set up a tool of an agent, which turns of the tool do not see.
fn settings<'e>(model: &Model, env: &'e Environment) -> impl Iterator<Item = &'e str> {
    let is_tool = model.harness != Name::Command;
    let names = env.iter().filter_map(|(name, _)| name.to_str());
    let is_one = |name: &str| name == "HOME" || OF_TOOLS.iter().any(|prefix| name.starts_with(prefix));
    names.filter(move |name| is_tool && is_one(name))
}

/// Who takes the turns of a plan: who proposes, and for each agent task who does it. `operator` is the whole environment of
/// the engine, and `relays` makes what is put into each sandbox.
///
/// # Errors
/// A key that is not there, a harness without a driver here, or [`RunError::Uncovered`].
pub(super) fn callers(
    plan: &RunPlan,
    envs: (&Environment, Option<&Relays>),
    sessions: &Sessions,
    carrier: Option<&Carrier<'_>>,
) -> Result<(Caller, BTreeMap<String, AgentTask>), RunError> {
    let agent = &plan.agent;
    let who = Who { model: &agent.model, tool: agent.tool.as_ref(), effort: None };
    let proposer = Caller { turn: turn(plan, who, envs, sessions, carrier)?, session: agent.session.clone() };
    let one = |task: &TaskPlan| {
        let who = Who { model: &task.model, tool: task.tool.as_ref(), effort: task.effort };
        let caller =
            Caller { turn: turn(plan, who, envs, sessions, carrier)?, session: task.session.clone() };
        let (prompt, emits) = (task.prompt.clone(), task.emits.clone());
        Ok((task.name.clone(), AgentTask { caller, prompt, emits }))
    };
    let tasks: Result<_, RunError> = agent.tasks.iter().map(one).collect();
    Ok((proposer, tasks?))
}

/// What is run in a turn.
#[derive(Clone, Copy)]
struct Who<'p> {
    model: &'p Model,
    tool: Option<&'p Tool>,
    effort: Option<&'static str>,
}

/// How a turn is run: in a sandbox where there is a carrier for it, else on this host.
fn turn(
    plan: &RunPlan,
    who: Who<'_>,
    (operator, relays): (&Environment, Option<&Relays>),
    sessions: &Sessions,
    carrier: Option<&Carrier<'_>>,
) -> Result<Turn, RunError> {
    let agent = &plan.agent;
    let variables = variables(plan, who.model, operator)?;
    let called = called(agent, who, &variables)?;
    if let ((Some(sandbox), Some(relays)), Some(carrier)) = ((&agent.sandbox, relays), carrier) {
        let text = |value: &OsStr| value.to_str().map(str::to_owned);
        let own = variables.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        let tools = sandbox.broker.as_ref();
        let turn = SandboxTurn {
            client: carrier.client.clone(),
            called,
            workspace: plan.workspace_dir.clone(),
            env: own.collect(),
            read_only_paths: sandbox.read_only_paths.clone(),
            relays: relays.clone(),
            relayed: Vec::new(),
            live: None,
            layers: carrier.layers.clone(),
            policy: sandbox.egress.document(),
            certificates: sandbox.ca(),
            deaths: carrier.broker.deaths(),
            tools: tools.map(|url| ToolAccess {
                url: format!("http://{}", url.target),
                tokens: carrier.broker.tokens(),
            }),
            limits: sandbox.limits,
            timeout: Some(agent.timeout),
            idle_timeout: agent.idle_timeout,
        };
        return Ok(Turn::Sandbox(Box::new(disclosed(plan, turn)?)));
    }
    Ok(Turn::Host(Box::new(HostTurn {
        called,
        live: sessions.live_alone(),
        cwd: plan.workspace_dir.clone(),
        env: variables,
        timeout: Some(agent.timeout),
        idle_timeout: agent.idle_timeout,
    })))
}

/// What makes the files that are relayed into each turn's sandbox, with the `operator`'s whole environment; none where the agent
/// runs in no sandbox.
#[must_use]
pub fn relays(plan: &RunPlan, operator: &Environment) -> Option<Relays> {
    let pack = pack_env(plan, operator);
    let held = held(plan, operator);
    plan.agent.sandbox.as_ref().map(|sandbox| Relays::new(sandbox, &plan.workspace_dir, &pack, held))
}

/// The agent's tool with its model. Keys are known to it only so that no event shows them.
fn called(agent: &AgentPlan, who: Who<'_>, variables: &Environment) -> Result<Called, RunError> {
    let root = agent.sandbox.is_none() && nix::unistd::geteuid().is_root();
    let harness: Arc<dyn Harness> = match (who.model.harness, &agent.command) {
        (Name::Claude, _) => Arc::new(Claude { root }),
        (Name::Codex, _) => Arc::new(Codex),
        (Name::Command, Some(command)) => Arc::new(Shell { agent_cmd: command.to_string() }),
        (other, _) => return Err(RunError::Harness(other)),
    };
    let value = |name: &str| variables.value(name).and_then(OsStr::to_str).map(str::to_owned);
    let keys = AMBIENT.iter().filter(|known| known.holds == Holds::Key);
    Ok(Called {
        harness,
        program: who.tool.map(|tool| tool.program.clone()),
        model: who.model.name.to_string(),
        effort: who.effort,
        endpoint: value(Family::OpenAi.url_name()),
        mcp: None,
        secrets: keys.filter_map(|known| value(known.name)).filter(|key| !key.is_empty()).collect(),
    })
}

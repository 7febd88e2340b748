//! Turns the agent of a plan into how its turns are run, and with which variables (contract §6, notes N6 and N12).
//! It refuses to know what a turn is told.

use super::begin::RunError;
use super::hands::Turn;
use super::provision::{Carrier, disclosed, held};
use crate::agent::relay::Relays;
use crate::agent::tools::ToolAccess;
use crate::agent::{CommandTurn, SandboxTurn};
use crate::plan::{AgentPlan, KeyError, RunPlan};
use crate::sys::env::Environment;

/// The environment of agent turns. On this host it is the engine's but for its own names and every model's key, and what the
/// plan's model takes the place of; in a sandbox nothing of it but what its harness reads of a model.
///
/// # Errors
/// The key of the model is not there.
pub fn variables(plan: &RunPlan, env: &Environment) -> Result<Environment, KeyError> {
    let AgentPlan { model, env: own, sandbox, .. } = &plan.agent;
    let given = model.variables(env, sandbox.is_some())?;
    let mut variables = match sandbox {
        Some(_) => Environment::empty(),
        None => env.without_reserved(model.hidden_from_agent().into_iter().chain(plan.broker_held())),
    };
    for (name, value) in given {
        variables.set(name, value);
    }
    for (name, value) in model.own(own) {
        variables.set(name, value);
    }
    Ok(variables)
}

/// How the agent of a plan is run: in a sandbox where there is a carrier for it, else on this host. `operator` is the whole
/// environment of the engine, `pack` what pack commands see of it, and `variables` those of the turn.
///
/// # Errors
/// No harness for it, or [`RunError::Uncovered`].
pub(super) fn turn(
    plan: &RunPlan,
    operator: &Environment,
    pack: &Environment,
    variables: Environment,
    carrier: Option<Carrier<'_>>,
) -> Result<Turn, RunError> {
    let agent = &plan.agent;
    let Some(command) = &agent.command else { return Err(RunError::Harness(agent.model.harness)) };
    if let (Some(sandbox), Some(carrier)) = (&agent.sandbox, carrier) {
        let text = |value: &std::ffi::OsStr| value.to_str().map(str::to_owned);
        let own = variables.iter().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        let tools = sandbox.broker.as_ref();
        let turn = SandboxTurn {
            client: carrier.client,
            agent_cmd: command.to_string(),
            workspace: plan.workspace_dir.clone(),
            env: own.collect(),
            read_only_paths: sandbox.read_only_paths.clone(),
            relays: Relays::new(sandbox, &plan.workspace_dir, pack, held(plan, operator)),
            relayed: Vec::new(),
            layers: carrier.layers,
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
    Ok(Turn::Host(CommandTurn {
        agent_cmd: command.to_string(),
        cwd: plan.workspace_dir.clone(),
        env: variables,
        timeout: Some(agent.timeout),
        idle_timeout: agent.idle_timeout,
    }))
}

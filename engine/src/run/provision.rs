//! Turns a sandbox's turn into what it would give the agent, and refuses what the plan does not disclose (contract §1.9, note N5).
//! It refuses to know what a turn is for.

use policy::capability::{Grant, uncovered};

use super::begin::RunError;
use crate::agent::SandboxTurn;
use crate::agent::relay::Held;
use crate::egress::Broker;
use crate::plan::{RunPlan, VALUE_LEAST};
use crate::sys::env::Environment;

/// What a turn in a sandbox goes through.
#[derive(Debug)]
pub(super) struct Carrier<'a> {
    /// The gateway to drive.
    pub(super) client: driver::Client,
    /// Who answers for what it reaches.
    pub(super) broker: &'a Broker,
    /// The layers that are known to be in force, a line each.
    pub(super) layers: Vec<String>,
}

/// The turn, if the plan discloses all that it would give the agent.
///
/// # Errors
/// [`RunError::Uncovered`]: something would reach the agent that nothing discloses.
pub(super) fn disclosed(plan: &RunPlan, turn: SandboxTurn) -> Result<SandboxTurn, RunError> {
    let missing = uncovered(&grants(&turn), &plan.exposure().capabilities);
    if missing.is_empty() { Ok(turn) } else { Err(RunError::Uncovered(missing)) }
}

/// What a turn as it was put together would give the agent.
fn grants(turn: &SandboxTurn) -> Vec<Grant> {
    let env = turn.env.keys().map(|name| Grant::Env(name.clone()));
    let relays = turn.relays.places().map(|place| Grant::Relay(place.to_owned()));
    let paths = turn.read_only_paths.iter().map(|path| Grant::HostPath(path.display().to_string()));
    env.chain(relays).chain(paths).collect()
}

/// The operator's values that only the broker may hold.
pub(super) fn held(plan: &RunPlan, operator: &Environment) -> Held {
    let value = |name: &str| Some((name.to_owned(), operator.value(name)?.to_str()?.to_owned()));
    Held(plan.broker_held().filter_map(value).filter(|(_, value)| value.len() >= VALUE_LEAST).collect())
}

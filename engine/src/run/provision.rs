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
    covered(plan, &grants(&turn))?;
    Ok(turn)
}

/// Refuses what would reach the agent and is in no row of the plan's disclosure.
fn covered(plan: &RunPlan, grants: &[Grant]) -> Result<(), RunError> {
    match uncovered(grants, &plan.exposure().capabilities) {
        missing if missing.is_empty() => Ok(()),
        missing => Err(RunError::Uncovered(missing)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Pack;
    use crate::plan::Overrides;

    #[test]
    fn what_no_row_discloses_does_not_reach_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = dir.path().join("crucible.toml");
        let text = "[repo]\npath = \"up\"\n[agent]\nbackend = \"openshell\"\nharness = \"command\"\nagent_cmd = \"a\"\n\
                    [agent.env]\nGIVEN = \"v\"\n[[agent.relay]]\ndest = \"/tmp/a\"\ntemplate = \"t\"\n\
                    [agent.openshell]\nread_only_paths = [\"/usr/share\"]\n\
                    [judge]\nmeasure_cmd = \"m\"\ndirection = \"lower\"\n\
                    [[capabilities.secret]]\nname = \"HELD\"\ncontext = \"broker\"\nsystem = \"s\"\nscope = \"t\"\n";
        std::fs::write(&manifest, text).unwrap();
        let plan = RunPlan::resolve(Pack::load(&manifest).unwrap(), &Overrides::default()).unwrap();
        let env = |name: &str| Grant::Env(name.to_owned());
        let own = [env("GIVEN"), Grant::Relay("/tmp/a".to_owned()), Grant::HostPath("/usr/share".to_owned())];
        assert!(covered(&plan, &own).is_ok());
        for (grant, said) in [
            (env("AMBIENT"), "give the agent the variable `AMBIENT`: no capability discloses it"),
            (env("HELD"), "it is declared with context = \"broker\""),
            (Grant::Relay("/tmp/b".to_owned()), "declare it as [[agent.relay]]"),
            (Grant::HostPath("/usr/lib".to_owned()), "declare it in [agent.openshell].read_only_paths"),
        ] {
            let error = covered(&plan, &[env("GIVEN"), grant]).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}

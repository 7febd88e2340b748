//! Turns a plan into what it discloses, and into why it may not start as it is (notes N5, N12).
//! It refuses to run anything, and to look at a value but to see whether it is where it must not be.

use policy::capability::{Grant, Uncovered, uncovered};
use policy::exposure::{Credential, Exposure, Reach};
use policy::outputs::Target;

use super::RunPlan;
use crate::manifest::{Context, EnvName, Relay};
use crate::sys::env::Environment;

/// Broker-held values of fewer bytes than this are not looked for elsewhere: they would be found by chance.
pub const VALUE_LEAST: usize = 8;

/// Why a plan may not start. Reads as what follows "failed to".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Isolation that the backend does not give.
    #[error(
        "run a pack with inherit_defaults = false on a backend that puts nothing between the agent and the network"
    )]
    Unenforced,
    /// A value that only the broker may hold, under another name.
    #[error(
        "give the agent the variable `{to}`: it holds the value of `{name}`, which is declared with context = \"broker\""
    )]
    BrokerValue {
        /// The declared name.
        name: String,
        /// The variable of `[agent.env]`.
        to: String,
    },
    /// A variable of the operator's that a sandbox would be given, and nothing discloses.
    #[error(transparent)]
    Undisclosed(#[from] Uncovered),
}

impl RunPlan {
    /// What the run may write and what its agent reaches, from the values that its sandboxes are provisioned from. Nothing
    /// of the pack is run or read for it.
    #[must_use]
    pub fn exposure(&self) -> Exposure {
        let sandbox = self.agent.sandbox.as_ref();
        let relays = || sandbox.iter().flat_map(|sandbox| &sandbox.relays);
        let credential = |secret: &crate::manifest::Secret| Credential {
            name: secret.name.to_string(),
            context: secret.context,
            system: secret.system.clone(),
            scope: secret.scope.clone(),
        };
        let models = || self.agent.models();
        let own = models().flat_map(|model| model.own(&self.agent.env));
        let own: std::collections::BTreeSet<&str> = own.map(|(name, _)| name).collect();
        let names = self
            .agent
            .env
            .keys()
            .filter(|name| own.contains(name.as_str()))
            .chain(relays().flat_map(Relay::variables));
        let paths = sandbox.iter().flat_map(|sandbox| &sandbox.read_only_paths);
        let reach = Reach {
            egress: sandbox.map(|sandbox| (&sandbox.egress, &sandbox.declared)),
            host_paths: paths.map(|path| path.display().to_string()).collect(),
            // A document binds all models alike.
            inference: self.agent.model.binding(),
            credentials: self.secrets.iter().map(credential).chain(self.agent.model.disclosed()).collect(),
            names: names.map(EnvName::to_string).collect(),
            relays: relays().map(|relay| (relay.dest.to_string(), relay.sources())).collect(),
            external_commands: self.runs_commands(),
        };
        Exposure::new(&self.outputs, &reach)
    }

    /// Whether a target is bound to the parameter.
    fn binds(&self, name: &str) -> bool {
        self.outputs.bounds().iter().any(
            |bound| matches!(&bound.target, Some(Target::Open { param: Some(param), .. }) if param == name),
        )
    }

    /// Whether something of the pack runs on this host: its setup, judge and world, its relays, or the agent itself.
    fn runs_commands(&self) -> bool {
        let world = &self.world;
        let relays = self.agent.sandbox.iter().flat_map(|sandbox| &sandbox.relays);
        let commands = [&self.judge.measure_cmd].into_iter().chain(&world.apply_cmd);
        let commands = commands.chain(self.setup.as_ref().map(|setup| &setup.command));
        commands.count() > 0
            || world.snapshot_restore.is_some()
            || self.agent.sandbox.is_none()
            || relays.into_iter().any(Relay::runs_commands)
    }

    /// The credentials that only the broker may hold: they stay out of every command of the pack, and of every sandbox.
    pub fn broker_held(&self) -> impl Iterator<Item = &str> {
        self.secrets
            .iter()
            .filter(|secret| secret.context == Context::Broker)
            .map(|secret| secret.name.as_str())
    }

    /// Why it may not start as it is; `env` is the operator's environment.
    #[must_use]
    pub fn refusals(&self, env: &Environment) -> Vec<Refusal> {
        let mut found = Vec::new();
        if self.agent.isolated && self.agent.sandbox.is_none() && !self.unenforced_egress {
            found.push(Refusal::Unenforced);
        }
        found.extend(self.undisclosed().into_iter().map(Refusal::Undisclosed));
        for name in self.broker_held() {
            let Some(value) = env.value(name).and_then(|value| value.to_str()) else { continue };
            let holds = |given: &str| value.len() >= VALUE_LEAST && given.contains(value);
            let given = self.agent.env.iter().filter(|(_, given)| holds(given.reveal()));
            found.extend(
                given.map(|(to, _)| Refusal::BrokerValue { name: name.to_owned(), to: to.to_string() }),
            );
        }
        found
    }

    /// What reaches a sandbox from the operator's environment and is in no row of the disclosure.
    fn undisclosed(&self) -> Vec<Uncovered> {
        let models = self.agent.sandbox.iter().flat_map(|_| self.agent.models());
        let names: std::collections::BTreeSet<&str> =
            models.flat_map(|model| model.relayed(true)).map(|(name, _)| name).collect();
        let grants: Vec<Grant> = names.into_iter().map(|name| Grant::Env(name.to_owned())).collect();
        uncovered(&grants, &self.exposure().capabilities)
    }

    /// What its author or operator should know although it may start.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.agent.isolated && self.agent.sandbox.is_none() && self.unenforced_egress {
            all.push(
                "inherit_defaults = false is not enforced: nothing stands between the agent and the network"
                    .to_owned(),
            );
        }
        let unused = self.outputs.params().keys().filter(|name| !self.binds(name));
        all.extend(unused.map(|name| format!("no target is bound to the parameter `{name}`")));
        all
    }
}

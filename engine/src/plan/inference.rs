//! Turns an inference document, the environment and `[agent]` into the one model that agent turns use (note N6, contract §6).
//! It refuses to know how a turn is run, and takes up a key only when it is asked for the turn's variables.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use policy::capability::Binding;
use policy::capability::Context;
use policy::egress::Plumbing;
use policy::exposure::Credential;
use policy::inference::{
    AMBIENT, AgentBinding, AgentProtocol, Bindings, DecisionBinding, Family, Holds, InferenceError,
    InferenceUrl, KeyName, VARIABLE, Variable,
};

use super::PlanError;
use crate::manifest::{Agent, DEFAULT_MODEL, EnvName, EnvValue, Harness, ModelName};
use crate::sys::env::Environment;

/// What the process was started with: the document, and what the environment says beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inference {
    /// The document of `CRUCIBLE_INFERENCE`.
    pub bindings: Bindings,
    /// The inference variables of the environment that are set and not empty.
    pub ambient: Vec<Variable>,
}

/// The model of agent turns, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// What the harness asks for.
    pub name: ModelName,
    /// What runs in a turn.
    pub harness: Harness,
    /// Where the model is and how its key is found, where a document says so.
    pub binding: Option<Bound>,
    /// What decides routes. No task of this build asks it.
    pub decision: Option<DecisionBinding>,
    /// The inference variables of the environment that the harness reads; none beside a binding.
    pub ambient: Vec<Variable>,
    /// What the binding took the place of, a line each, without values.
    pub replaced: Vec<String>,
}

/// An agent binding, apart from the model's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What is spoken.
    pub protocol: AgentProtocol,
    /// Where, or the protocol's own endpoint.
    pub url: Option<InferenceUrl>,
    /// The variable of the engine's environment that holds the key.
    pub key: Option<KeyName>,
    /// Its entry in a sandbox's list.
    pub plumbing: Plumbing,
}

/// A key that is not there when it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// Not set.
    #[error("is not set")]
    Unset,
    /// Set to nothing.
    #[error("is empty")]
    Empty,
    /// No text.
    #[error("is not UTF-8")]
    NotText,
    /// A line break or another control character, which no request could carry.
    #[error("holds a control character")]
    Control,
}

/// The variable of a model's key, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the model's key: the variable `{name}`, which CRUCIBLE_INFERENCE names, {fault}")]
pub struct KeyError {
    /// The variable.
    pub name: KeyName,
    /// What is wrong.
    pub fault: KeyFault,
}

impl Inference {
    /// Reads the document and notes which inference variables there are.
    ///
    /// # Errors
    /// The first thing that is wrong with the document.
    pub fn of(env: &Environment) -> Result<Inference, InferenceError> {
        let text = env.value(VARIABLE).map(OsStr::as_encoded_bytes).unwrap_or_default();
        let bindings = Bindings::parse(text)?;
        let set = |variable: &&Variable| env.value(variable.name).is_some_and(|value| !value.is_empty());
        Ok(Inference { bindings, ambient: AMBIENT.iter().filter(set).copied().collect() })
    }
}

impl Model {
    /// Decides which model, harness, endpoint and key agent turns have. An agent binding is the whole answer, but that a
    /// command stays one; without it the manifest and the environment decide.
    ///
    /// # Errors
    /// A harness that this build cannot run, and Codex without a model.
    pub(super) fn resolve(agent: &Agent, inference: &Inference) -> Result<Model, PlanError> {
        let decision = inference.bindings.decision.clone();
        let model = match &inference.bindings.agent {
            Some(binding) => {
                let harness = harness_of(agent.harness, binding.protocol)?;
                let replaced = replaced(agent, harness, binding, &inference.ambient);
                let bound = Bound {
                    protocol: binding.protocol,
                    url: binding.url.clone(),
                    key: binding.key_env.clone(),
                    plumbing: binding.plumbing(),
                };
                let (name, binding) = (binding.model.clone(), Some(bound));
                Model { name, harness, binding, decision, ambient: Vec::new(), replaced }
            }
            None => Model {
                name: model_of(agent)?,
                harness: agent.harness,
                binding: None,
                decision,
                ambient: inference
                    .ambient
                    .iter()
                    .filter(|known| reads(agent.harness, known.family))
                    .copied()
                    .collect(),
                replaced: Vec::new(),
            },
        };
        match model.harness.is_built() {
            true => Ok(model),
            false => Err(PlanError::Harness(model.harness)),
        }
    }

    /// What the document decides, a line each, for the log and for a person. Without a value.
    #[must_use]
    pub fn told(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(Bound { protocol, key, plumbing, .. }) = &self.binding {
            let key =
                key.as_ref().map_or("without a key".to_owned(), |name| format!("with the key in `{name}`"));
            let at = &plumbing.target;
            lines.push(format!(
                "CRUCIBLE_INFERENCE binds the agent to {} over {protocol} at {at}, {key}",
                self.name
            ));
        }
        lines.extend(self.replaced.iter().map(|what| format!("by CRUCIBLE_INFERENCE {what}")));
        if let Some(decision) = &self.decision {
            let protocol = decision.protocol.token();
            lines.push(format!(
                "CRUCIBLE_INFERENCE binds decisions to {} over {protocol}; no task asks for one",
                decision.model
            ));
        }
        lines
    }

    /// What joins a sandbox's list whatever the manifest says (note N13).
    #[must_use]
    pub fn plumbing(&self) -> Option<&Plumbing> {
        self.binding.as_ref().map(|bound| &bound.plumbing)
    }

    /// What a document hands to the agent, as it is disclosed: the variables of its endpoint and its key (contract §1.9).
    pub(super) fn disclosed(&self) -> Vec<Credential> {
        let Some(Bound { protocol, url, key, plumbing }) = &self.binding else { return Vec::new() };
        let family = protocol.family();
        let url = url.as_ref().map(|_| family.url_name());
        let key = key.as_ref().map(|_| family.key_name());
        let scope = format!("{} over {protocol} at {}", self.name, plumbing.target);
        let credential = |name: &str| Credential {
            name: name.to_owned(),
            context: Context::Agent,
            system: "inference".to_owned(),
            scope: scope.clone(),
        };
        url.into_iter().chain(key).map(credential).collect()
    }

    /// What a document binds the agent to, as it is disclosed beside them.
    pub(super) fn binding(&self) -> Option<Binding> {
        self.binding.as_ref().map(|bound| Binding {
            harness: self.harness.to_string(),
            model: self.name.to_string(),
            protocol: bound.protocol.token().to_owned(),
            endpoint: bound.plumbing.target.to_string(),
            variables: self.relayed(true).into_iter().map(|(name, _)| name.to_owned()).collect(),
            key_env: bound.key.as_ref().map(ToString::to_string),
        })
    }

    /// The variables of `[agent.env]` that count: beside a binding those of other models do not.
    #[must_use]
    pub fn own<'e>(&self, own: &'e BTreeMap<EnvName, EnvValue>) -> Vec<(&'e str, &'e str)> {
        let kept = own.iter().filter(|(name, _)| self.binding.is_none() || !is_ambient(name.as_str()));
        kept.map(|(name, value)| (name.as_str(), value.reveal())).collect()
    }

    /// The inference variables that the agent's process is given: the binding's endpoint and key under the names that its
    /// clients read, or what the harness reads of the environment. `sandboxed` leaves out paths of this machine.
    ///
    /// # Errors
    /// A key that is not set, or nothing: there is never a call without it.
    pub fn variables(&self, env: &Environment, sandboxed: bool) -> Result<Vec<(String, String)>, KeyError> {
        let Some(bound) = &self.binding else {
            let passed = self.ambient.iter().filter(|known| !(sandboxed && known.holds == Holds::Path));
            let value =
                |known: &Variable| Some((known.name.to_owned(), env.value(known.name)?.to_str()?.to_owned()));
            return Ok(passed.filter_map(value).collect());
        };
        let family = bound.protocol.family();
        let mut given = Vec::new();
        given.extend(bound.url.as_ref().map(|url| (family.url_name().to_owned(), url.to_string())));
        if let Some(name) = &bound.key {
            given.push((family.key_name().to_owned(), key(env, name)?));
        }
        Ok(given)
    }

    /// The names of the variables that reach the agent from outside of the pack, and what each holds: for the disclosure, which
    /// must cover every one of them (note N5).
    #[must_use]
    pub fn relayed(&self, sandboxed: bool) -> Vec<(&'static str, Holds)> {
        let Some(bound) = &self.binding else {
            let passed = self.ambient.iter().filter(|known| !(sandboxed && known.holds == Holds::Path));
            return passed.map(|known| (known.name, known.holds)).collect();
        };
        let family = bound.protocol.family();
        let url = bound.url.as_ref().map(|_| (family.url_name(), Holds::Url));
        let key = bound.key.as_ref().map(|_| (family.key_name(), Holds::Key));
        url.into_iter().chain(key).collect()
    }

    /// The values of the keys that agents are given, for what must not show them. Where no key can be had there is none.
    #[must_use]
    pub fn secrets(&self, env: &Environment) -> Vec<String> {
        let is_key = |name: &str| AMBIENT.iter().any(|known| known.name == name && known.holds == Holds::Key);
        let given = self.variables(env, true).unwrap_or_default();
        given.into_iter().filter(|(name, _)| is_key(name)).map(|(_, value)| value).collect()
    }

    /// What an agent on this host does not see of the engine's environment: every key's own variable, and beside a binding
    /// all that says otherwise.
    #[must_use]
    pub fn hidden_from_agent(&self) -> Vec<&str> {
        let other = AMBIENT.iter().filter(|_| self.binding.is_some()).map(|known| known.name);
        other.chain(self.key_names()).collect()
    }

    /// What pack commands do not see of the engine's environment (note N12): keys.
    #[must_use]
    pub fn hidden_from_pack(&self) -> Vec<&str> {
        let keys = AMBIENT.iter().filter(|known| known.holds == Holds::Key).map(|known| known.name);
        keys.chain(self.key_names()).collect()
    }

    fn key_names(&self) -> impl Iterator<Item = &str> {
        let agent = self.binding.iter().filter_map(|bound| bound.key.as_ref());
        let decision = self.decision.iter().filter_map(|binding| binding.key_env.as_ref());
        agent.chain(decision).map(KeyName::as_str)
    }
}

fn harness_of(manifests: Harness, protocol: AgentProtocol) -> Result<Harness, PlanError> {
    match (manifests, protocol) {
        (Harness::Command, _) => Ok(Harness::Command),
        (_, AgentProtocol::Messages) => Ok(Harness::Claude),
        (_, AgentProtocol::Responses) => Ok(Harness::Codex),
        (_, AgentProtocol::ChatCompletions) => Err(PlanError::Protocol(protocol)),
    }
}

fn model_of(agent: &Agent) -> Result<ModelName, PlanError> {
    match (&agent.model, agent.harness) {
        (Some(model), _) => Ok(model.clone()),
        (None, Harness::Codex) => Err(PlanError::NoModel),
        // INVARIANT: the constant is a name.
        (None, _) => ModelName::parse(DEFAULT_MODEL).map_err(|_| PlanError::NoModel),
    }
}

/// Whose variables a harness reads. A command is told nothing but by its manifest.
fn reads(harness: Harness, family: Family) -> bool {
    match harness {
        Harness::Claude => matches!(family, Family::Anthropic | Family::Vertex),
        Harness::Codex => family == Family::OpenAi,
        _ => false,
    }
}

fn is_ambient(name: &str) -> bool {
    AMBIENT.iter().any(|known| known.name == name)
}

/// What the binding takes the place of. Names and public words only.
fn replaced(agent: &Agent, harness: Harness, binding: &AgentBinding, ambient: &[Variable]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(model) = agent.model.as_ref().filter(|model| **model != binding.model) {
        lines.push(format!("the model {} in place of [agent].model, {model}", binding.model));
    }
    if harness != agent.harness {
        lines.push(format!(
            "the harness {harness} by its protocol {}, in place of {}",
            binding.protocol, agent.harness
        ));
    }
    let own = agent.env.keys().filter(|name| is_ambient(name.as_str()));
    lines.extend(own.map(|name| format!("`{name}` of [agent.env] does not count")));
    lines.extend(ambient.iter().map(|known| format!("`{}` of the environment does not count", known.name)));
    lines
}

fn key(env: &Environment, name: &KeyName) -> Result<String, KeyError> {
    let fail = |fault| KeyError { name: name.clone(), fault };
    let value = env.value(name.as_str()).ok_or_else(|| fail(KeyFault::Unset))?;
    let value = value.to_str().ok_or_else(|| fail(KeyFault::NotText))?;
    match value {
        "" => Err(fail(KeyFault::Empty)),
        _ if value.trim().is_empty() => Err(fail(KeyFault::Empty)),
        _ if value.chars().any(char::is_control) => Err(fail(KeyFault::Control)),
        _ => Ok(value.to_owned()),
    }
}

#[cfg(test)]
mod tests;

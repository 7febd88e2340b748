//! Turns what reaches an agent, by name, into rows of a disclosure, and grants without a row into refusals (contract §1.9, note N5).
//! It refuses to know any value.

use serde::{Deserialize, Serialize};

use crate::egress::Disclosed;

/// What stands for the system and the scope of a credential that no manifest declares.
pub const UNDECLARED: &str = "undeclared";

/// Who holds a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Context {
    /// The broker alone: it never enters a sandbox.
    Broker,
    /// The agent: it may enter.
    Agent,
}

impl Context {
    /// Reads `broker` or `agent`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "broker" => Some(Self::Broker),
            "agent" => Some(Self::Agent),
            _ => None,
        }
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Agent => "agent",
        }
    }
}

/// Who named a program that may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BinarySource {
    /// The engine's table.
    Builtin,
    /// `[agent.openshell].binaries`.
    Manifest,
}

/// Which model an agent is bound to, where it is, and by which variables it is told. No value is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// What runs the agent.
    pub harness: String,
    /// The model.
    pub model: String,
    /// What is spoken.
    pub protocol: String,
    /// Host and port.
    pub endpoint: String,
    /// The variables that the agent is given for it.
    pub variables: Vec<String>,
    /// The operator's variable that the key is taken from, where there is a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
}

/// One row of a disclosure, by its `kind`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Capability {
    /// An entry of the resolved egress list.
    Egress(Disclosed),
    /// A program that may open a connection to any of them.
    Binary {
        /// Its path in the sandbox.
        path: String,
        /// Who named it.
        source: BinarySource,
    },
    /// A path of the host that the sandbox shows, to read and to execute (N11).
    HostPath {
        /// Absolute, the same inside.
        path: String,
    },
    /// The model that the operator's inference document binds the agent to.
    Inference(Binding),
    /// A credential, by name.
    Credential {
        /// The variable that holds it.
        name: String,
        /// Who holds it.
        context: Context,
        /// The system that it is for, or [`UNDECLARED`].
        system: String,
        /// What it allows there, or [`UNDECLARED`].
        scope: String,
    },
    /// A file that is put into the sandbox (N16).
    Relay {
        /// Where it stands in the sandbox.
        path: String,
        /// What it is made of, such as `env:NAME`; none is the manifest's own text.
        sources: Vec<String>,
    },
    /// A program in the broker's place.
    BrokerBin {
        /// Its path.
        bin: String,
    },
    /// Whether the pack runs commands on the host, outside of any sandbox.
    ExternalCommands {
        /// Whether it does.
        present: bool,
    },
}

/// Something that is about to reach the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// A variable of the agent's environment, by name.
    Env(String),
    /// A file in its sandbox, by path.
    Relay(String),
    /// A path of the host in its sandbox's view.
    HostPath(String),
}

/// A grant that the disclosure does not cover. Reads as what follows "failed to".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Uncovered {
    /// A variable without a row.
    #[error(
        "give the agent the variable `{0}`: no capability discloses it; declare it as [[capabilities.secret]] with context = \"agent\""
    )]
    Env(String),
    /// A variable that only the broker may hold.
    #[error("give the agent the variable `{0}`: it is declared with context = \"broker\"")]
    BrokerHeld(String),
    /// A file without a row.
    #[error("put a file at {0} in the sandbox: no capability discloses it; declare it as [[agent.relay]]")]
    Relay(String),
    /// A path of the host without a row.
    #[error(
        "show {0} in the sandbox: no capability discloses it; declare it in [agent.openshell].read_only_paths"
    )]
    HostPath(String),
}

/// Every grant that no row covers, in their order.
pub fn uncovered(grants: &[Grant], disclosed: &[Capability]) -> Vec<Uncovered> {
    grants.iter().filter_map(|grant| missing(grant, disclosed)).collect()
}

fn missing(grant: &Grant, disclosed: &[Capability]) -> Option<Uncovered> {
    match grant {
        Grant::Env(wanted) => {
            let contexts = disclosed.iter().filter_map(|row| match row {
                Capability::Credential { name, context, .. } if name == wanted => Some(*context),
                _ => None,
            });
            match contexts.min() {
                Some(Context::Agent) => None,
                Some(Context::Broker) => Some(Uncovered::BrokerHeld(wanted.clone())),
                None => Some(Uncovered::Env(wanted.clone())),
            }
        }
        Grant::Relay(wanted) => {
            let covered =
                disclosed.iter().any(|row| matches!(row, Capability::Relay { path, .. } if path == wanted));
            (!covered).then(|| Uncovered::Relay(wanted.clone()))
        }
        Grant::HostPath(wanted) => {
            let covered =
                disclosed.iter().any(|row| matches!(row, Capability::HostPath { path } if path == wanted));
            (!covered).then(|| Uncovered::HostPath(wanted.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(name: &str, context: Context) -> Capability {
        let (system, scope) = (UNDECLARED.to_owned(), UNDECLARED.to_owned());
        Capability::Credential { name: name.to_owned(), context, system, scope }
    }

    #[test]
    fn a_grant_without_its_row_is_named() {
        let disclosed = [
            credential("A", Context::Agent),
            credential("B", Context::Broker),
            Capability::Relay { path: "/tmp/a".to_owned(), sources: Vec::new() },
            Capability::HostPath { path: "/opt".to_owned() },
        ];
        let env = |name: &str| Grant::Env(name.to_owned());
        let cases = [
            (env("A"), None),
            (env("B"), Some(Uncovered::BrokerHeld("B".to_owned()))),
            (env("C"), Some(Uncovered::Env("C".to_owned()))),
            (Grant::Relay("/tmp/a".to_owned()), None),
            (Grant::Relay("/tmp/b".to_owned()), Some(Uncovered::Relay("/tmp/b".to_owned()))),
            (Grant::HostPath("/opt".to_owned()), None),
            (Grant::HostPath("/opt/x".to_owned()), Some(Uncovered::HostPath("/opt/x".to_owned()))),
        ];
        for (grant, expected) in cases {
            assert_eq!(
                uncovered(std::slice::from_ref(&grant), &disclosed),
                Vec::from_iter(expected),
                "{grant:?}"
            );
        }
        // Whoever is both is treated as what only the broker may hold.
        let both = [credential("A", Context::Agent), credential("A", Context::Broker)];
        assert_eq!(uncovered(&[env("A")], &both), [Uncovered::BrokerHeld("A".to_owned())]);
    }

    #[test]
    fn rows_carry_their_kind() {
        let text = serde_json::to_string(&credential("A", Context::Agent)).unwrap();
        let expect = r#"{"kind":"credential","name":"A","context":"agent","system":"undeclared","scope":"undeclared"}"#;
        assert_eq!(text, expect);
        assert!(serde_json::from_str::<Capability>(&text.replace("scope", "scop")).is_err());
        assert!(serde_json::from_str::<Capability>(r#"{"kind":"wormhole"}"#).is_err());
    }
}

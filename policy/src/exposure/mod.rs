//! Turns the resolved bounds and reach of a run into the document that a reviewer reads before anything runs (note N5).
//! It refuses to know any value of a credential, and what a pack's files hold.

mod diff;
mod render;
mod schema;

use serde::{Deserialize, Serialize};

pub use diff::{Change, Diff, Effect};
pub use render::rendered;
pub use schema::{page, schema};

use crate::capability::{BinarySource, Binding, Capability, Context, UNDECLARED};
use crate::egress::{BUILTIN_BINARIES, Binaries, Declared, Egress, disclosed};
use crate::json::{kind, parse_strict};
use crate::outputs::{self, Bound, Outputs};

/// The version of [`Exposure`].
pub const VERSION: u32 = 1;

/// What a run may write to the outside and what its agent may reach: `crucible plan exposure` prints it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exposure {
    /// [`VERSION`].
    pub version: u32,
    /// The bound of each kind of write, as the broker is handed it (N4).
    pub outputs: Vec<Bound>,
    /// What reaches the agent and what it reaches, in a stable order.
    pub capabilities: Vec<Capability>,
    /// Whether anything stands between the agent and the network.
    pub enforced: bool,
}

/// What a credential authorises, as a manifest declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The variable that holds it.
    pub name: String,
    /// Who holds it.
    pub context: Context,
    /// The system that it is for.
    pub system: String,
    /// What it allows there.
    pub scope: String,
}

/// What a sandbox is provisioned from, by name: the same values that the sandbox gets.
#[derive(Clone, Debug, Default)]
pub struct Reach<'a> {
    /// What it reaches, with the manifest's share of it; absent where nothing stands between the agent and the network.
    pub egress: Option<(&'a Egress, &'a Declared)>,
    /// Paths of the host that it shows.
    pub host_paths: Vec<String>,
    /// The model that a document binds the agent to.
    pub inference: Option<Binding>,
    /// `[[capabilities.secret]]`.
    pub credentials: Vec<Credential>,
    /// The names of what reaches the agent: `[agent.env]`, and the operator's variables that relays read.
    pub names: Vec<String>,
    /// Files that are put into it, with what they are made of.
    pub relays: Vec<(String, Vec<String>)>,
    /// Whether the pack runs commands on the host.
    pub external_commands: bool,
}

/// Why a text is no exposure. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ExposureError {
    /// Not JSON of this shape.
    #[error("read the exposure")]
    Json(#[from] serde_json::Error),
    /// Another value than an object.
    #[error("read the exposure: it must be a JSON object, and is {0}")]
    Type(&'static str),
    /// Of another version.
    #[error("read the exposure: its version is {0}, and this build reads {VERSION}")]
    Version(u64),
    /// Its bounds.
    #[error(transparent)]
    Outputs(#[from] outputs::DocumentError),
    /// An egress entry that is none, by its text.
    #[error("read the exposure: its egress entry {0:?} is none")]
    Egress(String),
    /// A program that is none, by its text.
    #[error("read the exposure: its program {0:?} is none")]
    Binary(String),
}

impl Exposure {
    /// Discloses a run. The same run gives the same document, byte by byte.
    pub fn new(outputs: &Outputs, reach: &Reach<'_>) -> Self {
        let mut capabilities = Vec::new();
        if let Some((egress, declared)) = reach.egress {
            capabilities.extend(disclosed(egress).into_iter().map(Capability::Egress));
            capabilities.extend(programs(egress, declared));
        }
        let mut paths = reach.host_paths.clone();
        paths.sort();
        capabilities.extend(paths.into_iter().map(|path| Capability::HostPath { path }));
        capabilities.extend(reach.inference.clone().map(Capability::Inference));
        capabilities.extend(credentials(reach));
        let mut relays = reach.relays.clone();
        relays.sort();
        capabilities.extend(relays.into_iter().map(|(path, sources)| Capability::Relay { path, sources }));
        capabilities.push(Capability::ExternalCommands { present: reach.external_commands });
        Self {
            version: VERSION,
            outputs: outputs.bounds().to_vec(),
            capabilities,
            enforced: reach.egress.is_some(),
        }
    }

    /// Reads a document that this or an earlier build of the same version printed.
    ///
    /// # Errors
    /// See [`ExposureError`]; a field or a kind that is not known is one, because what it discloses could not be compared.
    pub fn read(text: &str) -> Result<Self, ExposureError> {
        let value = parse_strict(text.as_bytes())?;
        if !value.is_object() {
            return Err(ExposureError::Type(kind(&value)));
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version != u64::from(VERSION) => return Err(ExposureError::Version(version)),
            _ => {}
        }
        let exposure: Self = serde_json::from_value(value)?;
        let document = outputs::Document { version: outputs::VERSION, outputs: exposure.outputs.clone() };
        Outputs::read(document, std::collections::BTreeMap::new())?;
        exposure.egress()?;
        Ok(exposure)
    }

    /// The names that reach the agent and that nobody declared.
    pub fn undeclared(&self) -> impl Iterator<Item = &str> {
        self.capabilities.iter().filter_map(|row| match row {
            Capability::Credential { name, system, .. } if system == UNDECLARED => Some(name.as_str()),
            _ => None,
        })
    }
}

/// The programs that may connect, sorted; none where no entry could use them.
fn programs(egress: &Egress, declared: &Declared) -> Vec<Capability> {
    let sets = egress.entries().iter().filter_map(|entry| match &entry.binaries {
        Binaries::Of(set) => Some(set),
        Binaries::Any => None,
    });
    let mut paths: Vec<String> = sets.flat_map(|set| set.iter().map(ToString::to_string)).collect();
    paths.sort();
    paths.dedup();
    let builtin = |path: &str| declared.inherit_defaults && BUILTIN_BINARIES.contains(&path);
    let row = |path: String| {
        let source = if builtin(&path) { BinarySource::Builtin } else { BinarySource::Manifest };
        Capability::Binary { path, source }
    };
    paths.into_iter().map(row).collect()
}

/// What is declared, and what reaches the agent undeclared, by name.
fn credentials(reach: &Reach<'_>) -> Vec<Capability> {
    let undeclared =
        reach.names.iter().filter(|name| !reach.credentials.iter().any(|one| one.name == **name));
    let undeclared = undeclared.map(|name| Credential {
        name: name.clone(),
        context: Context::Agent,
        system: UNDECLARED.to_owned(),
        scope: UNDECLARED.to_owned(),
    });
    let mut all: Vec<Credential> = reach.credentials.iter().cloned().chain(undeclared).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.dedup();
    let row =
        |Credential { name, context, system, scope }| Capability::Credential { name, context, system, scope };
    all.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests;

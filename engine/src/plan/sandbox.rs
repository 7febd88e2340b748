//! Turns `[agent.openshell]` and what stands beside it into the one value that a turn's sandbox is provisioned from.
//! It refuses to know how a sandbox is made.

use std::path::{Path, PathBuf};

use policy::egress::{BrokerUrl, Declared, Egress};

use crate::manifest::{Agent, Relay, SandboxLimits};

/// What a turn's sandbox reaches, shows of the host and may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPlan {
    /// Absolute, without `..` and doubles; whether they exist was not looked at.
    pub read_only_paths: Vec<PathBuf>,
    /// Files that are put into it before each turn (note N16).
    pub relays: Vec<Relay>,
    /// Where their relative paths start and their commands run: the manifest's directory.
    pub relay_dir: PathBuf,
    /// Where the broker serves tools to the agent, if it does. Its entry is in `egress`, derived from this same URL.
    pub broker: Option<BrokerUrl>,
    /// What the manifest asks for.
    pub declared: Declared,
    /// The one list of what can be reached: what sandboxes are provisioned from, and what is disclosed.
    pub egress: Egress,
    /// What it may use.
    pub limits: SandboxLimits,
}

impl SandboxPlan {
    /// `None` where the agent runs in no sandbox.
    pub(super) fn resolve(agent: &Agent, manifest_dir: &Path) -> Option<SandboxPlan> {
        let sandbox = agent.sandbox.as_ref()?;
        let paths = sandbox.read_only_paths.iter();
        let plumbing: Vec<_> = agent.broker.iter().map(BrokerUrl::plumbing).collect();
        Some(SandboxPlan {
            declared: sandbox.declared.clone(),
            egress: Egress::resolve(&sandbox.declared, &plumbing),
            broker: agent.broker.clone(),
            relays: agent.relays.iter().map(|relay| relay.value.clone()).collect(),
            relay_dir: manifest_dir.to_owned(),
            read_only_paths: paths.map(|path| path.value.as_path().to_owned()).collect(),
            limits: sandbox.limits,
        })
    }
}

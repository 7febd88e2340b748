//! Turns `[agent.openshell]` and what stands beside it into the one value that a turn's sandbox is provisioned from.
//! It refuses to know how a sandbox is made.

use std::path::{Path, PathBuf};

use policy::egress::{BinaryPath, BrokerUrl, Declared, Egress, Plumbing};

use super::{Tool, ToolError};
use crate::manifest::{Agent, Relay, SandboxLimits, TrafficLimits};
use crate::pack::Certificates;

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
    /// The programs of harnesses that may connect beside those that the manifest names.
    pub admitted: Vec<BinaryPath>,
    /// What the engine adds whatever the manifest asks for.
    pub plumbing: Vec<Plumbing>,
    /// The one list of what can be reached: what sandboxes are provisioned from, and what is disclosed.
    pub egress: Egress,
    /// What it trusts beside the system's certificates.
    pub certificates: Option<Certificates>,
    /// What it may use.
    pub limits: SandboxLimits,
    /// What bounds its traffic.
    pub traffic: TrafficLimits,
}

impl SandboxPlan {
    /// `None` where the agent runs in no sandbox.
    pub(super) fn resolve(
        agent: &Agent,
        inference: Option<&Plumbing>,
        manifest_dir: &Path,
        certificates: Option<Certificates>,
    ) -> Option<SandboxPlan> {
        let sandbox = agent.sandbox.as_ref()?;
        let paths = sandbox.read_only_paths.iter();
        let own = agent.broker.iter().map(BrokerUrl::plumbing);
        let plumbing: Vec<Plumbing> = own.chain(inference.cloned()).collect();
        Some(SandboxPlan {
            declared: sandbox.declared.clone(),
            admitted: Vec::new(),
            egress: Egress::resolve(&sandbox.declared, &plumbing),
            plumbing,
            broker: agent.broker.clone(),
            relays: agent.relays.iter().map(|relay| relay.value.clone()).collect(),
            relay_dir: manifest_dir.to_owned(),
            read_only_paths: paths.map(|path| path.value.as_path().to_owned()).collect(),
            certificates,
            limits: sandbox.limits,
            traffic: sandbox.traffic,
        })
    }

    /// The certificates of `ca_file`, in PEM.
    pub fn ca(&self) -> Option<String> {
        self.certificates.as_ref().map(|certificates| certificates.pem().to_owned())
    }

    /// Joins a tool of this machine to what the sandbox shows, and to the programs that may connect.
    ///
    /// # Errors
    /// A path that no policy can name.
    pub(super) fn show(&mut self, tool: &Tool) -> Result<(), ToolError> {
        let path = tool.executable.to_str().and_then(|path| BinaryPath::parse(path).ok());
        self.admit(path.ok_or_else(|| ToolError::Unnameable(tool.executable.clone()))?);
        if !self.read_only_paths.contains(&tool.needs) {
            self.read_only_paths.push(tool.needs.clone());
        }
        Ok(())
    }

    /// The same list with one more program, a harness's own, among those that its entries admit (note N12).
    pub fn admit(&mut self, program: BinaryPath) {
        let known = self.declared.binaries.iter().chain(&self.admitted).any(|known| *known == program);
        if !known {
            self.admitted.push(program);
            let mut declared = self.declared.clone();
            declared.binaries.extend(self.admitted.iter().cloned());
            self.egress = Egress::resolve(&declared, &self.plumbing);
        }
    }
}

//! Turns `[agent.openshell]` into the one list and the limits that a turn's sandbox is provisioned from.
//! It refuses to know how a sandbox is made.

use std::path::PathBuf;

use policy::egress::{BinaryPath, Declared, Egress, Plumbing};

use crate::manifest::{Sandbox, SandboxLimits, TrafficLimits};
use crate::pack::Certificates;

/// What a turn's sandbox reaches, shows of the host and may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPlan {
    /// Absolute, without `..` and doubles; whether they exist was not looked at.
    pub read_only_paths: Vec<PathBuf>,
    /// What the manifest asks for.
    pub declared: Declared,
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
    pub(super) fn resolve(
        sandbox: &Sandbox,
        inference: Option<&Plumbing>,
        certificates: Option<Certificates>,
    ) -> SandboxPlan {
        let plumbing: Vec<Plumbing> = inference.into_iter().cloned().collect();
        let paths = sandbox.read_only_paths.iter();
        SandboxPlan {
            declared: sandbox.declared.clone(),
            egress: Egress::resolve(&sandbox.declared, &plumbing),
            plumbing,
            read_only_paths: paths.map(|path| path.value.as_path().to_owned()).collect(),
            certificates,
            limits: sandbox.limits,
            traffic: sandbox.traffic,
        }
    }

    /// The certificates of `ca_file`, in PEM.
    pub fn ca(&self) -> Option<String> {
        self.certificates.as_ref().map(|certificates| certificates.pem().to_owned())
    }

    /// The same list with one more program, the harness's own, among those that its entries admit (note N12).
    pub fn admit(&mut self, program: BinaryPath) {
        let Declared { binaries, .. } = &self.declared;
        if !binaries.contains(&program) {
            let mut declared = self.declared.clone();
            declared.binaries.push(program);
            self.egress = Egress::resolve(&declared, &self.plumbing);
        }
    }
}

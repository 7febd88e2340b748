//! Turns `[agent.openshell]` into the one list and the limits that a turn's sandbox is provisioned from.
//! It refuses to know how a sandbox is made.

use std::path::PathBuf;

use policy::egress::{Declared, Egress};

use crate::manifest::{Sandbox, SandboxLimits, TrafficLimits};
use crate::pack::Certificates;

/// What a turn's sandbox reaches, shows of the host and may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPlan {
    /// Absolute, without `..` and doubles; whether they exist was not looked at.
    pub read_only_paths: Vec<PathBuf>,
    /// What the manifest asks for.
    pub declared: Declared,
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
    pub(super) fn resolve(sandbox: &Sandbox, certificates: Option<Certificates>) -> SandboxPlan {
        let paths = sandbox.read_only_paths.iter();
        SandboxPlan {
            declared: sandbox.declared.clone(),
            egress: Egress::resolve(&sandbox.declared, &[]),
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
}

//! Turns `[agent.openshell]` into the one list and the limits that a turn's sandbox is provisioned from.
//! It refuses to know how a sandbox is made.

use std::path::PathBuf;

use policy::egress::{BinaryPath, Declared, Egress, Plumbing};

use super::{Tool, ToolError};
use crate::manifest::{Sandbox, SandboxLimits};

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
    /// What it may use.
    pub limits: SandboxLimits,
}

impl SandboxPlan {
    pub(super) fn resolve(sandbox: &Sandbox, inference: Option<&Plumbing>) -> SandboxPlan {
        let plumbing: Vec<Plumbing> = inference.into_iter().cloned().collect();
        let paths = sandbox.read_only_paths.iter();
        SandboxPlan {
            declared: sandbox.declared.clone(),
            egress: Egress::resolve(&sandbox.declared, &plumbing),
            plumbing,
            read_only_paths: paths.map(|path| path.value.as_path().to_owned()).collect(),
            limits: sandbox.limits,
        }
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

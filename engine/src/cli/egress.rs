//! Turns a URL and a manifest into whether a sandbox reaches it, and why (`egress explain`).
//! It refuses to decide that: the policy does, as it will in the run.

use policy::egress::{Lint, Wonder, lints};

use super::args::ExplainArgs;
use super::error::{CliError, absolute};
use super::exit::Exit;
use super::run::{load, print, runtime};
use crate::plan::{Inference, Overrides, RunPlan};
use crate::sys::env::Environment;

/// Explains one URL.
///
/// # Errors
/// A pack that makes no plan or has no sandbox, and a URL that is none.
pub fn explain(args: &ExplainArgs) -> Result<Exit, CliError> {
    let wonder = Wonder::parse(&args.url, args.method.as_deref(), args.binary.as_deref())
        .map_err(|source| CliError::Url { url: args.url.clone(), source })?;
    let manifest = absolute(&args.manifest.manifest)?;
    let env = Environment::of_this_process();
    let inference = Inference::of(&env)?;
    let pack = load(&manifest, None, &env, &runtime()?)?;
    let plan = RunPlan::resolve(pack, &Overrides { inference, ..Overrides::default() })?;
    let sandbox = plan.agent.sandbox.as_ref().ok_or(CliError::NoSandbox)?;
    print(&sandbox.egress.explain(&wonder, &sandbox.declared).to_string())?;
    Ok(Exit::Ok)
}

/// What will not do what the author of a manifest meant.
pub(super) fn warnings(plan: &RunPlan) -> Vec<Lint> {
    let Some(sandbox) = &plan.agent.sandbox else { return Vec::new() };
    let paths: Vec<String> = sandbox.read_only_paths.iter().map(|path| path.display().to_string()).collect();
    lints(&sandbox.egress, &sandbox.declared, Some(&plan.agent.goal), &paths)
}

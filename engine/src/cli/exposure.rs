//! Turns a pack into what it discloses, and two disclosures into what a change adds and drops (`plan exposure`, note N5).
//! It refuses to run anything of the pack.

use std::path::Path;

use policy::exposure::{Diff, Effect, Exposure, schema};
use serde::Serialize;

use super::args::ExposureArgs;
use super::complain;
use super::error::{CliError, absolute};
use super::exit::Exit;
use super::run::{load, print, purpose, runtime};
use crate::plan::{Inference, Overrides, RunPlan};
use crate::report::plain;
use crate::sys::env::Environment;
use crate::sys::fs::read_bounded;

/// More of an old document than this is not read, in bytes.
const OLD_MAX: u64 = 64 << 20;

/// Prints the exposure of a pack, its differences from an older one, or the schema.
///
/// # Errors
/// A pack that makes no plan, and an old document that cannot be read. That a change widens is an exit code.
pub fn exposure(args: &ExposureArgs) -> Result<Exit, CliError> {
    if args.schema {
        print(&format!("{:#}\n", schema()))?;
        return Ok(Exit::Ok);
    }
    let manifest = absolute(&args.manifest.manifest)?;
    let env = Environment::of_this_process();
    let inference = Inference::of(&env)?;
    let pack = load(&manifest, None, &env, &runtime()?)?;
    let mut plan = RunPlan::resolve(pack, &Overrides { inference, ..purpose(&args.purpose) })?;
    // The tool's own files are shown to a sandbox too. Where it is not installed no run begins, and there are none.
    if let Err(error) = plan.equip(env.value("PATH")) {
        complain(&format!("warning: failed to {error}; what a sandbox would show of it is not disclosed"));
    }
    let exposure = plan.exposure();
    let Some(old) = &args.diff else {
        print(&json(&exposure)?)?;
        return Ok(Exit::Ok);
    };
    let diff =
        compare(&exposure, old).map_err(|source| CliError::OldExposure { path: old.clone(), source })?;
    print(&if args.json { json(&diff)? } else { lines(&diff) })?;
    Ok(if diff.widens() { Exit::Widens } else { Exit::Ok })
}

fn compare(exposure: &Exposure, old: &Path) -> Result<Diff, Box<dyn std::error::Error + Send + Sync>> {
    let bytes = read_bounded(old, OLD_MAX)?;
    let old = Exposure::read(std::str::from_utf8(&bytes)?)?;
    Ok(exposure.since(&old)?)
}

fn json(value: &impl Serialize) -> Result<String, CliError> {
    let json = serde_json::to_string_pretty(value);
    let json = json.map_err(|error| CliError::Io { doing: "encode the exposure", source: error.into() })?;
    Ok(format!("{json}\n"))
}

/// A line for each difference, and a last one that says whether any of them widens.
fn lines(diff: &Diff) -> String {
    let word = |effect| match effect {
        Effect::Widens => "widens",
        Effect::Narrows => "narrows",
        Effect::Keeps => "keeps",
    };
    let mut text = String::new();
    for change in &diff.changes {
        text.push_str(&format!(
            "{:<9}{}: {}\n",
            word(change.effect),
            plain(&change.subject),
            plain(&change.change)
        ));
    }
    text.push_str(match (diff.widens(), diff.changes.is_empty()) {
        (true, _) => "it widens what can be reached or written\n",
        (false, false) => "it widens nothing\n",
        (false, true) => "no difference\n",
    });
    text
}

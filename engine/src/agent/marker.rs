//! Turns the marker files that an agent leaves at the root of the workspace into values, once (note N10).
//! It refuses to know what follows from them.

use policy::json::parse_object;
use serde::Deserialize;
use serde_json::Value;

use crate::log::{AskMode, AskWire};
use crate::sys::fs::{FsError, RelPath, Root};

/// The agent's own account of its candidate, read into the row.
pub const ACCOUNT: &str = "CANDIDATE.md";
/// The agent gives up.
pub const ESCALATION: &str = "ESCALATION.json";

/// The agent asks for what only an operator can grant.
pub const ASK: &str = "PROVISIONING_PENDING.json";

/// The longest handle or trace id of an ask, in bytes.
const NAME_MAX: usize = 1024;
/// How much of an account goes to the row, in bytes.
const ACCOUNT_MAX: u64 = 64 * 1024;
const ESCALATION_MAX: u64 = 64 * 1024;

/// What an agent left.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Markers {
    /// `CANDIDATE.md`, empty where there is none.
    pub account: String,
    /// `ESCALATION.json`.
    pub escalation: Option<Escalation>,
    /// `PROVISIONING_PENDING.json`.
    pub ask: Option<AskWire>,
    /// What was there but cannot be taken, and why.
    pub refused: Vec<String>,
}

/// `ESCALATION.json {category, reason, evidence}`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Escalation {
    /// The agent's own category.
    pub category: String,
    /// Why it gives up.
    pub reason: String,
    /// What it bases that on.
    #[serde(default)]
    pub evidence: Value,
}

/// `PROVISIONING_PENDING.json {mode, trace_id, handle}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    mode: AskMode,
    trace_id: String,
    handle: String,
}

impl Markers {
    /// Reads and removes the markers, through no link.
    ///
    /// # Errors
    /// When one cannot be removed: the next turn would seem to have written it.
    pub fn take(workspace: &Root) -> Result<Markers, FsError> {
        let mut markers = Markers::default();
        if let Some(bytes) = markers.read(workspace, ACCOUNT, ACCOUNT_MAX)? {
            markers.account = String::from_utf8_lossy(&bytes).into_owned();
        }
        if let Some(bytes) = markers.read(workspace, ESCALATION, ESCALATION_MAX)? {
            match parse_object(&bytes) {
                Ok(escalation) => markers.escalation = Some(escalation),
                Err(error) => markers.refused.push(format!("{ESCALATION}: {error}")),
            }
        }
        if let Some(bytes) = markers.read(workspace, ASK, ESCALATION_MAX)? {
            match ask(&bytes) {
                Ok(ask) => markers.ask = Some(ask),
                Err(why) => markers.refused.push(format!("{ASK}: {why}")),
            }
        }
        Ok(markers)
    }

    fn read(&mut self, workspace: &Root, name: &str, max: u64) -> Result<Option<Vec<u8>>, FsError> {
        // INVARIANT: the names are constants of this file, and relative paths.
        let Ok(path) = RelPath::parse(name) else { return Ok(None) };
        let read = workspace.read(&path, max);
        if !matches!(read, Ok(None)) {
            workspace.remove_any(&path)?;
        }
        Ok(read.unwrap_or_else(|error| {
            self.refused.push(format!("{name}: {error}"));
            None
        }))
    }
}

fn ask(bytes: &[u8]) -> Result<AskWire, String> {
    let Written { mode, trace_id, handle } = parse_object(bytes).map_err(|error| error.to_string())?;
    let ask = AskWire { mode, trace_id, handle };
    let fits = |text: &str| !text.is_empty() && text.len() <= NAME_MAX;
    if fits(&ask.handle) && fits(&ask.trace_id) {
        return Ok(ask);
    }
    Err(format!("`handle` and `trace_id` must have 1 to {NAME_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::AskMode;

    #[test]
    fn an_ask_is_taken_once_and_only_whole() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let long = format!(r#"{{"mode":"block","trace_id":"t","handle":"{}"}}"#, "x".repeat(2000));
        for (text, mode) in [
            (r#"{"mode":"block","trace_id":"t","handle":"gpu"}"#, Some(AskMode::Block)),
            (r#"{"mode":"continue","trace_id":"t","handle":"gpu"}"#, Some(AskMode::Continue)),
            (r#"{"mode":"wait","trace_id":"t","handle":"gpu"}"#, None),
            (r#"{"mode":"block","trace_id":"t"}"#, None),
            (r#"{"mode":"block","trace_id":"","handle":"gpu"}"#, None),
            (r#"{"mode":"block","trace_id":"t","handle":"gpu","more":1}"#, None),
            (r#"["block","t","gpu"]"#, None),
            (&long, None),
        ] {
            std::fs::write(dir.path().join(ASK), text).unwrap();
            let markers = Markers::take(&root).unwrap();
            assert_eq!(markers.ask.map(|ask| ask.mode), mode, "{text:.80}");
            assert_eq!(markers.refused.is_empty(), mode.is_some(), "{text:.80}");
            assert_eq!(Markers::take(&root).unwrap(), Markers::default(), "it is taken once");
        }
    }

    #[test]
    fn an_escalation_is_an_object() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        for (text, taken) in
            [(r#"{"category":"c","reason":"r"}"#, true), (r#"["c","r",null]"#, false), ("\"c\"", false)]
        {
            std::fs::write(dir.path().join(ESCALATION), text).unwrap();
            let markers = Markers::take(&root).unwrap();
            assert_eq!(
                (markers.escalation.is_some(), markers.refused.len()),
                (taken, 1 - usize::from(taken))
            );
        }
    }
}

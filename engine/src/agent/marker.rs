//! Turns the marker files that an agent leaves at the root of the workspace into values, once (note N10).
//! It refuses to know what follows from them.

use serde::Deserialize;
use serde_json::Value;

use crate::sys::fs::{FsError, RelPath, Root};

/// The agent's own account of its candidate, read into the row.
pub const ACCOUNT: &str = "CANDIDATE.md";
/// The agent gives up.
pub const ESCALATION: &str = "ESCALATION.json";

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
            match serde_json::from_slice(&bytes) {
                Ok(escalation) => markers.escalation = Some(escalation),
                Err(error) => markers.refused.push(format!("{ESCALATION}: {error}")),
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

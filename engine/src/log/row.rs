//! Turns a settled iteration into its wire record (contract §7, `row`).
//! It refuses to know how the decision was made.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::score::Score;

/// How an iteration was settled. The tokens of the phases that are not run yet are read, never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// The first valid reading.
    Baseline,
    /// A baseline that could not be scored.
    BaselineSkipped,
    /// The candidate became the best.
    Keep,
    /// The workspace went back to the best.
    Discard,
    /// The turn died of transport.
    InfraDead,
    /// A wide-round candidate that was kept.
    WideKeep,
    /// A wide-round candidate that was discarded.
    WideDiscard,
    /// A wide-round slot that was not run.
    WideSkip,
    /// A wide-round slot that failed.
    WideFail,
    /// An epilogue task that passed.
    Epilogue,
    /// An epilogue task that was not run.
    EpilogueSkip,
    /// An epilogue task that failed.
    EpilogueFail,
}

/// What one task of the iteration contributed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The task's name.
    pub task: String,
    /// Its status token.
    pub disposition: String,
    /// One line for a person.
    pub note: String,
}

/// A frozen file by its content, or all of them where they are many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenHash {
    /// Relative to the workspace, or how many files it stands for.
    pub path: String,
    /// SHA-256 before the measurement, in hex.
    pub before: String,
    /// The same after it; null where there is no regular file any more, or one that grew by more than 64 MiB.
    pub after: Option<String>,
}

/// One settled iteration. Iteration 0 is the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowWire {
    /// The iteration, counted from 1; 0 for the baseline.
    pub iter: u32,
    /// How it was settled.
    pub decision: Decision,
    /// One line for a person: the judge's note, or why there is no reading.
    #[serde(default)]
    pub note: String,
    /// The judge's free-form detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Map<String, Value>>,
    /// The candidate against the best before it, cut at 200 kB.
    #[serde(default)]
    pub diff: String,
    /// The summary of the whole diff.
    #[serde(default)]
    pub diffstat: String,
    /// The score, where the reading has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// The tiebreak, where the reading has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiebreak: Option<Score>,
    /// `detail.total`, where it is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Score>,
    /// `"wide"` for a wide-round row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The snapshot token of a kept candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_snap: Option<String>,
    /// What each task contributed.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    /// The agent's own account of its candidate, `CANDIDATE.md`.
    #[serde(default)]
    pub candidate_md: String,
    /// The commit that holds the candidate, kept or not (our addition).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
    /// Processes that outlived their command and were ended, by name (our addition).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub killed: Vec<String>,
    /// Frozen files that had been changed and were put back (our addition).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frozen_restored: Vec<String>,
    /// The frozen files that judged it, before and after the measurement (our addition).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<FrozenHash>,
    /// Paths that did not become part of the candidate, with the reason (our addition).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Whether the candidate's tree is the best's, so that a better score can only be noise or lie outside the tree
    /// (our addition).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchanged: bool,
    /// What its turns cost in US dollars, where that is known (our addition).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Wall-clock seconds of the iteration (our addition).
    #[serde(default)]
    pub secs: f64,
}

/// At most so many things that one turn left are named in a line.
const NAMED_MAX: usize = 100;

/// What a line tells of the things that an agent left, however many it made: the first ones, and how many more there are.
#[must_use]
pub fn few(all: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all = all.into_iter();
    let mut few: Vec<String> = all.by_ref().take(NAMED_MAX).collect();
    match all.count() {
        0 => {}
        more => few.push(format!("and {more} more")),
    }
    few
}

impl RowWire {
    /// An empty row of an iteration.
    #[must_use]
    pub fn new(iter: u32, decision: Decision) -> RowWire {
        RowWire {
            iter,
            decision,
            note: String::new(),
            detail: None,
            diff: String::new(),
            diffstat: String::new(),
            score: None,
            tiebreak: None,
            total: None,
            phase: None,
            kept_snap: None,
            evidence: Vec::new(),
            candidate_md: String::new(),
            candidate: None,
            killed: Vec::new(),
            frozen_restored: Vec::new(),
            frozen: Vec::new(),
            dropped: Vec::new(),
            unchanged: false,
            cost_usd: None,
            secs: 0.0,
        }
    }
}

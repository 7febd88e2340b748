//! Turns how a task came to its end into what its line in the log says (note N9, `task_result`).
//! It refuses to know what follows from it.

use serde_json::Value;

use super::event::Candidate;
use crate::judge::Reading;
use crate::log::{BlockedWire, FrozenHash, TaskStatus};
use crate::score::Score;

/// What the note of a row begins with whose snapshot failed.
pub(super) const NOT_KEPT: &str = "the snapshot failed, so nothing is kept: ";
/// What the note of a row begins with whose candidate another process recorded, and which is lost.
pub(super) const LOST: &str = "its candidate could not be found again: ";

/// How a task settled, for its line in the log.
pub(super) struct Settling {
    pub(super) status: TaskStatus,
    pub(super) note: String,
    pub(super) secs: f64,
    pub(super) metric: Option<Score>,
    pub(super) output: Option<Value>,
    pub(super) recorded: Option<Value>,
    pub(super) transport: Option<String>,
    pub(super) blocked: Option<BlockedWire>,
}

impl Settling {
    pub(super) fn new(status: TaskStatus, note: String, secs: f64) -> Settling {
        Settling {
            status,
            note,
            secs,
            metric: None,
            output: None,
            recorded: None,
            transport: None,
            blocked: None,
        }
    }

    /// One that was not run, for this reason of contract §7.
    pub(super) fn blocked(reason: &str, task: Option<String>, note: String) -> Settling {
        let blocked = Some(BlockedWire { reason: reason.to_owned(), task });
        Settling { blocked, ..Settling::new(TaskStatus::Blocked, note, 0.0) }
    }
}

/// A reading as the log tells it, with what judged it, and the end of the judge's output where it could not be scored.
pub(super) fn told(reading: &Reading, frozen: &[FrozenHash], shown: &str) -> Option<Value> {
    let mut value = serde_json::to_value(reading).ok()?;
    if !frozen.is_empty() {
        value.as_object_mut()?.insert("frozen".to_owned(), serde_json::to_value(frozen).ok()?);
    }
    if !shown.is_empty() {
        value.as_object_mut()?.insert("output_tail".to_owned(), Value::from(shown));
    }
    Some(value)
}

/// A recorded candidate as the log tells it before there is a row: all but the patch, which git has.
pub(super) fn recorded(candidate: &Candidate) -> Value {
    serde_json::json!({
        "candidate": candidate.commit,
        "changed": candidate.changed,
        "refused": candidate.refused,
        "dropped": candidate.dropped,
    })
}

/// What [`recorded`] told, without the patch.
pub(super) fn candidate(output: Option<&Value>) -> Candidate {
    let field = |name: &str| output.and_then(|output| output.get(name));
    let text = |name: &str| field(name).and_then(Value::as_str).map(str::to_owned);
    let dropped = field("dropped").and_then(Value::as_array).into_iter().flatten();
    Candidate {
        commit: text("candidate"),
        refused: text("refused"),
        changed: field("changed").and_then(Value::as_bool).unwrap_or(true),
        dropped: dropped.filter_map(Value::as_str).map(str::to_owned).collect(),
        ..Candidate::default()
    }
}

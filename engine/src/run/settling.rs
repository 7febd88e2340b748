//! Turns how a task came to its end into what its line in the log says (note N9, `task_result`).
//! It refuses to know what follows from it.

use serde_json::Value;

use crate::judge::Reading;
use crate::log::TaskStatus;
use crate::score::Score;

/// How a task settled, for its line in the log.
pub(super) struct Settling {
    pub(super) status: TaskStatus,
    pub(super) note: String,
    pub(super) secs: f64,
    pub(super) metric: Option<Score>,
    pub(super) output: Option<Value>,
    pub(super) transport: Option<String>,
}

impl Settling {
    pub(super) fn new(status: TaskStatus, note: String, secs: f64) -> Settling {
        Settling { status, note, secs, metric: None, output: None, transport: None }
    }
}

/// A reading as the log tells it, with the end of the judge's output where it could not be scored.
pub(super) fn told(reading: &Reading, shown: &str) -> Option<Value> {
    let mut value = serde_json::to_value(reading).ok()?;
    if !shown.is_empty() {
        value.as_object_mut()?.insert("output_tail".to_owned(), Value::from(shown));
    }
    Some(value)
}

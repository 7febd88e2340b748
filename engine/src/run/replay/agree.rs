//! Turns a line that a step says and the line that stands there into agreement, or what differs.
//! It refuses to compare what no step decides: texts, times, patches.

use serde::Serialize;
use serde_json::Value;

use super::infer::name;
use crate::log::{RowWire, SessionEvent};
use crate::report::plain;

/// Whether both say the same of everything that a step decides.
///
/// # Errors
/// What was expected, and what stands there.
pub(super) fn agree(expected: &SessionEvent, found: &SessionEvent) -> Result<(), String> {
    use SessionEvent as E;
    match (expected, found) {
        (E::Phase { phase, iter }, E::Phase { phase: found, iter: at }) => {
            same("phase", &(phase, iter), &(found, at))
        }
        (E::PlanAdmitted { tasks, .. }, E::PlanAdmitted { tasks: found, .. }) => same("tasks", tasks, found),
        (E::AgentStart { iter, task }, E::AgentStart { iter: found, task: of }) => {
            same("iter", iter, found)?;
            same("task", task, of)
        }
        (
            E::TaskResult { task, status, iter, metric, .. },
            E::TaskResult { task: of, status: found_status, iter: at, metric: score, .. },
        ) => {
            same("task", task, of)?;
            same("iter", iter, at)?;
            same("status", status, found_status)?;
            same("metric", metric, score)?;
            same("cost_usd, input_tokens, output_tokens", &used(expected), &used(found))
        }
        (E::AgentLost { iter, .. }, E::AgentLost { iter: at, .. }) => {
            same("iter", iter, at)?;
            same("cost_usd, input_tokens, output_tokens", &used(expected), &used(found))
        }
        (E::Budget { .. }, E::Budget { .. }) => {
            same("spent, input_tokens, output_tokens", &used(expected), &used(found))
        }
        (E::Row { row, solved }, E::Row { row: found, solved: won }) => {
            rows(row, found)?;
            same("solved", solved, won)
        }
        (
            E::Summary { best_score, iterations, kept, best_snap, .. },
            E::Summary { best_score: score, iterations: settled, kept: keeps, best_snap: snap, .. },
        ) => {
            same("best_score", best_score, score)?;
            same("iterations", iterations, settled)?;
            same("kept", kept, keeps)?;
            same("best_snap", best_snap, snap)
        }
        (E::Retry { attempt, iter, .. }, E::Retry { attempt: found, iter: at, .. }) => {
            same("attempt", &(attempt, iter), &(found, at))
        }
        (E::Rebuild { attempt, iter, .. }, E::Rebuild { attempt: found, iter: at, .. }) => {
            same("attempt", &(attempt, iter), &(found, at))
        }
        (E::Input(input), E::Input(found)) => same("key", &input.key, &found.key),
        (E::ApprovalWait { handle, mode, .. }, E::ApprovalWait { handle: found, mode: as_, .. }) => {
            same("handle", &(handle, mode), &(found, as_))
        }
        (E::ApprovalResolved { outcome, .. }, E::ApprovalResolved { outcome: found, .. }) => {
            same("outcome", outcome, found)
        }
        (
            E::Segment { baseline_score, regime, .. },
            E::Segment { baseline_score: score, regime: found, .. },
        ) => {
            same("baseline_score", baseline_score, score)?;
            same("regime", regime, found)
        }
        (E::Ending { cause, .. }, E::Ending { cause: found, .. }) => same("cause", cause, found),
        (E::Recovery { class, iter, .. }, E::Recovery { class: found, iter: at, .. }) => {
            same("class", &(class, iter), &(found, at))
        }
        (expected, found) if std::mem::discriminant(expected) == std::mem::discriminant(found) => Ok(()),
        (expected, found) => Err(format!("a `{}` was to come, and a `{}` came", name(expected), name(found))),
    }
}

fn rows(expected: &RowWire, found: &RowWire) -> Result<(), String> {
    same("iter", &expected.iter, &found.iter)?;
    let (decision, score) = (&expected.decision, &expected.score);
    same("decision", decision, &found.decision)
        .and_then(|()| same("score", score, &found.score))
        .and_then(|()| same("tiebreak", &expected.tiebreak, &found.tiebreak))
        .and_then(|()| same("cost_usd", &expected.cost_usd, &found.cost_usd))
        .and_then(|()| same("kept_snap", &expected.kept_snap, &found.kept_snap))
        .map_err(|why| format!("in the row of iteration {}, {why}", expected.iter))
}

/// What a line says that was used: US dollars, and tokens read and written.
fn used(line: &SessionEvent) -> (Option<f64>, Option<u64>, Option<u64>) {
    use SessionEvent as E;
    match line {
        E::TaskResult { cost_usd: cost, input_tokens, output_tokens, .. }
        | E::Budget { spent: cost, input_tokens, output_tokens, .. } => {
            (Some(*cost), *input_tokens, *output_tokens)
        }
        E::AgentLost { cost_usd, input_tokens, output_tokens, .. } => {
            (*cost_usd, *input_tokens, *output_tokens)
        }
        _ => (None, None, None),
    }
}

pub(super) fn same<T: PartialEq + Serialize>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let words = |value: &T| serde_json::to_value(value).map(|value| words(&value)).unwrap_or_default();
    Err(format!("`{what}` was to be {}, and is {}", words(expected), words(found)))
}

/// A value as a person reads it.
fn words(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => plain(text),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

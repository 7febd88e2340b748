//! Turns a line of the log and what the run waited for into the event that the line is the consequence of.
//! It refuses to decide what follows from the event.

use super::super::event::{Candidate, EventKind, Interrupt, TaskEnd, TaskReport};
use super::super::graph::TaskId;
use super::super::settling;
use super::super::state::{Stage, State};
use super::super::step::report;
use crate::admission::heard;
use crate::agent::Usage;
use crate::control::Arrival;
use crate::judge::Reading;
use crate::log::{ApprovalOutcome, EndingCause, SessionEvent, TaskStatus, TurnWire};

/// What happened, where `line` is the first line after it.
///
/// # Errors
/// Why nothing that could happen there leads to such a line.
pub(super) fn infer(state: &State, line: &SessionEvent) -> Result<EventKind, String> {
    if let SessionEvent::Ending { cause, stage, .. } = line
        && *stage == state.stage.token()
    {
        match cause {
            EndingCause::Stop => return Ok(EventKind::Interrupted(Interrupt::Stop)),
            EndingCause::Abort => return Ok(EventKind::Interrupted(Interrupt::Abort)),
            EndingCause::OutOfTime => return Ok(EventKind::OutOfTime),
            EndingCause::Broken => {}
        }
    }
    if let SessionEvent::Input(input) = line
        && input.stage == state.stage.token()
    {
        let (key, input) = heard(input).ok_or("this build does not know the input")?;
        return Ok(EventKind::Admitted(Box::new(Arrival { key, input })));
    }
    match (state.stage, line) {
        (Stage::Held, SessionEvent::ApprovalResolved { outcome: ApprovalOutcome::Timeout, .. }) => {
            Ok(EventKind::Released { timed_out: true })
        }
        (Stage::Held, _) => Ok(EventKind::Released { timed_out: false }),
        (Stage::SettingUp, SessionEvent::AgentLost { cost_usd, input_tokens, output_tokens, .. }) => {
            Ok(EventKind::Charged(Usage::new(*cost_usd, *input_tokens, *output_tokens)))
        }
        (Stage::SettingUp, _) => Ok(EventKind::Ready),
        (Stage::Waiting, _) => Ok(EventKind::Waited),
        (Stage::Recalling, line) => Ok(recalled(line)),
        (Stage::Restoring, SessionEvent::Ending { reason, stage, .. }) if stage == state.stage.token() => {
            Ok(EventKind::Restored(Err(reason.clone())))
        }
        (Stage::Restoring, _) => Ok(EventKind::Restored(Ok(()))),
        (Stage::Task(id) | Stage::Recording(id), SessionEvent::Ending { reason, .. }) => {
            Ok(ended(id, TaskReport::Broken { reason: reason.clone() }, 0.0))
        }
        (Stage::Task(id), SessionEvent::AgentDone(turn)) => Ok(turned(id, turn.as_ref().clone())),
        (Stage::Task(id), SessionEvent::TaskResult { .. }) => task_ended(id, line),
        (Stage::Task(id), SessionEvent::Rebuild { output, secs, .. }) => {
            Ok(ended(id, TaskReport::Unbuilt { output: output.clone() }, *secs))
        }
        (Stage::Recording(id), SessionEvent::TaskResult { output, recorded, secs, .. }) => {
            let candidate = Box::new(settling::candidate(recorded.as_ref().or(output.as_ref())));
            Ok(ended(id, TaskReport::Recorded { candidate }, *secs))
        }
        (Stage::Snapshotting, SessionEvent::Row { row, .. }) => Ok(EventKind::Snapshotted(
            row.kept_snap.clone().ok_or_else(|| without(&row.note, settling::NOT_KEPT)),
        )),
        (stage, line) => {
            Err(format!("a `{}` cannot come where the run waits for `{}`", name(line), stage.token()))
        }
    }
}

fn ended(task: TaskId, report: TaskReport, secs: f64) -> EventKind {
    let (killed, frozen_restored) = (Vec::new(), Vec::new());
    EventKind::Task(Box::new(TaskEnd { task, report, killed, frozen_restored, secs }))
}

fn turned(task: TaskId, mut line: TurnWire) -> EventKind {
    let killed = std::mem::take(&mut line.killed);
    let frozen_restored = std::mem::take(&mut line.frozen_restored);
    let secs = line.secs;
    let report = TaskReport::Turned(Box::new(report(line)));
    EventKind::Task(Box::new(TaskEnd { task, report, killed, frozen_restored, secs }))
}

fn task_ended(task: TaskId, line: &SessionEvent) -> Result<EventKind, String> {
    let SessionEvent::TaskResult { task_kind, status, output, note, secs, .. } = line else {
        return Err("it is no `task_result`".to_owned());
    };
    let failure = (*status != TaskStatus::Pass).then(|| note.clone());
    let report = match task_kind.as_str() {
        "apply" => TaskReport::Applied { failure },
        "measure" => {
            let output = output.as_ref().ok_or("a measurement has no reading")?;
            let reading: Reading = serde::Deserialize::deserialize(output)
                .map_err(|error| format!("a measurement has no reading: {error}"))?;
            let shown = output.get("output_tail").and_then(serde_json::Value::as_str);
            let frozen = output.get("frozen").cloned().and_then(|frozen| serde_json::from_value(frozen).ok());
            let frozen = frozen.unwrap_or_default();
            TaskReport::Measured { reading, frozen, shown: shown.unwrap_or_default().to_owned() }
        }
        other => return Err(format!("no `{other}` was to settle there")),
    };
    Ok(ended(task, report, *secs))
}

/// What a row's note says behind the engine's own words.
fn without(note: &str, words: &str) -> String {
    note.strip_prefix(words).unwrap_or(note).to_owned()
}

/// A candidate is found again, unless the row says at once that it was not.
fn recalled(line: &SessionEvent) -> EventKind {
    let lost = match line {
        SessionEvent::Row { row, .. } => row.note.strip_prefix(settling::LOST),
        _ => None,
    };
    EventKind::Recalled(lost.map_or_else(|| Ok(Box::new(Candidate::default())), |why| Err(why.to_owned())))
}

/// The kind of a line.
pub(super) fn name(line: &SessionEvent) -> &'static str {
    match line {
        SessionEvent::Start { .. } => "start",
        SessionEvent::Identity { .. } => "identity",
        SessionEvent::Phase { .. } => "phase",
        SessionEvent::Note { .. } => "note",
        SessionEvent::PlanAdmitted { .. } => "plan_admitted",
        SessionEvent::AgentStart { .. } => "agent_start",
        SessionEvent::Agent { .. } => "agent",
        SessionEvent::AgentSession { .. } => "agent_session",
        SessionEvent::AgentLost { .. } => "agent_lost",
        SessionEvent::AgentDone(_) => "agent_done",
        SessionEvent::Retry { .. } => "retry",
        SessionEvent::Rebuild { .. } => "rebuild",
        SessionEvent::Ending { .. } => "ending",
        SessionEvent::Recovery { .. } => "recovery",
        SessionEvent::TaskResult { .. } => "task_result",
        SessionEvent::Row { .. } => "row",
        SessionEvent::Escalation { .. } => "escalation",
        SessionEvent::Input(_) => "input",
        SessionEvent::ApprovalWait { .. } => "approval_wait",
        SessionEvent::ApprovalResolved { .. } => "approval_resolved",
        SessionEvent::Segment { .. } => "segment",
        SessionEvent::Budget { .. } => "budget",
        SessionEvent::Summary { .. } => "summary",
        SessionEvent::Finished => "finished",
        SessionEvent::Shutdown { .. } => "shutdown",
        SessionEvent::Outputs { .. } => "outputs",
        SessionEvent::OutputRefused { .. } => "output_refused",
        SessionEvent::Unknown => "line of another kind",
    }
}

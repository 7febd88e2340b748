//! Turns one sandbox's phases and log into the stream that a watcher asked for.
//! It refuses to know who watches.

use std::sync::Arc;

use tokio::sync::{broadcast::error::RecvError, mpsc};
use tonic::Status;

use super::store::Record;
use crate::wire::openshell::v1::{self as api, SandboxPhase};

/// Log lines that a watcher gets when it does not say how many.
const WATCH_LINES: usize = 200;

/// Sends a snapshot, then what was asked for as it happens.
pub(crate) async fn watch(
    record: Arc<Record>,
    request: api::WatchSandboxRequest,
    send: mpsc::Sender<Result<api::SandboxStreamEvent, Status>>,
) {
    use api::sandbox_stream_event::Payload;
    let mut events = record.watch();
    let mut first = vec![Payload::Sandbox(record.wire())];
    if request.follow_logs {
        let lines = if request.log_tail_lines == 0 {
            WATCH_LINES
        } else {
            usize::try_from(request.log_tail_lines).unwrap_or(WATCH_LINES)
        };
        first.extend(record.logs(lines).0.into_iter().map(Payload::Log));
    }
    drop(record);
    let terminal = |payload: &Payload| {
        let Payload::Sandbox(sandbox) = payload else { return false };
        let phase = sandbox.status.as_ref().map(api::SandboxStatus::phase);
        matches!(phase, Some(SandboxPhase::Ready | SandboxPhase::Error | SandboxPhase::Stopped))
    };
    let mut queue = std::collections::VecDeque::from(first);
    loop {
        let payload = match queue.pop_front() {
            Some(payload) => payload,
            None => tokio::select! {
                () = send.closed() => return,
                event = events.recv() => match event {
                    Ok(payload) => payload,
                    Err(RecvError::Lagged(missed)) => {
                        Payload::Warning(api::SandboxStreamWarning { message: format!("{missed} events were missed") })
                    }
                    Err(RecvError::Closed) => return,
                },
            },
        };
        let wanted = match &payload {
            Payload::Log(_) => request.follow_logs,
            _ => true,
        };
        let last = request.stop_on_terminal && terminal(&payload);
        let event = api::SandboxStreamEvent { payload: Some(payload) };
        if wanted && send.send(Ok(event)).await.is_err() || last {
            return;
        }
    }
}

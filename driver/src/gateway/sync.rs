//! Turns the end of a sandbox into the changes of its workspace: our own service, beside OpenShell's.
//! It refuses callers that are not on this host's Unix socket.

use std::{path::PathBuf, sync::Arc};

use tonic::{Request, Response, Status};

use super::{
    service::{Answer, Service, is_local, status_of},
    store::Record,
};
use crate::{
    client::SyncedBack,
    turn::ChangeKind,
    wire::{openshell::v1::SandboxPhase, workspace},
};

#[tonic::async_trait]
impl workspace::workspace_server::Workspace for Service {
    async fn sync_back(
        &self,
        request: Request<workspace::SyncBackRequest>,
    ) -> Answer<workspace::SyncBackResponse> {
        if !is_local(&request) {
            return Err(Status::permission_denied("a workspace is brought back over the Unix socket only"));
        }
        let request = request.into_inner();
        let record = self.find(&request.sandbox, None)?;
        // Dropped with this call when its caller goes away, and then the sync takes back what it did; its own task
        // holds the sandbox until that is over.
        let cancel = CancelOnDrop::default();
        let job = sync_back(self.0.staging.clone(), record, request.discard, cancel.0.clone());
        let back = tokio::spawn(job).await.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(wire(back?)))
    }
}

/// Ends the sandbox and brings its changes back. Once that was done, answers what was done.
async fn sync_back(
    staging: PathBuf,
    record: Arc<Record>,
    discard: bool,
    cancel: Arc<std::sync::atomic::AtomicBool>,
) -> Result<SyncedBack, Status> {
    let mut done = record.ending.lock().await;
    if let Some(done) = done.as_ref().filter(|done| done.applied || discard) {
        return Ok(done.clone());
    }
    let sandbox = record.sandbox().ok_or_else(|| Status::failed_precondition("sandbox is not ready"))?;
    record.enter(SandboxPhase::Stopping);
    let remains = sandbox.end().await.map_err(|error| status_of(&error))?;
    record.enter(SandboxPhase::Stopped);
    let outcome = sandbox.sync(&staging, discard, cancel).await.map_err(|error| status_of(&error))?;
    let earlier = done.take().unwrap_or_default();
    let back = SyncedBack {
        changed: outcome.changed,
        dropped: outcome.dropped,
        killed: if earlier.killed.is_empty() { remains.killed } else { earlier.killed },
        limits_hit: remains.hits,
        layers: sandbox.layers.clone(),
        applied: outcome.applied,
    };
    *done = Some(back.clone());
    Ok(back)
}

#[derive(Default)]
struct CancelOnDrop(Arc<std::sync::atomic::AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn wire(back: SyncedBack) -> workspace::SyncBackResponse {
    use std::os::unix::ffi::OsStringExt;
    let bytes = |path: PathBuf| path.into_os_string().into_vec();
    let change = |change: crate::turn::Change| workspace::Change {
        path: bytes(change.path),
        kind: match change.kind {
            ChangeKind::Written => workspace::ChangeKind::Written,
            ChangeKind::Deleted => workspace::ChangeKind::Deleted,
        }
        .into(),
    };
    workspace::SyncBackResponse {
        changes: back.changed.into_iter().map(change).collect(),
        dropped: back
            .dropped
            .into_iter()
            .map(|d| workspace::Dropped { path: bytes(d.path), reason: d.reason })
            .collect(),
        killed: back.killed.into_iter().map(|k| workspace::Killed { pid: k.pid, name: k.name }).collect(),
        limits_hit: back.limits_hit,
        layers: back.layers,
        applied: back.applied,
    }
}

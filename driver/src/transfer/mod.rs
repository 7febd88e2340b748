//! Turns what a sandbox changed into changes of its workspace on the host: all of them or none.
//! It refuses to know the sandbox; what it reads is hostile data, and it follows no link on either side.

mod apply;
mod copy;
mod error;
mod files;
mod found;
mod origin;
mod overlay;
mod plan;

use std::{os::fd::OwnedFd, path::Path, sync::atomic::AtomicBool};

pub(crate) use error::TransferError;
pub(crate) use origin::Origin;

use crate::turn::{Change, Dropped};

pub(crate) use apply::recover;
pub(crate) use copy::copy_tree;

/// What a sync did, or would have done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SyncOutcome {
    /// What changed, sorted by path.
    pub(crate) changed: Vec<Change>,
    /// What did not come back, and why.
    pub(crate) dropped: Vec<Dropped>,
    /// Whether the workspace has it now.
    pub(crate) applied: bool,
}

/// Brings back the upper directory of an overlay.
pub(crate) fn sync_overlay(
    upper: &OwnedFd,
    origin: &Origin,
    staging: &Path,
    discard: bool,
    cancel: &AtomicBool,
) -> Result<SyncOutcome, TransferError> {
    finish(&overlay::walk(upper, origin, cancel)?, upper, origin, staging, discard, cancel)
}

/// Brings back a whole copy, by what differs.
pub(crate) fn sync_copy(
    copy: &OwnedFd,
    origin: &Origin,
    staging: &Path,
    discard: bool,
    cancel: &AtomicBool,
) -> Result<SyncOutcome, TransferError> {
    finish(&copy::walk(copy, origin, cancel)?, copy, origin, staging, discard, cancel)
}

fn finish(
    plan: &plan::Plan,
    source: &OwnedFd,
    origin: &Origin,
    staging: &Path,
    discard: bool,
    cancel: &AtomicBool,
) -> Result<SyncOutcome, TransferError> {
    let outcome = SyncOutcome { changed: plan.changes(), dropped: plan.dropped.clone(), applied: !discard };
    if !discard {
        apply::apply(plan, source, origin, staging, cancel)?;
    }
    Ok(outcome)
}

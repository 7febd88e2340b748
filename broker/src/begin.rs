//! Turns the launch document's part about writes into the tools of a run, and the engine's own wishes into permits.
//! It refuses to take a file that is not a regular one of this user's.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use policy::outputs::Outcome;
use policy::record::Redactor;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::control::{Answer, Wish};
use crate::launch::Writes;
use crate::limits::Limits;
use crate::project::Projection;
use crate::systems::ConfigError;
use crate::tools::{Fetcher, Tools, hex};
use crate::writes::{Admitted, Denied, Gate, Opened, Permit, Points, ResumeError, Wanted};

/// How long a wish may wait for an earlier one with its key.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why no write can be made. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WritesError {
    /// A file that cannot be used.
    #[error("use {path} for the record of writes")]
    File {
        /// Which.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The record cannot be gone on with.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// A system that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An outcome cannot be recorded.
    #[error("record the outcome of a write")]
    Record(#[from] io::Error),
}

/// Opens everything, and goes on from what an earlier broker left.
pub(crate) async fn tools(
    writes: Writes,
    projection: Projection,
    redactor: Redactor,
    fetcher: Fetcher,
    limits: &Limits,
) -> Result<Arc<Tools>, WritesError> {
    writes.systems.check()?;
    let opened = Opened {
        outputs: projection.outputs,
        ledger: open(&writes.ledger, true)?,
        session_log: open(&projection.session_log, false)?,
        outbox: writes.outbox.clone(),
        redactor,
        pace: (limits.tool_calls_per_second, limits.tool_calls_burst),
        calls: limits.tool_calls,
        points: Points::default(),
    };
    let gate = Gate::open(opened).await?;
    Ok(Arc::new(Tools { gate, fetcher, systems: writes.systems, outbox: writes.outbox }))
}

/// A file to read and append to; made, private and on the disk, where it may be missing.
fn open(path: &Path, make: bool) -> Result<File, WritesError> {
    let failed = |source| WritesError::File { path: path.to_owned(), source };
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(|error| failed(io::Error::other(error)))?;
    let mut options = File::options();
    options.read(true).append(true).create(make).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() || meta.nlink() != 1 || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a file of this user's alone")));
    }
    if let (true, Some(dir)) = (make, path.parent()) {
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
    }
    Ok(file)
}

/// The engine's own writes that are permitted and not yet settled.
#[derive(Debug, Default)]
pub(crate) struct Own(HashMap<u64, Permit>);

impl Own {
    /// Decides a wish.
    pub(crate) async fn admit(&mut self, tools: &Tools, wish: Wish) -> Result<Answer, WritesError> {
        let Wish { kind, tool, target, key, arguments, turn } = wish;
        let args = hex(&Sha256::digest(&arguments));
        let wanted = Wanted {
            kind,
            tool: &tool,
            target: target.as_deref(),
            key: key.as_deref(),
            args: &args,
            turn: &turn,
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "a write with its key is not settled");
        match timeout(PATIENCE, tools.gate.admit(wanted)).await.map_err(|_| late())? {
            Ok(Admitted::Permit(permit)) => {
                let (id, target) = (permit.id(), permit.target().to_owned());
                self.0.insert(id, permit);
                Ok(Answer::Permit { id, target })
            }
            Ok(Admitted::Stored(answer)) => Ok(Answer::Stored { answer }),
            Err(Denied::Refused(refusal)) => Ok(Answer::Denied(refusal)),
            Err(Denied::Record(error)) => Err(error.into()),
        }
    }

    /// Records an outcome; `false` where no such write is open.
    pub(crate) async fn settle(
        &mut self,
        id: u64,
        outcome: Outcome,
        answer: &str,
    ) -> Result<bool, WritesError> {
        let Some(permit) = self.0.remove(&id) else { return Ok(false) };
        permit.end(outcome, answer).await?;
        Ok(true)
    }
}

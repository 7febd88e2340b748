//! Turns records into lines at the end of the audit file, each written before what follows from it happens.
//! It refuses to know what is decided.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use policy::record::{Chain, Fault, Head, Record};

use crate::clock;

/// The append end of `egress.jsonl`.
#[derive(Debug)]
pub struct Audit {
    inner: Mutex<Inner>,
    /// The number of the last line that is on the disk for certain; whoever holds it brings more there.
    settled: tokio::sync::Mutex<u64>,
    durable: bool,
}

#[derive(Debug)]
struct Inner {
    file: Arc<File>,
    chain: Chain,
    /// After a line that could not be written whole the chain has no end to go on from.
    broken: bool,
}

/// A record could not be written; nothing may pass from now on.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file system refused.
    #[error("write an audit record")]
    Io(#[from] io::Error),
    /// It refused before.
    #[error("write an audit record after one that could not be written")]
    Broken,
}

/// An audit file cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The file system refused.
    #[error("write to the audit file")]
    Io(#[from] io::Error),
    /// What it holds is not what was written.
    #[error("go on with the audit file: {0}")]
    Fault(#[from] Fault),
}

/// Prepares a file, open for appending and holding `text`, for the next child: a line that its writer died in is ended, and a
/// record tells of it, so that no two lines are ever one. Answers where the file ends, on the disk.
///
/// # Errors
/// See [`ResumeError`].
pub fn resume(file: &File, text: &[u8]) -> Result<Head, ResumeError> {
    let resumed = policy::record::resume(text, &clock::now())?;
    if !resumed.append.is_empty() {
        let mut file = file;
        file.write_all(&resumed.append)?;
        file.sync_data()?;
    }
    Ok(resumed.head)
}

impl Audit {
    /// Takes the file, open for appending, where it ends, and whether refusals wait for the disk.
    pub fn new(file: File, head: Option<Head>, durable: bool) -> Self {
        let chain = head.map_or_else(Chain::default, Chain::after);
        let settled = tokio::sync::Mutex::new(chain.head().seq);
        Self { inner: Mutex::new(Inner { file: Arc::new(file), chain, broken: false }), settled, durable }
    }

    /// Writes one line whole. It is in the kernel's hands when this returns, so a crash of the broker does not lose it;
    /// [`Audit::settle`] waits for the disk.
    ///
    /// # Errors
    /// The file system's; every later call fails too.
    pub fn write(&self, record: &Record) -> Result<(), AuditError> {
        let mut inner = self.lock();
        if inner.broken {
            return Err(AuditError::Broken);
        }
        let before = inner.chain.clone();
        let line = inner.chain.seal(&clock::now(), record).map_err(io::Error::other)?;
        if let Err(error) = (&*inner.file).write_all(&line) {
            // Whatever of the line is there, the chain ends before it, and who comes next tells of it.
            (inner.chain, inner.broken) = (before, true);
            return Err(error.into());
        }
        Ok(())
    }

    /// Waits until every line written so far is on the disk, where refusals are to be there before their answers.
    ///
    /// # Errors
    /// The file system's; every later write fails too.
    pub async fn settle(&self) -> io::Result<()> {
        if self.durable { self.sync().await } else { Ok(()) }
    }

    /// Waits until every line written so far is on the disk. Those who wait at one time share one trip there.
    ///
    /// # Errors
    /// The file system's; every later write fails too.
    pub async fn sync(&self) -> io::Result<()> {
        let wanted = self.head().seq;
        let mut settled = self.settled.lock().await;
        if *settled >= wanted {
            return Ok(());
        }
        let (file, upto) = {
            let inner = self.lock();
            (Arc::clone(&inner.file), inner.chain.head().seq)
        };
        let done = tokio::task::spawn_blocking(move || file.sync_data()).await.map_err(io::Error::other);
        // What is no file on a disk, a pipe for one, has nothing to be brought there.
        let done = done.and_then(|done| {
            done.or_else(
                |error| if error.kind() == io::ErrorKind::InvalidInput { Ok(()) } else { Err(error) },
            )
        });
        match done {
            Ok(()) => *settled = upto,
            Err(_) => self.lock().broken = true,
        }
        done
    }

    /// Where the file ends.
    pub fn head(&self) -> Head {
        self.lock().chain.head().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Turns records into lines at the end of the audit file, each written before what follows from it happens.
//! It refuses to know what is decided.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use policy::record::{Chain, Head, Record};

use crate::clock;

/// The append end of `egress.jsonl`.
#[derive(Debug)]
pub struct Audit {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
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

impl Audit {
    /// Takes the file, open for appending, and where it ends.
    pub fn new(file: File, head: Option<Head>) -> Self {
        let chain = head.map_or_else(Chain::default, Chain::after);
        Self { inner: Mutex::new(Inner { file, chain, broken: false }) }
    }

    /// Writes one line whole. It is in the kernel's hands when this returns, so a crash of the broker does not lose it.
    ///
    /// # Errors
    /// The file system's; every later call fails too.
    pub fn write(&self, record: &Record) -> Result<(), AuditError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.broken {
            return Err(AuditError::Broken);
        }
        inner.broken = true;
        let line = inner.chain.seal(&clock::now(), record).map_err(io::Error::other)?;
        inner.file.write_all(&line)?;
        inner.broken = false;
        Ok(())
    }

    /// Brings everything to the disk.
    ///
    /// # Errors
    /// The file system's.
    pub fn sync(&self) -> io::Result<()> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).file.sync_data()
    }

    /// Where the file ends.
    pub fn head(&self) -> Head {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).chain.head().clone()
    }
}

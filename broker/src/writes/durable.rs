//! Turns bodies of lines into lines that are on the disk when a wait for them returns.
//! It refuses to know what they say.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::append::Appender;
use crate::clock;

/// The append end of a file whose lines matter: after one that could not be written or brought to the disk there is none.
#[derive(Debug)]
pub struct Durable {
    inner: Mutex<Inner>,
    /// Lines that are on the disk for certain; whoever holds it brings more there.
    settled: tokio::sync::Mutex<u64>,
    disk: Arc<File>,
    points: Points,
}

/// Called at every point between two durable steps: what a test uses to end the process there. Nothing else sets it.
#[derive(Clone, Default)]
pub struct Points(Option<Arc<dyn Fn(&'static str) + Send + Sync>>);

impl std::fmt::Debug for Points {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Points")
    }
}

impl Points {
    /// Calls this at each point, with its name.
    pub fn new(call: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(call)))
    }

    /// A point.
    pub fn at(&self, name: &'static str) {
        if let Some(call) = &self.0 {
            call(name);
        }
    }
}

#[derive(Debug)]
struct Inner {
    lines: Appender,
    written: u64,
    broken: bool,
}

impl Durable {
    /// Takes a file that is open for reading and appending.
    ///
    /// # Errors
    /// The file system's.
    pub fn new(file: File, points: Points) -> io::Result<Self> {
        let disk = Arc::new(file.try_clone()?);
        let inner = Inner { lines: Appender::new(file)?, written: 0, broken: false };
        Ok(Self { inner: Mutex::new(inner), settled: tokio::sync::Mutex::new(0), disk, points })
    }

    /// Writes one line whole; it is in the kernel's hands when this returns.
    ///
    /// # Errors
    /// The file system's; every later call fails too.
    pub fn append(&self, body: &impl serde::Serialize) -> io::Result<()> {
        let body = serde_json::to_vec(body)?;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.broken {
            return Err(io::Error::other("an earlier line could not be written"));
        }
        inner.broken = true;
        self.points.at("before a line");
        inner.lines.append(&body, clock::now)?;
        self.points.at("after a line");
        inner.written = inner.written.saturating_add(1);
        inner.broken = false;
        Ok(())
    }

    /// Waits until every line written so far is on the disk. Those who wait at one time share one trip there.
    ///
    /// # Errors
    /// The file system's; every later call fails too.
    pub async fn sync(&self) -> io::Result<()> {
        let wanted = self.written()?;
        let mut settled = self.settled.lock().await;
        if *settled >= wanted {
            return Ok(());
        }
        let (upto, disk) = (self.written()?, Arc::clone(&self.disk));
        let done = tokio::task::spawn_blocking(move || disk.sync_data()).await.map_err(io::Error::other);
        match done.and_then(|done| done) {
            Ok(()) => {
                self.points.at("after the disk");
                *settled = upto;
                Ok(())
            }
            Err(error) => {
                self.inner.lock().unwrap_or_else(PoisonError::into_inner).broken = true;
                Err(error)
            }
        }
    }

    fn written(&self) -> io::Result<u64> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.broken {
            Err(io::Error::other("an earlier line is not on the disk"))
        } else {
            Ok(inner.written)
        }
    }
}

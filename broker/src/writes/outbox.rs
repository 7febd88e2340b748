//! Turns an admitted write without a system to go to into one complete file in `state/outbox/`, and a file into one sending.
//! It refuses to know how anything is sent.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use policy::outputs::Intent;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::admit::Permit;
use crate::clock;

/// The longest file that is read, in bytes.
const FILE_MAX: u64 = 64 << 20;

/// One file: everything that a person needs to judge the write, and the engine to make it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Staged {
    /// 1.
    pub v: u32,
    /// When it was admitted.
    pub ts: String,
    /// What was admitted.
    #[serde(flatten)]
    pub intent: Intent,
    /// The tool's arguments.
    pub arguments: Map<String, Value>,
}

/// Where a staged write stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Nobody decided yet.
    Waiting,
    /// A sending began and nobody knows how it ended; it is not repeated.
    Sending,
    /// It was sent.
    Sent,
    /// A person decided against it.
    Dropped,
}

impl Standing {
    const ALL: [Self; 4] = [Self::Waiting, Self::Sending, Self::Sent, Self::Dropped];

    /// The end of a file's name.
    fn suffix(self) -> &'static str {
        match self {
            Self::Waiting => "json",
            Self::Sending => "sending",
            Self::Sent => "sent",
            Self::Dropped => "dropped",
        }
    }
}

/// Why the outbox cannot be used. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The file system.
    #[error("use the outbox {path}")]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A file that is none of ours.
    #[error("read {path}: it is not a staged write")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// There is no such write.
    #[error("find write {0} in the outbox")]
    Absent(u64),
    /// It is not waiting any more.
    #[error("take write {id} from the outbox: {}", match .standing {
        Standing::Sending => "a sending of it began, and whether it arrived is not known",
        Standing::Sent => "it was sent",
        Standing::Dropped => "it was dropped",
        Standing::Waiting => "another process has it",
    })]
    Taken {
        /// The write.
        id: u64,
        /// Where it stands.
        standing: Standing,
    },
}

/// What the caller of a staged write is answered.
pub(super) fn answer(intent: &Intent) -> String {
    let target = intent.target.as_deref().unwrap_or_default();
    serde_json::json!({ "staged": true, "target": target, "write": intent.id }).to_string()
}

fn place(outbox: &Path, id: u64, standing: Standing) -> PathBuf {
    outbox.join(format!("{id:06}.{}", standing.suffix()))
}

/// The file of a write, wherever it stands.
///
/// # Errors
/// The file system's.
pub fn find(outbox: &Path, id: u64) -> io::Result<Option<(Standing, PathBuf)>> {
    for standing in Standing::ALL {
        let path = place(outbox, id, standing);
        match fs::symlink_metadata(&path) {
            Ok(_) => return Ok(Some((standing, path))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Puts a write into the outbox: whole, private and on the disk when this returns. Answers what the caller is told.
///
/// # Errors
/// The file system's; then no file is there.
pub fn stage(outbox: &Path, permit: &Permit, arguments: &Map<String, Value>) -> io::Result<String> {
    let intent = permit.intent();
    let staged = Staged { v: 1, ts: clock::now(), intent: intent.clone(), arguments: arguments.clone() };
    let mut text = serde_json::to_vec_pretty(&staged)?;
    text.push(b'\n');
    DirBuilder::new().mode(0o700).create(outbox).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    })?;
    let temporary = outbox.join(format!(".{:06}.new", intent.id));
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(flags())
        .open(&temporary)?;
    file.write_all(&text)?;
    file.sync_data()?;
    fs::rename(&temporary, place(outbox, intent.id, Standing::Waiting))?;
    sync_dir(outbox)?;
    Ok(answer(intent))
}

fn flags() -> i32 {
    let bits = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    i32::try_from(bits.bits()).unwrap_or_default()
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Every write in an outbox, in order, with where it stands. An outbox that is not there holds none.
///
/// # Errors
/// See [`OutboxError`].
pub fn list(outbox: &Path) -> Result<Vec<(Standing, Staged)>, OutboxError> {
    let failed = |source| OutboxError::Io { path: outbox.to_owned(), source };
    let entries = match fs::read_dir(outbox) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let suffix = path.extension().and_then(|suffix| suffix.to_str());
        let standing = Standing::ALL.into_iter().find(|standing| suffix == Some(standing.suffix()));
        let Some(standing) = standing else { continue };
        found.push((standing, read(&path)?));
    }
    found.sort_by_key(|(_, staged)| staged.intent.id);
    Ok(found)
}

fn read(path: &Path) -> Result<Staged, OutboxError> {
    use std::io::Read as _;
    let failed = |source| OutboxError::Io { path: path.to_owned(), source };
    let file = File::options().read(true).custom_flags(flags()).open(path).map_err(failed)?;
    let mut text = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut text).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|_| OutboxError::Malformed { path: path.to_owned() })
}

/// One write of an outbox with where it stands.
///
/// # Errors
/// See [`OutboxError`].
pub fn show(outbox: &Path, id: u64) -> Result<(Standing, Staged), OutboxError> {
    let found = find(outbox, id).map_err(|source| OutboxError::Io { path: outbox.to_owned(), source })?;
    let (standing, path) = found.ok_or(OutboxError::Absent(id))?;
    Ok((standing, read(&path)?))
}

/// A write that was taken from the outbox to be sent: on the disk it says so, so that nobody sends it again.
#[derive(Debug)]
pub struct Claim {
    outbox: PathBuf,
    staged: Staged,
}

impl Claim {
    /// Takes a waiting write; of several who try, one gets it.
    ///
    /// # Errors
    /// See [`OutboxError`].
    pub fn take(outbox: &Path, id: u64) -> Result<Self, OutboxError> {
        let (standing, staged) = show(outbox, id)?;
        if standing != Standing::Waiting {
            return Err(OutboxError::Taken { id, standing });
        }
        let claim = Self { outbox: outbox.to_owned(), staged };
        claim.become_(Standing::Waiting, Standing::Sending)?;
        Ok(claim)
    }

    /// What is to be sent.
    pub fn staged(&self) -> &Staged {
        &self.staged
    }

    /// Leave to send it, of the admission that it has.
    pub fn permit(&self) -> Permit {
        Permit::claimed(self.staged.intent.clone())
    }

    /// It was sent.
    ///
    /// # Errors
    /// See [`OutboxError`].
    pub fn sent(self) -> Result<(), OutboxError> {
        self.become_(Standing::Sending, Standing::Sent)
    }

    /// Certainly nothing was written: it waits again.
    ///
    /// # Errors
    /// See [`OutboxError`].
    pub fn back(self) -> Result<(), OutboxError> {
        self.become_(Standing::Sending, Standing::Waiting)
    }

    fn become_(&self, from: Standing, to: Standing) -> Result<(), OutboxError> {
        become_(&self.outbox, self.staged.intent.id, from, to)
    }
}

/// Decides against a waiting write.
///
/// # Errors
/// See [`OutboxError`].
pub fn discard(outbox: &Path, id: u64) -> Result<(), OutboxError> {
    let (standing, _) = show(outbox, id)?;
    if standing != Standing::Waiting {
        return Err(OutboxError::Taken { id, standing });
    }
    become_(outbox, id, Standing::Waiting, Standing::Dropped)
}

/// Renames without replacing: the first of several wins.
fn become_(outbox: &Path, id: u64, from: Standing, to: Standing) -> Result<(), OutboxError> {
    let (old, new) = (place(outbox, id, from), place(outbox, id, to));
    let failed = |source: io::Error| OutboxError::Io { path: old.clone(), source };
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(rustix::fs::CWD, &old, rustix::fs::CWD, &new, flags) {
        Ok(()) => sync_dir(outbox).map_err(failed),
        Err(rustix::io::Errno::NOENT) => Err(OutboxError::Taken { id, standing: Standing::Waiting }),
        Err(errno) => Err(failed(errno.into())),
    }
}

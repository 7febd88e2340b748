//! Turns a state directory into one that this run owns: locked, private, with earlier runs put away (note N15).
//! It refuses to know what a run does with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::tail::{self, LogEnd};
use crate::control::{ADMISSIONS_FILE, SOCKET_FILE};
use crate::egress::AUDIT_FILE;
use crate::log::{LogError, SessionLog};
use crate::sys::clock::Clock;
use crate::sys::fault::point;
use crate::sys::fs::{FsError, PrivateFile, create_private_dir, private_file, read_bounded, unguessable};
use crate::sys::lock::{DirLock, LOCK_FILE, LockError};
use crate::world::CLAIM_FILE;

/// The session log, in a state directory.
pub const SESSION_FILE: &str = "session.jsonl";
/// The record of the run's writes, in a state directory.
pub const OUTPUTS_FILE: &str = "outputs.jsonl";
/// Where writes without a system wait for a person, in a state directory.
pub const OUTBOX: &str = "outbox";

/// What belongs to one run and is put away with it. The lock and the workspace's ownership stay.
const OF_ONE_RUN: [&str; 13] = [
    crate::agent::PRIVATE,
    ADMISSIONS_FILE,
    AUDIT_FILE,
    OUTPUTS_FILE,
    OUTBOX,
    SESSION_FILE,
    "report.json",
    "control.json",
    "git",
    "agent.git",
    "frozen",
    "setup.json",
    "guard.json",
];

/// What else the engine puts into a state directory.
const OF_THE_DIRECTORY: [&str; 9] = [
    LOCK_FILE,
    CLAIM_FILE,
    "workspace.new",
    "archive",
    "git.full",
    "gateway",
    MARK_FILE,
    SOCKET_FILE,
    "control.new",
];

/// What the commands of every run of this directory carry, see [`StateDir::mark`].
const MARK_FILE: &str = "mark";

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A running engine has it.
    #[error("use the state directory")]
    Lock(#[from] LockError),
    /// It holds a run that did not end.
    #[error("use the state directory {path}: it holds a run that did not end")]
    Unfinished {
        /// The state directory.
        path: PathBuf,
    },
    /// It is somebody's directory, with files that this engine did not make.
    #[error(
        "use {path} as the state directory: it holds {other:?}, which no run put there; name an empty one or one of an earlier run"
    )]
    NotOurs {
        /// The directory asked for.
        path: PathBuf,
        /// Something in it.
        other: String,
    },
    /// It is a part of a git repository.
    #[error("use {path} as the state directory: no run may write into a `.git`")]
    InGit {
        /// The directory asked for.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("use the state directory {path}")]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A private file could not be made.
    #[error("use the state directory")]
    Fs(#[from] FsError),
    /// The log could not be opened.
    #[error("begin the session log")]
    Log(#[from] LogError),
}

/// A state directory in use. The lock goes with this value, or with the process.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    archived: Option<PathBuf>,
    _lock: DirLock,
}

impl StateDir {
    /// Locks the directory and puts an earlier run away: one that ended, or with `fresh` also one that did not.
    ///
    /// # Errors
    /// [`StateError::Lock`] while another engine runs there, [`StateError::Unfinished`] where nothing was asked for;
    /// [`StateError::NotOurs`] and [`StateError::InGit`] where nothing may be written at all.
    pub fn claim(path: &Path, fresh: bool, now: Timestamp) -> Result<StateDir, StateError> {
        require_ours(path)?;
        create_private_dir(path)?;
        let lock = DirLock::acquire(path)?;
        let mut state = StateDir { path: path.to_owned(), archived: None, _lock: lock };
        let end = tail::read(&state.session_log()).map_err(|source| state.failed(source))?;
        if end == LogEnd::Open && !fresh {
            return Err(StateError::Unfinished { path: path.to_owned() });
        }
        // A log without a line is a run that never began: there is nothing to resume and nothing to lose.
        state.put_away(now).map_err(|source| state.failed(source))?;
        Ok(state)
    }

    /// Locks the directory to go on with the run in it. None where there is no line of a run: nothing is to be resumed.
    ///
    /// # Errors
    /// As [`StateDir::claim`], but that a run that did not end is what is asked for.
    pub fn resume(path: &Path) -> Result<Option<StateDir>, StateError> {
        if tail::read(&path.join(SESSION_FILE)).ok() == Some(LogEnd::Absent) {
            return Ok(None);
        }
        require_ours(path)?;
        create_private_dir(path)?;
        let path =
            fs::canonicalize(path).map_err(|source| StateError::Io { path: path.to_owned(), source })?;
        let lock = DirLock::acquire(&path)?;
        let state = StateDir { path, archived: None, _lock: lock };
        let end = tail::read(&state.session_log()).map_err(|source| state.failed(source))?;
        Ok((end != LogEnd::Absent).then_some(state))
    }

    /// The mark that every command of this directory's runs carries, so that a later engine finds those that outlived
    /// theirs. Made when there is none.
    ///
    /// # Errors
    /// When it can neither be read nor made.
    pub fn mark(&self) -> Result<String, StateError> {
        let path = self.path.join(MARK_FILE);
        let known = read_bounded(&path, 64).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some(known) = known.filter(|text| text.len() == 32) {
            return Ok(known);
        }
        let mark = unguessable();
        let mut file = private_file(&path, PrivateFile::Truncate)?;
        io::Write::write_all(&mut file, mark.as_bytes()).map_err(|source| self.failed(source))?;
        Ok(mark)
    }

    fn failed(&self, source: io::Error) -> StateError {
        StateError::Io { path: self.path.clone(), source }
    }

    fn put_away(&mut self, now: Timestamp) -> io::Result<()> {
        let there: Vec<&str> =
            OF_ONE_RUN.into_iter().filter(|name| self.path.join(name).symlink_metadata().is_ok()).collect();
        if there.is_empty() {
            return Ok(());
        }
        let archive = self.path.join("archive");
        create_private_dir(&archive).map_err(io::Error::other)?;
        let name = run_name(now);
        let mut target = archive.join(&name);
        let mut count = 1u32;
        while target.symlink_metadata().is_ok() {
            count = count.saturating_add(1);
            target = archive.join(format!("{name}-{count}"));
        }
        create_private_dir(&target).map_err(io::Error::other)?;
        for name in there {
            point("archive: before a part is put away");
            fs::rename(self.path.join(name), target.join(name))?;
        }
        self.archived = Some(target);
        Ok(())
    }

    /// Where an earlier run was put.
    #[must_use]
    pub fn archived(&self) -> Option<&Path> {
        self.archived.as_deref()
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `session.jsonl`
    #[must_use]
    pub fn session_log(&self) -> PathBuf {
        self.path.join(SESSION_FILE)
    }

    /// `report.json`
    #[must_use]
    pub fn report(&self) -> PathBuf {
        self.path.join("report.json")
    }

    /// `admissions.jsonl`
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.path.join(ADMISSIONS_FILE)
    }

    /// `control.sock`
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path.join(SOCKET_FILE)
    }

    /// `control.json`
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.path.join("control.json")
    }

    /// Opens a new session log, readable by its owner only from its first moment.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open_log(&self, clock: Clock) -> Result<SessionLog, StateError> {
        let path = self.session_log();
        let file = private_file(&path, PrivateFile::Append)?;
        Ok(SessionLog::new(file, &path, clock)?)
    }
}

/// Refuses a directory that holds anything else than a run leaves. A log is proof enough that it is a run's: what a
/// person puts beside it does not matter.
fn require_ours(path: &Path) -> Result<(), StateError> {
    if path.iter().any(|name| name == ".git") {
        return Err(StateError::InGit { path: path.to_owned() });
    }
    let failed = |source| StateError::Io { path: path.to_owned(), source };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if path.join(SESSION_FILE).is_file() || path.join(CLAIM_FILE).is_file() && path.join(LOCK_FILE).is_file()
    {
        return Ok(());
    }
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        if !OF_ONE_RUN.iter().chain(&OF_THE_DIRECTORY).any(|known| name == *known) {
            return Err(StateError::NotOurs {
                path: path.to_owned(),
                other: name.to_string_lossy().into_owned(),
            });
        }
    }
    Ok(())
}

/// The name of a run that begins now: letters and digits that sort by time.
#[must_use]
pub fn run_name(now: Timestamp) -> String {
    now.strftime("%Y%m%dT%H%M%S%3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(path: &Path) -> Result<StateDir, StateError> {
        StateDir::claim(path, false, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_directory_of_somebody_elses_is_refused_and_stays_as_it_is() {
        let top = tempfile::tempdir().unwrap();
        for (name, files) in [
            ("work", vec!["main.rs"]),
            ("work with a lock", vec!["lock", "notes.txt"]),
            ("work with a claim", vec!["workspace.json", "main.rs"]),
            ("bare", vec!["HEAD", "config"]),
        ] {
            let dir = top.path().join(name);
            fs::create_dir(&dir).unwrap();
            for file in &files {
                fs::write(dir.join(file), "precious").unwrap();
            }
            let before = dir.metadata().unwrap().permissions();
            assert!(matches!(claim(&dir), Err(StateError::NotOurs { .. })), "{name}");
            assert_eq!(dir.metadata().unwrap().permissions(), before, "{name}");
            assert_eq!(fs::read_dir(&dir).unwrap().count(), files.len(), "{name}");
            assert!(files.iter().all(|file| fs::read(dir.join(file)).unwrap() == b"precious"), "{name}");
        }
        for inside in [".git", ".git/state", "sub/.git"] {
            assert!(matches!(claim(&top.path().join(inside)), Err(StateError::InGit { .. })), "{inside}");
            assert!(!top.path().join(inside).exists(), "{inside}");
        }
    }

    #[test]
    fn a_directory_that_is_new_or_empty_or_a_runs_is_used() {
        let top = tempfile::tempdir().unwrap();
        for (name, files) in [
            ("new", None),
            ("empty", Some(vec![])),
            ("torn", Some(vec!["lock"])),
            ("of a run", Some(vec!["lock", "workspace.json", "session.jsonl", "archive"])),
            ("of a run, with notes", Some(vec!["lock", "session.jsonl", "notes.txt"])),
            ("of a run that was put away, with notes", Some(vec!["lock", "workspace.json", "notes.txt"])),
        ] {
            let dir = top.path().join(name);
            for file in files.iter().flatten() {
                fs::create_dir_all(&dir).unwrap();
                let path = dir.join(file);
                if *file == "archive" { fs::create_dir(path).unwrap() } else { fs::write(path, "").unwrap() }
            }
            let claimed = claim(&dir);
            assert!(claimed.is_ok(), "{name}: {claimed:?}");
        }
    }
}

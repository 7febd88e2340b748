//! Turns what setup found out into `state/setup.json`, and back when a run is resumed.
//! It refuses to know how any of it was found.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::{CommitSha, WorldError};

/// The file that setup writes last: without it there was no setup, or a torn one.
pub const SETUP_FILE: &str = "setup.json";

/// What setup found out and the rest of the run relies on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The run's name, as its branch `crucible/<run>` has it.
    pub run: String,
    /// The workspace.
    pub workspace: Location,
    /// The commit that setup left (N15).
    pub base: CommitSha,
    /// The base with the injects on top.
    pub baseline: CommitSha,
    /// The base's committer date, from which the engine's own commits count.
    pub date: i64,
    /// The repository in the workspace, as it was when no agent had run.
    pub(super) shown: Shown,
    /// Submodules and tracked files with reserved names: never staged, never reset.
    #[serde(with = "paths")]
    pub(super) fixed: Vec<PathBuf>,
    /// Submodules among `fixed`.
    #[serde(with = "paths")]
    pub(super) submodules: Vec<PathBuf>,
    /// Those of them whose directory was empty.
    #[serde(with = "paths")]
    pub(super) hollow: Vec<PathBuf>,
    /// The frozen injects, in the order of their copies in `state/frozen`.
    pub(super) frozen: Vec<Frozen>,
    /// In place: what was there and ignored, which is the person's and never staged, cleaned or reset.
    #[serde(default, with = "paths")]
    pub(super) ignored: Vec<PathBuf>,
    /// In place: directories that held nothing.
    #[serde(default, with = "paths")]
    pub(super) empty: Vec<PathBuf>,
    /// Whether a `RESULTS.md` of somebody's own stood there.
    #[serde(default)]
    pub(super) results: bool,
    /// Special files and inner repositories that were there before any agent ran.
    #[serde(with = "paths")]
    pub(super) known: Vec<PathBuf>,
}

/// A directory, and which one it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Where it is.
    #[serde(with = "path")]
    pub path: PathBuf,
    /// Which one it is.
    pub id: Identity,
}

/// A frozen inject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Frozen {
    /// Relative to the workspace.
    #[serde(with = "path")]
    pub(super) dst: PathBuf,
    /// Of its content.
    pub(super) sha256: [u8; 32],
    /// Bytes.
    pub(super) len: u64,
    /// Permission bits.
    pub(super) mode: u32,
}

/// The repository that a person and an agent see in the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shown {
    /// Whether it is the engine's to write anew, rather than the user's own.
    pub(super) ours: bool,
    /// Where `HEAD` and the index are.
    #[serde(with = "path")]
    pub(super) git_dir: PathBuf,
    /// Where objects, refs and config are.
    #[serde(with = "path")]
    pub(super) common_dir: PathBuf,
    /// The URL of `origin`, where the history is there too.
    pub(super) origin: Option<String>,
}

impl Facts {
    /// Reads the facts of the setup in `state_dir`; absent when none was finished.
    ///
    /// # Errors
    /// [`WorldError::NotSetUp`] when the file is not what an engine wrote, [`WorldError::Io`] when it cannot be read.
    pub fn read(state_dir: &Path) -> Result<Option<Facts>, WorldError> {
        let path = state_dir.join(SETUP_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(WorldError::Io { doing: "read", path, source }),
        };
        let damaged = |error| WorldError::NotSetUp { why: format!("its facts are damaged: {error}"), path };
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Whether the `RESULTS.md` of the workspace is somebody's own, which the engine leaves alone.
    #[must_use]
    pub fn has_results(&self) -> bool {
        self.results || self.fixed.iter().any(|path| path == Path::new(super::RESULTS))
    }

    /// Whether the index that is shown differs from the engine's own in that `fixed` is not marked.
    pub(super) fn shows_unmarked(&self) -> bool {
        !self.shown.ours && !self.fixed.is_empty()
    }

    /// The text of the file.
    pub(super) fn to_json(&self) -> Result<Vec<u8>, WorldError> {
        serde_json::to_vec(self).map_err(WorldError::process("write down the setup"))
    }
}

/// A path as JSON: text where it is text, else its bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct PathText(PathForm);

impl PathText {
    /// The path again.
    pub(super) fn to_path(&self) -> PathBuf {
        match &self.0 {
            PathForm::Text(text) => PathBuf::from(text),
            PathForm::Bytes(bytes) => PathBuf::from(std::ffi::OsStr::from_bytes(bytes)),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum PathForm {
    #[serde(rename = "text")]
    Text(String),
    #[serde(rename = "bytes")]
    Bytes(Vec<u8>),
}

impl From<&Path> for PathText {
    fn from(path: &Path) -> PathText {
        PathText(match path.to_str() {
            Some(text) => PathForm::Text(text.to_owned()),
            None => PathForm::Bytes(path.as_os_str().as_bytes().to_owned()),
        })
    }
}

mod path {
    use super::{Path, PathBuf, PathText};
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        PathText::from(path).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        PathText::deserialize(from).map(|text| text.to_path())
    }
}

mod paths {
    use super::{PathBuf, PathText};
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| PathText::from(path.as_path())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<PathText>::deserialize(from)?.iter().map(PathText::to_path).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    #[test]
    fn facts_read_back_with_any_path() {
        let sha = CommitSha::parse(&"a".repeat(40)).unwrap();
        let odd = PathBuf::from(OsString::from_vec(b"a\n\"\xff".to_vec()));
        let facts = Facts {
            run: "r1".to_owned(),
            workspace: Location {
                path: odd.clone(),
                id: Identity { device: u64::MAX, inode: 2, born: Some((3, 4)) },
            },
            base: sha.clone(),
            baseline: sha,
            date: -5,
            shown: Shown { ours: true, git_dir: odd.join(".git"), common_dir: odd.clone(), origin: None },
            fixed: vec![odd.clone(), PathBuf::from("é")],
            submodules: vec![odd.clone()],
            hollow: Vec::new(),
            frozen: vec![Frozen { dst: odd, sha256: [255; 32], len: 1, mode: 0o755 }],
            known: Vec::new(),
            results: true,
            ignored: vec![PathBuf::from(".env")],
            empty: vec![PathBuf::from("e/f")],
        };
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Facts::read(dir.path()).unwrap(), None);
        fs::write(dir.path().join(SETUP_FILE), facts.to_json().unwrap()).unwrap();
        assert_eq!(Facts::read(dir.path()).unwrap(), Some(facts));
        fs::write(dir.path().join(SETUP_FILE), b"{\"run\":\"r1\"").unwrap();
        assert!(matches!(Facts::read(dir.path()), Err(WorldError::NotSetUp { .. })));
    }
}

//! Turns a directory into a pack that runs as it is: `crucible init` (contract §9, note N15).
//! It refuses to overwrite anything.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The files of a new pack, by name.
const FILES: [(&str, &str); 4] = [
    ("crucible.toml", include_str!("init/crucible.toml")),
    ("measure.sh", include_str!("init/measure.sh")),
    ("agent.sh", include_str!("init/agent.sh")),
    ("method.md", include_str!("init/method.md")),
];

/// What a run makes beside the manifest and no commit should hold.
const IGNORED: [&str; 2] = ["/workspace/", "/state/"];

/// Why a pack could not be written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// Some of the files are there.
    #[error("write the pack: {} already there: {}; move them away or choose another --dir", if .0.len() == 1 { "one file is" } else { "files are" }, names(.0))]
    Exists(Vec<PathBuf>),
    /// The file system refused.
    #[error("write {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Writes the files and returns their paths. Nothing is written when one of them is there.
///
/// # Errors
/// [`InitError`].
pub fn init(dir: &Path) -> Result<Vec<PathBuf>, InitError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| InitError::Io { path, source }
    };
    fs::create_dir_all(dir).map_err(failed(dir))?;
    let there: Vec<PathBuf> =
        FILES.iter().map(|(name, _)| dir.join(name)).filter(|path| path.symlink_metadata().is_ok()).collect();
    if !there.is_empty() {
        return Err(InitError::Exists(there));
    }
    let mut written = Vec::new();
    for (name, text) in FILES {
        let path = dir.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed(&path))?;
        file.write_all(text.as_bytes()).map_err(failed(&path))?;
        written.push(path);
    }
    let ignore = dir.join(".gitignore");
    if add_ignored(&ignore).map_err(failed(&ignore))? {
        written.push(ignore);
    }
    Ok(written)
}

/// Adds the entries that are missing; what is there stays as it is.
fn add_ignored(path: &Path) -> io::Result<bool> {
    let there = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let missing: Vec<&str> =
        IGNORED.into_iter().filter(|entry| !there.lines().any(|line| line.trim() == *entry)).collect();
    if missing.is_empty() {
        return Ok(false);
    }
    let mut text = String::new();
    if !there.is_empty() && !there.ends_with('\n') {
        text.push('\n');
    }
    for entry in missing {
        text.push_str(entry);
        text.push('\n');
    }
    OpenOptions::new().append(true).create(true).open(path)?.write_all(text.as_bytes())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_to_overwrite_and_then_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("method.md"), "mine").unwrap();
        let Err(InitError::Exists(there)) = init(dir.path()) else { panic!("it wrote over a file") };
        assert_eq!(there, [dir.path().join("method.md")]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn adds_to_an_ignore_file_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".gitignore"), "/target\n/state/").unwrap();
        init(dir.path()).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join(".gitignore")).unwrap(),
            "/target\n/state/\n/workspace/\n"
        );
    }
}

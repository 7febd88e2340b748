//! Turns the objects and names that one git operation made into durable ones of the engine's own repository.
//! It refuses to know what they hold; the directory is the engine's alone, so plain paths are safe here.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::git::Git;
use super::{CommitSha, WorldError};
use crate::sys::fault::point;

/// Objects that are in the engine's repository and not yet known to be on disk.
#[derive(Debug, Default)]
pub(super) struct Unsynced(Vec<PathBuf>);

/// Beyond so many files one flush of the whole file system is cheaper than one each.
const SYNC_EACH: usize = 128;

impl Unsynced {
    /// Adds what was just promoted into `objects`.
    pub(super) fn add(&mut self, git_dir: &Path, objects: &[PathBuf]) {
        self.0.extend(objects.iter().map(|path| git_dir.join("objects").join(path)));
    }

    /// Brings all of them to disk, so that a decision that names a commit never outlives it.
    pub(super) fn sync(&mut self, git_dir: &Path) -> Result<(), WorldError> {
        if self.0.len() > SYNC_EACH {
            sync_all(git_dir)?;
        } else {
            let mut parents: Vec<&Path> = self.0.iter().filter_map(|path| path.parent()).collect();
            parents.sort_unstable();
            parents.dedup();
            for path in self.0.iter().map(PathBuf::as_path).chain(parents) {
                File::open(path).and_then(|file| file.sync_all()).map_err(WorldError::io("flush", path))?;
            }
        }
        self.0.clear();
        Ok(())
    }
}

/// Brings everything of the file system that `git_dir` is on to disk.
fn sync_all(git_dir: &Path) -> Result<(), WorldError> {
    let dir = File::open(git_dir).map_err(WorldError::io("open", git_dir))?;
    nix::unistd::syncfs(&dir)
        .map_err(|errno| WorldError::io("flush the file system of", git_dir)(errno.into()))
}

/// Makes the quarantine an empty directory.
pub(super) fn empty_incoming(git: &Git) -> Result<(), WorldError> {
    let incoming = git.incoming();
    match fs::remove_dir_all(&incoming) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(WorldError::io("empty", &incoming)(error));
        }
        _ => {}
    }
    fs::create_dir(&incoming).map_err(WorldError::io("make", &incoming))
}

/// Moves what is in the quarantine to the repository's objects, and says what that was, relative to `objects`:
/// a pack's index comes after its pack, so that no reader finds one without the other.
pub(super) fn promote(git: &Git) -> Result<Vec<PathBuf>, WorldError> {
    let incoming = git.incoming();
    let files = list(&incoming)?;
    let objects = git.dir().join("objects");
    for file in &files {
        point("object: before it is moved in");
        let target = objects.join(file);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(WorldError::io("make", parent))?;
        }
        fs::rename(incoming.join(file), &target).map_err(WorldError::io("move an object to", &target))?;
    }
    Ok(files)
}

/// Every object file and pack below `objects`, relative to it, indexes last.
pub(super) fn list(objects: &Path) -> Result<Vec<PathBuf>, WorldError> {
    let mut files = Vec::new();
    for fanout in entries(objects)? {
        let is_fanout = fanout.to_str().is_some_and(|name| name == "pack" || name.len() == 2);
        if is_fanout {
            let names = entries(&objects.join(&fanout))?;
            let lasting = names.into_iter().filter(|name| !is_temporary(name));
            files.extend(lasting.map(|name| fanout.join(name)));
        }
    }
    files.sort_by_key(|path| path.extension().is_some_and(|extension| extension == "idx"));
    Ok(files)
}

fn is_temporary(name: &Path) -> bool {
    name.to_str().is_none_or(|name| name.starts_with("tmp_") || name.starts_with('.'))
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, WorldError> {
    let read = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(dir)?.map(|entry| Ok(PathBuf::from(entry?.file_name()))).collect()
    };
    match read() {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        other => other.map_err(WorldError::io("list", dir)),
    }
}

/// Removes the locks of a git that died: whoever holds the state directory's lock knows that no other git is at work.
pub(super) fn remove_stale_locks(git_dir: &Path) -> Result<Vec<String>, WorldError> {
    let mut notes = Vec::new();
    let of_refs = files_below(git_dir, &["refs"])?.into_iter().filter(|path| is_lock(path));
    let names = ["index.lock", "HEAD.lock", "config.lock", "shallow.lock", "packed-refs.lock"];
    for name in names.into_iter().map(PathBuf::from).chain(of_refs) {
        let path = git_dir.join(name);
        match fs::remove_file(&path) {
            Ok(()) => notes.push(format!("removed {}, left by a process that died", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(WorldError::io("remove", &path)(source)),
        }
    }
    Ok(notes)
}

/// Makes `name` stand for `commit`. `durable` says whether that is on disk when the call returns.
pub(super) fn write_ref(
    git_dir: &Path,
    name: &str,
    commit: &CommitSha,
    durable: bool,
) -> Result<(), WorldError> {
    write(&git_dir.join(name), &format!("{commit}\n"), durable)
}

/// Makes `HEAD` the branch `name`.
pub(super) fn write_head(git_dir: &Path, name: &str) -> Result<(), WorldError> {
    write(&git_dir.join("HEAD"), &format!("ref: {name}\n"), true)
}

fn write(path: &Path, text: &str, durable: bool) -> Result<(), WorldError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".lock");
    let parent = path.parent().unwrap_or(path);
    let write = || {
        fs::create_dir_all(parent)?;
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        if durable {
            file.sync_all()?;
        }
        point("name: before it is written");
        fs::rename(&draft, path)?;
        point("name: after it is written");
        if durable { File::open(parent)?.sync_all() } else { Ok(()) }
    };
    write().map_err(WorldError::io("write", path))
}

/// The refs below `tops` with the text of their files.
pub(super) fn loose_refs(git_dir: &Path, tops: &[&str]) -> Result<Vec<(PathBuf, Vec<u8>)>, WorldError> {
    let refs = files_below(git_dir, tops)?.into_iter().filter(|path| !is_lock(path));
    let text = |path: PathBuf| {
        let full = git_dir.join(&path);
        let text = fs::read(&full).map_err(WorldError::io("read", &full))?;
        Ok((path, text))
    };
    refs.map(text).collect()
}

/// All that is no directory below `tops`, relative to `git_dir`.
fn files_below(git_dir: &Path, tops: &[&str]) -> Result<Vec<PathBuf>, WorldError> {
    let mut files = Vec::new();
    let mut open: Vec<PathBuf> = tops.iter().map(PathBuf::from).collect();
    while let Some(dir) = open.pop() {
        for name in entries(&git_dir.join(&dir))? {
            let path = dir.join(name);
            if git_dir.join(&path).is_dir() { open.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

/// No name of a ref ends so.
fn is_lock(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "lock")
}

//! Turns what an operator wrote into `STEER.md` into a steer, once (contract §7.1, note N1).
//! It refuses to follow a link, and to know what the steer says.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::admission::Key;
use crate::admission::input::STEER_MAX;
use crate::sys::chain;
use crate::sys::fs::{RelPath, Root};

/// The file by which operators steer without the control socket.
#[derive(Debug)]
pub struct SteerFile {
    path: PathBuf,
    /// What was said of it last, so that it is not said at each iteration.
    said: Option<String>,
}

impl SteerFile {
    /// The file at `path`, which need not be there.
    #[must_use]
    pub fn new(path: PathBuf) -> SteerFile {
        SteerFile { path, said: None }
    }

    /// Takes the file away, so that nobody adds to what is being read, and reads it. It is read again until
    /// [`SteerFile::done`], and then under the same key.
    ///
    /// # Errors
    /// Why what is there is no steer; the same reason only once.
    pub fn look(&mut self) -> Result<Option<(Key, String)>, String> {
        match self.take() {
            Ok(found) => {
                self.said = None;
                Ok(found)
            }
            Err(why) if self.said.as_ref() == Some(&why) => Ok(None),
            Err(why) => {
                self.said = Some(why.clone());
                Err(why)
            }
        }
    }

    fn take(&self) -> Result<Option<(Key, String)>, String> {
        let aside = aside(&self.path);
        let failed = |error: io::Error| format!("failed to take {}: {error}", self.path.display());
        if fs::symlink_metadata(&aside).is_err() {
            match fs::symlink_metadata(&self.path) {
                Ok(found) if !found.is_file() => {
                    return Err(format!("{} is no regular file, and is not read", self.path.display()));
                }
                Ok(found) if found.len() == 0 => return Ok(None),
                Ok(_) => fs::rename(&self.path, &aside).map_err(failed)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
        let found = fs::symlink_metadata(&aside).map_err(failed)?;
        let bytes = read(&aside)?;
        let text = String::from_utf8_lossy(&bytes);
        if text.trim().is_empty() {
            self.done();
            return Ok(None);
        }
        // An operator who writes the same once more means it: the file is another, or was written at another time.
        let mut hash = Sha256::new();
        hash.update(format!("{} {} {}\n", found.ino(), found.mtime(), found.mtime_nsec()));
        hash.update(&bytes);
        let hex: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(Some((Key::own(&format!("file:{hex}")), text.trim_end().to_owned())))
    }

    /// What was read is recorded.
    pub fn done(&self) {
        // Where it cannot be removed it is read again, under the same key, and acts no second time.
        let _ = fs::remove_file(aside(&self.path));
    }
}

/// Where the file stands from when it is taken until it is recorded.
#[must_use]
pub fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    path.with_file_name(format!(".{name}.taken"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let most = u64::try_from(STEER_MAX).unwrap_or(u64::MAX);
    let dir = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default();
    let found = Root::open(dir).and_then(|root| match RelPath::parse(name) {
        Ok(name) => root.read(&name, most),
        Err(_) => Ok(None),
    });
    found.map(Option::unwrap_or_default).map_err(|error| format!("failed to {}", chain(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_until_it_is_recorded_and_always_under_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("STEER.md");
        let mut file = SteerFile::new(path.clone());
        assert_eq!(file.look(), Ok(None));
        fs::write(&path, "faster\n").unwrap();
        let first = file.look().unwrap().unwrap();
        assert_eq!(first.1, "faster");
        assert!(!path.exists(), "it is taken away");
        fs::write(&path, "and smaller\n").unwrap();
        let again = SteerFile::new(path.clone()).look().unwrap().unwrap();
        assert_eq!(again, first, "an engine that died before it was recorded reads it again");
        file.done();
        let second = file.look().unwrap().unwrap();
        assert_eq!(second.1, "and smaller");
        assert_ne!(second.0, first.0);
        file.done();
        fs::write(&path, "faster\n").unwrap();
        assert_ne!(file.look().unwrap().unwrap().0, first.0, "the same words once more are another steer");
    }

    #[test]
    fn what_is_no_file_of_words_is_refused_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("STEER.md");
        let secret = dir.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        let mut file = SteerFile::new(path.clone());
        assert!(file.look().unwrap_err().contains("no regular file"));
        assert_eq!(file.look(), Ok(None));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "x".repeat(STEER_MAX + 1)).unwrap();
        assert!(file.look().unwrap_err().contains("larger than"));
        assert_eq!(file.look(), Ok(None));
        file.done();
        fs::write(&path, " \n").unwrap();
        assert_eq!(file.look(), Ok(None));
        assert!(!path.exists());
    }
}

//! Turns a workspace that was removed, moved away or replaced into one that is at its place again.
//! It refuses to know the files in it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::facts::SETUP_FILE;
use super::identity::Identity;
use super::workspace::Workspace;
use super::{CommitSha, WorldError, claim};

impl Workspace {
    /// What has become of the directory, where it is no longer the one that was set up; its files can then neither be
    /// read nor put back, until [`Workspace::restore`] has made it anew.
    ///
    /// # Errors
    /// [`WorldError::WorkspaceGone`] where the repository in it was the user's own, so that nothing can be made anew.
    pub fn missing(&self) -> Result<Option<String>, WorldError> {
        let path = self.git.work_tree();
        let Some(how) = absent(path, &self.facts.workspace.id) else { return Ok(None) };
        let why = format!("the workspace was removed or replaced: {how}");
        if self.facts.shown.ours {
            return Ok(Some(why));
        }
        Err(WorldError::WorkspaceGone { path: path.to_owned(), why, kept_in: self.git.dir().to_owned() })
    }

    /// Makes the directory anew, with the files of `commit`. A directory that was moved away is left where it is, and
    /// so is one that stands at its place and is not empty, under another name.
    pub(super) async fn make_anew(&mut self, commit: &CommitSha) -> Result<(), WorldError> {
        let workspace = self.git.work_tree().to_owned();
        self.clear_the_place(&workspace)?;
        let new = claim::temporary(&workspace);
        claim::remove(&new)?;
        fs::create_dir_all(&new).map_err(WorldError::io("make", &new))?;
        let state_dir = self.git.dir().parent().unwrap_or(self.git.dir()).to_owned();
        self.facts.workspace.id = Identity::of(&new)?;
        claim::settle(&state_dir, &workspace, &new)?;
        claim::write_private(&state_dir.join(SETUP_FILE), &self.facts.to_json()?)?;
        fs::rename(&new, &workspace).map_err(WorldError::io("move the workspace to", &workspace))?;
        let index = self.git.dir().join("index");
        match fs::remove_file(&index) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(WorldError::io("remove", &index)(error));
            }
            _ => {}
        }
        self.git.check_out(commit).await?;
        self.git.freeze_entries(&self.facts.fixed).await?;
        self.notes.push(format!("made the workspace {} anew", workspace.display()));
        Ok(())
    }

    /// Whoever put something there may have taken it from somewhere else, so no file in it is removed.
    fn clear_the_place(&mut self, workspace: &Path) -> Result<(), WorldError> {
        let is_dir = workspace.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        if !is_dir || fs::remove_dir(workspace).is_ok() {
            return claim::remove(workspace);
        }
        let aside = free_name(workspace);
        fs::rename(workspace, &aside).map_err(WorldError::io("move away", workspace))?;
        self.notes.push(format!("moved what stood in the workspace's place to {}", aside.display()));
        Ok(())
    }

    /// The error, or what lies behind it where that can be told.
    pub(super) fn explained(&self, error: WorldError) -> WorldError {
        let git = self.git.dir();
        if !git.join("HEAD").exists() {
            return WorldError::StateGone { path: git.to_owned() };
        }
        match mounted_below(self.git.work_tree()) {
            Some(path) => WorldError::Mounted { path, source: Box::new(error) },
            None => error,
        }
    }
}

/// What is at `path` instead of the directory `expected`. One that its mode closes is opened.
fn absent(path: &Path, expected: &Identity) -> Option<String> {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Some("there is nothing at its place".to_owned());
        }
        Err(error) => return Some(format!("its place cannot be looked at: {error}")),
    };
    if metadata.is_symlink() {
        return Some("there is a symbolic link at its place".to_owned());
    }
    match Identity::of(path) {
        Ok(found) if found == *expected => {}
        Ok(_) => return Some("there is another directory at its place".to_owned()),
        Err(_) => return Some("there is something else than a directory at its place".to_owned()),
    }
    let mode = metadata.permissions().mode();
    if mode & 0o700 == 0o700 {
        return None;
    }
    let opened = fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 | 0o700));
    opened.err().map(|error| format!("its mode closes it, and cannot be changed: {error}"))
}

fn free_name(workspace: &Path) -> PathBuf {
    let mut count = 1u32;
    loop {
        let mut name = workspace.file_name().unwrap_or_default().to_owned();
        name.push(format!(".displaced-{count}"));
        let path = workspace.with_file_name(name);
        if path.symlink_metadata().is_err() {
            return path;
        }
        count = count.saturating_add(1);
    }
}

/// A place below `workspace` where a file system is mounted.
fn mounted_below(workspace: &Path) -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let points =
        mounts.split(|&byte| byte == b'\n').filter_map(|line| line.split(|&byte| byte == b' ').nth(4));
    points.map(unescaped).find(|point| point != workspace && point.starts_with(workspace))
}

/// A path of the kernel's tables, where some bytes are written as a backslash and three octal digits.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, byte) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_absent_unless_it_is_the_very_one_and_a_closed_one_is_opened() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let id = Identity::of(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o050)).unwrap();
        assert_eq!(absent(&dir, &id), None);
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o7777, 0o750);
        let later = Identity { born: id.born.map(|(secs, nanos)| (secs, nanos ^ 1)), ..id };
        assert!(id.born.is_none() || absent(&dir, &later).unwrap().contains("another directory"));
        let link = top.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(absent(&link, &id).unwrap().contains("symbolic link"));
        fs::write(top.path().join("file"), "").unwrap();
        assert!(absent(&top.path().join("file"), &id).unwrap().contains("something else"));
        assert!(absent(&top.path().join("none"), &id).unwrap().contains("nothing"));
    }

    #[test]
    fn paths_of_the_mount_table_are_read_back() {
        for (text, expect) in
            [("/a", "/a"), ("/a\\040b", "/a b"), ("/a\\134\\011", "/a\\\t"), ("/a\\9", "/a\\9")]
        {
            assert_eq!(unescaped(text.as_bytes()), PathBuf::from(expect));
        }
    }
}

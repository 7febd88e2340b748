//! Turns the question whose directory a workspace is into a file of the state directory, and an answer.
//! It refuses to know what is in the workspace.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::WorldError;
use super::facts::PathText;
use super::identity::Identity;
use super::tidy::{failed, rel};
use super::workspace::Place;
use crate::sys::fault::point;
use crate::sys::fs::{Obstacles, PrivateFile, Root, WriteOptions, private_file};

/// The file that says which directory the engine may replace. It outlives the run: whoever archives a state
/// directory leaves it where it is.
pub const CLAIM_FILE: &str = "workspace.json";

/// A directory that is the engine's.
#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    path: PathText,
    /// Which one it is; none while `setup_cmd` is making it.
    id: Option<Identity>,
    /// What stands in its [`TOKEN_FILE`], where the file system does not know when it was made.
    token: Option<String>,
}

/// A file of the workspace that nobody makes by accident, and that nobody's own directory has.
const TOKEN_FILE: &str = ".git/crucible-claim";

/// Removes what stands at the workspace's place, if it is the engine's or empty.
pub(super) fn clear(place: &Place) -> Result<(), WorldError> {
    remove(&temporary(&place.workspace))?;
    let workspace = &place.workspace;
    match workspace.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(WorldError::io("look at", workspace)(source)),
        Ok(_) => {}
    }
    if fs::remove_dir(workspace).is_ok() || is_claimed(place)? {
        return remove(workspace);
    }
    Err(WorldError::InTheWay { path: workspace.clone() })
}

fn is_claimed(place: &Place) -> Result<bool, WorldError> {
    let path = place.state_dir.join(CLAIM_FILE);
    let mut text = Vec::new();
    match File::open(&path).and_then(|mut file| file.read_to_end(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(WorldError::io("read", &path)(source)),
        Ok(_) => {}
    }
    // A torn claim claims nothing.
    let Ok(claim) = serde_json::from_slice::<Claim>(&text) else { return Ok(false) };
    let same = claim.path.to_path() == place.workspace;
    Ok(same && claim.id.is_none_or(|claimed| is_the_one(claimed, claim.token.as_deref(), &place.workspace)))
}

fn is_the_one(claimed: Identity, token: Option<&str>, workspace: &Path) -> bool {
    let Ok(now) = Identity::of(workspace) else { return false };
    if claimed.born.is_some() {
        return now == claimed;
    }
    let same = (now.device, now.inode) == (claimed.device, claimed.inode);
    let found =
        Root::open(workspace).ok().and_then(|root| root.read(&rel(Path::new(TOKEN_FILE)).ok()?, 64).ok()?);
    same && token.is_some_and(|token| found.as_deref() == Some(token.as_bytes()))
}

/// Says that `setup_cmd` is about to make the workspace, which does not exist now.
pub(super) fn announce(place: &Place) -> Result<(), WorldError> {
    record(&place.state_dir, &place.workspace, None, None)
}

/// Says that the workspace is the directory that stands at `dir` now, its own place or the one it is built at.
pub(super) fn settle(state_dir: &Path, workspace: &Path, dir: &Path) -> Result<(), WorldError> {
    let id = Identity::of(dir)?;
    // Without the token the claim is not believed later, which costs a person a look and nobody a file.
    let token = if id.born.is_none() { leave_token(dir).ok() } else { None };
    record(state_dir, workspace, Some(id), token)
}

/// Says again what [`settle`] said, where that needs a file in a `.git` that may have been written anew.
pub(super) fn renew(state_dir: &Path, workspace: &Path, id: &Identity) -> Result<(), WorldError> {
    if id.born.is_some() { Ok(()) } else { settle(state_dir, workspace, workspace) }
}

fn leave_token(dir: &Path) -> Result<String, WorldError> {
    let token = crate::sys::fs::unguessable();
    let options = WriteOptions { mode: 0o600, durable: true, obstacles: Obstacles::Refuse };
    let root = Root::open(dir).map_err(failed)?;
    root.write_atomic(&rel(Path::new(TOKEN_FILE))?, &mut token.as_bytes(), options).map_err(failed)?;
    Ok(token)
}

fn record(
    state_dir: &Path,
    workspace: &Path,
    id: Option<Identity>,
    token: Option<String>,
) -> Result<(), WorldError> {
    let claim = Claim { path: PathText::from(workspace), id, token };
    let text = serde_json::to_vec(&claim).map_err(WorldError::process("claim the workspace"))?;
    write_private(&state_dir.join(CLAIM_FILE), &text)
}

/// Where a workspace is built before it is moved to its place.
pub(super) fn temporary(workspace: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(workspace.file_name().unwrap_or_default());
    name.push(".crucible-setup");
    workspace.with_file_name(name)
}

/// Moves a complete directory to the workspace's place, which is free.
pub(super) fn move_into_place(place: &Place, built: &Path) -> Result<(), WorldError> {
    settle(&place.state_dir, &place.workspace, built)?;
    point("workspace: before it is moved to its place");
    fs::rename(built, &place.workspace).map_err(WorldError::io("move the workspace to", &place.workspace))
}

/// Writes a file of mode 0600 so that it is whole and on disk, or what it was.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), WorldError> {
    write(path, bytes, File::sync_all)?;
    let parent = path.parent().unwrap_or(path);
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(WorldError::io("flush", parent))
}

/// The same for a file that the next process makes anew: it may be lost with the machine.
pub(super) fn write_passing(path: &Path, bytes: &[u8]) -> Result<(), WorldError> {
    write(path, bytes, |_| Ok(()))
}

fn write(path: &Path, bytes: &[u8], settle: fn(&File) -> io::Result<()>) -> Result<(), WorldError> {
    let draft = path.with_extension("new");
    let mut file = private_file(&draft, PrivateFile::Truncate).map_err(failed)?;
    file.write_all(bytes).and_then(|()| settle(&file)).map_err(WorldError::io("write", &draft))?;
    point("fact: before it is written");
    fs::rename(&draft, path).map_err(WorldError::io("write", path))?;
    point("fact: after it is written");
    Ok(())
}

/// Removes what stands at `path`, which may be anything, and follows no link.
pub(super) fn remove(path: &Path) -> Result<(), WorldError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    match Root::open(parent) {
        Ok(root) => root.remove_any(&rel(Path::new(name))?).map(drop).map_err(failed),
        // Nothing is there if its directory is not.
        Err(_) if !parent.exists() => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(top: &Path) -> Place {
        let (state_dir, workspace) = (top.join("state"), top.join("workspace"));
        fs::create_dir(&state_dir).unwrap();
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("file"), "precious").unwrap();
        Place { state_dir, workspace, own: Vec::new(), env: crate::sys::env::Environment::empty() }
    }

    #[test]
    fn a_directory_that_was_given_the_inode_of_a_claimed_one_is_not_removed() {
        let top = tempfile::tempdir().unwrap();
        let place = place(top.path());
        settle(&place.state_dir, &place.workspace, &place.workspace).unwrap();
        let claim_file = place.state_dir.join(CLAIM_FILE);
        let claim: Claim = serde_json::from_slice(&fs::read(&claim_file).unwrap()).unwrap();
        let id = claim.id.unwrap();
        let born = id.born.map(|(secs, nanos)| (secs, nanos ^ 1));
        let other = Identity { born, ..id };
        let path = serde_json::to_string(&PathText::from(place.workspace.as_path())).unwrap();
        for text in [
            serde_json::to_string(&Claim { id: Some(other), ..claim }).unwrap(),
            format!("{{\"path\":{path},\"id\":[{},{}]}}", id.device, id.inode),
            format!("{{\"path\":{path},\"id\":{{\"device\":{},\"inode\":{}}}}}", id.device, id.inode),
        ] {
            fs::write(&claim_file, &text).unwrap();
            assert!(matches!(clear(&place), Err(WorldError::InTheWay { .. })), "{text}");
            assert_eq!(fs::read_to_string(place.workspace.join("file")).unwrap(), "precious", "{text}");
        }
        settle(&place.state_dir, &place.workspace, &place.workspace).unwrap();
        clear(&place).unwrap();
        assert!(!place.workspace.exists());
    }

    #[test]
    fn without_a_time_of_birth_the_token_tells_whose_it_is() {
        let top = tempfile::tempdir().unwrap();
        let place = place(top.path());
        let id = Identity { born: None, ..Identity::of(&place.workspace).unwrap() };
        let token = leave_token(&place.workspace).unwrap();
        for (claimed, expect) in [(None, false), (Some("guess"), false), (Some(token.as_str()), true)] {
            assert_eq!(is_the_one(id, claimed, &place.workspace), expect, "{claimed:?}");
        }
        fs::remove_file(place.workspace.join(TOKEN_FILE)).unwrap();
        assert!(!is_the_one(id, Some(&token), &place.workspace));
    }
}

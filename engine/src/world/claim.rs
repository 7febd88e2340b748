//! Turns the question whose directory a workspace is into a file of the state directory, and an answer.
//! It refuses to know what is in the workspace.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::WorldError;
use super::facts::PathText;
use super::tidy::{failed, id, rel};
use super::workspace::Place;
use crate::sys::fs::{PrivateFile, Root, private_file};

/// The file that says which directory the engine may replace. It outlives the run: whoever archives a state
/// directory leaves it where it is.
pub const CLAIM_FILE: &str = "workspace.json";

/// A directory that is the engine's.
#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    path: PathText,
    /// Device and inode; none while `setup_cmd` is making it.
    id: Option<(u64, u64)>,
}

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
    match fs::File::open(&path).and_then(|mut file| file.read_to_end(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(WorldError::io("read", &path)(source)),
        Ok(_) => {}
    }
    // A torn claim claims nothing.
    let Ok(claim) = serde_json::from_slice::<Claim>(&text) else { return Ok(false) };
    let same = claim.path.to_path() == place.workspace;
    Ok(same && claim.id.is_none_or(|claimed| id(&place.workspace).is_ok_and(|now| now == claimed)))
}

/// Says that `setup_cmd` is about to make the workspace, which does not exist now.
pub(super) fn announce(place: &Place) -> Result<(), WorldError> {
    write(place, None)
}

/// Says that the workspace is the directory with this `id`.
pub(super) fn settle(place: &Place, id: (u64, u64)) -> Result<(), WorldError> {
    write(place, Some(id))
}

fn write(place: &Place, id: Option<(u64, u64)>) -> Result<(), WorldError> {
    let claim = Claim { path: PathText::from(place.workspace.as_path()), id };
    let text = serde_json::to_vec(&claim).map_err(WorldError::process("claim the workspace"))?;
    write_private(&place.state_dir.join(CLAIM_FILE), &text)
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
    settle(place, id(built)?)?;
    fs::rename(built, &place.workspace).map_err(WorldError::io("move the workspace to", &place.workspace))
}

/// Writes a file of mode 0600 so that it is whole and on disk, or what it was.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), WorldError> {
    let draft = path.with_extension("new");
    let mut file = private_file(&draft, PrivateFile::Truncate).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(WorldError::io("write", &draft))?;
    fs::rename(&draft, path).map_err(WorldError::io("write", path))?;
    let parent = path.parent().unwrap_or(path);
    fs::File::open(parent).and_then(|dir| dir.sync_all()).map_err(WorldError::io("flush", parent))
}

fn remove(path: &Path) -> Result<(), WorldError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    match Root::open(parent) {
        Ok(root) => root.remove_any(&rel(Path::new(name))?).map(drop).map_err(failed),
        // Nothing is there if its directory is not.
        Err(_) if !parent.exists() => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

//! Turns `[agent].toolbox_dir` into the files of an agent's skills, read once (contract §1).
//! It refuses to know where they are put.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tree::{self, Base};
use super::{FileError, Thawed};
use crate::manifest::{ManifestPath, RelPath, WorkspaceDir};

/// More files are refused.
const FILES_MAX: usize = 1000;
/// More bytes in all files together are refused: 16 MiB.
const BYTES_MAX: u64 = 16 << 20;

/// An agent's skills, as they were when the pack was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Toolbox {
    /// Where they come from, absolute.
    pub src: PathBuf,
    /// By path.
    pub files: Arc<[ToolFile]>,
}

/// One file of a toolbox.
#[derive(Clone, PartialEq, Eq)]
pub struct ToolFile {
    /// Relative to the toolbox.
    pub path: RelPath,
    /// All of it.
    pub bytes: Vec<u8>,
    /// Whether it may be executed.
    pub executable: bool,
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Toolbox({}, {} files)", self.src.display(), self.files.len())
    }
}

/// Where a toolbox is looked for.
pub(super) struct Shelf<'s> {
    /// The manifest's directory.
    pub(super) root: &'s Path,
    /// Where the workspace is in it.
    pub(super) workspace: &'s WorkspaceDir,
    /// `None` where nothing is frozen, `Some(None)` where there is no base commit yet.
    pub(super) base: Option<Option<&'s dyn Base>>,
}

impl Shelf<'_> {
    /// Reads every file, from the base commit where an agent could have changed them on disk.
    pub(super) fn read(&self, dir: &ManifestPath, thawed: &mut Vec<Thawed>) -> Result<Toolbox, FileError> {
        let src = dir.under(self.root);
        let src = fs::canonicalize(&src).unwrap_or(src);
        let workspace = super::workspace_dir(self.root, self.workspace);
        let inside = src.strip_prefix(&workspace).ok().and_then(Path::to_str).map(RelPath::parse);
        let files = match (inside, self.workspace, self.base) {
            (None, _, _) | (_, _, None) => on_disk(&src)?,
            (Some(_), WorkspaceDir::Under(_), _) => return Err(FileError::InWorkspace { path: src }),
            (Some(Ok(path)), WorkspaceDir::InPlace, Some(Some(base))) => in_base(base, &src, &path)?,
            (Some(Err(_)), _, _) => return Err(FileError::InWorkspace { path: src }),
            (Some(Ok(_)), _, Some(None)) => {
                thawed.push(Thawed::Toolbox(src.clone()));
                on_disk(&src)?
            }
        };
        Ok(Toolbox { src, files: files.into() })
    }
}

fn on_disk(src: &Path) -> Result<Vec<ToolFile>, FileError> {
    let found = fs::metadata(src).map_err(|error| super::file_error(src, &error))?;
    if !found.is_dir() {
        return Err(FileError::NotADirectory { path: src.to_owned() });
    }
    let paths = tree::walk_whole(src)?;
    if paths.len() > FILES_MAX {
        return Err(too_much(src));
    }
    let mut room = BYTES_MAX;
    let mut files = Vec::new();
    for path in paths {
        let at = src.join(path.as_path());
        let fail = |error: std::io::Error| super::file_error(&at, &error);
        let bytes = tree::read_bounded(&at, room.saturating_add(1)).map_err(fail)?;
        room = take(room, bytes.len(), src)?;
        let executable = fs::metadata(&at).map_err(fail)?.permissions().mode() & 0o111 != 0;
        files.push(ToolFile { path, bytes, executable });
    }
    Ok(files)
}

fn in_base(base: &dyn Base, src: &Path, dir: &RelPath) -> Result<Vec<ToolFile>, FileError> {
    let fail = |error: std::io::Error| super::file_error(src, &error);
    let mut paths: Vec<RelPath> = base.files().map_err(fail)?;
    paths.retain(|path| path.is_inside(dir));
    paths.sort();
    if paths.is_empty() {
        return Err(FileError::NotInBase { path: src.to_owned() });
    }
    if paths.len() > FILES_MAX {
        return Err(too_much(src));
    }
    let mut room = BYTES_MAX;
    let mut files = Vec::new();
    for whole in paths {
        let Some(file) = base.read(&whole).map_err(fail)? else { continue };
        room = take(room, file.bytes.len(), src)?;
        let below = whole.as_path().strip_prefix(dir.as_path()).ok().and_then(Path::to_str);
        let path = below.and_then(|path| RelPath::parse(path).ok());
        let path = path.ok_or_else(|| FileError::Name { path: src.join(whole.as_path()) })?;
        files.push(ToolFile { path, bytes: file.bytes, executable: file.executable });
    }
    Ok(files)
}

fn take(room: u64, bytes: usize, src: &Path) -> Result<u64, FileError> {
    room.checked_sub(u64::try_from(bytes).unwrap_or(u64::MAX)).ok_or_else(|| too_much(src))
}

fn too_much(src: &Path) -> FileError {
    FileError::TooMuch { path: src.to_owned(), files: FILES_MAX, bytes: BYTES_MAX }
}

//! Turns a workspace that is the manifest's own directory into its pristine base commit (contract §1, frozen loading).
//! It refuses to know what is read from it.

use std::io;
use std::path::{Path, PathBuf};

use tokio::runtime::Runtime;

use crate::manifest::{MAX_BYTES, Manifest, RelPath, WorkspaceDir};
use crate::pack::{Base, BaseFile, Bases};
use crate::sys::env::Environment;
use crate::sys::fs::read_bounded;
use crate::world::{Facts, PristineBase};

/// Finds base commits through git.
#[derive(Debug)]
pub(super) struct GitBases<'r> {
    /// Where git is waited for.
    pub(super) runtime: &'r Runtime,
    /// Where `PATH` is taken from.
    pub(super) env: &'r Environment,
    /// The manifest.
    pub(super) manifest: &'r Path,
    /// The state directory of the run, where an earlier one may have left its facts.
    pub(super) state_dir: PathBuf,
}

impl Bases for GitBases<'_> {
    fn open(&self, workspace: &Path) -> io::Result<Option<Box<dyn Base + '_>>> {
        // A clone is made anew by each run: what stood there before is nobody's base.
        let own = self.manifest.parent().is_some_and(|dir| dir == workspace);
        if !own || !(self.was_in_place(workspace)? || self.is_in_place()) {
            return Ok(None);
        }
        let base =
            self.runtime.block_on(PristineBase::find(workspace, self.env)).map_err(io::Error::other)?;
        let Some(base) = base else { return Ok(None) };
        Ok(Some(Box::new(Opened { base, runtime: self.runtime })))
    }
}

impl GitBases<'_> {
    /// Whether an earlier run worked in this very directory: then an agent may have edited the manifest in it.
    fn was_in_place(&self, workspace: &Path) -> io::Result<bool> {
        let facts = Facts::read(&self.state_dir).map_err(io::Error::other)?;
        Ok(facts.is_some_and(|facts| facts.workspace.path == workspace))
    }

    /// Whether the manifest says so now. One with mistakes says nothing; they are told when it is parsed for good.
    fn is_in_place(&self) -> bool {
        let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
        let bytes = read_bounded(self.manifest, most).unwrap_or_default();
        Manifest::parse_bytes("", &bytes)
            .is_ok_and(|manifest| manifest.workspace.dir == WorkspaceDir::InPlace)
    }
}

struct Opened<'r> {
    base: PristineBase,
    runtime: &'r Runtime,
}

impl Base for Opened<'_> {
    fn read(&self, path: &RelPath) -> io::Result<Option<BaseFile>> {
        let found = self.runtime.block_on(self.base.read(path.as_path())).map_err(io::Error::other)?;
        Ok(found.map(|(bytes, executable)| BaseFile { bytes, executable }))
    }

    fn files(&self) -> io::Result<Vec<RelPath>> {
        let paths = self.runtime.block_on(self.base.files()).map_err(io::Error::other)?;
        // A name that no manifest could write is no file that one could name.
        Ok(paths.iter().filter_map(|path| RelPath::parse(path.to_str()?).ok()).collect())
    }
}

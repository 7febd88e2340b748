//! Turns the path of a manifest into a `Pack`: the manifest and every file that it names, found and read (contract §1, §2).
//! It refuses to know git: what a workspace was before an agent worked in it comes through `Bases`.

mod error;
mod identity;
mod inject;
mod toolbox;
mod tree;
mod trust;

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use crate::manifest::FileError;
pub use error::PackError;
use error::file_error;
pub use identity::{Component, IdentityParts, InjectIdentity, RunIdentity};
pub use inject::{InjectFile, Origin};
pub use toolbox::{ToolFile, Toolbox};
pub use tree::{Base, BaseFile};
pub use trust::{Certificates, MAX_CERTIFICATES_BYTES};

use crate::manifest::Sink;
use crate::manifest::{At, Goal, MAX_BYTES, Manifest, ManifestErrors, ManifestPath, RelPath, WorkspaceDir};

/// The largest prompt or goal that is read, in bytes.
pub const MAX_PROMPT_BYTES: u64 = 4 << 20;

/// A manifest with the files it names.
#[derive(Clone, Debug)]
pub struct Pack {
    /// What the manifest says.
    pub manifest: Manifest,
    /// Absolute.
    pub manifest_path: PathBuf,
    /// Absolute, without links: what relative paths of the manifest start at (contract §2).
    pub manifest_dir: PathBuf,
    /// The text of `method_prompt`.
    pub method: Option<String>,
    /// The text of `goal` or `goal_file`.
    pub goal: Option<String>,
    /// The certificates of `ca_file`.
    pub certificates: Option<Certificates>,
    /// Every file to inject, by destination.
    pub injects: Vec<InjectFile>,
    /// The files of `toolbox_dir`.
    pub toolbox: Option<Toolbox>,
    /// What could not be frozen. A caller prints each of these.
    pub thawed: Vec<Thawed>,
}

/// Where to find what a workspace was before any agent worked in it.
pub trait Bases {
    /// The pristine base commit recorded for the workspace at that absolute path, if there is one yet.
    ///
    /// # Errors
    /// A record that cannot be read.
    fn open(&self, workspace: &Path) -> io::Result<Option<Box<dyn Base + '_>>>;
}

/// A part of the judge that lies in the workspace and was read from the working tree (contract §1, frozen loading).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thawed {
    /// The manifest itself: there is no base commit yet.
    Manifest,
    /// The manifest itself: the base commit does not have it.
    ManifestNotInBase,
    /// The source of a frozen inject.
    Inject(PathBuf),
    /// The certificates of `ca_file`.
    Certificates(PathBuf),
    /// The toolbox.
    Toolbox(PathBuf),
}

impl fmt::Display for Thawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest => f.write_str(
                "the manifest lies in its own workspace and there is no base commit yet: this run trusts the working \
                 tree, later runs read it from the base commit",
            ),
            Self::ManifestNotInBase => f.write_str(
                "the manifest lies in its own workspace and the base commit does not have it: an agent can change it. \
                 Commit it",
            ),
            Self::Inject(path) => write!(
                f,
                "the frozen inject {} lies in the workspace and there is no base commit yet: this run trusts the \
                 working tree",
                path.display()
            ),
            Self::Certificates(path) => write!(
                f,
                "the certificates of {} lie in the workspace and there is no base commit yet: this run trusts the \
                 working tree",
                path.display()
            ),
            Self::Toolbox(path) => write!(
                f,
                "the toolbox {} lies in the workspace and there is no base commit yet: this run trusts the working tree",
                path.display()
            ),
        }
    }
}

impl Pack {
    /// Reads a manifest and its files as they are on disk. Right where nothing is going to be run for a score.
    ///
    /// # Errors
    /// The manifest cannot be read, or all of its mistakes, or all the mistakes of the files it names.
    pub fn load(manifest_path: &Path) -> Result<Self, PackError> {
        let place = Place::find(manifest_path)?;
        let manifest = place.parse(&place.read()?)?;
        place.resolve(manifest, None, Vec::new())
    }

    /// Reads a manifest and its files so that no agent can have changed what judges it: what lies inside the workspace
    /// comes from its pristine base commit (contract §1). Where there is none yet, `thawed` says what was trusted.
    ///
    /// # Errors
    /// As `load`, and a base commit that cannot be read.
    pub fn load_frozen(manifest_path: &Path, bases: &dyn Bases) -> Result<Self, PackError> {
        let place = Place::find(manifest_path)?;
        // Asked before the working tree's manifest is believed: an agent could write `dir = "elsewhere"` into it.
        let here = bases.open(&place.dir).map_err(PackError::Base)?;
        let (manifest, trusted) = place.frozen_manifest(here.as_deref())?;
        if manifest.workspace.dir == WorkspaceDir::InPlace {
            return place.resolve(manifest, Some(here.as_deref()), Vec::from_iter(trusted));
        }
        let workspace = workspace_dir(&place.dir, &manifest.workspace.dir);
        let there = bases.open(&workspace).map_err(PackError::Base)?;
        place.resolve(manifest, Some(there.as_deref()), Vec::new())
    }

    /// Where the agent works, absolute.
    pub fn workspace_dir(&self) -> PathBuf {
        workspace_dir(&self.manifest_dir, &self.manifest.workspace.dir)
    }
}

fn workspace_dir(manifest_dir: &Path, dir: &WorkspaceDir) -> PathBuf {
    match dir {
        WorkspaceDir::InPlace => manifest_dir.to_owned(),
        WorkspaceDir::Under(dir) => manifest_dir.join(dir.as_path()),
    }
}

/// The manifest's file, found.
struct Place {
    path: PathBuf,
    dir: PathBuf,
    /// As it was given, for diagnostics.
    given: String,
}

impl Place {
    fn find(given: &Path) -> Result<Self, PackError> {
        let fail = |source| PackError::Manifest { path: given.to_owned(), source };
        let parent = match given.parent() {
            Some(parent) if parent == Path::new("") => Path::new("."),
            Some(parent) => parent,
            None => return Err(fail(io::ErrorKind::IsADirectory.into())),
        };
        let name = given.file_name().ok_or_else(|| fail(io::ErrorKind::IsADirectory.into()))?;
        let dir = fs::canonicalize(parent).map_err(fail)?;
        Ok(Self { path: dir.join(name), dir, given: given.display().to_string() })
    }

    fn name(&self) -> Result<RelPath, PackError> {
        let name = self.path.file_name().and_then(OsStr::to_str);
        name.and_then(|name| RelPath::parse(name).ok()).ok_or_else(|| PackError::Manifest {
            path: self.path.clone(),
            source: io::ErrorKind::InvalidFilename.into(),
        })
    }

    fn read(&self) -> Result<Vec<u8>, PackError> {
        let fail = |source| PackError::Manifest { path: self.given.clone().into(), source };
        let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
        tree::read_bounded(&self.path, most.saturating_add(1)).map_err(fail)
    }

    fn parse(&self, bytes: &[u8]) -> Result<Manifest, PackError> {
        Ok(Manifest::parse_bytes(&self.given, bytes).map_err(Box::new)?)
    }

    /// The manifest from the base commit, or from the working tree with what there is to say about that.
    fn frozen_manifest(&self, base: Option<&dyn Base>) -> Result<(Manifest, Option<Thawed>), PackError> {
        let Some(base) = base else { return Ok((self.parse(&self.read()?)?, Some(Thawed::Manifest))) };
        match base.read(&self.name()?).map_err(PackError::Base)? {
            Some(file) => Ok((self.parse(&file.bytes)?, None)),
            None => Ok((self.parse(&self.read()?)?, Some(Thawed::ManifestNotInBase))),
        }
    }

    /// Finds and reads all files, and reports all that is wrong with any. `base` is `None` where nothing is frozen.
    fn resolve(
        &self,
        manifest: Manifest,
        base: Option<Option<&dyn Base>>,
        mut thawed: Vec<Thawed>,
    ) -> Result<Pack, PackError> {
        let mut sink = Sink::default();
        let method = manifest.agent.method_prompt.as_ref().and_then(|at| self.prompt(at, &mut sink));
        let goal = match &manifest.agent.goal {
            Some(Goal::Text(text)) => Some(text.value.clone()),
            Some(Goal::File(at)) => self.prompt(at, &mut sink),
            None => None,
        };
        let resolver = inject::Resolver::new(&self.dir, &manifest.workspace.dir, base);
        let ca_file = manifest.agent.sandbox.as_ref().and_then(|sandbox| sandbox.ca_file.as_ref());
        let certificates = ca_file.and_then(|at| {
            let read = resolver.bytes(&at.value, MAX_CERTIFICATES_BYTES, &mut thawed);
            let read = read.and_then(|(path, bytes)| Certificates::read(path, &bytes));
            read.map_err(|error| sink.put(at.span.clone(), error)).ok()
        });
        let injects = resolver.resolve(&manifest.workspace.inject, &mut thawed, &mut sink);
        let toolbox = self.toolbox(&manifest, base, &mut thawed, &mut sink);
        let diagnostics = sink.into_errors(manifest.source());
        if !diagnostics.is_empty() {
            return Err(Box::new(ManifestErrors::new(manifest.source().clone(), diagnostics)).into());
        }
        let (manifest_path, manifest_dir) = (self.path.clone(), self.dir.clone());
        Ok(Pack {
            manifest,
            manifest_path,
            manifest_dir,
            method,
            goal,
            certificates,
            injects,
            toolbox,
            thawed,
        })
    }

    fn toolbox(
        &self,
        manifest: &Manifest,
        base: Option<Option<&dyn Base>>,
        thawed: &mut Vec<Thawed>,
        sink: &mut Sink,
    ) -> Option<Toolbox> {
        let At { value, span } = manifest.agent.toolbox_dir.as_ref()?;
        let shelf = toolbox::Shelf { root: &self.dir, workspace: &manifest.workspace.dir, base };
        shelf.read(value, thawed).map_err(|error| sink.put(span.clone(), error)).ok()
    }

    fn prompt(&self, at: &At<ManifestPath>, sink: &mut Sink) -> Option<String> {
        match read_prompt(&at.value.under(&self.dir)) {
            Ok(text) => Some(text),
            Err(error) => {
                sink.put(at.span.clone(), error);
                None
            }
        }
    }
}

/// Reads a prompt or goal: a regular file of UTF-8, at most `MAX_PROMPT_BYTES` long. Links are followed.
///
/// # Errors
/// Not there, not a regular file, too large, not UTF-8.
pub fn read_prompt(path: &Path) -> Result<String, FileError> {
    let fail = |error: io::Error| file_error(path, &error);
    let bytes = tree::read_bounded(path, MAX_PROMPT_BYTES.saturating_add(1)).map_err(fail)?;
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size > MAX_PROMPT_BYTES {
        return Err(FileError::TooLarge { path: path.to_owned(), max: MAX_PROMPT_BYTES });
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        FileError::NotUtf8 { path: path.to_owned(), offset }
    })
}

#[cfg(test)]
mod tests;

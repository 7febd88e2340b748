//! Turns the injects of a manifest into files with content, each with its source and destination (contract §1).
//! It refuses to know how they are copied.

use std::path::{Component, Path, PathBuf};

use super::tree::{self, Base, Content, Node};
use super::{FileError, Thawed};
use crate::manifest::{At, Inject, ManifestPath, Mistake, Pattern, RelPath, STATE_DIR, Sink, WorkspaceDir};
use crate::manifest::{check_destinations, check_dst};

/// One file to be put into the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectFile {
    /// Where it comes from, absolute.
    pub src: PathBuf,
    /// What holds its content.
    pub origin: Origin,
    /// Where it goes, relative to the workspace.
    pub dst: RelPath,
    /// Whether it is copied again before each measure and each task.
    pub frozen: bool,
    /// Whether it may be executed.
    pub executable: bool,
    /// Of its content as it was read.
    pub sha256: [u8; 32],
    /// Of its content, in bytes.
    pub size: u64,
}

/// What holds an inject's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file at `src`.
    Disk,
    /// That path in the workspace's base commit.
    Base(RelPath),
}

/// Finds the files of one manifest.
pub(super) struct Resolver<'r> {
    root: &'r Path,
    dir: &'r WorkspaceDir,
    workspace: PathBuf,
    /// `None` where nothing is frozen, `Some(None)` where there is no base commit yet.
    base: Option<Option<&'r dyn Base>>,
}

/// One source found, before its content is read.
struct Source {
    src: PathBuf,
    in_workspace: Option<RelPath>,
    dst: RelPath,
    frozen: bool,
}

impl<'r> Resolver<'r> {
    pub(super) fn new(root: &'r Path, dir: &'r WorkspaceDir, base: Option<Option<&'r dyn Base>>) -> Self {
        Self { root, dir, workspace: super::workspace_dir(root, dir), base }
    }

    /// All files, by destination; every mistake goes to `sink` at the place of its inject.
    pub(super) fn resolve(
        &self,
        injects: &[At<Inject>],
        thawed: &mut Vec<Thawed>,
        sink: &mut Sink,
    ) -> Vec<InjectFile> {
        let mut files = Vec::new();
        for At { value, span } in injects {
            let sources = self.sources(value).unwrap_or_else(|error| {
                sink.put(span.clone(), error);
                Vec::new()
            });
            for source in sources {
                match self.read(source, thawed) {
                    Ok(file) => files.push((file, span.clone())),
                    Err(error) => sink.put(span.clone(), error),
                }
            }
        }
        check_destinations(files.iter().map(|(file, span)| (&file.dst, span.clone())).collect(), sink);
        files.sort_by(|(a, _), (b, _)| a.dst.cmp(&b.dst));
        files.into_iter().map(|(file, _)| file).collect()
    }

    /// The whole of one file that is trusted as a frozen inject is: from the base commit where it lies in the workspace.
    /// Answers where it was found, absolute, and at most `most` bytes.
    pub(super) fn bytes(
        &self,
        path: &ManifestPath,
        most: u64,
        thawed: &mut Vec<Thawed>,
    ) -> Result<(PathBuf, Vec<u8>), FileError> {
        let (src, in_workspace) = self.found(path);
        let fail = |error| super::file_error(&src, &error);
        let bytes = match (&in_workspace, self.base) {
            (Some(path), Some(Some(base))) => {
                let file = base.read(path).map_err(fail)?;
                file.ok_or_else(|| FileError::NotInBase { path: src.clone() })?.bytes
            }
            (inside, base) => {
                if inside.is_some() && base.is_some() {
                    thawed.push(Thawed::Certificates(src.clone()));
                }
                tree::read_bounded(&src, most.saturating_add(1)).map_err(fail)?
            }
        };
        if u64::try_from(bytes.len()).map_or(true, |size| size > most) {
            return Err(FileError::TooLarge { path: src, max: most });
        }
        Ok((src, bytes))
    }

    fn sources(&self, inject: &Inject) -> Result<Vec<Source>, Mistake> {
        match inject {
            Inject::File { src, dst, frozen } => Ok(vec![self.single(src, dst, *frozen)]),
            Inject::Same(pattern) => self.expand(pattern),
        }
    }

    fn single(&self, src: &ManifestPath, dst: &RelPath, frozen: bool) -> Source {
        let (src, in_workspace) = self.found(src);
        Source { src, in_workspace, dst: dst.clone(), frozen }
    }

    /// Where a path leads, and what it is relative to the workspace if that is in there.
    fn found(&self, path: &ManifestPath) -> (PathBuf, Option<RelPath>) {
        let written = lexical(&path.under(self.root));
        let found = std::fs::canonicalize(&written).unwrap_or(written);
        let inside = found.strip_prefix(&self.workspace).ok().and_then(Path::to_str);
        let in_workspace = inside.and_then(|path| RelPath::parse(path).ok());
        (found, in_workspace)
    }

    fn expand(&self, pattern: &Pattern) -> Result<Vec<Source>, Mistake> {
        let paths = match (self.inside(pattern.path()), self.base.flatten()) {
            (Some(_), Some(base)) => {
                let found = self.expand_base(pattern, base)?;
                // It is there for the eye, but a frozen file is what the last commit says.
                if found.is_empty() && self.expand_disk(pattern).is_ok_and(|paths| !paths.is_empty()) {
                    return Err(
                        FileError::NotInBase { path: self.root.join(pattern.path().as_path()) }.into()
                    );
                }
                found
            }
            _ => self.expand_disk(pattern)?,
        };
        if paths.is_empty() {
            return Err(FileError::NoMatch { pattern: pattern.path().to_string() }.into());
        }
        let source = |path: RelPath| {
            check_dst(&path)?;
            let src = self.root.join(path.as_path());
            Ok(Source { src, in_workspace: self.inside(&path), dst: path, frozen: true })
        };
        paths.into_iter().map(source).collect()
    }

    fn expand_disk(&self, pattern: &Pattern) -> Result<Vec<RelPath>, FileError> {
        let text = pattern.path().as_str();
        let skip = |path: &RelPath| self.skips(path, pattern);
        if let Some(Ok(glob)) = pattern.glob() {
            let files = tree::walk(self.root, None, text, &skip)?;
            return Ok(files.into_iter().filter(|path| glob.is_match(path.as_path())).collect());
        }
        match tree::node(self.root, pattern.path())? {
            Node::File => Ok(vec![pattern.path().clone()]),
            Node::Directory => tree::walk(self.root, Some(pattern.path()), text, &skip),
        }
    }

    /// What no glob and no directory stands for, unless it is named: git's files, the state, the workspace.
    fn skips(&self, path: &RelPath, pattern: &Pattern) -> bool {
        let own = match self.dir {
            WorkspaceDir::InPlace => false,
            WorkspaceDir::Under(dir) => path == dir && !pattern.path().is_inside(dir),
        };
        own || path.as_str() == STATE_DIR || path.touches_git()
    }

    fn expand_base(&self, pattern: &Pattern, base: &dyn Base) -> Result<Vec<RelPath>, FileError> {
        let fail = |error| super::file_error(self.root, &error);
        let prefix = match self.dir {
            WorkspaceDir::InPlace => String::new(),
            WorkspaceDir::Under(dir) => format!("{dir}/"),
        };
        let all = base.files().map_err(fail)?;
        let all = all.iter().filter_map(|path| RelPath::parse(&format!("{prefix}{path}")).ok());
        let glob = pattern.glob().and_then(Result::ok);
        let meant = |path: &RelPath| match &glob {
            Some(glob) => glob.is_match(path.as_path()),
            None => path == pattern.path() || path.is_inside(pattern.path()),
        };
        let mut paths: Vec<_> = all.filter(meant).collect();
        paths.sort();
        Ok(paths)
    }

    /// The path relative to the workspace, if it lies in there.
    fn inside(&self, path: &RelPath) -> Option<RelPath> {
        match self.dir {
            WorkspaceDir::InPlace => Some(path.clone()),
            WorkspaceDir::Under(dir) => {
                let rest = path.as_path().strip_prefix(dir.as_path()).ok()?;
                RelPath::parse(rest.to_str()?).ok()
            }
        }
    }

    fn read(&self, source: Source, thawed: &mut Vec<Thawed>) -> Result<InjectFile, FileError> {
        let Source { src, in_workspace, dst, frozen } = source;
        let (origin, content) = match (in_workspace.filter(|_| frozen), self.base) {
            (Some(path), Some(Some(base))) => {
                let file = base.read(&path).map_err(|error| super::file_error(&src, &error))?;
                let file = file.ok_or_else(|| FileError::NotInBase { path: src.clone() })?;
                (Origin::Base(path), Content::of_base(&file))
            }
            (Some(_), Some(None)) => {
                thawed.push(Thawed::Inject(src.clone()));
                (Origin::Disk, Content::of_file(&src)?)
            }
            _ => (Origin::Disk, Content::of_file(&src)?),
        };
        let Content { sha256, size, executable } = content;
        Ok(InjectFile { src, origin, dst, frozen, executable, sha256, size })
    }
}

/// Takes `.` and `..` out by the names alone.
fn lexical(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

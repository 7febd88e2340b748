//! Turns commits of the engine's own repository into the repository that a person and an agent find in the workspace.
//! It refuses to run git there, and to believe anything that it finds there.
//!
//! No process of the run is alive while this works, so that what was looked at stays what it was.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::facts::{Facts, Shown};
use super::git::Git;
use super::guard::Guard;
use super::tidy::{failed, id, rel};
use super::workspace::branch;
use super::{CommitSha, Reserved, WorldError, index, layout, objects};
use crate::sys::fs::{Kind, Obstacles, Root, WriteOptions};

/// The file of the state directory that holds what the repository's configuration and hooks were.
pub(super) const GUARD_FILE: &str = "guard.json";

/// The repository in the workspace.
#[derive(Debug)]
pub(super) struct Projection {
    source: PathBuf,
    shown: Shown,
    workspace: PathBuf,
    run: String,
    sha256: bool,
    exclude: Vec<u8>,
    /// The index that is shown, below `source`. A person's own has none of the engine's marks.
    index: &'static str,
    guard: Guard,
    /// Which directories it consisted of when it was last seen whole; none before the first look of a process.
    seen: Option<Seen>,
}

/// What tells that a repository is still the one that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    git_dir: (u64, u64),
    objects: (u64, u64),
    /// An object file that was there; a collector of the agent's would have moved it away.
    sentinel: Option<PathBuf>,
}

impl Projection {
    /// Shows a repository for the first time: writes one that is the engine's, and looks at one that is the user's.
    pub(super) fn create(git: &Git, facts: &Facts, exclude: &Reserved) -> Result<Projection, WorldError> {
        let mut projection = Projection::new(git, facts, exclude, Guard::default());
        if facts.shown.ours {
            projection.write_anew()?;
        }
        projection.look()?;
        projection.guard = Guard::of(&facts.shown);
        let state_dir = git.dir().parent().unwrap_or(git.dir());
        projection.guard.save(&state_dir.join(GUARD_FILE))?;
        Ok(projection)
    }

    /// The repository of a run that is resumed. One of the engine's is written anew at the next step.
    pub(super) fn open(git: &Git, facts: &Facts, exclude: &Reserved) -> Result<Projection, WorldError> {
        let state_dir = git.dir().parent().unwrap_or(git.dir());
        let guard = Guard::read(&state_dir.join(GUARD_FILE))?;
        let mut projection = Projection::new(git, facts, exclude, guard);
        if !facts.shown.ours {
            projection.look()?;
        }
        Ok(projection)
    }

    fn new(git: &Git, facts: &Facts, exclude: &Reserved, guard: Guard) -> Projection {
        Projection {
            source: git.dir().to_owned(),
            shown: facts.shown.clone(),
            workspace: git.work_tree().to_owned(),
            run: facts.run.clone(),
            sha256: facts.base.is_sha256(),
            exclude: exclude.exclude_file(),
            index: if facts.shows_unmarked() { index::UNMARKED } else { "index" },
            guard,
            seen: None,
        }
    }

    /// Removes locks that a process which is dead left in it.
    pub(super) fn remove_stale_locks(&self) -> Result<Vec<String>, WorldError> {
        let Ok(root) = Root::open(&self.shown.git_dir) else { return Ok(Vec::new()) };
        let lock = rel(Path::new("index.lock"))?;
        let stale = matches!(root.kind(&lock), Ok(Some(Kind::File)));
        if !stale {
            return Ok(Vec::new());
        }
        root.remove_any(&lock).map_err(failed)?;
        Ok(vec![format!("removed {}, left by a process that died", self.shown.git_dir.join(lock).display())])
    }

    /// Shows a recorded candidate: `objects` are its new files in the engine's repository.
    pub(super) fn show_candidate(
        &mut self,
        objects: &[PathBuf],
        name: &str,
        commit: &CommitSha,
    ) -> Result<Vec<String>, WorldError> {
        let mut notes = self.make_whole()?;
        let shown = self.add_objects(objects).and_then(|()| self.write_ref(name, commit));
        notes.extend(self.forgive(shown)?);
        Ok(notes)
    }

    /// Shows the best: its objects, its branch, `HEAD` on it, and the index that fits the files. Configuration and
    /// hooks are put right.
    pub(super) fn show_best(
        &mut self,
        objects: &[PathBuf],
        commit: &CommitSha,
    ) -> Result<Vec<String>, WorldError> {
        let mut notes = self.make_whole()?;
        let shown = self.add_objects(objects).and_then(|()| self.write_best(commit));
        notes.extend(self.forgive(shown)?);
        let put_right = self.guard.put_right(&self.shown);
        match put_right {
            Ok(lines) => notes.extend(lines),
            Err(error) => notes.extend(self.forgive(Err(error))?),
        }
        self.look()?;
        Ok(notes)
    }

    /// Sees to it that there is a whole repository to write to. A damaged one of the engine's is replaced, through
    /// no link; a user's own that is gone ends the run.
    fn make_whole(&mut self) -> Result<Vec<String>, WorldError> {
        let now = self.directories();
        let seen = self.seen.as_ref();
        let same = seen.is_some() && seen.map(|seen| (seen.git_dir, seen.objects)) == now;
        let there =
            |seen: &Seen| seen.sentinel.as_ref().is_none_or(|path| self.objects_dir().join(path).is_file());
        if same && seen.is_some_and(there) {
            return Ok(Vec::new());
        }
        if self.shown.ours {
            let resumed = self.seen.is_none();
            self.write_anew()?;
            self.look()?;
            let note = "the workspace's .git was damaged and has been written anew".to_owned();
            return Ok(if resumed { Vec::new() } else { vec![note] });
        }
        let gone = || WorldError::RepositoryGone {
            git_dir: self.shown.git_dir.clone(),
            kept_in: self.source.clone(),
        };
        if !same {
            return Err(gone());
        }
        // A collector ran: what it threw away as unreachable is put back.
        self.add_objects(&objects::list(&self.source.join("objects"))?)?;
        Ok(Vec::new())
    }

    /// In a user's own repository a part that cannot be shown is worth a note, not the run: the truth is elsewhere.
    fn forgive(&self, shown: Result<(), WorldError>) -> Result<Vec<String>, WorldError> {
        match shown {
            Err(error) if !self.shown.ours => Ok(vec![format!("failed to {}", with_sources(&error))]),
            other => other.map(|()| Vec::new()),
        }
    }

    fn directories(&self) -> Option<((u64, u64), (u64, u64))> {
        let refs = id(&self.shown.common_dir.join("refs")).is_ok();
        let ids = (id(&self.shown.git_dir).ok()?, id(&self.objects_dir()).ok()?);
        refs.then_some(ids)
    }

    fn look(&mut self) -> Result<(), WorldError> {
        let (git_dir, objects) = self.directories().ok_or_else(|| WorldError::RepositoryGone {
            git_dir: self.shown.git_dir.clone(),
            kept_in: self.source.clone(),
        })?;
        let sentinel = self.best_object();
        let sentinel = sentinel.filter(|path| self.objects_dir().join(path).is_file());
        self.seen = Some(Seen { git_dir, objects, sentinel });
        Ok(())
    }

    /// The file of the best commit, if it is one of its own in the engine's repository.
    fn best_object(&self) -> Option<PathBuf> {
        let sha = fs::read_to_string(self.source.join(branch(&self.run))).ok()?;
        let (fanout, name) = sha.trim_end().split_at_checked(2)?;
        Some(Path::new(fanout).join(name))
    }

    fn objects_dir(&self) -> PathBuf {
        self.shown.common_dir.join("objects")
    }

    /// Writes the whole repository, after removing whatever stands at its place.
    fn write_anew(&mut self) -> Result<(), WorldError> {
        let workspace = Root::open(&self.workspace).map_err(failed)?;
        workspace.remove_any(&rel(Path::new(".git"))?).map_err(failed)?;
        let git_dir = &self.shown.git_dir;
        for sub in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
            let path = git_dir.join(sub);
            fs::create_dir_all(&path).map_err(WorldError::io("make", &path))?;
        }
        let root = Root::open(git_dir).map_err(failed)?;
        let config = layout::projected_config(self.sha256, self.shown.origin.as_deref());
        self.write(&root, "config", &mut config.as_bytes())?;
        self.write(&root, "info/exclude", &mut self.exclude.as_slice())?;
        // Files are kept and put back as they are, so an agent's own git must not convert them either.
        self.write(&root, "info/attributes", &mut layout::ATTRIBUTES.as_bytes())?;
        self.write(&root, "HEAD", &mut format!("ref: {}\n", branch(&self.run)).as_bytes())?;
        for name in ["shallow", "packed-refs"] {
            if let Ok(mut file) = File::open(self.source.join(name)) {
                self.write(&root, name, &mut file)?;
            }
        }
        self.link_objects()?;
        for (name, sha) in
            objects::loose_refs(&self.source, &["refs/heads/crucible", "refs/crucible/candidates"])?
        {
            self.write(&root, &name, &mut sha.as_slice())?;
        }
        Ok(())
    }

    /// Gives the repository all objects. Packs are shared with the engine's repository where the file system can:
    /// git never writes into one. Loose ones are few and are copied.
    fn link_objects(&self) -> Result<(), WorldError> {
        let source = self.source.join("objects");
        let (packs, loose): (Vec<_>, Vec<_>) =
            objects::list(&source)?.into_iter().partition(|path| path.starts_with("pack"));
        for path in packs {
            let target = self.objects_dir().join(&path);
            if fs::hard_link(source.join(&path), &target).is_err() {
                fs::copy(source.join(&path), &target).map_err(WorldError::io("copy objects to", &target))?;
            }
        }
        self.add_objects(&loose)
    }

    fn add_objects(&self, objects: &[PathBuf]) -> Result<(), WorldError> {
        if objects.is_empty() {
            return Ok(());
        }
        let root = Root::open(&self.objects_dir()).map_err(failed)?;
        for path in objects {
            let target = rel(path)?;
            if matches!(root.kind(&target), Ok(Some(Kind::File))) {
                continue;
            }
            let source = self.source.join("objects").join(path);
            let mut file = File::open(&source).map_err(WorldError::io("open", &source))?;
            let options = WriteOptions { mode: 0o444, ..self.options() };
            root.write_atomic(&target, &mut file, options).map_err(failed)?;
        }
        Ok(())
    }

    fn write_best(&self, commit: &CommitSha) -> Result<(), WorldError> {
        let name = branch(&self.run);
        self.write_ref(&name, commit)?;
        let root = Root::open(&self.shown.git_dir).map_err(failed)?;
        let head = format!("ref: {name}\n");
        if root.read(&rel(Path::new("HEAD"))?, 4096).ok().flatten().as_deref() != Some(head.as_bytes()) {
            self.write(&root, "HEAD", &mut head.as_bytes())?;
        }
        let index = self.source.join(self.index);
        let mut file = File::open(&index).map_err(WorldError::io("open", &index))?;
        self.write(&root, "index", &mut file)
    }

    fn write_ref(&self, name: &str, commit: &CommitSha) -> Result<(), WorldError> {
        let root = Root::open(&self.shown.common_dir).map_err(failed)?;
        self.write(&root, name, &mut format!("{commit}\n").as_bytes())
    }

    fn write(
        &self,
        root: &Root,
        name: impl AsRef<Path>,
        content: &mut dyn io::Read,
    ) -> Result<(), WorldError> {
        root.write_atomic(&rel(name.as_ref())?, content, self.options()).map_err(failed)
    }

    /// In a repository of the engine's nothing may stand in the way; in a user's nothing of theirs is removed.
    fn options(&self) -> WriteOptions {
        let obstacles = if self.shown.ours { Obstacles::Remove } else { Obstacles::Refuse };
        WriteOptions { mode: 0o644, durable: false, obstacles }
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

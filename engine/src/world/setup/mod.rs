//! Turns a source of files into a workspace with a pristine base commit and a baseline on top (N15).
//! It refuses to know the manifest: what it takes is resolved already.
//!
//! A setup that was interrupted is told by two files of the state directory. `workspace.json` is written first and
//! says which directory is the engine's to replace; [`SETUP_FILE`](super::SETUP_FILE) is written last. A workspace that
//! is neither is somebody's work, and is never touched.

mod base;
mod inject;
mod persons;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::command::PackRunner;
use super::facts::{Facts, Location, SETUP_FILE, Shown};
use super::git::{Git, NewCommit};
use super::identity::Identity;
use super::objects::Unsynced;
use super::shown::Projection;
use super::workspace::{Place, Workspace, branch};
use super::{CommitSha, Reserved, WorldError, claim, layout, objects, tidy};
use crate::sys::env::Environment;
use base::Base;

/// Where the files of the workspace come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A repository to clone, by URL.
    Url(String),
    /// A directory on this machine, absolute: cloned when it is a repository's root, else copied.
    Local(PathBuf),
    /// `setup_cmd`, run in the manifest's directory.
    Command(String),
    /// Nothing: the injects populate an empty directory.
    Empty,
    /// The manifest's own directory, a repository with at least one commit and nothing uncommitted.
    InPlace,
}

/// A file that is put into the workspace before the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inject {
    /// Where it comes from, absolute.
    pub src: PathBuf,
    /// Where it goes, relative to the workspace, plain components only.
    pub dst: PathBuf,
    /// Whether it is put back before every apply, measure and task.
    pub frozen: bool,
    /// Its permission bits.
    pub mode: u32,
    /// The SHA-256 that its content had when the pack was read.
    pub sha256: [u8; 32],
}

/// What a run's workspace is to be.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The run's name: letters, digits, `.`, `_` and `-`, for its branch `crucible/<run>`.
    pub run: String,
    /// State directory, workspace and what lies inside.
    pub place: Place,
    /// The manifest's directory, absolute.
    pub manifest_dir: PathBuf,
    /// Where the files come from.
    pub source: Source,
    /// `[repo].ref`: a branch, tag or commit.
    pub reference: Option<String>,
    /// Whether the workspace's repository has the upstream's history, tags and remote branches (N11).
    pub history: bool,
    /// Injects, in order.
    pub injects: Vec<Inject>,
    /// The user's environment, for the one step that may use their git configuration and credentials.
    pub user_env: Environment,
}

/// Sets workspaces up.
#[derive(Debug)]
pub struct Setup<'a> {
    spec: &'a Spec,
    runner: &'a PackRunner,
}

impl<'a> Setup<'a> {
    /// The setup that `spec` describes; `runner` runs `setup_cmd`.
    pub fn new(spec: &'a Spec, runner: &'a PackRunner) -> Setup<'a> {
        Setup { spec, runner }
    }

    /// Sets the workspace up. What an interrupted setup or a finished run of this state directory left at its place is
    /// replaced; anything else there is an error. The caller holds the state directory's lock.
    ///
    /// # Errors
    /// [`WorldError`], naming what is missing or in the way.
    pub async fn run(self) -> Result<Workspace, WorldError> {
        let spec = self.spec;
        self.forget_torn_setup()?;
        if spec.source != Source::InPlace {
            claim::clear(&spec.place)?;
        }
        let base = self.base().await?;
        let git = spec.place.git();
        let reserved = Reserved::with(&spec.place.own);
        let submodules = git.entries(|mode, _| mode == b"160000").await?;
        persons::require_hollow(&spec.place.workspace, &submodules)?;
        git.freeze_entries(&submodules).await?;
        let named = git.entries(|_, path| reserved.covers(path)).await?;
        if spec.source == Source::InPlace {
            persons::require_untracked_state(spec, &named)?;
            persons::require_clean(spec, &git, &base, &named, &submodules).await?;
        }
        persons::require_no_markers(&spec.place.workspace, &named)?;
        git.freeze_entries(&named).await?;
        let frozen = inject::put_all(spec, &git, &base.commit, &submodules).await?;
        let mut known = tidy::sweep(&spec.place.workspace, &reserved)?.into_all();
        known.extend(tidy::large(&spec.place.workspace, &reserved)?);
        let baseline = self.baseline(&git, &reserved, &base).await?;
        let (mut ignored, mut empty) = (Vec::new(), Vec::new());
        if spec.source == Source::InPlace {
            ignored = persons::ignored(spec, &git, &reserved).await?;
            empty = persons::empty_directories(spec, &git).await?;
        }
        let facts = Facts {
            run: spec.run.clone(),
            workspace: Location {
                path: spec.place.workspace.clone(),
                id: Identity::of(&spec.place.workspace)?,
            },
            base: base.commit,
            baseline,
            date: base.date,
            shown: base.shown,
            fixed: [named, submodules.clone()].concat(),
            hollow: submodules.clone(),
            submodules,
            ignored,
            empty,
            results: persons::has_results(&spec.place.workspace)?,
            known,
            frozen,
        };
        self.finish(&git, facts).await
    }

    /// The injects, and all that setup left uncommitted, on top of the base.
    async fn baseline(&self, git: &Git, reserved: &Reserved, base: &Base) -> Result<CommitSha, WorldError> {
        git.add(reserved.pathspecs()).await?;
        let injected = self.spec.injects.iter().map(|inject| &inject.dst);
        let injected: Vec<PathBuf> = injected.filter(|dst| !reserved.covers(dst)).cloned().collect();
        git.add_forced(&injected).await?;
        let tree = git.write_tree().await?;
        let of_base = git.resolve(&format!("{}^{{tree}}", base.commit)).await?;
        if of_base.as_ref() == Some(&tree) {
            return Ok(base.commit.clone());
        }
        let message = "crucible: baseline".to_owned();
        git.commit(&NewCommit { tree: &tree, parent: Some(&base.commit), message, date: base.date }).await
    }

    /// Writes what makes the setup a finished one: refs, the repository that is shown, and last the facts.
    async fn finish(&self, git: &Git, facts: Facts) -> Result<Workspace, WorldError> {
        let state_dir = &self.spec.place.state_dir;
        objects::write_ref(git.dir(), &branch(&facts.run), &facts.baseline, true)?;
        objects::write_head(git.dir(), &branch(&facts.run))?;
        let objects = objects::list(&git.dir().join("objects"))?;
        let mut shown = Projection::create(git, &facts, &Reserved::with(&self.spec.place.own))?;
        git.save_index()?;
        if facts.shows_unmarked() {
            git.write_unmarked(&facts.fixed).await?;
        }
        shown.show_best(&objects, &facts.baseline)?;
        let mut unsynced = Unsynced::default();
        unsynced.add(git.dir(), &objects);
        unsynced.sync(git.dir())?;
        if self.spec.source != Source::InPlace {
            claim::settle(state_dir, &self.spec.place.workspace, &self.spec.place.workspace)?;
        }
        claim::write_private(&state_dir.join(SETUP_FILE), &facts.to_json()?)?;
        let baseline = facts.baseline.clone();
        Workspace::assemble(&self.spec.place, facts, shown, baseline).await
    }

    /// Removes what an earlier setup left in the state directory.
    fn forget_torn_setup(&self) -> Result<(), WorldError> {
        let state_dir = &self.spec.place.state_dir;
        for name in [SETUP_FILE, super::shown::GUARD_FILE] {
            let path = state_dir.join(name);
            missing_is_fine(fs::remove_file(&path)).map_err(WorldError::io("remove", &path))?;
        }
        for name in ["git", "git.full", "frozen", super::agent::DIRECTORY] {
            let path = state_dir.join(name);
            missing_is_fine(fs::remove_dir_all(&path)).map_err(WorldError::io("remove", &path))?;
        }
        Ok(())
    }
}

/// Makes the engine's own repository in `dir`, empty.
fn init(dir: &Path, sha256: bool, exclude: &[u8]) -> Result<(), WorldError> {
    layout::lay_out(dir, "refs/heads/crucible/unborn", (&layout::private_config(sha256), exclude), true)
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The repository that is written into a workspace of the engine's.
fn shown_in(workspace: &Path, origin: Option<String>) -> Shown {
    let git_dir = workspace.join(".git");
    Shown { ours: true, common_dir: git_dir.clone(), git_dir, origin }
}

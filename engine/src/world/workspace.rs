//! Turns what an agent left in the workspace into a commit on top of the best, and commits back into the workspace.
//! It refuses to know scores, and trusts nothing in the workspace: only the tree of files is read from it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::agent::AgentRepository;
use super::facts::{Facts, SETUP_FILE};
use super::frozen::FrozenFiles;
use super::git::{Git, NewCommit};
use super::identity::Identity;
use super::objects::{self, Unsynced};
use super::shown::Projection;
use super::{CommitSha, Diff, Reserved, WorldError};
use super::{claim, stage, tidy};
use crate::sys::env::Environment;

/// The workspace of one run and the engine's own repository of it, `state/git`.
///
/// Between two calls nothing may run in the workspace that belongs to this run: agents and pack commands have
/// ended, with all that they started.
#[derive(Debug)]
pub struct Workspace {
    pub(super) git: Git,
    pub(super) facts: Facts,
    pub(super) reserved: Reserved,
    shown: Projection,
    best: Point,
    recorded: Option<Point>,
    unsynced: Unsynced,
    /// Links that have been seen to stand nowhere in the way of the best's files.
    links: BTreeSet<PathBuf>,
    /// Ignore files that have been seen to be the best's.
    pub(super) rules: BTreeSet<PathBuf>,
    agent: Option<AgentRepository>,
    pub(super) notes: Vec<String>,
}

/// A commit and its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) commit: CommitSha,
    pub(super) tree: CommitSha,
}

/// A best that a world may have to go back to.
#[derive(Debug)]
pub(super) struct Position(Point);

/// What an iteration left in the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// A candidate, reachable under `refs/crucible/candidates/<run>/<iter>` whether it is kept or not.
    Candidate(Candidate),
    /// Something that is no candidate: the iteration is invalid and the run goes on.
    Refused {
        /// What stands in the way, by name.
        why: String,
    },
}

/// A recorded candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its commit; the best one's when nothing was changed.
    pub commit: CommitSha,
    /// Its tree.
    pub tree: CommitSha,
    /// Whether its tree differs from the best one's.
    pub changed: bool,
    /// The difference from the best.
    pub diff: Diff,
}

/// What is needed to find a workspace again that setup has finished.
#[derive(Debug, Clone)]
pub struct Place {
    /// The state directory, absolute; the caller holds its lock.
    pub state_dir: PathBuf,
    /// The workspace, absolute.
    pub workspace: PathBuf,
    /// What else of the engine lies inside the workspace, relative to it (in place: state, `STEER.md`).
    pub own: Vec<PathBuf>,
    /// Where `PATH` is taken from.
    pub env: Environment,
}

impl Place {
    pub(super) fn git(&self) -> Git {
        Git::new(&self.state_dir.join("git"), &self.workspace, &self.env)
    }
}

impl Workspace {
    /// Opens the workspace of a run that was set up before. The best is what its branch in `state/git` names;
    /// the files are as they were left, so the caller restores before it goes on. Locks that a dead process left
    /// are removed with a note.
    ///
    /// # Errors
    /// [`WorldError::NotSetUp`] when setup never finished, or the directory is not the one that was set up.
    pub async fn open(place: &Place) -> Result<Workspace, WorldError> {
        let refuse = |why: &str| WorldError::NotSetUp { path: place.workspace.clone(), why: why.to_owned() };
        let facts = Facts::read(&place.state_dir)?.ok_or_else(|| refuse("its setup was never finished"))?;
        if facts.workspace.path != place.workspace {
            let other = format!("{SETUP_FILE} is of {}", facts.workspace.path.display());
            return Err(refuse(&other));
        }
        if Identity::of(&place.workspace)? != facts.workspace.id {
            return Err(refuse("another directory has taken its place since setup"));
        }
        let git = place.git();
        let mut notes = objects::remove_stale_locks(git.dir())?;
        let best = git.resolve(&branch(&facts.run)).await?.ok_or_else(|| refuse("its branch is gone"))?;
        // The index may name objects of a step that died before they were moved in.
        git.forget_index()?;
        git.read_index(&best).await?;
        git.freeze_entries(&facts.fixed).await?;
        let shown = Projection::open(&git, &facts, &Reserved::with(&place.own))?;
        notes.extend(shown.remove_stale_locks()?);
        let mut workspace = Workspace::assemble(place, facts, shown, best).await?;
        workspace.notes = notes;
        Ok(workspace)
    }

    pub(super) async fn assemble(
        place: &Place,
        facts: Facts,
        shown: Projection,
        best: CommitSha,
    ) -> Result<Workspace, WorldError> {
        let git = place.git();
        let best = point(&git, best).await?;
        let reserved = Reserved::with(&place.own).and(&facts.ignored);
        Ok(Workspace {
            git,
            facts,
            reserved,
            shown,
            best,
            recorded: None,
            unsynced: Unsynced::default(),
            links: BTreeSet::new(),
            rules: BTreeSet::new(),
            agent: None,
            notes: Vec::new(),
        })
    }

    /// What setup found out.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The workspace's directory.
    pub fn path(&self) -> &Path {
        self.git.work_tree()
    }

    /// The commit that candidates are compared with.
    pub fn best(&self) -> &CommitSha {
        &self.best.commit
    }

    /// The frozen injects.
    pub fn frozen(&self) -> FrozenFiles {
        FrozenFiles::of(&self.facts, self.git.dir())
    }

    /// What was removed or put right since the last call, for the log.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The bytes of `path` in the pristine base commit, for frozen loading (contract §1).
    ///
    /// # Errors
    /// [`WorldError`] when git fails; a file that is not there is `None`.
    pub async fn base_file(&self, path: &Path) -> Result<Option<Vec<u8>>, WorldError> {
        self.git.show(&self.facts.base, path).await
    }

    /// The repository that a sandboxed agent sees instead of the engine's (N11), `state/agent.git`, brought to the
    /// best. To be called when the files are the best's: before the first turn, and after a keep or a restore.
    ///
    /// `HEAD` is the branch `main`, which is one commit without a parent; its tree is the best's. No tag, reflog or
    /// other branch is there, and neither is an object of the upstream's history or of a candidate that was not kept.
    /// Objects of earlier bests may be, out of reach of any ref, until the repository is next made whole, which is
    /// after every twenty changes.
    ///
    /// With `history`, and where the files came from a clone, the commit stands on the base commit, and the
    /// upstream's tags, remote branches and `origin` are there too. A repository that `setup_cmd` left, or that is
    /// worked on in place, is shown as one commit all the same: the engine's own has no more of its history.
    ///
    /// The directory is the same between turns, and nothing is done when the best is the same. Nothing may be written
    /// to it but by this, and no sandbox may show it meanwhile.
    ///
    /// # Errors
    /// [`WorldError`] when git fails; the next call then makes the whole repository anew.
    pub async fn agent_repository(&mut self) -> Result<PathBuf, WorldError> {
        let known = self.agent.take().filter(AgentRepository::is_there);
        let shown = match known {
            Some(shown) => shown.update(&self.git, &self.facts, &self.best.tree).await?,
            None => AgentRepository::build(&self.git, &self.facts, &self.best.tree).await?,
        };
        let path = shown.path().to_owned();
        self.agent = Some(shown);
        Ok(path)
    }

    /// Records the files as they are now as the candidate of iteration `iter`, on top of the best. Special files
    /// that are new are removed, with a note. Commits, branches and index of the workspace's own repository do
    /// not matter.
    ///
    /// # Errors
    /// [`WorldError`] when the engine's own repository fails; what a candidate did wrong is [`Recorded::Refused`].
    pub async fn record(&mut self, iter: u32) -> Result<Recorded, WorldError> {
        self.record_unless(iter, &CancellationToken::new()).await
    }

    /// As [`Workspace::record`], until `cancel` says to end it: then the files are no candidate. Neither are they when
    /// a step takes git longer than ten minutes, nor with a file of more than 4 GiB that is not ignored.
    ///
    /// # Errors
    /// As [`Workspace::record`].
    pub async fn record_unless(
        &mut self,
        iter: u32,
        cancel: &CancellationToken,
    ) -> Result<Recorded, WorldError> {
        let refused = |why| Ok(Recorded::Refused { why });
        match self.recorded_unless(iter, cancel).await {
            Ok(Ok(candidate)) => Ok(Recorded::Candidate(candidate)),
            Ok(Err(why)) => refused(why),
            Err(error) => stage::given_up(error).map_err(|error| self.explained(error)).and_then(refused),
        }
    }

    async fn recorded_unless(
        &mut self,
        iter: u32,
        cancel: &CancellationToken,
    ) -> Result<Result<Candidate, String>, WorldError> {
        self.recorded = None;
        if let Some(why) = self.missing()? {
            return Ok(Err(why));
        }
        if let Some(module) = tidy::filled(self.git.work_tree(), &self.facts.hollow)? {
            return Ok(Err(format!(
                "the candidate fills the submodule {}, which is not tracked",
                tidy::shown(&module)
            )));
        }
        let tree = match self.stage(cancel).await? {
            Ok(tree) => tree,
            Err(why) => return Ok(Err(why)),
        };
        let changed = tree != self.best.tree;
        let (commit, diff) = if changed {
            let git = self.git.quarantined().bounded(stage::LIMIT, cancel.clone());
            let message = format!("crucible: candidate {iter}");
            let new = self.successor(&tree, message, iter);
            tokio::try_join!(git.commit(&new), git.diff(&self.best.tree, &tree))?
        } else {
            (self.best.commit.clone(), Diff::default())
        };
        let objects = self.promote()?;
        let name = candidate_ref(&self.facts.run, iter);
        objects::write_ref(self.git.dir(), &name, &commit, false)?;
        self.notes.extend(self.shown.show_candidate(&objects, &name, &commit)?);
        self.recorded = Some(Point { commit: commit.clone(), tree: tree.clone() });
        Ok(Ok(Candidate { commit, tree, changed, diff }))
    }

    /// Makes the files as they are now the best, and returns their commit: the recorded candidate's where apply
    /// and measure changed nothing since.
    ///
    /// # Errors
    /// [`WorldError::Unstageable`] when the files cannot be staged; then the best is what it was.
    pub async fn keep(&mut self) -> Result<CommitSha, WorldError> {
        // Apply and measure may have filled them; the next candidate must not be held to that.
        if self.missing()?.is_none() {
            tidy::put_back_submodules(self.git.work_tree(), &self.facts.hollow)?;
        }
        let staged = self.stage(&CancellationToken::new()).await.map_err(|error| self.explained(error))?;
        let tree = staged.map_err(|why| WorldError::Unstageable { why })?;
        let known = [self.recorded.as_ref(), Some(&self.best)].into_iter().flatten();
        let commit = match known.into_iter().find(|point| point.tree == tree) {
            Some(point) => point.commit.clone(),
            None => {
                let new = self.successor(&tree, "crucible: kept".to_owned(), 0);
                self.git.quarantined().commit(&new).await?
            }
        };
        let objects = self.promote()?;
        self.unsynced.sync(self.git.dir())?;
        self.git.save_index()?;
        self.settle(&objects, Point { commit: commit.clone(), tree }).await?;
        Ok(commit)
    }

    /// Brings the files back to `commit`, which becomes the best. A workspace that was removed or replaced is made anew. Files stay that its rules ignore, whatever the
    /// candidate's say, and so do reserved ones and, in place, those that were ignored at setup.
    ///
    /// # Errors
    /// [`WorldError`] when any of it fails; then the workspace cannot be relied on.
    pub async fn restore(&mut self, commit: &CommitSha) -> Result<(), WorldError> {
        self.restore_files(commit).await.map_err(|error| self.explained(error))
    }

    async fn restore_files(&mut self, commit: &CommitSha) -> Result<(), WorldError> {
        if self.missing()?.is_some() {
            self.make_anew(commit).await?;
        }
        let to = self.known(commit).await?;
        let mut found = self.tidy()?;
        self.git.put_back_index(&self.best.commit, &self.facts.fixed).await?;
        if !found.links.is_subset(&self.links) {
            let files = self.git.entries(|_, _| true).await?;
            tidy::remove_links_above(self.git.work_tree(), &mut found.links, &files)?;
        }
        self.git.reset(commit).await?;
        // Only now are the rules those of the commit.
        let inner = self.not_ignored(tidy::standing(self.git.work_tree(), found.repositories)?).await?;
        tidy::remove(self.git.work_tree(), &inner)?;
        self.remove_foreign_rules(&found.rules).await?;
        self.git.clean(self.reserved.clean_excludes()).await?;
        tidy::put_back_submodules(self.git.work_tree(), &self.facts.hollow)?;
        tidy::put_back_empty(self.git.work_tree(), &self.facts.empty)?;
        self.recorded = None;
        self.links = found.links;
        self.git.save_index()?;
        self.settle(&[], to).await
    }

    /// Finds the candidate of iteration `iter` again, which another process recorded on top of `best`, and makes `best`
    /// the best; without one, that is the baseline. Iteration 0 is the baseline itself, which nobody recorded.
    ///
    /// With `files` the workspace holds the candidate's files afterwards; without, they stay as they are.
    ///
    /// # Errors
    /// [`WorldError`] when git fails; [`WorldError::UnknownCommit`] when `best` is not there, or files are asked for
    /// and the candidate is not.
    pub async fn recall(
        &mut self,
        iter: u32,
        best: Option<&CommitSha>,
        files: bool,
    ) -> Result<Option<Candidate>, WorldError> {
        let best = point(&self.git, best.unwrap_or(&self.facts.baseline).clone()).await?;
        let found = match iter {
            0 => None,
            _ => self.git.resolve(&candidate_ref(&self.facts.run, iter)).await?,
        };
        if files {
            let commit = found.clone().unwrap_or_else(|| best.commit.clone());
            if found.is_none() && iter > 0 {
                return Err(WorldError::NoCandidate { iter });
            }
            self.restore(&commit).await?;
        }
        if best != self.best {
            self.return_to(Position(best)).await?;
        }
        let Some(commit) = found else { return Ok(None) };
        let Point { commit, tree } = point(&self.git, commit).await?;
        let changed = tree != self.best.tree;
        let diff = if changed { self.git.diff(&self.best.tree, &tree).await? } else { Diff::default() };
        self.recorded = Some(Point { commit: commit.clone(), tree: tree.clone() });
        Ok(Some(Candidate { commit, tree, changed, diff }))
    }

    /// The best, for [`Workspace::return_to`].
    pub(super) fn position(&self) -> Position {
        Position(self.best.clone())
    }

    /// Makes an earlier position the best again, where a keep turned out not to hold. The files stay as they are.
    pub(super) async fn return_to(&mut self, position: Position) -> Result<(), WorldError> {
        self.git.forget_index()?;
        self.settle(&[], position.0).await
    }

    fn promote(&mut self) -> Result<Vec<PathBuf>, WorldError> {
        let objects = objects::promote(&self.git)?;
        self.unsynced.add(self.git.dir(), &objects);
        Ok(objects)
    }

    /// Makes `point` the best here and in the workspace's repository.
    async fn settle(&mut self, objects: &[PathBuf], point: Point) -> Result<(), WorldError> {
        if point != self.best {
            objects::write_ref(self.git.dir(), &branch(&self.facts.run), &point.commit, true)?;
            self.best = point;
            self.links.clear();
            self.rules.clear();
        }
        if self.facts.shows_unmarked() {
            self.git.write_unmarked(&self.facts.fixed).await?;
        }
        self.notes.extend(self.shown.show_best(objects, &self.best.commit)?);
        if !self.facts.shown.ours {
            return Ok(());
        }
        let state_dir = self.git.dir().parent().unwrap_or(self.git.dir());
        claim::renew(state_dir, self.git.work_tree(), &self.facts.workspace.id)
    }

    fn successor<'a>(&'a self, tree: &'a CommitSha, message: String, iter: u32) -> NewCommit<'a> {
        let date = self.facts.date.saturating_add(1).saturating_add(i64::from(iter));
        NewCommit { tree, parent: Some(&self.best.commit), message, date }
    }

    async fn known(&self, commit: &CommitSha) -> Result<Point, WorldError> {
        let seen = [Some(&self.best), self.recorded.as_ref()].into_iter().flatten();
        match seen.into_iter().find(|point| point.commit == *commit) {
            Some(point) => Ok(point.clone()),
            None => point(&self.git, commit.clone()).await,
        }
    }
}

/// The name of an iteration's candidate.
fn candidate_ref(run: &str, iter: u32) -> String {
    format!("refs/crucible/candidates/{run}/{iter}")
}

/// The branch of the run's best.
pub(super) fn branch(run: &str) -> String {
    format!("refs/heads/crucible/{run}")
}

async fn point(git: &Git, commit: CommitSha) -> Result<Point, WorldError> {
    match git.resolve(&format!("{commit}^{{tree}}")).await? {
        Some(tree) => Ok(Point { commit, tree }),
        None => Err(WorldError::UnknownCommit { commit }),
    }
}

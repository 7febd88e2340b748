//! Turns the tree of the best into the repository that a sandboxed agent sees: the code as it is (N11).
//! It refuses to know how that repository is shown, and reads nothing back from it.
//!
//! The repository is written between turns alone. All git here runs on the engine's own repository and puts objects
//! and index elsewhere, so that what stands in this one never acts on the host.

use std::fs::{self, File, FileTimes};
use std::io;
use std::path::{Path, PathBuf};

use super::facts::Facts;
use super::git::{Git, NewCommit};
use super::{CommitSha, WorldError, claim, layout, objects, tidy};
use crate::sys::fs::{PrivateFile, private_file};

/// Its name in the state directory.
pub(super) const DIRECTORY: &str = "agent.git";

/// The branch that `HEAD` is on.
const BRANCH: &str = "refs/heads/main";

/// How many packs are added before everything that no ref reaches goes.
pub(super) const PACKS: u32 = 20;

/// The repository as this process has written it. It is not flushed to disk: another process makes it anew.
#[derive(Debug)]
pub(super) struct AgentRepository {
    dir: PathBuf,
    tree: CommitSha,
    commit: CommitSha,
    history: Option<History>,
    added: u32,
}

/// What the repository has of the upstream.
#[derive(Debug)]
struct History {
    /// The commit that the shown one stands on.
    base: CommitSha,
    /// The pack with all of it, by its name without an extension.
    pack: String,
}

impl AgentRepository {
    /// Makes the whole repository, in the place of any that is there.
    pub(super) async fn build(
        git: &Git,
        facts: &Facts,
        tree: &CommitSha,
    ) -> Result<AgentRepository, WorldError> {
        let dir = git.dir().with_file_name(DIRECTORY);
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(WorldError::io("remove", &dir)(error));
            }
            _ => {}
        }
        // What the engine's own repository ignores is more than what is reserved: in place, the user's own rules too.
        let exclude = git.dir().join("info/exclude");
        let exclude = fs::read(&exclude).map_err(WorldError::io("read", &exclude))?;
        let config = layout::projected_config(facts.base.is_sha256(), facts.shown.origin.as_deref());
        layout::lay_out(&dir, BRANCH, (&config, &exclude), false)?;
        let history = match &facts.shown.origin {
            Some(_) => Some(History::copy(git, facts, &dir).await?),
            None => None,
        };
        let mut shown =
            AgentRepository { dir, tree: tree.clone(), commit: facts.base.clone(), history, added: 0 };
        let floor = shown.floor();
        shown.advance(git, facts, tree, &floor).await?;
        Ok(shown)
    }

    /// Brings it to another tree, and from time to time rids it of those before.
    pub(super) async fn update(
        mut self,
        git: &Git,
        facts: &Facts,
        tree: &CommitSha,
    ) -> Result<AgentRepository, WorldError> {
        if *tree == self.tree {
            return Ok(self);
        }
        if self.added < PACKS {
            self.added += 1;
            let previous = [self.commit.clone()];
            self.advance(git, facts, tree, &previous).await?;
        } else {
            self.added = 0;
            self.empty()?;
            let floor = self.floor();
            self.advance(git, facts, tree, &floor).await?;
        }
        Ok(self)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.dir
    }

    /// Whether it is still where it was written.
    pub(super) fn is_there(&self) -> bool {
        tidy::id(&self.dir).is_ok()
    }

    /// Adds a commit of `tree` with what `present` does not reach of it, and makes it what is shown.
    async fn advance(
        &mut self,
        git: &Git,
        facts: &Facts,
        tree: &CommitSha,
        present: &[CommitSha],
    ) -> Result<(), WorldError> {
        let git = git.filling(&self.dir);
        let parent = self.history.as_ref().map(|history| &history.base);
        let message = "crucible: the code as it is".to_owned();
        let commit = git.commit(&NewCommit { tree, parent, message, date: facts.date }).await?;
        git.pack(&self.dir.join("objects"), std::slice::from_ref(&commit), present).await?;
        copy_index(git.dir(), &self.dir)?;
        // What the files looked like when they were staged is kept for every path that is as the tree has it.
        git.read_index(&commit).await?;
        objects::write_ref(&self.dir, BRANCH, &commit, false)?;
        self.commit = commit;
        self.tree = tree.clone();
        Ok(())
    }

    /// What is there in any case.
    fn floor(&self) -> Vec<CommitSha> {
        self.history.iter().map(|history| history.base.clone()).collect()
    }

    /// Removes all objects but those of the history.
    fn empty(&self) -> Result<(), WorldError> {
        let objects = self.dir.join("objects");
        let lasting = self.history.as_ref().map(|history| Path::new("pack").join(&history.pack));
        for file in objects::list(&objects)? {
            if lasting.as_ref() != Some(&file.with_extension("")) {
                let file = objects.join(file);
                fs::remove_file(&file).map_err(WorldError::io("remove", &file))?;
            }
        }
        Ok(())
    }
}

impl History {
    /// Copies the base commit, and the names that setup fetched, with all that they reach.
    async fn copy(git: &Git, facts: &Facts, dir: &Path) -> Result<History, WorldError> {
        let mut wants = vec![facts.base.clone()];
        for name in ["shallow", "packed-refs"] {
            let from = git.dir().join(name);
            match fs::read(&from) {
                Ok(bytes) => {
                    claim::write_passing(&dir.join(name), &bytes)?;
                    if name == "packed-refs" {
                        wants.extend(named(&bytes));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(WorldError::io("read", &from)(source)),
            }
        }
        let pack = git.filling(dir).pack(&dir.join("objects"), &wants, &[]).await?;
        Ok(History { base: facts.base.clone(), pack })
    }
}

/// The objects that a `packed-refs` file names. Its other lines begin with `#` or, for what a tag stands for, `^`.
fn named(packed_refs: &[u8]) -> Vec<CommitSha> {
    let text = String::from_utf8_lossy(packed_refs);
    text.lines().filter_map(|line| CommitSha::parse(line.split_once(' ')?.0)).collect()
}

/// Copies the index with its time, which tells git which of its entries it cannot rely on.
fn copy_index(from: &Path, to: &Path) -> Result<(), WorldError> {
    let (from, to) = (from.join("index"), to.join("index"));
    let mut target = private_file(&to, PrivateFile::Truncate).map_err(tidy::failed)?;
    let mut copy = || {
        let mut source = File::open(&from)?;
        io::copy(&mut source, &mut target)?;
        target.set_times(FileTimes::new().set_modified(source.metadata()?.modified()?))
    };
    copy().map_err(WorldError::io("copy the index to", &to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_packed_refs_file_are_read_and_its_other_lines_passed_over() {
        let (a, b, c) = ("a".repeat(40), "b".repeat(40), "c".repeat(40));
        let text = format!(
            "# pack-refs with: peeled fully-peeled sorted\n{a} refs/remotes/origin/main\n{b} refs/tags/v1\n^{c}\nx y\n"
        );
        let found: Vec<String> = named(text.as_bytes()).iter().map(ToString::to_string).collect();
        assert_eq!(found, [a, b]);
    }
}

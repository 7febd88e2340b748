//! Turns the ignore files of a workspace into those of the best, so that a discard goes by its rules alone.
//! It refuses to know what they ignore: git says that.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::workspace::Workspace;
use super::{WorldError, tidy};

impl Workspace {
    /// Removes ignore files that are not the best's, so that cleaning goes by its rules alone. One that is ignored itself
    /// stays, as all that is, unless it takes something out of what the best ignores.
    pub(super) async fn remove_foreign_rules(&mut self, rules: &BTreeSet<PathBuf>) -> Result<(), WorldError> {
        let new = rules.difference(&self.rules).filter(|path| !self.reserved.covers(path));
        let mut foreign: Vec<PathBuf> = new.cloned().collect();
        if foreign.is_empty() {
            return Ok(());
        }
        let tracked = self.git.entries(|_, path| foreign.iter().any(|other| other == path)).await?;
        foreign.retain(|path| !tracked.contains(path));
        self.rules.extend(tracked);
        let negating = tidy::negating(self.git.work_tree(), &foreign)?;
        let decisive = |path: &Path| match path.parent() {
            Some(dir) if negating.contains(path) => dir.to_owned(),
            _ => path.to_owned(),
        };
        // One that is removed may have been what had another ignored.
        while !foreign.is_empty() {
            let asked = foreign.iter().map(|path| decisive(path)).filter(|path| !path.as_os_str().is_empty());
            let ignored = self.git.ignored(&asked.collect::<Vec<_>>()).await?;
            let (left, removed): (Vec<_>, Vec<_>) =
                foreign.into_iter().partition(|path| ignored.contains(&decisive(path)));
            tidy::remove(self.git.work_tree(), &removed)?;
            if removed.is_empty() {
                break;
            }
            foreign = left;
        }
        Ok(())
    }
}

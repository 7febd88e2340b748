//! Turns the brief of a run into `RESULTS.md`, the engine's memory for the agent in the workspace (note N10).
//! It refuses to replace a file of that name that was there before any agent ran.

use std::fmt::Write;
use std::path::Path;

use super::status::{Brief, line};
use crate::sys::chain;
use crate::sys::fs::{Obstacles, RelPath, Root, WriteOptions};
use crate::world::{RESULTS, RESULTS_MARK};

/// The most that is read of what stands there, in bytes; more is not what the engine wrote.
const READ_MAX: u64 = 1024 * 1024;

/// Writes the memory where it has changed.
#[derive(Debug)]
pub struct Results {
    /// Whether what stands there was there before any agent ran.
    theirs: bool,
    /// Whether that was said.
    said: bool,
}

impl Results {
    /// The memory of a workspace in which a file of that name is somebody else's (`theirs`), or no file is.
    #[must_use]
    pub fn new(theirs: bool) -> Results {
        Results { theirs, said: false }
    }

    /// Writes what the brief says, through no link. Where the same stands there, the file is left alone; whatever else
    /// a turn left there is replaced.
    ///
    /// # Errors
    /// A remark for the log: that the file is somebody else's, once, or that it cannot be written.
    pub fn write(&mut self, workspace: &Path, brief: &Brief) -> Result<(), String> {
        if self.theirs {
            if std::mem::replace(&mut self.said, true) {
                return Ok(());
            }
            return Err(format!("the workspace has a {RESULTS} of its own, so the engine writes none"));
        }
        // INVARIANT: the name is a constant of this crate, and a relative path.
        let Ok(path) = RelPath::parse(RESULTS) else { return Ok(()) };
        let text = text(brief);
        let failed = |error| format!("{RESULTS} is not up to date: failed to {}", chain(&error));
        let root = Root::open(workspace).map_err(failed)?;
        if matches!(root.read(&path, READ_MAX), Ok(Some(there)) if there == text.as_bytes()) {
            return Ok(());
        }
        let options = WriteOptions { mode: 0o644, durable: false, obstacles: Obstacles::Remove };
        root.write_atomic(&path, &mut text.as_bytes(), options).map_err(failed)
    }
}

/// Takes the memory away, for a workspace that is a person's repository.
pub fn remove(workspace: &Path) {
    // INVARIANT: the name is a constant of this crate, and a relative path.
    let Ok(path) = RelPath::parse(RESULTS) else { return };
    // What cannot be removed is one file that is in no commit.
    let _ = Root::open(workspace).and_then(|root| root.remove_any(&path));
}

/// The memory: where the run stands, and each iteration that is remembered, the newest last.
fn text(brief: &Brief) -> String {
    let mut text = format!("{RESULTS_MARK}\n\n# Results\n\n");
    let Brief { objective, direction, .. } = brief;
    let _ = writeln!(text, "The objective is `{}`; {direction} is better.", objective.escape_debug());
    if let Some(regime) = &brief.regime {
        let _ = writeln!(text, "Regime: {}.", regime.escape_debug());
    }
    if let Some(baseline) = brief.baseline {
        let _ = writeln!(text, "Baseline: {baseline}.");
    }
    if let Some((best, iter)) = brief.best {
        let _ = writeln!(text, "Best: {best}, from iteration {iter}.");
    }
    if !brief.recent.is_empty() {
        text.push('\n');
    }
    for recent in brief.recent.iter() {
        let _ = writeln!(text, "{}", line(recent));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Recent;
    use crate::log::Decision;
    use crate::score::{Direction, Score};
    use std::os::unix::fs::MetadataExt as _;

    fn brief(settled: u32) -> Brief {
        let recent = (1..=settled).map(|iter| Recent {
            iter,
            decision: Decision::Discard,
            score: Score::new(f64::from(iter)),
            note: "slow".into(),
        });
        Brief {
            iter: settled + 1,
            iters_total: 9,
            objective: "score".into(),
            direction: Direction::Higher,
            baseline: Score::new(1.0),
            best: Some((Score::new(1.0).unwrap(), 0)),
            recent: std::sync::Arc::new(recent.collect()),
            cost_left: None,
            unbuilt: None,
            regime: None,
            steer: "not for the memory".into(),
        }
    }

    #[test]
    fn it_is_written_when_it_changed_and_only_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RESULTS);
        let mut results = Results::new(false);
        results.write(dir.path(), &brief(2)).unwrap();
        let (text, inode) = (std::fs::read_to_string(&path).unwrap(), path.metadata().unwrap().ino());
        assert!(text.ends_with("- 1: discarded, 1 (slow)\n- 2: discarded, 2 (slow)\n"), "{text}");
        assert!(!text.contains("not for the memory"));
        results.write(dir.path(), &brief(2)).unwrap();
        assert_eq!(path.metadata().unwrap().ino(), inode, "the same is not written again");
        results.write(dir.path(), &brief(3)).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("- 3: discarded, 3 (slow)\n"));
        remove(dir.path());
        assert!(!path.exists());
    }

    #[test]
    fn somebody_elses_file_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RESULTS);
        std::fs::write(&path, "mine").unwrap();
        let mut results = Results::new(true);
        assert!(results.write(dir.path(), &brief(1)).unwrap_err().contains("of its own"));
        assert_eq!(results.write(dir.path(), &brief(1)), Ok(()), "it is said once");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn whatever_a_turn_leaves_there_is_replaced_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RESULTS);
        let outside = tempfile::NamedTempFile::new().unwrap();
        let mut results = Results::new(false);
        let leave: [&dyn Fn(); 4] = [
            &|| std::os::unix::fs::symlink(outside.path(), &path).unwrap(),
            &|| std::os::unix::fs::symlink("nowhere", &path).unwrap(),
            &|| std::fs::create_dir_all(path.join("deep/er")).unwrap(),
            &|| std::fs::write(&path, "the turn's").unwrap(),
        ];
        for leave in leave {
            leave();
            results.write(dir.path(), &brief(1)).unwrap();
            assert!(path.symlink_metadata().unwrap().is_file());
            assert!(std::fs::read_to_string(&path).unwrap().starts_with(RESULTS_MARK));
            std::fs::remove_file(&path).unwrap();
        }
        assert_eq!(std::fs::read_to_string(outside.path()).unwrap(), "");
        std::os::unix::fs::symlink(outside.path(), &path).unwrap();
        remove(dir.path());
        assert!(path.symlink_metadata().is_err() && outside.path().exists());
    }
}

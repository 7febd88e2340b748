//! Turns a session log into a verdict on it: every decision made again, every commit looked up (contract §4, §7).
//! It refuses to change anything.

use std::path::{Path, PathBuf};

use super::args::ReplayArgs;
use super::error::{CliError, absolute};
use super::exit::Exit;
use super::resumed::state_of;
use super::run::{print, runtime};
use crate::admission::LedgerError;
use crate::admission::ledger::applied;
use crate::control::ADMISSIONS_FILE;
use crate::decide::Rule;
use crate::log::{Decision, LogReader, SessionEvent};
use crate::report::plain;
use crate::run::Graph;
use crate::run::replay::{Divergence, Replay, Replayed};
use crate::run::statedir::SESSION_FILE;
use crate::sys::env::Environment;
use crate::world::{Chain, Link, WorldError};

/// Why a log is not what a run wrote.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] crate::log::ReadError),
    /// A line does not follow.
    #[error(transparent)]
    Diverged(#[from] Divergence),
    /// There is no run in it.
    #[error("replay the log {0}: there is no `start` in it")]
    Empty(PathBuf),
    /// The ledger of inputs cannot be read.
    #[error("replay the log")]
    Ledger(#[from] LedgerError),
    /// An input acted, and no line of the log takes it up.
    #[error(
        "follow the log: {ledger} says that the input {key} was applied, and no `input` line takes it up"
    )]
    Unheard {
        /// Where it is.
        ledger: PathBuf,
        /// Its key.
        key: String,
    },
    /// A commit is not there, or stands on another one.
    #[error("replay the log: iteration {iter}: {why}")]
    Chain {
        /// The iteration.
        iter: u32,
        /// What is wrong with its commit.
        why: String,
    },
    /// The repository cannot be asked.
    #[error("look into the repository of the run")]
    World(#[from] WorldError),
}

/// Replays a log, and compares its commits with those of the run's repository.
///
/// # Errors
/// [`ReplayError`] with the first divergence.
pub fn replay(args: &ReplayArgs) -> Result<Exit, CliError> {
    let log = match &args.log {
        Some(log) => absolute(log)?,
        None => state_of(&args.state)?.join(SESSION_FILE),
    };
    let (links, replayed, rows) = fold(&log, args.direction.map(Rule::of))?;
    let lines = replayed.lines;
    let ledger = log.with_file_name(ADMISSIONS_FILE);
    let unheard = applied(&ledger).map_err(ReplayError::from)?.into_iter();
    if let Some(key) = unheard.map(|key| key.to_string()).find(|key| !replayed.heard.contains(key)) {
        return Err(ReplayError::Unheard { ledger, key: plain(&key) }.into());
    }
    let beside = log.parent().map(|dir| dir.join("git")).filter(|dir| dir.join("HEAD").is_file());
    let git = args.git.as_deref().map(absolute).transpose()?.or(beside);
    let kept = links.iter().filter(|link| link.kept).count();
    let mut text = format!("{lines} lines, {rows} rows: every decision follows, {kept} were to keep\n");
    match git {
        Some(git) => {
            let chain = Chain::open(&git, &Environment::of_this_process());
            let looked_up = runtime()?.block_on(chain.check(&links)).map_err(ReplayError::from)?;
            if let Some((iter, why)) = looked_up {
                return Err(ReplayError::Chain { iter, why }.into());
            }
            text.push_str(&format!(
                "{} commits are in {}, each on the best before it\n",
                links.len(),
                git.display()
            ));
        }
        None => text.push_str("no repository was looked into\n"),
    }
    print(&text)?;
    Ok(Exit::Ok)
}

/// Makes every decision again. The commits are for the repository to confirm.
fn fold(log: &Path, rule: Option<Rule>) -> Result<(Vec<Link>, Replayed, u64), ReplayError> {
    let mut replay = Replay::new(Graph::autoresearch(), rule);
    let (mut links, mut rows) = (Vec::new(), 0u64);
    for entry in LogReader::open(log)? {
        let entry = entry?;
        replay.see(&entry)?;
        if let SessionEvent::Row { row, .. } = &entry.event {
            rows = rows.saturating_add(1);
            let kept = matches!(row.decision, Decision::Keep | Decision::Baseline);
            let link = |commit: &str, kept| Link { iter: row.iter, commit: commit.to_owned(), kept };
            links.extend(row.candidate.as_deref().map(|commit| link(commit, false)));
            links.extend(row.kept_snap.as_deref().filter(|_| kept).map(|token| link(token, true)));
        }
    }
    let replayed = replay.finish().ok_or_else(|| ReplayError::Empty(log.to_owned()))?;
    Ok((links, replayed, rows))
}

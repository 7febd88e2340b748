//! Turns a state directory with a run in it into where that run stands, and into what it was given (contract §7).
//! It refuses to know how the run goes on.

use std::path::{Path, PathBuf};

use super::args::{RunArgs, StateArgs};
use super::error::{CliError, absolute};
use crate::decide::Rule;
use crate::log::{LogReader, SessionEvent};
use crate::report::Progress;
use crate::run::Graph;
use crate::run::begin::RunError;
use crate::run::replay::{Replay, Replayed, rule_of};
use crate::run::statedir::StateDir;
use crate::score::Direction;

/// A run that is to go on, and the directory that it is in.
pub(super) struct Resumed {
    pub(super) state: StateDir,
    pub(super) replayed: Box<Replayed>,
}

/// Finds the run to go on with. None where there is none: then a new one begins.
///
/// # Errors
/// When another engine has it, or its log does not follow from itself.
pub(super) fn find(state_dir: &Path, progress: &mut Progress) -> Result<Option<Resumed>, CliError> {
    let Some(state) = StateDir::resume(state_dir).map_err(RunError::from)? else { return Ok(None) };
    let replayed = read(&state.session_log(), &mut |event| progress.recall(event))?;
    Ok(replayed.map(|replayed| Resumed { state, replayed: Box::new(replayed) }))
}

/// Folds a log. None where it holds no run.
fn read(log: &Path, see: &mut dyn FnMut(&SessionEvent)) -> Result<Option<Replayed>, RunError> {
    let said = match LogReader::open(log).map_err(RunError::Unreadable)?.next() {
        Some(Ok(entry)) => rule_of(&entry.event),
        _ => None,
    };
    // Logs of before they said which way scores get better: only one way makes their decisions.
    let ways = [Direction::Higher, Direction::Lower].map(Rule::of);
    let fits = |rule: &Rule| fold(log, *rule, &mut |_| {}).is_ok();
    let rule = said.or_else(|| ways.into_iter().find(fits)).unwrap_or(Rule::of(Direction::Higher));
    fold(log, rule, see)
}

fn fold(log: &Path, rule: Rule, see: &mut dyn FnMut(&SessionEvent)) -> Result<Option<Replayed>, RunError> {
    let mut replay = Replay::new(Graph::autoresearch(), Some(rule));
    for entry in LogReader::open(log).map_err(RunError::Unreadable)? {
        let entry = entry.map_err(RunError::Unreadable)?;
        replay.see(&entry).map_err(|source| RunError::Diverged { path: log.to_owned(), source })?;
        see(&entry.event);
    }
    Ok(replay.finish())
}

/// The options of a run, with those that it was given before where none is given now.
pub(super) fn with_given(args: &RunArgs, replayed: &Replayed) -> RunArgs {
    let mut args = args.clone();
    let terms = &replayed.state.terms;
    args.iterations = args.iterations.or(Some(terms.iterations));
    args.max_cost = args.max_cost.or(terms.max_cost);
    args.max_time = args.max_time.or(replayed.max_time);
    args.max_park = args.max_park.or(terms.max_park);
    if args.goal.is_none() && args.goal_file.is_none() && !replayed.goal.trim().is_empty() {
        args.goal = Some(replayed.goal.clone());
    }
    args
}

/// Where the run of an operator's command keeps its state, as a run itself finds it.
///
/// # Errors
/// When the current directory cannot be found out.
pub(super) fn state_of(args: &StateArgs) -> Result<PathBuf, CliError> {
    let given = args.state_dir.as_deref().map(absolute).transpose()?;
    Ok(state_dir(&absolute(&args.manifest.manifest)?, given.as_deref()))
}

/// Where a run keeps its state.
pub(super) fn state_dir(manifest: &Path, given: Option<&Path>) -> PathBuf {
    let beside = || manifest.parent().map(|dir| dir.join(crate::manifest::STATE_DIR)).unwrap_or_default();
    given.map_or_else(beside, Path::to_owned)
}

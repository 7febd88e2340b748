//! Turns the places of a plan into why they may not lie as they do: what an agent can write or see must not be the engine's.
//! It refuses to make anything that is not there.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::{Overrides, PlanError};
use crate::manifest::{Agent, STATE_DIR, Sandbox};
use crate::pack::InjectFile;

pub(super) fn state_dir(manifest_dir: &Path, overrides: &Overrides) -> Result<PathBuf, PlanError> {
    let Some(given) = &overrides.state_dir else { return Ok(manifest_dir.join(STATE_DIR)) };
    let plain = given.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !given.is_absolute() || !plain {
        return Err(PlanError::StateDirRelative(given.clone()));
    }
    real(given).map_err(|source| PlanError::StateDir { path: given.clone(), source })
}

/// The path with all links resolved, as far as it exists.
fn real(path: &Path) -> io::Result<PathBuf> {
    for existing in path.ancestors() {
        match fs::canonicalize(existing) {
            Ok(found) => {
                let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
                return Ok(if rest == Path::new("") { found } else { found.join(rest) });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(path.to_owned())
}

pub(super) fn check_apart(state: &Path, workspace: &Path, in_place: bool) -> Result<(), PlanError> {
    let both = || (state.to_owned(), workspace.to_owned());
    if workspace.starts_with(state) {
        let (state, workspace) = both();
        return Err(PlanError::WorkspaceInState { state, workspace });
    }
    if state.starts_with(workspace) && !in_place {
        let (state, workspace) = both();
        return Err(PlanError::StateInWorkspace { state, workspace });
    }
    Ok(())
}

pub(super) fn check_repo(
    repo: &Path,
    workspace: &Path,
    state: &Path,
    in_place: bool,
) -> Result<(), PlanError> {
    let real = fs::canonicalize(repo).unwrap_or_else(|_| repo.to_owned());
    if real.starts_with(state) || (real.starts_with(workspace) && !in_place) {
        return Err(PlanError::RepoInside(real));
    }
    Ok(())
}

pub(super) fn check_injects(injects: &[InjectFile], workspace: &Path, state: &Path) -> Result<(), PlanError> {
    let mut all = injects.iter().map(|inject| workspace.join(inject.dst.as_path()));
    match all.find(|dst| dst.starts_with(state)) {
        Some(dst) => Err(PlanError::InjectInState(dst)),
        None => Ok(()),
    }
}

pub(super) fn check_relays(agent: &Agent, manifest_dir: &Path, workspace: &Path) -> Result<(), PlanError> {
    let inside = Path::new("/sandbox").join(workspace.file_name().unwrap_or_default());
    match agent.relays.iter().find(|relay| Path::new(relay.value.dest.as_str()).starts_with(&inside)) {
        Some(relay) => Err(PlanError::RelayInWorkspace {
            dest: relay.value.dest.to_string(),
            workspace: inside.display().to_string(),
        }),
        None => check_relay_files(agent, manifest_dir, workspace),
    }
}

/// Nothing that an agent may have written goes into a later turn as the operator's file.
fn check_relay_files(agent: &Agent, manifest_dir: &Path, workspace: &Path) -> Result<(), PlanError> {
    for relay in &agent.relays {
        let inside = relay
            .value
            .files()
            .into_iter()
            .map(|file| file.under(manifest_dir))
            .find(|path| path.starts_with(workspace));
        if let Some(path) = inside {
            return Err(PlanError::RelayFromWorkspace { dest: relay.value.dest.to_string(), path });
        }
    }
    Ok(())
}

/// What a sandbox shows of the host holds nothing private and lies in nothing private: there is only one copy of the
/// workspace that an agent sees, and it is the sandbox's own.
pub(super) fn check_shown(sandbox: Option<&Sandbox>, private: &[&PathBuf]) -> Result<(), PlanError> {
    for shown in sandbox.iter().flat_map(|sandbox| &sandbox.read_only_paths) {
        let shown =
            fs::canonicalize(shown.value.as_path()).unwrap_or_else(|_| shown.value.as_path().to_owned());
        let found = private.iter().find(|private| private.starts_with(&shown) || shown.starts_with(private));
        if let Some(private) = found {
            return Err(PlanError::Shown { shown, private: PathBuf::from(private) });
        }
    }
    Ok(())
}

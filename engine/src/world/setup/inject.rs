//! Turns injects into files of the workspace, and frozen ones into copies that nobody else writes.
//! It refuses to know globs and the manifest: each inject is one file.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::{Inject, Spec};
use crate::sys::fs::{Obstacles, RelPath, Root, WriteOptions, read_bounded};
use crate::world::facts::Frozen;
use crate::world::git::Git;
use crate::world::tidy::failed;
use crate::world::{CommitSha, WorldError, frozen};

/// The largest inject. One is held in memory while it is put in place.
const INJECT_LIMIT: u64 = 1 << 30;

/// Puts every inject of `spec` into the workspace, in order, and says which are frozen.
pub(super) async fn put_all(
    spec: &Spec,
    git: &Git,
    base: &CommitSha,
    submodules: &[PathBuf],
) -> Result<Vec<Frozen>, WorldError> {
    let root = Root::open(&spec.place.workspace).map_err(failed)?;
    let mut kept = Vec::new();
    for inject in &spec.injects {
        let refuse = |why: String| WorldError::Inject { dst: inject.dst.clone(), why };
        let dst = destination(inject, spec, submodules).map_err(refuse)?;
        let bytes = content(inject, spec, git, base).await?;
        let sha256: [u8; 32] = Sha256::digest(&bytes).into();
        if sha256 != inject.sha256 {
            return Err(refuse(format!("{} has changed since the pack was read", inject.src.display())));
        }
        let options = WriteOptions { mode: inject.mode, durable: false, obstacles: Obstacles::Refuse };
        root.write_atomic(&dst, &mut bytes.as_slice(), options).map_err(failed)?;
        if inject.frozen {
            frozen::keep_copy(&spec.place.state_dir, kept.len(), &bytes)?;
            let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            kept.push(Frozen { dst: inject.dst.clone(), sha256, len, mode: inject.mode });
        }
    }
    Ok(kept)
}

/// Where an inject goes, unless that is a place where none may be.
fn destination(inject: &Inject, spec: &Spec, submodules: &[PathBuf]) -> Result<RelPath, String> {
    let dst = RelPath::parse(&inject.dst).map_err(|error| error.to_string())?;
    if dst.names().any(|name| name.eq_ignore_ascii_case(".git")) {
        return Err("no inject may be put into a .git".to_owned());
    }
    if let Some(own) = spec.place.own.iter().find(|own| dst.as_path().starts_with(own)) {
        return Err(format!("{} is the engine's", own.display()));
    }
    if let Some(module) = submodules.iter().find(|module| dst.as_path().starts_with(module)) {
        return Err(format!("{} is a submodule, whose files the workspace does not track", module.display()));
    }
    Ok(dst)
}

/// The bytes of an inject. A source inside the workspace is read from the base commit, if that has it (N15).
async fn content(inject: &Inject, spec: &Spec, git: &Git, base: &CommitSha) -> Result<Vec<u8>, WorldError> {
    if let Some(inside) = inside(&inject.src, &spec.place.workspace)
        && let Some(bytes) = git.show(base, inside).await?
    {
        return Ok(bytes);
    }
    read_bounded(&inject.src, INJECT_LIMIT).map_err(failed)
}

fn inside<'a>(src: &'a Path, workspace: &Path) -> Option<&'a Path> {
    src.strip_prefix(workspace).ok().filter(|inside| !inside.as_os_str().is_empty())
}

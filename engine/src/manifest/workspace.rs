//! Turns `[workspace]` into where the agent works and what is put there (contract §1).
//! It refuses to know whether any of it exists.

use std::time::Duration;

use super::error::Sink;
use super::inject::{self, Inject};
use super::keys::{Key, Kind, Table};
use super::repo::{Repo, RepoSource};
use super::section::Section;
use super::value::{Command, DEFAULT_TIMEOUT, ManifestPath, PathError, RelPath, ValueError, parse_duration};
use super::{At, Mistake};

/// The name of the state directory beside the manifest, unless the command line names another.
pub(crate) const STATE_DIR: &str = "state";
const DEFAULT_DIR: &str = "workspace";

/// Where the agent works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// The directory.
    pub dir: WorkspaceDir,
    /// What makes the checkout instead of the engine, run in the manifest's directory.
    pub setup_cmd: Option<At<Command>>,
    /// How long `setup_cmd` may take.
    pub timeout: Duration,
    /// Whether a sandbox sees the upstream's history.
    pub history: bool,
    /// Files put into the workspace after setup, in the order written.
    pub inject: Vec<At<Inject>>,
}

/// The workspace's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceDir {
    /// The manifest's directory itself is worked in; nothing is cloned.
    InPlace,
    /// A directory below the manifest's.
    Under(RelPath),
}

/// What can be wrong with `[workspace]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkspaceError {
    /// In place needs the manifest's own directory as the repository.
    #[error("[workspace].dir = \".\" works in place, and [repo].path is not \".\"")]
    InPlaceElsewhere,
    /// Setup would write into a person's work.
    #[error("[workspace].setup_cmd is not run in place, and `dir` is \".\"")]
    SetupInPlace,
    /// The directory is not the workspace's to have.
    #[error("[workspace].dir lies in `{owner}`, which is not the agent's")]
    Taken {
        /// `state` or `.git`.
        owner: &'static str,
    },
}

/// `[workspace]`.
pub(super) static TABLE: Table = Table {
    path: "workspace",
    doc: "Where the agent works and what is put there before it starts.",
    keys: &[
        Key::optional(
            "dir",
            Kind::Path,
            "\"workspace\"",
            "The checkout, relative to the manifest's directory and below it. With `\".\"` the run works in place: it \
             never clones, needs `[repo].path = \".\"` and refuses a tree with changes that are not committed.",
        ),
        Key::optional(
            "setup_cmd",
            Kind::Command,
            "the engine clones or copies `[repo]`",
            "Makes the checkout instead of the engine. It runs in the manifest's directory, and not at all in place.",
        ),
        Key::optional(
            "inject",
            Kind::Injects,
            "none",
            "Files copied into the workspace after setup and committed as the baseline, such as the judge. A text is \
             a frozen copy to the same path; a directory or a glob (`*`, `?`, `[`) stands for every regular file \
             under it, sorted, and must match something below the manifest's directory. A table renames, unfreezes, \
             or reaches outside. `[[workspace.inject]]` is the same table.",
        ),
        Key::optional(
            "history",
            Kind::Flag,
            "false",
            "Whether the workspace's repository holds the upstream's history, tags and branches, or the one base commit alone.",
        ),
        Key::optional("timeout", Kind::Duration, "\"30m\"", "How long `setup_cmd` may take."),
    ],
    rules: &[],
    example: "[workspace]\ndir = \"workspace\"\ninject = [\"measure.sh\", \"tools/*.py\", { src = \"judge/a_test.go\", dst = \
              \"pkg/a_test.go\" }]\nhistory = false\n",
};

impl WorkspaceError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::InPlaceElsewhere => "write path = \".\" in [repo], or leave `dir` out to work in a clone",
            Self::SetupInPlace => "remove `setup_cmd`, or leave `dir` out to work in a clone",
            Self::Taken { .. } => "leave `dir` out for \"workspace\"",
        };
        Some(hint.to_owned())
    }
}

/// Reads the table; `repo` is what `[repo]` turned out to be, if anything.
pub(super) fn decode(section: &Section<'_>, repo: Option<&Repo>, sink: &mut Sink) -> Option<Workspace> {
    let dir = section.parse("dir", sink, parse_dir);
    let setup_cmd = section.value("setup_cmd", sink, Command::parse);
    let timeout = section.value("timeout", sink, parse_duration);
    let inject = inject::decode(section.items("inject"), sink);
    if let (Some(timeout), None) = (&timeout, section.place("setup_cmd")) {
        sink.warn(
            timeout.span.clone(),
            "[workspace].timeout has no effect",
            "it bounds `setup_cmd`, which is not there",
        );
    }
    if let Some(At { value: WorkspaceDir::InPlace, span }) = &dir {
        let here = |repo: &Repo| matches!(&repo.source, RepoSource::Path(path) if path.value.is_here());
        if repo.is_some_and(|repo| !here(repo)) {
            sink.put(span.clone(), WorkspaceError::InPlaceElsewhere);
        }
        if let Some(place) = section.place("setup_cmd") {
            sink.put_related(place, WorkspaceError::SetupInPlace, (span.clone(), "in place"));
        }
    }
    let dir = match dir {
        Some(dir) => dir.value,
        None => WorkspaceDir::Under(RelPath::parse(DEFAULT_DIR).ok()?),
    };
    let history = section.flag("history").is_some_and(|flag| flag.value);
    let timeout = timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.value);
    Some(Workspace { dir, setup_cmd, timeout, history, inject })
}

fn parse_dir(text: &str) -> Result<WorkspaceDir, Mistake> {
    let value = |error| Mistake::from(("[workspace].dir", error));
    let path = match RelPath::parse(text) {
        Ok(path) => path,
        Err(ValueError::Path(PathError::NoName))
            if ManifestPath::parse(text).is_ok_and(|path| path.is_here()) =>
        {
            return Ok(WorkspaceDir::InPlace);
        }
        Err(error) => return Err(value(error)),
    };
    if path.touches_git() {
        return Err(WorkspaceError::Taken { owner: ".git" }.into());
    }
    if path.first() == STATE_DIR {
        return Err(WorkspaceError::Taken { owner: STATE_DIR }.into());
    }
    Ok(WorkspaceDir::Under(path))
}

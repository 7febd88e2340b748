//! Turns the source of the files into a base commit in the engine's own repository and files in the workspace.
//! It refuses to know injects and what comes after the base.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Setup, Source, init, persons, shown_in};
use crate::sys::fs::{Root, copy_tree};
use crate::world::facts::Shown;
use crate::world::foreign::{self, Foreign};
use crate::world::git::{Git, NewCommit};
use crate::world::{CommitSha, Reserved, WorldError, claim, layout, tidy};

/// Where a fetched commit is named until the setup is done.
const FETCHED: &str = "refs/crucible/fetched";

/// The date of a base commit that the engine makes itself: 2000-01-01, UTC.
const FIRST_DATE: i64 = 946_684_800;

/// A base commit, its files in the workspace, and its entries in the engine's index.
pub(super) struct Base {
    pub(super) commit: CommitSha,
    pub(super) date: i64,
    pub(super) shown: Shown,
}

impl Setup<'_> {
    /// Makes the base that the source stands for.
    pub(super) async fn base(&self) -> Result<Base, WorldError> {
        match &self.spec.source {
            Source::Url(url) => self.cloned(OsStr::new(url), None).await,
            Source::Local(path) if foreign::is_repository_root(path) => {
                self.cloned(path.as_os_str(), foreign::counts_in_sha256(path)).await
            }
            Source::Local(path) => self.copied(path).await,
            Source::Empty => {
                let new = self.new_directory()?;
                self.first_commit_in(&new).await
            }
            Source::Command(command) => self.commanded(command).await,
            Source::InPlace => self.in_place().await,
        }
    }

    /// An empty directory beside the workspace, to be moved to its place when it is complete.
    fn new_directory(&self) -> Result<PathBuf, WorldError> {
        let new = claim::temporary(&self.spec.place.workspace);
        fs::create_dir_all(&new).map_err(WorldError::io("make", &new))?;
        Ok(new)
    }

    fn git_dir(&self) -> PathBuf {
        self.spec.place.state_dir.join("git")
    }

    fn init(&self, sha256: bool, exclude: &[u8]) -> Result<(), WorldError> {
        let mut lines = Reserved::with(&self.spec.place.own).exclude_file();
        lines.extend_from_slice(exclude);
        init(&self.git_dir(), sha256, &lines)
    }

    async fn cloned(&self, url: &OsStr, sha256: Option<bool>) -> Result<Base, WorldError> {
        let new = self.new_directory()?;
        self.init(sha256.unwrap_or(false), b"")?;
        let git = Git::new(&self.git_dir(), &new, &self.spec.place.env);
        let mut fetched = self.fetched(&git, url).await;
        if fetched.is_err() && sha256.is_none() {
            // Only a fetch tells in which format a remote counts.
            fs::remove_dir_all(git.dir()).map_err(WorldError::io("remove", git.dir()))?;
            self.init(true, b"")?;
            fetched = self.fetched(&git, url).await.or(fetched);
        }
        let commit = fetched?;
        git.delete_ref(FETCHED).await?;
        if self.spec.history {
            git.pack_refs().await?;
        }
        git.check_out(&commit).await?;
        let date = git.date(&commit).await?;
        claim::move_into_place(&self.spec.place, &new)?;
        let origin = self.spec.history.then(|| layout::without_credentials(&url.to_string_lossy()));
        Ok(Base { date, commit, shown: shown_in(&self.spec.place.workspace, origin) })
    }

    /// Fetches the commit that is asked for: alone, or with the whole history.
    async fn fetched(&self, git: &Git, url: &OsStr) -> Result<CommitSha, WorldError> {
        if self.spec.reference.as_deref() == Some("") {
            // To git this would be `HEAD`.
            return self.commit_of(git, &[], url).await;
        }
        if self.spec.history {
            return self.fetched_whole(git, url).await;
        }
        let wanted = self.spec.reference.as_deref().unwrap_or("HEAD");
        let refspec = format!("+{wanted}:{FETCHED}");
        let alone = git.as_the_user(&self.spec.user_env).fetch(url, true, &[&refspec]).await;
        if alone.is_ok() {
            return self.commit_of(git, &[FETCHED.to_owned()], url).await;
        }
        // A server may be unable to send one commit alone, and an abbreviated name means nothing to it: then all
        // is fetched into a repository that does not stay, and the one commit taken from there.
        let aside = self.spec.place.state_dir.join("git.full");
        init(&aside, git.is_sha256()?, b"")?;
        let whole = Git::new(&aside, git.work_tree(), &self.spec.place.env);
        let commit = self.fetched_whole(&whole, url).await;
        if let Ok(commit) = &commit {
            git.borrowing(&aside.join("objects")).take_over(commit).await?;
        }
        fs::remove_dir_all(&aside).map_err(WorldError::io("remove", &aside))?;
        commit
    }

    async fn fetched_whole(&self, git: &Git, url: &OsStr) -> Result<CommitSha, WorldError> {
        let user = git.as_the_user(&self.spec.user_env);
        let head = format!("+HEAD:{FETCHED}");
        let mut refspecs = vec!["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"];
        let Some(name) = &self.spec.reference else {
            refspecs.push(&head);
            user.fetch(url, false, &refspecs).await?;
            return self.commit_of(git, &[FETCHED.to_owned()], url).await;
        };
        user.fetch(url, false, &refspecs).await?;
        let branch = name.strip_prefix("refs/heads/").unwrap_or(name);
        let names = [format!("refs/remotes/origin/{branch}"), format!("refs/tags/{name}"), name.clone()];
        let found = self.commit_of(git, &names, url).await;
        if found.is_ok() {
            return found;
        }
        // A commit or ref that no branch or tag reaches; a server that does not give it makes it an unknown one.
        match user.fetch(url, false, &[&format!("+{name}:{FETCHED}")]).await {
            Ok(()) => self.commit_of(git, &[FETCHED.to_owned()], url).await,
            Err(_) => found,
        }
    }

    /// The first of `names` that stands for a commit.
    async fn commit_of(&self, git: &Git, names: &[String], url: &OsStr) -> Result<CommitSha, WorldError> {
        for name in names {
            if let Some(commit) = git.resolve(&format!("{name}^{{commit}}")).await? {
                return Ok(commit);
            }
        }
        let name = self.spec.reference.clone().unwrap_or_else(|| "HEAD".to_owned());
        Err(WorldError::UnknownRef { name, from: layout::without_credentials(&url.to_string_lossy()) })
    }

    /// A copy of a directory that is no repository. Inner repositories become plain files, links that lead out are
    /// left out.
    async fn copied(&self, source: &Path) -> Result<Base, WorldError> {
        let new = self.new_directory()?;
        let place = &self.spec.place;
        let left_out = [&place.state_dir, &place.workspace, &new];
        let (from, to) = (Root::open(source).map_err(tidy::failed)?, Root::open(&new).map_err(tidy::failed)?);
        copy_tree(&from, &to, &mut |path, _| {
            path.name() != ".git" && !left_out.iter().any(|out| source.join(path) == **out)
        })
        .map_err(tidy::failed)?;
        self.first_commit_in(&new).await
    }

    /// The engine's first commit, of everything in `new`, which then becomes the workspace.
    async fn first_commit_in(&self, new: &Path) -> Result<Base, WorldError> {
        self.init(false, b"")?;
        let git = Git::new(&self.git_dir(), new, &self.spec.place.env);
        let commit = self.first_commit(&git).await?;
        claim::move_into_place(&self.spec.place, new)?;
        Ok(Base { commit, date: FIRST_DATE, shown: shown_in(&self.spec.place.workspace, None) })
    }

    async fn first_commit(&self, git: &Git) -> Result<CommitSha, WorldError> {
        git.add(Reserved::with(&self.spec.place.own).pathspecs()).await?;
        let tree = git.write_tree().await?;
        let message = "crucible: base".to_owned();
        git.commit(&NewCommit { tree: &tree, parent: None, message, date: FIRST_DATE }).await
    }

    /// What `setup_cmd` leaves: the commit it stands on, or a first one where it left no repository.
    async fn commanded(&self, command: &str) -> Result<Base, WorldError> {
        let workspace = &self.spec.place.workspace;
        claim::announce(&self.spec.place)?;
        let ran = self.runner.run(command, &self.spec.manifest_dir, None).await?;
        ran.outcome().map_err(|why| WorldError::Setup { why })?;
        if !workspace.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(WorldError::NoWorkspace { path: workspace.clone() });
        }
        let dot_git = workspace.join(".git");
        let repository =
            if dot_git.symlink_metadata().is_ok() { Foreign::of(workspace) } else { Err(no_git(workspace)) };
        match repository {
            Ok(repository) => {
                let mut base = self.taken_over(&repository, b"").await?;
                if !self.spec.history {
                    tidy::remove(workspace, &[PathBuf::from(".git")])?;
                    base.shown = shown_in(workspace, None);
                }
                Ok(base)
            }
            Err(WorldError::NotARepository { .. }) => {
                self.init(false, b"")?;
                let git = self.spec.place.git();
                let commit = self.first_commit(&git).await?;
                Ok(Base { commit, date: FIRST_DATE, shown: shown_in(workspace, None) })
            }
            Err(error) => Err(error),
        }
    }

    /// The commit that the user's own repository stands on. Whether the files are that commit's is checked later.
    async fn in_place(&self) -> Result<Base, WorldError> {
        let repository = Foreign::of(&self.spec.place.workspace)?;
        persons::require_at_rest(self.spec, &repository.git_dir, &repository.common_dir)?;
        let mut exclude = fs::read(repository.common_dir.join("info/exclude")).unwrap_or_default();
        exclude.push(b'\n');
        exclude.extend(self.global_excludes().await);
        self.taken_over(&repository, &exclude).await
    }

    /// What the user's own configuration tells git to ignore everywhere. Without it their editor's files would be
    /// uncommitted work, and would be cleaned away.
    async fn global_excludes(&self) -> Vec<u8> {
        let env = &self.spec.user_env;
        let configured = Git::global_excludes_file(env).await;
        let by_default = || {
            let config = env.value("XDG_CONFIG_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
            Some(config.or_else(|| Some(Path::new(env.value("HOME")?).join(".config")))?.join("git/ignore"))
        };
        configured.or_else(by_default).and_then(|path| fs::read(path).ok()).unwrap_or_default()
    }

    async fn taken_over(&self, repository: &Foreign, exclude: &[u8]) -> Result<Base, WorldError> {
        self.init(repository.head.is_sha256(), exclude)?;
        let git = self.spec.place.git();
        git.borrowing(&repository.common_dir.join("objects")).take_over(&repository.head).await?;
        git.read_index(&repository.head).await?;
        let date = git.date(&repository.head).await?;
        let shown = Shown {
            ours: false,
            git_dir: repository.git_dir.clone(),
            common_dir: repository.common_dir.clone(),
            origin: None,
        };
        Ok(Base { commit: repository.head.clone(), date, shown })
    }
}

fn no_git(workspace: &Path) -> WorldError {
    WorldError::NotARepository { path: workspace.to_owned(), why: "it has no .git".to_owned() }
}

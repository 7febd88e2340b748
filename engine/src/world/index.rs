//! Turns an index into what is said of it, and into copies of it that others may see or that are put back.
//! It refuses to know whose work tree it is of.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::git::{Git, nul_terminated, run, split_paths};
use super::{CommitSha, WorldError, foreign};
use crate::sys::env::Environment;
use crate::sys::fault::point;
use crate::sys::process::Tool;

/// The index as it was when the files were last the best's.
const BEST: &str = "index.best";

/// The index without the engine's marks, for a repository that is a person's.
pub(super) const UNMARKED: &str = "index.unmarked";

impl Git {
    /// Remembers the index, which is the best's.
    pub(super) fn save_index(&self) -> Result<(), WorldError> {
        copy(&self.dir().join("index"), &self.dir().join(BEST))
    }

    /// Forgets the index that was remembered.
    pub(super) fn forget_index(&self) -> Result<(), WorldError> {
        let path = self.dir().join(BEST);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(WorldError::io("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Makes the index that of `best` again, so that what only a candidate staged is untracked. The entries `fixed`
    /// are marked.
    pub(super) async fn put_back_index(&self, best: &CommitSha, fixed: &[PathBuf]) -> Result<(), WorldError> {
        let remembered = self.dir().join(BEST);
        if remembered.is_file() {
            return copy(&remembered, &self.dir().join("index"));
        }
        self.read_index(best).await?;
        self.freeze_entries(fixed).await
    }

    /// Writes a copy of the index in which the entries `fixed` have no mark.
    pub(super) async fn write_unmarked(&self, fixed: &[PathBuf]) -> Result<(), WorldError> {
        let unmarked = self.dir().join(UNMARKED);
        copy(&self.dir().join("index"), &unmarked)?;
        let git = self.reading_index(&unmarked);
        let tool = git.tool(&["update-index", "--no-skip-worktree", "-z", "--stdin"]);
        run("unmark entries of the index", tool.input(nul_terminated(fixed))).await.map(drop)
    }

    /// Stages these tracked files as they are, or that they are gone.
    pub(super) async fn add_tracked(&self, paths: &[PathBuf]) -> Result<(), WorldError> {
        if paths.is_empty() {
            return Ok(());
        }
        let args = ["--literal-pathspecs", "add", "-u", "--pathspec-from-file=-", "--pathspec-file-nul"];
        run("stage tracked files", self.tool(&args).input(nul_terminated(paths))).await.map(drop)
    }

    /// Every path of the index with the letter that `git ls-files -v` gives it.
    pub(super) async fn marked_entries(&self) -> Result<Vec<(u8, PathBuf)>, WorldError> {
        let listed = run("list the index", self.tool(&["ls-files", "-v", "-z"])).await?;
        let entry = |line: &[u8]| Some((*line.first()?, split_paths(line.get(2..)?).pop()?));
        Ok(listed.split(|&byte| byte == 0).filter_map(entry).collect())
    }

    /// The paths in which the index differs from `commit`.
    pub(super) async fn staged_paths(&self, commit: &CommitSha) -> Result<Vec<String>, WorldError> {
        let args =
            ["diff-index", "--cached", "-z", "--name-only", "--no-renames", "--ignore-submodules=none"];
        let listed =
            run("compare the index with its commit", self.tool(&args).arg(commit.as_str()).arg("--"));
        Ok(split_paths(&listed.await?).iter().map(|path| foreign::shown(path)).collect())
    }

    /// The paths whose files are not those that `index` knows. A file is only looked into where the file system does not
    /// say that it is the same.
    pub(super) async fn touched_paths(
        &self,
        index: &Path,
        file_mode: bool,
    ) -> Result<Vec<String>, WorldError> {
        const DOING: &str = "compare the files with the index";
        let copied = self.dir().join("index.theirs");
        copy(index, &copied)?;
        let git = self.reading_index(&copied);
        let setting = format!("core.fileMode={file_mode}");
        // It fails where a file differs, which is asked next.
        let refreshed = git.tool(&["-c", &setting, "update-index", "-q", "--refresh"]).run().await;
        refreshed.map_err(WorldError::process(DOING))?;
        let args = ["-c", &setting, "diff-files", "-z", "--name-only", "--ignore-submodules=all"];
        let listed = run(DOING, git.tool(&args)).await?;
        Ok(split_paths(&listed).iter().map(|path| foreign::shown(path)).collect())
    }

    /// The files that are ignored, and directories that are so as a whole.
    pub(super) async fn ignored_paths(&self) -> Result<Vec<PathBuf>, WorldError> {
        let args =
            ["status", "--porcelain", "-z", "--no-renames", "--ignored=matching", "--untracked-files=all"];
        let listed = run("list the ignored files", self.tool(&args)).await?;
        let ignored = listed.split(|&byte| byte == 0).filter_map(|line| line.strip_prefix(b"!! "));
        Ok(ignored.flat_map(|path| split_paths(path.strip_suffix(b"/").unwrap_or(path))).collect())
    }

    /// The directories that are neither ignored nor hold anything tracked.
    pub(super) async fn untracked_directories(&self) -> Result<Vec<PathBuf>, WorldError> {
        let tool = self.tool(&["ls-files", "-z", "--others", "--directory", "--exclude-standard"]);
        let listed = run("list the untracked directories", tool).await?;
        let directories = listed.split(|&byte| byte == 0).filter_map(|path| path.strip_suffix(b"/"));
        Ok(directories.flat_map(split_paths).collect())
    }

    /// Whether the configuration in the file `config` lets git see the executable bit.
    pub(super) async fn file_mode(config: &Path, env: &Environment) -> bool {
        let tool =
            Tool::new("git", env.clone()).cwd("/").args(["config", "--no-includes", "--file"]).arg(config);
        let tool = tool.args(["--type=bool", "--get", "core.fileMode"]);
        tool.run().await.map_or(true, |output| output.stdout.trim_ascii() != b"false")
    }
}

/// Copies an index with the time of its writing, by which git tells whether a file may have changed since.
fn copy(from: &Path, to: &Path) -> Result<(), WorldError> {
    let draft = to.with_extension("new");
    let copied = || {
        let mut source = File::open(from)?;
        let mut target = File::create(&draft)?;
        io::copy(&mut source, &mut target)?;
        target.set_modified(source.metadata()?.modified()?)?;
        point("index: before it is put in place");
        fs::rename(&draft, to)
    };
    copied().map_err(WorldError::io("copy the index to", to))
}

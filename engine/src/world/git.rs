//! Turns one step of git's plumbing into its result, on the engine's own repository and nobody else's.
//! It refuses to know what a step is for; nothing of a workspace's `.git` is ever read here.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::diff::{self, DIFF_LIMIT, Diff};
use super::{CommitSha, WorldError};
use crate::sys::env::Environment;
use crate::sys::process::{Input, Output, ProcessError, Tool, ToolOutput};

/// Name and address of every commit that the engine makes.
const IDENTITY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "crucible"),
    ("GIT_AUTHOR_EMAIL", "crucible@localhost"),
    ("GIT_COMMITTER_NAME", "crucible"),
    ("GIT_COMMITTER_EMAIL", "crucible@localhost"),
];

/// What keeps everything outside the engine's own repository from having a say.
const ISOLATION: [(&str, &str); 12] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_LFS_SKIP_SMUDGE", "1"),
    ("GIT_EDITOR", "false"),
    ("GIT_PAGER", "cat"),
    ("LC_ALL", "C"),
];

/// How much of the head of a diff is kept to cut a row's part from: the patch, and a table of [`STAT_LINES`] lines.
const HEAD_LIMIT: usize = DIFF_LIMIT + 64 * 1024;

/// How many files a row's table names.
const STAT_LINES: usize = 100;

/// The engine's own repository and the work tree it is applied to.
#[derive(Debug, Clone)]
pub(super) struct Git {
    dir: PathBuf,
    work_tree: PathBuf,
    env: Environment,
    cancel: CancellationToken,
    limit: Option<Duration>,
}

impl Git {
    /// `dir` is the git directory. Of `env` only `PATH` and the place for temporary files are used.
    pub(super) fn new(dir: &Path, work_tree: &Path, env: &Environment) -> Git {
        let inherited = ["PATH", "TMPDIR"].into_iter().filter_map(|name| Some((name, env.value(name)?)));
        let mut own: Environment = inherited.collect();
        for (name, value) in ISOLATION.into_iter().chain(IDENTITY) {
            own.set(name, value);
        }
        own.set("GIT_DIR", dir).set("GIT_WORK_TREE", work_tree).set("GIT_INDEX_FILE", dir.join("index"));
        own.set("GIT_CEILING_DIRECTORIES", work_tree.parent().unwrap_or(work_tree));
        let cancel = CancellationToken::new();
        Git { dir: dir.to_owned(), work_tree: work_tree.to_owned(), env: own, cancel, limit: None }
    }

    /// The git directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The work tree.
    pub(super) fn work_tree(&self) -> &Path {
        &self.work_tree
    }

    /// Where objects of the operation at hand are, until they are promoted.
    pub(super) fn incoming(&self) -> PathBuf {
        self.dir.join("incoming")
    }

    /// The same repository, with new objects kept apart in [`Git::incoming`].
    pub(super) fn quarantined(&self) -> Git {
        let mut git = self.clone();
        git.env.set("GIT_OBJECT_DIRECTORY", self.incoming());
        git.env.set("GIT_ALTERNATE_OBJECT_DIRECTORIES", self.dir.join("objects"));
        git
    }

    /// The same repository, where each step ends early when `cancel` says so or when it takes longer than `limit`.
    pub(super) fn bounded(&self, limit: Duration, cancel: CancellationToken) -> Git {
        Git { cancel, limit: Some(limit), ..self.clone() }
    }

    /// The same repository, with new objects and the index in the directory of another one, whose configuration has no
    /// say in it.
    pub(super) fn filling(&self, other: &Path) -> Git {
        let mut git = self.clone();
        git.env.set("GIT_OBJECT_DIRECTORY", other.join("objects"));
        git.env.set("GIT_ALTERNATE_OBJECT_DIRECTORIES", self.dir.join("objects"));
        git.env.set("GIT_INDEX_FILE", other.join("index"));
        git
    }

    /// The same repository, that also sees the objects below `objects` of another one.
    pub(super) fn borrowing(&self, objects: &Path) -> Git {
        let mut git = self.clone();
        git.env.set("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects);
        git
    }

    /// The same repository under the user's own configuration and credentials, for the one step that may use
    /// them. Variables that would point git at another repository are left out.
    pub(super) fn as_the_user(&self, user: &Environment) -> Git {
        let mut env = user.clone();
        for name in REDIRECTIONS {
            env.remove(name);
        }
        for (name, value) in [("GIT_TERMINAL_PROMPT", "0"), ("GIT_LFS_SKIP_SMUDGE", "1"), ("LC_ALL", "C")] {
            env.set(name, value);
        }
        env.set("GIT_DIR", &self.dir).set("GIT_WORK_TREE", &self.work_tree);
        Git { env, ..self.clone() }
    }

    /// The same repository with another index, to be read only.
    pub(super) fn reading_index(&self, index: &Path) -> Git {
        let mut git = self.clone();
        git.env.set("GIT_INDEX_FILE", index);
        git
    }

    pub(super) fn tool(&self, args: &[&str]) -> Tool {
        let tool = Tool::new("git", self.env.clone()).cwd(&self.work_tree).args(args.iter().copied());
        self.limit.into_iter().fold(tool.cancelled_by(self.cancel.clone()), Tool::timeout)
    }

    /// Stages what `pathspecs` select.
    pub(super) async fn add(&self, pathspecs: Vec<OsString>) -> Result<(), WorldError> {
        let tool = self.tool(&["add", "-A", "--"]).args(pathspecs);
        run("stage the workspace", tool).await.map(drop)
    }

    /// Stages exactly these paths, ignored or not.
    pub(super) async fn add_forced(&self, paths: &[PathBuf]) -> Result<(), WorldError> {
        let args = ["--literal-pathspecs", "add", "-f", "--pathspec-from-file=-", "--pathspec-file-nul"];
        run("stage the injects", self.tool(&args).input(nul_terminated(paths))).await.map(drop)
    }

    /// The tree of what is staged.
    pub(super) async fn write_tree(&self) -> Result<CommitSha, WorldError> {
        const DOING: &str = "write the tree";
        sha(DOING, &run(DOING, self.tool(&["write-tree"])).await?)
    }

    /// A commit of `tree`, at `date` seconds after 1970, UTC.
    pub(super) async fn commit(&self, commit: &NewCommit<'_>) -> Result<CommitSha, WorldError> {
        const DOING: &str = "commit the tree";
        let date = format!("@{} +0000", commit.date);
        let mut tool = self.tool(&["commit-tree", "-m", &commit.message, commit.tree.as_str()]);
        if let Some(parent) = commit.parent {
            tool = tool.args(["-p", parent.as_str()]);
        }
        tool = tool.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date);
        sha(DOING, &run(DOING, tool).await?)
    }

    /// The difference of two trees. Its whole length is read, and of that only the head kept.
    pub(super) async fn diff(&self, from: &CommitSha, to: &CommitSha) -> Result<Diff, WorldError> {
        const DOING: &str = "compare the candidate with the best";
        let table = format!("--stat-count={STAT_LINES}");
        let args = ["diff-tree", "-r", "--patch", "--stat=120", &table, "--no-color", "--no-ext-diff"];
        let tool = self.tool(&args).args(["--no-textconv", from.as_str(), to.as_str(), "--"]);
        let (mut head, mut total) = (Vec::new(), 0u64);
        let mut keep = |bytes: &[u8]| {
            let room = HEAD_LIMIT.saturating_sub(head.len()).min(bytes.len());
            head.extend_from_slice(bytes.get(..room).unwrap_or_default());
            total = total.saturating_add(bytes.len().try_into().unwrap_or(u64::MAX));
        };
        let output = tool.output(Output::Stream).run_with(&mut keep).await;
        succeeded(DOING, output)?;
        Ok(diff::split(&head, total))
    }

    /// The paths in which two trees differ, at most `limit` of them, and how many more there are.
    pub(super) async fn changed_paths(
        &self,
        from: &CommitSha,
        to: &CommitSha,
        limit: usize,
    ) -> Result<(Vec<String>, usize), WorldError> {
        const DOING: &str = "compare the work tree with its commit";
        let args = ["diff-tree", "-r", "-z", "--name-only", from.as_str(), to.as_str()];
        let listed = run(DOING, self.tool(&args)).await?;
        let mut paths = listed.split(|&byte| byte == 0).filter(|path| !path.is_empty());
        let first: Vec<String> =
            paths.by_ref().take(limit).map(|path| path.escape_ascii().to_string()).collect();
        Ok((first, paths.count()))
    }

    /// Makes index and work tree what `commit` holds; changed and untracked files in its way are overwritten.
    pub(super) async fn check_out(&self, commit: &CommitSha) -> Result<(), WorldError> {
        let tool = self.tool(&["read-tree", "--reset", "-u", commit.as_str()]);
        run("write the files of the base", tool).await.map(drop)
    }

    /// The same, and moves the branch that `HEAD` is on. It looks at all files at once, where `read-tree` looks at
    /// one after the other.
    pub(super) async fn reset(&self, commit: &CommitSha) -> Result<(), WorldError> {
        let tool = self.tool(&["reset", "--hard", "--quiet", commit.as_str(), "--"]);
        run("bring the workspace back", tool).await.map(drop)
    }

    /// Makes the index what `commit` holds, and leaves the work tree alone.
    pub(super) async fn read_index(&self, commit: &CommitSha) -> Result<(), WorldError> {
        run("read the commit", self.tool(&["read-tree", "--reset", commit.as_str()])).await.map(drop)
    }

    /// Removes what is neither tracked, ignored nor in `excludes`; repositories inside go too.
    pub(super) async fn clean(&self, excludes: Vec<OsString>) -> Result<(), WorldError> {
        run("clean the workspace", self.tool(&["clean", "-ffdq"]).args(excludes)).await.map(drop)
    }

    /// Those of `paths` that ignore rules cover.
    pub(super) async fn ignored(&self, paths: &[PathBuf]) -> Result<Vec<PathBuf>, WorldError> {
        const DOING: &str = "look up ignore rules";
        let tool = self.tool(&["check-ignore", "-z", "--stdin"]).input(nul_terminated(paths));
        let output = tool.run().await.map_err(WorldError::process(DOING))?;
        // An exit of one says that no path is ignored.
        if output.exit.code() == 1 {
            return Ok(Vec::new());
        }
        Ok(split_paths(&succeeded(DOING, Ok(output))?))
    }

    /// Every staged path with its mode, for those whose entry `wanted` accepts.
    pub(super) async fn entries(
        &self,
        mut wanted: impl FnMut(&[u8], &Path) -> bool,
    ) -> Result<Vec<PathBuf>, WorldError> {
        let listed = run("list the index", self.tool(&["ls-files", "-z", "--stage"])).await?;
        let entry = |line: &[u8]| {
            let tab = line.iter().position(|&byte| byte == b'\t')?;
            let (head, path) = line.split_at(tab);
            let path = split_paths(path.get(1..)?).pop()?;
            wanted(head.get(..6)?, &path).then_some(path)
        };
        Ok(listed.split(|&byte| byte == 0).filter_map(entry).collect())
    }

    /// Fixes these entries of the index: staging and resets pass them by, whatever lies at their paths.
    pub(super) async fn freeze_entries(&self, paths: &[PathBuf]) -> Result<(), WorldError> {
        if paths.is_empty() {
            return Ok(());
        }
        let tool = self.tool(&["update-index", "--skip-worktree", "-z", "--stdin"]);
        run("mark entries of the index", tool.input(nul_terminated(paths))).await.map(drop)
    }

    /// The object that `name` stands for; absent when there is none.
    pub(super) async fn resolve(&self, name: &str) -> Result<Option<CommitSha>, WorldError> {
        const DOING: &str = "look up a name";
        let tool = self.tool(&["rev-parse", "--verify", "--quiet", "--end-of-options", name]);
        let output = tool.run().await.map_err(WorldError::process(DOING))?;
        if !output.exit.success() {
            return Ok(None);
        }
        sha(DOING, &output.stdout).map(Some)
    }

    /// The committer's date of `commit`, in seconds after 1970.
    pub(super) async fn date(&self, commit: &CommitSha) -> Result<i64, WorldError> {
        const DOING: &str = "read the date of the base";
        let args = ["show", "-s", "--no-show-signature", "--format=%ct", commit.as_str(), "--"];
        let answer = run(DOING, self.tool(&args)).await?;
        let text = String::from_utf8_lossy(&answer);
        text.trim()
            .parse()
            .map_err(|_| WorldError::Answer { doing: DOING, answer: text.chars().take(200).collect() })
    }

    /// The regular files of `commit`, or the one at `path`, each with whether it may be executed.
    pub(super) async fn regular_files(
        &self,
        commit: &CommitSha,
        path: Option<&Path>,
    ) -> Result<Vec<(PathBuf, bool)>, WorldError> {
        let tool =
            self.tool(&["ls-tree", "-r", "-z", "--full-tree"]).arg(commit.as_str()).arg("--").args(path);
        let listed = run("list the files of the base", tool).await?;
        let entry = |line: &[u8]| {
            let tab = line.iter().position(|&byte| byte == b'\t')?;
            let (head, path) = line.split_at(tab);
            let executable = match head.get(..6)? {
                b"100644" => false,
                b"100755" => true,
                _ => return None,
            };
            Some((split_paths(path.get(1..)?).pop()?, executable))
        };
        Ok(listed.split(|&byte| byte == 0).filter_map(entry).collect())
    }

    /// The bytes of `path` in `commit`; absent when it holds no such file.
    pub(super) async fn show(&self, commit: &CommitSha, path: &Path) -> Result<Option<Vec<u8>>, WorldError> {
        let mut name = OsString::from(format!("{commit}:"));
        name.push(path);
        let known =
            self.tool(&["rev-parse", "--verify", "--quiet", "--end-of-options"]).arg(&name).run().await;
        if !known.map_err(WorldError::process("read a file of the base"))?.exit.success() {
            return Ok(None);
        }
        run("read a file of the base", self.tool(&["cat-file", "blob"]).arg(name)).await.map(Some)
    }

    /// Copies `commit` without its ancestors, and all it holds, from borrowed objects into a pack of our own.
    pub(super) async fn take_over(&self, commit: &CommitSha) -> Result<(), WorldError> {
        let pack = self.dir.join("objects/pack/pack");
        let tool = self.tool(&["pack-objects", "--revs", "--shallow", "-q"]).arg(pack);
        let wants = format!("--shallow {commit}\n{commit}\n");
        run("copy the base commit", tool.input(Input::Bytes(wants.into_bytes()))).await?;
        let shallow = self.dir.join("shallow");
        super::claim::write_private(&shallow, format!("{commit}\n").as_bytes())
    }

    /// Writes one pack below `objects`: all that `wants` reach, and nothing that `haves` reach. Gives the name that its
    /// files have before their extension. It is not flushed to disk.
    pub(super) async fn pack(
        &self,
        objects: &Path,
        wants: &[CommitSha],
        haves: &[CommitSha],
    ) -> Result<String, WorldError> {
        const DOING: &str = "pack the objects of a commit";
        let wants = wants.iter().map(|sha| format!("{sha}\n"));
        let lines: String = wants.chain(haves.iter().map(|sha| format!("^{sha}\n"))).collect();
        // A search for new deltas costs more time than the space is worth; those that are known are used.
        let tool = self.tool(&["-c", "core.fsync=none", "pack-objects", "--revs", "--window=0", "-q"]);
        let tool = tool.arg(objects.join("pack/pack"));
        let hash = sha(DOING, &run(DOING, tool.input(Input::Bytes(lines.into_bytes()))).await?)?;
        Ok(format!("pack-{hash}"))
    }

    /// Fetches from `url` what `refspecs` name; `shallow` brings commits without their ancestors.
    pub(super) async fn fetch(
        &self,
        url: &OsStr,
        shallow: bool,
        refspecs: &[&str],
    ) -> Result<(), WorldError> {
        let args = ["fetch", "--quiet", "--no-write-fetch-head", "--no-recurse-submodules"];
        let depth: &[&str] = if shallow { &["--depth=1", "--no-tags"] } else { &[] };
        let tool =
            self.tool(&args).args(depth.iter().copied()).arg("--").arg(url).args(refspecs.iter().copied());
        run("fetch the repository", tool).await.map(drop)
    }

    /// Takes a name away.
    pub(super) async fn delete_ref(&self, name: &str) -> Result<(), WorldError> {
        run("drop a name", self.tool(&["update-ref", "-d", name])).await.map(drop)
    }

    /// Puts all names into one file, `packed-refs`.
    pub(super) async fn pack_refs(&self) -> Result<(), WorldError> {
        run("pack the names", self.tool(&["pack-refs", "--all"])).await.map(drop)
    }

    /// Whether this repository counts in SHA-256.
    pub(super) fn is_sha256(&self) -> Result<bool, WorldError> {
        let config = self.dir.join("config");
        let text = std::fs::read_to_string(&config).map_err(WorldError::io("read", &config))?;
        Ok(text == super::layout::private_config(true))
    }

    /// The file that the user's configuration names as `core.excludesFile`, if it does.
    pub(super) async fn global_excludes_file(user: &Environment) -> Option<PathBuf> {
        let mut env = user.clone();
        for name in REDIRECTIONS {
            env.remove(name);
        }
        let args = ["config", "--global", "--type=path", "--get", "core.excludesFile"];
        let output = Tool::new("git", env).cwd("/").args(args).run().await.ok()?;
        let line = output.exit.success().then_some(output.stdout)?;
        split_paths(line.strip_suffix(b"\n")?).pop()
    }
}

/// A commit to be made.
pub(super) struct NewCommit<'a> {
    pub(super) tree: &'a CommitSha,
    pub(super) parent: Option<&'a CommitSha>,
    pub(super) message: String,
    pub(super) date: i64,
}

/// Variables that tell git where its repository is or what it holds.
const REDIRECTIONS: [&str; 14] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CEILING_DIRECTORIES",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_QUARANTINE_PATH",
    "GIT_INTERNAL_SUPER_PREFIX",
];

pub(super) async fn run(doing: &'static str, tool: Tool) -> Result<Vec<u8>, WorldError> {
    succeeded(doing, tool.run().await)
}

fn succeeded(doing: &'static str, output: Result<ToolOutput, ProcessError>) -> Result<Vec<u8>, WorldError> {
    let output = match output {
        Err(ProcessError::Cancelled { .. }) => return Err(WorldError::Cancelled { doing }),
        Err(ProcessError::Timeout { after, .. }) => return Err(WorldError::TooLong { doing, after }),
        other => other.map_err(WorldError::process(doing))?,
    };
    if output.exit.success() {
        return Ok(output.stdout);
    }
    let message = String::from_utf8_lossy(&output.stderr_tail).trim().to_owned();
    Err(WorldError::Git { doing, exit: output.exit, message })
}

fn sha(doing: &'static str, answer: &[u8]) -> Result<CommitSha, WorldError> {
    let text = String::from_utf8_lossy(answer);
    CommitSha::parse(text.trim_end())
        .ok_or_else(|| WorldError::Answer { doing, answer: text.chars().take(200).collect() })
}

pub(super) fn nul_terminated(paths: &[PathBuf]) -> Input {
    use std::os::unix::ffi::OsStrExt as _;
    let each = paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"]);
    Input::Bytes(each.flatten().copied().collect())
}

pub(super) fn split_paths(listed: &[u8]) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let paths = listed.split(|&byte| byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}

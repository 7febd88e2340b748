//! The world on real git: what an agent may do to a workspace, and what the engine makes of it (contract §5).
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made is a failed test")]

mod agent;
mod commands;
mod hostile;
mod inplace;
mod keep;
mod persons;
mod setup;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::sys::env::Environment;
use engine::sys::keeper::Keeper;
use engine::sys::process::Tool;
use engine::world::{
    Candidate, GitWorld, PackRunner, Place, Recorded, Setup, Source, Spec, Workspace, World as _, WorldError,
};
use tokio_util::sync::CancellationToken;

/// A directory with a pack, an upstream and a home in it.
struct Case {
    dir: tempfile::TempDir,
    env: Environment,
    runner: PackRunner,
}

impl Case {
    async fn new() -> Case {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["home", "pack", "pack/state", "outside", "upstream"] {
            fs::create_dir(dir.path().join(sub)).unwrap();
        }
        fs::write(dir.path().join("outside/file"), "outside\n").unwrap();
        let exe = Path::new(env!("CARGO_BIN_EXE_crucible-under-test"));
        let env = environment(dir.path());
        let runner = PackRunner {
            keeper: Arc::new(Keeper::start_with(exe).await.unwrap()),
            env: env.clone(),
            timeout: None,
            cancel: CancellationToken::new(),
        };
        Case { dir, env, runner }
    }

    /// A case whose upstream has had `script` run in it, after `git init`, and is committed.
    async fn with_upstream(script: &str) -> Case {
        let case = Case::new().await;
        let whole =
            format!("git init -q -b main . && {{ {script}\n}} && git add -A && git commit -q -m upstream");
        case.sh("upstream", &whole).await;
        case
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn workspace(&self) -> PathBuf {
        self.path("pack/workspace")
    }

    /// Runs `script` as a user or an agent would, and gives its output. It must succeed.
    async fn sh(&self, below: &str, script: &str) -> String {
        let (ok, output) = self.try_sh(below, script).await;
        assert!(ok, "{script}: {output}");
        output
    }

    async fn try_sh(&self, below: &str, script: &str) -> (bool, String) {
        let tool = Tool::new("sh", self.env.clone()).cwd(self.path(below)).arg("-c").arg(script);
        let output = tool.run().await.unwrap();
        let text = [output.stdout, output.stderr_tail].concat();
        (output.exit.success(), String::from_utf8_lossy(&text).trim_end().to_owned())
    }

    fn spec(&self, source: Source) -> Spec {
        Spec {
            run: "r1".to_owned(),
            place: Place {
                state_dir: self.path("pack/state"),
                workspace: self.workspace(),
                own: Vec::new(),
                env: self.env.clone(),
            },
            manifest_dir: self.path("pack"),
            source,
            reference: None,
            history: false,
            injects: Vec::new(),
            user_env: self.env.clone(),
        }
    }

    fn clone_spec(&self) -> Spec {
        self.spec(Source::Local(self.path("upstream")))
    }

    async fn set_up(&self, spec: &Spec) -> Result<Workspace, WorldError> {
        Setup::new(spec, &self.runner).run().await
    }

    async fn world(&self) -> GitWorld {
        GitWorld::new(self.set_up(&self.clone_spec()).await.unwrap())
    }

    /// What a hook, filter or monitor would leave if it ran.
    fn canary(&self) -> PathBuf {
        self.path("outside/canary")
    }

    fn assert_outside_is_unchanged(&self, what: &str) {
        assert!(!self.canary().exists(), "{what}: something planted has run");
        assert_eq!(fs::read_to_string(self.path("outside/file")).unwrap(), "outside\n", "{what}");
        assert_eq!(fs::read_dir(self.path("outside")).unwrap().count(), 1, "{what}");
    }

    /// The workspace's repository must be sound, clean, and on the run's branch at `commit`.
    async fn assert_shown(&self, below: &str, commit: &str, what: &str) {
        let (sound, text) = self.try_sh(below, "git fsck --no-progress 2>&1").await;
        assert!(sound && !text.contains("missing"), "{what}: {text}");
        assert_eq!(self.sh(below, "git rev-parse HEAD").await, commit, "{what}");
        assert_eq!(self.sh(below, "git symbolic-ref HEAD").await, "refs/heads/crucible/r1", "{what}");
        assert_eq!(self.sh(below, "git status --porcelain").await, "", "{what}");
    }
}

fn environment(dir: &Path) -> Environment {
    let mut env = Environment::empty();
    env.set("PATH", "/usr/local/bin:/usr/bin:/bin").set("GIT_CONFIG_NOSYSTEM", "1");
    env.set("HOME", dir.join("home")).set("OUTSIDE", dir.join("outside"));
    env.set("CANARY", dir.join("outside/canary"));
    for who in ["AUTHOR", "COMMITTER"] {
        env.set(format!("GIT_{who}_NAME"), "someone").set(format!("GIT_{who}_EMAIL"), "someone@localhost");
    }
    env
}

/// Every file, link and directory of a workspace with what git keeps of it, its `.git` left out.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().escape_ascii().to_string();
            let metadata = path.symlink_metadata().unwrap();
            if name == ".git" {
                continue;
            }
            let what = if metadata.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if metadata.is_dir() {
                open.push(path);
                continue;
            } else if metadata.is_file() {
                let executable = metadata.permissions().mode() & 0o100 != 0;
                format!("{executable} {}", fs::read(&path).unwrap().escape_ascii())
            } else {
                "special".to_owned()
            };
            found.insert(name, what);
        }
    }
    found
}

fn candidate(recorded: Recorded) -> Candidate {
    match recorded {
        Recorded::Candidate(candidate) => candidate,
        Recorded::Refused { why } => panic!("refused: {why}"),
    }
}

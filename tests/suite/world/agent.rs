//! The repository that a sandboxed agent sees: the code as it is, whole, and nothing that led to it.

use super::*;

const STATUS: &str =
    "git --no-optional-locks --git-dir=state/agent.git --work-tree=workspace status --porcelain";

impl Case {
    /// Runs git on the repository that the agent sees.
    async fn agent_git(&self, args: &str) -> String {
        self.sh(
            "pack",
            &format!("git --no-optional-locks --git-dir=state/agent.git --work-tree=workspace {args}"),
        )
        .await
    }

    /// Brings the repository to the best, which must then be its only commit, with everything there and nothing changed.
    async fn show(&self, world: &mut GitWorld, what: &str) {
        let path = world.workspace().agent_repository().await.unwrap();
        assert_eq!(path, self.path("pack/state/agent.git"));
        assert_eq!(self.sh("pack", STATUS).await, "", "{what}");
        assert_eq!(self.agent_git("diff HEAD").await, "", "{what}");
        assert_eq!(self.agent_git("diff --cached HEAD").await, "", "{what}");
        let (sound, text) = self.try_sh("pack", "git --git-dir=state/agent.git fsck --full 2>&1").await;
        assert!(sound && !text.contains("missing"), "{what}: {text}");
        let best = world.last_commit_sha().clone();
        let best = self.sh("pack", &format!("git --git-dir=state/git rev-parse {best}^{{tree}}")).await;
        assert_eq!(self.agent_git("rev-parse HEAD^{tree}").await, best, "{what}");
    }

    async fn commits(&self) -> String {
        self.agent_git("rev-list --count HEAD").await
    }

    /// Whether the object is in the agent's repository; it must be in the engine's.
    async fn agent_has(&self, object: &str) -> bool {
        self.sh("pack", &format!("git --git-dir=state/git cat-file -e {object}")).await;
        self.try_sh("pack", &format!("git --git-dir=state/agent.git cat-file -e {object}")).await.0
    }

    /// What the file `text` is called as an object.
    async fn blob(&self, text: &str) -> String {
        self.sh("pack", &format!("echo {text} | git hash-object --stdin")).await
    }

    fn packs(&self) -> usize {
        let packs = fs::read_dir(self.path("pack/state/agent.git/objects/pack")).unwrap();
        packs.filter(|entry| entry.as_ref().unwrap().path().extension() == Some("pack".as_ref())).count()
    }

    /// Writes `text` to `a` and keeps it.
    async fn keep(&self, world: &mut GitWorld, text: &str) {
        self.sh("pack/workspace", &format!("echo {text} > a")).await;
        world.snapshot().await.unwrap();
    }
}

#[tokio::test]
async fn it_is_one_commit_on_main_that_the_work_tree_agrees_with() {
    let case = Case::with_upstream(
        "printf 'a\\r\\n' > a; printf '* text=auto eol=lf\\n' > .gitattributes; echo up > RESULTS.md; mkdir -p d/e; echo x > d/e/x; chmod +x d/e/x; ln -s a l",
    )
    .await;
    let mut world = case.world().await;
    case.sh("pack/workspace", "for f in RESULTS.md ESCALATION.json CANDIDATE.md PLAN_TASK_RESULT.json PROVISIONING_PENDING.json; do echo mine > $f; done; mkdir .claude; echo s > .claude/s").await;
    case.show(&mut world, "base").await;
    assert_eq!(case.agent_git("symbolic-ref HEAD").await, "refs/heads/main");
    let line = case.agent_git("log --all --format='%an <%ae> %cn%d [%P] %s'").await;
    assert_eq!(line, "crucible <crucible@localhost> crucible (HEAD -> main) [] crucible: the code as it is");
    let date = "log -1 --format='%ad %cd' --date=unix";
    let of_base = format!("{0} {0}", world.workspace().facts().date);
    assert_eq!(case.agent_git(date).await, of_base);
    let refs =
        case.sh("pack/state/agent.git", "find refs logs packed-refs shallow -type f 2>/dev/null; true").await;
    assert_eq!(refs, "refs/heads/main");
    let open = "find agent.git -prune ! -perm 700; find agent.git -type f -perm /077";
    assert_eq!(case.sh("pack/state", open).await, "");
    let before = fs::metadata(case.path("pack/state/agent.git/index")).unwrap().modified().unwrap();
    case.show(&mut world, "again").await;
    let after = fs::metadata(case.path("pack/state/agent.git/index")).unwrap().modified().unwrap();
    assert_eq!((case.packs(), before), (1, after), "nothing is done without a change");
}

#[tokio::test]
async fn upstream_history_and_discarded_candidates_are_not_there() {
    let case = Case::with_upstream("echo secret > gone; echo a > a; git add -A; git commit -qm first; git tag v1; git branch side; rm gone").await;
    let mut world = case.world().await;
    let base = world.snapshot().await.unwrap();
    case.show(&mut world, "base").await;
    let upstream = case.sh("upstream", "git rev-parse HEAD").await;
    assert!(!case.agent_has(&upstream).await, "the base commit itself names its parents and its author");
    let secret = case.blob("secret").await;
    let (there, _) =
        case.try_sh("pack", &format!("git --git-dir=state/agent.git cat-file -e {secret}")).await;
    assert!(!there);

    case.sh("pack/workspace", "echo discarded > a; echo more > b").await;
    let recorded = candidate(world.workspace().record(1).await.unwrap());
    let name = world.workspace().agent_repository().await.unwrap().join("index");
    let listed = case
        .sh("pack", &format!("GIT_INDEX_FILE={} git --git-dir=state/agent.git ls-files", name.display()))
        .await;
    assert_eq!(listed, "a", "not even the names of what is only recorded");
    world.restore(&base).await.unwrap();
    case.keep(&mut world, "kept").await;
    case.show(&mut world, "kept").await;
    assert_eq!(case.commits().await, "1");
    let discarded = case.blob("discarded").await;
    for object in [recorded.commit.as_str(), recorded.tree.as_str(), &discarded] {
        assert!(!case.agent_has(object).await, "{object}");
    }
    assert!(case.agent_has(&case.blob("a").await).await, "an earlier best may be there for a while");
    let config = fs::read_to_string(case.path("pack/state/agent.git/config")).unwrap();
    assert!(!config.contains("upstream") && !config.contains("remote"), "{config}");
}

#[tokio::test]
async fn what_is_only_recorded_is_not_in_its_index() {
    let case = Case::with_upstream("echo a > a").await;
    let mut world = case.world().await;
    case.show(&mut world, "base").await;
    case.keep(&mut world, "kept").await;
    case.sh("pack/workspace", "echo tried > a; echo b > b").await;
    candidate(world.workspace().record(1).await.unwrap());
    world.workspace().agent_repository().await.unwrap();
    assert_eq!(case.agent_git("diff --cached HEAD").await, "");
    assert_eq!(case.sh("pack", STATUS).await, " M a\n?? b", "the files are what they are");
}

#[tokio::test]
async fn after_many_keeps_it_is_still_one_commit_and_old_trees_go() {
    let case = Case::with_upstream("echo a > a; mkdir d; echo b > d/b").await;
    let mut world = case.world().await;
    let first = world.snapshot().await.unwrap();
    case.show(&mut world, "base").await;
    for turn in 1..=25 {
        case.sh(
            "pack/workspace",
            &format!("mkdir -p d/{turn}; echo {turn} > d/{turn}/x; rm -rf d/$(({turn} - 3))"),
        )
        .await;
        case.keep(&mut world, &turn.to_string()).await;
        case.show(&mut world, &turn.to_string()).await;
        assert_eq!(case.commits().await, "1");
        assert_eq!(case.packs(), if turn <= 20 { turn + 1 } else { turn - 20 });
        let old = case.blob("1").await;
        assert_eq!(case.agent_has(&old).await, turn <= 20, "{turn}");
    }
    world.restore(&first).await.unwrap();
    case.show(&mut world, "back at the first").await;
}

#[tokio::test]
async fn a_torn_or_missing_repository_is_made_anew() {
    let case = Case::with_upstream("echo a > a").await;
    let mut world = case.world().await;
    case.show(&mut world, "base").await;
    case.sh("pack", "rm -r state/agent.git").await;
    case.show(&mut world, "removed").await;
    case.sh("pack", "rm -r state/agent.git/objects; touch state/agent.git/index.lock").await;
    case.keep(&mut world, "kept").await;
    world.workspace().agent_repository().await.unwrap_err();
    case.show(&mut world, "after the error").await;
    drop(world);
    case.sh("pack", "rm -r state/agent.git/objects; touch state/agent.git/index.lock").await;
    let mut world = GitWorld::new(Workspace::open(&case.clone_spec().place).await.unwrap());
    case.show(&mut world, "resumed").await;
    drop(world);
    let mut world = case.world().await;
    assert!(!case.path("pack/state/agent.git").exists(), "a new setup takes the earlier one away");
    case.show(&mut world, "set up again").await;
}

#[tokio::test]
async fn ten_thousand_files_are_shown_and_shown_again() {
    let case = Case::with_upstream(
        "for i in $(seq 100); do mkdir d$i; for j in $(seq 100); do echo $i $j > d$i/$j; done; done",
    )
    .await;
    let mut world = case.world().await;
    case.show(&mut world, "base").await;
    case.sh("pack/workspace", "rm -r d1; for i in $(seq 2 50); do echo x > d$i/1; done; mv d60 d600").await;
    world.snapshot().await.unwrap();
    case.show(&mut world, "kept").await;
    assert_eq!((case.packs(), case.agent_git("ls-files | wc -l").await.as_str()), (2, "9900"));
    let listed = "cat-file --batch-all-objects --batch-check | wc -l";
    let objects: usize = case.agent_git(listed).await.parse().unwrap();
    // 10,000 files, 100 directories, a root and a commit; then one file, 49 changed directories, a root and a commit.
    assert_eq!(objects, 10_102 + 52);
}

#[tokio::test]
async fn with_history_the_one_commit_stands_on_the_upstreams() {
    let case = Case::with_upstream("echo secret > gone; echo a > a; git add -A; git commit -qm first; git tag -am tag v1; git branch side; rm gone").await;
    let spec = Spec { history: true, ..case.clone_spec() };
    let mut world = GitWorld::new(case.set_up(&spec).await.unwrap());
    case.show(&mut world, "base").await;
    let upstream = case.sh("upstream", "git rev-parse HEAD").await;
    case.sh("pack/workspace", "echo discarded > a").await;
    candidate(world.workspace().record(1).await.unwrap());
    let old = case.blob("1").await;
    for turn in 1..=22 {
        case.keep(&mut world, &turn.to_string()).await;
        case.show(&mut world, &turn.to_string()).await;
        assert_eq!(case.agent_git("rev-parse HEAD^").await, upstream);
        assert_eq!(case.commits().await, "3");
        assert_eq!(case.agent_has(&old).await, turn <= 20, "{turn}");
    }
    let log = case.agent_git("log --format=%s%d").await;
    let expect =
        "crucible: the code as it is (HEAD -> main)\nupstream (origin/main)\nfirst (tag: v1, origin/side)";
    assert_eq!(log, expect);
    assert_eq!(case.agent_git("show v1:gone").await, "secret");
    assert!(!case.agent_has(&case.blob("discarded").await).await);
    let refs = case.agent_git("for-each-ref --format='%(refname)'").await;
    assert_eq!(refs, "refs/heads/main\nrefs/remotes/origin/main\nrefs/remotes/origin/side\nrefs/tags/v1");
}

#[tokio::test]
async fn in_place_it_is_one_commit_that_ignores_what_the_user_ignores() {
    let case = Case::new().await;
    case.sh("pack", "git init -q -b main . && echo secret > a && git add a && git commit -qm one && echo b > a && git commit -qam two && git tag v1 && echo '/mine' >> .git/info/exclude && mkdir .vscode && echo x > .vscode/x && echo x > mine && printf '[core]\\n\\texcludesFile = ~/ignore\\n' > ../home/.gitconfig && echo .vscode > ../home/ignore").await;
    let mut spec = case.spec(Source::InPlace);
    spec.place.workspace = case.path("pack");
    spec.place.own = vec![PathBuf::from("state"), PathBuf::from("STEER.md")];
    for history in [false, true] {
        spec.history = history;
        let mut workspace = case.set_up(&spec).await.unwrap();
        let path = workspace.agent_repository().await.unwrap();
        case.sh("pack", "echo steer > STEER.md").await;
        let git =
            format!("HOME=/nonexistent git --no-optional-locks --git-dir={} --work-tree=.", path.display());
        assert_eq!(case.sh("pack", &format!("{git} status --porcelain")).await, "");
        let log = case.sh("pack", &format!("{git} log --all --format=%s")).await;
        assert_eq!(log, "crucible: the code as it is");
        let secret = case.blob("secret").await;
        assert!(!case.try_sh("pack", &format!("{git} cat-file -e {secret}")).await.0);
        case.sh("pack", "rm -r state/* STEER.md").await;
    }
}

#[tokio::test]
async fn submodules_and_sha256_are_shown_as_they_are() {
    let case = Case::new().await;
    let script = "git init -q --object-format=sha256 -b main . && echo a > a && git add a && git commit -qm one && git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub && mkdir sub && git commit -qm two";
    case.sh("upstream", script).await;
    let mut world = case.world().await;
    case.show(&mut world, "base").await;
    case.keep(&mut world, "kept").await;
    case.show(&mut world, "kept").await;
    assert_eq!(case.agent_git("ls-files").await, "a\nsub");
    assert_eq!(case.agent_git("rev-parse HEAD").await.len(), 64);
}

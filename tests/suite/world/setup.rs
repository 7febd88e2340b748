//! Where a workspace comes from: clones, copies, commands, injects, and setups that were cut short (N15).

use super::*;
use engine::world::{Inject, SETUP_FILE};
use sha2::{Digest as _, Sha256};

const HISTORY: &str = "echo 1 > a; git add a; git commit -q -m one; git tag v1; git tag -a -m annotated v1a; echo 2 > a; git commit -qam two; \
    git branch side; git checkout -q side; echo 3 > a; git commit -qam three; git tag answer; git checkout -q main; echo 4 > a";

fn inject(case: &Case, src: &str, dst: &str) -> Inject {
    let src = case.path(src);
    let sha256 = Sha256::digest(fs::read(&src).unwrap()).into();
    Inject { src, dst: dst.into(), frozen: true, mode: 0o755, sha256 }
}

#[tokio::test]
async fn a_clone_without_history_holds_one_commit_and_nothing_else() {
    let case = Case::with_upstream(HISTORY).await;
    let head = case.sh("upstream", "git rev-parse HEAD").await;
    let workspace = case.set_up(&case.clone_spec()).await.unwrap();
    assert_eq!(workspace.facts().base.as_str(), head);
    case.assert_shown("pack/workspace", &head, "clone").await;
    for (script, expect) in [
        ("git rev-list --all | wc -l", "1"),
        ("git for-each-ref --format='%(refname)'", "refs/heads/crucible/r1"),
        ("git remote", ""),
        ("git reflog --all", ""),
        ("ls .git | grep FETCH_HEAD || echo none", "none"),
        (
            "git cat-file --batch-all-objects --batch-check='%(objecttype)' | sort | tr '\\n' ' '",
            "blob commit tree ",
        ),
    ] {
        assert_eq!(case.sh("pack/workspace", script).await, expect.trim_end(), "{script}");
    }
    let answer = case.sh("upstream", "git rev-parse answer").await;
    assert!(!case.try_sh("pack/workspace", &format!("git cat-file -e {answer}")).await.0);
    let objects = case
        .sh("pack/state/git", "git --git-dir=. cat-file --batch-all-objects --batch-check='%(objecttype)'")
        .await;
    assert_eq!(objects.lines().count(), 3, "the engine's own has no more either");
}

#[tokio::test]
async fn a_clone_with_history_has_branches_and_tags_and_no_credentials() {
    let case = Case::with_upstream(HISTORY).await;
    let mut spec = case.clone_spec();
    spec.history = true;
    spec.reference = Some("side".to_owned());
    let mut world = GitWorld::new(case.set_up(&spec).await.unwrap());
    let refs = case.sh("pack/workspace", "git for-each-ref --format='%(refname)' | tr '\\n' ' '").await;
    let expect = "refs/heads/crucible/r1 refs/remotes/origin/main refs/remotes/origin/side refs/tags/answer refs/tags/v1 refs/tags/v1a";
    assert_eq!(refs, expect);
    assert_eq!(case.sh("pack/workspace", "git log --format=%s | tr '\\n' ' '").await, "three two one");
    // A repository that was destroyed comes back with all of it.
    case.sh("pack/workspace", "rm -rf .git; echo x > a").await;
    candidate(world.workspace().record(1).await.unwrap());
    let kept = world.snapshot().await.unwrap();
    case.assert_shown("pack/workspace", kept.commit().as_str(), "history").await;
    assert_eq!(
        case.sh("pack/workspace", "git log --format=%s | tail -n 3 | tr '\\n' ' '").await,
        "three two one"
    );
    assert_eq!(
        case.sh("pack/workspace", "git rev-parse answer^{tree}").await,
        case.sh("upstream", "git rev-parse answer^{tree}").await
    );
}

#[tokio::test]
async fn a_ref_is_a_branch_a_tag_or_a_commit() {
    let case = Case::with_upstream(HISTORY).await;
    let full = case.sh("upstream", "git update-ref refs/pull/7/head side; git rev-parse v1").await;
    for history in [false, true] {
        for (reference, expect) in [
            ("side", "3\\n"),
            ("v1", "1\\n"),
            ("v1a", "1\\n"),
            (full.as_str(), "1\\n"),
            (&full[..12], "1\\n"),
            ("refs/heads/side", "3\\n"),
            ("refs/tags/v1", "1\\n"),
            ("refs/pull/7/head", "3\\n"),
        ] {
            let mut spec = case.clone_spec();
            (spec.reference, spec.history) = (Some(reference.to_owned()), history);
            let workspace = case.set_up(&spec).await.unwrap_or_else(|error| panic!("{reference}: {error}"));
            assert_eq!(tree(workspace.path())["a"], format!("false {expect}"), "{reference} {history}");
            let commits = case.sh("pack/workspace", "git rev-list HEAD | wc -l").await;
            assert_eq!(commits == "1", !history || expect == "1\\n", "{reference} {history}");
        }
        for reference in
            ["nowhere", "-x", "--upload-pack=touch x", "a:b", "0123456789012345678901234567890123456789", ""]
        {
            let mut spec = case.clone_spec();
            (spec.reference, spec.history) = (Some(reference.to_owned()), history);
            let error = case.set_up(&spec).await.map(|_| reference).unwrap_err();
            assert!(matches!(error, WorldError::UnknownRef { .. }), "{reference} {history}: {error}");
        }
    }
}

#[tokio::test]
async fn sources_of_every_kind_can_be_cloned() {
    let case = Case::with_upstream("echo a > a").await;
    case.sh("", "git clone -q --bare upstream bare.git; git -C upstream worktree add -q ../linked; git init -q --object-format=sha256 sha256; \
        cd sha256; echo a > a; git add a; git commit -q -m x; cd ..; git init -q --ref-format=reftable reftable && cd reftable && echo a > a && git add a && git commit -q -m x; mkdir -p ../bad")
        .await;
    let url = |name: &str| Source::Url(format!("file://{}", case.path(name).display()));
    for source in [
        Source::Local(case.path("bare.git")),
        Source::Local(case.path("linked")),
        Source::Local(case.path("sha256")),
        Source::Local(case.path("reftable")),
        url("upstream"),
        url("sha256"),
    ] {
        let mut spec = case.spec(source.clone());
        for name in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_WORK_TREE"] {
            spec.user_env.set(name, "/nowhere");
            spec.place.env.set(name, "/nowhere");
        }
        let mut world =
            GitWorld::new(case.set_up(&spec).await.unwrap_or_else(|error| panic!("{source:?}: {error}")));
        assert_eq!(tree(&case.workspace())["a"], "false a\\n");
        case.sh("pack/workspace", "echo b > a").await;
        candidate(world.workspace().record(1).await.unwrap());
        let kept = world.snapshot().await.unwrap();
        case.assert_shown("pack/workspace", kept.commit().as_str(), "source").await;
    }
    let error = case.set_up(&case.spec(url("nowhere"))).await.unwrap_err();
    assert!(matches!(&error, WorldError::Git { message, .. } if message.contains("nowhere")), "{error}");
    assert!(!case.workspace().exists());
}

#[tokio::test]
async fn a_directory_that_is_no_repository_is_copied_and_an_enclosing_one_is_never_found() {
    let case = Case::new().await;
    case.sh("", "git init -q . && git commit -q --allow-empty -m enclosing").await;
    case.sh("pack", "echo a > a; mkdir -p d inner; echo b > d/b; ln -s a in; ln -s /etc/passwd out; ln -s ../../outside/file d/up; mkfifo pipe; \
        git init -q inner; echo i > inner/i; echo secret > state/secret; chmod +x d/b")
        .await;
    let mut world = GitWorld::new(case.set_up(&case.spec(Source::Local(case.path("pack")))).await.unwrap());
    let there = tree(&case.workspace());
    assert_eq!(there.keys().collect::<Vec<_>>(), ["a", "d/b", "in", "inner/i"]);
    assert_eq!(there["d/b"], "true b\\n");
    case.assert_shown("pack/workspace", world.last_commit_sha().as_str(), "copy").await;
    assert_eq!(
        case.sh("pack/workspace", "git log --format='%an %at %s'").await,
        "crucible 946684800 crucible: base"
    );
    case.sh("pack/workspace", "echo b > a").await;
    assert!(candidate(world.workspace().record(1).await.unwrap()).changed);
}

#[tokio::test]
async fn a_setup_command_runs_beside_the_manifest_and_may_leave_a_repository() {
    let case = Case::with_upstream(HISTORY).await;
    let head = case.sh("upstream", "git rev-parse HEAD").await;
    for (command, commits, base) in [
        ("mkdir workspace; pwd > ../where; echo x > workspace/a", "1", None),
        ("git clone -q ../upstream workspace", "1", Some(head.as_str())),
        ("git clone -q ../upstream workspace; echo more > workspace/more", "2", Some(head.as_str())),
        ("git init -q workspace; echo x > workspace/a", "1", None),
    ] {
        let workspace = case.set_up(&case.spec(Source::Command(command.to_owned()))).await.unwrap();
        assert_eq!(case.sh("pack/workspace", "git rev-list --all | wc -l").await, commits, "{command}");
        if let Some(base) = base {
            assert_eq!(workspace.facts().base.as_str(), base, "{command}");
        }
        case.assert_shown("pack/workspace", workspace.best().as_str(), command).await;
    }
    let cwd = fs::read_to_string(case.path("where")).unwrap();
    assert_eq!(Path::new(cwd.trim_end()), case.path("pack").canonicalize().unwrap());
    let mut spec = case.spec(Source::Command("git clone -q ../upstream workspace".to_owned()));
    spec.history = true;
    case.set_up(&spec).await.unwrap();
    assert_eq!(case.sh("pack/workspace", "git log --format=%s | tr '\\n' ' '").await, "upstream two one");
    for (command, expect) in [
        ("echo no network >&2; exit 7", "ended with exit code 7: no network"),
        ("true", "it left no directory"),
        ("ln -s ../outside workspace", "it left no directory"),
    ] {
        let error = case.set_up(&case.spec(Source::Command(command.to_owned()))).await.unwrap_err();
        assert!(error.to_string().contains(expect), "{error}");
    }
}

#[tokio::test]
async fn injects_are_the_baseline_on_top_of_the_base() {
    let case = Case::with_upstream("echo /judge/ > .gitignore; echo a > a; ln -s ../../outside out").await;
    fs::write(case.path("pack/measure"), "#!/bin/sh\n").unwrap();
    let mut spec = case.clone_spec();
    spec.injects = vec![inject(&case, "pack/measure", "judge/measure"), inject(&case, "pack/measure", "a")];
    let workspace = case.set_up(&spec).await.unwrap();
    let facts = workspace.facts();
    assert_ne!(facts.base, facts.baseline);
    let parent = case.sh("pack/state/git", &format!("git --git-dir=. rev-parse {}^", facts.baseline)).await;
    assert_eq!(parent, facts.base.as_str());
    assert_eq!(
        case.sh("pack/workspace", "git ls-files | tr '\\n' ' '").await,
        ".gitignore a judge/measure out"
    );
    assert_eq!(workspace.base_file(Path::new("a")).await.unwrap().unwrap(), b"a\n");
    assert_eq!(workspace.base_file(Path::new("judge/measure")).await.unwrap(), None);
    drop(workspace);

    for (dst, expect) in [
        ("../x", "has a `..`"),
        (".git/hooks/x", "into a .git"),
        ("sub/.GIT/x", "into a .git"),
        ("out/x", "a directory on the way"),
        ("", "empty"),
        ("/x", "absolute"),
    ] {
        spec.injects = vec![inject(&case, "pack/measure", dst)];
        let error = case.set_up(&spec).await.unwrap_err();
        assert!(error.to_string().contains(expect), "{dst}: {error}");
    }
    spec.injects = vec![inject(&case, "pack/measure", "m")];
    fs::write(case.path("pack/measure"), "changed").unwrap();
    let error = case.set_up(&spec).await.unwrap_err();
    assert!(error.to_string().contains("has changed since the pack was read"), "{error}");
    case.assert_outside_is_unchanged("injects");
}

#[tokio::test]
async fn frozen_injects_come_back_through_nothing_that_was_planted() {
    for (name, script) in [
        ("edited", "echo cheat > judge/d/measure"),
        ("same length", "printf '#!/bin/xx\\n' > judge/d/measure"),
        ("mode", "chmod 644 judge/d/measure"),
        ("gone", "rm -r judge"),
        ("link", "rm judge/d/measure; ln -s \"$OUTSIDE/file\" judge/d/measure"),
        ("link to an equal file", "mv judge/d/measure m; ln -s ../../m judge/d/measure"),
        ("parent a link out", "rm -r judge/d; ln -s \"$OUTSIDE\" judge/d"),
        ("grandparent a link", "mv judge j; ln -s j judge"),
        ("parent a file", "rm -r judge; echo x > judge"),
        (
            "directory in its place",
            "rm judge/d/measure; mkdir -p judge/d/measure/x; chmod 000 judge/d/measure",
        ),
        ("FIFO", "rm judge/d/measure; mkfifo judge/d/measure"),
        ("closed", "chmod 000 judge/d"),
        ("hard link", "ln judge/d/measure other; echo cheat > other"),
    ] {
        let case = Case::with_upstream("echo a > a").await;
        fs::write(case.path("pack/measure"), "#!/bin/sh\n").unwrap();
        let mut spec = case.clone_spec();
        spec.injects =
            vec![inject(&case, "pack/measure", "judge/d/measure"), inject(&case, "pack/measure", "free")];
        spec.injects[1].frozen = false;
        let workspace = case.set_up(&spec).await.unwrap();
        let frozen = workspace.frozen();
        assert_eq!(frozen.restore(workspace.path()).unwrap(), [""; 0].map(PathBuf::from), "{name}");
        case.sh("pack/workspace", &format!("{script}; echo mine > free")).await;
        let changed = frozen.restore(workspace.path()).unwrap();
        if name != "closed" || !nix::unistd::geteuid().is_root() {
            assert_eq!(changed, [PathBuf::from("judge/d/measure")], "{name}");
        }
        assert_eq!(
            case.sh(
                "pack/workspace",
                "cat judge/d/measure; stat -c '%F %a' judge/d/measure; test ! -L judge && test ! -L judge/d"
            )
            .await,
            "#!/bin/sh\nregular file 755",
            "{name}"
        );
        assert_eq!(fs::read_to_string(case.path("pack/workspace/free")).unwrap(), "mine\n");
        case.assert_outside_is_unchanged(name);
        fs::write(case.path("pack/state/frozen/0"), "tampered").unwrap();
        case.sh("pack/workspace", "echo cheat > judge/d/measure").await;
        assert!(matches!(frozen.restore(workspace.path()), Err(WorldError::Files(_))), "{name}");
    }
}

#[tokio::test]
async fn a_directory_that_is_not_ours_is_never_replaced_and_one_that_is_is() {
    let case = Case::with_upstream("echo a > a").await;
    let spec = case.clone_spec();
    case.sh("pack", "mkdir workspace; echo precious > workspace/work").await;
    for source in [spec.source.clone(), Source::Command("true".to_owned()), Source::Empty] {
        let error = case.set_up(&case.spec(source)).await.unwrap_err();
        assert!(matches!(error, WorldError::InTheWay { .. }), "{error}");
    }
    assert_eq!(
        case.sh("pack", "cat workspace/work; rm -r workspace; ln -s ../outside workspace").await,
        "precious"
    );
    assert!(matches!(case.set_up(&spec).await, Err(WorldError::InTheWay { .. })));
    case.assert_outside_is_unchanged("a link as the workspace");

    case.sh("pack", "rm workspace; mkdir workspace").await;
    case.set_up(&spec).await.unwrap();
    case.sh("pack/workspace", "echo second > b; mkdir -p shut/in; chmod 000 shut").await;
    case.set_up(&spec).await.unwrap();
    assert_eq!(tree(&case.workspace()).keys().collect::<Vec<_>>(), ["a"], "a second run starts anew");

    case.sh("pack", "mv workspace old; mkdir workspace; echo precious > workspace/work").await;
    assert!(
        matches!(case.set_up(&spec).await, Err(WorldError::InTheWay { .. })),
        "another directory took its place"
    );
}

#[tokio::test]
async fn an_interrupted_setup_is_recognised_and_done_again() {
    let case = Case::with_upstream("echo a > a").await;
    let command = Source::Command("mkdir workspace; echo x > workspace/x; [ -e ready ]".to_owned());
    assert!(matches!(case.set_up(&case.spec(command.clone())).await, Err(WorldError::Setup { .. })));
    assert!(matches!(Workspace::open(&case.clone_spec().place).await, Err(WorldError::NotSetUp { .. })));
    case.sh("pack", "touch ready").await;
    case.set_up(&case.spec(command)).await.unwrap();

    // As if it had been killed before the last file was written, and before the move.
    for script in [
        "rm state/setup.json",
        "rm state/setup.json; mv workspace .workspace.crucible-setup; rm .workspace.crucible-setup/a",
    ] {
        let spec = case.clone_spec();
        case.set_up(&spec).await.unwrap();
        case.sh("pack", script).await;
        assert!(matches!(Workspace::open(&spec.place).await, Err(WorldError::NotSetUp { .. })));
        case.set_up(&spec).await.unwrap();
        assert!(case.path("pack/state").join(SETUP_FILE).exists());
        assert_eq!(tree(&case.workspace()).keys().collect::<Vec<_>>(), ["a"]);
        assert!(!case.path("pack/.workspace.crucible-setup").exists());
    }
    let modes =
        case.sh("pack/state", "stat -c %a git setup.json workspace.json guard.json | tr '\\n' ' '").await;
    assert_eq!(modes, "700 600 600 600");
}

#[tokio::test]
async fn an_empty_source_is_what_the_injects_make_of_it() {
    let case = Case::new().await;
    fs::write(case.path("pack/m"), "m").unwrap();
    let mut spec = case.spec(Source::Empty);
    spec.injects = vec![inject(&case, "pack/m", "x/m")];
    let workspace = case.set_up(&spec).await.unwrap();
    assert_eq!(tree(workspace.path()).keys().collect::<Vec<_>>(), ["x/m"]);
    assert_ne!(workspace.facts().base, workspace.facts().baseline);
}

#[tokio::test]
async fn a_candidate_that_fills_a_submodule_is_refused_and_nothing_in_it_acts() {
    let case = Case::new().await;
    case.sh("", "git init -q sub; cd sub; echo s > s; git add s; git commit -q -m s").await;
    case.sh("upstream", "git init -q . && git -c protocol.file.allow=always submodule --quiet add ../sub mod && echo a > a && git add -A && git commit -q -m x").await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    assert_eq!(fs::read_dir(case.workspace().join("mod")).unwrap().count(), 0, "not initialised");
    let plant = "git clone -q ../../sub mod; printf '#!/bin/sh\\necho >> \"$CANARY\"\\n' > ../bomb; chmod +x ../bomb; git -C mod config core.fsmonitor \"$PWD/../bomb\"; \
        echo changed > mod/s; git -C mod commit -q --allow-empty -m more";
    for (script, refused) in [
        (plant.to_owned(), true),
        (format!("{plant}; rm .gitmodules; echo b > a"), true),
        ("rm -r mod; echo x > mod".to_owned(), true),
        ("rm -r mod".to_owned(), false),
    ] {
        case.sh("pack/workspace", &script).await;
        let _ = fs::remove_file(case.canary());
        match world.workspace().record(1).await.unwrap() {
            Recorded::Refused { why } => assert!(refused && why.contains("submodule mod"), "{script}: {why}"),
            Recorded::Candidate(candidate) => assert!(!refused && !candidate.changed, "{script}"),
        }
        world.restore(&baseline).await.unwrap();
        assert!(case.workspace().join("mod").is_dir());
        assert_eq!(fs::read_dir(case.workspace().join("mod")).unwrap().count(), 0, "{script}");
        case.assert_outside_is_unchanged(&script);
    }
}

#[tokio::test]
async fn lfs_pointers_survive_setup_keep_and_discard() {
    let case = Case::with_upstream("echo '*.bin filter=lfs diff=lfs merge=lfs -text' > .gitattributes; echo 'version https://git-lfs.github.com/spec/v1' > x.bin").await;
    let bomb = "#!/bin/sh\necho >> \"$CANARY\"\nexit 1\n";
    fs::write(case.path("home/bomb"), bomb).unwrap();
    let home = case.path("home");
    case.sh("home", "chmod +x bomb; git config --global filter.lfs.smudge \"$HOME/bomb\"; git config --global filter.lfs.clean \"$HOME/bomb\"; git config --global filter.lfs.required true").await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    let before = tree(&case.workspace());
    assert!(before["x.bin"].contains("git-lfs"), "{home:?}");
    case.sh("pack/workspace", "echo other > x.bin; echo new > y.bin").await;
    candidate(world.workspace().record(1).await.unwrap());
    world.restore(&baseline).await.unwrap();
    assert_eq!(tree(&case.workspace()), before);
    case.assert_outside_is_unchanged("lfs");
}

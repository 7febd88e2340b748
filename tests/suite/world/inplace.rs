//! Working in place, in a person's own repository: nothing of theirs is lost, and nothing planted there acts.

use super::*;

pub(super) const PERSONS: &str = "git init -q -b main . && printf 'workspace/\\nstate/\\n' > .gitignore && echo a > a && mkdir src && echo b > src/b && git add -A && git commit -q -m mine \
    && mkdir -p .git/hooks && printf '#!/bin/sh\\n: mine\\n' > .git/hooks/pre-push && chmod +x .git/hooks/pre-push";

pub(super) fn spec_in(case: &Case, below: &str) -> Spec {
    let mut spec = case.spec(Source::InPlace);
    spec.place.workspace = case.path(below);
    spec.place.state_dir = case.path(below).join("state");
    spec.place.own = vec!["state".into(), "STEER.md".into()];
    spec.manifest_dir = case.path(below);
    spec
}

impl Case {
    async fn persons() -> Case {
        let case = Case::new().await;
        case.sh("pack", PERSONS).await;
        case
    }

    async fn in_place(&self) -> GitWorld {
        GitWorld::new(self.set_up(&spec_in(self, "pack")).await.unwrap())
    }
}

#[tokio::test]
async fn a_clean_repository_is_worked_on_and_the_persons_branch_stays() {
    let case = Case::persons().await;
    let head = case.sh("pack", "git rev-parse HEAD").await;
    let mut world = case.in_place().await;
    let baseline = world.snapshot().await.unwrap();
    assert_eq!(baseline.commit().as_str(), head);
    case.sh("pack", "echo 2 > a; echo steer > STEER.md; echo r > RESULTS.md; echo junk > junk").await;
    let recorded = candidate(world.workspace().record(1).await.unwrap());
    assert!(recorded.diff.stat.contains("2 files changed"), "{}", recorded.diff.stat);
    world.restore(&baseline).await.unwrap();
    assert_eq!(case.sh("pack", "cat a; ls").await, "a\nRESULTS.md\nSTEER.md\na\nsrc\nstate");
    case.sh("pack", "echo 3 > a").await;
    candidate(world.workspace().record(2).await.unwrap());
    let kept = world.snapshot().await.unwrap();
    assert_eq!(
        case.sh("pack", "git rev-parse HEAD main refs/crucible/candidates/r1/1").await,
        format!("{}\n{head}\n{}", kept.commit(), recorded.commit)
    );
    assert_eq!(
        case.sh("pack", "git fsck --no-progress; git log --format=%s; git status --porcelain").await,
        "crucible: candidate 2\nmine\n?? RESULTS.md\n?? STEER.md"
    );
    // A second run starts where the first one ended, and the first one's candidates stay.
    drop(world);
    case.sh("pack", "rm STEER.md RESULTS.md").await;
    let mut spec = spec_in(&case, "pack");
    spec.run = "r2".to_owned();
    let workspace = case.set_up(&spec).await.unwrap();
    assert_eq!(workspace.best(), kept.commit());
    assert_eq!(
        case.sh("pack", "git symbolic-ref HEAD; git cat-file -t refs/crucible/candidates/r1/1").await,
        "refs/heads/crucible/r2\ncommit"
    );
}

#[tokio::test]
async fn work_that_a_reset_would_lose_is_refused_by_name() {
    for (script, expect) in [
        ("echo 2 > a", "a; commit or stash them"),
        ("echo 2 > a; git add a", ": a;"),
        ("echo 2 > new", ": new;"),
        ("rm src/b", ": src/b;"),
        ("chmod +x a", ": a;"),
        ("git update-index --assume-unchanged a; echo 2 > a", ": a;"),
        ("for i in 1 2 3 4 5 6 7; do echo > n$i; done", "n1, n2, n3, n4, n5 and 2 more"),
        (
            "git config filter.f.clean 'tr a-z A-Z'; git config filter.f.smudge cat; echo 'src/* filter=f' > .gitattributes; git add -A; git add --renormalize .; git commit -q -m f",
            ": src/b;",
        ),
    ] {
        let case = Case::persons().await;
        case.sh("pack", script).await;
        let before = tree(&case.path("pack"));
        let error = case.set_up(&spec_in(&case, "pack")).await.unwrap_err();
        assert!(
            matches!(error, WorldError::Dirty { .. }) && error.to_string().contains(expect),
            "{script}: {error}"
        );
        let mut after = tree(&case.path("pack"));
        after.retain(|path, _| !path.starts_with("state/"));
        assert_eq!(
            after.into_iter().filter(|(path, _)| !path.starts_with(".git/")).collect::<Vec<_>>(),
            before.into_iter().filter(|(path, _)| !path.starts_with(".git/")).collect::<Vec<_>>(),
            "{script}"
        );
        assert_eq!(case.sh("pack", "git symbolic-ref HEAD").await, "refs/heads/main");
    }
}

#[tokio::test]
async fn what_is_no_usable_repository_is_refused_with_the_reason() {
    for (script, expect) in [
        ("true", "no .git of its own"),
        ("cd .. && git init -q && git commit -q --allow-empty -m enclosing", "no .git of its own"),
        ("git init -q .", "no commit yet"),
        ("git init -q --ref-format=reftable . && git commit -q --allow-empty -m x", "reftable"),
    ] {
        let case = Case::new().await;
        case.sh("pack", script).await;
        let error = case.set_up(&spec_in(&case, "pack")).await.unwrap_err();
        assert!(error.to_string().contains(expect), "{script}: {error}");
    }
}

#[tokio::test]
async fn what_the_person_ignores_everywhere_is_neither_work_nor_cleaned() {
    let case = Case::persons().await;
    case.sh("pack", "mkdir -p ~/.config/git; echo '*.swp' > ~/.config/git/ignore; mkdir -p .git/info; echo notes > .git/info/exclude; echo x > a.swp; echo y > notes").await;
    let mut world = case.in_place().await;
    let baseline = world.snapshot().await.unwrap();
    world.restore(&baseline).await.unwrap();
    assert_eq!(case.sh("pack", "cat a.swp notes").await, "x\ny");
    drop(world);
    case.sh("pack", "rm -r state ~/.config; mkdir state; git config --global core.excludesFile '~/my ignore'; echo '*.swp' > ~/'my ignore'").await;
    case.set_up(&spec_in(&case, "pack")).await.unwrap();
}

#[tokio::test]
async fn configuration_and_hooks_are_put_right_and_objects_are_put_back() {
    let case = Case::persons().await;
    let mut world = case.in_place().await;
    let config = fs::read(case.path("pack/.git/config")).unwrap();
    case.sh("pack", "printf '#!/bin/sh\\necho >> \"$CANARY\"\\n' > .git/bomb; chmod +x .git/bomb; git config core.hooksPath \"$PWD/.git\"; git config core.fsmonitor \"$PWD/.git/bomb\"; \
        rm -f \"$CANARY\"; cp .git/bomb .git/hooks/pre-push; cp .git/bomb .git/hooks/post-checkout; echo 2 > a")
        .await;
    candidate(world.workspace().record(1).await.unwrap());
    let kept = world.snapshot().await.unwrap();
    let mut notes = world.workspace().take_notes();
    notes.sort();
    let put = |path| format!("put .git/{path} right, which had been changed");
    assert_eq!(notes, ["config", "hooks/post-checkout", "hooks/pre-push"].map(put));
    assert_eq!(fs::read(case.path("pack/.git/config")).unwrap(), config);
    assert_eq!(
        case.sh("pack", "cat .git/hooks/pre-push; ls .git/hooks | grep -v sample").await,
        "#!/bin/sh\n: mine\npre-push"
    );
    case.assert_shown("pack", kept.commit().as_str(), "put right").await;
    case.sh("pack", "git checkout -q main; git for-each-ref --format='%(refname)' refs/crucible refs/heads/crucible | while read r; do git update-ref -d $r; done; git reflog expire --all --expire=now; git gc -q --prune=now; echo 4 > a").await;
    candidate(world.workspace().record(2).await.unwrap());
    let kept = world.snapshot().await.unwrap();
    case.assert_shown("pack", kept.commit().as_str(), "collected").await;
    case.assert_outside_is_unchanged("in place");
}

#[tokio::test]
async fn a_repository_that_is_gone_ends_the_run_and_says_where_the_commits_are() {
    for script in [
        "rm -rf .git",
        "mv .git ../elsewhere; ln -s ../elsewhere .git",
        "mv .git ../elsewhere; echo 'gitdir: ../elsewhere' > .git",
        "mv .git ../elsewhere; git init -q .",
        "rm -rf .git/objects; ln -s \"$OUTSIDE\" .git/objects",
    ] {
        let case = Case::persons().await;
        let mut world = case.in_place().await;
        case.sh("pack", &format!("echo 2 > a; {script}")).await;
        let error = world.workspace().record(1).await.unwrap_err();
        assert!(matches!(error, WorldError::RepositoryGone { .. }), "{script}: {error}");
        assert!(error.to_string().contains("state/git"), "{error}");
        let kept = case.sh("pack/state/git", "git --git-dir=. show refs/crucible/candidates/r1/1:a").await;
        assert_eq!(kept, "2", "{script}");
        case.assert_outside_is_unchanged(script);
    }
}

#[tokio::test]
async fn a_linked_work_tree_is_worked_on_in_place() {
    let case = Case::persons().await;
    case.sh("pack", "git worktree add -q ../linked && mkdir ../linked/state").await;
    let mut world = GitWorld::new(case.set_up(&spec_in(&case, "linked")).await.unwrap());
    let baseline = world.snapshot().await.unwrap();
    case.sh("linked", "echo 2 > a; git add a; git commit -q -m own").await;
    candidate(world.workspace().record(1).await.unwrap());
    let kept = world.snapshot().await.unwrap();
    case.assert_shown("linked", kept.commit().as_str(), "linked").await;
    world.restore(&baseline).await.unwrap();
    case.assert_shown("linked", baseline.commit().as_str(), "linked").await;
    assert_eq!(case.sh("pack", "git symbolic-ref HEAD; git status --porcelain").await, "refs/heads/main");
}

#[tokio::test]
async fn a_branch_that_is_in_the_way_is_worth_a_note_and_not_the_run() {
    let case = Case::persons().await;
    let mut world = case.in_place().await;
    case.sh("pack", "git checkout -q main; git branch -D -q crucible/r1; git branch crucible; echo 2 > a")
        .await;
    candidate(world.workspace().record(1).await.unwrap());
    world.snapshot().await.unwrap();
    let notes = world.workspace().take_notes();
    assert!(notes.iter().any(|note| note.contains("refs/heads/crucible/r1")), "{notes:?}");
    assert_eq!(case.sh("pack", "git rev-parse --verify -q crucible >/dev/null && echo there").await, "there");
}

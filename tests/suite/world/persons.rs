//! What of a person's repository a run in place must give back, and what it refuses to begin with.

use super::inplace::{PERSONS, spec_in};
use super::*;

async fn persons(script: &str) -> Case {
    let case = Case::new().await;
    case.sh("pack", PERSONS).await;
    case.sh("pack", script).await;
    case
}

async fn in_place(case: &Case) -> GitWorld {
    GitWorld::new(case.set_up(&spec_in(case, "pack")).await.unwrap())
}

/// Sets up in place after each script, which must be refused with all of the texts.
async fn refused(table: &[(&str, &[&str])]) {
    for (script, expect) in table {
        let case = persons(script).await;
        let before = tree(&case.path("pack"));
        let Err(error) = case.set_up(&spec_in(&case, "pack")).await else {
            panic!("{script}: not refused");
        };
        for text in *expect {
            assert!(error.to_string().contains(text), "{script}: {error}");
        }
        let persons = |(path, _): &(String, String)| !path.starts_with("state/") && !path.contains(".git/");
        let left = |tree: BTreeMap<String, String>| tree.into_iter().filter(persons).collect::<Vec<_>>();
        assert_eq!(left(tree(&case.path("pack"))), left(before), "{script}");
    }
}

const SUBMODULE: &str = "git init -q ../sub; cd ../sub; echo s > s; git add s; git commit -q -m s; cd ../pack; \
    git -c protocol.file.allow=always submodule --quiet add ../sub mod; git commit -q -m sub;";

#[tokio::test]
async fn what_was_ignored_at_setup_is_the_persons_whatever_a_candidate_ignores() {
    let case = persons(
        "printf '.env\\ndata/\\n*.log\\n' >> .gitignore; git commit -qam ignore; echo key > .env; mkdir data logs; echo d > data/d; echo l > src/x.log; echo l > logs/y.log; git init -q data/in",
    )
    .await;
    let mut world = in_place(&case).await;
    let baseline = world.snapshot().await.unwrap();
    let before = tree(&case.path("pack"));
    case.sh("pack", "echo state/ > .gitignore; echo 2 > a; echo n > data/new; echo z > logs/z; echo n > new.log; echo 2 > .env").await;
    let recorded = candidate(world.workspace().record(1).await.unwrap());
    let names = format!("git diff --name-only {} {} | tr '\\n' ' '", baseline.commit(), recorded.commit);
    assert_eq!(case.sh("pack", &names).await, ".gitignore a logs/z new.log");
    case.sh("pack", "echo key > .env; rm data/new").await;
    world.restore(&baseline).await.unwrap();
    let mut after = tree(&case.path("pack"));
    // It is ignored again, as any cache that a candidate leaves.
    assert_eq!(after.remove("new.log").as_deref(), Some("false n\\n"));
    let persons = |tree: BTreeMap<String, String>| {
        tree.into_iter().filter(|(path, _)| !path.starts_with("state/")).collect::<Vec<_>>()
    };
    assert_eq!(persons(after), persons(before.clone()));

    case.sh("pack", "rm new.log; echo state/ > .gitignore; echo 3 > a").await;
    candidate(world.workspace().record(2).await.unwrap());
    let kept = world.snapshot().await.unwrap();
    let listed = format!("git ls-tree -r --name-only {} | tr '\\n' ' '", kept.commit());
    assert_eq!(case.sh("pack", &listed).await, ".gitignore a src/b");
    case.sh("pack", "echo 4 > a; echo junk > junk").await;
    candidate(world.workspace().record(3).await.unwrap());
    world.restore(&kept).await.unwrap();
    let theirs = "cat a .env data/d src/x.log logs/y.log; ls -d data/in/.git; ls | grep junk || echo none";
    assert_eq!(case.sh("pack", theirs).await, "3\nkey\nd\nl\nl\ndata/in/.git\nnone");
}

#[tokio::test]
async fn more_ignored_files_than_can_be_kept_apart_are_refused() {
    let many = "echo '*.o' >> .gitignore; git commit -qam o; i=0; while [ $i -le 2000 ]; do : > src/$i.o; i=$((i+1)); done";
    refused(&[(many, &["2001 ignored files", "git clean -Xdn"])]).await;
    // As a whole they are one.
    let case = persons(&format!(
        "{many}; echo src/ > .git/info/exclude; git rm -q -r --cached src; git commit -q -m out"
    ))
    .await;
    in_place(&case).await;
}

#[tokio::test]
async fn what_only_the_persons_index_knows_is_uncommitted_work() {
    refused(&[
        ("echo 2 > a; git add a; echo a > a", &["differ from the commit", ": a;"]),
        ("echo 2 > new; git add new; rm new", &[": new;"]),
        ("git rm -q --cached src/b", &[": src/b;"]),
        ("git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),mod; mkdir mod", &[": mod;"]),
        ("git add -N nothing 2>/dev/null; touch ita; git add -N ita; rm ita", &[": ita;"]),
    ])
    .await;
}

#[tokio::test]
async fn marks_of_the_persons_index_that_could_not_be_given_back_are_refused() {
    refused(&[
        ("git update-index --assume-unchanged a", &["assume-unchanged", "a", "--no-assume-unchanged"]),
        ("git update-index --skip-worktree src/b", &["skip-worktree", "src/b", "--no-skip-worktree"]),
        ("git sparse-checkout set --no-cone '/*' '!/src/' && rm -rf src", &["src/b"]),
        ("git update-index --split-index", &["split", "--no-split-index"]),
    ])
    .await;
}

#[tokio::test]
async fn the_persons_index_has_none_of_our_marks() {
    let script = format!(
        "{SUBMODULE} git submodule --quiet deinit -f mod; echo r > RESULTS.md; git add -A; git commit -q -m r"
    );
    let case = persons(&script).await;
    let mut world = in_place(&case).await;
    let baseline = world.snapshot().await.unwrap();
    assert_eq!(case.sh("pack", "git ls-files -v | grep -v '^H' || echo none").await, "none");
    case.sh("pack", "echo 2 > a").await;
    candidate(world.workspace().record(1).await.unwrap());
    world.restore(&baseline).await.unwrap();
    assert_eq!(
        case.sh("pack", "git ls-files -v | grep -v '^H' || echo none; git status --porcelain").await,
        "none"
    );
    case.sh("pack", "echo mine > RESULTS.md; echo 3 > a").await;
    let recorded = candidate(world.workspace().record(2).await.unwrap());
    assert!(recorded.diff.stat.contains("1 file changed"), "{}", recorded.diff.stat);
    world.snapshot().await.unwrap();
    assert_eq!(case.sh("pack", "git status --porcelain; cat RESULTS.md").await, " M RESULTS.md\nmine");
}

#[tokio::test]
async fn a_state_directory_that_is_tracked_is_refused() {
    refused(&[(
        "echo x > state/x; git add -f state/x; git commit -q -m x",
        &["state", "tracked", "--state-dir"],
    )])
    .await;
}

#[tokio::test]
async fn files_with_the_names_of_markers_are_somebodys() {
    refused(&[
        ("echo x > CANDIDATE.md", &["CANDIDATE.md"]),
        ("echo ESCALATION.json >> .git/info/exclude; echo x > ESCALATION.json", &["ESCALATION.json"]),
        ("echo x > PLAN_TASK_RESULT.json; git add -A; git commit -q -m x", &["PLAN_TASK_RESULT.json"]),
        ("mkdir PROVISIONING_PENDING.json", &["PROVISIONING_PENDING.json"]),
        (
            "echo x > RESULTS.md; git add -A; git commit -q -m x; echo y > RESULTS.md",
            &["differ from the commit", "RESULTS.md"],
        ),
        (
            "mkdir .claude; echo x > .claude/s; git add -A; git commit -q -m x; rm .claude/s",
            &["differ from the commit", ".claude/s"],
        ),
    ])
    .await;
    let case = persons("mkdir .claude; echo mine > .claude/local").await;
    in_place(&case).await;
    assert_eq!(case.sh("pack", "cat .claude/local").await, "mine");
    for script in ["echo x > CANDIDATE.md", "mkdir ESCALATION.json; echo x > ESCALATION.json/x"] {
        let case = Case::with_upstream(script).await;
        let error = case.set_up(&case.clone_spec()).await.map(drop).unwrap_err().to_string();
        assert!(error.contains("an agent's") && error.contains("another name"), "{script}: {error}");
    }
}

#[tokio::test]
async fn what_git_is_in_the_middle_of_is_refused() {
    const DIVERGED: &str = "git checkout -q -b side; echo 2 > c; git add c; git commit -q -m side; git checkout -q main; echo 3 > d; git add d; git commit -q -m d;";
    let merge = format!("{DIVERGED} git merge -q --no-commit -s ours side");
    refused(&[
        (&merge, &["MERGE_HEAD", "finish"]),
        ("git rev-parse HEAD > .git/CHERRY_PICK_HEAD", &["CHERRY_PICK_HEAD"]),
        ("git rev-parse HEAD > .git/REVERT_HEAD", &["REVERT_HEAD"]),
        ("git bisect start -q", &["BISECT_LOG"]),
        ("mkdir .git/rebase-merge", &["rebase-merge"]),
        ("mkdir .git/rebase-apply", &["rebase-apply"]),
        ("touch .git/index.lock", &["index.lock"]),
    ])
    .await;
}

#[tokio::test]
async fn a_submodule_with_content_is_refused() {
    refused(&[
        (SUBMODULE, &["mod", "submodule", "deinit"]),
        (&format!("{SUBMODULE} git submodule --quiet deinit -f mod; echo x > mod/x"), &["mod", "submodule"]),
        (&format!("{SUBMODULE} rm -r mod"), &["differ from the commit", "mod"]),
    ])
    .await;
    let case = Case::new().await;
    case.sh("upstream", &format!("git init -q . && {}", SUBMODULE.replace("../pack", "../upstream"))).await;
    let command = "git -c protocol.file.allow=always clone -q --recurse-submodules ../upstream workspace";
    let error = case.set_up(&case.spec(Source::Command(command.to_owned()))).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("mod"), "{error}");
}

#[tokio::test]
async fn a_branch_where_those_of_the_runs_belong_is_refused() {
    refused(&[
        ("git branch crucible", &["refs/heads/crucible", "git branch -m"]),
        ("git branch crucible; git pack-refs --all", &["refs/heads/crucible"]),
        ("git branch crucible/r1/x", &["refs/heads/crucible/r1/x"]),
    ])
    .await;
}

#[tokio::test]
async fn a_tree_that_git_calls_clean_is_refused_with_that_explanation() {
    const HINT: &str = "git itself may call them unchanged";
    refused(&[
        ("git config core.fileMode false; chmod +x a", &[": a;", HINT]),
        (
            "touch -d @1000000000 src/b; git config filter.f.clean 'tr a-z A-Z'; git config filter.f.smudge cat; echo 'src/* filter=f' > .gitattributes; git add -A; git add --renormalize .; git commit -q -m f",
            &[": src/b;", HINT],
        ),
        ("git update-index --assume-unchanged a; echo 2 > a", &[": a;", HINT]),
    ])
    .await;
    let case = persons("chmod +x a").await;
    let error = case.set_up(&spec_in(&case, "pack")).await.map(drop).unwrap_err();
    assert!(!error.to_string().contains(HINT), "{error}");
}

#[tokio::test]
async fn what_a_killed_agent_left_is_named_as_such() {
    let case = persons("true").await;
    let mut world = in_place(&case).await;
    case.sh("pack", "echo 2 > a").await;
    candidate(world.workspace().record(1).await.unwrap());
    drop(world);
    let mut spec = spec_in(&case, "pack");
    spec.run = "r2".to_owned();
    let error = case.set_up(&spec).await.map(drop).unwrap_err().to_string();
    for text in [": a;", "crucible/r1", "refs/crucible/candidates/r1", "agent"] {
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test]
async fn empty_directories_come_back() {
    let case = persons("mkdir -p e/m/p t; chmod 700 t").await;
    let mut world = in_place(&case).await;
    let baseline = world.snapshot().await.unwrap();
    case.sh("pack", "rm -r e; ln -s \"$OUTSIDE\" e; echo 2 > a").await;
    candidate(world.workspace().record(1).await.unwrap());
    world.restore(&baseline).await.unwrap();
    assert_eq!(case.sh("pack", "find e t -type d | tr '\\n' ' '").await, "e e/m e/m/p t");
    case.assert_outside_is_unchanged("empty directories");
}

#[tokio::test]
async fn a_submodule_that_a_measurement_fills_does_not_stand_in_the_way_of_the_next_candidate() {
    let case = Case::new().await;
    case.sh("upstream", &format!("git init -q . && {}", SUBMODULE.replace("../pack", "../upstream"))).await;
    let mut world = case.world().await;
    world.snapshot().await.unwrap();
    case.sh("pack/workspace", "echo 2 > a").await;
    candidate(world.workspace().record(1).await.unwrap());
    case.sh("pack/workspace", "git clone -q ../../sub mod").await;
    world.snapshot().await.unwrap();
    case.sh("pack/workspace", "echo 3 > a").await;
    assert!(candidate(world.workspace().record(2).await.unwrap()).changed);
}

//! Candidates, keeps and discards: what is recorded, what stays, and what comes back.

use super::*;
use engine::world::{DIFF_LIMIT, SnapshotToken};

#[tokio::test]
async fn a_candidate_has_its_tree_diff_and_parent() {
    let case = Case::with_upstream("echo one > a; echo two > b").await;
    let mut world = case.world().await;
    let base = world.last_commit_sha().clone();
    case.sh("pack/workspace", "echo 1 > a; rm b; echo three > c").await;
    let recorded = candidate(world.workspace().record(7).await.unwrap());
    assert!(recorded.changed && !recorded.diff.cut);
    for line in ["-one\n+1\n", "deleted file mode 100644", "+three"] {
        assert!(recorded.diff.text.contains(line), "{}", recorded.diff.text);
    }
    assert!(
        recorded.diff.stat.ends_with("3 files changed, 2 insertions(+), 2 deletions(-)"),
        "{}",
        recorded.diff.stat
    );
    assert_eq!(world.last_commit_sha(), &base, "a candidate is not the best");
    let shown = case
        .sh("pack/workspace", "git log -1 --format='%H %P %an %ae %cn' refs/crucible/candidates/r1/7")
        .await;
    assert_eq!(shown, format!("{} {base} crucible crucible@localhost crucible", recorded.commit));

    let kept = world.snapshot().await.unwrap();
    assert_eq!(
        kept,
        SnapshotToken::of_git(recorded.commit.clone()),
        "nothing changed since, so it is the same commit"
    );
    assert_eq!(world.last_commit_sha(), &recorded.commit);

    case.sh("pack/workspace", "echo four > d").await;
    let second = candidate(world.workspace().record(8).await.unwrap());
    case.sh("pack/workspace", "echo 'the measure left this' > e").await;
    let kept = world.snapshot().await.unwrap();
    assert_ne!(kept.commit(), &second.commit);
    let parent = case
        .sh("pack/workspace", &format!("git show {}:e && git rev-parse {}^", kept.commit(), kept.commit()))
        .await;
    assert_eq!(parent, format!("the measure left this\n{}", recorded.commit));
}

#[tokio::test]
async fn the_same_candidate_has_the_same_name_everywhere() {
    let mut names = Vec::new();
    for _ in 0..2 {
        let case = Case::new().await;
        case.sh("upstream", "echo a > a").await;
        let mut world = case.world().await;
        case.sh("pack/workspace", "echo b > a").await;
        names.push(candidate(world.workspace().record(1).await.unwrap()).commit);
    }
    assert_eq!(names[0], names[1]);
}

#[tokio::test]
async fn a_discarded_candidate_stays_reachable_and_caches_survive() {
    let case = Case::with_upstream("echo '/target/' > .gitignore; echo a > a").await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    case.sh("pack/workspace", "echo lost > a; mkdir target; echo cache > target/x; echo notes > RESULTS.md; mkdir .claude; echo s > .claude/s").await;
    let recorded = candidate(world.workspace().record(1).await.unwrap());
    assert!(!recorded.diff.text.contains("RESULTS") && !recorded.diff.text.contains("claude"));
    case.sh("pack/workspace", "echo junk > junk; mkdir -p d/e; echo x > d/e/x").await;
    world.restore(&baseline).await.unwrap();
    let there: Vec<String> = tree(&case.workspace()).into_keys().collect();
    assert_eq!(there, [".claude/s", ".gitignore", "RESULTS.md", "a", "target/x"]);
    for below in ["pack/workspace/.git", "pack/state/git"] {
        let show = format!("git --git-dir=. show {}:a refs/crucible/candidates/r1/1:a", recorded.commit);
        assert_eq!(case.sh(below, &show).await, "lost\nlost");
    }
}

#[tokio::test]
async fn reserved_names_are_never_part_of_a_candidate_even_when_ignore_rules_ask_for_them() {
    let case = Case::with_upstream(
        "echo up > RESULTS.md; mkdir .claude; echo up > .claude/settings.json; echo a > a",
    )
    .await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    case.sh("pack/workspace", "printf '!/CANDIDATE.md\\n!/.claude/\\n' > .gitignore; echo c > CANDIDATE.md; echo mine > RESULTS.md; rm -r .claude; mkdir .claude; echo n > .claude/new").await;
    let recorded = candidate(world.workspace().record(1).await.unwrap());
    assert!(recorded.diff.stat.contains("1 file changed"), "{}", recorded.diff.stat);
    world.restore(&baseline).await.unwrap();
    let there = tree(&case.workspace());
    assert_eq!(there.keys().collect::<Vec<_>>(), [".claude/new", "CANDIDATE.md", "RESULTS.md", "a"]);
    assert_eq!(there["RESULTS.md"], "false mine\\n");
}

#[tokio::test]
async fn a_candidate_of_fifty_megabytes_is_recorded_and_kept() {
    for (name, script, least) in [
        (
            "text",
            "mkdir big; for i in $(seq 25); do yes \"line of file $i\" | head -c 2000000 > big/$i; done",
            50_000_000,
        ),
        ("binary", "head -c 50000000 /dev/urandom > big", 1),
        ("one line", "head -c 30000000 /dev/zero | tr '\\0' x > big", 30_000_000),
    ] {
        let case = Case::with_upstream("echo a > a").await;
        let mut world = case.world().await;
        let baseline = world.snapshot().await.unwrap();
        case.sh("pack/workspace", script).await;
        let recorded = candidate(world.workspace().record(1).await.unwrap());
        assert!(recorded.diff.bytes >= least, "{name}: {}", recorded.diff.bytes);
        assert!(recorded.diff.text.len() <= DIFF_LIMIT && !recorded.diff.text.is_empty(), "{name}");
        let kept = world.snapshot().await.unwrap();
        let sum = case.sh("pack/workspace", "find big -type f | sort | xargs sha256sum").await;
        world.restore(&baseline).await.unwrap();
        assert!(!case.workspace().join("big").exists());
        world.restore(&kept).await.unwrap();
        assert_eq!(
            case.sh("pack/workspace", "find big -type f | sort | xargs sha256sum").await,
            sum,
            "{name}"
        );
        case.assert_shown("pack/workspace", kept.commit().as_str(), name).await;
    }
}

#[tokio::test]
async fn neither_home_nor_identity_nor_signing_configuration_matters() {
    let mut case = Case::with_upstream("echo a > a").await;
    let config = "[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = /usr/bin/yes\n[core]\n\tfsmonitor = /bin/false\n\tautocrlf = true\n\
        [user]\n\tuseConfigOnly = true\n[init]\n\ttemplateDir = /nowhere\n[safe]\n\tbareRepository = explicit\n";
    fs::write(case.path("home/.gitconfig"), config).unwrap();
    let mut world = case.world().await;
    case.sh("pack/workspace", "printf 'a\\r\\n' > a").await;
    let recorded = candidate(world.workspace().record(1).await.unwrap());
    world.snapshot().await.unwrap();
    let raw = case
        .sh(
            "pack/workspace",
            &format!(
                "git cat-file -p {} | grep -c '^gpgsig' ; git cat-file blob {}:a | od -c | head -1",
                recorded.commit, recorded.commit
            ),
        )
        .await;
    assert_eq!(raw, "0\n0000000   a  \\r  \\n");

    for name in ["HOME", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
        case.env.remove(name);
    }
    drop(world);
    let mut world = case.world().await;
    case.sh("pack/workspace", "echo b > a").await;
    candidate(world.workspace().record(1).await.unwrap());
    world.snapshot().await.unwrap();
}

#[tokio::test]
async fn an_interrupted_run_is_opened_again_and_stale_locks_go_with_a_note() {
    let case = Case::with_upstream("echo a > a").await;
    let mut world = case.world().await;
    case.sh("pack/workspace", "echo kept > a").await;
    candidate(world.workspace().record(1).await.unwrap());
    let kept = world.snapshot().await.unwrap();
    let facts = world.workspace().facts().clone();
    drop(world);
    case.sh("pack", "touch state/git/index.lock workspace/.git/index.lock; echo torn > workspace/a; rm -rf workspace/.git/refs; touch state/git/incoming/x; find state/git/refs/heads -type f -exec touch {}.lock ';'").await;

    let place = case.clone_spec().place;
    let mut workspace = Workspace::open(&place).await.unwrap();
    let notes = workspace.take_notes();
    case.sh("pack", "! find state/git -name '*.lock' | grep .").await;
    assert_eq!(notes.iter().filter(|note| note.contains("index.lock")).count(), 2, "{notes:?}");
    assert_eq!((workspace.best(), workspace.facts()), (kept.commit(), &facts));
    let mut world = GitWorld::new(workspace);
    world.restore(&SnapshotToken::parse(&kept.to_string()).unwrap()).await.unwrap();
    assert_eq!(tree(&case.workspace())["a"], "false kept\\n");
    case.assert_shown("pack/workspace", kept.commit().as_str(), "resumed").await;
    case.sh("pack/workspace", "echo more > a").await;
    assert!(candidate(world.workspace().record(2).await.unwrap()).changed);
    drop(world);

    case.sh("pack", "rm state/git/index; echo torn > workspace/a").await;
    let mut world = GitWorld::new(Workspace::open(&place).await.unwrap());
    case.sh("pack", "touch state/git/index.lock").await;
    world.restore(&kept).await.unwrap();
    assert_eq!(tree(&case.workspace())["a"], "false kept\\n");
    drop(world);

    case.sh("pack", "mv workspace other; mkdir workspace").await;
    let error = Workspace::open(&place).await.unwrap_err();
    assert!(error.to_string().contains("another directory has taken its place"), "{error}");
}

#[tokio::test]
async fn tokens_of_another_world_are_refused() {
    let case = Case::with_upstream("echo a > a").await;
    let mut world = case.world().await;
    let sha = world.last_commit_sha().to_string();
    let composite = SnapshotToken::parse(&format!("{sha}\tdomain")).unwrap();
    assert!(matches!(world.restore(&composite).await, Err(WorldError::BadToken { .. })));
    let unknown = SnapshotToken::parse(&"0123456789".repeat(4)).unwrap();
    assert!(matches!(world.restore(&unknown).await, Err(WorldError::UnknownCommit { .. })));
}

#[tokio::test]
async fn ten_thousand_files_are_recorded_kept_and_brought_back() {
    let case = Case::with_upstream(
        "for i in $(seq 100); do mkdir d$i; for j in $(seq 100); do echo $i $j > d$i/$j; done; done",
    )
    .await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    let before = tree(&case.workspace());
    assert_eq!(before.len(), 10_000);
    case.sh("pack/workspace", "rm -r d1; for i in $(seq 2 50); do echo x > d$i/1; done; mv d60 d600").await;
    let recorded = candidate(world.workspace().record(1).await.unwrap());
    assert!(
        recorded.diff.stat.contains("349 files changed"),
        "{}",
        recorded.diff.stat.lines().last().unwrap()
    );
    world.restore(&baseline).await.unwrap();
    assert_eq!(tree(&case.workspace()), before);
}

#[tokio::test]
async fn special_files_are_removed_and_named() {
    let case = Case::with_upstream("echo a > a; mkdir d; echo b > d/b").await;
    let mut world = case.world().await;
    case.sh("pack/workspace", "mkfifo pipe d/pipe; rm a; mkfifo a").await;
    candidate(world.workspace().record(1).await.unwrap());
    let mut notes = world.workspace().take_notes();
    notes.sort();
    let expect = ["a", "d/pipe", "pipe"].map(|path| format!("removed the special file {path}"));
    assert_eq!(notes, expect);
}

#[tokio::test]
async fn a_cache_outlives_the_discard_of_a_candidate_that_unignored_it() {
    let case = Case::with_upstream("echo a > a; echo target/ > .gitignore").await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    case.sh("pack/workspace", "mkdir target; echo cache > target/x; git init -q target/in; rm .gitignore; echo new > new; rm a; mkdir a; echo b > a/b").await;
    assert!(matches!(world.workspace().record(1).await.unwrap(), Recorded::Refused { .. }));
    world.restore(&baseline).await.unwrap();
    let there =
        || tree(&case.workspace()).into_keys().filter(|path| !path.contains(".git/")).collect::<Vec<_>>();
    assert_eq!(there(), [".gitignore", "a", "target/x"]);
    assert!(case.workspace().join("target/in/.git").exists());
    case.sh("pack/workspace", "rm -rf target/in .gitignore; echo new > new").await;
    assert!(candidate(world.workspace().record(2).await.unwrap()).diff.stat.contains("target/x"));
    world.restore(&baseline).await.unwrap();
    assert_eq!(there(), [".gitignore", "a", "target/x"]);
    // The same after a keep, and on a run that is resumed.
    case.sh("pack/workspace", "echo 2 > a").await;
    let kept = world.snapshot().await.unwrap();
    case.sh("pack/workspace", "rm .gitignore").await;
    assert!(candidate(world.workspace().record(3).await.unwrap()).changed);
    drop(world);
    let mut world = GitWorld::new(Workspace::open(&case.clone_spec().place).await.unwrap());
    world.restore(&kept).await.unwrap();
    assert_eq!(there(), [".gitignore", "a", "target/x"]);
    case.assert_shown("pack/workspace", kept.commit().as_str(), "cache").await;
}

#[tokio::test]
async fn ignore_files_that_a_candidate_adds_have_no_say_in_its_discard() {
    let case =
        Case::with_upstream("mkdir src; echo b > src/b; printf '*.log\\ntarget/\\n' > .gitignore").await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    case.sh("pack/workspace", "mkdir -p target/x; echo '!y' > target/x/.gitignore; echo cache > src/x.log; mkdir venv; echo '*' > venv/.gitignore; echo v > venv/v").await;
    world.restore(&baseline).await.unwrap();
    let before = tree(&case.workspace());
    assert!(before.contains_key("target/x/.gitignore") && before.contains_key("venv/v"), "{before:?}");
    for script in [
        "echo '!*.log' > src/.gitignore",
        "printf '.gitignore\\n!*.log\\n' > src/.gitignore",
        "mkdir src/n; mv src/x.log src/n; echo '/n/' > src/.gitignore; printf '!*\\n' > src/n/.gitignore; mv src/n/x.log src",
    ] {
        case.sh("pack/workspace", script).await;
        world.workspace().record(1).await.unwrap();
        world.restore(&baseline).await.unwrap();
        assert_eq!(tree(&case.workspace()), before, "{script}");
    }
}

//! Whatever a candidate does to the workspace and its repository, the engine's git is not moved by it.

use super::*;

const UPSTREAM: &str = "mkdir -p src sub/deep && echo a > a && echo b > src/b && echo c > sub/deep/c && printf 'x\\r\\ny\\n' > crlf \
    && ln -s a link && printf '#!/bin/sh\\n' > run && chmod +x run && printf '/cache/\\n*.log\\n' > .gitignore";

/// What a script in the workspace comes to.
enum Outcome {
    /// A candidate whose tree differs.
    Changed,
    /// A candidate whose tree is the best's.
    Same,
    /// None, for this reason.
    Refused(&'static str),
}
use Outcome::{Changed, Refused, Same};

/// Plants a program that leaves the canary.
const BOMB: &str =
    r#"printf '#!/bin/sh\necho "$0 $*" >> "%s"\ncat\n' "$CANARY" > .git/bomb; chmod +x .git/bomb;"#;

/// Runs `script` as a candidate, discards it, and checks that everything is as before; then runs it again, keeps it
/// where it is one, changes more, and restores to it.
async fn check(name: &str, script: &str, outcome: Outcome) {
    let case = Case::with_upstream(UPSTREAM).await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    let before = tree(&case.workspace());

    case.sh("pack/workspace", script).await;
    let recorded = world.workspace().record(1).await.unwrap();
    match (&outcome, &recorded) {
        (Refused(expect), Recorded::Refused { why }) => assert!(why.contains(expect), "{name}: {why}"),
        (Refused(_), Recorded::Candidate(_)) => panic!("{name}: not refused"),
        (_, Recorded::Refused { why }) => panic!("{name}: refused: {why}"),
        (Changed, Recorded::Candidate(candidate)) => assert!(candidate.changed, "{name}"),
        (Same, Recorded::Candidate(candidate)) => {
            assert!(!candidate.changed, "{name}: {}", candidate.diff.text);
        }
    }
    world.restore(&baseline).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    assert_eq!(tree(&case.workspace()), before, "{name}: after the discard");
    case.assert_shown("pack/workspace", baseline.commit().as_str(), name).await;
    case.assert_outside_is_unchanged(name);
    if matches!(outcome, Refused(_)) {
        return;
    }

    case.sh("pack/workspace", script).await;
    candidate(world.workspace().record(2).await.unwrap());
    let kept = world.snapshot().await.unwrap();
    let there = tree(&case.workspace());
    case.assert_shown("pack/workspace", kept.commit().as_str(), name).await;
    case.sh(
        "pack/workspace",
        "rm -rf -- * .gitattributes; mkdir src; echo new > a; mkdir link; echo x > link/x",
    )
    .await;
    candidate(world.workspace().record(3).await.unwrap());
    world.restore(&kept).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    assert_eq!(tree(&case.workspace()), there, "{name}: after the keep");
    case.assert_outside_is_unchanged(name);
}

/// Checks each and names all that fail.
async fn check_all<S: Into<String>>(cases: impl IntoIterator<Item = (&'static str, S, Outcome)>) {
    let mut failed = Vec::new();
    for (name, script, outcome) in cases {
        let script = script.into();
        let one = tokio::task::LocalSet::new();
        let checked = one.spawn_local(async move { check(name, &script, outcome).await });
        if one.run_until(checked).await.is_err() {
            failed.push(name);
        }
    }
    assert_eq!(failed, [""; 0]);
}

#[tokio::test]
async fn hooks_filters_and_configuration_do_not_act() {
    let hooks = format!(
        "{BOMB} mkdir -p .git/hooks; for hook in pre-commit post-commit post-checkout post-index-change reference-transaction \
         pre-auto-gc fsmonitor-watchman post-rewrite commit-msg prepare-commit-msg post-merge; do cp .git/bomb .git/hooks/$hook; done; echo 2 > a"
    );
    let config = |lines: &str| format!("{BOMB} {lines}; echo 2 > a");
    check_all([
        ("hooks", hooks),
        ("hooksPath", config("mkdir h; cp .git/bomb h/post-checkout; git config core.hooksPath \"$PWD/h\"; cp .git/bomb h/reference-transaction")),
        ("fsmonitor", config("git config core.fsmonitor \"$PWD/.git/bomb\"")),
        ("include.path", config("printf '[core]\\nfsmonitor=%s\\n' \"$PWD/.git/bomb\" > inc; git config include.path \"$PWD/inc\"")),
        ("worktree config", config("git config extensions.worktreeConfig true; git config --worktree core.fsmonitor \"$PWD/.git/bomb\"")),
        ("core.worktree", config("git config core.worktree \"$OUTSIDE\"")),
        ("core.bare", config("git config core.bare true")),
        ("clean filter", config("git config filter.f.clean \"$PWD/.git/bomb\"; git config filter.f.smudge \"$PWD/.git/bomb\"; git config filter.f.required true; echo '* filter=f' > .gitattributes")),
        ("process filter", config("git config filter.f.process \"$PWD/.git/bomb\"; echo '* filter=f' > .gitattributes")),
        ("attributes of the repository", config("git config filter.f.clean \"$PWD/.git/bomb\"; mkdir -p .git/info; echo '* filter=f' > .git/info/attributes")),
        ("diff driver", config("git config diff.d.command \"$PWD/.git/bomb\"; git config diff.d.textconv \"$PWD/.git/bomb\"; echo '* diff=d' > .gitattributes")),
        ("merge driver", config("git config merge.m.driver \"$PWD/.git/bomb\"; echo '* merge=m' > .gitattributes")),
        ("signer", config("git config commit.gpgsign true; git config gpg.program \"$PWD/.git/bomb\"")),
        ("editor and pager", config("git config core.editor \"$PWD/.git/bomb\"; git config core.pager \"$PWD/.git/bomb\"")),
        ("alias", config("git config alias.add \"!$PWD/.git/bomb\"")),
    ].map(|(name, script)| (name, script, Changed)))
    .await;
}

#[tokio::test]
async fn attributes_never_change_bytes_nor_hide_them() {
    check_all([
        ("text", "echo '* text=auto eol=crlf' > .gitattributes; printf 'a\\nb\\r\\n' > mixed"),
        ("crlf", "echo '* crlf=input' > .gitattributes; printf 'a\\nb\\r\\n' > mixed"),
        ("ident", "echo '* ident' > .gitattributes; echo '$Id$ $Id: x $' > ident"),
        ("encoding", "echo '* working-tree-encoding=UTF-16' > .gitattributes; printf 'abc\\n' > enc; printf '\\377\\376a\\000' > enc16"),
        ("lfs", "echo '* filter=lfs diff=lfs merge=lfs -text' > .gitattributes; printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:00\\nsize 1\\n' > big"),
        ("export", "echo '* export-ignore export-subst' > .gitattributes; echo '$Format:%H$' > sub/e"),
        ("autocrlf", "git config core.autocrlf true; git config core.eol crlf; printf 'a\\nb\\r\\n' > mixed"),
        ("macro", "printf '[attr]t text eol=crlf\\n* t\\n' > .gitattributes; printf 'a\\nb\\r\\n' > mixed"),
    ].map(|(name, script)| (name, script, Changed)))
    .await;
    let case = Case::with_upstream(UPSTREAM).await;
    let mut world = case.world().await;
    case.sh("pack/workspace", "echo '* -diff' > .gitattributes; echo hidden >> a").await;
    let recorded = candidate(world.workspace().record(1).await.unwrap());
    assert!(recorded.diff.text.contains("+hidden"), "{}", recorded.diff.text);
}

#[tokio::test]
async fn a_repository_that_is_broken_or_replaced_is_written_anew() {
    check_all([
        ("gone", "rm -rf .git; echo 2 > a"),
        ("a file", "rm -rf .git; echo 'gitdir: /nowhere' > .git; echo 2 > a"),
        ("a file that leads out", "rm -rf .git; git init -q --bare \"$OUTSIDE/x\"; mv \"$OUTSIDE/x\" ../x; echo \"gitdir: $PWD/../x\" > .git; echo 2 > a"),
        ("a link", "rm -rf .git; ln -s \"$OUTSIDE\" .git; echo 2 > a"),
        ("a FIFO", "rm -rf .git; mkfifo .git; echo 2 > a"),
        ("another", "rm -rf .git; git init -q .; git add -A; git commit -q -m other; echo 2 > a"),
        ("objects a link", "mv .git/objects ../objects; ln -s \"$OUTSIDE\" .git/objects; echo 2 > a"),
        ("objects gone", "rm -rf .git/objects; mkdir .git/objects; echo 2 > a"),
        ("refs a link", "mv .git/refs ../refs.$$; ln -s \"$OUTSIDE\" .git/refs; echo 2 > a"),
        ("heads a link", "rm -rf .git/refs/heads; ln -s \"$OUTSIDE\" .git/refs/heads; echo 2 > a"),
        ("branch a file in the way", "rm -rf .git/refs/heads/crucible; echo x > .git/refs/heads/crucible; echo 2 > a"),
        ("HEAD a link", "rm .git/HEAD; ln -s \"$OUTSIDE/file\" .git/HEAD; echo 2 > a"),
        ("index a link", "rm .git/index; ln -s \"$OUTSIDE/file\" .git/index; echo 2 > a"),
        ("config a link", "rm .git/config; ln -s \"$OUTSIDE/file\" .git/config; echo 2 > a"),
        ("config a directory", "rm .git/config; mkdir -p .git/config/x; echo 2 > a"),
        ("commondir", "echo \"$OUTSIDE\" > .git/commondir; echo 2 > a"),
        ("closed", "chmod 000 .git; echo 2 > a"),
        ("closed inside", "chmod 000 .git/objects .git/refs; echo 2 > a"),
    ].map(|(name, script)| (name, script, Changed)))
    .await;
}

#[tokio::test]
async fn games_with_index_and_names_do_not_matter() {
    check_all([
        ("assume-unchanged", "git update-index --assume-unchanged a; echo 2 > a", Changed),
        ("skip-worktree", "git update-index --skip-worktree a; echo 2 > a", Changed),
        ("info/exclude", "mkdir -p .git/info; echo '*' > .git/info/exclude; echo 2 > new", Changed),
        ("excludesFile", "git config core.excludesFile \"$PWD/ex\"; echo '*' > ex; echo 2 > new", Changed),
        ("sparse", "git sparse-checkout set --no-cone /src 2>/dev/null; echo 2 > new", Changed),
        ("own commits", "echo 2 > a; git add -A; git commit -q -m own; echo 3 > a; git commit -qam more", Changed),
        ("own commits undone", "echo 2 > a; git commit -qam own; git revert --no-edit HEAD >/dev/null", Same),
        ("branch switch", "git checkout -q -b other; echo 2 > a; git commit -qam own; git checkout -q --detach", Changed),
        ("branch deleted", "git checkout -q --detach; git branch -D crucible/r1 -q; echo 2 > a", Changed),
        ("collected", "echo 2 > a; git commit -qam own; git checkout -q --detach; git for-each-ref --format='%(refname)' | while read r; do git update-ref -d \"$r\"; done; git reflog expire --expire=now --all; git gc -q --prune=now", Changed),
        ("orphan and collected", "git checkout -q --orphan o; git commit -q -m o; git branch -D crucible/r1 -q; git reflog expire --expire=now --all; git gc -q --prune=now; echo 2 > a", Changed),
        ("replace", "echo 2 > a; git commit -qam own; git replace -f HEAD HEAD~1", Changed),
        ("graft", "mkdir -p .git/info; git rev-parse HEAD > .git/info/grafts; echo 2 > a", Changed),
        ("alternates", "mkdir -p .git/objects/info; echo /nowhere > .git/objects/info/alternates; echo 2 > a", Changed),
        ("lock", "touch .git/index.lock .git/HEAD.lock; echo 2 > a", Changed),
        ("nothing", "true", Same),
        ("touched", "touch a src/b; chmod go-rwx a", Same),
        ("ignored", "mkdir cache; echo 1 > cache/x; rm -r cache", Same),
    ])
    .await;
}

#[tokio::test]
async fn trees_of_every_kind_come_back_byte_for_byte() {
    check_all([
        ("file becomes directory", "rm a; mkdir a; echo x > a/x; mkdir -p a/y/z; echo q > a/y/z/q", Changed),
        ("directory becomes file", "rm -r src; echo x > src", Changed),
        ("directory becomes link out", "rm -r src; ln -s \"$OUTSIDE\" src", Changed),
        ("file becomes link out", "rm a; ln -s \"$OUTSIDE/file\" a", Changed),
        ("link becomes file", "rm link; echo x > link", Changed),
        ("dangling link", "ln -s nowhere dangling", Changed),
        ("parent becomes link", "mv sub other; ln -s other sub", Changed),
        ("loop", "ln -s . loop; ln -s loop2 loop2", Changed),
        ("case", "mv a A; echo b > B", Changed),
        ("exec bit", "chmod +x a; chmod -x run", Changed),
        ("everything gone", "rm -rf -- * .gitignore", Changed),
        ("closed directory", "mkdir shut; echo x > shut/x; chmod 000 shut", Changed),
        ("closed tracked directory", "chmod 000 src", Same),
        ("read-only directory", "mkdir ro; echo x > ro/x; chmod 555 ro src", Changed),
        ("read-only top", "echo x > x; chmod 555 .", Changed),
        ("closed file", "echo 2 > a; chmod 444 a", Changed),
        ("newline", "echo x > \"$(printf 'a\\nb')\"; mkdir \"$(printf 'd\\n')\"; echo y > \"$(printf 'd\\n')/y\"", Changed),
        ("quotes", "echo x > '\"q\" '\\''s'; echo y > 'back\\slash'; echo z > ' lead'; echo w > 'trail '", Changed),
        ("not UTF-8", "echo x > \"$(printf 'n\\377\\200')\"", Changed),
        ("dashes", "echo x > -rf; mkdir -- --; echo y > ./--/-; echo z > :x; echo w > ':(top)'; echo v > '*'", Changed),
        ("github", "mkdir .github .gitx; echo x > .github/x; echo y > .gitx/y", Changed),
        ("FIFO", "mkfifo pipe; echo 2 > a", Changed),
        ("FIFO for a file", "rm a; mkfifo a", Changed),
        ("FIFO in the cache", "mkdir cache; mkfifo cache/pipe; ", Same),
        ("empty directories", "mkdir -p e/m/p/t/y", Same),
        ("reserved", "echo x > RESULTS.md; mkdir .claude; echo y > .claude/y; printf '!/RESULTS.md\\n!.claude\\n' >> .gitignore; rm RESULTS.md; rm -r .claude", Changed),
        ("deep", "d=.; i=0; while [ $i -lt 300 ]; do d=$d/d; i=$((i+1)); done; mkdir -p $d; echo x > $d/x", Changed),
        ("inner repository", "mkdir in; cd in; git init -q; echo x > x; git add x; git commit -q -m x", Refused("git repository of its own: in/.git")),
        ("inner repository without a commit", "mkdir in; cd in; git init -q; echo x > x", Refused("git repository of its own: in/.git")),
        ("inner repository among tracked files", "cd src; git init -q; git config core.fsmonitor \"$PWD/../.git/bomb\"", Refused("git repository of its own: src/.git")),
        ("inner git file", "mkdir in; echo 'gitdir: ../.git' > in/.git; echo x > in/x", Refused("git repository of its own: in/.git")),
        ("repository for a file", "rm a; git init -q a; echo x > a/x", Refused("git repository of its own: a/.git")),
        ("closed file that git must read", "echo x > secret; chmod 000 secret; [ \"$(id -u)\" != 0 ] || { rm secret; git init -q secret; }", Refused("")),
        ("name that git refuses", "mkdir 'git~1'; echo x > 'git~1/x'", Refused("git cannot stage")),
    ])
    .await;
}

#[tokio::test]
async fn what_git_would_read_for_ever_or_not_at_all_is_refused_by_name() {
    let chain = |name: &str, count: u32| {
        format!(
            "echo 2 > a; i=0; while [ $i -lt {count} ]; do mkdir {name} && cd -P {name} || exit 1; i=$((i+1)); done; echo x > x"
        )
    };
    let long = "n".repeat(250);
    check_all([
        ("huge", "echo 2 > a; truncate -s 8T big".to_owned(), Refused("4294967296 bytes: big")),
        ("huge for a tracked file", "truncate -s 8T src/b".to_owned(), Refused("bytes: src/b")),
        (
            "rules",
            "head -c 1048577 /dev/zero | tr '\\0' '\\n' > src/.gitignore".to_owned(),
            Refused("too large for that: src/.gitignore"),
        ),
        ("huge rules", "truncate -s 8T .gitignore".to_owned(), Refused("too large for that: .gitignore")),
        (
            "huge attributes",
            "truncate -s 8T sub/.gitattributes".to_owned(),
            Refused("too large for that: sub/.gitattributes"),
        ),
        (
            "rules of the largest size",
            "head -c 1048576 /dev/zero | tr '\\0' '\\n' > src/.gitignore".to_owned(),
            Changed,
        ),
        ("long path", chain(&long, 40), Refused("deeper than git can follow: nnn")),
        ("path just too long for git", chain(&long, 17), Refused("deeper than git can follow: nnn")),
        ("path as long as git can follow", chain(&long, 15), Changed),
        ("deep", chain("d", 600), Refused("deeper than git can follow: d/d")),
    ])
    .await;
}

#[tokio::test]
async fn an_ignored_file_may_be_as_large_as_it_likes() {
    let case = Case::with_upstream(UPSTREAM).await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    // What is to be staged takes so long that all files are looked at.
    case.sh("pack/workspace", "truncate -s 2G big; mkdir cache; truncate -s 8T cache/big").await;
    assert!(candidate(world.workspace().record(1).await.unwrap()).changed);
    world.restore(&baseline).await.unwrap();
    assert!(!case.path("pack/workspace/big").exists());
    assert!(case.path("pack/workspace/cache/big").exists());
}

#[tokio::test]
async fn a_long_name_is_shortened_in_the_reason() {
    let case = Case::with_upstream(UPSTREAM).await;
    let mut world = case.world().await;
    let script = format!(
        "i=0; while [ $i -lt 40 ]; do mkdir {0} && cd -P {0} || exit 1; i=$((i+1)); done",
        "n".repeat(250)
    );
    case.sh("pack/workspace", &script).await;
    let recorded = world.workspace().record(1).await.unwrap();
    let Recorded::Refused { why } = recorded else { panic!("not refused") };
    let told = world.workspace().take_notes();
    assert!(why.len() < 300 && told.iter().all(|note| note.len() < 300), "{why} {told:?}");
}

#[tokio::test]
async fn an_empty_tracked_file_that_became_huge_is_put_back_unread() {
    let case = Case::with_upstream("touch empty && echo a > a").await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    // A multiple of 4 GiB is what an index, which counts in 32 bits, could take for nothing.
    case.sh("pack/workspace", "truncate -s 8T empty").await;
    assert!(matches!(world.workspace().record(1).await.unwrap(), Recorded::Refused { .. }));
    world.restore(&baseline).await.unwrap();
    assert_eq!(tree(&case.workspace())["empty"], "false ");
}

#[tokio::test]
async fn a_recording_that_is_cancelled_gives_no_candidate_and_hinders_nothing() {
    let case = Case::with_upstream(UPSTREAM).await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    let before = tree(&case.workspace());
    // As large as is allowed: it takes git seconds to read, and has it begun with before anything is cancelled.
    case.sh("pack/workspace", "truncate -s 4G big").await;
    let cancel = CancellationToken::new();
    let packs = case.path("pack/state/git/incoming/pack");
    let begun = async {
        while fs::read_dir(&packs).map_or(0, Iterator::count) == 0 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (recorded, ()) = tokio::join!(world.workspace().record_unless(1, &cancel), begun);
    let Recorded::Refused { why } = recorded.unwrap() else { panic!("not refused") };
    assert!(why.contains("cancelled"), "{why}");
    world.restore(&baseline).await.unwrap();
    assert_eq!(tree(&case.workspace()), before);
    case.sh("pack/workspace", "echo 2 > a").await;
    assert!(candidate(world.workspace().record(2).await.unwrap()).changed);
}

#[tokio::test]
async fn a_workspace_that_was_taken_away_is_made_anew() {
    check_all(
        [
            ("removed", "rm -rf \"$PWD\""),
            ("moved", "mv \"$PWD\" ../moved"),
            ("moved, and a link to it", "cd ..; mv workspace moved; ln -s moved workspace"),
            ("a link out", "cd ..; rm -rf workspace; ln -s \"$OUTSIDE\" workspace"),
            ("a dangling link", "cd ..; rm -rf workspace; ln -s nowhere workspace"),
            ("a file", "cd ..; rm -rf workspace; echo x > workspace"),
            ("a FIFO", "cd ..; rm -rf workspace; mkfifo workspace"),
            ("an empty directory", "cd ..; rm -rf workspace; mkdir workspace"),
            ("a directory with files", "cd ..; rm -rf workspace; mkdir workspace; echo x > workspace/a"),
            ("a copy", "cd ..; cp -a workspace copy; rm -rf workspace; mv copy workspace"),
            ("swapped", "cd ..; cp -a workspace copy; mv workspace moved; mv copy workspace"),
        ]
        .map(|(name, script)| (name, script, Refused("the workspace was removed or replaced"))),
    )
    .await;
}

#[tokio::test]
async fn what_stood_in_the_place_of_the_workspace_is_not_lost() {
    let case = Case::with_upstream("mkdir .claude && echo tracked > .claude/x && echo a > a").await;
    let mut world = case.world().await;
    let baseline = world.snapshot().await.unwrap();
    let before = tree(&case.workspace());
    case.sh("pack", "mv workspace moved; mkdir workspace; echo precious > workspace/mine").await;
    assert!(matches!(world.snapshot().await, Err(WorldError::Unstageable { .. })));
    world.restore(&baseline).await.unwrap();
    assert_eq!(tree(&case.workspace()), before, "reserved files of the base are there too");
    assert_eq!(fs::read_to_string(case.path("pack/workspace.displaced-1/mine")).unwrap(), "precious\n");
    assert_eq!(tree(&case.path("pack/moved")), before);
    // The run's facts and its claim know the new directory.
    let spec = case.clone_spec();
    Workspace::open(&spec.place).await.unwrap();
    case.set_up(&spec).await.unwrap();
}

//! A pack's own snapshot and restore commands on top of git's memory (contract §3, §5).

use super::*;
use engine::world::{CommandWorld, DomainCommands};

impl Case {
    async fn command_world(&self, snapshot: &str, restore: &str) -> CommandWorld {
        let workspace = self.set_up(&self.clone_spec()).await.unwrap();
        let domain = DomainCommands { snapshot_cmd: snapshot.to_owned(), restore_cmd: restore.to_owned() };
        CommandWorld::new(workspace, self.runner.clone(), Some(domain))
    }
}

#[tokio::test]
async fn both_halves_are_kept_and_brought_back() {
    let case = Case::with_upstream("echo 1 > a").await;
    fs::write(case.path("pack/domain"), "one").unwrap();
    let snapshot = "echo log; cat ../domain; echo; echo error >&2";
    let mut world =
        case.command_world(snapshot, "printf '%s' \"$CRUCIBLE_TOKEN\" > ../domain; pwd > ../where").await;
    let first = world.snapshot().await.unwrap();
    assert_eq!(first.to_string(), format!("{}\tone", world.last_commit_sha()));

    case.sh("pack", "echo 2 > workspace/a; printf 'two\\twith tab' > domain").await;
    candidate(world.workspace().record(1).await.unwrap());
    let second = world.snapshot().await.unwrap();
    assert_eq!(second.domain(), Some("two\twith tab"));

    world.restore(&first).await.unwrap();
    assert_eq!(fs::read_to_string(case.path("pack/domain")).unwrap(), "one");
    assert_eq!(tree(&case.workspace())["a"], "false 1\\n");
    assert_eq!(world.last_commit_sha(), first.commit());
    world.restore(&second).await.unwrap();
    assert_eq!(fs::read_to_string(case.path("pack/domain")).unwrap(), "two\twith tab");
    let cwd = fs::read_to_string(case.path("pack/where")).unwrap();
    assert_eq!(Path::new(cwd.trim_end()), case.workspace().canonicalize().unwrap());
}

#[tokio::test]
async fn a_failed_snapshot_aborts_the_keep() {
    for (command, expect) in [
        ("echo token; exit 3", "ended with exit code 3: token"),
        ("kill -9 $$", "signal 9"),
        ("true", "wrote no token"),
        ("echo token; echo", "wrote no token"),
        ("printf '\\377'", "no text"),
        ("/nowhere/at/all", "exit code 127"),
    ] {
        let case = Case::with_upstream("echo 1 > a").await;
        let mut world = case.command_world(command, "true").await;
        let best = world.last_commit_sha().clone();
        case.sh("pack/workspace", "echo 2 > a").await;
        candidate(world.workspace().record(1).await.unwrap());
        let error = world.snapshot().await.unwrap_err();
        assert!(matches!(&error, WorldError::Snapshot { why } if why.contains(expect)), "{command}: {error}");
        assert_eq!(world.last_commit_sha(), &best, "{command}: the best is what it was");
        let branch = case.sh("pack/state/git", "git --git-dir=. rev-parse refs/heads/crucible/r1").await;
        assert_eq!(branch, best.as_str(), "{command}");
    }
}

#[tokio::test]
async fn a_failed_restore_is_an_error_that_shows_the_output() {
    let case = Case::with_upstream("echo 1 > a").await;
    let mut world = case.command_world("echo t", "echo no route to the rig >&2; exit 4").await;
    let token = world.snapshot().await.unwrap();
    let error = world.restore(&token).await.unwrap_err();
    assert!(
        matches!(&error, WorldError::Restore { why } if why == "ended with exit code 4: no route to the rig"),
        "{error}"
    );
}

#[tokio::test]
async fn a_world_without_domain_commands_has_tokens_of_git_alone() {
    let case = Case::with_upstream("echo 1 > a").await;
    let workspace = case.set_up(&case.clone_spec()).await.unwrap();
    let mut world = CommandWorld::new(workspace, case.runner.clone(), None);
    let token = world.snapshot().await.unwrap();
    assert_eq!(token.domain(), None);
    world.restore(&token).await.unwrap();
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended() {
    let mut case = Case::with_upstream("echo 1 > a").await;
    case.runner.timeout = Some(std::time::Duration::from_millis(200));
    let mut world = case.command_world("echo t; sleep 600", "true").await;
    let error = world.snapshot().await.unwrap_err();
    assert!(matches!(&error, WorldError::Snapshot { why } if why.contains("took too long")), "{error}");
}

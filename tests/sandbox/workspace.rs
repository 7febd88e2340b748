//! What a turn did to its workspace, and what of it comes back.

use std::{
    ffi::OsStr,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    process::Command,
    sync::Arc,
};

use driver::{
    Client, TransportClass,
    turn::{self, Exit, TurnSpec},
};
use engine::{
    sys::{env::Environment, keeper::Keeper},
    world::{GitWorld, PackRunner, Place, Setup, Source, Spec, World as _},
};
use tokio_util::sync::CancellationToken;

use crate::{Test, lab::Lab};

pub(crate) const TESTS: &[Test] = &[
    ("additions_edits_and_deletions_come_back", changes),
    ("a_file_only_touched_open_is_no_change", untouched),
    ("an_edit_that_keeps_size_and_time_comes_back", forged_time),
    ("a_replaced_directory_loses_what_was_in_it", replaced),
    ("a_file_and_a_directory_change_places", swapped),
    ("modes_come_back_without_setuid", modes),
    ("links_come_back_only_when_they_stay_inside", links),
    ("special_files_and_git_stay_behind_by_name", dropped),
    ("odd_names_come_back_as_they_are", odd_names),
    ("sparse_and_large_files_come_back_as_such", sparse),
    ("unreadable_files_and_directories_come_back", unreadable),
    ("nothing_is_written_through_the_hosts_links", host_links),
    ("a_host_change_meanwhile_fails_and_changes_nothing", conflict),
    ("a_host_change_of_the_last_file_leaves_the_first_alone", all_or_nothing),
    ("the_sandbox_sees_no_git_unless_it_is_given_one", repository),
    ("the_engines_one_commit_is_all_of_git_and_nothing_of_it_comes_back", one_commit),
    ("git_npm_and_python_work_in_the_overlay", tools),
    ("cargo_builds_in_the_overlay_twice", cargo),
    ("renaming_a_directory_of_the_host_is_answered_as_in_any_overlay", directory_rename),
    ("the_owner_of_new_files_is_the_workspaces", owner),
    ("deep_nesting_stays_behind", deep),
    ("a_workspace_on_an_overlay_works_as_in_a_container", on_an_overlay),
    ("the_engines_state_in_the_workspace_is_hidden_and_kept", state_inside),
];

/// The same where no overlay can be mounted, with the same results.
#[cfg(feature = "weaken")]
pub(crate) fn copied(lab: &Lab) {
    for (name, test) in TESTS {
        if [
            "the_sandbox_sees_no_git_unless_it_is_given_one",
            "the_engines_one_commit_is_all_of_git_and_nothing_of_it_comes_back",
            "renaming_a_directory_of_the_host_is_answered_as_in_any_overlay",
            "git_npm_and_python_work_in_the_overlay",
            "cargo_builds_in_the_overlay_twice",
        ]
        .contains(name)
        {
            continue;
        }
        println!("  copied: {name}");
        let mut copied = Lab::new();
        copied.weaken.push("overlay".to_owned());
        test(&copied);
    }
    let mut spec = lab.spec("true");
    spec.weaken.push("overlay".to_owned());
    assert!(lab.run(spec).unwrap().end.layers.iter().any(|layer| layer.contains("copied")));
}

fn changes(lab: &Lab) {
    lab.write("edit", "old\n");
    lab.write("gone", "x");
    lab.write("dir/gone", "x");
    lab.write("dir/stays", "x");
    let seen = lab.sh("echo new >> edit; rm gone dir/gone; mkdir -p a/b/empty; echo y > a/b/f; : > nothing");
    let expected = [
        "Written a",
        "Written a/b",
        "Written a/b/empty",
        "Written a/b/f",
        "Deleted dir/gone",
        "Written edit",
        "Deleted gone",
        "Written nothing",
    ];
    assert_eq!(seen.changed(), expected);
    assert_eq!(
        (lab.read("edit").as_str(), lab.read("a/b/f").as_str(), lab.read("nothing").as_str()),
        ("old\nnew\n", "y\n", "")
    );
    assert!(lab.exists("a/b/empty") && lab.exists("dir/stays"));
    assert!(!lab.exists("gone") && !lab.exists("dir/gone"));
    assert!(seen.end.dropped.is_empty());
}

fn untouched(lab: &Lab) {
    lab.write("same", "content");
    let before = lab.space().join("same").metadata().unwrap();
    let seen =
        lab.sh("exec 3<>same; chmod 600 same; chmod $(stat -c %a /proc/self/fd/3 >/dev/null; echo 644) same");
    assert_eq!(seen.changed(), [""; 0]);
    let after = lab.space().join("same").metadata().unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
}

fn forged_time(lab: &Lab) {
    lab.write("f", "aaaa");
    let seen = lab.sh("cp -p f /tmp/ref; printf bbbb > f; touch -r /tmp/ref f");
    assert_eq!(seen.changed(), ["Written f"]);
    assert_eq!(lab.read("f"), "bbbb");
}

fn replaced(lab: &Lab) {
    lab.write("d/old", "x");
    lab.write("d/sub/old", "x");
    let seen = lab.sh("rm -r d; mkdir d; echo n > d/new");
    // A copy cannot tell a directory that was replaced from one that was emptied; the result is the same.
    let copied = ["Written d/new", "Deleted d/old", "Deleted d/sub"].as_slice();
    let expected = if lab.weaken.is_empty() { ["Written d", "Written d/new"].as_slice() } else { copied };
    assert_eq!(seen.changed(), expected);
    assert!(!lab.exists("d/old") && !lab.exists("d/sub") && lab.exists("d/new"));
}

fn swapped(lab: &Lab) {
    lab.write("file", "x");
    lab.write("dir/in", "x");
    symlink("dir", lab.space().join("link")).unwrap();
    lab.fine("rm -r file dir link; mkdir -p file link; echo 1 > file/a; echo 2 > dir; echo 3 > link/b");
    assert_eq!(
        (lab.read("file/a").as_str(), lab.read("dir").as_str(), lab.read("link/b").as_str()),
        ("1\n", "2\n", "3\n")
    );
    assert!(lab.space().join("link").symlink_metadata().unwrap().is_dir());
}

fn modes(lab: &Lab) {
    lab.write("x", "x");
    lab.write("d/in", "x");
    lab.fine(
        "chmod 751 x; chmod 700 d; cp /bin/true s; chmod 4755 s; mkdir -m 2755 g; mkdir -m 555 r; touch x",
    );
    let mode = |path: &str| lab.space().join(path).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(["x", "d", "s", "g", "r"].map(mode), [0o751, 0o700, 0o755, 0o755, 0o555]);
}

fn links(lab: &Lab) {
    lab.write("a/b", "x");
    let seen = lab.sh(
        "ln -s b a/in; ln -s ../a/b a/round; ln -s missing dangling; ln -s /etc/passwd abs; ln -s ../../etc up; \
         ln -s a/../../x sly; ln -s .git/config conf; ln -s /sandbox/space/a self",
    );
    assert_eq!(seen.changed(), ["Written a/in", "Written a/round", "Written dangling"]);
    assert_eq!(seen.dropped(), ["abs", "conf", "self", "sly", "up"]);
    assert_eq!(std::fs::read_link(lab.space().join("a/round")).unwrap().to_str(), Some("../a/b"));
}

fn dropped(lab: &Lab) {
    lab.write(".git/config", "[core]\n");
    lab.write("sub/keep", "x");
    let seen = lab.sh(
        "mkfifo pipe; mkdir -p .git/hooks sub/.git .GIT; echo evil > .git/hooks/post-checkout; echo evil > sub/.git/config; \
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; echo fine > fine",
    );
    assert_eq!(seen.changed(), ["Written fine"]);
    assert_eq!(seen.dropped(), [".GIT", ".git", "pipe", "sock", "sub/.git"]);
    assert!(seen.end.dropped.iter().any(|dropped| dropped.reason.contains("special")), "{seen:?}");
    assert_eq!(lab.read(".git/config"), "[core]\n");
    assert!(!lab.exists(".git/hooks") && !lab.exists("sub/.git"));
}

fn odd_names(lab: &Lab) {
    let names: [&[u8]; 7] =
        [b"a b", b"new\nline", b"\xff\xfe", b"-rf", b"quote\"'", b"comma,colon:", b"back\\slash"];
    let script = r#"
import os
for name in [b"a b", b"new\nline", b"\xff\xfe", b"-rf", b"quote\"'", b"comma,colon:", b"back\\slash", b"x" * 255]:
    open(name, "w").write("odd")
"#;
    let seen = lab.run(lab.program(["python3", "-c", script])).unwrap();
    assert_eq!(seen.end.exit, Exit::Code(0), "{}", seen.err);
    for name in names.into_iter().chain([[b'x'; 255].as_slice()]) {
        assert_eq!(std::fs::read(lab.space().join(OsStr::from_bytes(name))).unwrap(), b"odd", "{name:?}");
    }
}

fn sparse(lab: &Lab) {
    lab.fine("truncate -s 10G hole; printf end >> hole; head -c 50000000 /dev/urandom > big; sha256sum < big > sum");
    let hole = lab.space().join("hole").metadata().unwrap();
    assert_eq!(hole.len(), (10 << 30) + 3);
    assert!(hole.blocks() * 512 < 1 << 20, "{} blocks", hole.blocks());
    let sum = Command::new("sha256sum")
        .stdin(std::fs::File::open(lab.space().join("big")).unwrap())
        .output()
        .unwrap();
    assert_eq!(lab.read("sum").as_bytes(), sum.stdout);
}

fn unreadable(lab: &Lab) {
    lab.write("old/f", "x");
    lab.fine("echo s > secret; chmod 000 secret; mkdir closed; echo c > closed/in; chmod 000 closed; chmod 000 old/f");
    let mode = |path: &str| lab.space().join(path).symlink_metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(["secret", "closed", "old/f"].map(mode), [0; 3]);
    for path in ["secret", "closed", "old/f"] {
        std::fs::set_permissions(lab.space().join(path), PermissionsExt::from_mode(0o700)).unwrap();
    }
    assert_eq!((lab.read("secret").as_str(), lab.read("closed/in").as_str()), ("s\n", "c\n"));
}

fn host_links(lab: &Lab) {
    let outside = lab.dir().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("f"), "host").unwrap();
    symlink(&outside, lab.space().join("away")).unwrap();
    symlink(outside.join("f"), lab.space().join("file")).unwrap();
    let seen = lab.sh("rm away; mkdir away; echo evil > away/f; rm file; echo evil > file");
    assert_eq!(seen.changed(), ["Written away", "Written away/f", "Written file"]);
    assert_eq!(std::fs::read_to_string(outside.join("f")).unwrap(), "host");
    assert_eq!((lab.read("away/f").as_str(), lab.read("file").as_str()), ("evil\n", "evil\n"));
}

fn conflict(lab: &Lab) {
    lab.write("shared", "before");
    lab.write("a", "before");
    let space = lab.space();
    let spec = lab.spec("echo agent > shared; echo agent > a; echo said; read line");
    let result = lab.block_on(async {
        let client = Client::unix(lab.gateway().socket()).await?;
        let mut sink = |_, _: &[u8]| std::fs::write(space.join("shared"), "host").unwrap();
        turn::run(&client, spec, CancellationToken::new(), &mut sink).await
    });
    let error = result.unwrap_err();
    assert_eq!(error.class(), TransportClass::Workspace, "{error}");
    assert!(error.to_string().contains("shared"), "{error}");
    assert_eq!((lab.read("shared").as_str(), lab.read("a").as_str()), ("host", "before"));
}

fn all_or_nothing(lab: &Lab) {
    lab.write("a", "before");
    lab.write("d/x", "before");
    lab.write("z/in", "before");
    let space = lab.space();
    let spec = lab.spec("echo agent > a; rm -r d; mkdir new; echo agent > new/f; chmod 700 z; echo agent > z/in; echo said; read line");
    let result = lab.block_on(async {
        let client = Client::unix(lab.gateway().socket()).await?;
        // The last step's directory becomes a file.
        let mut sink = |_, _: &[u8]| {
            std::fs::rename(space.join("z"), space.join("moved")).unwrap();
            std::fs::write(space.join("z"), "host").unwrap();
        };
        turn::run(&client, spec, CancellationToken::new(), &mut sink).await
    });
    assert_eq!(result.unwrap_err().class(), TransportClass::Workspace);
    assert_eq!(
        (lab.read("a").as_str(), lab.read("d/x").as_str(), lab.read("moved/in").as_str()),
        ("before", "before", "before")
    );
    assert!(!lab.exists("new"));
}

fn repository(lab: &Lab) {
    lab.write("f", "x\n");
    lab.write(".git/HEAD", "upstream");
    assert_eq!(lab.fine("ls -A"), "f\n");
    let git = lab.dir().join("one");
    let run = |args: &[&str]| {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(&git).arg("--work-tree").arg(lab.space()).args(args);
        let home = [("HOME", "/nonexistent"), ("GIT_CONFIG_NOSYSTEM", "1")];
        let name = ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"]
            .map(|n| (n, "x"));
        assert!(command.envs(home).envs(name).output().unwrap().status.success(), "{args:?}");
    };
    run(&["init", "-q", "-b", "main"]);
    run(&["config", "--unset", "core.worktree"]);
    run(&["add", "f"]);
    run(&["commit", "-q", "-m", "one"]);
    let mut spec = lab.spec(
        "git log --oneline | wc -l; git status --short; echo y > g; git add g; \
         git -c user.name=a -c user.email=a commit -qm two; git log --oneline | wc -l",
    );
    spec.repository = Some(git.clone());
    let seen = lab.run(spec).unwrap();
    assert_eq!(seen.out, "1\n2\n", "{}", seen.err);
    assert_eq!((seen.changed(), seen.dropped()), (vec!["Written g".to_owned()], vec![]));
    assert_eq!(lab.read(".git/HEAD"), "upstream");
    assert!(
        !git.join("COMMIT_EDITMSG").exists()
            || std::fs::read(git.join("COMMIT_EDITMSG")).unwrap() == b"one\n"
    );
}

/// The repository that the engine makes for a turn, with the workspace its own user's and another one's.
fn one_commit(lab: &Lab) {
    let git_dir = lab.dir().join("engine/agent.git");
    let (mut world, runner) = engine_world(lab);
    for turn in 0..3 {
        if turn == 2 {
            if !nix::unistd::geteuid().is_root() {
                return;
            }
            give_away(&lab.space());
        }
        let shown = lab.block_on(world.workspace().agent_repository()).unwrap();
        let before = listing(&git_dir);
        let script = format!(
            "set -e; git log --oneline | wc -l; git status --short; git fsck --no-dangling 2>&1; git diff HEAD; echo {turn} > new; \
             git add new; git -c user.name=a -c user.email=a commit -qm mine; git log --oneline | wc -l; \
             echo evil > .git/config; mkdir .git/hooks; rm -rf .git/objects .git/index; ! rmdir .git 2>/dev/null"
        );
        let spec = TurnSpec { repository: Some(shown), ..lab.spec(&script) };
        let seen = lab.run(spec).unwrap();
        assert_eq!((seen.out.as_str(), seen.end.exit), ("1\n2\n", Exit::Code(0)), "{turn}: {}", seen.err);
        assert_eq!((seen.changed(), seen.dropped()), (vec!["Written new".to_owned()], vec![]), "{turn}");
        assert_eq!(listing(&git_dir), before, "{turn}");
        assert_eq!(lab.read(".git/HEAD"), "ref: refs/heads/crucible/r1\n");
        lab.block_on(world.snapshot()).unwrap();
    }
    drop(runner);
}

fn engine_world(lab: &Lab) -> (GitWorld, PackRunner) {
    let mut env = Environment::empty();
    env.set("PATH", "/usr/local/bin:/usr/bin:/bin");
    let upstream = lab.dir().join("upstream");
    std::fs::create_dir_all(upstream.join("d")).unwrap();
    std::fs::write(upstream.join("d/f"), "f").unwrap();
    let place = Place {
        state_dir: lab.dir().join("engine"),
        workspace: lab.space(),
        own: Vec::new(),
        env: env.clone(),
    };
    let spec = Spec {
        run: "r1".to_owned(),
        place,
        manifest_dir: lab.dir().to_owned(),
        source: Source::Local(upstream),
        reference: None,
        history: false,
        injects: Vec::new(),
        user_env: env.clone(),
    };
    std::fs::create_dir(&spec.place.state_dir).unwrap();
    lab.block_on(async {
        let exe = Path::new(env!("CARGO_BIN_EXE_crucible-under-test"));
        let keeper = Arc::new(Keeper::start_with(exe).await.unwrap());
        let runner = PackRunner { keeper, env, timeout: None, cancel: CancellationToken::new() };
        let workspace = Setup::new(&spec, &runner).run().await.unwrap();
        (GitWorld::new(workspace), runner)
    })
}

/// Makes the workspace's files another user's.
fn give_away(dir: &Path) {
    std::os::unix::fs::lchown(dir, Some(4321), Some(4321)).unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            give_away(&path);
        } else {
            std::os::unix::fs::lchown(&path, Some(4321), Some(4321)).unwrap();
        }
    }
}

/// Every path below a directory with its time of change.
fn listing(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        lines.push(format!("{} {} {}", path.display(), meta.ctime(), meta.ctime_nsec()));
        if meta.is_dir() {
            lines.extend(listing(&path));
        }
    }
    lines.sort();
    lines
}

/// What builds and moves most. Of these only `git mv` of a whole directory of the host fails, for it does not fall back
/// to copying.
fn tools(lab: &Lab) {
    lab.write("src/a.txt", "a");
    lab.write("src/b/c.txt", "c");
    let seen = lab.sh(
        "set -e; git init -q . ; git add .; git -c user.name=a -c user.email=a commit -qm x; ! git mv src moved; git mv src/a.txt a.txt; \
         python3 -c 'import shutil; shutil.move(\"src\", \"again\")'; mv again last; cat last/b/c.txt",
    );
    assert_eq!(seen.end.exit, Exit::Code(0), "{}", seen.err);
    assert_eq!(
        (lab.read("last/b/c.txt").as_str(), lab.read("a.txt").as_str(), lab.exists("src")),
        ("c", "a", false)
    );
    if Path::new("/usr/bin/npm").exists() {
        lab.write(
            "package.json",
            "{\"name\":\"x\",\"version\":\"1.0.0\",\"dependencies\":{\"dep\":\"file:./dep\"}}",
        );
        lab.write("dep/package.json", "{\"name\":\"dep\",\"version\":\"1.0.0\"}");
        let seen = lab.sh("npm install --offline --no-audit --no-fund 2>&1; ls node_modules");
        assert!(seen.out.contains("dep"), "{}\n{}", seen.out, seen.err);
    }
}

fn directory_rename(lab: &Lab) {
    lab.write("d/f", "x");
    let script = "import os, errno\ntry:\n os.rename('d', 'e'); print('renamed')\nexcept OSError as e: print(errno.errorcode[e.errno])";
    assert_eq!(lab.run(lab.program(["python3", "-c", script])).unwrap().out, "EXDEV\n");
    assert_eq!(lab.fine("mkdir fresh; mv fresh other; mv d e; ls"), "e\nother\n");
    assert!(lab.exists("e/f") && !lab.exists("d"));
}

fn owner(lab: &Lab) {
    lab.write("f", "x");
    lab.fine("echo y > f; mkdir d; echo z > d/g; ln -s g d/l");
    let space = lab.space().metadata().unwrap();
    for path in ["f", "d", "d/g", "d/l"] {
        let meta = lab.space().join(path).symlink_metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (space.uid(), space.gid()), "{path}");
    }
}

fn deep(lab: &Lab) {
    let script = "import os\nfor i in range(3000):\n os.mkdir('d'); os.chdir('d')\nopen('f','w').write('x')";
    let seen = lab.run(lab.program(["python3", "-c", script])).unwrap();
    assert_eq!(seen.end.exit, Exit::Code(0), "{}", seen.err);
    assert_eq!(seen.end.dropped.len(), 1, "{:?}", seen.dropped());
    assert!(seen.end.dropped[0].reason.contains("deep"));
}

/// A workspace around its own engine's state, as with `dir = "."`.
fn state_inside(lab: &Lab) {
    lab.write("f", "x");
    let socket = lab.gateway().socket().to_owned();
    let mut spec = lab.spec("ls -A; mkdir state; echo evil > state/planted; echo y > g; find . -type s");
    spec.workspace = lab.dir().to_owned();
    let seen = lab.run(spec).unwrap();
    assert_eq!(seen.out.split_whitespace().collect::<Vec<_>>(), ["space"], "{}", seen.err);
    assert_eq!((seen.changed(), seen.dropped()), (vec!["Written g".to_owned()], vec!["state".to_owned()]));
    assert!(socket.exists() && !lab.dir().join("state/planted").exists());
    let mut spec = lab.spec("true");
    spec.workspace = lab.dir().join("state");
    assert_eq!(lab.run(spec).unwrap_err().class(), TransportClass::Workspace);
}

/// A container's own root is an overlay, which takes no id map: root's agent is root there, and its turn works.
fn on_an_overlay(lab: &Lab) {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let part = |name: &str| {
        let path = lab.dir().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let (lower, upper, work, merged) = (part("lower"), part("upper"), part("work"), part("merged"));
    std::fs::write(lower.join("f"), "old\n").unwrap();
    let options =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    mount(Some("overlay"), &merged, Some("overlay"), MsFlags::empty(), Some(options.as_str())).unwrap();
    let mut spec = lab.spec("echo new >> f; mkdir d; echo x > d/g; id -u; cat /etc/shadow; echo x > /proc/sys/kernel/core_pattern");
    spec.workspace.clone_from(&merged);
    let seen = lab.run(spec);
    let text = std::fs::read_to_string(merged.join("f"));
    umount2(&merged, MntFlags::MNT_DETACH).unwrap();
    let seen = seen.unwrap();
    assert_eq!((text.unwrap().as_str(), seen.out.as_str()), ("old\nnew\n", "1000\n"), "{seen:?}");
    assert_eq!(seen.changed(), ["Written d", "Written d/g", "Written f"]);
    assert!(seen.end.layers.iter().any(|layer| layer.contains("takes no id map")), "{:?}", seen.end.layers);
}

/// With the host's toolchain joined to the view: a build, and another on top of what the first brought back.
fn cargo(lab: &Lab) {
    let asked = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = asked.map(|output| output.stdout).unwrap_or_default();
    let sysroot = std::path::PathBuf::from(String::from_utf8(sysroot).unwrap().trim());
    if !sysroot.join("bin/cargo").exists() {
        println!("skipped: this user has no toolchain");
        return;
    }
    lab.write("Cargo.toml", "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    lab.write("src/main.rs", "fn main() { println!(\"one\"); }");
    let build = || {
        let mut spec = lab.spec("cargo build --offline -q && target/debug/x");
        spec.env.insert("PATH".to_owned(), format!("{}/bin:/usr/bin:/bin", sysroot.display()));
        spec.read_only_paths.push(sysroot.clone());
        lab.run(spec).unwrap()
    };
    let first = build();
    assert_eq!(first.out, "one\n", "{}", first.err);
    lab.write("src/main.rs", "fn main() { println!(\"two\"); }");
    let second = build();
    assert_eq!(second.out, "two\n", "{}", second.err);
    assert!(first.end.dropped.is_empty() && second.end.dropped.is_empty(), "{first:?} {second:?}");
}

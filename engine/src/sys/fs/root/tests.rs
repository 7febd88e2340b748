use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use super::super::{Obstacles, WriteOptions};
use super::*;

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

/// A directory `in` with one of everything, beside a directory `out` that nothing may touch.
struct Tree {
    top: tempfile::TempDir,
    root: Root,
}

impl Tree {
    fn new() -> Tree {
        let top = tempfile::tempdir().unwrap();
        let (inside, outside) = (top.path().join("in"), top.path().join("out"));
        std::fs::create_dir_all(inside.join("dir/sub")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("precious"), "precious").unwrap();
        std::fs::write(inside.join("dir/file"), "content").unwrap();
        symlink("../out", inside.join("dirlink")).unwrap();
        symlink("../out/precious", inside.join("link")).unwrap();
        symlink("dir/file", inside.join("inner")).unwrap();
        nix::unistd::mkfifo(&inside.join("fifo"), Mode::S_IRWXU).unwrap();
        drop(UnixListener::bind(inside.join("socket")).unwrap());
        let root = Root::open(&inside).unwrap();
        Tree { top, root }
    }

    fn at(&self, text: &str) -> PathBuf {
        self.root.path().join(text)
    }

    fn assert_outside_untouched(&self, case: &str) {
        let out = self.top.path().join("out");
        assert_eq!(std::fs::read_to_string(out.join("precious")).unwrap(), "precious", "{case}");
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1, "{case}");
    }
}

/// In one word, what became of a read.
fn word<T>(result: Result<Option<T>, FsError>) -> &'static str {
    match result {
        Ok(Some(_)) => "read",
        Ok(None) => "absent",
        Err(FsError::NotRegular { kind: Kind::Link, .. }) => "link",
        Err(FsError::NotRegular { kind: Kind::Fifo, .. }) => "fifo",
        Err(FsError::NotRegular { kind: Kind::Socket, .. }) => "socket",
        Err(FsError::NotRegular { kind: Kind::Dir, .. }) => "dir",
        Err(FsError::Obstructed { .. }) => "obstructed",
        Err(FsError::TooLarge { .. }) => "large",
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn only_regular_files_are_read_and_nothing_is_waited_for() {
    let tree = Tree::new();
    for (at, expect) in [
        ("dir/file", "read"),
        ("none", "absent"),
        ("none/below", "absent"),
        ("dir/file/below", "absent"),
        ("dir", "dir"),
        ("link", "link"),
        ("inner", "link"),
        ("dirlink", "link"),
        ("dirlink/precious", "obstructed"),
        ("fifo", "fifo"),
        ("socket", "socket"),
    ] {
        assert_eq!(word(tree.root.read(&path(at), 100)), expect, "read {at}");
        assert_eq!(word(tree.root.hash_regular(&path(at), u64::MAX)), expect, "hash {at}");
    }
    assert_eq!(word(tree.root.read(&path("dir/file"), 6)), "large");
    assert_eq!(tree.root.read(&path("dir/file"), 7).unwrap().unwrap(), b"content");
    // `printf content | sha256sum`
    let hash = tree.root.hash_regular(&path("dir/file"), u64::MAX).unwrap().unwrap();
    assert_eq!((hash.len, hash.sha256[..4].to_vec()), (7, vec![0xed, 0x70, 0x02, 0xb4]));
}

#[test]
fn paths_resolve_the_same_with_and_without_openat2() {
    let tree = Tree::new();
    for at in
        ["dir", "dir/file", "none", "none/x", "link", "inner", "dirlink/precious", "dir/file/x", "dirlink"]
    {
        let by_kernel = open_beneath(tree.root.fd.as_fd(), &path(at), READ).map(drop);
        let by_hand = step_by_step(tree.root.fd.as_fd(), &path(at), READ).map(drop);
        // O_DIRECTORY with O_NOFOLLOW calls a link on the way no directory; both are refusals.
        let alike = |result| match result {
            Err(Errno::ENOTDIR) if at.starts_with("dirlink") => Err(Errno::ELOOP),
            result => result,
        };
        assert_eq!(alike(by_kernel), alike(by_hand), "{at}");
    }
}

#[test]
fn a_write_replaces_what_is_at_the_end_and_obeys_about_what_is_on_the_way() {
    for (at, refusing) in [
        ("new", true),
        ("new/dirs/on/the/way", true),
        ("dir/file", true),
        ("link", true),
        ("inner", true),
        ("fifo", true),
        ("socket", true),
        ("dir", false),
        ("dirlink/precious", false),
        ("link/below", false),
        ("fifo/below", false),
        ("dir/file/below", false),
    ] {
        for obstacles in [Obstacles::Refuse, Obstacles::Remove] {
            let case = format!("{at} {obstacles:?}");
            let tree = Tree::new();
            let options = WriteOptions { mode: 0o754, durable: true, obstacles };
            let written = tree.root.write_atomic(&path(at), &mut &b"new"[..], options);
            if obstacles == Obstacles::Remove || refusing {
                written.unwrap_or_else(|error| panic!("{case}: {error:?}"));
                assert_eq!(tree.root.read(&path(at), 10).unwrap().unwrap(), b"new", "{case}");
                assert_eq!(
                    std::fs::metadata(tree.at(at)).unwrap().permissions().mode() & 0o7777,
                    0o754,
                    "{case}"
                );
            } else {
                assert!(matches!(written, Err(FsError::Obstructed { .. })), "{case}: {written:?}");
            }
            tree.assert_outside_untouched(&case);
            assert_eq!(
                std::fs::read_to_string(tree.at("dir/file")).ok().is_none(),
                ["dir", "dir/file/below"].contains(&at) && obstacles == Obstacles::Remove,
                "{case}"
            );
            let drafts = std::fs::read_dir(tree.root.path()).unwrap().flatten();
            assert_eq!(
                drafts.filter(|entry| entry.file_name().to_string_lossy().contains(".tmp")).count(),
                0,
                "{case}"
            );
        }
    }
}

#[test]
fn a_write_whose_content_fails_leaves_the_old_file() {
    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("gone"))
        }
    }
    let tree = Tree::new();
    let options = WriteOptions { mode: 0o644, durable: false, obstacles: Obstacles::Remove };
    tree.root.write_atomic(&path("dir/file"), &mut Broken, options).unwrap_err();
    assert_eq!(std::fs::read_to_string(tree.at("dir/file")).unwrap(), "content");
    assert_eq!(std::fs::read_dir(tree.at("dir")).unwrap().count(), 2);
}

#[test]
fn anything_is_removed_and_no_link_is_followed() {
    for (at, there) in [
        ("dir", true),
        ("dir/file", true),
        ("link", true),
        ("dirlink", true),
        ("fifo", true),
        ("socket", true),
        ("none", false),
        ("none/below", false),
    ] {
        let tree = Tree::new();
        symlink("../../out", tree.at("dir/sub/up")).unwrap();
        std::fs::set_permissions(tree.at("dir/sub"), std::fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(tree.root.remove_any(&path(at)).unwrap(), there, "{at}");
        assert!(std::fs::symlink_metadata(tree.at(at)).is_err(), "{at}");
        tree.assert_outside_untouched(at);
    }
    let tree = Tree::new();
    let through = tree.root.remove_any(&path("dirlink/precious"));
    assert!(matches!(through, Err(FsError::Obstructed { .. })), "{through:?}");
    tree.assert_outside_untouched("through a link");
}

#[test]
fn trees_deeper_than_any_path_are_removed() {
    let tree = Tree::new();
    let mut at: OwnedFd = File::open(tree.root.path()).unwrap().into();
    let name = "d".repeat(100);
    for depth in 0..1_000 {
        nix::sys::stat::mkdirat(&at, name.as_str(), Mode::S_IRWXU).unwrap();
        at = openat(&at, name.as_str(), DIRECTORY, Mode::empty()).unwrap();
        if depth % 300 == 0 {
            openat(&at, "file", OFlag::O_CREAT | OFlag::O_WRONLY, Mode::S_IRUSR).unwrap();
            nix::sys::stat::mkdirat(&at, "second", Mode::empty()).unwrap();
        }
    }
    drop(at);
    assert!(matches!(tree.root.special_files(&[]), Err(FsError::TooDeep { .. })));
    assert!(tree.root.remove_any(&path(&name)).unwrap());
    assert!(!tree.at(&name).exists());
    assert_eq!(tree.root.special_files(&[]).unwrap().count, 2);
}

#[test]
fn special_files_are_listed_without_being_opened() {
    let tree = Tree::new();
    nix::unistd::mkfifo(&tree.at("dir/sub/deep"), Mode::S_IRWXU).unwrap();
    let listed = |skip: &[&OsStr]| {
        let mut found = tree.root.special_files(skip).unwrap();
        found.paths.sort();
        (found.count, found.paths.iter().map(RelPath::to_string).collect::<Vec<_>>())
    };
    assert_eq!(listed(&[]), (3, vec!["dir/sub/deep".into(), "fifo".into(), "socket".into()]));
    assert_eq!(listed(&[OsStr::new("dir"), OsStr::new("fifo")]), (1, vec!["socket".into()]));
    // Only names at the top are skipped.
    assert_eq!(listed(&[OsStr::new("deep")]).0, 3);
    for number in 0..100 {
        nix::unistd::mkfifo(&tree.at(&format!("fifo{number}")), Mode::S_IRWXU).unwrap();
    }
    let many = tree.root.special_files(&[]).unwrap();
    assert_eq!((many.count, many.paths.len()), (103, 64));
}

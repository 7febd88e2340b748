use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

#[test]
fn files_directories_and_inner_links_are_copied_and_the_rest_is_told() {
    let top = tempfile::tempdir().unwrap();
    let (from, to) = (top.path().join("from"), top.path().join("to"));
    std::fs::create_dir_all(from.join("dir/sub/deep")).unwrap();
    std::fs::create_dir_all(from.join("skipped/below")).unwrap();
    std::fs::create_dir(&to).unwrap();
    std::fs::write(from.join("dir/tool"), "run").unwrap();
    std::fs::set_permissions(from.join("dir/tool"), PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(from.join("dir/sub/plain"), "text").unwrap();
    std::fs::set_permissions(from.join("dir/sub/plain"), PermissionsExt::from_mode(0o666)).unwrap();
    nix::unistd::mkfifo(&from.join("dir/fifo"), Mode::S_IRWXU).unwrap();
    for (target, at) in [
        ("dir/tool", "good"),
        ("../dir/sub", "dir/good-dir"),
        ("nothing/here", "good-dangling"),
        ("../to", "out"),
        ("/etc/passwd", "out-absolute"),
        ("../../from/dir/tool", "dir/out-and-in"),
        // By its text it stays inside; but `up` is a link to the top.
        ("../..", "dir/sub/up"),
        ("up/../to", "dir/sub/out-by-detour"),
    ] {
        symlink(target, from.join(at)).unwrap();
    }
    let (from, to) = (Root::open(&from).unwrap(), Root::open(&to).unwrap());
    let copied = copy_tree(&from, &to, &mut |path, _| path.to_string() != "skipped").unwrap();

    let texts = |paths: &[RelPath]| {
        let mut texts: Vec<_> = paths.iter().map(RelPath::to_string).collect();
        texts.sort();
        texts
    };
    assert_eq!(texts(&copied.links_out), ["dir/out-and-in", "dir/sub/out-by-detour", "out", "out-absolute"]);
    assert_eq!((texts(&copied.specials), copied.files), (vec!["dir/fifo".to_owned()], 2));
    let mode = |at: &str| std::fs::metadata(to.path().join(at)).unwrap().mode() & 0o777;
    assert_eq!((mode("dir/tool"), mode("dir/sub/plain")), (0o755, 0o644));
    assert_eq!(std::fs::read_to_string(to.path().join("good")).unwrap(), "run");
    assert!(to.path().join("dir/sub/deep").is_dir());
    assert_eq!(std::fs::read_link(to.path().join("good-dangling")).unwrap(), Path::new("nothing/here"));
    assert!(!to.path().join("skipped").exists());
}

#[test]
fn without_the_kernels_word_only_plain_links_are_trusted() {
    for (target, plain) in
        [("a/b", true), ("../../a", true), ("./../a", true), ("a/../b", false), ("..", true)]
    {
        assert_eq!(ups_come_first(Path::new(target)), plain, "{target}");
    }
    for (target, depth, inside) in
        [("..", 1, true), ("..", 0, false), ("a/../..", 0, false), ("/", 5, false), ("../a/..", 1, true)]
    {
        assert_eq!(leads_nowhere_above(Path::new(target), depth), inside, "{target} at {depth}");
    }
}

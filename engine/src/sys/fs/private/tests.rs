use std::io::Write as _;
use std::os::unix::fs::symlink;

use super::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn directories_and_files_are_private_whatever_they_were() {
    let top = tempfile::tempdir().unwrap();
    let state = top.path().join("new/state");
    create_private_dir(&state).unwrap();
    assert_eq!(mode(&state), 0o700);
    std::fs::set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
    create_private_dir(&state).unwrap();
    assert_eq!(mode(&state), 0o700);

    let log = state.join("log");
    private_file(&log, PrivateFile::New).unwrap().write_all(b"one").unwrap();
    assert_eq!(mode(&log), 0o600);
    assert!(private_file(&log, PrivateFile::New).is_err());
    std::fs::set_permissions(&log, Permissions::from_mode(0o666)).unwrap();
    private_file(&log, PrivateFile::Append).unwrap().write_all(b"two").unwrap();
    assert_eq!((mode(&log), std::fs::read_to_string(&log).unwrap()), (0o600, "onetwo".into()));
    private_file(&log, PrivateFile::Truncate).unwrap();
    assert_eq!(std::fs::read(&log).unwrap(), b"");
}

#[test]
fn what_was_planted_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let at = |name| top.path().join(name);
    std::fs::write(at("victim"), "precious").unwrap();
    std::fs::create_dir(at("dir")).unwrap();
    symlink("victim", at("link")).unwrap();
    symlink("dir", at("dirlink")).unwrap();
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for how in [PrivateFile::Append, PrivateFile::Truncate, PrivateFile::New] {
        for name in ["link", "dir", "fifo", "dirlink"] {
            assert!(private_file(&at(name), how).is_err(), "{name} {how:?}");
        }
    }
    for name in ["link", "dirlink", "fifo", "victim"] {
        assert!(create_private_dir(&at(name)).is_err(), "{name}");
    }
    assert_eq!(std::fs::read_to_string(at("victim")).unwrap(), "precious");
}

#[test]
fn host_files_are_read_up_to_a_bound_and_nothing_else_is_waited_for() {
    let top = tempfile::tempdir().unwrap();
    let at = |name| top.path().join(name);
    std::fs::write(at("file"), "12345").unwrap();
    symlink("file", at("link")).unwrap();
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(read_bounded(&at("link"), 5).unwrap(), b"12345");
    assert!(matches!(read_bounded(&at("file"), 4), Err(FsError::TooLarge { max: 4, .. })));
    assert!(matches!(read_bounded(&at("fifo"), 4), Err(FsError::NotRegular { .. })));
    assert!(matches!(read_bounded(Path::new("/dev/zero"), 4), Err(FsError::NotRegular { .. })));
    assert!(matches!(read_bounded(&at("none"), 4), Err(FsError::Io { .. })));
}

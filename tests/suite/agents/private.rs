//! The engine's private files about conversations, looked at whenever anything happens to them.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::*;

/// What is waited for; a look at the directory is none of it.
const CHANGES: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_MODIFY)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_CLOSE_WRITE);

/// Mode and kind of everything in a directory, as soon as something happened in it.
fn modes(dir: &Path) -> BTreeMap<String, u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let mode = entry.path().symlink_metadata().ok()?.permissions().mode();
            Some((entry.file_name().to_string_lossy().into_owned(), mode & 0o7777))
        })
        .collect()
}

#[test]
fn no_private_file_is_ever_wider_than_its_owner() {
    if !installed() {
        return;
    }
    for way in [WAYS[0], WAYS[1], WAYS[2]] {
        let model = Model::replies(&turn(RAISE));
        let pack = pack(way, &model, "", SESSION);
        let mut child = command(&pack, &model, &["--iterations", "2"]).spawn().unwrap();
        let private = pack.path("state/agent");
        while !private.exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let mode = private.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o700, "{way:?}");
        let watch = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        watch.add_watch(&private, CHANGES).unwrap();
        let mut seen = 0;
        loop {
            let over = child.try_wait().unwrap().is_some();
            // Every event is followed by a look at all that is there.
            while watch.read_events().is_ok_and(|events| !events.is_empty()) {
                seen += 1;
                for (name, mode) in modes(&private) {
                    let expect = if name == "live" { 0o700 } else { 0o600 };
                    assert_eq!(mode, expect, "{way:?}: {name}");
                }
            }
            if over {
                break;
            }
            std::thread::yield_now();
        }
        assert!(seen > 2, "{way:?}: {seen}");
        let left: Vec<String> = modes(&private).into_keys().collect();
        // A sandbox is looked into when there is something to be seen, which a short turn need not be long enough for.
        let left: Vec<String> =
            left.into_iter().filter(|name| way.backend == "local" || name != "live").collect();
        let expect: &[&str] = match way.backend {
            "local" => &["live", "sessions.json", "solver.jsonl"],
            _ => &["sessions.json", "solver.jsonl"],
        };
        assert_eq!(left, expect, "{way:?}");
        let ran = Ran { output: child.wait_with_output().unwrap(), log: pack.log() };
        assert_eq!(ran.decisions(), ["baseline", "keep", "keep"], "{way:?}");
    }
}

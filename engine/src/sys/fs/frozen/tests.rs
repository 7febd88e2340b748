use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;

const JUDGE: &[u8] = b"#!/bin/sh\necho '{\"score\": 1}'\n";

fn frozen() -> FrozenFile {
    let dst = RelPath::parse("judge/bin/score.sh").unwrap();
    FrozenFile { dst, sha256: Sha256::digest(JUDGE).into(), len: 30, mode: 0o755 }
}

/// A workspace with the frozen file in place, beside a directory that nothing may touch.
fn workspace() -> (tempfile::TempDir, Root) {
    let top = tempfile::tempdir().unwrap();
    std::fs::create_dir(top.path().join("out")).unwrap();
    std::fs::write(top.path().join("out/score.sh"), "outside").unwrap();
    std::fs::create_dir(top.path().join("ws")).unwrap();
    let root = Root::open(&top.path().join("ws")).unwrap();
    assert!(restore_frozen(&root, &frozen(), || Ok(JUDGE)).unwrap());
    (top, root)
}

#[test]
fn an_intact_file_is_not_written_and_its_source_not_opened() {
    let (_top, root) = workspace();
    let refuse = || -> io::Result<&[u8]> { panic!("the source was opened") };
    assert!(!restore_frozen(&root, &frozen(), refuse).unwrap());
}

#[test]
fn whatever_was_done_to_it_is_undone_and_nothing_outside_changes() {
    type Attack = fn(&Path);
    fn replace(ws: &Path, at: &str, with: &str) {
        let at = ws.join(at);
        if at.is_dir() {
            std::fs::remove_dir_all(&at).unwrap();
        } else {
            std::fs::remove_file(&at).unwrap();
        }
        symlink(with, at).unwrap();
    }
    fn fifo(path: &Path) {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let attacks: [(&str, Attack); 14] = [
        ("removed", |ws| std::fs::remove_file(ws.join("judge/bin/score.sh")).unwrap()),
        ("edited", |ws| std::fs::write(ws.join("judge/bin/score.sh"), "echo 9").unwrap()),
        ("same length", |ws| std::fs::write(ws.join("judge/bin/score.sh"), [b'x'; 30]).unwrap()),
        ("longer", |ws| std::fs::write(ws.join("judge/bin/score.sh"), [JUDGE, b"#"].concat()).unwrap()),
        ("enormous", |ws| {
            let file = std::fs::File::options().write(true).open(ws.join("judge/bin/score.sh")).unwrap();
            file.set_len(1 << 41).unwrap();
        }),
        ("not executable", |ws| {
            std::fs::set_permissions(ws.join("judge/bin/score.sh"), PermissionsExt::from_mode(0o644))
                .unwrap();
        }),
        ("unreadable", |ws| {
            std::fs::set_permissions(ws.join("judge/bin/score.sh"), PermissionsExt::from_mode(0o000))
                .unwrap();
            std::fs::set_permissions(ws.join("judge/bin"), PermissionsExt::from_mode(0o000)).unwrap();
        }),
        ("a link", |ws| replace(ws, "judge/bin/score.sh", "../../../out/score.sh")),
        ("a link to the same bytes", |ws| {
            std::fs::rename(ws.join("judge/bin/score.sh"), ws.join("copy")).unwrap();
            symlink("../../copy", ws.join("judge/bin/score.sh")).unwrap();
        }),
        ("a directory", |ws| {
            std::fs::remove_file(ws.join("judge/bin/score.sh")).unwrap();
            std::fs::create_dir_all(ws.join("judge/bin/score.sh/full/of/it")).unwrap();
        }),
        ("a fifo", |ws| {
            std::fs::remove_file(ws.join("judge/bin/score.sh")).unwrap();
            fifo(&ws.join("judge/bin/score.sh"));
        }),
        ("its directory a link out", |ws| replace(ws, "judge/bin", "../../out")),
        ("its top directory a link out", |ws| replace(ws, "judge", "../out")),
        ("its directory a fifo", |ws| {
            std::fs::remove_dir_all(ws.join("judge/bin")).unwrap();
            fifo(&ws.join("judge/bin"));
        }),
    ];
    for (name, attack) in attacks {
        let (top, root) = workspace();
        attack(root.path());
        assert!(restore_frozen(&root, &frozen(), || Ok(JUDGE)).unwrap(), "{name}: not noticed");
        let found = root.hash_regular(&frozen().dst, u64::MAX).unwrap().unwrap();
        assert_eq!((found.sha256, found.mode), (frozen().sha256, 0o755), "{name}");
        assert_eq!(std::fs::read_to_string(top.path().join("out/score.sh")).unwrap(), "outside", "{name}");
        assert_eq!(std::fs::read_dir(top.path().join("out")).unwrap().count(), 1, "{name}");
    }
}

#[test]
fn a_source_that_has_changed_is_refused_and_writes_nothing() {
    let (_top, root) = workspace();
    std::fs::write(root.path().join("judge/bin/score.sh"), "echo 9").unwrap();
    for source in [&b""[..], b"echo 10", &[b'x'; 30], &[JUDGE, b"#"].concat(), &JUDGE[..29]] {
        let refused = restore_frozen(&root, &frozen(), || Ok(source));
        assert!(matches!(refused, Err(FsError::SourceChanged { .. })), "{refused:?}");
        let entries = std::fs::read_dir(root.path().join("judge/bin")).unwrap().flatten();
        assert_eq!(entries.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["score.sh"]);
        assert_eq!(std::fs::read_to_string(root.path().join("judge/bin/score.sh")).unwrap(), "echo 9");
    }
}

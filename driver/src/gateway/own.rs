//! Turns this binary into a program of the view, where scripts find it by its name (N14).
//! It refuses to know what it is run for.

use std::{
    fs,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, open},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::stat::Mode,
};

use super::{
    init::{Failure, Step as _},
    mount::{directory, place, tmpfs, tree},
    sys::{NODEV, NOSUID, RDONLY},
};
use crate::network::PROGRAM;

/// Where programs that a machine's owner adds are, and the shell looks early.
const LOCAL: &str = "usr/local/bin";
const NAME: &str = "crucible";

/// Puts the binary at [`PROGRAM`] and into `/usr/local/bin`, beside what the host has there. Answers what may be read and
/// executed now, and why it is not in the second place where it cannot be.
pub(crate) fn show(root: &Path, binary: &OwnedFd) -> Result<(PathBuf, Option<String>), Failure> {
    let inside = root.join(PROGRAM.trim_start_matches('/'));
    fs::write(&inside, "").step("make room for this program")?;
    place(binary, &inside, RDONLY | NOSUID | NODEV)?;
    let note = local(root, &inside).err().map(|failure| format!("program: at {PROGRAM} alone ({failure})"));
    Ok((PathBuf::from(PROGRAM), note))
}

fn local(root: &Path, inside: &Path) -> Result<(), Failure> {
    let mut at = root.to_owned();
    for part in Path::new(LOCAL) {
        at.push(part);
        let meta = fs::symlink_metadata(&at).step(format!("look at /{LOCAL}"))?;
        if !meta.is_dir() {
            return Err(Failure::new(format!("use /{LOCAL}"), "it is no directory"));
        }
    }
    let room = at.join(NAME);
    if !fs::symlink_metadata(&room).is_ok_and(|meta| meta.is_file()) {
        room_for_it(root, &at)?;
    }
    place(&tree(inside, false)?, &room, RDONLY | NOSUID | NODEV)
}

/// Lays an empty file of the binary's name over a directory that cannot be written, and everything of it below.
fn room_for_it(root: &Path, at: &Path) -> Result<(), Failure> {
    let stage = root.join(".own");
    directory(&stage, 0o700)?;
    tmpfs(&stage, "mode=0700,size=64k,nr_inodes=16")?;
    for part in ["above", "below"] {
        directory(&stage.join(part), 0o755)?;
    }
    fs::write(stage.join("above").join(NAME), "").step("make room for this program")?;
    place(&tree(at, false)?, &stage.join("below"), RDONLY | NOSUID | NODEV)?;
    let mounted = overlay(&stage, at);
    umount2(&stage, MntFlags::MNT_DETACH).step("detach the overlay's layers")?;
    fs::remove_dir(&stage).step("remove the stage")?;
    mounted
}

fn overlay(stage: &Path, at: &Path) -> Result<(), Failure> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let here = open(stage, flags, Mode::empty()).step("open the overlay's layers")?;
    let here = format!("/proc/self/fd/{}", here.as_raw_fd());
    let options = format!("lowerdir={here}/above:{here}/below,userxattr");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_RDONLY;
    mount(Some("overlay"), at, Some("overlay"), flags, Some(options.as_str()))
        .step(format!("mount an overlay at /{LOCAL}"))
}

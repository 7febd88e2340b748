//! Turns a plan into changes of the host's workspace by renames alone, with a journal that takes them all back.
//! It refuses to know where the plan came from.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use nix::{
    fcntl::{AT_FDCWD, OFlag, renameat},
    sys::{
        stat::{UtimensatFlags, fchmod, fstat, utimensat},
        time::TimeSpec,
    },
    unistd::{Gid, Uid, fchownat, geteuid},
};
use serde::{Deserialize, Serialize};

use super::{
    error::{At as _, TransferError},
    files,
    origin::Origin,
    plan::{Action, Node, Plan},
};

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// What stands on disk while a sync is under way.
#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    workspace: Vec<u8>,
    stage: Vec<u8>,
    steps: Vec<Done>,
    /// Everything is in place; only the stage is to be removed.
    committed: bool,
}

/// One step, as much of it as is needed to take it back.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    path: Vec<u8>,
    /// Something new comes there.
    put: bool,
    /// The mode that was there, when only that changes.
    mode: Option<u32>,
}

/// Does what the plan says, all of it or nothing.
pub(super) fn apply(
    plan: &Plan,
    source: &OwnedFd,
    origin: &Origin,
    staging: &Path,
    cancel: &AtomicBool,
) -> Result<(), TransferError> {
    if plan.actions.is_empty() {
        return Ok(());
    }
    let name = format!("{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
    let stage = origin.stage(staging, &name).at("find a place to stage", origin.path())?;
    let journal_at = staging.join(format!("sync-{name}.journal"));
    let mut journal = Journal {
        workspace: origin.path().as_os_str().as_bytes().to_vec(),
        stage: stage.as_os_str().as_bytes().to_vec(),
        steps: Vec::new(),
        committed: false,
    };
    write_journal(&journal_at, &journal)?;
    let sync = Sync { plan, source, origin, stage: &stage, cancel };
    let result = sync.stage().and_then(|steps| {
        journal.steps = steps;
        write_journal(&journal_at, &journal)?;
        sync.place()?;
        sync.check_cancel()?;
        journal.committed = true;
        write_journal(&journal_at, &journal)
    });
    let undone = if result.is_err() { undo(&journal, origin.dir()) } else { Ok(()) };
    undone.and_then(|()| clean(&journal_at, &stage))?;
    result
}

/// Takes back every sync that a killed process left in `staging`, and removes what it staged.
pub(crate) fn recover(staging: &Path) -> Result<(), TransferError> {
    for entry in fs::read_dir(staging).at("list", staging)? {
        let path = entry.at("list", staging)?.path();
        let name = path.file_name().unwrap_or_default().as_bytes();
        if name.ends_with(b".journal") {
            recover_one(&path)?;
        } else if name.ends_with(b".journal-new") {
            fs::remove_file(&path).at("remove", &path)?;
        }
    }
    Ok(())
}

fn recover_one(path: &Path) -> Result<(), TransferError> {
    let text = fs::read(path).at("read", path)?;
    let journal: Journal = serde_json::from_slice(&text)
        .map_err(|error| TransferError::Journal { path: path.to_owned(), reason: error.to_string() })?;
    let workspace = Path::new(OsStr::from_bytes(&journal.workspace));
    if !journal.committed && !journal.steps.is_empty() {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let dir =
            fs::OpenOptions::new().read(true).custom_flags(flags).open(workspace).at("open", workspace)?;
        undo(&journal, dir.as_fd())?;
    }
    clean(path, Path::new(OsStr::from_bytes(&journal.stage)))
}

/// The journal goes last: while it is there, the stage can be found.
fn clean(journal: &Path, stage: &Path) -> Result<(), TransferError> {
    remove_tree(stage).at("remove", stage)?;
    fs::remove_file(journal).at("remove", journal)
}

fn write_journal(path: &Path, journal: &Journal) -> Result<(), TransferError> {
    let text = serde_json::to_vec(journal).map_err(io::Error::other).at("write", path)?;
    let fresh = path.with_extension("journal-new");
    fs::write(&fresh, text).at("write", &fresh)?;
    fs::rename(&fresh, path).at("write", path)
}

/// Removes a tree of our own that may hold directories nobody may enter.
fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path)?;
            fs::remove_dir_all(path)
        }
        result => result,
    }
}

fn open_up(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

struct Sync<'a> {
    plan: &'a Plan,
    source: &'a OwnedFd,
    origin: &'a Origin,
    stage: &'a Path,
    cancel: &'a AtomicBool,
}

impl Sync<'_> {
    fn check_cancel(&self) -> Result<(), TransferError> {
        if self.cancel.load(Ordering::Relaxed) { Err(TransferError::Cancelled) } else { Ok(()) }
    }

    /// Makes everything new beside the workspace, and checks that the host's files are what the turn started from.
    fn stage(&self) -> Result<Vec<Done>, TransferError> {
        for dir in [self.stage.to_owned(), self.stage.join("new"), self.stage.join("old")] {
            fs::DirBuilder::new().mode(0o700).create(&dir).at("make", &dir)?;
        }
        let mut steps = Vec::new();
        for (index, (path, action)) in self.plan.actions.iter().enumerate() {
            self.check_cancel()?;
            let there = files::look_beneath(self.origin.dir(), path).at("look at the host's", path)?;
            let directory_merge = matches!(action, Action::Mode(_));
            if there.as_ref().is_some_and(|stat| !directory_merge && self.origin.changed_since(stat)) {
                return Err(TransferError::Conflict(path.clone()));
            }
            if let Action::Put(node) = action {
                self.make(&self.stage.join("new").join(index.to_string()), path, node)?;
            }
            let mode = directory_merge.then(|| there.as_ref().map(files::permissions)).flatten();
            let put = matches!(action, Action::Put(_));
            steps.push(Done { path: path.as_os_str().as_bytes().to_vec(), put, mode });
        }
        Ok(steps)
    }

    fn make(&self, at: &Path, path: &Path, node: &Node) -> Result<(), TransferError> {
        match node {
            // Its own bits come when everything is in it.
            Node::Directory { .. } => fs::create_dir(at).at("stage", path)?,
            Node::Link { target } => std::os::unix::fs::symlink(target, at).at("stage", path)?,
            Node::File { mode } => self.copy(at, path, *mode)?,
        }
        if geteuid().is_root() {
            let (uid, gid) = self.origin.owner();
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            fchownat(AT_FDCWD, at, uid, gid, nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW)
                .at("give its owner to", path)?;
        }
        Ok(())
    }

    fn copy(&self, at: &Path, path: &Path, mode: u32) -> Result<(), TransferError> {
        let from = files::open_file(self.source, path).at("open", path)?;
        let to =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(at).at("stage", path)?;
        copy_sparse(&from, &to, self.cancel).at("copy", path)?;
        self.check_cancel()?;
        let stat = fstat(&from).at("look at", path)?;
        fchmod(&to, nix::sys::stat::Mode::from_bits_truncate(mode)).at("set the mode of", path)?;
        let time = TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec);
        utimensat(AT_FDCWD, at, &time, &time, UtimensatFlags::NoFollowSymlink).at("set the time of", path)
    }

    /// Renames everything into place; directories get their bits last, deepest first.
    fn place(&self) -> Result<(), TransferError> {
        for (index, (path, action)) in self.plan.actions.iter().enumerate() {
            self.check_cancel()?;
            let (parent, name) = parent(self.origin.dir(), path).at("open the directory of", path)?;
            let index = index.to_string();
            match action {
                Action::Put(_) => {
                    set_aside(&parent, name, &self.stage.join("old").join(&index)).at("replace", path)?;
                    renameat(AT_FDCWD, &self.stage.join("new").join(&index), &parent, name)
                        .at("place", path)?;
                }
                Action::Remove => {
                    set_aside(&parent, name, &self.stage.join("old").join(&index)).at("remove", path)?;
                }
                Action::Mode(_) => {}
            }
        }
        for (path, action) in self.plan.actions.iter().rev() {
            let (Action::Mode(mode) | Action::Put(Node::Directory { mode })) = action else { continue };
            let (parent, name) = parent(self.origin.dir(), path).at("open the directory of", path)?;
            files::set_mode(&parent, name, *mode).at("set the mode of", path)?;
        }
        Ok(())
    }
}

/// The directory that a path is in, opened without following any link, and its name there.
fn parent<'a>(workspace: BorrowedFd<'_>, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
    let name = path.file_name().unwrap_or_default();
    let parent = path.parent().unwrap_or(Path::new(""));
    Ok((files::open(workspace, parent, OFlag::O_PATH | OFlag::O_DIRECTORY)?, name))
}

/// Moves what is at a name out of the way; nothing there is no error.
fn set_aside(parent: &OwnedFd, name: &OsStr, aside: &Path) -> io::Result<()> {
    match renameat(parent, name, AT_FDCWD, aside) {
        Err(nix::Error::ENOENT) => Ok(()),
        result => Ok(result?),
    }
}

/// Takes back every step that was done, last first. Safe to repeat.
fn undo(journal: &Journal, workspace: BorrowedFd<'_>) -> Result<(), TransferError> {
    let stage = Path::new(OsStr::from_bytes(&journal.stage));
    let trash = stage.join("undone");
    for (index, step) in journal.steps.iter().enumerate().rev() {
        let path = PathBuf::from(OsStr::from_bytes(&step.path));
        let Ok((parent, name)) = parent(workspace, &path) else { continue };
        if let Some(mode) = step.mode {
            files::set_mode(&parent, name, mode).at("restore the mode of", &path)?;
            continue;
        }
        let index = index.to_string();
        let (new, old) = (stage.join("new").join(&index), stage.join("old").join(&index));
        if step.put && !exists(&new) {
            fs::create_dir_all(&trash).at("make", &trash)?;
            set_aside(&parent, name, &trash.join(&index)).at("take back", &path)?;
        }
        if exists(&old) {
            renameat(AT_FDCWD, &old, &parent, name).at("restore", &path)?;
        }
    }
    Ok(())
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Copies data and leaves holes as holes.
pub(super) fn copy_sparse(from: &File, to: &File, cancel: &AtomicBool) -> io::Result<()> {
    use std::os::unix::fs::FileExt;

    use nix::unistd::{Whence, lseek};
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut buffer = vec![0; 1 << 18];
    let mut at = 0_u64;
    while at < size && !cancel.load(Ordering::Relaxed) {
        let offset = i64::try_from(at).map_err(io::Error::other)?;
        let start = match lseek(from, offset, Whence::SeekData) {
            Ok(start) => u64::try_from(start).map_err(io::Error::other)?,
            Err(nix::Error::ENXIO) => break,
            Err(_) => at,
        };
        let end = match lseek(from, i64::try_from(start).map_err(io::Error::other)?, Whence::SeekHole) {
            Ok(end) => u64::try_from(end).map_err(io::Error::other)?,
            Err(_) => size,
        };
        at = start;
        while at < end && !cancel.load(Ordering::Relaxed) {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let got = from.read_at(buffer.get_mut(..want).unwrap_or_default(), at)?;
            if got == 0 {
                return Ok(());
            }
            to.write_all_at(buffer.get(..got).unwrap_or_default(), at)?;
            at += u64::try_from(got).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: usize = 7;

    struct Space {
        dir: tempfile::TempDir,
    }

    impl Space {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for made in ["host/d/in", "host/m", "upper/d2", "staging"] {
                fs::create_dir_all(dir.path().join(made)).unwrap();
            }
            let write = |path: &str, text: &str| fs::write(dir.path().join(path), text).unwrap();
            write("host/edit", "before");
            write("host/gone", "before");
            write("host/d/in/f", "before");
            write("upper/edit", "after");
            write("upper/new", "after");
            write("upper/d2/f", "after");
            write("upper/d", "after");
            Self { dir }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.dir.path().join(path)
        }

        fn upper(&self) -> OwnedFd {
            File::open(self.path("upper")).unwrap().into()
        }

        fn origin(&self) -> Origin {
            Origin::open(&self.path("host"), &self.path("staging")).unwrap()
        }

        /// Everything on the host, as one text.
        fn seen(&self) -> String {
            let mut lines = Vec::new();
            list(&self.path("host"), &mut lines);
            lines.sort();
            lines.join("\n")
        }
    }

    fn list(dir: &Path, lines: &mut Vec<String>) {
        use std::os::unix::fs::MetadataExt;
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let text = if meta.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
            lines.push(format!("{} {:o} {text}", path.display(), meta.mode()));
            if meta.is_dir() {
                list(&path, lines);
            }
        }
    }

    fn file() -> Action {
        Action::Put(Node::File { mode: 0o640 })
    }

    /// The first steps of a plan that does one of everything.
    fn plan(steps: usize) -> Plan {
        let all = [
            ("edit", file()),
            ("new", file()),
            ("gone", Action::Remove),
            ("d", file()),
            ("d2", Action::Put(Node::Directory { mode: 0o750 })),
            ("d2/f", file()),
            ("m", Action::Mode(0o711)),
        ];
        let mut plan = Plan::default();
        all.into_iter().take(steps).for_each(|(path, action)| plan.add(Path::new(path), action));
        plan
    }

    fn never() -> AtomicBool {
        AtomicBool::new(false)
    }

    #[test]
    fn a_whole_plan_is_done_and_nothing_of_the_sync_stays() {
        let space = Space::new();
        apply(&plan(STEPS), &space.upper(), &space.origin(), &space.path("staging"), &never()).unwrap();
        let read = |path: &str| fs::read_to_string(space.path(path)).unwrap();
        assert_eq!(["host/edit", "host/new", "host/d", "host/d2/f"].map(read), ["after"; 4]);
        assert!(!space.path("host/gone").exists());
        assert_eq!(fs::read_dir(space.path("staging")).unwrap().count(), 0);
    }

    #[test]
    fn a_plan_that_fails_after_any_step_leaves_everything_as_it_was() {
        for steps in 0..=STEPS {
            let space = Space::new();
            let before = space.seen();
            let mut plan = plan(steps);
            plan.add(Path::new("missing/f"), Action::Remove);
            let result = apply(&plan, &space.upper(), &space.origin(), &space.path("staging"), &never());
            assert!(result.is_err(), "{steps}");
            assert_eq!(space.seen(), before, "{steps}");
            assert_eq!(fs::read_dir(space.path("staging")).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_process_that_dies_after_any_step_is_taken_back_at_the_next_start() {
        for steps in 0..=STEPS {
            let space = Space::new();
            let before = space.seen();
            let mut plan = plan(steps);
            plan.add(Path::new("missing/f"), Action::Remove);
            let (stage, at) = (space.path("staging/.crucible-sync-x"), space.path("staging/x.journal"));
            let (source, origin, cancel) = (space.upper(), space.origin(), never());
            let sync = Sync { plan: &plan, source: &source, origin: &origin, stage: &stage, cancel: &cancel };
            let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
            let steps_of = sync.stage().unwrap();
            let journal = Journal {
                workspace: bytes(origin.path()),
                stage: bytes(&stage),
                steps: steps_of,
                committed: false,
            };
            write_journal(&at, &journal).unwrap();
            sync.place().unwrap_err();
            recover(&space.path("staging")).unwrap();
            assert_eq!(space.seen(), before, "{steps}");
            assert_eq!(fs::read_dir(space.path("staging")).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_cancelled_sync_does_nothing() {
        let space = Space::new();
        let before = space.seen();
        let cancelled = AtomicBool::new(true);
        let result = apply(&plan(STEPS), &space.upper(), &space.origin(), &space.path("staging"), &cancelled);
        assert!(matches!(result, Err(TransferError::Cancelled)));
        assert_eq!(space.seen(), before);
    }

    #[test]
    fn holes_stay_holes() {
        use std::os::unix::fs::{FileExt, MetadataExt};
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            File::options()
                .create(true)
                .truncate(true)
                .read(true)
                .write(true)
                .open(dir.path().join(name))
                .unwrap()
        };
        let (from, to) = (make("from"), make("to"));
        from.set_len(64 << 20).unwrap();
        from.write_all_at(b"middle", 32 << 20).unwrap();
        copy_sparse(&from, &to, &never()).unwrap();
        let mut middle = [0; 6];
        to.read_exact_at(&mut middle, 32 << 20).unwrap();
        assert_eq!((&middle, to.metadata().unwrap().len()), (b"middle", 64 << 20));
        assert!(to.metadata().unwrap().blocks() < 4096);
    }
}

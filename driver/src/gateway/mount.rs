//! Turns the host's files into the view that a sandbox has: an allow list, read-only, and its own writable places.
//! It refuses to know processes; it runs once, in the sandbox's first process, before anything else is there.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, PermissionsExt, symlink},
        },
    },
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, open},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::stat::Mode,
    unistd::{chdir, pivot_root},
};

use super::{
    etc,
    init::{Failure, Step as _},
    namespace::INSIDE_ID,
    protocol::{Setup, Source, WorkspaceMode},
    stage::Stage,
    sys::{self, NODEV, NOEXEC, NOSUID, RDONLY},
    weaken::{Layer, Weaken},
};
use crate::network::PROGRAM;

/// Where the workspace and the home stand inside.
pub(crate) const SANDBOX: &str = "/sandbox";
/// The agent's home inside.
pub(crate) const HOME: &str = "/sandbox/home";

/// System directories of the host that are bound whole, or copied as links where the host has links.
const SYSTEM: [&str; 8] = ["usr", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// Device nodes that stand in `/dev`.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// What of `/proc` tells of the host or reaches into it.
const PROC_FILES: [&str; 21] = [
    "cmdline",
    "config.gz",
    "diskstats",
    "iomem",
    "ioports",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "modules",
    "pagetypeinfo",
    "partitions",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "vmallocinfo",
];
const PROC_DIRECTORIES: [&str; 9] =
    ["acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "scsi", "tty"];

/// The host's mounts that the view needs, held before the identity changes and the host disappears.
pub(crate) struct Sources {
    workspace: Option<OwnedFd>,
    repository: Option<OwnedFd>,
    read_only: Vec<(PathBuf, OwnedFd)>,
    program: Option<OwnedFd>,
}

impl Sources {
    /// Takes what was passed, and opens the rest by path.
    pub(crate) fn open(setup: &Setup, passed: Vec<OwnedFd>) -> Result<Self, Failure> {
        let mut passed = passed.into_iter();
        let mut take = |source: &Source, recursive| match source.passed {
            true => {
                passed.next().ok_or_else(|| Failure::new("take a mount from the gateway", "it was not sent"))
            }
            false => tree(&source.path, recursive),
        };
        let workspace = setup.workspace.as_ref();
        Ok(Self {
            workspace: workspace.map(|workspace| take(&workspace.source, false)).transpose()?,
            repository: workspace
                .and_then(|w| w.repository.as_ref())
                .map(|source| take(source, false))
                .transpose()?,
            read_only: setup
                .read_only
                .iter()
                .map(|source| Ok((source.path.clone(), take(source, true)?)))
                .collect::<Result<_, Failure>>()?,
            program: setup.program.as_ref().map(|source| take(source, false)).transpose()?,
        })
    }
}

/// What the view gave, for the layers that come after it.
pub(crate) struct View {
    pub(crate) mode: WorkspaceMode,
    /// The workspace's upper directory or copy.
    pub(crate) changes: Option<OwnedFd>,
    /// The file system of the home, `/tmp` and `/dev/shm`.
    pub(crate) scratch: OwnedFd,
    /// What is not as it should be, one line each.
    pub(crate) notes: Vec<String>,
    /// Directories that may be written, as the sandbox names them.
    pub(crate) writable: Vec<PathBuf>,
    /// What else may be read and executed, as the sandbox names it.
    pub(crate) readable: Vec<PathBuf>,
}

/// Puts an empty file system of the agent's on a directory of the host and goes there, while that can still be reached.
pub(crate) fn ground(at: &Path) -> Result<(), Failure> {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).step("make the mounts private (a host that restricts user namespaces must allow them: sysctl kernel.apparmor_restrict_unprivileged_userns=0)")?;
    tmpfs(at, &format!("mode=0755,size=16m,nr_inodes=4096,uid={INSIDE_ID},gid={INSIDE_ID}"))?;
    chdir(at).step("enter the new root")
}

/// Builds the view in the current directory and makes it this process's root.
pub(crate) fn build(setup: &Setup, sources: Sources, weaken: &Weaken) -> Result<View, Failure> {
    let root = Path::new(".");
    system(root, weaken)?;
    etc::write(&root.join("etc"), Path::new("/etc"))?;
    if let Some(name) = setup.ways.as_ref().and_then(|ways| ways.own_name.as_deref()) {
        etc::name_broker(root, name)?;
    }
    devices(root)?;
    process_files(root)?;
    let scratch = scratch(root, setup.limits.tmp)?;
    let mut notes = Vec::new();
    let (mode, changes) = match (&setup.workspace, sources.workspace) {
        (Some(workspace), Some(lower)) => {
            let stage = Stage::new(root, setup.limits.disk)?;
            let overlay = stage.workspace(root, workspace, &lower, sources.repository.as_ref(), weaken)?;
            match overlay {
                Ok(changes) => (WorkspaceMode::Overlay, Some(changes)),
                Err((stage, why)) => {
                    notes.push(format!(
                        "workspace: degraded, copied because no overlay can be mounted ({why})"
                    ));
                    let changes = stage.copy(root, workspace, sources.repository.as_ref())?;
                    (WorkspaceMode::Copy, Some(changes))
                }
            }
        }
        _ => (WorkspaceMode::None, None),
    };
    let mut readable = extra(root, sources.read_only, weaken)?;
    if let Some(tree) = &sources.program {
        let inside = root.join(PROGRAM.trim_start_matches('/'));
        fs::write(&inside, "").step("make room for this program")?;
        place(tree, &inside, RDONLY | NOSUID | NODEV)?;
        readable.push(PathBuf::from(PROGRAM));
    }
    if weaken.off(Layer::View) {
        host(root)?;
    }
    enter()?;
    Ok(View { mode, changes, scratch, notes, writable: writable(), readable })
}

fn writable() -> Vec<PathBuf> {
    ["/sandbox", "/tmp", "/dev/shm", "/dev/pts"].map(PathBuf::from).to_vec()
}

pub(crate) fn c_path(path: &Path) -> Result<CString, Failure> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Failure::new("use a path", "it has a zero byte"))
}

pub(crate) fn tree(path: &Path, recursive: bool) -> Result<OwnedFd, Failure> {
    sys::open_tree(None, &c_path(path)?, recursive).step(format!("take the mounts at {}", path.display()))
}

pub(crate) fn tmpfs(at: &Path, options: &str) -> Result<(), Failure> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options))
        .step(format!("mount a tmpfs at {}", at.display()))
}

pub(crate) fn directory(at: &Path, mode: u32) -> Result<(), Failure> {
    match fs::DirBuilder::new().mode(mode).create(at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result.step(format!("make the directory {}", at.display())),
    }
}

/// Binds a tree with attributes that nothing inside can take off again.
pub(crate) fn place(tree: &OwnedFd, at: &Path, attributes: u64) -> Result<(), Failure> {
    sys::set_attributes(tree.as_fd(), attributes, true).step(format!("protect {}", at.display()))?;
    sys::move_mount(tree.as_fd(), &c_path(at)?).step(format!("bind {}", at.display()))
}

fn system(root: &Path, weaken: &Weaken) -> Result<(), Failure> {
    let attributes = if weaken.off(Layer::ReadOnly) { NODEV } else { RDONLY | NOSUID | NODEV };
    for name in SYSTEM {
        let (host, inside) = (Path::new("/").join(name), root.join(name));
        let Ok(meta) = fs::symlink_metadata(&host) else { continue };
        if meta.is_symlink() {
            let target = fs::read_link(&host).step(format!("read the link {}", host.display()))?;
            symlink(&target, &inside).step(format!("link {}", inside.display()))?;
        } else if meta.is_dir() {
            directory(&inside, 0o755)?;
            place(&tree(&host, true)?, &inside, attributes)?;
        }
    }
    for name in ["etc", "proc", "dev", "tmp", "sandbox", "run", "var"] {
        directory(&root.join(name), 0o755)?;
    }
    symlink("/tmp", root.join("var/tmp")).step("link /var/tmp")?;
    symlink("/run", root.join("var/run")).step("link /var/run")
}

fn devices(root: &Path) -> Result<(), Failure> {
    let dev = root.join("dev");
    tmpfs(&dev, "mode=0755,size=64k,nr_inodes=64")?;
    for name in DEVICES {
        let inside = dev.join(name);
        fs::write(&inside, "").step(format!("make {}", inside.display()))?;
        place(&tree(&Path::new("/dev").join(name), false)?, &inside, NOSUID | NOEXEC)?;
    }
    for name in ["pts", "shm"] {
        directory(&dev.join(name), 0o755)?;
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    mount(Some("devpts"), &dev.join("pts"), Some("devpts"), flags, options).step("mount /dev/pts")?;
    let links = [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ];
    for (name, target) in links {
        symlink(target, dev.join(name)).step(format!("link /dev/{name}"))?;
    }
    Ok(())
}

fn process_files(root: &Path) -> Result<(), Failure> {
    let proc = root.join("proc");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    mount(Some("proc"), &proc, Some("proc"), flags, None::<&str>).step(
        "mount a fresh /proc (in a container it must have an unmasked /proc of its own: run it --privileged)",
    )?;
    for name in PROC_FILES {
        let inside = proc.join(name);
        if fs::symlink_metadata(&inside).is_ok() {
            place(&tree(Path::new("/dev/null"), false)?, &inside, RDONLY | NOSUID | NOEXEC)?;
        }
    }
    for name in PROC_DIRECTORIES {
        let inside = proc.join(name);
        if fs::symlink_metadata(&inside).is_ok_and(|meta| meta.is_dir()) {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
            mount(Some("tmpfs"), &inside, Some("tmpfs"), flags, Some("size=4k,nr_inodes=1,mode=0555"))
                .step(format!("hide /proc/{name}"))?;
        }
    }
    Ok(())
}

/// How a directory is held open.
pub(crate) const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// One capped tmpfs under everything that is writable beside the workspace.
fn scratch(root: &Path, size: u64) -> Result<OwnedFd, Failure> {
    let at = root.join("sandbox");
    tmpfs(&at, &format!("mode=0755,size={size},nr_inodes=1m"))?;
    for (name, mode, inside) in
        [("tmp", 0o1777, "tmp"), ("shm", 0o1777, "dev/shm"), ("view", 0o755, "sandbox")]
    {
        let part = at.join(name);
        directory(&part, 0o755)?;
        fs::set_permissions(&part, fs::Permissions::from_mode(mode)).step(format!("open /{inside}"))?;
    }
    directory(&at.join("view/home"), 0o700)?;
    let part = |name: &str| tree(&at.join(name), false);
    let held = open(&at, DIRECTORY, Mode::empty()).step("hold the scratch file system")?;
    let (tmp, shm, view) = (part("tmp")?, part("shm")?, part("view")?);
    // The three parts keep the file system; its root, where one could reach another's, goes.
    umount2(&at, MntFlags::MNT_DETACH).step("detach the scratch file system's root")?;
    place(&tmp, &root.join("tmp"), NOSUID | NODEV)?;
    place(&shm, &root.join("dev/shm"), NOSUID | NODEV)?;
    place(&view, &at, NOSUID | NODEV)?;
    Ok(held)
}

/// Joins the operator's paths to the view, at the same place.
fn extra(root: &Path, paths: Vec<(PathBuf, OwnedFd)>, weaken: &Weaken) -> Result<Vec<PathBuf>, Failure> {
    let attributes = if weaken.off(Layer::ReadOnly) { NODEV } else { RDONLY | NOSUID | NODEV };
    let mut readable = Vec::new();
    for (path, tree) in paths {
        let system = SYSTEM.iter().any(|name| path.starts_with(Path::new("/").join(name)));
        if system || readable.iter().any(|above| path.starts_with(above)) {
            continue;
        }
        let inside = root.join(path.strip_prefix("/").unwrap_or(&path));
        let is_dir =
            fs::metadata(format!("/proc/self/fd/{}", tree.as_raw_fd())).is_ok_and(|meta| meta.is_dir());
        let parent = if is_dir { Some(inside.as_path()) } else { inside.parent() };
        if let Some(parent) = parent {
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(parent);
            made.step(format!("make room for {}", path.display()))?;
        }
        if !is_dir {
            fs::write(&inside, "").step(format!("make room for {}", path.display()))?;
        }
        place(&tree, &inside, attributes)?;
        readable.push(path);
    }
    Ok(readable)
}

/// For the test that takes the view away: everything of the host, under `/host`.
fn host(root: &Path) -> Result<(), Failure> {
    let inside = root.join("host");
    directory(&inside, 0o755)?;
    sys::move_mount(tree(Path::new("/"), true)?.as_fd(), &c_path(&inside)?).step("bind the host")
}

/// Makes the view this process's root; the host's tree goes, and the new root becomes read-only.
fn enter() -> Result<(), Failure> {
    pivot_root(".", ".").step("make it the root")?;
    umount2(".", MntFlags::MNT_DETACH).step("let go of the host's files")?;
    chdir("/").step("enter the root")?;
    for path in [c"/", c"/dev"] {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let here = open(path, flags, Mode::empty()).step("open the root")?;
        sys::set_attributes(here.as_fd(), RDONLY, false).step("make the root read-only")?;
    }
    Ok(())
}

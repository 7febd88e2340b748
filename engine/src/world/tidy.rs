//! Turns a workspace that an agent had its hands on into one that git can walk.
//! It refuses to know what git makes of it, and follows no link.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstat, fstatat};

use super::{Reserved, WorldError};
use crate::sys::fs::{FsError, Kind, RelPath, Root};

/// How a directory is opened.
const DIRECTORY: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Directories below this many others are not walked.
const DEEPEST: usize = 512;

/// Nor are directories whose path is longer than this. A name has up to 255 bytes, and git passes by what has a path
/// of 4,096 bytes and more, without a failure.
const LONGEST: usize = 3_800;

/// A candidate's files are at most this long, in bytes: 4 GiB. The length is what a file says, however little of it is
/// on disk, for that is what git would read.
pub(super) const LARGEST: u64 = 4 << 30;

/// Files that git reads whole, wherever in the tree they are, to know what to do with other files.
const RULES: [&[u8]; 3] = [b".gitignore", b".gitattributes", b".gitmodules"];

/// They are at most this long, in bytes: 1 MiB.
const LARGEST_RULES: u64 = 1 << 20;

/// What tells git in its directory which files to ignore.
const IGNORE_FILE: &[u8] = b".gitignore";

/// What a walk found that git cannot hold. Paths are relative to the workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// FIFOs, sockets and devices.
    pub(super) special: Vec<PathBuf>,
    /// The `.git` of every repository inside the workspace, whatever it is; its own is not among them.
    pub(super) repositories: Vec<PathBuf>,
    /// Directories that nest too deep to be walked.
    pub(super) deep: Vec<PathBuf>,
    /// Files that git would read whole and that are too long for that.
    pub(super) oversized: Vec<PathBuf>,
    /// Other files that are longer than [`LARGEST`], from [`large`] alone.
    pub(super) large: Vec<PathBuf>,
    /// Ignore files.
    pub(super) rules: BTreeSet<PathBuf>,
    /// Symbolic links.
    pub(super) links: BTreeSet<PathBuf>,
}

impl Found {
    /// Leaves out what was there before any agent ran.
    pub(super) fn forget(&mut self, known: &[PathBuf]) {
        for list in [&mut self.special, &mut self.repositories, &mut self.deep, &mut self.oversized] {
            list.retain(|path| !known.contains(path));
        }
    }

    /// All that git cannot hold.
    pub(super) fn into_all(self) -> Vec<PathBuf> {
        [self.special, self.repositories, self.deep, self.oversized].concat()
    }
}

/// Walks the workspace once. Directories that their mode closes are opened on the way, since an ordinary user could
/// neither read nor remove what is in them. The workspace's own `.git` and what is reserved are not walked.
pub(super) fn sweep(workspace: &Path, reserved: &Reserved) -> Result<Found, WorldError> {
    walk(workspace, reserved, false)
}

/// The files that are longer than [`LARGEST`]. To look at each file costs as much again as the rest of a walk, so it is
/// done apart, where there is a suspicion.
pub(super) fn large(workspace: &Path, reserved: &Reserved) -> Result<Vec<PathBuf>, WorldError> {
    walk(workspace, reserved, true).map(|found| found.large)
}

fn walk(workspace: &Path, reserved: &Reserved, sizes: bool) -> Result<Found, WorldError> {
    let mut found = Found::default();
    let failed = |path: &Path, errno: Errno| WorldError::io("walk", path)(errno.into());
    let top =
        nix::fcntl::open(workspace, DIRECTORY, Mode::empty()).map_err(|errno| failed(workspace, errno))?;
    let mut levels = vec![Level::open(top, PathBuf::new(), sizes).map_err(|errno| failed(workspace, errno))?];
    loop {
        let depth = levels.len();
        let Some(level) = levels.last_mut() else { break };
        let Some((name, kind)) = level.entries.pop() else {
            levels.pop();
            continue;
        };
        let path = level.path.join(OsStr::from_bytes(&name));
        let at_top = level.path.as_os_str().is_empty();
        match kind {
            _ if name == b".git" => {
                if !at_top {
                    found.repositories.push(path);
                }
            }
            Kind::Fifo | Kind::Socket | Kind::Device => found.special.push(path),
            Kind::Dir | Kind::File if reserved.covers(&path) => {}
            Kind::Dir if depth >= DEEPEST || path.as_os_str().len() > LONGEST => found.deep.push(path),
            Kind::Dir => match level.enter(&name, &path, sizes) {
                Ok(below) => levels.push(below),
                Err(errno) => return Err(failed(&workspace.join(path), errno)),
            },
            Kind::File if level.oversized.remove(&name) => found.oversized.push(path),
            Kind::File if name == IGNORE_FILE => {
                found.rules.insert(path);
            }
            Kind::File => found.large.push(path),
            Kind::Link => {
                found.links.insert(path);
            }
        }
    }
    Ok(found)
}

/// A directory on the way down, and what of it is still to be looked at.
struct Level {
    fd: OwnedFd,
    path: PathBuf,
    entries: Vec<(Vec<u8>, Kind)>,
    /// Names of files that git would read whole and that are too long for that.
    oversized: BTreeSet<Vec<u8>>,
}

impl Level {
    fn open(fd: OwnedFd, path: PathBuf, sizes: bool) -> nix::Result<Level> {
        make_accessible(&fd)?;
        let (mut entries, mut oversized) = (Vec::new(), BTreeSet::new());
        let mut listing = Dir::openat(&fd, ".", DIRECTORY, Mode::empty())?;
        for entry in listing.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let kind = kind(&fd, name, entry.file_type())?;
            // Only what can matter is remembered: most entries are plain files.
            let matters = match kind {
                _ if name == b".git" => true,
                Kind::File if RULES.contains(&name) => {
                    let is_oversized = is_longer(&fd, name, LARGEST_RULES)?;
                    if is_oversized {
                        oversized.insert(name.to_owned());
                    }
                    is_oversized || name == IGNORE_FILE
                }
                Kind::File => sizes && is_longer(&fd, name, LARGEST)?,
                Kind::Link | Kind::Dir | Kind::Fifo | Kind::Socket | Kind::Device => true,
            };
            if matters {
                entries.push((name.to_owned(), kind));
            }
        }
        Ok(Level { fd, path, entries, oversized })
    }

    fn enter(&self, name: &[u8], path: &Path, sizes: bool) -> nix::Result<Level> {
        let name = OsStr::from_bytes(name);
        let open = || openat(&self.fd, name, DIRECTORY, Mode::empty());
        let fd = match open() {
            Err(Errno::EACCES) => {
                fchmodat(&self.fd, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink)?;
                open()?
            }
            opened => opened?,
        };
        Level::open(fd, path.to_owned(), sizes)
    }
}

/// Gives the owner all rights on an open directory that lacks one.
fn make_accessible(fd: &OwnedFd) -> nix::Result<()> {
    let mode = Mode::from_bits_truncate(fstat(fd)?.st_mode);
    if mode.contains(Mode::S_IRWXU) {
        return Ok(());
    }
    // A directory of another user stays as it is; git will say what it cannot do there.
    let _ = nix::sys::stat::fchmod(fd.as_fd(), mode | Mode::S_IRWXU);
    Ok(())
}

fn is_longer(fd: &OwnedFd, name: &[u8], max: u64) -> nix::Result<bool> {
    let stat = fstatat(fd, OsStr::from_bytes(name), AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(u64::try_from(stat.st_size).is_ok_and(|size| size > max))
}

fn kind(fd: &OwnedFd, name: &[u8], told: Option<Type>) -> nix::Result<Kind> {
    Ok(match told {
        Some(Type::File) => Kind::File,
        Some(Type::Directory) => Kind::Dir,
        Some(Type::Symlink) => Kind::Link,
        Some(Type::Fifo) => Kind::Fifo,
        Some(Type::Socket) => Kind::Socket,
        Some(Type::CharacterDevice | Type::BlockDevice) => Kind::Device,
        None => {
            let stat = fstatat(fd, OsStr::from_bytes(name), AtFlags::AT_SYMLINK_NOFOLLOW)?;
            match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
                SFlag::S_IFREG => Kind::File,
                SFlag::S_IFDIR => Kind::Dir,
                SFlag::S_IFLNK => Kind::Link,
                SFlag::S_IFIFO => Kind::Fifo,
                SFlag::S_IFSOCK => Kind::Socket,
                _ => Kind::Device,
            }
        }
    })
}

/// Removes what stands at `paths`, relative to the workspace, with all that is below.
pub(super) fn remove(workspace: &Path, paths: &[PathBuf]) -> Result<(), WorldError> {
    if paths.is_empty() {
        return Ok(());
    }
    let root = Root::open(workspace).map_err(failed)?;
    for path in paths {
        root.remove_any(&rel(path)?).map_err(failed)?;
    }
    Ok(())
}

/// Removes those of `links` that stand where one of `files` has a directory: to git such a file could seem to be there.
pub(super) fn remove_links_above(
    workspace: &Path,
    links: &mut BTreeSet<PathBuf>,
    files: &[PathBuf],
) -> Result<(), WorldError> {
    for file in files {
        if let Some(link) = file.ancestors().skip(1).find_map(|dir| links.take(dir)) {
            remove(workspace, &[link])?;
        }
    }
    Ok(())
}

/// Those of the ignore files `rules` that take something out of what others ignore, or cannot be read.
pub(super) fn negating(workspace: &Path, rules: &[PathBuf]) -> Result<BTreeSet<PathBuf>, WorldError> {
    let root = Root::open(workspace).map_err(failed)?;
    let mut negating = BTreeSet::new();
    for path in rules {
        let text = match root.read(&rel(path)?, LARGEST_RULES) {
            Ok(None) => continue,
            Ok(Some(text)) => Some(text),
            Err(_) => None,
        };
        if text.is_none_or(|text| text.split(|&byte| byte == b'\n').any(|line| line.starts_with(b"!"))) {
            negating.insert(path.clone());
        }
    }
    Ok(negating)
}

/// Those of `paths` at which something stands, with no link on the way.
pub(super) fn standing(workspace: &Path, mut paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, WorldError> {
    if paths.is_empty() {
        return Ok(paths);
    }
    let root = Root::open(workspace).map_err(failed)?;
    paths.retain(|path| rel(path).is_ok_and(|path| matches!(root.kind(&path), Ok(Some(_)))));
    Ok(paths)
}

/// Makes the directories of submodules that were never filled empty again.
pub(super) fn put_back_submodules(workspace: &Path, hollow: &[PathBuf]) -> Result<(), WorldError> {
    if hollow.is_empty() {
        return Ok(());
    }
    let root = Root::open(workspace).map_err(failed)?;
    for path in hollow {
        if !is_empty_dir(&root, path)? {
            root.remove_any(&rel(path)?).map_err(failed)?;
            let full = workspace.join(path);
            // git made or left every directory above it, and nothing else runs in the workspace now.
            std::fs::create_dir_all(&full).map_err(WorldError::io("make", &full))?;
        }
    }
    Ok(())
}

/// The first of `submodules` that has something in it, or is something else than a directory.
pub(super) fn filled(workspace: &Path, submodules: &[PathBuf]) -> Result<Option<PathBuf>, WorldError> {
    let root = Root::open(workspace).map_err(failed)?;
    for path in submodules {
        let absent = workspace.join(path).symlink_metadata().is_err();
        if !absent && !is_empty_dir(&root, path)? {
            return Ok(Some(path.clone()));
        }
    }
    Ok(None)
}

/// Makes directories again that held nothing, but for those whose place is taken.
pub(super) fn put_back_empty(workspace: &Path, empty: &[PathBuf]) -> Result<(), WorldError> {
    let root = Root::open(workspace).map_err(failed)?;
    for path in empty {
        let kind = |path: &Path| root.kind(&rel(path)?).map_err(failed);
        let mut above = path.ancestors().filter(|path| !path.as_os_str().is_empty());
        // What is in the way was there in the best too, or is ignored.
        if above.all(|path| matches!(kind(path), Ok(None | Some(Kind::Dir)))) {
            let full = workspace.join(path);
            std::fs::create_dir_all(&full).map_err(WorldError::io("make", &full))?;
        }
    }
    Ok(())
}

fn is_empty_dir(root: &Root, path: &Path) -> Result<bool, WorldError> {
    let is_dir = root.kind(&rel(path)?);
    if !matches!(is_dir, Ok(Some(Kind::Dir))) {
        return Ok(false);
    }
    let full = root.path().join(path);
    let mut entries = std::fs::read_dir(&full).map_err(WorldError::io("list", &full))?;
    Ok(entries.next().is_none())
}

/// Device and inode of a directory that is no link.
pub(super) fn id(path: &Path) -> Result<(u64, u64), WorldError> {
    let metadata = path.symlink_metadata().map_err(WorldError::io("look at", path))?;
    if metadata.is_dir() {
        return Ok((metadata.dev(), metadata.ino()));
    }
    Err(WorldError::io("look at", path)(std::io::ErrorKind::NotADirectory.into()))
}

/// A path for a person, of at most 200 bytes.
pub(super) fn shown(path: &Path) -> String {
    const LIMIT: usize = 200;
    let whole = path.display().to_string();
    if whole.len() <= LIMIT {
        return whole;
    }
    let end = whole.floor_char_boundary(LIMIT - "…".len());
    format!("{}…", whole.get(..end).unwrap_or_default())
}

/// `path` as one that leads downwards.
pub(super) fn rel(path: &Path) -> Result<RelPath, WorldError> {
    RelPath::parse(path).map_err(WorldError::process("read a path of the workspace"))
}

/// An error of the file layer, as one of the world.
pub(super) fn failed(error: FsError) -> WorldError {
    WorldError::Files(Box::new(error))
}

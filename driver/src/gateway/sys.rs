//! Turns the kernel calls that no library wraps into functions that take and return owned things.
//! It refuses to know what they are for.

use std::{
    ffi::{CStr, c_int, c_void},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// Recursion over submounts, for `open_tree` and `mount_setattr`.
pub(crate) const AT_RECURSIVE: u32 = 0x8000;
const OPEN_TREE_CLONE: u32 = 1;
const OPEN_TREE_CLOEXEC: u32 = 0o2_000_000;
const AT_EMPTY_PATH: u32 = 0x1000;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;

/// Attributes that `mount_setattr` sets.
pub(crate) const RDONLY: u64 = 0x1;
pub(crate) const NOSUID: u64 = 0x2;
pub(crate) const NODEV: u64 = 0x4;
pub(crate) const NOEXEC: u64 = 0x8;
const IDMAP: u64 = 0x0010_0000;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let raw = RawFd::try_from(check(result)?).map_err(io::Error::other)?;
    // SAFETY: the kernel just made this descriptor for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// A detached copy of the mounts at `path`, below `dir`; with `recursive` those beneath it too.
pub(crate) fn open_tree(dir: Option<BorrowedFd<'_>>, path: &CStr, recursive: bool) -> io::Result<OwnedFd> {
    let at = dir.map_or(libc::AT_FDCWD, |dir| dir.as_raw_fd());
    let empty = if path.is_empty() { AT_EMPTY_PATH } else { 0 };
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | empty | if recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a live C string, and the call has no other memory of ours.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, at, path.as_ptr(), flags) })
}

/// Puts a detached tree at `path`.
pub(crate) fn move_mount(tree: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    // SAFETY: both paths are live C strings.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    check(result).map(drop)
}

/// Adds attributes to the tree behind a descriptor.
pub(crate) fn set_attributes(tree: BorrowedFd<'_>, attributes: u64, recursive: bool) -> io::Result<()> {
    mount_setattr(tree, attributes, 0, recursive)
}

/// Maps the owners in a detached tree through a user namespace.
pub(crate) fn map_ids(tree: BorrowedFd<'_>, userns: BorrowedFd<'_>, recursive: bool) -> io::Result<()> {
    let userns = u64::try_from(userns.as_raw_fd()).map_err(io::Error::other)?;
    mount_setattr(tree, IDMAP, userns, recursive)
}

fn mount_setattr(tree: BorrowedFd<'_>, set: u64, userns: u64, recursive: bool) -> io::Result<()> {
    let attr = MountAttr { set, clear: 0, propagation: 0, userns };
    let flags = AT_EMPTY_PATH | if recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: the structure outlives the call and its size is passed with it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    check(result).map(drop)
}

/// Sends a signal to the process behind a pidfd; one that is gone is no error.
pub(crate) fn signal(pidfd: BorrowedFd<'_>, signal: c_int) -> io::Result<()> {
    // SAFETY: no memory is passed.
    let result = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, std::ptr::null::<c_void>(), 0)
    };
    match check(result) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other.map(drop),
    }
}

/// Reaps the process behind a pidfd, waiting for its end.
pub(crate) fn reap(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    let id = libc::id_t::try_from(pidfd.as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: all-zero bytes are a valid siginfo_t, which the kernel overwrites.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    let result = unsafe { libc::waitid(libc::P_PIDFD, id, &raw mut info, libc::WEXITED | libc::__WALL) };
    check(result.into()).map(drop)
}

const NONE: libc::c_ulong = 0;
const NO_FLAGS: libc::c_uint = 0;
const AMBIENT_RAISE: libc::c_ulong = 2;
const AMBIENT_CLEAR_ALL: libc::c_ulong = 4;

/// `prctl` with numbers only.
pub(crate) fn prctl(option: c_int, a: libc::c_ulong, b: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take no pointers.
    let result = unsafe { libc::prctl(option, a, b, NONE, NONE) };
    check(result.into()).map(drop)
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAP_VERSION_3: u32 = 0x2008_0522;

fn capset(data: [CapData; 2]) -> libc::c_long {
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    // SAFETY: header and data are what version 3 of the call takes.
    unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) }
}

/// Makes every capability that this task has survive an exec. Only calls that are safe after a clone.
pub(crate) fn keep_capabilities_on_exec() -> c_int {
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: as in `capset`; the kernel fills the data.
    if unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) } != 0 {
        return -1;
    }
    for half in &mut data {
        half.inheritable = half.permitted;
    }
    if capset(data) != 0 {
        return -1;
    }
    for capability in 0..64 {
        if prctl(libc::PR_CAP_AMBIENT, AMBIENT_RAISE, capability).is_err() {
            break;
        }
    }
    0
}

/// Gives up every capability for good: bounding, ambient, and the task's own sets.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    for capability in 0..64 {
        if prctl(libc::PR_CAPBSET_DROP, capability, 0).is_err() {
            break;
        }
    }
    prctl(libc::PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL, 0)?;
    check(capset([CapData::default(); 2])).map(drop)
}

/// Installs a seccomp filter on this thread and all its children.
pub(crate) fn seccomp(program: &[libc::sock_filter]) -> io::Result<()> {
    let len = libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program outlives the call; the kernel only reads it.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, NO_FLAGS, &raw const program)
    };
    check(result).map(drop)
}

/// Makes the terminal behind a descriptor this session's own.
pub(crate) fn take_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes a number.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) }.into()).map(drop)
}

/// The other end of a pseudo-terminal, whatever is mounted where.
pub(crate) fn terminal_peer(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes open flags and makes a descriptor.
    owned(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) }.into())
}

/// Tells a pseudo-terminal its size.
pub(crate) fn resize_terminal(master: impl AsFd, cols: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the structure outlives the call.
    check(unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }.into())
        .map(drop)
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).unwrap_or(1);
    // SAFETY: the structure outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) }.into()).map(drop)
}

/// The one byte of an extended attribute; `None` where there is none of that length.
pub(crate) fn attribute_byte(file: &OwnedFd, name: &CStr) -> Option<u8> {
    let mut value = [0_u8; 1];
    // SAFETY: the name is a C string, and the length passed is that of the buffer.
    let got =
        unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    (got == 1).then_some(value[0])
}

//! Turns this binary into the first process of new namespaces: user, mount, pid, net, ipc, uts and cgroup.
//! It refuses to know what that process does there.

use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_int, c_void},
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    sync::Mutex,
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl, open},
    sys::signal::{SigSet, SigmaskHow},
    sys::stat::Mode,
    unistd::{getegid, geteuid},
};
use tokio::io::unix::AsyncFd;

use super::{
    error::GatewayError,
    sys,
    weaken::{Layer, Weaken},
};

/// The name under which the binary is started again as a sandbox's first process.
pub(crate) const INIT_NAME: &CStr = c"crucible-sandbox-init";
/// The descriptor of its socket to the gateway.
pub(crate) const INIT_SOCKET: RawFd = 3;
/// The user and group that the agent sees itself as.
pub(crate) const INSIDE_ID: u32 = 1000;
/// The host's number for the agent when the gateway is root: no user of the host, so that none of root's files is its.
const HOST_ID: u32 = 1_996_488_704;

/// Cgroups that a sandbox joins by itself, at most.
pub(crate) const MOST_CGROUPS: usize = 4;

const STACK: usize = 64 * 1024;

/// A sandbox's first process, waiting for its instructions on `socket`. Dropping it kills and reaps it.
#[derive(Debug)]
pub(crate) struct Namespaces {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    /// Its mounts, held so that its end need not wait until they are taken down, which takes some milliseconds.
    _mounts: Option<fs::File>,
    alive: bool,
}

impl Namespaces {
    /// Ends every process inside and waits for that: the kernel does it with the first process's end.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.alive) {
            sys::signal(self.pidfd.as_fd(), libc::SIGKILL)?;
            sys::reap(self.pidfd.as_fd())?;
        }
        Ok(())
    }

    /// The same without holding up the runtime.
    pub(crate) async fn end_soon(&mut self) -> io::Result<()> {
        sys::signal(self.pidfd.as_fd(), libc::SIGKILL)?;
        // SAFETY: the copy is owned by what watches it.
        let watched = unsafe { AsyncFd::register(self.pidfd.try_clone()?) }?;
        watched.readable().await?.retain_ready();
        self.end()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // A process that cannot be signalled is gone already.
        drop(self.end());
    }
}

/// Which user of the host the agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A number of its own; only root can map one.
    Apart,
    /// The gateway's own user.
    Own,
}

impl Identity {
    fn ids(self) -> (u32, u32) {
        match self {
            Self::Apart => (HOST_ID, HOST_ID),
            Self::Own => (geteuid().as_raw(), getegid().as_raw()),
        }
    }
}

/// What the child needs between clone and exec. Everything is made before: it may not allocate.
struct Child {
    null: RawFd,
    socket: RawFd,
    argv: [*const c_char; 2],
    envp: [*const c_char; 1],
    errno: c_int,
    network: c_int,
    /// Version 1 cgroups to join, open for writing; the rest is -1.
    cgroups: [RawFd; MOST_CGROUPS],
}

/// Starts the first process of a sandbox; its end of the socket pair is descriptor 3 there.
pub(crate) fn spawn(
    identity: Identity,
    cgroups: &[OwnedFd],
    weaken: &Weaken,
) -> Result<(Namespaces, UnixStream), GatewayError> {
    let (ours, theirs) = UnixStream::pair().map_err(GatewayError::io("make a socket pair"))?;
    let theirs = above_stdio(theirs.as_fd())?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty());
    let null = above_stdio(null.map_err(|e| GatewayError::io("open /dev/null")(e.into()))?.as_fd())?;
    let mut child = Child {
        null: null.as_raw_fd(),
        socket: theirs.as_raw_fd(),
        argv: [INIT_NAME.as_ptr(), std::ptr::null()],
        envp: [std::ptr::null()],
        errno: 0,
        cgroups: [-1; MOST_CGROUPS],
        network: if weaken.off(Layer::Network) { 0 } else { libc::CLONE_NEWNET },
    };
    for (to, from) in child.cgroups.iter_mut().zip(cgroups) {
        *to = from.as_raw_fd();
    }
    let (pid, pidfd) = clone_blocked(&mut child)?;
    let mounts = fs::File::open(format!("/proc/{pid}/ns/mnt")).ok();
    let mut namespaces = Namespaces { pid, pidfd, _mounts: mounts, alive: true };
    if child.errno != 0 {
        let error = io::Error::from_raw_os_error(child.errno);
        namespaces.end().map_err(GatewayError::io("reap a process that did not start"))?;
        return Err(GatewayError::io("start this binary again as a sandbox's first process")(error));
    }
    let (uid, gid) = identity.ids();
    map_users(pid, INSIDE_ID, (uid, gid))
        .map_err(GatewayError::io("map the user of a new user namespace"))?;
    Ok((namespaces, ours))
}

/// A copy of a descriptor that the child's standard ones cannot overwrite.
fn above_stdio(fd: BorrowedFd<'_>) -> Result<OwnedFd, GatewayError> {
    let raw = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(16));
    let raw = raw.map_err(|e| GatewayError::io("copy a descriptor")(e.into()))?;
    // SAFETY: fcntl just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Clones with every signal blocked, so that no handler of ours runs in the child, which shares our memory.
fn clone_blocked(child: &mut Child) -> Result<(i32, OwnedFd), GatewayError> {
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let mask = mask.map_err(|e| GatewayError::io("block signals")(e.into()))?;
    let result = clone_into_new(child);
    mask.thread_set_mask().map_err(|e| GatewayError::io("restore signals")(e.into()))?;
    result.map_err(GatewayError::namespaces)
}

fn clone_into_new(child: &mut Child) -> io::Result<(i32, OwnedFd)> {
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | child.network
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_VM
        | libc::CLONE_VFORK
        | libc::CLONE_PIDFD;
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let mut pidfd: RawFd = -1;
    // SAFETY: the stack is ours until exec, because CLONE_VFORK holds this thread until then; its end is aligned.
    // The child touches only `child`, which outlives the call, and makes only async-signal-safe calls.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(child_main, top.cast(), flags, std::ptr::from_mut(child).cast(), &raw mut pidfd)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made the pidfd for this call.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

extern "C" fn child_main(arg: *mut c_void) -> c_int {
    let child: *mut Child = arg.cast();
    // SAFETY: `arg` is the Child of the suspended parent; only async-signal-safe calls follow.
    unsafe {
        // A process that moves itself alone need not stop all others, which costs ten milliseconds.
        for cgroup in (*child).cgroups {
            if cgroup >= 0 && libc::write(cgroup, c"0".as_ptr().cast(), 1) != 1 {
                (*child).errno = *libc::__errno_location();
                libc::_exit(127);
            }
        }
        sys::keep_capabilities_on_exec();
        libc::setsid();
        for standard in 0..3 {
            libc::dup2((*child).null, standard);
        }
        libc::dup2((*child).socket, INIT_SOCKET);
        libc::close_range(4, libc::c_uint::MAX, 0);
        libc::execve(c"/proc/self/exe".as_ptr(), (*child).argv.as_ptr(), (*child).envp.as_ptr());
        (*child).errno = *libc::__errno_location();
        libc::_exit(127)
    }
}

fn map_users(pid: i32, inside: u32, (uid, gid): (u32, u32)) -> io::Result<()> {
    if !geteuid().is_root() {
        fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    }
    fs::write(format!("/proc/{pid}/gid_map"), format!("{inside} {gid} 1"))?;
    fs::write(format!("/proc/{pid}/uid_map"), format!("{inside} {uid} 1"))
}

/// User namespaces through which mounts show one owner as the agent, one per owner.
#[derive(Debug, Default)]
pub(crate) struct OwnerMaps(Mutex<HashMap<(u32, u32), OwnedFd>>);

impl OwnerMaps {
    /// A detached copy of the mounts at `path` in which what belongs to `owner` belongs to the agent.
    ///
    /// # Errors
    /// When the gateway is not root, or a file system there takes no mapping.
    pub(crate) fn tree(&self, path: &CStr, owner: (u32, u32), recursive: bool) -> io::Result<OwnedFd> {
        let tree = sys::open_tree(None, path, recursive)?;
        let mut maps = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let map = match maps.entry(owner) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(owner_map(owner)?),
        };
        sys::map_ids(tree.as_fd(), map.as_fd(), recursive)?;
        Ok(tree)
    }
}

/// Makes a user namespace that maps `owner` to the agent, and lets its only process go.
fn owner_map(owner: (u32, u32)) -> io::Result<OwnedFd> {
    extern "C" fn wait(_: *mut c_void) -> c_int {
        loop {
            // SAFETY: no memory is passed; the parent kills this process.
            unsafe { libc::pause() };
        }
    }
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_NEWUSER | libc::CLONE_PIDFD;
    // SAFETY: without CLONE_VM the child has its own copy of the stack; `wait` only pauses.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(wait, top.cast(), flags, std::ptr::null_mut(), &raw mut pidfd)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made the pidfd for this call.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let mut child = Namespaces { pid, pidfd, _mounts: None, alive: true };
    fs::write(format!("/proc/{pid}/gid_map"), format!("{} {HOST_ID} 1", owner.1))?;
    fs::write(format!("/proc/{pid}/uid_map"), format!("{} {HOST_ID} 1", owner.0))?;
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user"))?;
    child.end()?;
    Ok(namespace.into())
}

//! Turns an accepted connection into the program inside the sandbox that made it (N12, rows 85 to 87).
//! It refuses to decide, and to guess: what cannot be told is `Unknown`.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use policy::egress::{Binaries, Caller, Egress, Process};
use rustix::fs::{Dir, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat};
use rustix::io::read;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// The most ancestors that are followed.
const ANCESTORS_MAX: usize = 64;
const DELETED: &str = " (deleted)";

/// What is needed to look into one sandbox; without it every program is unknown.
#[derive(Debug, Default)]
pub struct Peer {
    inside: Option<Inside>,
    aliases: HashMap<String, String>,
}

/// Descriptors into a sandbox.
#[derive(Debug)]
pub struct Inside {
    /// A `NETLINK_SOCK_DIAG` socket of its network namespace.
    pub diag: OwnedFd,
    /// Its `/proc`.
    pub proc: OwnedFd,
    /// Its root.
    pub root: OwnedFd,
}

impl Peer {
    /// Takes the descriptors, and resolves the links of every listed program in the sandbox's own view once (row 85).
    pub fn new(inside: Option<Inside>, egress: &Egress) -> Self {
        let mut listed = HashSet::new();
        for entry in egress.entries() {
            if let Binaries::Of(set) = &entry.binaries {
                listed.extend(set.iter().map(|path| path.as_str().to_owned()));
            }
        }
        let aliases = inside.as_ref().map(|inside| aliases(&inside.root, listed)).unwrap_or_default();
        Self { inside, aliases }
    }

    /// The program behind the connection from `client` to `local`, both as the sandbox sees them.
    pub fn caller(&self, client: SocketAddr, local: SocketAddr) -> Caller {
        let Some(inside) = &self.inside else { return Caller::Unknown };
        let Some(inode) = inode(inside.diag.as_fd(), client, local) else { return Caller::Unknown };
        let Some(holders) = holders(inside.proc.as_fd(), inode) else { return Caller::Unknown };
        let mut chains = holders.iter().filter_map(|pid| self.chain(inside.proc.as_fd(), pid));
        let Some(first) = chains.next() else { return Caller::Unknown };
        if chains.any(|other| other.first() != first.first()) {
            return Caller::Ambiguous;
        }
        match first.first().and_then(|process| process.path.strip_suffix(DELETED)) {
            Some(path) => Caller::Deleted(path.to_owned()),
            None => Caller::Known(first),
        }
    }

    /// A process and its ancestors, without the sandbox's first one. An ancestor that cannot be looked at admits nothing,
    /// and neither do those above it.
    fn chain(&self, proc: BorrowedFd<'_>, pid: &str) -> Option<Vec<Process>> {
        let mut chain = Vec::new();
        let mut pid = pid.to_owned();
        while pid != "1" && pid != "0" && chain.len() < ANCESTORS_MAX {
            let link = readlinkat(proc, format!("{pid}/exe"), Vec::new()).ok();
            let Some(path) = link.and_then(|path| path.into_string().ok()) else { break };
            let also = self.aliases.get(&path).cloned();
            chain.push(Process { path, also });
            let Some(above) = parent(proc, &pid) else { break };
            pid = above;
        }
        (!chain.is_empty()).then_some(chain)
    }
}

/// Where the links of the listed paths lead, back to the listed path.
fn aliases(root: &OwnedFd, listed: HashSet<String>) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for path in listed {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(file) = openat2(root, path.as_str(), flags, Mode::empty(), ResolveFlags::IN_ROOT) else {
            continue;
        };
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let real = rustix::fs::readlink(link, Vec::new()).ok().and_then(|path| path.into_string().ok());
        if let Some(real) = real.filter(|real| *real != path) {
            found.insert(real, path);
        }
    }
    found
}

/// The parent of a process: the second field after the name, which may hold anything.
fn parent(proc: BorrowedFd<'_>, pid: &str) -> Option<String> {
    let file = openat(proc, format!("{pid}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buf = [0_u8; 1024];
    let count = read(&file, &mut buf).ok()?;
    let text = String::from_utf8_lossy(buf.get(..count)?);
    let (_, after) = text.rsplit_once(") ")?;
    after.split(' ').nth(1).map(str::to_owned)
}

/// The processes that hold a socket; `None` when nothing can be listed.
fn holders(proc: BorrowedFd<'_>, inode: u32) -> Option<Vec<String>> {
    let wanted = format!("socket:[{inode}]");
    let mut found = Vec::new();
    for pid in numbers(proc, ".")? {
        let path = format!("{pid}/fd");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(fds) = openat(proc, path.as_str(), flags, Mode::empty()) else { continue };
        let holds = numbers(fds.as_fd(), ".").unwrap_or_default().iter().any(|fd| {
            readlinkat(&fds, fd.as_str(), Vec::new()).is_ok_and(|link| link.as_bytes() == wanted.as_bytes())
        });
        if holds {
            found.push(pid);
        }
    }
    Some(found)
}

/// The entries of a directory that are numbers.
fn numbers(dir: BorrowedFd<'_>, path: &str) -> Option<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = Dir::new(openat(dir, path, flags, Mode::empty()).ok()?).ok()?;
    let names =
        dir.filter_map(Result::ok).filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    Some(names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect())
}

/// The inode of the client's end of a connection, asked of the kernel by its exact addresses.
fn inode(diag: BorrowedFd<'_>, client: SocketAddr, local: SocketAddr) -> Option<u32> {
    // Between asking and reading nothing else may use the socket; the broker's one thread sees to that.
    send(diag, &request(client, local), SendFlags::empty()).ok()?;
    let mut buf = [0_u8; 1024];
    let (count, _) = recv(diag, &mut buf, RecvFlags::DONTWAIT).ok()?;
    let answer = buf.get(..count)?;
    // nlmsghdr is 16 bytes; inet_diag_msg has its inode in its last four of 72.
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let inode = u32::from_ne_bytes(answer.get(16 + 68..16 + 72)?.try_into().ok()?);
    (kind == SOCK_DIAG_BY_FAMILY && inode != 0).then_some(inode)
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const ESTABLISHED_AND_ALIKE: u32 = 0xfff;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP: u8 = 6;

/// `nlmsghdr` and `inet_diag_req_v2` for one socket, as the client holds it.
fn request(client: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let family = if client.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut out = Vec::with_capacity(72);
    out.extend_from_slice(&72_u32.to_ne_bytes());
    out.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[family, TCP, 0, 0]);
    out.extend_from_slice(&ESTABLISHED_AND_ALIKE.to_ne_bytes());
    out.extend_from_slice(&client.port().to_be_bytes());
    out.extend_from_slice(&local.port().to_be_bytes());
    for address in [client.ip(), local.ip()] {
        match address {
            IpAddr::V4(address) => {
                out.extend_from_slice(&address.octets());
                out.extend_from_slice(&[0; 12]);
            }
            IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
        }
    }
    // Any interface, no cookie.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[0xff; 8]);
    out
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use policy::egress::BinaryPath;
    use rustix::fs::{CWD, open};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};

    use super::*;

    fn here() -> Inside {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let diag = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        );
        Inside {
            diag: diag.unwrap(),
            proc: open("/proc", flags, Mode::empty()).unwrap(),
            root: open("/", flags, Mode::empty()).unwrap(),
        }
    }

    #[test]
    fn the_program_behind_a_connection_is_found_with_its_ancestors() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, from) = listener.accept().unwrap();
        let local = accepted.local_addr().unwrap();
        let peer = Peer::new(Some(here()), &Egress::new(Vec::new()));
        let Caller::Known(chain) = peer.caller(from, local) else { panic!("known") };
        let own = readlinkat(CWD, "/proc/self/exe", Vec::new()).unwrap().into_string().unwrap();
        assert_eq!(chain[0].path, own);
        assert!(chain.len() > 1, "{chain:?}");
        drop(client);
        let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert_eq!(peer.caller(nobody, local), Caller::Unknown);
        assert_eq!(Peer::default().caller(from, local), Caller::Unknown);
    }

    #[test]
    fn row_85_a_listed_link_admits_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("tool");
        std::os::unix::fs::symlink("/proc/self/exe", dir.path().join("never")).unwrap();
        let real = std::fs::canonicalize("/bin/sh").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let link = link.to_str().unwrap().to_owned();
        let aliases = aliases(&here().root, HashSet::from([link.clone()]));
        assert_eq!(aliases.get(real.to_str().unwrap()), Some(&link));
        assert!(BinaryPath::parse(&link).is_ok());
    }
}

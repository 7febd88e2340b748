//! Turns the list of a sandbox's way out into sockets in its own network namespace, made by its first process.
//! It refuses to know what is allowed; the broker that gets the sockets does.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
};

use nix::{
    fcntl::{OFlag, open},
    sys::{
        socket::{
            AddressFamily, Backlog, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind,
            listen, recv, send, setsockopt, socket, sockopt,
        },
        stat::Mode,
    },
};

use super::protocol::Ways;

const BACKLOG: i32 = 1024;
const NEWROUTE: u16 = 24;
/// Request, acknowledge, create.
const FLAGS: u16 = 0x1 | 0x4 | 0x400;

/// Makes the sockets, and after them what tells one program from another. Before them the addresses and the synthetic
/// network become local. Answers which sockets there are: those of IPv6 are left out where the namespace has none. Needs the
/// loopback interface up and the namespace's capabilities.
pub(crate) fn make(ways: &Ways) -> io::Result<(Vec<usize>, Vec<OwnedFd>)> {
    let six = std::fs::read_to_string("/proc/net/if_inet6").is_ok_and(|all| !all.is_empty());
    let there = |ip: IpAddr| six || ip.is_ipv4();
    local(Ipv4Addr::new(198, 18, 0, 0).into(), 15)?;
    for address in ways.addresses.iter().filter(|address| there(**address)) {
        local(*address, if address.is_ipv4() { 32 } else { 128 })?;
    }
    let (mut which, mut all) = (Vec::new(), Vec::new());
    for (position, (datagram, at)) in ways.sockets.iter().enumerate().filter(|(_, (_, at))| there(at.ip())) {
        all.push(one(*datagram, *at, shares(&ways.sockets, *at))?);
        which.push(position);
    }
    all.extend(inside()?);
    Ok((which, all))
}

/// What lets the broker tell programs: the kernel's table of this namespace's sockets, `/proc`, and the root, in this order.
fn inside() -> io::Result<[OwnedFd; 3]> {
    let diag = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    let dir = |path| open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
    Ok([diag, dir("/proc")?, dir("/")?])
}

/// Whether another listener has the same port at another address: then both must say so.
fn shares(list: &[(bool, SocketAddr)], at: SocketAddr) -> bool {
    list.iter().any(|(datagram, other)| !datagram && other.port() == at.port() && *other != at)
}

fn one(datagram: bool, at: SocketAddr, shares: bool) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let kind = if datagram { SockType::Datagram } else { SockType::Stream };
    let made = socket(family, kind, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    if at.is_ipv6() {
        setsockopt(&made, sockopt::Ipv6V6Only, &true)?;
    }
    if shares && !datagram {
        setsockopt(&made, sockopt::ReusePort, &true)?;
    }
    bind(made.as_raw_fd(), &SockaddrStorage::from(at))?;
    if !datagram {
        listen(&made, Backlog::new(BACKLOG)?)?;
    }
    Ok(made)
}

/// Makes every address of a network one of this namespace's own.
fn local(network: IpAddr, bits: u8) -> io::Result<()> {
    let (family, octets) = match network {
        IpAddr::V4(address) => (2, address.octets().to_vec()),
        IpAddr::V6(address) => (10, address.octets().to_vec()),
    };
    // rtmsg: table local, protocol boot, scope host, type local; then destination and interface 1, which is lo.
    let mut body = vec![family, bits, 0, 0, 255, 3, 254, 2, 0, 0, 0, 0];
    let length = u16::try_from(4 + octets.len()).map_err(io::Error::other)?;
    body.extend(length.to_ne_bytes());
    body.extend([1, 0]);
    body.extend(octets);
    body.extend([8, 0, 4, 0, 1, 0, 0, 0]);
    let length = u32::try_from(16 + body.len()).map_err(io::Error::other)?;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(NEWROUTE.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    acknowledged(&message)
}

fn acknowledged(message: &[u8]) -> io::Result<()> {
    let kernel =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    send(kernel.as_raw_fd(), message, MsgFlags::empty())?;
    let mut answer = [0; 512];
    let count = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // nlmsgerr: the code after the header, negative, or zero.
    let code =
        answer.get(..count).and_then(|answer| answer.get(16..20)).and_then(|code| code.try_into().ok());
    match code.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

//! Turns this process into one with a network of its own: loopback up, and the addresses of the tests local to it.
//! It refuses to need privileges or programs.

use std::net::Ipv4Addr;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};
use rustix::process::{getgid, getuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

const NEWLINK: u16 = 16;
const NEWROUTE: u16 = 24;
const REQUEST_ACK: u16 = 1 | 4;
const CREATE: u16 = 0x400;

/// Leaves the machine's network. The process has one thread at this time.
pub(crate) fn own() {
    if getuid().is_root() {
        leave(UnshareFlags::NEWNET);
    } else {
        user_and(UnshareFlags::NEWNET);
    }
    let mut up = vec![0; 16];
    up[4] = 1;
    up[8] = 1;
    up[12] = 1;
    ask(NEWLINK, 0, &up);
    local(Ipv4Addr::new(198, 18, 0, 0), 15);
    local(Ipv4Addr::new(203, 0, 113, 0), 24);
    local(Ipv4Addr::new(93, 184, 216, 0), 24);
    local(Ipv4Addr::new(10, 0, 0, 0), 24);
}

/// Leaves the machine's users, as the one that this process is.
pub(crate) fn user() {
    user_and(UnshareFlags::empty());
}

fn user_and(flags: UnshareFlags) {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    leave(UnshareFlags::NEWUSER | flags);
    std::fs::write("/proc/self/setgroups", "deny").unwrap();
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).unwrap();
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).unwrap();
}

fn leave(flags: UnshareFlags) {
    // SAFETY: no descriptor table is shared, and no thread is there to be surprised.
    unsafe { unshare_unsafe(flags) }.unwrap();
}

/// Makes a network local to this machine, as the gateway does inside a sandbox.
pub(crate) fn local(network: Ipv4Addr, bits: u8) {
    let mut route = vec![2, bits, 0, 0, 255, 3, 254, 2, 0, 0, 0, 0];
    route.extend([8, 0, 1, 0]);
    route.extend(network.octets());
    route.extend([8, 0, 4, 0, 1, 0, 0, 0]);
    ask(NEWROUTE, CREATE, &route);
}

fn ask(kind: u16, flags: u16, body: &[u8]) {
    // Protocol 0 of netlink is NETLINK_ROUTE.
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None).unwrap();
    let length = u32::try_from(16 + body.len()).unwrap();
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST_ACK | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    send(&socket, &message, SendFlags::empty()).unwrap();
    let mut answer = [0; 256];
    recv(&socket, &mut answer, RecvFlags::empty()).unwrap();
    assert_eq!(answer[16..20], [0; 4], "the kernel refused message {kind}");
}

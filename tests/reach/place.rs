//! Turns this process into one on a machine of its own: a network with loopback only, where every address of the tests is
//! local, and names for them that the host's resolver reads from a file. It refuses to know what serves there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::net;

/// Names of outside and where each leads. What stands here answers, so that a refusal is the broker's and not the network's.
pub(crate) const HOSTS: [(&str, &str); 27] = [
    ("web.test", "93.184.216.5"),
    ("git.test", "93.184.216.6"),
    ("pypi.test", "93.184.216.7"),
    ("npm.test", "93.184.216.8"),
    ("crates.test", "93.184.216.9"),
    ("unlisted.test", "93.184.216.66"),
    ("a.test", "93.184.216.10"),
    ("b.a.test", "93.184.216.66"),
    ("nota.test", "93.184.216.66"),
    ("a.test.evil.test", "93.184.216.66"),
    ("xn--bcher-kva.test", "93.184.216.11"),
    ("x.wild.test", "93.184.216.12"),
    ("y.x.wild.test", "93.184.216.13"),
    ("wild.test", "93.184.216.66"),
    ("private.wild.test", "10.0.0.9"),
    ("metadata.wild.test", "169.254.169.254"),
    ("loop.wild.test", "127.0.0.1"),
    ("x.y.deep.test", "93.184.216.14"),
    ("named.test", "10.0.0.10"),
    ("metadata.test", "169.254.169.254"),
    ("link.test", "169.254.1.1"),
    ("loop.test", "127.0.0.1"),
    ("zero.test", "0.0.0.0"),
    ("nat.test", "64:ff9b::a9fe:a9fe"),
    ("two.test", "2606:4700::1111"),
    ("two.test", "93.184.216.15"),
    ("github.com", "93.184.216.16"),
];

/// Leaves the machine's network and its names. The process has one thread at this time.
pub(crate) fn own() {
    net::own();
    net::local(Ipv4Addr::new(169, 254, 0, 0), 16);
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    let mut names = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for (name, address) in HOSTS {
        names.push_str(&format!("{address} {name}\n"));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), names).unwrap();
    std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
    mount(Some(file.path()), "/etc/hosts", None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

/// Where a name leads, as the host's resolver has it.
pub(crate) fn addresses(name: &str) -> Vec<IpAddr> {
    if name == "localhost" {
        return vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    }
    let all = HOSTS.iter().filter(|(known, _)| *known == name);
    all.map(|(_, address)| address.parse().unwrap()).collect()
}

//! Turns the host's `/etc` into the few files of it that programs need, and the rest into our own.
//! It refuses to know users, keys and configuration of the host.

use std::{fs, io, os::fd::AsFd, os::unix::fs::symlink, path::Path};

use super::{
    init::{Failure, Step as _},
    mount::{c_path, directory},
    namespace::INSIDE_ID,
    sys::{self, NODEV, NOEXEC, NOSUID, RDONLY},
};

/// Public files and directories of the host's `/etc`.
const PUBLIC: [&str; 31] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "lsb-release",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "redhat-release",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];

/// What stands there as ours, whatever the host has.
fn ours() -> [(&'static str, String); 7] {
    let id = INSIDE_ID;
    [
        (
            "passwd",
            format!(
                "sandbox:x:{id}:{id}:sandbox:/sandbox/home:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n"
            ),
        ),
        ("group", format!("sandbox:x:{id}:\nnogroup:x:65534:\n")),
        ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n".to_owned()),
        ("hostname", "sandbox\n".to_owned()),
        (
            "nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n".to_owned(),
        ),
        ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n".to_owned()),
        ("shells", "/bin/sh\n/bin/bash\n".to_owned()),
    ]
}

/// Fills the sandbox's `/etc` at `inside` from the host's at `host`.
pub(crate) fn write(inside: &Path, host: &Path) -> Result<(), Failure> {
    for name in PUBLIC {
        public(&inside.join(name), &host.join(name))?;
    }
    for (name, text) in ours() {
        fs::write(inside.join(name), text).step(format!("write /etc/{name}"))?;
    }
    Ok(())
}

/// Leads the name of the broker's own URL to the listener inside.
pub(crate) fn name_broker(root: &Path, name: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    let mut hosts = fs::File::options().append(true).open(root.join("etc/hosts")).step("open /etc/hosts")?;
    writeln!(hosts, "127.0.0.1 {name}").step("write /etc/hosts")
}

fn public(inside: &Path, host: &Path) -> Result<(), Failure> {
    let Ok(meta) = fs::symlink_metadata(host) else { return Ok(()) };
    if let Some(parent) = inside.parent() {
        fs::create_dir_all(parent).step(format!("make {}", parent.display()))?;
    }
    if meta.is_symlink() {
        let target = fs::read_link(host).step(format!("read the link {}", host.display()))?;
        symlink(target, inside).step(format!("link {}", inside.display()))
    } else if meta.is_dir() {
        directory(inside, 0o755)?;
        let tree = sys::open_tree(None, &c_path(host)?, true)
            .step(format!("take the mounts at {}", host.display()))?;
        sys::set_attributes(tree.as_fd(), RDONLY | NOSUID | NODEV | NOEXEC, true)
            .step("protect a part of /etc")?;
        sys::move_mount(tree.as_fd(), &c_path(inside)?).step(format!("bind {}", inside.display()))
    } else {
        copy(host, inside).step(format!("copy {}", host.display()))
    }
}

/// Copies a public file; one that the agent could not read on the host either is left out.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::read(from) {
        Ok(content) => fs::write(to, content),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_private_is_on_the_public_list() {
        for private in [
            "shadow",
            "ssh",
            "ssl/private",
            "sudoers",
            "gitconfig",
            "environment",
            "kubernetes",
            "pki/tls/private",
        ] {
            assert!(!PUBLIC.iter().any(|name| private.starts_with(name)), "{private}");
        }
    }
}

//! What an agent may try from inside, and that nothing of it reaches the host.
//!
//! Attacks are Python with raw system calls; each prints `name result`, where a result is `ok` or an error's name.

use std::{
    collections::BTreeMap,
    io::Write,
    net::{TcpListener, UdpSocket},
    os::unix::net::UnixListener,
};

use driver::turn::{Exit, TurnSpec};

use crate::{Test, lab::Lab};

pub(crate) const TESTS: &[Test] = &[
    ("no_network_leads_out", network),
    ("sockets_of_other_kinds_are_denied", sockets),
    ("unix_sockets_of_the_host_are_out_of_reach", unix_sockets),
    ("kernel_interfaces_are_denied", kernel),
    ("namespaces_and_mounts_are_denied", namespaces),
    ("a_32_bit_call_kills_its_process", compat),
    ("nothing_of_the_hosts_files_is_seen", files),
    ("system_files_cannot_be_written", system_writes),
    ("the_hosts_processes_are_not_seen", processes),
    ("proc_and_sys_give_no_hold_on_the_host", proc_and_sys),
    ("devices_are_the_few_harmless_ones", devices),
    ("no_capability_no_setuid_no_core", privileges),
    ("no_descriptor_of_the_engine_is_passed_in", descriptors),
    ("the_first_process_cannot_be_touched", first_process),
    ("a_host_environment_variable_is_not_inherited", environment),
    ("two_sandboxes_do_not_see_each_other", apart),
    #[cfg(feature = "weaken")]
    ("without_seccomp_the_kernel_interfaces_answer", without::seccomp),
    #[cfg(feature = "weaken")]
    ("without_view_and_landlock_the_hosts_files_are_read", without::view),
    #[cfg(feature = "weaken")]
    ("without_read_only_binds_and_landlock_the_hosts_files_are_written", without::read_only),
    #[cfg(feature = "weaken")]
    ("without_the_drop_and_seccomp_mounts_are_made", without::capabilities),
    #[cfg(feature = "weaken")]
    ("without_the_network_namespace_the_host_answers", without::network),
    #[cfg(feature = "weaken")]
    ("without_no_new_privs_it_is_not_set", without::no_new_privileges),
    #[cfg(feature = "weaken")]
    ("without_an_overlay_the_workspace_is_copied_with_the_same_results", crate::workspace::copied),
    #[cfg(feature = "weaken")]
    ("without_limits_more_processes_start", without::limits),
    #[cfg(not(feature = "weaken"))]
    ("no_layer_can_be_left_out", nothing_to_weaken),
];

/// What every attack script starts with.
const PRELUDE: &str = r#"
import ctypes, errno, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[a if isinstance(a, (bytes, ctypes.c_void_p, ctypes.Array)) else ctypes.c_long(a) for a in args])
    return "ok" if result >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")
def attempt(name, what):
    try: result = what(); result = result if isinstance(result, str) else "ok"
    except OSError as e: result = errno.errorcode.get(e.errno, type(e).__name__)
    except Exception as e: result = type(e).__name__
    print(name, result, flush=True)
"#;

fn attack(lab: &Lab, script: &str) -> TurnSpec {
    lab.program(["python3", "-c", &format!("{PRELUDE}{script}")])
}

fn results(lab: &Lab, spec: TurnSpec) -> BTreeMap<String, String> {
    let seen = lab.run(spec).unwrap_or_else(|error| panic!("failed to {error}"));
    assert_eq!(seen.end.exit, Exit::Code(0), "{}\n{}", seen.out, seen.err);
    let pair = |line: &str| line.split_once(' ').map(|(name, result)| (name.to_owned(), result.to_owned()));
    seen.out.lines().filter_map(pair).collect()
}

/// Every attempt must have been made, and answered with one of these.
fn all_denied(results: &BTreeMap<String, String>, count: usize, allowed: &[&str]) {
    assert_eq!(results.len(), count, "{results:?}");
    for (name, result) in results {
        assert!(allowed.contains(&result.as_str()), "{name} answered {result}");
    }
}

const NETWORK: &str = r#"
port = int(os.environ["PORT"])
def tcp(family, address): return lambda: socket.create_connection((address, port), timeout=2).close()
attempt("loopback4", tcp(socket.AF_INET, "127.0.0.1"))
attempt("loopback6", tcp(socket.AF_INET6, "::1"))
attempt("mapped", tcp(socket.AF_INET6, "::ffff:127.0.0.1"))
attempt("any", tcp(socket.AF_INET, "0.0.0.0"))
"#;

fn network(lab: &Lab) {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let mut spec = attack(
        lab,
        &format!(
            "{NETWORK}{}",
            r#"
for name, address in [("public", "1.1.1.1"), ("private", "10.0.0.1"), ("metadata", "169.254.169.254"), ("host", os.environ["HOST"])]:
    attempt(name, tcp(socket.AF_INET, address))
attempt("public6", tcp(socket.AF_INET6, "2606:4700::1111"))
def udp(family, address): return lambda: socket.socket(family, socket.SOCK_DGRAM).sendto(b"out", (address, int(os.environ["UDP"])))
attempt("udp", udp(socket.AF_INET, "8.8.8.8"))
attempt("broadcast", udp(socket.AF_INET, "255.255.255.255"))
attempt("multicast", udp(socket.AF_INET, "224.0.0.1"))
attempt("udp6", udp(socket.AF_INET6, "ff02::1"))
attempt("names", lambda: socket.getaddrinfo("example.org", 80))
print("udp-loopback", "sent" if udp(socket.AF_INET, "127.0.0.1")() is not None else "sent")
"#
        ),
    );
    spec.env.insert("PORT".to_owned(), tcp.local_addr().unwrap().port().to_string());
    spec.env.insert("UDP".to_owned(), udp.local_addr().unwrap().port().to_string());
    spec.env.insert("HOST".to_owned(), host_address());
    let mut results = results(lab, spec);
    // It was sent to the sandbox's own loopback, where nobody listens.
    results.remove("udp-loopback");
    all_denied(
        &results,
        14,
        &["ECONNREFUSED", "ENETUNREACH", "EACCES", "EPERM", "EADDRNOTAVAIL", "gaierror"],
    );
    assert!(udp.recv(&mut [0; 8]).is_err(), "a datagram reached the host");
    tcp.set_nonblocking(true).unwrap();
    assert!(tcp.accept().is_err(), "a connection reached the host");
}

/// An address of this host, or one that is nobody's.
fn host_address() -> String {
    let text = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let local = text.lines().collect::<Vec<_>>();
    let address = local.windows(2).find_map(|pair| {
        let address = pair[0].trim().strip_prefix("|-- ")?;
        (pair[1].contains("host LOCAL") && !address.starts_with("127.")).then(|| address.to_owned())
    });
    address.unwrap_or_else(|| "192.0.2.1".to_owned())
}

fn sockets(lab: &Lab) {
    let results = results(
        lab,
        attack(
            lab,
            r#"
for name, family, kind, protocol in [("raw", 2, 3, 1), ("raw6", 10, 3, 58), ("inet-packet", 2, 10, 0), ("packet", 17, 3, 3),
        ("vsock", 40, 1, 0), ("bluetooth", 31, 3, 1), ("alg", 38, 5, 0), ("xdp", 44, 3, 0), ("can", 29, 3, 1), ("tipc", 30, 1, 0),
        ("netlink-audit", 16, 3, 9), ("netlink-diag", 16, 3, 4), ("netlink-generic", 16, 3, 16), ("netlink-uevent", 16, 3, 15), ("smc", 43, 1, 0)]:
    attempt(name, lambda: socket.socket(family, kind, protocol))
"#,
        ),
    );
    all_denied(&results, 15, &["EPERM"]);
}

fn unix_sockets(lab: &Lab) {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("crucible-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let hidden = UnixListener::bind_addr(&address).unwrap();
    let path = lab.dir().join("sock");
    let named = UnixListener::bind(&path).unwrap();
    let mut spec = attack(
        lab,
        r#"
def connect(address): return lambda: socket.socket(socket.AF_UNIX).connect(address)
attempt("abstract", connect("\0" + os.environ["NAME"]))
attempt("path", connect(os.environ["SOCK"]))
attempt("gateway", connect(os.environ["GATEWAY"]))
for path in ["/run/docker.sock", "/var/run/docker.sock", "/run/systemd/private", "/run/dbus/system_bus_socket"]:
    attempt(path, connect(path))
"#,
    );
    spec.env.insert("NAME".to_owned(), name);
    spec.env.insert("SOCK".to_owned(), path.display().to_string());
    spec.env.insert("GATEWAY".to_owned(), lab.gateway().socket().display().to_string());
    all_denied(&results(lab, spec), 7, &["ECONNREFUSED", "ENOENT", "EACCES", "EPERM", "OSError"]);
    for listener in [hidden, named] {
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "a connection reached the host");
    }
}

const KERNEL: &str = r#"
buffer = ctypes.create_string_buffer(256)
attempt("io_uring_setup", lambda: call(425, 1, buffer))
"#;

fn kernel(lab: &Lab) {
    let results = results(
        lab,
        attack(
            lab,
            &format!(
                "{KERNEL}{}",
                r#"
zero = ctypes.c_void_p(0)
for name, number, args in [
    ("io_uring_enter", 426, (0, 0, 0, 0, 0)), ("io_uring_register", 427, (0, 0, 0, 0)),
    ("ptrace-traceme", 101, (0, 0, 0, 0)), ("ptrace-attach", 101, (16, 1, 0, 0)), ("ptrace-seize", 101, (0x4206, 1, 0, 0)),
    ("process_vm_readv", 310, (1, 0, 0, 0, 0, 0)), ("process_vm_writev", 311, (1, 0, 0, 0, 0, 0)), ("pidfd_getfd", 438, (0, 0, 0)),
    ("bpf", 321, (0, buffer, 48)), ("userfaultfd", 323, (0,)), ("perf_event_open", 298, (buffer, 0, -1, -1, 0)),
    ("keyctl", 250, (0, -3, 0)), ("add_key", 248, (b"user", b"a", b"b", 1, -3)), ("request_key", 249, (b"user", b"a", zero, 0)),
    ("kexec_load", 246, (0, 0, 0, 0)), ("init_module", 175, (buffer, 0, b"")), ("finit_module", 313, (0, b"", 0)), ("delete_module", 176, (b"x", 0)),
    ("syslog", 103, (3, buffer, 10)), ("reboot", 169, (0xfee1dead, 672274793, 0, 0)), ("swapon", 167, (b"/x", 0)), ("acct", 163, (zero,)),
    ("settimeofday", 164, (buffer, zero)), ("clock_settime", 227, (0, buffer)), ("iopl", 172, (3,)), ("modify_ldt", 154, (1, buffer, 16)),
    ("open_by_handle_at", 304, (0, buffer, 0)), ("fanotify_init", 300, (0, 0)), ("quotactl", 179, (0, zero, 0, zero)), ("kcmp", 312, (1, 1, 0, 0, 0)),
]:
    attempt(name, lambda: call(number, *args))
"#
            ),
        ),
    );
    all_denied(&results, 31, &["EPERM"]);
}

const MOUNT: &str = r#"
os.makedirs("/tmp/m", exist_ok=True)
attempt("mount", lambda: call(165, b"none", b"/tmp/m", b"tmpfs", 0, 0))
"#;

fn namespaces(lab: &Lab) {
    let results = results(
        lab,
        attack(
            lab,
            &format!(
                "{MOUNT}{}",
                r#"
zero = ctypes.c_void_p(0)
attempt("bind", lambda: call(165, b"/usr", b"/tmp/m", zero, 4096, 0))
attempt("remount", lambda: call(165, zero, b"/", zero, 32, 0))
attempt("umount", lambda: call(166, b"/proc", 2))
attempt("pivot_root", lambda: call(155, b"/tmp", b"/tmp/m"))
attempt("chroot", lambda: call(161, b"/tmp"))
for name, number, args in [("open_tree", 428, (-100, b"/", 1)), ("move_mount", 429, (-100, b"/", -100, b"/tmp", 0)), ("fsopen", 430, (b"tmpfs", 0)),
        ("fsmount", 432, (0, 0, 0)), ("fspick", 433, (-100, b"/", 0)), ("mount_setattr", 442, (-100, b"/", 0, zero, 0))]:
    attempt(name, lambda: call(number, *args))
attempt("setns", lambda: call(308, os.open("/proc/self/ns/mnt", os.O_RDONLY), 0))
for name, flag in [("user", 0x10000000), ("mnt", 0x20000), ("pid", 0x20000000), ("net", 0x40000000), ("ipc", 0x8000000), ("uts", 0x4000000), ("cgroup", 0x2000000), ("time", 0x80)]:
    attempt("unshare-" + name, lambda: call(272, flag))
    attempt("clone-" + name, lambda: call(56, flag | 17, 0, 0, 0, 0))
attempt("sethostname", lambda: call(170, b"evil", 4))
"#
            ),
        ),
    );
    all_denied(&results, 30, &["EPERM"]);
    let clone3 = self::results(
        lab,
        attack(lab, "attempt('clone3', lambda: call(435, ctypes.create_string_buffer(88), 88))"),
    );
    all_denied(&clone3, 1, &["ENOSYS"]);
    assert_eq!(lab.fine("hostname; cat /proc/self/cgroup | cut -d: -f3 | sort -u"), "sandbox\n/\n");
}

/// `int 0x80` reaches calls by other numbers, past a list of the native ones.
fn compat(lab: &Lab) {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let seen = lab
        .run(attack(
            lab,
            r#"
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
print("survived")
"#,
        ))
        .unwrap();
    assert_eq!((seen.end.exit, seen.out.as_str()), (Exit::Signal(31), ""));
}

fn files(lab: &Lab) {
    let secret = lab.dir().join("secret");
    std::fs::write(&secret, "host").unwrap();
    let script = format!(
        "ls -A / | tr '\\n' ' '; cat {} ~root/.ssh/* /etc/shadow 2>/dev/null; ls /root /home /run /sys /var/lib /mnt /srv {} 2>/dev/null; true",
        secret.display(),
        lab.dir().display()
    );
    let seen = lab.fine(&script);
    let mut top: Vec<&str> = seen.split_whitespace().collect();
    top.retain(|name| {
        ![
            "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "run", "sandbox", "sbin",
            "tmp", "usr", "var",
        ]
        .contains(name)
    });
    assert!(top.is_empty() || top == ["/run:"], "{seen}");
    assert_eq!(
        lab.fine("ls -A /run /tmp /sandbox/home /dev/shm").trim(),
        "/dev/shm:\n\n/run:\n\n/sandbox/home:\n\n/tmp:"
    );
    assert_eq!(lab.fine("cut -d: -f1 /etc/passwd").trim(), "sandbox\nnobody");
    let up = lab.fine("cat /sandbox/space/../../../../../../etc/hostname; ls /proc/1/root 2>&1 | head -1; ls /proc/1/cwd 2>&1 | head -1");
    assert!(up.starts_with("sandbox\n") && up.matches("denied").count() == 2, "{up}");
}

fn system_writes(lab: &Lab) {
    let script = r#"
def write(path): return lambda: open(path, "w").write("x")
for path in ["/usr/x", "/usr/bin/true", "/etc/passwd", "/etc/x", "/x", "/opt/x", "/dev/x", "/run/x", "/var/x", "/proc/x", "/lib/x", "/sandbox/../x"]:
    attempt(path, write(path))
for name, what in [("chmod", lambda: os.chmod("/usr/bin/true", 0o777)), ("rename", lambda: os.rename("/etc/passwd", "/etc/p")),
        ("unlink", lambda: os.unlink("/usr/bin/true")), ("link", lambda: os.link("/usr/bin/true", "/tmp/true")), ("mkdir", lambda: os.mkdir("/usr/d")),
        ("truncate", lambda: os.truncate("/usr/bin/true", 0)), ("utime", lambda: os.utime("/usr/bin/true")),
        ("xattr", lambda: os.setxattr("/usr/bin/true", "user.x", b"x"))]:
    attempt(name, what)
"#;
    all_denied(&results(lab, attack(lab, script)), 20, &["EROFS", "EACCES", "EPERM", "EXDEV", "ENOENT"]);
}

fn processes(lab: &Lab) {
    assert_eq!(lab.fine("ls /proc | grep -c '^[0-9]' >/dev/null; for p in /proc/[0-9]*; do cat $p/comm; done | sort | uniq | head -4 | tr '\\n' ' '").split_whitespace().filter(|n| !["sh", "cat", "sort", "uniq", "head", "tr", "crucible-sandbo", "exe", "grep"].contains(n)).count(), 0);
    let script = format!(
        "attempt('kill', lambda: os.kill({}, 9)); attempt('group', lambda: os.kill(-1, 0)); attempt('parent', lambda: os.kill(os.getppid(), 9))",
        std::process::id()
    );
    let results = results(lab, attack(lab, &script));
    assert_eq!(results["kill"], "ESRCH");
}

fn proc_and_sys(lab: &Lab) {
    let script = r#"
def write(path, text="1"): return lambda: os.write(os.open(path, os.O_WRONLY), text.encode())
for path in ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger", "/proc/self/oom_score_adj",
        "/proc/self/uid_map", "/proc/1/mem", "/proc/self/mem", "/proc/self/attr/current", "/proc/self/timerslack_ns", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/cgroup.procs"]:
    attempt(path, write(path))
def read(path): return lambda: "ok" if os.read(os.open(path, os.O_RDONLY), 10) else "empty"
for path in ["/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/kallsyms", "/proc/cmdline", "/proc/timer_list", "/proc/iomem", "/proc/modules", "/proc/1/environ", "/proc/1/maps", "/proc/1/mem", "/proc/1/fd",
        "/proc/partitions", "/proc/diskstats", "/sys/kernel/notes", "/sys/class/net", "/sys/devices"]:
    attempt("read " + path, read(path))
for path in ["/proc/bus", "/proc/irq", "/proc/fs", "/proc/driver", "/proc/scsi"]:
    attempt("list " + path, lambda: "full" if os.listdir(path) else "empty")
"#;
    let script = script
        .replace("attempt(\"read \" + path", "attempt(\"read-\" + path")
        .replace("attempt(\"list \" + path", "attempt(\"list-\" + path");
    all_denied(
        &results(lab, attack(lab, &script)),
        35,
        &["EROFS", "EACCES", "EPERM", "ENOENT", "empty", "EISDIR"],
    );
    let mounts = lab.fine("cat /proc/mounts");
    assert!(!mounts.contains("/host") && !mounts.contains(lab.dir().to_str().unwrap()), "{mounts}");
}

fn devices(lab: &Lab) {
    assert_eq!(
        lab.fine("ls /dev | tr '\\n' ' '"),
        "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero "
    );
    let script = r#"
for name, kind in [("char", 0o020000), ("block", 0o060000)]:
    for place in ["/tmp/", "/sandbox/space/", "/sandbox/home/", "/dev/shm/"]:
        attempt(name + place, lambda: os.mknod(place + name, kind | 0o666, os.makedev(1, 3)))
"#;
    all_denied(&results(lab, attack(lab, script)), 8, &["EPERM", "EACCES"]);
    assert_eq!(
        lab.fine("echo x > /dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c").trim(),
        "4\n4"
    );
}

fn privileges(lab: &Lab) {
    let status = lab.fine("grep -E '^(Cap|NoNewPrivs|Seccomp:|Uid|Groups)' /proc/self/status");
    for line in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(status.contains(&format!("{line}:\t0000000000000000")), "{status}");
    }
    assert!(
        status.contains("NoNewPrivs:\t1")
            && status.contains("Seccomp:\t2")
            && status.contains("Uid:\t1000\t1000\t1000\t1000"),
        "{status}"
    );
    let results = results(
        lab,
        attack(
            lab,
            r#"
import resource
attempt("core", lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
attempt("core-raise", lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30)))
attempt("setuid", lambda: os.setuid(0))
attempt("setgid", lambda: os.setgid(0))
attempt("setgroups", lambda: os.setgroups([0]))
attempt("chown", lambda: (open("/tmp/f", "w").close(), os.chown("/tmp/f", 0, 0)))
attempt("nice", lambda: os.nice(-5))
"#,
        ),
    );
    all_denied(&results, 7, &["EPERM", "EINVAL", "ValueError"]);
    assert_eq!(
        lab.fine("cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id; /tmp/id -u; ulimit -c").trim(),
        "1000\n0"
    );
    assert_eq!(lab.fine("findmnt -no OPTIONS /usr | grep -c nosuid; grep -vcE 'nosuid|^[^ ]+ /dev/[a-z]+ ' /proc/mounts || true").lines().next(), Some("1"));
}

fn descriptors(lab: &Lab) {
    // One that would be inherited, were it not closed: without the flag that closes it.
    let file = std::fs::File::open("/proc/self/status").unwrap();
    let kept = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_DUPFD(100)).unwrap();
    assert_eq!(lab.fine("ls /proc/self/fd | tr '\\n' ' '"), "0 1 2 3 ");
    assert_eq!(lab.fine("readlink /proc/self/fd/0 /proc/self/fd/2 | cut -d: -f1 | sort -u"), "pipe\n");
    nix::unistd::close(kept).unwrap();
}

fn first_process(lab: &Lab) {
    let results = results(
        lab,
        attack(
            lab,
            r#"
attempt("kill", lambda: os.kill(1, 9) or "sent")
attempt("stop", lambda: os.kill(1, 19) or "sent")
for name in ["mem", "environ", "maps", "exe", "cwd", "root", "fd", "ns"]:
    attempt(name, lambda: (os.readlink if name in ("exe", "cwd", "root") else os.listdir if name in ("fd", "ns") else lambda p: open(p).read())("/proc/1/" + name))
"#,
        ),
    );
    assert_eq!(results.len(), 10, "the sandbox survived the signals");
    for name in ["mem", "environ", "maps", "exe", "cwd", "root", "fd"] {
        assert!(["EACCES", "EPERM"].contains(&results[name].as_str()), "{name} {}", results[name]);
    }
}

fn environment(lab: &Lab) {
    // This process has at least PATH and HOME of its own; cargo adds many more.
    let seen = lab.fine("env | cut -d= -f1 | sort | tr '\\n' ' '");
    assert_eq!(seen, "HOME LANG LOGNAME OPENSHELL_SANDBOX PATH PWD SHELL TERM TMPDIR USER ");
}

fn apart(lab: &Lab) {
    let other = Lab::new();
    let mut one = lab.spec("python3 -c 'import socket; s=socket.socket(); s.bind((\"127.0.0.1\",4321)); s.listen(); print(\"up\", flush=True); input()'");
    one.timeout = Some(std::time::Duration::from_secs(20));
    let mut stdout = std::io::stdout();
    let seen = other.run(other.program(["python3", "-c", "import socket\ntry: socket.create_connection(('127.0.0.1',4321),2); print('reached')\nexcept OSError: print('apart')"])).unwrap();
    stdout.flush().unwrap();
    assert_eq!(seen.out, "apart\n");
    assert!(lab.run(one).unwrap().out.starts_with("up"));
}

#[cfg(not(feature = "weaken"))]
fn nothing_to_weaken(lab: &Lab) {
    for layer in ["seccomp", "landlock", "view", "anything"] {
        let mut spec = lab.spec("true");
        spec.weaken.push(layer.to_owned());
        let error = lab.run(spec).unwrap_err().to_string();
        assert!(error.contains("this build always has all of them"), "{error}");
    }
}

/// The same attacks with one layer gone, and with it whatever else stops them: so that none passes for another reason.
#[cfg(feature = "weaken")]
mod without {
    use super::*;

    fn weakened(mut spec: TurnSpec, layers: &[&str]) -> TurnSpec {
        spec.weaken = layers.iter().map(|layer| (*layer).to_owned()).collect();
        spec
    }

    pub(super) fn seccomp(lab: &Lab) {
        let seen = results(lab, weakened(attack(lab, KERNEL), &["seccomp"]));
        assert_ne!(seen["io_uring_setup"], "EPERM", "{seen:?}");
        let vsock = "attempt('vsock', lambda: socket.socket(40, 1, 0)); attempt('diag', lambda: socket.socket(16, 3, 4))";
        let seen = results(lab, weakened(attack(lab, vsock), &["seccomp"]));
        assert_eq!(seen["diag"], "ok", "{seen:?}");
    }

    pub(super) fn view(lab: &Lab) {
        let secret = lab.dir().join("secret");
        std::fs::write(&secret, "of the host").unwrap();
        std::fs::set_permissions(lab.dir(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let script = format!("cat /host{}", secret.display());
        let seen = lab.run(weakened(lab.spec(&script), &["view", "landlock"])).unwrap();
        assert_eq!(seen.out, "of the host", "{}", seen.err);
        let still = lab.run(weakened(lab.spec(&script), &["view"])).unwrap();
        assert_eq!(still.out, "", "Landlock alone does not stop it");
    }

    pub(super) fn read_only(lab: &Lab) {
        // Below /tmp Landlock lets everything be written, and only the bind protects.
        let outside = if nix::unistd::geteuid().is_root() { "/mnt".as_ref() } else { lab.dir() };
        let dir = tempfile::tempdir_in(outside).unwrap();
        let tools = dir.path().to_owned();
        std::fs::set_permissions(&tools, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let script = format!("echo x > {}/planted", tools.display());
        let with = |layers: &[&str]| {
            let mut spec = weakened(lab.spec(&script), layers);
            spec.read_only_paths.push(tools.clone());
            lab.run(spec).unwrap().end.exit
        };
        if !tools.starts_with("/tmp") {
            assert_ne!(with(&["read-only"]), Exit::Code(0), "Landlock alone does not stop it");
            assert!(!tools.join("planted").exists());
        }
        assert_ne!(with(&["landlock"]), Exit::Code(0), "the read-only bind alone does not stop it");
        assert_eq!(with(&["read-only", "landlock"]), Exit::Code(0));
        assert!(tools.join("planted").exists());
    }

    pub(super) fn capabilities(lab: &Lab) {
        let seen = results(lab, weakened(attack(lab, MOUNT), &["capabilities", "seccomp", "landlock"]));
        assert_eq!(seen["mount"], "ok", "{seen:?}");
        let still = results(lab, weakened(attack(lab, MOUNT), &["seccomp", "landlock"]));
        assert_eq!(still["mount"], "EPERM", "the drop alone does not stop it");
        let still = results(lab, weakened(attack(lab, MOUNT), &["capabilities", "landlock"]));
        assert_eq!(still["mount"], "EPERM", "seccomp alone does not stop it");
    }

    pub(super) fn network(lab: &Lab) {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut spec = weakened(attack(lab, NETWORK), &["network"]);
        spec.env.insert("PORT".to_owned(), tcp.local_addr().unwrap().port().to_string());
        let seen = results(lab, spec);
        assert_eq!(seen["loopback4"], "ok", "{seen:?}");
    }

    pub(super) fn no_new_privileges(lab: &Lab) {
        let seen =
            lab.run(weakened(lab.spec("grep NoNewPrivs /proc/self/status"), &["no-new-privileges"])).unwrap();
        assert_eq!(seen.out, "NoNewPrivs:\t0\n");
    }

    pub(super) fn limits(lab: &Lab) {
        let script = "i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done 2>/dev/null; ls /proc | grep -c '^[0-9]'";
        let with = |layers: &[&str]| {
            let mut spec = weakened(lab.spec(script), layers);
            spec.limits.processes = 30;
            lab.run(spec).unwrap().out.trim().parse::<u32>().unwrap_or(0)
        };
        assert!(with(&["limits"]) > 60, "the limit still holds");
        assert!(with(&[]) < 40);
    }
}

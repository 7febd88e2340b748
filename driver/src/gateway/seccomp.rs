//! Turns lists of system calls into the filter that a sandbox runs under.
//! It refuses to know files and networks; what it denies is denied wherever it points.

use libc::{c_long, sock_filter};

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// Calls above this number are the x32 kind, which would slip past a list of the others.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

const KILL: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7FFF_0000;
const EPERM: u32 = 0x0005_0000 | 1;
const ENOSYS: u32 = 0x0005_0000 | 38;

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
#[cfg(target_arch = "x86_64")]
const AT_LEAST: u16 = 0x35;
const ANY_BIT: u16 = 0x45;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

/// Offsets in the kernel's `seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// The low half of an argument; every argument looked at is a 32-bit one to the kernel, but for pointers.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const NEW_NAMESPACES: u32 = 0x7E02_0080;
const RLIMIT_CORE: u32 = 4;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;

/// Denied with EPERM whatever their arguments.
const DENIED: &[c_long] = &[
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // the kernel
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    // mounts, old and new, and what goes around them
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    467, // open_tree_attr
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // namespaces
    libc::SYS_setns,
    libc::SYS_unshare,
    443, // quotactl_fd
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
];

const fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// A comparison; `jt` and `jf` are how many statements to leave out.
const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// The whole filter.
pub(crate) fn program() -> Vec<sock_filter> {
    let mut program = vec![
        statement(LOAD, ARCHITECTURE),
        jump(EQUAL, ARCH, 1, 0),
        statement(RETURN, KILL),
        statement(LOAD, NUMBER),
    ];
    #[cfg(target_arch = "x86_64")]
    program.extend([jump(AT_LEAST, X32, 0, 1), statement(RETURN, ENOSYS)]);
    for call in DENIED {
        program.extend([jump(EQUAL, number(*call), 0, 1), statement(RETURN, EPERM)]);
    }
    // glibc falls back to clone, whose flags can be seen.
    program.extend([jump(EQUAL, number(libc::SYS_clone3), 0, 1), statement(RETURN, ENOSYS)]);
    for (call, body) in conditional() {
        // A jump is eight bits; every body is far shorter.
        let past = u8::try_from(body.len()).unwrap_or(u8::MAX);
        program.push(jump(EQUAL, number(call), 0, past));
        program.extend(body);
    }
    program.push(statement(RETURN, ALLOW));
    program
}

/// Calls that are judged by their arguments. Each body ends in a verdict on every path.
fn conditional() -> Vec<(c_long, Vec<sock_filter>)> {
    let verdicts = [statement(RETURN, EPERM), statement(RETURN, ALLOW)];
    let deny_if_equal = |index, value| {
        let [deny, allow] = verdicts;
        vec![statement(LOAD, argument(index)), jump(EQUAL, value, 0, 1), deny, allow]
    };
    let [deny, allow] = verdicts;
    let mut list = vec![
        (
            libc::SYS_clone,
            vec![statement(LOAD, argument(0)), jump(ANY_BIT, NEW_NAMESPACES, 0, 1), deny, allow],
        ),
        (libc::SYS_socket, socket()),
        (libc::SYS_socketpair, vec![statement(LOAD, argument(0)), jump(EQUAL, 1, 1, 0), deny, allow]),
        (
            libc::SYS_ioctl,
            vec![
                statement(LOAD, argument(1)),
                jump(EQUAL, TIOCSTI, 1, 0),
                jump(EQUAL, TIOCLINUX, 0, 1),
                deny,
                allow,
            ],
        ),
        // A dump piped to the host's handler ignores a limit of zero but not the one that is set.
        (
            libc::SYS_prlimit64,
            vec![
                statement(LOAD, argument(1)),
                jump(EQUAL, RLIMIT_CORE, 0, 5),
                statement(LOAD, argument(2)),
                jump(EQUAL, 0, 0, 2),
                statement(LOAD, argument(2) + 4),
                jump(EQUAL, 0, 1, 0),
                deny,
                allow,
            ],
        ),
    ];
    list.push((libc::SYS_setrlimit, deny_if_equal(0, RLIMIT_CORE)));
    list
}

/// Unix, IPv4 and IPv6 but not raw, and the routing part of netlink.
fn socket() -> Vec<sock_filter> {
    const RAW: u32 = 3;
    const PACKET: u32 = 10;
    vec![
        statement(LOAD, argument(0)),
        jump(EQUAL, 1, 10, 0), // unix: allow
        jump(EQUAL, 16, 6, 0), // netlink: by protocol
        jump(EQUAL, 2, 1, 0),  // IPv4: by type
        jump(EQUAL, 10, 0, 6), // IPv6: by type; others: deny
        statement(LOAD, argument(1)),
        statement(AND, 0xF),
        jump(EQUAL, RAW, 3, 0),
        jump(EQUAL, PACKET, 2, 3),
        statement(LOAD, argument(2)),
        jump(EQUAL, 0, 1, 0),
        statement(RETURN, EPERM),
        statement(RETURN, ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would.
    fn verdict(arch: u32, call: u32, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(call.to_ne_bytes());
        data.extend(arch.to_ne_bytes());
        data.extend(0_u64.to_ne_bytes());
        arguments.iter().for_each(|argument| data.extend(argument.to_ne_bytes()));
        let program = program();
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let s = program[at];
            at += 1;
            let offset = usize::try_from(s.k).unwrap_or(0);
            let taken = match s.code {
                LOAD => {
                    a = u32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
                    continue;
                }
                AND => {
                    a &= s.k;
                    continue;
                }
                RETURN => return s.k,
                EQUAL => a == s.k,
                ANY_BIT => a & s.k != 0,
                0x35 => a >= s.k,
                other => panic!("unknown statement {other:#x}"),
            };
            at += usize::from(if taken { s.jt } else { s.jf });
        }
    }

    fn call(number: c_long, arguments: [u64; 6]) -> u32 {
        verdict(ARCH, u32::try_from(number).unwrap(), arguments)
    }

    #[test]
    fn sockets_are_judged_by_family_type_and_protocol() {
        let table = [
            (1, 1, 0, ALLOW),
            (1, 3, 0, ALLOW),
            (2, 1, 6, ALLOW),
            (2, 0x80002, 17, ALLOW),
            (2, 3, 1, EPERM),
            (2, 10, 0, EPERM),
            (10, 1, 0, ALLOW),
            (10, 0x80003, 58, EPERM),
            (16, 3, 0, ALLOW),
            (16, 3, 9, EPERM),
            (17, 3, 0, EPERM),
            (40, 1, 0, EPERM),
            (38, 5, 0, EPERM),
            (44, 3, 0, EPERM),
        ];
        for (family, kind, protocol, expected) in table {
            let got = call(libc::SYS_socket, [family, kind, protocol, 0, 0, 0]);
            assert_eq!(got, expected, "socket({family}, {kind}, {protocol})");
        }
        assert_eq!(call(libc::SYS_socketpair, [1, 1, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_socketpair, [40, 1, 0, 0, 0, 0]), EPERM);
    }

    #[test]
    fn new_namespaces_are_denied_and_threads_are_not() {
        assert_eq!(call(libc::SYS_clone, [0x003D_0F00, 0, 0, 0, 0, 0]), ALLOW);
        for flag in
            [0x80, 0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000]
        {
            assert_eq!(call(libc::SYS_clone, [17 | flag, 0, 0, 0, 0, 0]), EPERM, "{flag:#x}");
        }
        assert_eq!(call(libc::SYS_clone3, [0; 6]), ENOSYS);
        assert_eq!(call(libc::SYS_unshare, [0; 6]), EPERM);
    }

    #[test]
    fn the_core_limit_can_be_read_but_not_set() {
        assert_eq!(call(libc::SYS_prlimit64, [0, 4, 0, 1, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_prlimit64, [0, 4, 0x1000, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_prlimit64, [0, 4, 0x7_0000_0000, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_prlimit64, [0, 7, 0x1000, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_setrlimit, [4, 0x1000, 0, 0, 0, 0]), EPERM);
    }

    #[test]
    fn terminals_take_no_typed_input_and_other_calls_pass() {
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_ioctl, [0, 0x541C, 0, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5413, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_read, [0; 6]), ALLOW);
        assert_eq!(call(libc::SYS_execve, [0; 6]), ALLOW);
    }

    #[test]
    fn another_architecture_is_killed_and_x32_is_unknown() {
        assert_eq!(verdict(0x4000_0003, 26, [0; 6]), KILL);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(verdict(ARCH, X32 | 101, [0; 6]), ENOSYS);
    }
}

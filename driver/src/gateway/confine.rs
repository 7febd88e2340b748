//! Turns a process that built a sandbox into one that has no power there: limits, Landlock, seccomp, no capabilities.
//! It refuses to know the view; it is told which paths may be read and written.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use nix::sys::resource::{Resource, setrlimit};

use super::{
    init::{Failure, Step as _},
    protocol::Setup,
    seccomp, sys,
    weaken::{Layer, Weaken},
};

/// Read and execute.
const SYSTEM: [&str; 9] = ["/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"];
/// Opened for reading and writing as they are.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts/ptmx"];

/// A core file is neither written nor piped away at this limit; at zero it would still be piped.
const NO_CORE: u64 = 1;

/// Gives up everything. Answers what is in force, one line each.
pub(crate) fn apply(
    setup: &Setup,
    writable: &[PathBuf],
    readable: &[PathBuf],
    weaken: &Weaken,
) -> Result<Vec<String>, Failure> {
    let mut layers = Vec::new();
    limits(setup, weaken)?;
    if !weaken.off(Layer::NoNewPrivileges) {
        sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).step("set no_new_privs")?;
        layers.push("no_new_privs: in force".to_owned());
    }
    if !weaken.off(Layer::Landlock) {
        layers.push(landlock(writable, readable)?);
    }
    if !weaken.off(Layer::Seccomp) {
        sys::seccomp(&seccomp::program()).step("install the seccomp filter")?;
        layers.push("seccomp: in force".to_owned());
    }
    if !weaken.off(Layer::Capabilities) {
        sys::drop_capabilities().step("give up all capabilities")?;
        layers.push("capabilities: none left".to_owned());
    }
    Ok(layers)
}

fn limits(setup: &Setup, weaken: &Weaken) -> Result<(), Failure> {
    let set = |resource, value: u64, what: &str| {
        let hard = nix::sys::resource::getrlimit(resource).map_or(value, |(_, hard)| hard.min(value));
        setrlimit(resource, hard, hard).step(format!("limit {what}"))
    };
    set(Resource::RLIMIT_CORE, NO_CORE, "core dumps")?;
    if weaken.off(Layer::Limits) {
        return Ok(());
    }
    set(Resource::RLIMIT_NOFILE, setup.limits.open_files, "open files")?;
    if setup.rlimits {
        set(Resource::RLIMIT_NPROC, setup.limits.processes, "processes")?;
        set(Resource::RLIMIT_DATA, setup.limits.memory, "memory")?;
    }
    Ok(())
}

fn landlock(writable: &[PathBuf], readable: &[PathBuf]) -> Result<String, Failure> {
    let abi = ABI::V9;
    let read = AccessFs::from_read(abi);
    // To connect to a socket that was not made inside is never granted, where the kernel can tell: it is the host's.
    let all = AccessFs::from_all(abi);
    let written = all & !AccessFs::ResolveUnix;
    let device: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let look: BitFlags<AccessFs> = AccessFs::ReadDir.into();
    let files = AccessFs::ReadFile | AccessFs::ReadDir;
    let existing =
        |paths: &[&str]| paths.iter().map(PathBuf::from).filter(|path| path.exists()).collect::<Vec<_>>();
    let result = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|set| set.scope(Scope::from_all(abi)))
        .and_then(Ruleset::create)
        .map(|set| set.no_new_privs(false))
        .and_then(|set| set.add_rules(path_beneath_rules([Path::new("/")], look)))
        .and_then(|set| set.add_rules(path_beneath_rules([Path::new("/proc")], files)))
        .and_then(|set| set.add_rules(path_beneath_rules(existing(&SYSTEM), read)))
        .and_then(|set| set.add_rules(path_beneath_rules(existing(&DEVICES), device)))
        .and_then(|set| set.add_rules(path_beneath_rules(readable, read)))
        .and_then(|set| set.add_rules(path_beneath_rules(writable, written)))
        .and_then(landlock::RulesetCreated::restrict_self);
    let status = result.map_err(|error| Failure::new("restrict files with Landlock", error.to_string()))?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => "landlock: in force".to_owned(),
        RulesetStatus::PartiallyEnforced => "landlock: in force, as far as this kernel has it".to_owned(),
        RulesetStatus::NotEnforced => "landlock: not in this kernel".to_owned(),
    })
}

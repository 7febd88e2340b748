//! Turns a process of the engine's user into one that can do less: no core, no new privileges, almost no capability.
//! It refuses to know what the process is for.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, geteuid, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

/// Gives up what can be given up, and says what.
///
/// # Errors
/// What must be given up and cannot.
pub(crate) fn give_up() -> std::io::Result<Vec<String>> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    set_no_new_privs(true)?;
    let kept = capabilities()?;
    Ok(vec![
        "broker: no core, not traceable, no new privileges".to_owned(),
        format!("broker: capabilities {kept}"),
    ])
}

/// The owner of a sandbox's user namespace may look into it without any; as root the files in `/proc` of another user's
/// processes need one, which reads and changes nothing.
fn capabilities() -> std::io::Result<&'static str> {
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // A number beyond the last one, or no right to: then the sets below are empty anyway and cannot grow.
        if remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
    let (keep, name) = if geteuid().is_root() {
        (CapabilitySet::DAC_READ_SEARCH, "DAC_READ_SEARCH only")
    } else {
        (CapabilitySet::empty(), "none")
    };
    // Kernels without ambient sets have nothing to clear.
    let _ = clear_ambient_capability_set();
    set_capabilities(
        None,
        CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() },
    )?;
    Ok(name)
}

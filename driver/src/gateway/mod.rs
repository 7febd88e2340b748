//! Turns OpenShell's gateway API into Linux namespaces, in this process and on this host.
//! It refuses to know turns; a sandbox is made, runs commands, and goes.

mod authority;
mod cgroup;
mod confine;
mod error;
mod etc;
mod init;
mod link;
mod mount;
mod namespace;
mod outlets;
mod own;
mod policies;
mod program;
mod protocol;
mod sandbox;
mod seccomp;
mod serve;
mod service;
pub(crate) mod socket;
mod stage;
mod store;
mod stream;
mod sync;
pub(crate) mod sys;
mod validate;
mod watch;
mod way;
mod weaken;

use std::process::ExitCode;

pub use error::GatewayError;
pub use serve::{Gateway, GatewayConfig, ServeConfig};

/// Takes over when this process was started as a sandbox's first one, or inside one to look at what it trusts; then the answer
/// is its exit code.
///
/// A binary that embeds the gateway asks this before anything else in its `main`, and before it starts a thread.
#[must_use]
pub fn role() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    if name.as_encoded_bytes() == namespace::INIT_NAME.to_bytes() {
        return Some(init::main());
    }
    crate::trust::role()
}

//! Turns the sockets that stand inside a sandbox into somebody's who answers on them.
//! It refuses to know who that is: whoever embeds the gateway brings it.

use std::{fmt, os::fd::OwnedFd, pin::Pin};

use policy::{egress::Document, seam::Role};

/// Where this binary always stands in a sandbox with ways out: in no directory of the host's. It is in `/usr/local/bin` too,
/// where that can be added to (N14).
pub const PROGRAM: &str = "/run/crucible";

/// Where an agent finds the broker's tools unless its manifest says otherwise: the name by which OpenShell's sandboxes know
/// their host, and a port beside the proxy's.
pub const BROKER: &str = "http://host.openshell.internal:3129";

/// An answer that is waited for.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// A sandbox's ways out, made inside its network namespace and not yet answered on.
#[derive(Debug)]
pub struct Outlets {
    /// The sandbox, unique in its gateway.
    pub id: String,
    /// The turn that records name.
    pub turn: String,
    /// What it may reach.
    pub policy: Document,
    /// The sockets of `policy::seam::sockets`.
    pub sockets: Vec<(Role, OwnedFd)>,
    /// The namespace's table of sockets, `/proc` and the root: what tells one program from another.
    pub inside: [OwnedFd; 3],
}

/// Whoever answers on the sockets of sandboxes: their only way out.
pub trait Network: fmt::Debug + Send + Sync {
    /// Takes the sockets over and answers from now on; the result is the hash of the policy in force. Called before the
    /// sandbox runs its first command; an error, which reads as what follows "failed to", ends the sandbox.
    fn attach(&self, outlets: Outlets) -> Answer<'_, String>;

    /// Ends what [`Network::attach`] began; all records of it are on the disk when this returns. An error says that
    /// nobody can tell what the sandbox reached.
    fn detach<'a>(&'a self, id: &'a str) -> Answer<'a, ()>;
}

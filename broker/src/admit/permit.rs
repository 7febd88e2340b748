//! Turns a yes into a value without which nothing is dialled.
//! It refuses to be made by anything but its parent module.

use std::net::SocketAddr;
use std::sync::Arc;

use policy::egress::Carry;
use policy::host::Target;
use policy::record::Address;
use tokio::time::Instant;

use crate::launch::Parent;

/// Leave to connect to one target. Only [`Sandbox::admit`] makes one.
#[derive(Debug)]
pub struct Permit {
    pub(super) target: Target,
    pub(super) carry: Carry,
    pub(super) route: Route,
    pub(super) since: Instant,
    pub(super) conn: u64,
}

/// How a permitted target is reached.
#[derive(Clone, Debug)]
pub enum Route {
    /// By one of these addresses, which were checked.
    Direct(Arc<[SocketAddr]>),
    /// Through the parent proxy, which resolves and checks the name.
    Parent(Parent),
}

impl Permit {
    /// Where it leads.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What may flow.
    pub fn carry(&self) -> Carry {
        self.carry
    }

    /// How it is reached.
    pub fn route(&self) -> &Route {
        &self.route
    }
}

impl Route {
    /// The addresses for a record.
    pub(super) fn addresses(&self) -> Vec<Address> {
        match self {
            Self::Direct(addresses) => {
                addresses.iter().map(|at| Address { ip: at.ip(), refused: None }).collect()
            }
            Self::Parent(_) => Vec::new(),
        }
    }
}

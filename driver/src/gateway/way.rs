//! Turns what a sandbox may reach into the sockets it needs, and the sockets into ones that somebody answers on.
//! It refuses to decide anything about reach.

use std::{os::fd::OwnedFd, path::Path, sync::Arc};

use policy::{
    egress::{Document, Egress},
    host::{Host, Target},
    seam::{self, Role},
};

use super::{
    error::GatewayError,
    protocol::{MOST_FDS, Ways},
};
use crate::network::{Network, Outlets};

/// Descriptors beside the sockets: two file systems, and the three that tell programs apart.
const OTHERS: usize = 5;
/// Where a system keeps all certificates that it trusts in one file.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-bundle.crt",
];

/// A sandbox's ways out before it stands.
pub(crate) struct WayOut {
    network: Arc<dyn Network>,
    policy: Document,
    egress: Egress,
    sockets: Vec<(Role, std::net::SocketAddr)>,
}

/// A sandbox's ways out while it stands.
pub(crate) struct Outlet {
    network: Arc<dyn Network>,
    id: String,
    /// The host of the broker's own URL, which goes past the proxy.
    own: Option<Host>,
}

impl WayOut {
    pub(crate) fn plan(host: &super::sandbox::Host, policy: &Document) -> Result<Self, GatewayError> {
        let Some(network) = host.network.clone() else {
            let why = "no broker runs here, so no network policy can be enforced";
            return Err(GatewayError::Refused(format!("give the sandbox a way out: {why}")));
        };
        let egress = policy.read().map_err(|error| GatewayError::Refused(error.to_string()))?;
        let sockets = seam::sockets(&egress);
        if sockets.len() + OTHERS > MOST_FDS {
            return Err(GatewayError::Refused(format!(
                "give the sandbox its ways out: they take {} sockets, and at most {} can be had",
                sockets.len(),
                MOST_FDS - OTHERS
            )));
        }
        Ok(Self { network, policy: policy.clone(), egress, sockets })
    }

    /// What the first process is to make.
    pub(crate) fn ways(&self) -> Ways {
        Ways {
            sockets: self.sockets.iter().map(|(role, at)| (role.is_datagram(), *at)).collect(),
            addresses: self.egress.addresses().into_iter().collect(),
            own_name: match self.egress.own() {
                Some((Target { host: Host::Name(name), .. }, _)) => Some(name.as_str().to_owned()),
                _ => None,
            },
        }
    }

    /// Hands over what the first process made; answers a line about it. Our copies of the sockets go with the call, so
    /// that nobody but who answers on them keeps them open.
    pub(crate) async fn open(
        self,
        (id, turn): (&str, &str),
        made: Vec<(usize, OwnedFd)>,
        inside: Vec<OwnedFd>,
    ) -> Result<(Outlet, String), GatewayError> {
        let inside = <[OwnedFd; 3]>::try_from(inside)
            .map_err(|_| GatewayError::Died(": it did not hand over its ways out".to_owned()))?;
        let role = |at: usize| self.sockets.get(at).map(|(role, _)| role.clone());
        let sockets = made.into_iter().filter_map(|(at, fd)| Some((role(at)?, fd))).collect();
        let outlets =
            Outlets { id: id.to_owned(), turn: turn.to_owned(), policy: self.policy, sockets, inside };
        let hash = self.network.attach(outlets).await.map_err(GatewayError::Network)?;
        let entries = self.egress.entries().len();
        let note = format!("egress: {entries} entries by the broker alone, policy {hash}");
        let own = self.egress.own().map(|(target, _)| target.host);
        Ok((Outlet { network: self.network, id: id.to_owned(), own }, note))
    }
}

impl Outlet {
    /// The variables of every command. Where the system has no bundle none is named.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let bundle = BUNDLES.into_iter().find(|path| Path::new(path).exists());
        let all = seam::environment(self.own.as_ref(), bundle.unwrap_or("\0")).into_iter();
        all.filter(|(_, value)| value != "\0").map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Takes the ways out away; every record of them is on the disk then.
    pub(crate) async fn close(self) -> Result<(), GatewayError> {
        self.network.detach(&self.id).await.map_err(GatewayError::Network)
    }
}

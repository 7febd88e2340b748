//! Turns what a sandbox may reach into the sockets it needs, and the sockets into ones that somebody answers on.
//! It refuses to decide anything about reach.

use std::{os::fd::OwnedFd, sync::Arc};

use policy::{
    egress::{Document, Egress},
    host::{Host, Target},
    seam::{self, Role},
};

use super::{
    error::GatewayError,
    protocol::{MOST_FDS, Trust, Ways},
};
use crate::{
    network::{Network, Outlets},
    trust,
    wire::config::DriverConfig,
};

/// Descriptors beside the sockets: two file systems, and the three that tell programs apart.
const OTHERS: usize = 5;

/// A sandbox's ways out before it stands.
pub(crate) struct WayOut {
    network: Arc<dyn Network>,
    policy: Document,
    egress: Egress,
    sockets: Vec<(Role, std::net::SocketAddr)>,
    trust: Option<Trust>,
}

/// A sandbox's ways out while it stands.
pub(crate) struct Outlet {
    network: Arc<dyn Network>,
    id: String,
    /// Whether there is a bundle of certificates.
    trusts: bool,
    /// The host of the broker's own URL, which goes past the proxy.
    own: Option<Host>,
}

impl WayOut {
    /// `None` where nothing is asked for.
    pub(crate) fn plan(
        host: &super::sandbox::Host,
        config: &DriverConfig,
    ) -> Result<Option<Self>, GatewayError> {
        let Some(policy) = &config.egress else { return Ok(None) };
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
        let added = config.certificates.clone().unwrap_or_default();
        let trust = Trust { system: trust::system(), added };
        let trust = Some(trust).filter(|trust| trust.system.is_some() || !trust.added.is_empty());
        Ok(Some(Self { network, policy: policy.clone(), egress, sockets, trust }))
    }

    /// What the first process is to make.
    pub(crate) fn ways(&self) -> Ways {
        Ways {
            sockets: self.sockets.iter().map(|(role, at)| (role.is_datagram(), *at)).collect(),
            addresses: self.egress.addresses().into_iter().collect(),
            trust: self.trust.clone(),
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
        let entries = if entries == 1 { "1 entry".to_owned() } else { format!("{entries} entries") };
        let note = format!("egress: {entries} by the broker alone, policy {hash}");
        let own = self.egress.own().map(|(target, _)| target.host);
        let trusts = self.trust.is_some();
        Ok((Outlet { network: self.network, id: id.to_owned(), trusts, own }, note))
    }
}

impl Outlet {
    /// The variables of every command. Where nothing is trusted, none leads to a bundle.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (String, String)> {
        let all = seam::environment(self.own.as_ref(), seam::BUNDLE_PATH).into_iter();
        let told = move |name: &str| self.trusts || !seam::BUNDLE.contains(&name);
        all.filter(move |(name, _)| told(name)).map(|(name, value)| (name.to_owned(), value))
    }

    /// Takes the ways out away; every record of them is on the disk then.
    pub(crate) async fn close(self) -> Result<(), GatewayError> {
        self.network.detach(&self.id).await.map_err(GatewayError::Network)
    }
}

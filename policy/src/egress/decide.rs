//! Turns who wants to connect where, and how, into a grant of one entry or a denial with its reason.
//! It refuses to know names' addresses until they are asked about, and never resolves one.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::binary::Caller;
use super::resolve::{Egress, Entry};
use crate::access::{Enforcement, Protocol};
use crate::host::Target;
use crate::ip::{Class, classify};
use crate::reason::Reason;

/// The way by which a connection came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A tunnel through the proxy.
    Connect,
    /// A plain HTTP request in absolute form through the proxy.
    Forward,
    /// A connection that knows no proxy.
    Transparent,
    /// A connection to a listener of an entry that names loopback.
    Loopback,
    /// A request to the broker itself.
    Own,
    /// A question for a name.
    Name,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// How it came in.
    pub way: Way,
    /// Where it wants to go.
    pub target: &'a Target,
    /// Who wants it.
    pub caller: &'a Caller,
    /// The method of a plain HTTP request, once it is known.
    pub method: Option<&'a str>,
}

/// What may flow after a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Anything.
    Raw,
    /// TLS whose SNI equals the target.
    Tls,
    /// Plain HTTP requests for the target.
    Http,
    /// Either, as the first bytes tell.
    TlsOrHttp,
}

/// A yes, by one entry.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The entry that decided.
    pub entry: &'a Entry,
    /// What may flow.
    pub carry: Carry,
    /// What an entry that only audits let pass.
    pub audited: Option<Reason>,
}

/// A no, with the entry that decided where one did.
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    /// Why.
    pub reason: Reason,
    /// The most specific entry for the target, if there is one.
    pub entry: Option<&'a Entry>,
}

impl Egress {
    /// Decides. The most specific entry for the target's host and port decides alone: the exact host, then the longest
    /// suffix; among equals the first that grants. Without one the answer is no.
    ///
    /// # Errors
    /// The denial.
    pub fn decide(&self, ask: &Ask<'_>) -> Result<Grant<'_>, Denial<'_>> {
        let mut reason = Reason::HostNotListed;
        let found = self.index.find(&ask.target.host, |rows| {
            reason = Reason::PortNotListed;
            let entries = rows.iter().filter_map(|row| self.entry(*row));
            let mut refused = None;
            for entry in entries.filter(|entry| entry.endpoint.port == ask.target.port) {
                match weigh(entry, ask) {
                    Ok(grant) => return Some(Ok(grant)),
                    Err(reason) => refused = refused.or(Some(Denial { reason, entry: Some(entry) })),
                }
            }
            refused.map(Err)
        });
        found.unwrap_or(Err(Denial { reason, entry: None }))
    }
}

/// What one entry for the target says.
pub(super) fn weigh<'a>(entry: &'a Entry, ask: &Ask<'_>) -> Result<Grant<'a>, Reason> {
    if entry.is_own() && ask.way != Way::Own {
        return Err(Reason::OwnUrl);
    }
    entry.binaries.admit(ask.caller)?;
    let endpoint = &entry.endpoint;
    let carry = match (endpoint.protocol, ask.way) {
        (Some(Protocol::Websocket), _) | (Some(Protocol::Rest), Way::Connect) => {
            return Err(Reason::NeedsTermination);
        }
        (Some(Protocol::Rest) | None | Some(Protocol::Tcp), Way::Forward | Way::Own | Way::Name)
        | (Some(Protocol::Rest), Way::Transparent | Way::Loopback) => Carry::Http,
        (Some(Protocol::Tcp), Way::Connect | Way::Transparent | Way::Loopback) => Carry::Raw,
        (None, Way::Connect) => Carry::Tls,
        (None, Way::Transparent | Way::Loopback) => Carry::TlsOrHttp,
    };
    let covered = ask.method.is_none_or(|method| endpoint.access.covers(method));
    let audited = (!covered).then_some(Reason::MethodNotCovered);
    match (audited, endpoint.enforcement) {
        (Some(reason), Enforcement::Enforce) => Err(reason),
        _ => Ok(Grant { entry, carry, audited }),
    }
}

/// Whether an address that the target's name led to may be dialled under an entry (N13).
///
/// # Errors
/// The reason why not.
pub fn address(entry: &Entry, address: IpAddr) -> Result<(), Reason> {
    let (private, loopback) = entry.addresses();
    match classify(address) {
        Class::Public => Ok(()),
        Class::Private if private => Ok(()),
        Class::Loopback if loopback => Ok(()),
        Class::Private => Err(Reason::AddressPrivate),
        Class::Loopback => Err(Reason::AddressLoopback),
        Class::LinkLocal => Err(Reason::AddressLinkLocal),
        Class::Metadata => Err(Reason::AddressMetadata),
        Class::Reserved => Err(Reason::AddressReserved),
    }
}

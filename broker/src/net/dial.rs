//! Turns a permit into a connection to one of its addresses, or through the parent proxy.
//! It refuses to dial anything else: a permit is the only argument that says where to.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use policy::host::{Host, Target};
use policy::reason::Reason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::admit::{Permit, Route};
use crate::core::response;
use crate::launch::Parent;
use crate::limits::Limits;
use crate::outside::Outside;

/// How long one address may take before the next is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);
/// The longest head of a parent's answer.
const PARENT_HEAD: usize = 16 * 1024;

/// Connects.
///
/// # Errors
/// `unreachable`, `dial-late`, `parent-refused`.
pub(crate) async fn dial(
    permit: &Permit,
    outside: &Arc<dyn Outside>,
    limits: &Limits,
) -> Result<TcpStream, Reason> {
    reach(permit.route(), permit.target(), outside, limits).await
}

/// Connects the broker itself by a route that was checked (row 36).
///
/// # Errors
/// As [`dial`].
pub(crate) async fn reach(
    route: &Route,
    target: &Target,
    outside: &Arc<dyn Outside>,
    limits: &Limits,
) -> Result<TcpStream, Reason> {
    let connecting = async {
        match route {
            Route::Direct(addresses) => race(addresses, outside).await,
            Route::Parent(parent) => through(parent, target, outside).await,
        }
    };
    let stream =
        timeout(Limits::time(limits.dial_timeout), connecting).await.map_err(|_| Reason::DialLate)??;
    // A stream that keeps small writes back is only slower.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// The first of the addresses that answers, each begun a little after the one before, families in turn (row 18).
async fn race(addresses: &[SocketAddr], outside: &Arc<dyn Outside>) -> Result<TcpStream, Reason> {
    let mut left = interleaved(addresses).into_iter();
    let mut trying = JoinSet::new();
    loop {
        if let Some(address) = left.next() {
            let outside = Arc::clone(outside);
            trying.spawn(async move { outside.connect(address).await });
        }
        let wait = if left.len() == 0 { Duration::MAX } else { STAGGER };
        match timeout(wait.min(Duration::from_secs(86_400)), trying.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(None) if left.len() == 0 => return Err(Reason::Unreachable),
            // Failed or late: the next one now.
            _ => {}
        }
    }
}

fn interleaved(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let (mut six, mut four): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(SocketAddr::is_ipv6);
    six.reverse();
    four.reverse();
    let mut out = Vec::with_capacity(addresses.len());
    while !six.is_empty() || !four.is_empty() {
        out.extend(six.pop());
        out.extend(four.pop());
    }
    out
}

/// A tunnel through the parent, which is told the name (row 95).
async fn through(parent: &Parent, target: &Target, outside: &Arc<dyn Outside>) -> Result<TcpStream, Reason> {
    let at = Target::parse(&parent.target).map_err(|_| Reason::ParentRefused)?;
    let addresses: Vec<IpAddr> = match &at.host {
        Host::Ip(address) => vec![*address],
        Host::Name(name) => outside.resolve(name).await.map_err(|_| Reason::ParentRefused)?,
    };
    let addresses: Vec<SocketAddr> =
        addresses.into_iter().map(|ip| SocketAddr::new(ip, at.port.get())).collect();
    let mut stream = race(&addresses, outside).await.map_err(|_| Reason::ParentRefused)?;
    let authorization =
        parent.authorization.as_ref().map(|value| format!("Proxy-Authorization: {value}\r\n"));
    let ask =
        format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{}\r\n", authorization.unwrap_or_default());
    stream.write_all(ask.as_bytes()).await.map_err(|_| Reason::ParentRefused)?;
    let mut buf = Vec::new();
    loop {
        // One byte at a time at the end would be exact; a parent must not speak before it is asked, so more is refused.
        let count = stream.read_buf(&mut buf).await.map_err(|_| Reason::ParentRefused)?;
        match response::read(&buf, "CONNECT", PARENT_HEAD).map_err(|_| Reason::ParentRefused)? {
            Some((head, end)) if (200..300).contains(&head.status) && end == buf.len() => return Ok(stream),
            Some(_) => return Err(Reason::ParentRefused),
            None if count == 0 => return Err(Reason::ParentRefused),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let all = [at("1.1.1.1:1"), at("2.2.2.2:1"), at("[2001::1]:1")];
        assert_eq!(interleaved(&all), [at("[2001::1]:1"), at("1.1.1.1:1"), at("2.2.2.2:1")]);
    }
}

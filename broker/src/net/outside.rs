//! Turns a name into its addresses and an address into a connection, on the host's side.
//! It refuses to know whether it may: a permit is asked for before.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use policy::host::Name;
use tokio::net::TcpStream;

/// What takes its time.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// The two things that leave the broker. Tests put their own in.
pub trait Outside: Send + Sync + 'static {
    /// Every address of a name.
    fn resolve<'a>(&'a self, name: &'a Name) -> Later<'a, Vec<IpAddr>>;

    /// A connection to an address.
    fn connect(&self, address: SocketAddr) -> Later<'_, TcpStream>;
}

/// The host's own resolver and network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl Outside for Host {
    fn resolve<'a>(&'a self, name: &'a Name) -> Later<'a, Vec<IpAddr>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }

    fn connect(&self, address: SocketAddr) -> Later<'_, TcpStream> {
        Box::pin(TcpStream::connect(address))
    }
}

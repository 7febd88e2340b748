//! Turns a resolved list into the sockets that must stand inside a sandbox, by role and address.
//! It refuses to know how they are made and passed.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::egress::Egress;
use crate::host::Host;

/// Where the proxy listens inside a sandbox.
pub const PROXY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);
/// Where names are answered inside a sandbox, over UDP and TCP.
pub const NAMES: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 53);
/// The network whose addresses are given to names; all of it is local to the sandbox.
pub const SYNTHETIC: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);
/// A name that no policy may let through: what the self-test tries.
pub const CANARY: &str = "canary.crucible.invalid";

/// What a socket inside a sandbox is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Role {
    /// The proxy; TCP.
    Proxy,
    /// Names over UDP.
    NamesUdp,
    /// Names over TCP.
    NamesTcp,
    /// Connections to any address at this port; TCP.
    Transparent {
        /// The port.
        port: u16,
    },
    /// An entry that names loopback; TCP.
    Loopback {
        /// The target of the entry, `host:port`.
        target: String,
    },
    /// The broker's own URL; TCP.
    Own {
        /// Its `host:port`.
        target: String,
    },
}

impl Role {
    /// Whether the socket is UDP, bound; every other is TCP and listens.
    pub fn is_datagram(&self) -> bool {
        *self == Self::NamesUdp
    }
}

/// The sockets that a sandbox with this list needs, each with the address to bind.
pub fn sockets(egress: &Egress) -> Vec<(Role, SocketAddr)> {
    let mut all = vec![(Role::Proxy, PROXY), (Role::NamesUdp, NAMES), (Role::NamesTcp, NAMES)];
    let anywhere = |port: u16| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
    let ports = egress.transparent_ports().into_iter().map(|port| port.get());
    all.extend(ports.map(|port| (Role::Transparent { port }, anywhere(port))));
    let local = egress.loopback_listeners().into_iter();
    all.extend(local.map(|(at, target)| (Role::Loopback { target: target.to_string() }, at)));
    all.extend(egress.own().map(|(target, at)| {
        (Role::Own { target: target.to_string() }, SocketAddr::new(at, target.port.get()))
    }));
    all
}

/// Variables by which programs find a bundle of certificates; no single one serves all (row 68).
const BUNDLE: [&str; 10] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
];
/// Variables by which programs find the proxy, in both of the cases that are in use.
const TO_PROXY: [&str; 6] =
    ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
/// Variables that name what goes past it.
const PAST: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// The variables of every program in a sandbox whose bundle of certificates, the system's and the manifest's `ca_file`
/// together, stands at `bundle`. `own` is the host of the broker's own URL: the only thing past the proxy, because an entry
/// that names loopback must stay reachable through it (row 72). What a sandbox has under these names from elsewhere is
/// overwritten, never kept.
pub fn environment(own: Option<&Host>, bundle: &str) -> Vec<(&'static str, String)> {
    let proxy = format!("http://{PROXY}");
    // Bare names are what every client reads alike (row 71).
    let past = own.map(ToString::to_string).unwrap_or_default();
    let mut all: Vec<(&'static str, String)> = TO_PROXY.iter().map(|name| (*name, proxy.clone())).collect();
    all.extend(PAST.iter().map(|name| (*name, past.clone())));
    all.extend(BUNDLE.iter().map(|name| (*name, bundle.to_owned())));
    all.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::{BrokerUrl, Declared, Egress};
    use crate::endpoint::Endpoint;

    #[test]
    fn every_way_in_has_its_socket() {
        let endpoints = ["a.example:443:full", "*.b.example:443:full", "127.0.0.1:5173:full"];
        let endpoints = endpoints.iter().map(|text| Endpoint::parse(text).unwrap()).collect();
        let own = BrokerUrl::parse("http://broker.internal:8080").unwrap().plumbing();
        let egress = Egress::resolve(&Declared { endpoints, ..Declared::default() }, &[own]);
        let all = sockets(&egress);
        let shown: Vec<String> =
            all.iter().map(|(role, at)| format!("{} {at}", serde_json::to_string(role).unwrap())).collect();
        assert_eq!(
            shown,
            [
                "\"proxy\" 127.0.0.1:3128",
                "\"names-udp\" 127.0.0.1:53",
                "\"names-tcp\" 127.0.0.1:53",
                "{\"transparent\":{\"port\":443}} 0.0.0.0:443",
                "{\"loopback\":{\"target\":\"127.0.0.1:5173\"}} 127.0.0.1:5173",
                "{\"own\":{\"target\":\"broker.internal:8080\"}} 127.0.0.1:8080",
            ]
        );
    }

    #[test]
    fn rows_68_71_72_every_client_finds_proxy_and_bundle_and_loopback_is_not_past_it() {
        let own = Host::parse("broker.internal").unwrap();
        let all = environment(Some(&own), "/etc/ssl/certs/ca-certificates.crt");
        let of = |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        assert_eq!(of("HTTPS_PROXY"), Some("http://127.0.0.1:3128"));
        assert_eq!(of("NO_PROXY"), Some("broker.internal"));
        assert_eq!(of("NODE_EXTRA_CA_CERTS"), Some("/etc/ssl/certs/ca-certificates.crt"));
        let names: std::collections::HashSet<_> = all.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), all.len(), "each is set once");
        assert!(environment(None, "/x").iter().any(|(name, value)| *name == "no_proxy" && value.is_empty()));
    }
}

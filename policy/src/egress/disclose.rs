//! Turns the resolved list into what a pack discloses about its reach (note N5), from the same value that is provisioned.
//! It refuses to know the other kinds of capability.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::lint::cannot_work;
use super::resolve::{Egress, Entry, Source};
use crate::endpoint::{Endpoint, EndpointError};

/// One reach of a sandbox, as the exposure document has it beside its `kind`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disclosed {
    /// A name, a wildcard or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// `full`, `read-only` or `read-write`.
    pub access: String,
    /// `rest`, `websocket`, `tcp`, or null.
    pub protocol: Option<String>,
    /// `enforce` or `audit`.
    pub enforcement: String,
    /// `builtin`, `manifest` or `engine`.
    pub source: String,
    /// Whether the manifest names a built-in host as well, so that it may lead to a private address (N13).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub named: bool,
    /// Why nothing comes through it in this build, where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
}

/// Every entry in the order of the list, which is the same for the same manifest.
pub fn disclosed(egress: &Egress) -> Vec<Disclosed> {
    egress.entries().iter().map(Disclosed::of).collect()
}

impl Disclosed {
    /// The entry in the manifest's grammar, without its source.
    ///
    /// # Errors
    /// When it is none.
    pub fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        Endpoint::parse(&self.to_string())
    }

    fn of(entry: &Entry) -> Self {
        let endpoint = &entry.endpoint;
        Self {
            host: endpoint.pattern.to_string(),
            port: endpoint.port.get(),
            access: endpoint.access.to_string(),
            protocol: endpoint.protocol.map(|protocol| protocol.to_string()),
            enforcement: endpoint.enforcement.to_string(),
            source: entry.source.label().to_owned(),
            named: entry.named && matches!(entry.source, Source::Builtin(_)),
            unreachable: cannot_work(entry).map(str::to_owned),
        }
    }
}

impl fmt::Display for Disclosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}:{}", self.host, self.port, self.access)?,
            false => write!(f, "{}:{}:{}", self.host, self.port, self.access)?,
        }
        // An access that implies its protocol is written without it, and so is what is enforced anyhow.
        let audits = self.enforcement != "enforce";
        match &self.protocol {
            Some(protocol) if audits => write!(f, ":{protocol}:{}", self.enforcement),
            Some(protocol) if self.access == "full" => write!(f, ":{protocol}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::{BinaryPath, BrokerUrl, Declared};
    use crate::endpoint::Endpoint;

    #[test]
    fn every_entry_is_disclosed_with_its_source_and_what_it_cannot_do() {
        let endpoints = ["github.com:443:full", "r.example:443:read-only:rest:audit"];
        let endpoints = endpoints.iter().map(|text| Endpoint::parse(text).unwrap()).collect();
        let binaries = vec![BinaryPath::parse("/usr/bin/curl").unwrap()];
        let declared = Declared { endpoints, binaries, inherit_defaults: false };
        let broker = BrokerUrl::parse("http://broker.internal:8080").unwrap().plumbing();
        let all = disclosed(&Egress::resolve(&declared, &[broker]));
        let shown: Vec<_> = all
            .iter()
            .map(|one| (one.host.as_str(), one.source.as_str(), one.unreachable.is_some()))
            .collect();
        assert_eq!(
            shown,
            [
                ("github.com", "manifest", false),
                ("r.example", "manifest", true),
                ("broker.internal", "engine", false)
            ]
        );
        let json = serde_json::to_value(&all[0]).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"host": "github.com", "port": 443, "access": "full", "protocol": null,
                "enforcement": "enforce", "source": "manifest"})
        );
    }
}

//! Turns `[agent.broker]` into whether the broker serves tools to the agent, and where (contract §6.1, note N14).
//! It refuses to know which tools there are.

use std::ops::Range;

use driver::network;
use policy::egress::{BrokerUrl, BrokerUrlError};
use policy::seam::{NAMES, PROXY};

use super::At;
use super::error::Sink;
use super::keys::{Key, Kind, Table};
use super::section::Section;

/// What can be wrong with `[agent.broker]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// Not a URL that could be served.
    #[error("[agent.broker].url cannot be used: {0}")]
    Url(BrokerUrlError),
    /// TLS, for which the broker has no certificate.
    #[error(
        "[agent.broker].url is https: inside a sandbox the broker speaks plain HTTP, and nothing of it leaves the sandbox"
    )]
    Secure,
    /// A port where a sandbox has another listener.
    #[error("[agent.broker].url has the port {port}, where a sandbox has {what}")]
    Taken {
        /// The port.
        port: u16,
        /// What listens there.
        what: &'static str,
    },
    /// A face with nobody who could see it.
    #[error(
        "[agent.broker] goes with backend = \"openshell\": the broker's tools are served inside a sandbox"
    )]
    NoSandbox,
}

/// `[agent.broker]`.
pub(super) static TABLE: Table = Table {
    path: "agent.broker",
    doc: "The broker's second face: the tools that it serves to the agent, inside the sandbox alone. Its first face, the only \
          way out of a sandbox, is always there.",
    keys: &[
        Key::optional(
            "enabled",
            Kind::Flag,
            "false",
            "Whether tools are served. It adds the broker's own entry to what the sandbox reaches, whatever \
             `inherit_defaults` says.",
        ),
        Key::optional(
            "url",
            Kind::Text,
            "\"http://host.openshell.internal:3129\"",
            "Where the agent finds them, `http://host[:port]`; without a port it is 80. A listener inside the sandbox answers \
             at exactly this host and port.",
        ),
        Key::absent("bin", "runs its own broker only: what another program would have to do is not defined"),
    ],
    rules: &[],
    example: "[agent.broker]\nenabled = true\n",
};

impl BrokerError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Url(_) | Self::Secure => {
                "write http:// and a host, such as \"http://broker.internal:8080\""
            }
            Self::Taken { .. } => "write another port",
            Self::NoSandbox => "remove it, or write backend = \"openshell\" for a sandbox",
        };
        Some(hint.to_owned())
    }
}

/// Reads the table that stands at `at`; the answer is where the tools are served, if they are.
pub(super) fn decode(
    section: &Section<'_>,
    sandboxed: bool,
    at: &Range<usize>,
    sink: &mut Sink,
) -> Option<BrokerUrl> {
    let url = section.parse("url", sink, parse_url);
    let enabled = section.flag("enabled").is_some_and(|flag| flag.value);
    if let (Some(At { span, .. }), false) = (&url, enabled) {
        sink.warn(
            span.clone(),
            "[agent.broker].url has no effect",
            "write enabled = true to serve tools there",
        );
    }
    if !enabled {
        return None;
    }
    if !sandboxed {
        sink.put(at.clone(), BrokerError::NoSandbox);
    }
    url.map(|url| url.value).or_else(|| BrokerUrl::parse(network::BROKER).ok())
}

fn parse_url(text: &str) -> Result<BrokerUrl, BrokerError> {
    let url = BrokerUrl::parse(text).map_err(BrokerError::Url)?;
    if url.secure {
        return Err(BrokerError::Secure);
    }
    let taken = [(PROXY.port(), "its proxy"), (NAMES.port(), "its names")];
    match taken.into_iter().find(|(port, _)| *port == url.target.port.get()) {
        Some((port, what)) => Err(BrokerError::Taken { port, what }),
        None => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Presence;
    use super::*;

    #[test]
    fn a_url_is_one_that_a_sandbox_can_serve() {
        for (text, target) in [
            ("http://broker.internal:8080", "broker.internal:8080"),
            ("http://broker.internal/mcp", "broker.internal:80"),
            (network::BROKER, "host.openshell.internal:3129"),
        ] {
            assert_eq!(parse_url(text).unwrap().target.to_string(), target, "{text}");
        }
        for (text, said) in [
            ("https://broker.internal", "is https"),
            ("http://broker.internal:3128", "its proxy"),
            ("http://broker.internal:53", "its names"),
            ("broker.internal:80", "starts with http:// or https://"),
            ("http://user@broker.internal", "no host and port"),
        ] {
            let error = parse_url(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let Presence::Optional(documented) = TABLE.key("url").unwrap().presence else { panic!() };
        assert_eq!(documented, format!("\"{}\"", network::BROKER));
    }
}

//! Turns a text into the URL of a model's endpoint, with the host and port that are to be reached.
//! It refuses to know what is sent there.

use std::fmt;

use crate::endpoint::never;
use crate::host::{Host, HostError, Port, Target};

/// The longest URL, in bytes.
const URL_MAX: usize = 512;

/// An absolute `http` or `https` URL with a host, without credentials, query or fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferenceUrl {
    text: String,
    target: Target,
}

/// Why a text is no such URL. The text is not shown: it may hold credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    /// More than a URL.
    #[error("is {0} bytes long: it has at most {URL_MAX}")]
    Long(usize),
    /// Blanks, control characters, quotes, or what is not ASCII.
    #[error("holds a character that no URL has")]
    Character,
    /// Neither `http` nor `https`.
    #[error("does not begin with http:// or https://")]
    Scheme,
    /// A user or a password.
    #[error("holds credentials: a key goes into the variable that `key_env` names")]
    Credentials,
    /// What stands behind `?` or `#`.
    #[error(
        "holds a query or a fragment: an endpoint ends with its path, and a key goes into the variable that `key_env` names"
    )]
    Query,
    /// No host and port.
    #[error("has no host and port that can be used: {0}")]
    Host(HostError),
    /// An address that is never reached (note N13).
    #[error(
        "leads to an address that is never reached: link-local, metadata, unspecified, multicast or reserved"
    )]
    Never,
}

impl InferenceUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// See [`UrlFault`].
    pub fn parse(text: &str) -> Result<Self, UrlFault> {
        if text.len() > URL_MAX {
            return Err(UrlFault::Long(text.len()));
        }
        let odd =
            |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'\'' | b'\\' | b'<' | b'>' | b'`');
        if text.bytes().any(odd) {
            return Err(UrlFault::Character);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlFault::Scheme)?;
        let default = match scheme.to_ascii_lowercase().as_str() {
            "http" => Port::HTTP,
            "https" => Port::HTTPS,
            _ => return Err(UrlFault::Scheme),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(UrlFault::Credentials);
        }
        if rest.contains(['?', '#']) {
            return Err(UrlFault::Query);
        }
        let target = Target::parse_or(authority, default).map_err(UrlFault::Host)?;
        match target.host {
            Host::Ip(address) if never(address) => Err(UrlFault::Never),
            _ => Ok(Self { text: text.to_owned(), target }),
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host and port; without a port the scheme's.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl fmt::Display for InferenceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

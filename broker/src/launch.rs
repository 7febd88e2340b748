//! Turns the one document that the child is started with into its configuration.
//! It refuses to know the environment: only the bounds of writes are read from it, in `project`.

use std::fmt;
use std::path::PathBuf;

use policy::host::{Port, Target};
use policy::record::Head;
use serde::{Deserialize, Serialize};

use crate::core::hello::Tolerance;
use crate::limits::Limits;
use crate::systems::Systems;

/// The version of [`Launch`].
pub const VERSION: u32 = 1;

/// What the child is told, once, over descriptor 0; the audit file's descriptor comes beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// [`VERSION`].
    pub version: u32,
    /// What each sandbox may use.
    #[serde(default)]
    pub limits: Limits,
    /// How strict TLS hellos are judged.
    #[serde(default)]
    pub tolerance: Tolerance,
    /// The host's own way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// `NO_PROXY` of the host: what is dialled directly although there is a parent.
    #[serde(default)]
    pub no_proxy: String,
    /// Certificates, in PEM, that the child's own calls trust beside the system's (N11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Where writes are recorded and to which systems they go. Their bounds are in the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Writes>,
    /// Values that no record may show.
    #[serde(default)]
    pub secrets: Secrets,
    /// Whether a refusal is on the disk before it is answered, or only in the kernel's hands.
    #[serde(default = "yes")]
    pub durable: bool,
    /// Where the audit file ends, when it has lines already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
}

fn yes() -> bool {
    true
}

/// The chokepoint of the run's writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    /// `state/outputs.jsonl`.
    pub ledger: PathBuf,
    /// `state/outbox`.
    pub outbox: PathBuf,
    /// The systems that writes go to; what is absent is staged.
    #[serde(default)]
    pub systems: Systems,
}

/// Values that no `Debug` shows.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(pub Vec<String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// A parent proxy that takes CONNECT (row 95). It resolves and checks names itself, and the record says so.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// Its host and port.
    pub target: String,
    /// The value of `Proxy-Authorization`, where it wants one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<String>,
}

impl fmt::Debug for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parent({})", self.target)
    }
}

impl Default for Launch {
    fn default() -> Self {
        Self {
            version: VERSION,
            limits: Limits::default(),
            tolerance: Tolerance::default(),
            parent: None,
            no_proxy: String::new(),
            ca: None,
            writes: None,
            secrets: Secrets::default(),
            durable: true,
            head: None,
        }
    }
}

/// Why a proxy URL of the host cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use the host's proxy: its URL is not http://[user:password@]host[:port]")]
pub struct ParentError;

impl Parent {
    /// Reads `http://[user:password@]host[:port]`, as `HTTPS_PROXY` holds it; `encode` makes base64.
    ///
    /// # Errors
    /// Another scheme, or no host.
    pub fn from_url(url: &str, encode: impl FnOnce(&[u8]) -> String) -> Result<Self, ParentError> {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        if rest.contains("://") {
            return Err(ParentError);
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let target = Target::parse_or(host, Port::HTTP).map_err(|_| ParentError)?;
        let authorization = user.map(|user| format!("Basic {}", encode(&percent_decoded(user))));
        Ok(Self { target: target.to_string(), authorization })
    }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut after = bytes.clone();
        let hex =
            |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (byte, hex(after.next()), hex(after.next())) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                bytes = after;
            }
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_91_a_parent_s_password_is_read_and_never_shown() {
        let parent = Parent::from_url("http://me:p%40ss@proxy.example:3128/", |bytes| {
            String::from_utf8_lossy(bytes).into_owned()
        });
        let parent = parent.unwrap();
        assert_eq!(parent.target, "proxy.example:3128");
        assert_eq!(parent.authorization.as_deref(), Some("Basic me:p@ss"));
        let launch =
            Launch { parent: Some(parent), secrets: Secrets(vec!["canary".to_owned()]), ..Launch::default() };
        let shown = format!("{launch:?}");
        assert!(!shown.contains("p@ss") && !shown.contains("canary"), "{shown}");
        assert!(Parent::from_url("socks5://proxy.example", |_| String::new()).is_err());
        assert_eq!(Parent::from_url("proxy.example", |_| String::new()).unwrap().target, "proxy.example:80");
    }

    #[test]
    fn a_document_of_another_shape_is_refused() {
        let text = serde_json::to_string(&Launch::default()).unwrap();
        assert_eq!(serde_json::from_str::<Launch>(&text).unwrap(), Launch::default());
        assert!(serde_json::from_str::<Launch>(&text.replace("\"limits\"", "\"limit\"")).is_err());
    }
}

//! Turns what can go wrong with a system into a typed failure, and into whether a write may have happened all the same.
//! It refuses to show a credential: only numbers, hosts and our own words are in a failure.

use policy::reason::Reason;

/// What went wrong. Reads as what follows "failed to".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The connection could not be made.
    #[error("reach {0}: {1}")]
    Unreachable(String, Reason),
    /// Its certificate or its TLS.
    #[error("trust {0}: its TLS certificate is not one that is trusted here")]
    Tls(String),
    /// 401.
    #[error("use {0}: it does not accept the credential (401)")]
    Credential(String),
    /// 403.
    #[error("use {0}: the credential may not do this (403)")]
    Forbidden(String),
    /// 404 or 410.
    #[error("find the target at {0} ({1})")]
    Absent(String, u16),
    /// 409 or 422: something stands in the way.
    #[error("write at {0}: it conflicts with what is there ({1})")]
    Conflict(String, u16),
    /// 429, or the like.
    #[error("use {host}: too many requests{}", .wait.map(|secs| format!("; try again in {secs} seconds")).unwrap_or_default())]
    Pace {
        /// The host.
        host: String,
        /// How long to wait, where it says.
        wait: Option<u64>,
    },
    /// 5xx.
    #[error("use {0}: it failed ({1})")]
    Server(String, u16),
    /// A redirect, which is not followed with a credential.
    #[error(
        "use {host}: it leads elsewhere, to {to}, and credentials do not follow; the target may have been renamed or moved"
    )]
    Redirect {
        /// The host.
        host: String,
        /// Host and port that it leads to.
        to: String,
    },
    /// Another status.
    #[error("use {0}: it answered {1}")]
    Status(String, u16),
    /// The connection ended before the answer was whole.
    #[error("hear the answer of {0}: the connection ended")]
    Lost(String),
    /// No answer in time.
    #[error("hear the answer of {0} in time")]
    Late(String),
    /// More than is read.
    #[error("take the answer of {0}: it has more than {1} bytes")]
    TooLarge(String, usize),
    /// What came is not what the system's protocol says.
    #[error("understand the answer of {0}: {1}")]
    Malformed(String, &'static str),
    /// The rule of derived layers (contract §3.1).
    #[error("{0}")]
    Layer(&'static str),
}

/// A fault, and what is known about the write that it interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What went wrong.
    pub fault: Fault,
    /// Whether certainly nothing was written.
    pub nothing: bool,
}

impl Trouble {
    /// Nothing was written.
    pub fn nothing(fault: Fault) -> Self {
        Self { fault, nothing: true }
    }

    /// What a status means for the request that it answers: a 5xx may come after the deed.
    pub fn of_status(host: &str, status: u16, wait: Option<u64>, location: Option<&str>) -> Self {
        let host = host.to_owned();
        let fault = match status {
            300..=399 => Fault::Redirect { host, to: place(location) },
            401 => Fault::Credential(host),
            403 | 429 if wait.is_some() || status == 429 => Fault::Pace { host, wait },
            403 => Fault::Forbidden(host),
            404 | 410 => Fault::Absent(host, status),
            409 | 412 | 422 => Fault::Conflict(host, status),
            500..=599 => Fault::Server(host, status),
            _ => Fault::Status(host, status),
        };
        Self { nothing: status < 500, fault }
    }
}

/// The host of a location, without its path, which may hold anything.
fn place(location: Option<&str>) -> String {
    let Some(location) = location else { return "nowhere that it names".to_owned() };
    match crate::systems::url::Url::parse(location) {
        Ok(url) => url.authority(),
        Err(_) => "another path".to_owned(),
    }
}

impl Fault {
    /// The stable token.
    pub fn token(&self) -> &'static str {
        match self {
            Self::Unreachable(..) => "unreachable",
            Self::Tls(_) => "tls",
            Self::Credential(_) => "credential-refused",
            Self::Forbidden(_) => "forbidden",
            Self::Absent(..) => "absent",
            Self::Conflict(..) => "conflict",
            Self::Pace { .. } => "too-many-requests",
            Self::Server(..) => "server-failed",
            Self::Redirect { .. } => "leads-elsewhere",
            Self::Status(..) => "unexpected-status",
            Self::Lost(_) => "reply-lost",
            Self::Late(_) => "late",
            Self::TooLarge(..) => "too-large",
            Self::Malformed(..) => "malformed",
            Self::Layer(_) => "layer",
        }
    }
}

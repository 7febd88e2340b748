//! Turns what a connection wants into a question that can be decided.
//! It refuses to decide it.

use std::sync::Arc;

use policy::egress::{Caller, Carry, Way};
use policy::host::Target;
use policy::reason::Reason;

/// Who asks, by which way: what all questions of a connection have in common.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The connection.
    pub conn: u64,
    /// Its way in.
    pub way: Way,
    /// The program behind it.
    pub caller: Arc<Caller>,
}

/// A question about a target.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The target as it was asked for.
    pub asked: &'a str,
    /// The target.
    pub target: &'a Target,
    /// The method of a plain request.
    pub method: Option<&'a str>,
    /// What must be inside for the question to make sense; a grant of something else is a refusal.
    pub spoken: Spoken,
}

/// What the connection carries, as far as it is known when the question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// Not known yet.
    Unknown,
    /// TLS.
    Tls,
    /// Plain HTTP.
    Http,
    /// Something else.
    Other,
}

impl Spoken {
    /// Whether it may flow under a grant.
    pub(super) fn fits(self, carry: Carry) -> Result<(), Reason> {
        match (carry, self) {
            (_, Self::Unknown) | (Carry::Raw, _) | (Carry::TlsOrHttp, Self::Tls | Self::Http) => Ok(()),
            (Carry::Tls, Self::Tls) | (Carry::Http, Self::Http) => Ok(()),
            (Carry::Http, Self::Tls) => Err(Reason::NeedsTermination),
            (Carry::Tls | Carry::TlsOrHttp | Carry::Http, _) => Err(Reason::NotTls),
        }
    }
}

/// For a program that is not listed, whom it was started by: what the operator needs to list the right one.
pub(super) fn chain(caller: &Caller, reason: Reason) -> Option<String> {
    let Caller::Known(chain) = caller else { return None };
    let names = chain.iter().map(|process| process.path.as_str());
    let text = names.collect::<Vec<_>>().join(", started by ");
    (reason == Reason::BinaryNotListed).then(|| policy::record::clean(&text))
}

//! Turns decisions about reach into records that cannot be changed, lost or moved without a trace.
//! It refuses to know files and the clock: times come in as text.

mod chain;
mod redact;
mod table;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use chain::{Chain, Fault, FaultKind, Head, Line, Proof, Resumed, Tear, resume, verify};
pub use redact::{Redactor, clean};
pub use table::{Filter, Format, render};

use crate::egress::Way;
use crate::reason::Reason;

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was let through.
    Allow,
    /// It was refused.
    Deny,
}

/// One line of `state/egress.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Record {
    /// A decision: exactly one per question.
    Decision(Box<Decision>),
    /// The end of a connection that a decision let through.
    Close(Close),
    /// The turn's records are full; what comes after is refused and only counted.
    Cut(Cut),
    /// The turn's end, with what was counted.
    End(End),
    /// The bytes before it are what a writer left that died while it wrote a line.
    Torn(Torn),
}

/// What was asked and answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The turn it fell in.
    pub turn: String,
    /// The client's connection; unique in the file's run of the broker.
    pub conn: u64,
    /// The way in.
    pub way: Way,
    /// The target as it was asked for: controls escaped, user, query values and secrets taken out.
    pub asked: String,
    /// The target in its one spelling, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The method of a plain HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What the name led to, each with the reason for which it was not dialled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// `parent` where a parent proxy resolves and checks the address instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// The connecting program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// Yes or no.
    pub verdict: Verdict,
    /// The entry that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// Where that entry comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Why not; with an allow, what an entry that audits let pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What only the operator reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The hash of the policy in force.
    pub policy: String,
}

/// An address of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Why it may not be dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Reason>,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {
    /// The turn it fell in.
    pub turn: String,
    /// The connection of the decision.
    pub conn: u64,
    /// Bytes from the sandbox.
    pub up: u64,
    /// Bytes to the sandbox.
    pub down: u64,
    /// How long it was open.
    pub millis: u64,
    /// What ended it, where it was not its ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// Where records stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The turn.
    pub turn: String,
    /// How many records it may have.
    pub limit: u64,
}

/// Bytes that are no record and stand before this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Torn {
    /// How many, without the line feed before this record.
    pub bytes: u64,
    /// Their SHA-256, in hex.
    pub sha256: String,
}

/// What a turn came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The turn.
    pub turn: String,
    /// Decisions that let something through.
    pub allowed: u64,
    /// Decisions that refused, recorded or not.
    pub denied: u64,
    /// Refusals after the cut.
    pub unrecorded: u64,
}

#[cfg(test)]
mod tests;

//! Turns what operators and agents ask of each other into its JSON shapes in the session log (contract §7, §7.1).
//! It refuses to know the ledger, which is the record that counts.

use serde::{Deserialize, Serialize};

/// An input that the run took up from the admission ledger (our addition).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct InputWire {
    /// Its key in the ledger.
    pub key: String,
    /// The command's token.
    pub input: String,
    /// What the run waited for when it took it up.
    #[serde(default)]
    pub stage: String,
    /// The words of a steer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The ask that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The regime's label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regime: Option<String>,
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<f64>,
    /// Seconds since the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_secs: Option<f64>,
    /// Iterations after the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
}

/// Whether the loop waits for an approval (contract §7, `approval_wait`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AskMode {
    /// It parks until there is an answer.
    Block,
    /// It goes on as before until there is one.
    Continue,
}

impl AskMode {
    /// The wire token.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            AskMode::Block => "block",
            AskMode::Continue => "continue",
        }
    }
}

/// What an agent asks for: `PROVISIONING_PENDING.json`, and the fields of `approval_wait`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskWire {
    /// Whether the loop waits.
    pub mode: AskMode,
    /// The agent's name for the request.
    pub trace_id: String,
    /// What is asked for.
    pub handle: String,
}

/// How an ask was answered (contract §7, `approval_resolved`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalOutcome {
    /// It is there, and a new baseline is measured.
    Granted,
    /// It will not be there.
    Denied,
    /// Nobody answered in time.
    Timeout,
}

impl ApprovalOutcome {
    /// The wire token.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            ApprovalOutcome::Granted => "granted",
            ApprovalOutcome::Denied => "denied",
            ApprovalOutcome::Timeout => "timeout",
        }
    }
}

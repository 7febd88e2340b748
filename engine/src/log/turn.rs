//! Turns what an agent turn came to into its wire record, from which a later process can go on (contract §7, `agent_done`).
//! It refuses to know what carried the turn.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::operator::AskWire;

/// All that is known of a turn when nothing of it runs any more: the fields of `agent_done`. A line of before they
/// existed has none of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnWire {
    /// Why the turn counts as failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The class it died of, where what carries it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// For how long what carries it said that it will take no other turn, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<f64>,
    /// US dollars, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Tokens read, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens written, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// The agent's own account of its candidate, `CANDIDATE.md`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub candidate_md: String,
    /// `ESCALATION.json`, where the agent gave up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalation: Option<EscalationWire>,
    /// `PROVISIONING_PENDING.json`, where the agent asked for something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<AskWire>,
    /// The keys of the steers that its prompt had for the first time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delivered: Vec<String>,
    /// Whether it ended before the agent had its prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unstarted: bool,
    /// The agent task whose turn it was; absent for a proposal (our addition).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// `PLAN_TASK_RESULT.json`, the result of an agent task (our addition).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Processes that outlived the turn and were ended, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub killed: Vec<String>,
    /// Frozen files that had been changed and were put back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frozen_restored: Vec<String>,
    /// What the turn left that was not taken in, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Wall-clock seconds.
    pub secs: f64,
}

/// `ESCALATION.json {category, reason, evidence}` as the log has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EscalationWire {
    /// The agent's own category.
    pub category: String,
    /// Why it gives up.
    pub reason: String,
    /// What it bases that on.
    #[serde(default)]
    pub evidence: Value,
}

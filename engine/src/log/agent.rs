//! Turns what a turn's process says into its JSON shape, the `event` of an `agent` line (contract §7, note N9).
//! It refuses to know which harness said it.

use serde::{Deserialize, Serialize};

/// What a turn's process said while it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEvent {
    /// The engine's own remark on the turn.
    Log {
        /// The remark.
        text: String,
    },
    /// Output as it came; bytes that are not UTF-8 are replaced.
    Raw {
        /// `stdout` or `stderr`.
        stream: String,
        /// The bytes, as text.
        text: String,
    },
    /// What the turn has used so far, as its harness tells it while it runs.
    Tokens {
        /// US dollars.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
        /// Tokens read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_tokens: Option<u64>,
        /// Tokens written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_tokens: Option<u64>,
    },
    /// The harness is there.
    Init {
        /// Which one, as the manifest names it.
        harness: String,
        /// Its version, as far as it tells.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        version: String,
        /// The model that it says it asks.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        model: String,
    },
    /// What the model thought.
    Thinking {
        /// The thought, cut where it is long.
        text: String,
    },
    /// What the model said.
    Text {
        /// Its words, cut where they are many.
        text: String,
    },
    /// The model uses a tool, or the tool is done.
    Tool {
        /// The tool; empty where a result does not repeat it.
        name: String,
        /// `use`, `result` or `failure`.
        step: String,
        /// What it was given or gave, cut where it is long.
        text: String,
    },
    /// The harness asks its model again.
    Retry {
        /// Which try comes next, where it is counted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u64>,
        /// After so many seconds, where it is told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_secs: Option<f64>,
        /// Why, in one line.
        text: String,
    },
    /// Something went wrong that may end the turn.
    Error {
        /// What, as the harness tells it.
        text: String,
    },
    /// The harness says how the turn ended.
    Result {
        /// Whether it says that it ended well.
        ok: bool,
        /// Why the model stopped, where it is told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop: Option<String>,
        /// Its last words, cut where they are many.
        text: String,
    },
    /// The process ended.
    Exit {
        /// Its exit code, 128+n for signal n.
        code: i32,
    },
    /// Any kind that this build does not write.
    #[serde(other, skip_serializing)]
    Other,
}

//! Turns what happened in a run into lines of `state/session.jsonl`, and back (contract §7, note N9).
//! It refuses to know why anything happened.

pub mod agent;
mod operator;
pub mod read;
pub mod row;
mod straight;
pub mod turn;
pub mod wire;
pub mod word;
pub mod write;

pub use agent::AgentEvent;
pub use operator::{ApprovalOutcome, AskMode, AskWire, InputWire};
pub use read::{Entry, Lines, LogReader, ReadError};
pub use row::{Decision, Evidence, FrozenHash, RowWire, few};
pub use turn::{EscalationWire, TurnWire};
pub use wire::{BlockedWire, OutputCounts, PlanTask, SessionEvent};
pub use word::{EndingCause, Outcome, Phase, RecoveryClass, TaskStatus};
pub use write::{Durability, LogError, SessionLog};

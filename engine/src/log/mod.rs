//! Turns what happened in a run into lines of `state/session.jsonl`, and back (contract §7, note N9).
//! It refuses to know why anything happened.

pub mod agent;
pub mod read;
pub mod row;
pub mod turn;
pub mod wire;
pub mod write;

pub use agent::AgentEvent;
pub use read::{Entry, LogReader, ReadError};
pub use row::{Decision, Evidence, FrozenHash, RowWire};
pub use turn::{EscalationWire, TurnWire};
pub use wire::{EndingCause, Outcome, Phase, PlanTask, RecoveryClass, SessionEvent, TaskStatus};
pub use write::{Durability, LogError, SessionLog};

//! Turns events into a state and effects, and effects into events, until the run has an outcome.
//! It refuses to know how a log line looks and how a file is restored.

pub mod begin;
pub mod bridge;
pub mod conduct;
pub mod effect;
pub mod event;
pub mod graph;
pub mod hands;
mod judged;
pub mod mediate;
pub mod operator;
mod provision;
pub mod replay;
mod settling;
pub mod shell;
pub mod state;
pub mod statedir;
pub mod steer_file;
pub mod step;
pub mod tail;
mod turning;
pub mod turns;
pub mod writes;

pub use effect::{Effect, Job};
pub use event::{Candidate, Event, EventKind, Interrupt, TaskEnd, TaskReport, TurnReport};
pub use graph::{Graph, Op, Task, TaskId};
pub use state::{State, Terms};
pub use step::step;

#[cfg(test)]
mod tests;

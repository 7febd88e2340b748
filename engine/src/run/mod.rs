//! Turns events into a state and effects, and effects into events, until the run has an outcome.
//! It refuses to know how a log line looks and how a file is restored.

pub mod begin;
pub mod conduct;
pub mod effect;
pub mod egress;
pub mod event;
pub mod graph;
pub mod hands;
mod judged;
pub mod replay;
mod settling;
pub mod shell;
pub mod state;
pub mod statedir;
pub mod step;
pub mod tail;
mod turning;
pub mod turns;

pub use effect::{Effect, Job};
pub use event::{Candidate, Event, EventKind, Interrupt, TaskEnd, TaskReport, TurnReport};
pub use graph::{Graph, Op, Task, TaskId};
pub use state::{State, Terms};
pub use step::step;

#[cfg(test)]
mod tests;

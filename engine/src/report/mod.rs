//! Turns the events of a run into what a person or a script reads. It refuses to decide anything.

pub mod chart;
pub mod ending;
pub mod escape;
pub mod json;
pub mod progress;
pub mod tally;

pub use escape::{plain, plain_cut};
pub use json::Report;
pub use progress::{Progress, Ui};
pub use tally::{Brief, Tally};

//! Turns the operating system into values and guards: files that follow no link, processes that die with
//! their guard, clocks, locks, signals and the environment. It refuses to know what any of them is for.

pub mod clock;
pub mod env;
pub mod fs;
pub mod keeper;
pub mod lock;
mod pipe;
pub mod process;
pub mod signal;

//! Turns the operating system into values and guards: files that follow no link, processes that die with
//! their guard, clocks, locks, signals and the environment. It refuses to know what any of them is for.

pub mod clock;
pub mod env;
pub mod fault;
pub mod fs;
pub mod helper;
pub mod keeper;
pub mod lock;
mod pipe;
pub mod process;
pub mod signal;
pub mod socket;

/// An error and its sources on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text.push_str(": ");
        text.push_str(&next.to_string());
        source = next.source();
    }
    text
}

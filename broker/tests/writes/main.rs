//! Turns calls of a sandbox over MCP into writes at servers of the test's own, and into proof that none is above its bound.
//! It refuses to reach anything but this machine's loopback.
#![expect(clippy::print_stdout, reason = "a test's report")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test ends at its first surprise"
)]

mod bounds;
mod faults;
mod image;
mod jira;
mod kill;
mod lab;
mod server;
mod tracker;

use std::process::ExitCode;

/// A test's name and itself.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(code) = broker::role().or_else(kill::role) {
        return code;
    }
    let filter: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let tests =
        [bounds::TESTS, tracker::TESTS, faults::TESTS, kill::TESTS, image::TESTS, jira::TESTS].concat();
    let chosen = tests
        .iter()
        .filter(|(name, _)| filter.is_empty() || filter.iter().any(|part| name.contains(part.as_str())));
    let mut failed = Vec::new();
    let mut count = 0;
    for (name, test) in chosen {
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        count += 1;
        if !passed {
            failed.push(name);
        }
    }
    println!("\n{count} tests, {} failed", failed.len());
    if failed.is_empty() && count > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

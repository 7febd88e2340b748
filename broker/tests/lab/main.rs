//! Turns a network of the test's own into proof of what passes the broker and what does not, row by row of the table of faults.
//! It refuses to touch the machine's network: everything happens in a namespace with loopback only.
#![expect(clippy::print_stdout, reason = "a test's report")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test ends at its first surprise"
)]

mod child;
mod framing;
mod generated;
mod lab;
mod limits;
mod net;
mod probe;
mod targets;
mod tunnels;

use std::process::ExitCode;

/// A test's name and itself.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(code) = broker::role().or_else(child::role) {
        return code;
    }
    let filter: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    net::own();
    let tests = [
        targets::TESTS,
        tunnels::TESTS,
        framing::TESTS,
        limits::TESTS,
        child::TESTS,
        probe::TESTS,
        generated::TESTS,
    ]
    .concat();
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

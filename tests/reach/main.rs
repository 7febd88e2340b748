//! Turns whole runs of the engine into proof of what the programs in its sandboxes reach, which is what the list says, no more
//! and no less. It refuses to touch the machine's network: the engine, its broker and the servers have one of the test's own.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that meets what it does not expect has to fail"
)]
#![allow(clippy::disallowed_methods, reason = "this drives the tests; the bans are for what is shipped")]

mod clients;
mod expected;
mod generated;
mod heads;
mod lab;
#[path = "../../broker/tests/lab/net.rs"]
#[expect(dead_code, reason = "the broker's own tests need more of it")]
mod net;
mod place;
mod rows;
mod server;
#[path = "../suite/support.rs"]
#[expect(dead_code, reason = "the suite needs more of it")]
mod support;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// A test's name, and what it does with the world around its sandboxes.
type Test = (&'static str, fn(&server::World));

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let tests = [clients::TESTS, table::TESTS, heads::TESTS, rows::TESTS, generated::TESTS].concat();
    let chosen: Vec<Test> = tests
        .into_iter()
        .filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(word.as_str())))
        .collect();
    if std::env::args().any(|arg| arg == "--list") {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    place::own();
    let world = server::World::start();
    let mut failed = 0;
    for (name, test) in &chosen {
        let outcome = catch_unwind(AssertUnwindSafe(|| test(&world)));
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        failed += usize::from(outcome.is_err());
    }
    println!("\ntest result: {} passed; {failed} failed", chosen.len() - failed);
    if failed == 0 && !chosen.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

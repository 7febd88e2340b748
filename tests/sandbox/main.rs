//! The sandbox from inside and outside: one turn after another through the whole gRPC path.
//!
//! `cargo test -p tests --test sandbox [NAME...]` runs the tests whose names contain one of the words. As root every
//! test runs twice, the second time as an ordinary user.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]
#![allow(clippy::disallowed_methods, reason = "this drives the tests; the bans are for what is shipped")]

mod api;
mod attacks;
mod basics;
mod hostile;
mod lab;
mod network;
mod sdk;
mod soak;
mod workspace;

use std::{
    os::unix::{fs::PermissionsExt, process::CommandExt},
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, ExitCode},
};

/// One test: its name, and what it does with a laboratory of its own.
type Test = (&'static str, fn(&lab::Lab));

/// The argument that makes this process the engine that a test kills.
pub(crate) const VICTIM: &str = "--victim";
/// The argument that makes this process print whether a gateway starts.
pub(crate) const PROBE: &str = "--probe";
const AS_USER: &str = "--as-user";
/// A user that no host has files of.
const USER: u32 = 54_321;

fn main() -> ExitCode {
    if let Some(code) = driver::gateway::role() {
        return code;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [VICTIM, dir, mark] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        hostile::victim(dir, mark);
        return ExitCode::SUCCESS;
    }
    if let [PROBE, dir] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        basics::probe(dir);
        return ExitCode::SUCCESS;
    }
    if args.iter().any(|arg| arg == "--bench") {
        soak::bench();
        return ExitCode::SUCCESS;
    }
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let soak = args.iter().any(|arg| arg == "--soak");
    let tests: Vec<Test> = if soak {
        soak::TESTS.to_vec()
    } else {
        [
            network::TESTS,
            basics::TESTS,
            api::TESTS,
            workspace::TESTS,
            attacks::TESTS,
            hostile::TESTS,
            sdk::TESTS,
            soak::SMOKE,
        ]
        .concat()
    };
    let chosen: Vec<Test> = tests
        .into_iter()
        .filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(*word)))
        .collect();
    if args.iter().any(|arg| arg == "--list") {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let who = if nix::unistd::geteuid().is_root() { "root" } else { "user" };
    let mut failed = 0;
    for (name, test) in &chosen {
        let outcome = catch_unwind(AssertUnwindSafe(|| test(&lab::Lab::new())));
        println!("test {who}::{name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        failed += usize::from(outcome.is_err());
    }
    println!("\ntest result: {who}: {} passed; {failed} failed", chosen.len() - failed);
    let again = who == "root" && !args.iter().any(|arg| arg == AS_USER);
    let as_user = !again || as_ordinary_user(&args);
    if failed == 0 && as_user { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs this binary again as a user without privileges, from a place that he can read.
fn as_ordinary_user(args: &[String]) -> bool {
    // Not below /tmp, which a sandbox has its own of: so the two runs see the host from two places.
    let dir = tempfile::tempdir_in("/mnt").unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(USER), Some(USER)).unwrap();
    let copy = dir.path().join("sandbox");
    std::fs::copy("/proc/self/exe", &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(args).arg(AS_USER).env("TMPDIR", dir.path()).current_dir("/").uid(USER).gid(USER);
    command.status().unwrap().success()
}

//! The run: manifest, loop, judge, world, log and command line.
//!
//! ```text
//! crucible.toml ─> manifest::raw ─> manifest::Manifest ─> plan::RunPlan
//!    (text)           (spans)          (valid alone)        (resolved)
//!                                                              │
//!                                                              v
//!                     run::step(State, Event) ── Effect ──> agent turn (a pack command under the keeper, or
//!                          ^                        │                   driver::turn ─gRPC─> gateway ─> sandbox)
//!                          │                        v
//!                          │                  judge::Reading
//!                          │                        │
//!                          └──── Event ────── decide::Verdict
//!                                                   │
//!                                                   v
//!                                        log::SessionEvent ──> state/session.jsonl, report.json
//! ```
//!
//! Each arrow is a type of that name in a file of that name. The engine refuses to know the wire formats of
//! sandboxes and how a socket is filtered.

pub mod admission;
pub mod agent;
pub mod cli;
pub mod control;
pub mod decide;
pub mod egress;
pub mod judge;
pub mod log;
pub mod manifest;
pub mod pack;
pub mod plan;
pub mod report;
pub mod run;
pub mod score;
pub mod sys;
pub mod world;

use std::process::ExitCode;

/// Runs the command line of this process to its end and returns its exit code (contract §9).
pub fn main() -> ExitCode {
    if let Some(code) = sys::keeper::role() {
        return code;
    }
    if let Some(code) = driver::gateway::role() {
        return code;
    }
    if let Some(code) = broker::role() {
        return code;
    }
    sys::process::seal_inherited_descriptors();
    sys::process::hide_from_other_processes();
    cli::main()
}

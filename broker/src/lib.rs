//! Turns connections of a sandbox into permitted connections to the outside, or refusals, each with a record.
//! It refuses to know manifests, runs and git.
//!
//! ```text
//! listener inside the sandbox ─> net::listen ─> net::{proxy, direct, names} ─> core (strict heads, hellos, questions)
//!                                                        │
//!                                                        v
//!                           policy::Egress <── admit::Sandbox::admit ──> audit (one record, before the answer)
//!                                                        │
//!                                                        v
//!                                                     Permit ──> net::dial ──> net::{splice, exchange}
//! ```
#![forbid(unsafe_code)]

pub mod core;

pub mod limits;

mod clock;

pub mod append;

mod token;

pub mod systems;

pub mod project;

pub mod launch;

pub mod audit;

pub mod rate;

pub mod outside;

mod peer;

pub mod admit;

mod net;

pub mod writes;

pub mod tools;

pub mod mcp;

pub mod control;

pub mod client;

mod begin;

mod privilege;

pub mod serve;

pub mod probe;

pub mod reference;

use std::process::ExitCode;

/// The name under which the binary is started again as the child, where it is not started as `crucible broker`.
pub const ROLE: &str = "crucible-broker";

/// Takes over when this process was started as the broker, or inside a sandbox as its probe (`crucible broker probe`); then
/// the answer is its exit code.
///
/// A binary that embeds the broker asks this before anything else in its `main`, and before it starts a thread.
#[must_use]
pub fn role() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    let name = args.next()?;
    if std::path::Path::new(&name).file_name().is_some_and(|name| name == ROLE) {
        return Some(serve::main());
    }
    let rest: Vec<_> = args.take(4).collect();
    match rest.as_slice() {
        [broker] if broker == "broker" => Some(serve::main()),
        [broker, probe, own @ ..] if broker == "broker" && probe == "probe" && own.len() < 2 => {
            Some(probe::main(own.first().and_then(|own| own.to_str())))
        }
        _ => None,
    }
}

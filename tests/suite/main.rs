//! Integration tests: one module per section of the contract.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::print_stderr,
    reason = "a test that meets what it does not expect has to fail"
)]

mod agents;
mod cases;
mod cli;
mod egress;
mod examples;
mod judge;
mod keeper;
mod models;
mod resume;
mod run;
mod sandbox;
mod support;
mod tidy;
mod workflow;
mod world;

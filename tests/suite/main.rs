//! Integration tests: one module per section of the contract.

mod cases;
mod cli;
mod examples;
mod judge;
mod keeper;
mod run;
mod support;
mod tidy;
mod world;

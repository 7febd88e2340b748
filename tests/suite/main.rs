//! Integration tests: one module per section of the contract.

mod keeper;
mod world;

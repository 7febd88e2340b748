//! Turns connections from a sandbox into connections to the outside, each with a permit.
//! It refuses to decide: `admit` does.

pub(crate) mod conn;
pub(crate) mod dial;
pub(crate) mod direct;
pub(crate) mod exchange;
pub(crate) mod listen;
pub(crate) mod names;
pub mod outside;
pub(crate) mod peer;
pub(crate) mod proxy;
pub(crate) mod splice;

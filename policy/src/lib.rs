//! Turns what a pack asks for into decisions and the diagnostics that explain them.
//! It refuses to know sockets, files, clocks, the environment and any runtime.
#![forbid(unsafe_code)]

pub mod diag;

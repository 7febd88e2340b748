//! Turns what a pack asks for into decisions and the diagnostics that explain them.
//! It refuses to know sockets, files, clocks, the environment and any runtime.
#![forbid(unsafe_code)]

pub mod diag;

pub mod host;

pub mod ip;

pub mod access;

pub mod endpoint;

pub mod no_proxy;

pub mod reason;

pub mod egress;

pub mod record;

pub mod capability;

pub mod exposure;

pub mod outputs;

pub mod seam;

pub mod json;

pub mod inference;

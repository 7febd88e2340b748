//! The end of the broker at every point of its durable writes: never one above the bound, no double, no lost refusal.

use std::process::ExitCode;

use crate::Test;

pub(crate) const TESTS: &[Test] = &[];

pub(crate) fn role() -> Option<ExitCode> {
    None
}

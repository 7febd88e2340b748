//! Placeholder replaced below.
use crate::Test;
pub const TESTS: &[Test] = &[];

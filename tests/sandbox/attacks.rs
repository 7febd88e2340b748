//! Placeholder replaced below.
use crate::Test;
pub(crate) const TESTS: &[Test] = &[];

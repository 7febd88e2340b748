//! Turns a reading and the best so far into keep or discard (contract §4).
//! It refuses to know where either came from.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which way a score is better (contract §1, `[judge].direction`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Smaller is better.
    Lower,
    /// Larger is better.
    Higher,
}

/// A direction that is neither `lower` nor `higher`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a direction is `lower` or `higher`")]
pub struct UnknownDirection;

impl FromStr for Direction {
    type Err = UnknownDirection;

    fn from_str(token: &str) -> Result<Self, UnknownDirection> {
        match token {
            "lower" => Ok(Self::Lower),
            "higher" => Ok(Self::Higher),
            _ => Err(UnknownDirection),
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lower => "lower",
            Self::Higher => "higher",
        })
    }
}

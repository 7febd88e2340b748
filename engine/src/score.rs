//! Turns numbers from outside into finite scores that compare, and tokens into directions (contract §1, §4).
//! It refuses to know what a score measures.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

/// Which way a scalar gets better: `"lower"` or `"higher"` in a manifest (contract §1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Smaller is better.
    Lower,
    /// Larger is better.
    Higher,
}

impl Direction {
    /// The tokens a manifest may write, in the order the reference lists them.
    pub const TOKENS: [&'static str; 2] = ["lower", "higher"];

    /// Whether `candidate` is strictly better than `best`; equal is not better, and minus zero equals zero.
    #[must_use]
    pub fn better(self, candidate: Score, best: Score) -> bool {
        match self {
            Direction::Lower => candidate.0 < best.0,
            Direction::Higher => candidate.0 > best.0,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Lower => "lower",
            Direction::Higher => "higher",
        })
    }
}

/// A word that is not a direction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parse `{0}` as a direction: it is `lower` or `higher`")]
pub struct NotADirection(pub String);

impl FromStr for Direction {
    type Err = NotADirection;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "lower" => Ok(Direction::Lower),
            "higher" => Ok(Direction::Higher),
            other => Err(NotADirection(other.to_owned())),
        }
    }
}

/// A finite double. It prints as a decimal string that reads back to the same double, and compares exactly.
#[derive(Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Score(f64);

impl Score {
    /// Takes a finite number; `None` for NaN and the infinities.
    #[must_use]
    pub fn new(value: f64) -> Option<Score> {
        value.is_finite().then_some(Score(value))
    }

    /// The number itself.
    #[must_use]
    pub fn value(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<'de> Deserialize<'de> for Score {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        Score::new(value).ok_or_else(|| serde::de::Error::custom("a score is a finite number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_is_not_finite() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(Score::new(value).is_none());
        }
    }

    proptest! {
        #[test]
        fn prints_so_that_it_reads_back_the_same(value in proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL | proptest::num::f64::ZERO) {
            let score = Score::new(value).unwrap();
            let text: f64 = score.to_string().parse().unwrap();
            prop_assert_eq!(text.to_bits(), value.to_bits());
            let json: Score = serde_json::from_str(&serde_json::to_string(&score).unwrap()).unwrap();
            prop_assert_eq!(json.value().to_bits(), value.to_bits());
        }

        #[test]
        fn nothing_is_better_both_ways(a in proptest::num::f64::NORMAL, b in proptest::num::f64::NORMAL) {
            let (a, b) = (Score::new(a).unwrap(), Score::new(b).unwrap());
            for direction in [Direction::Lower, Direction::Higher] {
                prop_assert!(!(direction.better(a, b) && direction.better(b, a)));
                prop_assert!(!direction.better(a, a));
            }
        }
    }
}

//! Turns a reading and the best so far into keep or discard (contract §4).
//! It refuses to know where either came from.

use serde::{Deserialize, Serialize};

use crate::judge::Reading;
use crate::score::{Direction, Score};

/// Which way the score and its tiebreak get better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// `[judge].direction`.
    pub direction: Direction,
    /// `[judge].tiebreak_direction`, the direction where it is not given.
    pub tiebreak: Direction,
}

/// The scalars of the best kept candidate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Its score.
    pub score: Score,
    /// Its tiebreak, where its reading carried one.
    pub tiebreak: Option<Score>,
}

/// What the universal rule says of a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// It becomes the best; `solved` ends the loop.
    Keep {
        /// Its scalars, now the best.
        standing: Standing,
        /// Whether the reading declared the win.
        solved: bool,
    },
    /// The workspace goes back to the best.
    Discard,
}

impl Rule {
    /// The rule of a pack that says nothing of tiebreaks.
    #[must_use]
    pub fn of(direction: Direction) -> Rule {
        Rule { direction, tiebreak: direction }
    }

    /// Applies the universal rule of contract §4. With no best yet, the first valid reading is kept.
    #[must_use]
    pub fn decide(self, reading: &Reading, best: Option<Standing>) -> Verdict {
        let Some(score) = reading.score.filter(|_| reading.valid) else { return Verdict::Discard };
        let standing = Standing { score, tiebreak: reading.tiebreak };
        let keep = match best {
            None => true,
            Some(best) => {
                self.direction.better(score, best.score)
                    || (score == best.score && self.tiebreak_better(standing, best))
                    || reading.solved
            }
        };
        if keep { Verdict::Keep { standing, solved: reading.solved } } else { Verdict::Discard }
    }

    fn tiebreak_better(self, candidate: Standing, best: Standing) -> bool {
        match (candidate.tiebreak, best.tiebreak) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(candidate), Some(best)) => self.tiebreak.better(candidate, best),
        }
    }
}

//! Turns a known-good and a known-bad state of the workspace into whether the judge tells them apart (contract §1.1).
//! It refuses to know how a state is staged: the pack's own commands do that.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::ground::{Ground, GroundError, Ran};
use super::measure::{Known, Measure, keep_end};
use super::reading::Reading;
use crate::agent::with_last_line;
use crate::manifest::SelfTest;
use crate::score::{Direction, Score};
use crate::sys::keeper::{Keeper, KeeperError, PackCommand, Stdin};
use crate::world::{FrozenFiles, World, WorldError};

/// One of the two controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// `good_cmd`
    Good,
    /// `bad_cmd`
    Bad,
}

/// What both controls measured, each `runs` times.
#[derive(Debug, Clone, PartialEq)]
pub struct Tested {
    /// After `good_cmd`.
    pub good: Vec<Reading>,
    /// After `bad_cmd`.
    pub bad: Vec<Reading>,
}

/// Why a judge does not tell its controls apart.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Indistinct {
    /// A reading that cannot be scored.
    #[error("reading {number} after {control}_cmd is not valid: {why}")]
    Invalid {
        /// Which control.
        control: Control,
        /// Counts from 1.
        number: usize,
        /// What the judge said.
        why: String,
    },
    /// Means that are no better one way than the other.
    #[error("good_cmd scores {good} and bad_cmd {bad} on average, and {direction} is better")]
    NotBetter {
        /// The good one's mean.
        good: f64,
        /// The bad one's.
        bad: f64,
        /// Which way is better.
        direction: Direction,
    },
}

/// Why the controls could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The pristine state could not be named or brought back.
    #[error("keep the pristine workspace")]
    World(#[from] WorldError),
    /// A staging command failed.
    #[error("stage the {control} control: {control}_cmd {how}")]
    Stage {
        /// Which control.
        control: Control,
        /// How it ended.
        how: String,
    },
    /// A command could not be run.
    #[error("run the controls")]
    Ground(#[from] GroundError),
    /// An operator ended it.
    #[error("go on: a signal ended the self-test")]
    Interrupted,
}

/// What the controls are measured with.
#[derive(Debug)]
pub struct Bench {
    /// Runs the staging commands.
    pub keeper: Arc<Keeper>,
    /// Where the judge runs.
    pub ground: Ground,
    /// The judge.
    pub measure: Measure,
    /// What judges, put back before each measurement.
    pub frozen: FrozenFiles,
}

impl Bench {
    /// Stages and measures both controls. The workspace is pristine again when this returns, whatever happened.
    ///
    /// # Errors
    /// [`ControlError`]; what the judge said is a result.
    pub async fn test<W: World>(
        &self,
        controls: &SelfTest,
        world: &mut W,
        cancel: &CancellationToken,
    ) -> Result<Tested, ControlError> {
        let pristine = world.snapshot().await?;
        let mut readings = Vec::new();
        for control in [Control::Good, Control::Bad] {
            let measured = match world.restore(&pristine).await {
                Ok(()) => self.control(control, controls, world, cancel).await,
                Err(error) => Err(error.into()),
            };
            // Whatever stands there now was staged or half staged: it goes away before anything else is said.
            world.restore(&pristine).await?;
            readings.push(measured?);
        }
        let bad = readings.pop().unwrap_or_default();
        Ok(Tested { good: readings.pop().unwrap_or_default(), bad })
    }

    async fn control<W: World>(
        &self,
        control: Control,
        controls: &SelfTest,
        world: &mut W,
        cancel: &CancellationToken,
    ) -> Result<Vec<Reading>, ControlError> {
        let shell = match control {
            Control::Good => &controls.good_cmd,
            Control::Bad => &controls.bad_cmd,
        };
        let command = PackCommand {
            shell: shell.to_string(),
            cwd: world.workspace().path().to_owned(),
            env: self.measure.env.clone(),
            stdin: Stdin::Null,
            timeout: Some(controls.timeout),
            idle_timeout: None,
        };
        let mut shown = Vec::new();
        let staged = self.keeper.run(command, cancel, &mut |_, bytes| keep_end(&mut shown, bytes)).await;
        let staged = Ran::from(staged.map_err(|error: KeeperError| GroundError::from(error))?);
        if cancel.is_cancelled() {
            return Err(ControlError::Interrupted);
        }
        if let Some(how) = staged.failure {
            return Err(ControlError::Stage { control, how: with_last_line(&how, &shown) });
        }
        let mut readings = Vec::new();
        for _ in 0..controls.runs {
            self.frozen.restore(world.workspace().path())?;
            readings.push(self.measure.run(&self.ground, Known::default(), cancel).await?.reading);
            if cancel.is_cancelled() {
                return Err(ControlError::Interrupted);
            }
        }
        Ok(readings)
    }
}

impl Tested {
    /// The two means, where all readings are valid and the good one's is strictly better.
    ///
    /// # Errors
    /// The first thing that speaks against the judge.
    pub fn verdict(&self, direction: Direction) -> Result<(f64, f64), Indistinct> {
        let good = mean(Control::Good, &self.good)?;
        let bad = mean(Control::Bad, &self.bad)?;
        let better =
            Score::new(good).zip(Score::new(bad)).is_some_and(|(good, bad)| direction.better(good, bad));
        if better { Ok((good, bad)) } else { Err(Indistinct::NotBetter { good, bad, direction }) }
    }
}

fn mean(control: Control, readings: &[Reading]) -> Result<f64, Indistinct> {
    let count = u32::try_from(readings.len()).unwrap_or(u32::MAX);
    let mut mean = 0.0;
    for (at, reading) in readings.iter().enumerate() {
        let score = reading.score.filter(|_| reading.valid).ok_or_else(|| Indistinct::Invalid {
            control,
            number: at.saturating_add(1),
            why: reading.summary(),
        })?;
        // Each share by itself: the sum of large scores need not be finite.
        mean += score.value() / f64::from(count);
    }
    Ok(mean)
}

impl std::fmt::Display for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Control::Good => "good",
            Control::Bad => "bad",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::ObjectLine;

    fn readings(lines: &[&str]) -> Vec<Reading> {
        let read = |text: &&str| {
            let mut line = ObjectLine::default();
            line.push(format!("{text}\n").as_bytes());
            Reading::of(&mut line, 0)
        };
        lines.iter().map(read).collect()
    }

    fn scored(scores: &[f64]) -> Vec<Reading> {
        let lines: Vec<String> =
            scores.iter().map(|score| format!("{{\"valid\":true,\"score\":{score:e}}}")).collect();
        readings(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn the_good_mean_is_strictly_better() {
        let verdict = |good: &[f64], bad: &[f64], direction| {
            Tested { good: scored(good), bad: scored(bad) }.verdict(direction).ok()
        };
        assert_eq!(verdict(&[1.0, 3.0], &[4.0], Direction::Lower), Some((2.0, 4.0)));
        assert_eq!(verdict(&[1.0, 3.0], &[4.0], Direction::Higher), None);
        assert_eq!(verdict(&[2.0], &[1.0, 3.0], Direction::Higher), None);
        assert_eq!(verdict(&[1e308, 1e308, 1e308], &[0.0], Direction::Higher).map(|(_, bad)| bad), Some(0.0));
    }

    #[test]
    fn one_reading_that_cannot_be_scored_is_enough() {
        let tested = Tested { good: scored(&[2.0]), bad: readings(&["{\"valid\":true,\"score\":1}", "no"]) };
        let said = tested.verdict(Direction::Higher).unwrap_err().to_string();
        assert!(said.starts_with("reading 2 after bad_cmd is not valid: "), "{said}");
    }
}

//! Turns `measure_cmd` and the engine's numbers into a reading (contract §3).
//! It refuses to know what is kept.

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::ground::{Ground, GroundError, Ran};
use super::reading::{Fault, Reading};
use super::tail::ObjectLine;
use crate::score::Score;
use crate::sys::env::Environment;
use crate::sys::keeper::{PackCommand, Stdin, Stream};

/// How much of a judge's output is shown when it cannot be scored, from its end, in bytes.
const SHOWN_MAX: usize = 4 * 1024;

/// The engine's current numbers, handed to the judge (contract §3).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Known {
    /// `CRUCIBLE_BASELINE_SCORE`
    pub baseline_score: Option<Score>,
    /// `CRUCIBLE_BASELINE_TOTAL`
    pub baseline_total: Option<Score>,
    /// `CRUCIBLE_BEST_SCORE`
    pub best_score: Option<Score>,
}

/// A judge and where it runs.
#[derive(Debug, Clone)]
pub struct Measure {
    /// `[judge].measure_cmd`, the text for `sh -c`.
    pub measure_cmd: String,
    /// The workspace.
    pub cwd: PathBuf,
    /// The engine's environment without reserved names.
    pub env: Environment,
    /// How long one measurement may take.
    pub timeout: Option<Duration>,
}

/// A finished measurement.
#[derive(Debug)]
pub struct Measured {
    /// What it said.
    pub reading: Reading,
    /// The end of what it printed on both streams.
    pub shown: String,
    /// How many lines of standard output started with `{`.
    pub objects: u64,
    /// How its command ended.
    pub ended: Ran,
}

impl Measure {
    /// Measures once. Whatever the judge prints, the answer is a reading.
    ///
    /// # Errors
    /// [`GroundError`] when the command could not be run or ended.
    pub async fn run(
        &self,
        ground: &Ground,
        known: Known,
        cancel: &CancellationToken,
    ) -> Result<Measured, GroundError> {
        let mut line = ObjectLine::default();
        let mut shown = Vec::new();
        let command = PackCommand {
            shell: self.measure_cmd.clone(),
            cwd: self.cwd.clone(),
            env: known.over(&self.env),
            stdin: Stdin::Null,
            timeout: self.timeout,
            idle_timeout: None,
        };
        let mut sink = |stream, bytes: &[u8]| {
            if stream == Stream::Out {
                line.push(bytes);
            }
            keep_end(&mut shown, bytes);
        };
        let ended = ground.run(command, cancel, &mut sink).await?;
        let reading = match &ended.ended_early {
            Some(how) => Reading::faulty(&Fault::Ended(how.clone())),
            None => Reading::of(&mut line, ended.code),
        };
        let shown = String::from_utf8_lossy(&shown).into_owned();
        Ok(Measured { reading, shown, objects: line.objects(), ended })
    }
}

impl Known {
    /// `env` and the numbers that are known, as decimal strings that read back the same.
    fn over(self, env: &Environment) -> Environment {
        let mut env = env.clone();
        for (name, score) in [
            ("CRUCIBLE_BASELINE_SCORE", self.baseline_score),
            ("CRUCIBLE_BASELINE_TOTAL", self.baseline_total),
            ("CRUCIBLE_BEST_SCORE", self.best_score),
        ] {
            if let Some(score) = score {
                env.set(name, score.to_string());
            }
        }
        env
    }
}

/// Appends bytes and keeps the end of all that came, within the bound.
pub(crate) fn keep_end(shown: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = bytes.get(bytes.len().saturating_sub(SHOWN_MAX)..).unwrap_or_default();
    shown.extend_from_slice(bytes);
    shown.drain(..shown.len().saturating_sub(SHOWN_MAX));
}

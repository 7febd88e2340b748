//! Turns `[judge]` into what scores a candidate and which way is better (contract §1, §3, §4).
//! It refuses to know how a score is read.

use std::fmt;
use std::time::Duration;

use policy::diag::did_you_mean;

use super::At;
use super::error::{Mistake, Sink};
use super::keys::{Key, Kind, Table};
use super::number::Bounds;
use super::section::Section;
use super::value::{Command, DEFAULT_TIMEOUT, check_line, parse_duration, shorten};
use crate::score::Direction;

const OBJECTIVE_CHARS: usize = 64;
const DIRECTIONS: &[&str] = &["lower", "higher"];

/// What scores a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judge {
    /// Prints the reading as its last line that starts with `{`.
    pub measure_cmd: At<Command>,
    /// Which way a score is better.
    pub direction: Direction,
    /// Which way a tiebreak is better.
    pub tiebreak_direction: Direction,
    /// What the score is called.
    pub objective: Objective,
    /// How long one measure may take.
    pub timeout: Duration,
    /// Whether measure and apply run in a sandbox without a network.
    pub confined: bool,
    /// The two controls that the judge must tell apart.
    pub selftest: Option<SelfTest>,
}

/// The two controls of `check` (contract §1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfTest {
    /// Stages a known-good state of the workspace.
    pub good_cmd: Command,
    /// Stages a known-bad one.
    pub bad_cmd: Command,
    /// How often each is measured; at least 1.
    pub runs: u32,
    /// How long each staging command may take.
    pub timeout: Duration,
}

/// What the score is called: one line of 1 to 64 characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Objective(String);

/// What can be wrong with `[judge]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JudgeError {
    /// Neither way.
    #[error("`{word}` is no direction: it is \"lower\" or \"higher\"")]
    Direction {
        /// As written, shortened.
        word: String,
        /// What was probably meant.
        meant: Option<&'static str>,
    },
    /// More than a label.
    #[error("[judge].objective has {chars} characters: a label has at most {OBJECTIVE_CHARS}")]
    ObjectiveTooLong {
        /// How many.
        chars: usize,
    },
}

/// `[judge]`.
pub(super) static TABLE: Table = Table {
    path: "judge",
    doc: "What scores a candidate, and which way is better.",
    keys: &[
        Key::required(
            "measure_cmd",
            Kind::Command,
            "Run by `sh -c` in the workspace. Of what it prints, the last line that starts with `{` is the reading.",
        ),
        Key::required("direction", Kind::OneOf(DIRECTIONS), "Which way a score is better."),
        Key::optional(
            "tiebreak_direction",
            Kind::OneOf(DIRECTIONS),
            "`direction`",
            "Which way the reading's `tiebreak` is better, when two scores are equal.",
        ),
        Key::optional(
            "objective",
            Kind::Text,
            "\"score\"",
            "What the score is called: one line, at most 64 characters.",
        ),
        Key::optional("timeout", Kind::Duration, "\"30m\"", "How long one measure may take."),
        Key::optional(
            "confined",
            Kind::Flag,
            "false",
            "Whether `measure_cmd` and `apply_cmd` run in a sandbox of their own without any network, on the workspace as it is. \
             What they change comes back. They see this machine's own programs and `read_only_paths`, and of the environment \
             `PATH`, the locale and the engine's numbers.",
        ),
        Key::optional("selftest", Kind::Table(&SELFTEST), "none", SELFTEST.doc),
    ],
    rules: &[],
    example: "[judge]\nmeasure_cmd = \"./measure.sh\"\ndirection = \"lower\"\nobjective = \"p99 ms\"\ntimeout = \"5m\"\n",
};

/// `[judge.selftest]`.
pub(super) static SELFTEST: Table = Table {
    path: "judge.selftest",
    doc: "Two controls that the judge must tell apart before it is trusted. `crucible check` stages each in a scratch \
          workspace, measures it, and puts the pristine state back; a run never does. `apply_cmd` is not run.",
    keys: &[
        Key::required("good_cmd", Kind::Command, "Stages a known-good state, by `sh -c` in the workspace."),
        Key::required("bad_cmd", Kind::Command, "Stages a known-bad state, likewise."),
        Key::optional(
            "runs",
            Kind::Whole(Bounds::new(1, 1000)),
            "1",
            "How often each control is measured. The mean of the good one must be strictly better.",
        ),
        Key::optional("timeout", Kind::Duration, "\"30m\"", "How long each staging command may take."),
    ],
    rules: &[],
    example: "[judge.selftest]\ngood_cmd = \"cp controls/good.conf app.conf\"\nbad_cmd = \"cp controls/bad.conf app.conf\"\nruns = 3\n",
};

fn selftest(section: &Section<'_>, sink: &mut Sink) -> Option<SelfTest> {
    let (entries, at) = section.table("selftest")?;
    let table = Section::open(&SELFTEST, Some(entries), &at, sink);
    let good = table.value("good_cmd", sink, Command::parse);
    let bad = table.value("bad_cmd", sink, Command::parse);
    let timeout = table.value("timeout", sink, parse_duration);
    Some(SelfTest {
        good_cmd: good?.value,
        bad_cmd: bad?.value,
        runs: table.number("runs").and_then(|runs| u32::try_from(runs).ok()).unwrap_or(1),
        timeout: timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.value),
    })
}

impl JudgeError {
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Direction { meant: Some(meant), .. } => Some(format!("did you mean \"{meant}\"?")),
            Self::Direction { meant: None, .. } => {
                Some("write \"lower\" where a smaller score is better, else \"higher\"".to_owned())
            }
            Self::ObjectiveTooLong { .. } => Some("write a short label, such as \"p99 ms\"".to_owned()),
        }
    }
}

/// Reads the table.
pub(super) fn decode(section: &Section<'_>, sink: &mut Sink) -> Option<Judge> {
    let measure_cmd = section.value("measure_cmd", sink, Command::parse);
    let direction = section.parse("direction", sink, parse_direction).map(|direction| direction.value);
    let tiebreak =
        section.parse("tiebreak_direction", sink, parse_direction).map(|direction| direction.value);
    let objective = section.parse("objective", sink, Objective::parse);
    let timeout = section.value("timeout", sink, parse_duration);
    let selftest = selftest(section, sink);
    Some(Judge {
        confined: section.flag("confined").is_some_and(|flag| flag.value),
        selftest,
        measure_cmd: measure_cmd?,
        direction: direction?,
        tiebreak_direction: tiebreak.or(direction)?,
        objective: objective.map_or_else(Objective::default, |objective| objective.value),
        timeout: timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.value),
    })
}

fn parse_direction(text: &str) -> Result<Direction, JudgeError> {
    text.parse().map_err(|_| JudgeError::Direction { word: shorten(text), meant: meant(text) })
}

/// The direction behind a word that others use for it.
fn meant(word: &str) -> Option<&'static str> {
    const WORDS: &[(&str, &str)] = &[
        ("lower", "lower"),
        ("higher", "higher"),
        ("low", "lower"),
        ("less", "lower"),
        ("min", "lower"),
        ("minimize", "lower"),
        ("minimise", "lower"),
        ("smaller", "lower"),
        ("down", "lower"),
        ("decrease", "lower"),
        ("high", "higher"),
        ("more", "higher"),
        ("max", "higher"),
        ("maximize", "higher"),
        ("maximise", "higher"),
        ("bigger", "higher"),
        ("larger", "higher"),
        ("up", "higher"),
        ("increase", "higher"),
    ];
    let near = did_you_mean(word, WORDS.iter().map(|(word, _)| *word))?;
    WORDS.iter().find(|(word, _)| *word == near).map(|(_, direction)| *direction)
}

impl Objective {
    /// Reads a label.
    ///
    /// # Errors
    /// Empty, more than one line, control characters, more than 64 characters.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        check_line(text).map_err(|error| Mistake::from(("[judge].objective", error)))?;
        let chars = text.chars().count();
        if chars > OBJECTIVE_CHARS {
            return Err(JudgeError::ObjectiveTooLong { chars }.into());
        }
        Ok(Self(text.to_owned()))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Objective {
    fn default() -> Self {
        Self("score".to_owned())
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_direction_are_understood_in_hints_only() {
        let cases = [
            ("min", Some("lower")),
            ("maximize", Some("higher")),
            ("Lower", Some("lower")),
            ("highr", Some("higher")),
            ("sideways", None),
        ];
        for (word, expected) in cases {
            let error = parse_direction(word).unwrap_err();
            assert_eq!(error, JudgeError::Direction { word: word.into(), meant: expected }, "{word}");
        }
        assert_eq!(parse_direction("lower"), Ok(Direction::Lower));
        assert_eq!(parse_direction("higher"), Ok(Direction::Higher));
    }
}

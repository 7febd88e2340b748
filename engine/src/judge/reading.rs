//! Turns the last object line of a judge and its exit code into a `Reading` (contract §3).
//! It refuses to know the best so far.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::json::parse_strict;
use super::tail::{Found, LINE_MAX, ObjectLine};
use crate::score::Score;

/// What one measurement said. `valid` is true only when there is a finite score and the judge exited zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Whether the candidate can be scored; an invalid one is always discarded.
    pub valid: bool,
    /// The fitness, a finite double.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// The secondary fitness, compared on an exact tie of scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiebreak: Option<Score>,
    /// Whether the judge says that the win condition is met.
    #[serde(default)]
    pub solved: bool,
    /// One line for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whatever else the domain wants in its row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Map<String, Value>>,
    /// Why the engine, rather than the judge, calls the reading invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Why output is not a reading.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The judge exited non-zero, 128+n for signal n.
    #[error("measure_cmd exited {0}")]
    Exit(i32),
    /// No line of standard output starts with `{`.
    #[error("measure_cmd printed no line that starts with `{{`")]
    NoObject,
    /// The last such line is over the bound.
    #[error("the last line that starts with `{{` is longer than {LINE_MAX} bytes")]
    TooLong,
    /// The last such line is not one JSON object with distinct keys.
    #[error("the last line that starts with `{{` is not JSON: {0}")]
    Json(String),
    /// `valid` is absent.
    #[error("the reading has no `valid`")]
    NoValid,
    /// `valid` is true and there is no score.
    #[error("the reading has no `score`")]
    NoScore,
    /// A known field has another type than the contract gives it.
    #[error("`{field}` is not {expected}")]
    Type {
        /// The field's name.
        field: &'static str,
        /// What the contract asks for.
        expected: &'static str,
    },
    /// The command did not come to its own end.
    #[error("measure_cmd {0}")]
    Ended(String),
}

impl Reading {
    /// Reads what a finished judge printed; never fails, since a fault is an invalid reading.
    pub fn of(output: &mut ObjectLine, exit: i32) -> Reading {
        let parsed = match output.finish() {
            Found::Nothing => Err(Fault::NoObject),
            Found::TooLong => Err(Fault::TooLong),
            Found::Line(line) => parse_line(line),
        };
        match parsed {
            _ if exit != 0 => {
                let told = parsed.unwrap_or_else(|_| Reading::blank());
                Reading { valid: false, fault: Some(Fault::Exit(exit).to_string()), ..told }
            }
            Ok(reading) => reading,
            Err(fault) => Reading::faulty(&fault),
        }
    }

    /// An invalid reading that says why.
    #[must_use]
    pub fn faulty(fault: &Fault) -> Reading {
        Reading { fault: Some(fault.to_string()), ..Reading::blank() }
    }

    fn blank() -> Reading {
        Reading {
            valid: false,
            score: None,
            tiebreak: None,
            solved: false,
            note: None,
            detail: None,
            fault: None,
        }
    }

    /// `detail.total` when it is a finite number (contract §4, the baseline's total).
    #[must_use]
    pub fn total(&self) -> Option<Score> {
        self.detail.as_ref()?.get("total")?.as_f64().and_then(Score::new)
    }

    /// The judge's note, or the engine's fault where there is none, or both.
    #[must_use]
    pub fn summary(&self) -> String {
        match (&self.fault, &self.note) {
            (Some(fault), Some(note)) => format!("{fault}; {note}"),
            (Some(fault), None) => fault.clone(),
            (None, Some(note)) => note.clone(),
            (None, None) => String::new(),
        }
    }
}

fn parse_line(line: &[u8]) -> Result<Reading, Fault> {
    let value = parse_strict(line).map_err(|error| Fault::Json(error.to_string()))?;
    let Value::Object(mut map) = value else { return Err(Fault::NoObject) };
    let told = match map.get("valid") {
        Some(Value::Bool(valid)) => *valid,
        None => return Err(Fault::NoValid),
        Some(_) => return Err(Fault::Type { field: "valid", expected: "a boolean" }),
    };
    let reading = Reading {
        valid: told,
        score: number(&map, "score")?,
        tiebreak: number(&map, "tiebreak")?,
        solved: match map.get("solved") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(solved)) => *solved,
            Some(_) => return Err(Fault::Type { field: "solved", expected: "a boolean" }),
        },
        note: match map.remove("note") {
            None | Some(Value::Null) => None,
            Some(Value::String(note)) => Some(note),
            Some(_) => return Err(Fault::Type { field: "note", expected: "a string" }),
        },
        detail: match map.remove("detail") {
            None | Some(Value::Null) => None,
            Some(Value::Object(detail)) => Some(detail),
            Some(_) => return Err(Fault::Type { field: "detail", expected: "an object" }),
        },
        fault: None,
    };
    if reading.valid && reading.score.is_none() {
        return Ok(Reading { valid: false, fault: Some(Fault::NoScore.to_string()), ..reading });
    }
    Ok(reading)
}

fn number(map: &Map<String, Value>, field: &'static str) -> Result<Option<Score>, Fault> {
    match map.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64().and_then(Score::new) {
            Some(score) => Ok(Some(score)),
            None => Err(Fault::Type { field, expected: "a finite number" }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(stdout: &str, exit: i32) -> Reading {
        let mut tail = ObjectLine::default();
        tail.push(stdout.as_bytes());
        Reading::of(&mut tail, exit)
    }

    #[test]
    fn says_why_a_reading_is_invalid() {
        for (stdout, exit, expect) in [
            ("", 0, "measure_cmd printed no line that starts with `{`"),
            (r#"{"valid":true,"score":1}"#, 137, "measure_cmd exited 137"),
            (r#"{"score":1}"#, 0, "the reading has no `valid`"),
            (r#"{"valid":true}"#, 0, "the reading has no `score`"),
            (r#"{"valid":true,"score":"3"}"#, 0, "`score` is not a finite number"),
            (r#"{"valid":true,"score":1,"note":3}"#, 0, "`note` is not a string"),
            (r#"{"valid":true,"score":1,"detail":[]}"#, 0, "`detail` is not an object"),
        ] {
            assert_eq!(read(stdout, exit).fault.as_deref(), Some(expect), "{stdout}");
        }
    }

    #[test]
    fn a_failed_judge_keeps_what_it_said_but_not_its_validity() {
        let reading = read(r#"{"valid":true,"score":1,"note":"late"}"#, 1);
        assert!(!reading.valid);
        assert_eq!(reading.summary(), "measure_cmd exited 1; late");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_valid_means_a_score(bytes in proptest::collection::vec(any::<u8>(), 0..200), exit in -1i32..3) {
            let mut tail = ObjectLine::default();
            tail.push(b"{");
            tail.push(&bytes);
            let reading = Reading::of(&mut tail, exit);
            prop_assert!(!reading.valid || (reading.score.is_some() && exit == 0));
        }
    }
}

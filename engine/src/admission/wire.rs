//! Turns entries of the admission ledger into their JSON shapes, and back (contract §7.1).
//! It refuses to know files and sequence numbers.

use serde::{Deserialize, Serialize};

use super::book::Settlement;
use super::input::{Command, Fields, Input, Key};
use crate::log::InputWire;

/// One line of the ledger without its envelope.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// An input was taken in.
    Admitted {
        /// Its key.
        key: Key,
        /// What is asked for; `None` where this build does not know it.
        input: Option<Input>,
    },
    /// It came to its end.
    Settled {
        /// Its key.
        key: Key,
        /// How.
        outcome: Settlement,
        /// One line for a person.
        note: String,
    },
}

/// The fields of both kinds, which all lie beside each other.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Flat {
    kind: String,
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    regime: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_cost: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_secs: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iterations: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<Settlement>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

const ADMITTED: &str = "admitted";
const SETTLED: &str = "settled";

impl Line {
    /// Reads one line; `None` for what is no line of a ledger.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Line> {
        #[derive(Deserialize)]
        struct Head {
            v: u32,
        }
        let head: Head = serde_json::from_slice(line).ok()?;
        let flat: Flat = serde_json::from_slice(line).ok()?;
        if head.v != 1 {
            return None;
        }
        let key = Key::known(flat.key.clone());
        match flat.kind.as_str() {
            ADMITTED => Some(Line::Admitted { key, input: flat.into_input() }),
            SETTLED => {
                Some(Line::Settled { key, outcome: flat.outcome?, note: flat.note.unwrap_or_default() })
            }
            _ => None,
        }
    }
}

impl Flat {
    fn into_input(self) -> Option<Input> {
        let command = Command::of(self.input.as_deref()?)?;
        let Flat { text, handle, reason, regime, max_cost, max_secs, iterations, .. } = self;
        Input::new(command, Fields { text, handle, reason, regime, max_cost, max_secs, iterations }).ok()
    }

    fn of(line: &Line) -> Flat {
        match line {
            Line::Admitted { key, input } => {
                let fields = input.as_ref().map(Input::fields).unwrap_or_default();
                let Fields { text, handle, reason, regime, max_cost, max_secs, iterations } = fields;
                Flat {
                    kind: ADMITTED.to_owned(),
                    key: key.to_string(),
                    input: input.as_ref().map(|input| input.command().token().to_owned()),
                    text,
                    handle,
                    reason,
                    regime,
                    max_cost,
                    max_secs,
                    iterations,
                    outcome: None,
                    note: None,
                }
            }
            Line::Settled { key, outcome, note } => Flat {
                kind: SETTLED.to_owned(),
                key: key.to_string(),
                outcome: Some(*outcome),
                note: Some(note.clone()),
                ..Flat::default()
            },
        }
    }
}

impl Serialize for Line {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Flat::of(self).serialize(serializer)
    }
}

/// An input as the session log tells that it was taken up, while the run waited for `stage`.
#[must_use]
pub fn told(key: &Key, input: &Input, stage: &str) -> InputWire {
    let Fields { text, handle, reason, regime, max_cost, max_secs, iterations } = input.fields();
    let (key, input, stage) = (key.to_string(), input.command().token().to_owned(), stage.to_owned());
    InputWire { key, input, stage, text, handle, reason, regime, max_cost, max_secs, iterations }
}

/// What [`told`] told; `None` where this build does not know it.
#[must_use]
pub fn heard(wire: &InputWire) -> Option<(Key, Input)> {
    let InputWire { key, input, text, handle, reason, regime, max_cost, max_secs, iterations, .. } =
        wire.clone();
    let fields = Fields { text, handle, reason, regime, max_cost, max_secs, iterations };
    let input = Input::new(Command::of(&input)?, fields).ok()?;
    Some((Key::known(key), input))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Option<&Line>) {
        assert_eq!(Line::parse(text.as_bytes()).as_ref(), expect, "{text}");
    }

    fn key(text: &str) -> Key {
        Key::chosen(text).unwrap()
    }

    #[test]
    fn reads_what_the_contract_shows_and_passes_over_the_rest() {
        let rescope = Input::Rescope { regime: "c=48".into() };
        check(
            r#"{"v":1,"kind":"admitted","key":"k","seq":1,"ts":"x","input":"rescope","regime":"c=48"}"#,
            Some(&Line::Admitted { key: key("k"), input: Some(rescope) }),
        );
        check(
            r#"{"v":1,"kind":"settled","key":"k","outcome":"applied","ts":"x","note":""}"#,
            Some(&Line::Settled { key: key("k"), outcome: Settlement::Applied, note: String::new() }),
        );
        check(
            r#"{"v":1,"kind":"admitted","key":"k","input":"a-command-to-come","more":1}"#,
            Some(&Line::Admitted { key: key("k"), input: None }),
        );
        check(r#"{"v":1,"kind":"settled","key":"k","outcome":"a-fourth"}"#, None);
        check(r#"{"v":2,"kind":"settled","key":"k","outcome":"applied"}"#, None);
        check(r#"{"v":1,"kind":"admit"#, None);
        check("", None);
    }

    #[test]
    fn the_payload_lies_flat_beside_the_command() {
        let line = Line::Admitted { key: key("k"), input: Some(Input::Steer { text: "go".into() }) };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(text, r#"{"kind":"admitted","key":"k","input":"steer","text":"go"}"#);
        let line = Line::Settled { key: key("k"), outcome: Settlement::Superseded, note: "n".into() };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(text, r#"{"kind":"settled","key":"k","outcome":"superseded","note":"n"}"#);
    }
}

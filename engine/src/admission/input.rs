//! Turns the fields of an operator's command into an input that a run can take, and back (contract §7.1).
//! It refuses to know how they arrived.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest key that a client may choose, in bytes.
pub const KEY_MAX: usize = 256;
/// What the keys that the engine makes begin with; no client may choose one of them.
pub const OWN_KEYS: &str = "crucible:";
/// The longest text of a steer, in bytes.
pub const STEER_MAX: usize = 32 * 1024;
/// The longest of the other texts, in bytes.
const TEXT_MAX: usize = 4 * 1024;

/// Names one input for ever: what is delivered twice under one key acts once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(String);

impl Key {
    /// A key that a client chose.
    ///
    /// # Errors
    /// When it is empty, longer than [`KEY_MAX`], or one of the engine's own.
    pub fn chosen(text: &str) -> Result<Key, InputError> {
        if text.is_empty() || text.len() > KEY_MAX {
            return Err(InputError::KeyLength);
        }
        if text.starts_with(OWN_KEYS) {
            return Err(InputError::KeyTaken);
        }
        Ok(Key(text.to_owned()))
    }

    /// A key of the engine's own.
    #[must_use]
    pub fn own(rest: &str) -> Key {
        Key(format!("{OWN_KEYS}{rest}"))
    }

    /// A key that stands in a record.
    #[must_use]
    pub fn known(text: String) -> Key {
        Key(text)
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The commands that are inputs, by their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Words for the next prompt.
    Steer,
    /// Yes to what the agent asked for.
    Approve,
    /// No to it.
    Deny,
    /// Measure in another regime from here on.
    Rescope,
    /// Other ceilings.
    SetBudget,
    /// Begin no further iteration.
    Pause,
    /// Go on.
    Resume,
    /// End after the running iteration.
    Stop,
    /// End now.
    Abort,
}

/// Each command with its token and the fields that it takes.
const COMMANDS: [(Command, &str, &[&str]); 9] = [
    (Command::Steer, "steer", &["text"]),
    (Command::Approve, "approve", &["handle", "regime"]),
    (Command::Deny, "deny", &["handle", "reason"]),
    (Command::Rescope, "rescope", &["regime"]),
    (Command::SetBudget, "set-budget", &["max_cost", "max_secs", "iterations"]),
    (Command::Pause, "pause", &[]),
    (Command::Resume, "resume", &[]),
    (Command::Stop, "stop", &[]),
    (Command::Abort, "abort", &[]),
];

impl Command {
    /// The wire token.
    #[must_use]
    pub fn token(self) -> &'static str {
        COMMANDS.iter().find(|(command, _, _)| *command == self).map_or("", |(_, token, _)| token)
    }

    /// The command of a token.
    #[must_use]
    pub fn of(token: &str) -> Option<Command> {
        COMMANDS.iter().find(|(_, own, _)| *own == token).map(|(command, _, _)| *command)
    }

    fn takes(self) -> &'static [&'static str] {
        COMMANDS.iter().find(|(command, _, _)| *command == self).map_or(&[], |(_, _, fields)| fields)
    }
}

/// The payload of an input as it stands on the wire and in the ledger: each field beside the command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fields {
    /// The words of a steer.
    pub text: Option<String>,
    /// What the agent was given to ask again with.
    pub handle: Option<String>,
    /// Why not.
    pub reason: Option<String>,
    /// The regime's label.
    pub regime: Option<String>,
    /// US dollars.
    pub max_cost: Option<f64>,
    /// Seconds since the run began.
    pub max_secs: Option<f64>,
    /// Iterations after the baseline.
    pub iterations: Option<u32>,
}

impl Fields {
    /// The names of those that are there.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("text", self.text.is_some()),
            ("handle", self.handle.is_some()),
            ("reason", self.reason.is_some()),
            ("regime", self.regime.is_some()),
            ("max_cost", self.max_cost.is_some()),
            ("max_secs", self.max_secs.is_some()),
            ("iterations", self.iterations.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
    }
}

/// Ceilings that take the place of those of the command line; what is absent stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Budget {
    /// US dollars, of the whole run.
    pub max_cost: Option<f64>,
    /// Seconds since the run began.
    pub max_secs: Option<f64>,
    /// Iterations after the baseline.
    pub iterations: Option<u32>,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ceiling {
    /// `max_cost`.
    Cost,
    /// `max_secs`.
    Time,
    /// `iterations`.
    Iterations,
}

impl Ceiling {
    /// Its field on the wire.
    fn field(self) -> &'static str {
        match self {
            Ceiling::Cost => "max_cost",
            Ceiling::Time => "max_secs",
            Ceiling::Iterations => "iterations",
        }
    }
}

impl Budget {
    /// The first ceiling that none can be, whoever names it: each is more than nothing, and a time one that there is.
    #[must_use]
    pub fn fault(&self) -> Option<Ceiling> {
        let time = |secs| Duration::try_from_secs_f64(secs).is_ok_and(|time| !time.is_zero());
        let cost = self.max_cost.is_none_or(|cost| cost.is_finite() && cost > 0.0);
        let all = [
            (Ceiling::Iterations, self.iterations != Some(0)),
            (Ceiling::Time, self.max_secs.is_none_or(time)),
            (Ceiling::Cost, cost),
        ];
        all.into_iter().find(|(_, fits)| !fits).map(|(ceiling, _)| ceiling)
    }

    /// Whether nothing of `earlier` is left once this is in force.
    #[must_use]
    pub fn covers(&self, earlier: &Budget) -> bool {
        (earlier.max_cost.is_none() || self.max_cost.is_some())
            && (earlier.max_secs.is_none() || self.max_secs.is_some())
            && (earlier.iterations.is_none() || self.iterations.is_some())
    }
}

/// One thing that an operator asks of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Words for the next prompt.
    Steer {
        /// The words.
        text: String,
    },
    /// Yes to what the agent asked for.
    Approve {
        /// The ask that is meant; whichever is open, where it is absent.
        handle: Option<String>,
        /// The regime that the run is in from then on; named after the ask, where it is absent.
        regime: Option<String>,
    },
    /// No to it.
    Deny {
        /// The ask that is meant; whichever is open, where it is absent.
        handle: Option<String>,
        /// Why not.
        reason: String,
    },
    /// Measure in another regime from here on.
    Rescope {
        /// Its label.
        regime: String,
    },
    /// Other ceilings.
    SetBudget(Budget),
    /// Begin no further iteration.
    Pause,
    /// Go on.
    Resume,
    /// End after the running iteration.
    Stop,
    /// End now.
    Abort,
}

/// Why fields are no input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A key that is too short or too long.
    #[error("`id` must have 1 to {KEY_MAX} bytes")]
    KeyLength,
    /// A key of the engine's own.
    #[error("`id` must not begin with `{OWN_KEYS}`")]
    KeyTaken,
    /// A field that the command needs.
    #[error("`{command}` needs `{field}`")]
    Missing {
        /// The command.
        command: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field that the command has no use for.
    #[error("`{command}` takes no `{field}`")]
    Foreign {
        /// The command.
        command: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A text that is empty or too long.
    #[error("`{field}` must have 1 to {max} bytes")]
    Length {
        /// The field.
        field: &'static str,
        /// The most, in bytes.
        max: usize,
    },
    /// A number that no ceiling can be.
    #[error("`{field}` must be a number that is more than 0")]
    Number {
        /// The field.
        field: &'static str,
    },
}

impl Input {
    /// Takes exactly the fields that the command has a use for.
    ///
    /// # Errors
    /// The first field that is missing, foreign or out of its bounds.
    pub fn new(command: Command, fields: Fields) -> Result<Input, InputError> {
        let token = command.token();
        if let Some(field) = fields.given().find(|field| !command.takes().contains(field)) {
            return Err(InputError::Foreign { command: token, field });
        }
        let Fields { text, handle, reason, regime, max_cost, max_secs, iterations } = fields;
        let missing = |field| InputError::Missing { command: token, field };
        let handle = handle.map(|handle| bounded("handle", handle, TEXT_MAX)).transpose()?;
        let regime = regime.map(|regime| bounded("regime", regime, TEXT_MAX)).transpose()?;
        Ok(match command {
            Command::Steer => {
                Input::Steer { text: bounded("text", text.ok_or(missing("text"))?, STEER_MAX)? }
            }
            Command::Approve => Input::Approve { handle, regime },
            Command::Deny => {
                let reason = reason.map(|reason| bounded("reason", reason, TEXT_MAX)).transpose()?;
                Input::Deny { handle, reason: reason.unwrap_or_default() }
            }
            Command::Rescope => Input::Rescope { regime: regime.ok_or(missing("regime"))? },
            Command::SetBudget => {
                let budget = Budget { max_cost, max_secs, iterations };
                if let Some(ceiling) = budget.fault() {
                    return Err(InputError::Number { field: ceiling.field() });
                }
                if budget == Budget::default() {
                    return Err(missing("max_cost`, `max_secs` or `iterations"));
                }
                Input::SetBudget(budget)
            }
            Command::Pause => Input::Pause,
            Command::Resume => Input::Resume,
            Command::Stop => Input::Stop,
            Command::Abort => Input::Abort,
        })
    }

    /// The command that it is.
    #[must_use]
    pub fn command(&self) -> Command {
        match self {
            Input::Steer { .. } => Command::Steer,
            Input::Approve { .. } => Command::Approve,
            Input::Deny { .. } => Command::Deny,
            Input::Rescope { .. } => Command::Rescope,
            Input::SetBudget(_) => Command::SetBudget,
            Input::Pause => Command::Pause,
            Input::Resume => Command::Resume,
            Input::Stop => Command::Stop,
            Input::Abort => Command::Abort,
        }
    }

    /// The payload, for the wire and the ledger.
    #[must_use]
    pub fn fields(&self) -> Fields {
        let none = Fields::default();
        match self.clone() {
            Input::Steer { text } => Fields { text: Some(text), ..none },
            Input::Approve { handle, regime } => Fields { handle, regime, ..none },
            Input::Deny { handle, reason } => {
                Fields { handle, reason: (!reason.is_empty()).then_some(reason), ..none }
            }
            Input::Rescope { regime } => Fields { regime: Some(regime), ..none },
            Input::SetBudget(Budget { max_cost, max_secs, iterations }) => {
                Fields { max_cost, max_secs, iterations, ..none }
            }
            Input::Pause | Input::Resume | Input::Stop | Input::Abort => none,
        }
    }

    /// Whether it takes effect though it cannot be recorded: an end must never wait for a disk.
    #[must_use]
    pub fn ends_the_run(&self) -> bool {
        matches!(self, Input::Stop | Input::Abort)
    }
}

fn bounded(field: &'static str, text: String, max: usize) -> Result<String, InputError> {
    if text.is_empty() || text.len() > max { Err(InputError::Length { field, max }) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str, fields: Fields, expect: &str) {
        let command = Command::of(command).unwrap();
        let given = fields.clone();
        let got = match Input::new(command, fields) {
            Ok(input) => {
                assert_eq!(input.command(), command);
                assert_eq!(input.fields(), given, "what goes in comes out");
                "ok".to_owned()
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(got, expect, "{command:?} {given:?}");
    }

    #[test]
    fn a_command_takes_its_own_fields_and_no_other() {
        let some = |text: &str| Some(text.to_owned());
        let none = Fields::default();
        check("steer", Fields { text: some("faster"), ..none.clone() }, "ok");
        check("steer", none.clone(), "`steer` needs `text`");
        check("steer", Fields { text: some(""), ..none.clone() }, "`text` must have 1 to 32768 bytes");
        check(
            "steer",
            Fields { text: Some("x".repeat(32_769)), ..none.clone() },
            "`text` must have 1 to 32768 bytes",
        );
        check(
            "steer",
            Fields { text: some("x"), regime: some("y"), ..none.clone() },
            "`steer` takes no `regime`",
        );
        check("approve", none.clone(), "ok");
        check("approve", Fields { handle: some("gpu"), regime: some("c=48"), ..none.clone() }, "ok");
        check("deny", Fields { handle: some("gpu"), reason: some("no room"), ..none.clone() }, "ok");
        check("rescope", none.clone(), "`rescope` needs `regime`");
        check("rescope", Fields { regime: some("c=48"), ..none.clone() }, "ok");
        check("set-budget", none.clone(), "`set-budget` needs `max_cost`, `max_secs` or `iterations`");
        check("set-budget", Fields { max_cost: Some(2.5), ..none.clone() }, "ok");
        for wrong in [-1.0, -0.0, 0.0, f64::NAN, f64::INFINITY] {
            for (field, fields) in [
                ("max_secs", Fields { max_secs: Some(wrong), ..none.clone() }),
                ("max_cost", Fields { max_cost: Some(wrong), ..none.clone() }),
            ] {
                let refused = Input::new(Command::SetBudget, fields);
                assert_eq!(refused, Err(InputError::Number { field }), "{wrong}");
            }
        }
        // No deadline is that far away, and none would be set.
        for wrong in [1e30, 1e-12] {
            let fields = Fields { max_secs: Some(wrong), ..none.clone() };
            assert_eq!(Input::new(Command::SetBudget, fields), Err(InputError::Number { field: "max_secs" }));
        }
        let nothing = Fields { iterations: Some(0), ..none.clone() };
        check("set-budget", nothing, "`iterations` must be a number that is more than 0");
        for bare in ["pause", "resume", "stop", "abort"] {
            check(bare, none.clone(), "ok");
            check(
                bare,
                Fields { iterations: Some(1), ..none.clone() },
                &format!("`{bare}` takes no `iterations`"),
            );
        }
    }

    #[test]
    fn a_chosen_key_is_not_one_of_the_engines() {
        assert!(Key::chosen("pr-comment:owner/repo#7:12345").is_ok());
        assert_eq!(Key::chosen(""), Err(InputError::KeyLength));
        assert_eq!(Key::chosen(&"é".repeat(129)), Err(InputError::KeyLength));
        assert!(Key::chosen(&"é".repeat(128)).is_ok());
        assert_eq!(Key::chosen(Key::own("x").as_str()), Err(InputError::KeyTaken));
    }

    #[test]
    fn a_later_budget_covers_an_earlier_one_only_whole() {
        let cost = Budget { max_cost: Some(1.0), ..Budget::default() };
        let both = Budget { iterations: Some(3), ..cost };
        assert!(both.covers(&cost) && cost.covers(&cost));
        assert!(!cost.covers(&both));
    }
}

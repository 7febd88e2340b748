//! Turns the options of an input into one request, and its answer into a line (contract §7.1).
//! It refuses to know what the input does.

use std::io::Read;

use serde_json::{Map, Value};

use super::args::{ApproveArgs, BudgetArgs, DenyArgs, InputArgs, RescopeArgs, SteerArgs};
use super::place;
use crate::admission::input::STEER_MAX;
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::run::print;
use crate::control::Dial;
use crate::report::plain;

/// `steer`
///
/// # Errors
/// When no run is live, or it says no.
pub fn steer(args: &SteerArgs) -> Result<Exit, CliError> {
    let text = if args.text == "-" { standard_input()? } else { args.text.clone() };
    send("steer", &args.input, [("text", Some(Value::from(text)))])
}

/// A command without a payload.
///
/// # Errors
/// As [`steer`].
pub fn bare(cmd: &str, args: &InputArgs) -> Result<Exit, CliError> {
    send(cmd, args, [])
}

/// `budget`
///
/// # Errors
/// As [`steer`].
pub fn budget(args: &BudgetArgs) -> Result<Exit, CliError> {
    let secs = args.max_time.map(|time| Value::from(time.as_secs_f64()));
    let fields = [
        ("max_cost", args.max_cost.map(Value::from)),
        ("max_secs", secs),
        ("iterations", args.iterations.map(Value::from)),
    ];
    send("set-budget", &args.input, fields)
}

/// `approve`
///
/// # Errors
/// As [`steer`].
pub fn approve(args: &ApproveArgs) -> Result<Exit, CliError> {
    let fields = [("handle", args.handle.clone()), ("regime", args.regime.clone())];
    send("approve", &args.input, fields.map(|(name, text)| (name, text.map(Value::from))))
}

/// `deny`
///
/// # Errors
/// As [`steer`].
pub fn deny(args: &DenyArgs) -> Result<Exit, CliError> {
    let fields = [("handle", args.handle.clone()), ("reason", args.reason.clone())];
    send("deny", &args.input, fields.map(|(name, text)| (name, text.map(Value::from))))
}

/// `rescope`
///
/// # Errors
/// As [`steer`].
pub fn rescope(args: &RescopeArgs) -> Result<Exit, CliError> {
    send("rescope", &args.input, [("regime", Some(Value::from(args.regime.clone())))])
}

fn send<const N: usize>(
    cmd: &str,
    args: &InputArgs,
    fields: [(&str, Option<Value>); N],
) -> Result<Exit, CliError> {
    let mut request = Map::new();
    request.insert("cmd".to_owned(), Value::from(cmd));
    let id = [("id", args.id.clone().map(Value::from))];
    for (name, value) in fields.into_iter().chain(id) {
        if let Some(value) = value {
            request.insert(name.to_owned(), value);
        }
    }
    let answer = Dial::to(&place(&args.place)?)?.ask(&Value::Object(request))?;
    if args.place.json {
        print(&format!("{answer}\n"))?;
    } else {
        print(&told(cmd, &answer))?;
    }
    Ok(Exit::Ok)
}

/// One line on what became of it.
fn told(cmd: &str, answer: &Value) -> String {
    let text = |name| answer.get(name).and_then(Value::as_str).map(plain);
    let key = text("key").unwrap_or_default();
    match (text("outcome"), answer.get("dup").is_some(), answer.get("unrecorded").is_some()) {
        (_, _, true) => format!("{cmd}: taken in, but it could not be recorded\n"),
        (Some(outcome), _, _) => format!("{cmd}: delivered before as {key}, and {outcome}\n"),
        (None, true, _) => format!("{cmd}: delivered before as {key}\n"),
        (None, false, _) => format!("{cmd}: taken in as {key}\n"),
    }
}

/// Standard input, up to what a steer may have and one byte more, which the run refuses.
fn standard_input() -> Result<String, CliError> {
    let mut text = String::new();
    let most = u64::try_from(STEER_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let read = std::io::stdin().take(most).read_to_string(&mut text);
    read.map_err(|source| CliError::Io { doing: "read standard input", source })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_one_line_without_escapes() {
        for (answer, expect) in [
            (json!({ "key": "a\u{1b}[2J" }), "steer: taken in as a\\u{1b}[2J\n"),
            (json!({ "key": "a", "dup": true }), "steer: delivered before as a\n"),
            (
                json!({ "key": "a", "dup": true, "outcome": "applied" }),
                "steer: delivered before as a, and applied\n",
            ),
            (json!({ "unrecorded": true }), "steer: taken in, but it could not be recorded\n"),
        ] {
            assert_eq!(told("steer", &answer), expect);
        }
    }
}

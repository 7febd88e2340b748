//! Turns a run, live or over, into a few lines on where it stands (contract §7.1, `status`).
//! It refuses to know how it got there.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::args::StatusArgs;
use super::place;
use crate::admission::ledger;
use crate::agent::Usd;
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::run::print;
use crate::control::dial::Place;
use crate::control::{ADMISSIONS_FILE, Dial, DialError, Status};
use crate::log::LogReader;
use crate::report::plain;
use crate::run::statedir::SESSION_FILE;

/// Shows where a run stands.
///
/// # Errors
/// When there is none.
pub fn status(args: &StatusArgs) -> Result<Exit, CliError> {
    let place = place(&args.place)?;
    let asked = Dial::to(&place).and_then(|mut dial| dial.ask(&json!({ "cmd": "status" })));
    let (live, status) = match (asked, &place) {
        (Ok(answer), _) => (true, answer),
        (Err(DialError::NotLive { .. } | DialError::Closed), Place::State(state)) => {
            (false, recorded(state)?)
        }
        (Err(error), _) => return Err(error.into()),
    };
    if args.place.json {
        let mut whole = Map::new();
        whole.insert("live".to_owned(), Value::Bool(live));
        let fields = status.as_object().cloned().unwrap_or_default();
        whole.extend(fields.into_iter().filter(|(name, _)| name != "ok" && name != "cmd"));
        print(&format!("{:#}\n", Value::Object(whole)))?;
    } else {
        print(&text(live, &status))?;
    }
    Ok(Exit::Ok)
}

/// What the log and the ledger of a run say that is not live.
fn recorded(state: &Path) -> Result<Value, CliError> {
    let path = state.join(SESSION_FILE);
    if !path.is_file() {
        return Err(CliError::NoRun(state.to_owned()));
    }
    let mut status = Status::default();
    for (at, entry) in (1..).zip(LogReader::open(&path).map_err(|error| CliError::Read(error.into()))?) {
        let entry = entry.map_err(|error| CliError::Read(error.into()))?;
        status.see(entry.seq.unwrap_or(at), &entry.event);
    }
    let book = ledger::read(&state.join(ADMISSIONS_FILE)).map_err(|error| CliError::Read(error.into()))?;
    serde_json::to_value(status.with(&book)).map_err(|error| CliError::Read(error.into()))
}

/// A few lines for a person.
fn text(live: bool, status: &Value) -> String {
    let word = |name: &str| status.get(name).and_then(Value::as_str).map(plain);
    let float = |name: &str| status.get(name).and_then(Value::as_f64);
    // A score that is whole is told without decimals, as everywhere.
    let number = |name: &str| float(name).map(|number| number.to_string());
    let or_none = |name: &str| number(name).unwrap_or_else(|| "none".to_owned());
    let mut lines = Vec::new();
    let phase = word("phase").unwrap_or_default();
    let standing = format!("{phase}, iteration {} of {}", or_none("iter"), or_none("iters_total"));
    lines.push(match (live, word("outcome")) {
        (true, _) => format!("live: {standing}"),
        (false, Some(outcome)) => format!("{outcome}: {}", word("reason").unwrap_or_default()),
        (false, None) => format!("died: {standing}"),
    });
    lines.push(format!(
        "best {} (baseline {}), {} of {} kept",
        or_none("best_score"),
        or_none("baseline_score"),
        or_none("kept"),
        or_none("settled")
    ));
    let of = |most: Option<String>| most.map(|most| format!(" of {most}")).unwrap_or_default();
    let usd = |name: &str| float(name).map(|cost| Usd(cost).to_string());
    let secs = |name: &str| float(name).map(duration);
    lines.push(format!(
        "spent {} USD{}, {}{}",
        usd("spent").unwrap_or_else(|| "0".to_owned()),
        of(usd("max_cost")),
        secs("elapsed_secs").unwrap_or_else(|| duration(0.0)),
        of(secs("max_secs"))
    ));
    if let Some(regime) = word("regime") {
        lines.push(format!("regime {regime}"));
    }
    if let Some(waiting) = status.get("waiting") {
        let part = |name: &str| waiting.get(name).and_then(Value::as_str).map(plain).unwrap_or_default();
        let (handle, trace, mode) = (part("handle"), part("trace_id"), part("mode"));
        lines.push(format!("the agent asks for {handle} ({mode}, {trace}): `crucible approve` or `deny`"));
    }
    for owed in status.get("owed").and_then(Value::as_array).into_iter().flatten() {
        let part = |name: &str| owed.get(name).and_then(Value::as_str).map(plain).unwrap_or_default();
        lines.push(format!("owed: {} {}", part("input"), part("key")));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Seconds for a person: `12.5s`, `2m 05s`, `1h 02m 03s`.
fn duration(secs: f64) -> String {
    if secs < 60.0 {
        return format!("{}s", (secs * 10.0).round() / 10.0);
    }
    let whole = Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX).as_secs();
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, minutes, secs) => format!("{minutes}m {secs:02}s"),
        (hours, minutes, secs) => format!("{hours}h {minutes:02}m {secs:02}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_told_as_a_person_tells_them() {
        for (secs, expect) in
            [(0.0, "0s"), (12.54, "12.5s"), (60.0, "1m 00s"), (125.9, "2m 05s"), (3723.4, "1h 02m 03s")]
        {
            assert_eq!(duration(secs), expect);
        }
    }

    #[test]
    fn a_run_is_told_in_a_few_lines() {
        let status = json!({
            "phase": "parked", "iter": 3, "iters_total": 20, "settled": 3, "kept": 1, "baseline_score": 1.0,
            "best_score": null, "spent": 1.2000000000000002, "max_cost": 2.0, "elapsed_secs": 12.5, "max_secs": 3723.0,
            "waiting": { "handle": "gpu\u{1b}", "trace_id": "t", "mode": "block" },
            "owed": [{ "key": "k", "input": "steer" }],
        });
        insta::assert_snapshot!(text(true, &status), @r"
        live: parked, iteration 3 of 20
        best none (baseline 1), 1 of 3 kept
        spent 1.2 USD of 2, 12.5s of 1h 02m 03s
        the agent asks for gpu\u{1b} (block, t): `crucible approve` or `deny`
        owed: steer k
        ");
        assert!(text(false, &status).starts_with("died: parked"));
    }
}

//! Turns lines of a session log, of a live run or one that is over, into lines for a person (contract §7.1, `tail`).
//! It refuses to know what they mean.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::args::TailArgs;
use super::place;
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::control::dial::Place;
use crate::control::follow::{Follow, last_seq};
use crate::control::{Dial, DialError};
use crate::report::plain_cut;
use crate::run::statedir::SESSION_FILE;

/// How many lines are shown where none is named.
const LAST: u64 = 10;
/// The longest line for a person, in characters.
const WIDTH: usize = 200;
/// The longest line that is made into one for a person, in bytes; of a longer one, that it is there.
const LINE_MAX: usize = 1024 * 1024;

/// Shows lines of a log.
///
/// # Errors
/// When there is no run.
pub fn tail(args: &TailArgs) -> Result<Exit, CliError> {
    let place = place(&args.place)?;
    let mut out = Out { json: args.place.json, pending: Vec::new(), long: false, out: io::stdout().lock() };
    let done = match (live(&place, args, &mut out), &place) {
        (Err(CliError::Dial(DialError::NotLive { .. } | DialError::Closed)), Place::State(state)) => {
            recorded(state, args, &mut out)
        }
        (done, _) => done,
    };
    match done {
        Err(CliError::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        done => done.map(|()| Exit::Ok),
    }
}

fn live(place: &Place, args: &TailArgs, out: &mut Out<'_>) -> Result<(), CliError> {
    let mut dial = Dial::to(place)?;
    let from = match args.from {
        Some(from) => from,
        None => {
            let seq = dial.ask(&json!({ "cmd": "status" }))?.get("seq").and_then(Value::as_u64);
            first(seq.unwrap_or(0))
        }
    };
    dial.ask(&json!({ "cmd": "tail", "from": from, "follow": args.follow }))?;
    dial.drain(&mut |piece| out.take(piece)).map_err(written)
}

/// The first of the last lines.
fn first(last: u64) -> u64 {
    last.saturating_sub(LAST).saturating_add(1)
}

/// The lines of a run that is not live.
fn recorded(state: &Path, args: &TailArgs, out: &mut Out<'_>) -> Result<(), CliError> {
    let path = state.join(SESSION_FILE);
    if !path.is_file() {
        return Err(CliError::NoRun(state.to_owned()));
    }
    let read = |error: io::Error| CliError::Read(error.into());
    let from = match args.from {
        Some(from) => from,
        None => first(last_seq(&path).map_err(|error| CliError::Read(error.into()))?),
    };
    let mut log = Follow::at_start(&path).map_err(read)?;
    while !log.seek(from).map_err(read)? {}
    while let Some(piece) = log.piece().map_err(read)? {
        out.take(piece).map_err(written)?;
    }
    Ok(())
}

fn written(source: io::Error) -> CliError {
    CliError::Io { doing: "write to standard output", source }
}

/// Standard output, as lines of the log or lines for a person.
struct Out<'a> {
    json: bool,
    pending: Vec<u8>,
    long: bool,
    out: io::StdoutLock<'a>,
}

impl Out<'_> {
    fn take(&mut self, piece: &[u8]) -> io::Result<()> {
        if self.json {
            self.out.write_all(piece)?;
            return self.out.flush();
        }
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (part, whole) = part.strip_suffix(b"\n").map_or((part, false), |part| (part, true));
            self.long |= self.pending.len().saturating_add(part.len()) > LINE_MAX;
            if !self.long {
                self.pending.extend_from_slice(part);
            }
            if whole {
                let line = if self.long {
                    "(a line that is too long to show)".to_owned()
                } else {
                    person(&self.pending)
                };
                self.pending.clear();
                self.long = false;
                writeln!(self.out, "{line}")?;
            }
        }
        self.out.flush()
    }
}

/// A line of the log for a person: its number, its time, its kind, and what else it says, cut.
fn person(line: &[u8]) -> String {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else {
        return plain_cut(&String::from_utf8_lossy(line), WIDTH);
    };
    let mut take = |name: &str| match fields.remove(name) {
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    };
    let (seq, ts, kind) = (take("seq"), take("ts"), take("kind"));
    fields.remove("v");
    let time = ts.get(11..19).unwrap_or(&ts).to_owned();
    plain_cut(&format!("{seq:>6} {time} {kind:<14} {}", rest(&fields)), WIDTH)
}

fn rest(fields: &Map<String, Value>) -> String {
    let told = fields.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name}={text}"),
        value => format!("{name}={value}"),
    });
    told.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_a_person_is_one_line_without_escapes() {
        for (line, expect) in [
            (
                r#"{"v":1,"seq":12,"ts":"2026-11-30T11:21:14.919Z","kind":"phase","phase":"iteration","iter":1}"#,
                "    12 11:21:14 phase          iter=1 phase=iteration",
            ),
            (r#"{"v":1,"kind":"note","msg":"a\nb\u001b[2J"}"#, "     - - note           msg=a\\nb\\u{1b}[2J"),
            ("torn", "torn"),
        ] {
            assert_eq!(person(line.as_bytes()), expect);
        }
    }
}

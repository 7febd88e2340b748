//! Turns the audit file of a run into a table, JSON, CSV, or a proof that it is whole (`audit`).
//! It refuses to know how records are made.

use std::path::Path;

use policy::reason::Reason;
use policy::record::{Filter, Format, Head, Tear, Verdict, render, verify};

use super::args::AuditArgs;
use super::error::CliError;
use super::exit::Exit;
use super::resumed::state_of;
use super::run::print;
use super::writes::table;
use crate::egress::AUDIT_FILE;
use crate::log::SessionEvent;
use crate::run::statedir::SESSION_FILE;
use crate::run::writes::Writes;
use crate::sys::fs::read_bounded;

/// The most that is read of a log or an audit file.
const MOST: u64 = 4 << 30;

/// Shows or proves the records of a run.
///
/// # Errors
/// A file that cannot be read, and with `--verify` the first record that is not what was written.
pub fn audit(args: &AuditArgs) -> Result<Exit, CliError> {
    let state = state_of(&args.state)?;
    if args.writes {
        return show_writes(&state, args.json);
    }
    let path = state.join(AUDIT_FILE);
    if !path.exists() {
        return Err(CliError::NoAudit(state));
    }
    let bytes = read_bounded(&path, MOST).map_err(CliError::Audit)?;
    if args.verify {
        return prove(&state, &path, &bytes);
    }
    let format = match (args.json, args.csv) {
        (true, _) => Format::Json,
        (_, true) => Format::Csv,
        _ => Format::Table,
    };
    print(&render(&String::from_utf8_lossy(&bytes), &filter(args)?, format))?;
    if format == Format::Table && unfiltered(args) {
        let text = table(&Writes::read(&state).map_err(CliError::Audit)?);
        if !text.is_empty() {
            print(&format!("\nwrites\n{text}"))?;
        }
    }
    Ok(Exit::Ok)
}

fn show_writes(state: &Path, json: bool) -> Result<Exit, CliError> {
    let writes = Writes::read(state).map_err(CliError::Audit)?;
    let encode = |error: serde_json::Error| CliError::Io { doing: "encode the writes", source: error.into() };
    let text = if json {
        format!("{}\n", serde_json::to_string_pretty(&writes).map_err(encode)?)
    } else {
        table(&writes)
    };
    print(&text)?;
    Ok(Exit::Ok)
}

fn unfiltered(args: &AuditArgs) -> bool {
    let texts = [&args.turn, &args.host, &args.reason, &args.binary];
    !args.denied && !args.allowed && texts.iter().all(|text| text.is_none())
}

fn prove(state: &Path, path: &Path, bytes: &[u8]) -> Result<Exit, CliError> {
    let expected = summed_up(state);
    let proof = verify(bytes, expected.as_ref())
        .map_err(|fault| CliError::Tampered { path: path.to_owned(), fault })?;
    let end = match expected {
        Some(_) => "its last record is the one that the run's summary names",
        None => "no summary says where the file ends, so records may be missing at its end",
    };
    let tears: String = proof.tears.iter().map(told).collect();
    let head = proof.head;
    print(&format!(
        "{} records, none missing, altered or out of order; {end}\n{tears}head {}\n",
        head.seq, head.hash
    ))?;
    Ok(if proof.tears.is_empty() { Exit::Ok } else { Exit::Torn })
}

/// A line about bytes that are no record.
fn told(tear: &Tear) -> String {
    let Tear { line, bytes, told } = tear;
    let after = if *told { "a record after them tells of them" } else { "the file ends with them" };
    let why = "the broker died while it wrote them, so nothing was answered that they were about";
    format!("line {line}: {bytes} bytes torn; {after}; {why}\n")
}

/// Where the run's summary says that the audit file ends.
fn summed_up(state: &Path) -> Option<Head> {
    let log = read_bounded(&state.join(SESSION_FILE), MOST).ok()?;
    let head = |line: &[u8]| match serde_json::from_slice(line).ok()? {
        SessionEvent::Summary { egress_seq, egress_head, .. } => {
            Some(Head { seq: egress_seq?, hash: egress_head? })
        }
        _ => None,
    };
    log.rsplit(|byte| *byte == b'\n').find_map(head)
}

fn filter(args: &AuditArgs) -> Result<Filter, CliError> {
    let reason = |token: &String| {
        serde_json::from_value::<Reason>(token.as_str().into()).map_err(|_| CliError::Reason(token.clone()))
    };
    let verdict = match (args.denied, args.allowed) {
        (true, _) => Some(Verdict::Deny),
        (_, true) => Some(Verdict::Allow),
        _ => None,
    };
    Ok(Filter {
        verdict,
        turn: args.turn.clone(),
        host: args.host.clone(),
        reason: args.reason.as_ref().map(reason).transpose()?,
        binary: args.binary.clone(),
    })
}

//! Turns recorded lines into a table, JSON or CSV for a person or another program.
//! It refuses to know whether the chain holds; that is `verify`.

use std::fmt::Write as _;

use super::{Line, Record, Verdict, clean};
use crate::reason::Reason;

/// How lines are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Columns for a person.
    #[default]
    Table,
    /// A JSON array of the lines as they are.
    Json,
    /// CSV with a header; no cell starts a formula.
    Csv,
}

/// Which decisions are shown; an absent condition holds for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this verdict.
    pub verdict: Option<Verdict>,
    /// Only this turn.
    pub turn: Option<String>,
    /// Only targets that contain this.
    pub host: Option<String>,
    /// Only this reason.
    pub reason: Option<Reason>,
    /// Only programs whose path contains this.
    pub binary: Option<String>,
}

const COLUMNS: [&str; 9] = ["seq", "time", "turn", "way", "verdict", "target", "reason", "binary", "entry"];

impl Filter {
    fn admits(&self, record: &Record) -> bool {
        let Record::Decision(decision) = record else { return false };
        let contains = |text: Option<&str>, part: &Option<String>| {
            part.as_ref().is_none_or(|part| text.is_some_and(|text| text.contains(part.as_str())))
        };
        self.verdict.is_none_or(|verdict| verdict == decision.verdict)
            && self.turn.as_ref().is_none_or(|turn| *turn == decision.turn)
            && self.reason.is_none_or(|reason| Some(reason) == decision.reason)
            && contains(Some(decision.target.as_deref().unwrap_or(&decision.asked)), &self.host)
            && contains(decision.binary.as_deref(), &self.binary)
    }
}

/// Shows the decisions of a file that the filter admits. Lines that are none are passed over; a table says how many other
/// records there are.
pub fn render(text: &str, filter: &Filter, format: Format) -> String {
    let (mut rows, mut others) = (Vec::new(), 0_u64);
    for line in text.lines() {
        let read = serde_json::from_str::<Line>(line).ok().zip(serde_json::from_str::<Record>(line).ok());
        others += u64::from(matches!(&read, Some((_, record)) if !matches!(record, Record::Decision(_))));
        if let Some((head, record)) = read.filter(|(_, record)| filter.admits(record)) {
            rows.push((head, record, line));
        }
    }
    match format {
        Format::Json => {
            let lines: Vec<&str> = rows.iter().map(|(_, _, line)| *line).collect();
            format!("[{}]\n", lines.join(",\n "))
        }
        Format::Csv => csv(rows.iter().filter_map(|(head, record, _)| cells(head, record))),
        Format::Table => {
            let rows: Vec<_> = rows.iter().filter_map(|(head, record, _)| cells(head, record)).collect();
            format!("{}{}", table(&rows), told(others))
        }
    }
}

/// Why numbers are missing in the first column.
fn told(others: u64) -> String {
    match others {
        0 => String::new(),
        1 => "1 more record is no decision, and is not shown\n".to_owned(),
        others => format!("{others} more records are no decisions, and are not shown\n"),
    }
}

fn cells(line: &Line, record: &Record) -> Option<[String; 9]> {
    let Record::Decision(decision) = record else { return None };
    let verdict = match decision.verdict {
        Verdict::Allow => "allow",
        Verdict::Deny => "deny",
    };
    let way = serde_json::to_value(decision.way).ok();
    let way = way.as_ref().and_then(|way| way.as_str()).unwrap_or_default().to_owned();
    let method = decision.method.as_ref().map(|method| format!("{method} ")).unwrap_or_default();
    let target = decision.target.as_deref().unwrap_or(&decision.asked);
    Some([
        line.seq.to_string(),
        clean(&line.ts),
        clean(&decision.turn),
        way,
        verdict.to_owned(),
        clean(&format!("{method}{target}")),
        decision.reason.map(|reason| reason.token().to_owned()).unwrap_or_default(),
        clean(decision.binary.as_deref().unwrap_or_default()),
        clean(decision.entry.as_deref().unwrap_or_default()),
    ])
}

fn table(rows: &[[String; 9]]) -> String {
    let header = COLUMNS.map(str::to_owned);
    let mut wide = [0_usize; 9];
    for row in std::iter::once(&header).chain(rows) {
        for (wide, cell) in wide.iter_mut().zip(row) {
            *wide = (*wide).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (cell, wide) in row.iter().zip(wide) {
            // Writing to a string does not fail.
            let _ = write!(line, "{cell:wide$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn csv(rows: impl Iterator<Item = [String; 9]>) -> String {
    let mut out = COLUMNS.join(",");
    out.push_str("\r\n");
    for row in rows {
        out.push_str(&row.map(|cell| quoted(&cell)).join(","));
        out.push_str("\r\n");
    }
    out
}

/// A cell in quotes; a leading formula character gets an apostrophe before it.
fn quoted(cell: &str) -> String {
    let guard = if cell.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    format!("\"{guard}{}\"", cell.replace('"', "\"\""))
}

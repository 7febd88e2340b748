//! Turns a tally into the text at the end of a run: chart, rows, where the files are.
//! It refuses to know where the text goes.

use std::fmt::Write;
use std::path::Path;

use super::chart::{chart, short};
use super::escape::{plain, plain_cut};
use super::tally::{Brief, Tally};
use crate::log::{Decision, Outcome, OutputCounts};

/// How many rows are shown; of more, the kept ones and the last ones.
const ROWS_MAX: usize = 20;

/// Where a person finds what the run left.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The workspace, at the best.
    pub workspace: &'a Path,
    /// `session.jsonl`
    pub session_log: &'a Path,
    /// `report.json`
    pub report: &'a Path,
}

/// The text at the end of a run, with the rows unless they were told while it ran.
#[must_use]
pub fn ending(tally: &Tally, places: Places<'_>, with_rows: bool) -> String {
    let mut text = String::new();
    let picture = chart(tally);
    if !picture.is_empty() {
        let _ = writeln!(text, "\n{} (* kept, . discarded, x not scored)", plain(&tally.objective));
        text.push_str(&picture);
    }
    if with_rows {
        text.push('\n');
        rows(&mut text, tally);
    }
    let score = |score: Option<crate::score::Score>| score.map_or("none".to_owned(), short);
    if let Some((outcome, reason)) = &tally.outcome {
        let _ = writeln!(text, "\n{}: {}", outcome.token(), plain(reason));
    }
    let _ = writeln!(
        text,
        "best {} (baseline {}), {} of {} kept",
        score(tally.best),
        score(tally.baseline),
        tally.kept(),
        tally.settled()
    );
    if let Some((allowed, denied)) = tally.egress {
        let _ = writeln!(text, "egress    {allowed} allowed, {denied} denied: `crucible audit` shows each");
    }
    if let Some(outputs) = &tally.outputs {
        writes(&mut text, outputs);
    }
    if tally.settled() > 0 && tally.rows.iter().all(|row| row.iter == 0 || row.score.is_none()) {
        let _ = writeln!(text, "warning: none of the {} candidates could be scored", tally.settled());
    }
    let broken = matches!(tally.outcome, Some((Outcome::Error, _)));
    let standing = if broken { " (as the failure left it, which need not be the best)" } else { "" };
    let _ = writeln!(text, "workspace {}{standing}", places.workspace.display());
    let _ = writeln!(text, "log       {}", places.session_log.display());
    let _ = writeln!(text, "report    {}", places.report.display());
    text
}

/// What was written, what waits for a person, and which bounds refused; nothing of a run that wanted to write nothing.
fn writes(text: &mut String, outputs: &OutputCounts) {
    let OutputCounts { written, staged, unknown, refused } = outputs;
    let counts = [(written, "written"), (staged, "staged"), (unknown, "of unknown outcome")];
    let told: Vec<String> = counts
        .iter()
        .filter(|(count, _)| **count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !told.is_empty() {
        let next = if *staged > 0 { ": `crucible outbox list` shows what waits to be sent" } else { "" };
        let _ = writeln!(text, "writes    {}{next}", told.join(", "));
    }
    for (bound, count) in refused {
        let _ = writeln!(text, "refused   {count} by {}: `crucible audit --writes` shows each", plain(bound));
    }
}

fn rows(text: &mut String, tally: &Tally) {
    let hidden = tally.rows.len().saturating_sub(ROWS_MAX);
    let shown = |(at, row): &(usize, &Brief)| *at >= hidden || row.kept_snap.is_some();
    let mut left_out = 0usize;
    let mut before = 0usize;
    for (at, row) in tally.rows.iter().enumerate() {
        // Of a long run the kept rows are shown up to the same bound again.
        if shown(&(at, row)) && (at >= hidden || before < ROWS_MAX) {
            before = before.saturating_add(usize::from(at < hidden));
            let _ = writeln!(text, "{}", line(row));
        } else {
            left_out = left_out.saturating_add(1);
        }
    }
    if left_out > 0 {
        let _ = writeln!(text, "({left_out} more in the log)");
    }
}

/// One row as a line.
#[must_use]
pub fn line(row: &Brief) -> String {
    let word = match row.decision {
        Decision::Keep if row.solved => "solved",
        Decision::Keep => "keep",
        Decision::Baseline => "baseline",
        Decision::BaselineSkipped => "no baseline",
        Decision::Discard => "discard",
        Decision::InfraDead => "infra-dead",
        _ => "other",
    };
    let score = row.score.map_or("-".to_owned(), short);
    let mut text = format!("{:>5}  {word:<11} {score:>10}  {:>7.2}s", row.iter, row.secs);
    if !row.note.is_empty() {
        let _ = write!(text, "  {}", plain_cut(&row.note, 100));
    }
    for mark in &row.marks {
        let _ = write!(text, "  [{}]", plain_cut(mark, 60));
    }
    text
}

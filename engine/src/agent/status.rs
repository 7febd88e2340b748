//! Turns the brief of a run into the text an agent reads for `{{STATUS}}`.
//! It refuses to know what the judge runs.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use crate::log::Decision;
use crate::score::{Direction, Score};

/// What an agent is told of the run so far, for `{{STATUS}}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Brief {
    /// This iteration, from 1.
    pub iter: u32,
    /// How many there may be.
    pub iters_total: u32,
    /// The objective's label.
    pub objective: String,
    /// Which way it gets better.
    pub direction: Direction,
    /// The baseline's score.
    pub baseline: Option<Score>,
    /// The best score and the iteration that brought it.
    pub best: Option<(Score, u32)>,
    /// The settled iterations that are remembered, oldest first.
    pub recent: Arc<VecDeque<Recent>>,
    /// How many US dollars its turn may use, where there is a ceiling.
    pub cost_left: Option<f64>,
    /// The end of what `apply_cmd` printed when it said that this iteration's change does not build (note N11).
    pub unbuilt: Option<String>,
    /// The regime that scores are measured in, where an operator named one.
    pub regime: Option<String>,
    /// What operators say, for `{{STEER}}`; no part of the status.
    pub steer: String,
}

/// One settled iteration, as an agent is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Recent {
    /// The iteration.
    pub iter: u32,
    /// How it was settled.
    pub decision: Decision,
    /// Its score.
    pub score: Option<Score>,
    /// One line of why.
    pub note: String,
}

/// How many settled iterations a prompt tells of.
const RECENT_MAX: usize = 8;
/// The longest note told of one iteration, in characters.
const NOTE_MAX: usize = 200;

/// A few lines on where the run stands.
#[must_use]
pub fn status(brief: &Brief) -> String {
    let mut text = format!("Iteration {} of {}.", brief.iter, brief.iters_total);
    let Brief { objective, direction, .. } = brief;
    let _ = write!(text, " The objective is `{objective}`; {direction} is better.");
    if let Some(regime) = &brief.regime {
        let _ = write!(text, "\nRegime: {}.", regime.escape_debug());
    }
    if let Some(baseline) = brief.baseline {
        let _ = write!(text, "\nBaseline: {baseline}.");
    }
    if let Some((best, iter)) = brief.best {
        let _ = write!(
            text,
            "\nBest so far: {best}, from {}.",
            if iter == 0 { "the baseline".to_owned() } else { format!("iteration {iter}") }
        );
    }
    if let Some(output) = &brief.unbuilt {
        let plain: String = output.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
        let _ = write!(
            text,
            "\nYour change of this iteration does not build. It stands as you left it: mend it. This turn costs no iteration. \
             The end of the output:\n{}",
            plain.trim_end()
        );
    }
    if !brief.recent.is_empty() {
        text.push_str("\nRecent iterations:");
    }
    let hidden = brief.recent.len().saturating_sub(RECENT_MAX);
    for recent in brief.recent.iter().skip(hidden) {
        let _ = write!(text, "\n{}", line(recent));
    }
    text
}

/// One settled iteration, as an item of a list.
pub(super) fn line(recent: &Recent) -> String {
    let settled = if recent.decision == Decision::Keep { "kept" } else { "discarded" };
    let score = recent.score.map_or("no score".to_owned(), |score| score.to_string());
    let mut text = format!("- {}: {settled}, {score}", recent.iter);
    let note: String =
        recent.note.chars().map(|c| if c.is_control() { ' ' } else { c }).take(NOTE_MAX).collect();
    if !note.is_empty() {
        let _ = write!(text, " ({note})");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_where_the_run_stands() {
        let brief = Brief {
            iter: 3,
            iters_total: 10,
            objective: "score".into(),
            direction: Direction::Higher,
            baseline: Score::new(0.0),
            best: Some((Score::new(1.5).unwrap(), 1)),
            recent: Arc::new(VecDeque::from(vec![
                Recent { iter: 1, decision: Decision::Keep, score: Score::new(1.5), note: String::new() },
                Recent {
                    iter: 2,
                    decision: Decision::Discard,
                    score: None,
                    note: "measure_cmd\nexited 1".into(),
                },
            ])),
            cost_left: None,
            unbuilt: Some("x.rs:1: no\u{1b}such name\n".into()),
            regime: Some("c=48".into()),
            steer: String::new(),
        };
        insta::assert_snapshot!(status(&brief), @r"
        Iteration 3 of 10. The objective is `score`; higher is better.
        Regime: c=48.
        Baseline: 0.
        Best so far: 1.5, from iteration 1.
        Your change of this iteration does not build. It stands as you left it: mend it. This turn costs no iteration. The end of the output:
        x.rs:1: nosuch name
        Recent iterations:
        - 1: kept, 1.5
        - 2: discarded, no score (measure_cmd exited 1)
        ");
    }
}

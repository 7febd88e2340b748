//! Turns the scores of a run into a small chart of characters. It refuses to know terminals.

use super::tally::Tally;
use crate::log::Decision;
use crate::score::Score;

/// Lines of the chart without its axis.
const HEIGHT: usize = 7;
/// Columns of the chart without its labels.
const WIDTH: usize = 60;

/// What one column shows.
#[derive(Clone, Copy, PartialEq)]
struct Point {
    score: Option<f64>,
    mark: char,
}

/// A chart of the rows: `*` kept, `.` discarded, and `x` below the scores where there is none. Empty when all scores are
/// the same.
#[must_use]
pub fn chart(tally: &Tally) -> String {
    let points = columns(tally);
    let scores: Vec<f64> = points.iter().filter_map(|point| point.score).collect();
    let (Some(low), Some(high)) =
        (scores.iter().copied().reduce(f64::min), scores.iter().copied().reduce(f64::max))
    else {
        return String::new();
    };
    let label = |value: f64| Score::new(value).map_or(String::new(), short);
    let wide = label(low).len().max(label(high).len());
    let mut text = String::new();
    if low >= high {
        return String::new();
    }
    for line in 0..HEIGHT {
        let name = match line {
            0 => label(high),
            line if line + 1 == HEIGHT => label(low),
            _ => String::new(),
        };
        let row: String = points.iter().map(|point| cell(*point, line, low, high)).collect();
        text.push_str(&format!("{name:>wide$} |{}", row.trim_end()));
        text.push('\n');
    }
    let unscored: String = points.iter().map(|point| if point.mark == 'x' { 'x' } else { ' ' }).collect();
    if !unscored.trim().is_empty() {
        text.push_str(&format!("{:>wide$} |{}\n", "", unscored.trim_end()));
    }
    let axis = "-".repeat(points.len());
    text.push_str(&format!("{:>wide$} +{axis}\n", ""));
    text
}

/// One point a column; of several rows in one column the best kept one shows, else the last.
fn columns(tally: &Tally) -> Vec<Point> {
    let rows = tally.rows.len();
    let count = rows.min(WIDTH);
    let mut points = vec![Point { score: None, mark: ' ' }; count];
    for (at, row) in tally.rows.iter().enumerate() {
        let mark = match (row.decision, row.score) {
            (Decision::Keep | Decision::Baseline, _) => '*',
            (_, None) => 'x',
            _ => '.',
        };
        let column = (at * count).checked_div(rows).unwrap_or(0);
        if let Some(point) = points.get_mut(column)
            && (point.mark != '*' || mark == '*')
        {
            *point = Point { score: row.score.map(Score::value), mark };
        }
    }
    points
}

fn cell(point: Point, line: usize, low: f64, high: f64) -> char {
    let at = point.score.map(|score| level(score, low, high));
    if at == Some(line) { point.mark } else { ' ' }
}

/// The line of a score, 0 at the top. Spans beyond a double's range are halved first.
fn level(score: f64, low: f64, high: f64) -> usize {
    let span = high / 2.0 - low / 2.0;
    if span <= 0.0 {
        return HEIGHT - 1;
    }
    let share = ((score / 2.0 - low / 2.0) / span).clamp(0.0, 1.0);
    // The highest line whose share is reached.
    (0..HEIGHT).find(|line| share >= 1.0 - share_of(*line) - 0.5 / share_of_lines()).unwrap_or(HEIGHT - 1)
}

fn share_of(line: usize) -> f64 {
    u32::try_from(line).map_or(0.0, f64::from) / share_of_lines()
}

fn share_of_lines() -> f64 {
    u32::try_from(HEIGHT - 1).map_or(1.0, f64::from)
}

/// Digits that a shortened score shows.
const DIGITS: usize = 6;

/// A score in few characters: as it is where that is short, else rounded, with an exponent only far from one.
#[must_use]
pub fn short(score: Score) -> String {
    let exact = score.to_string();
    if exact.len() <= 10 {
        return exact;
    }
    let size = score.value().abs();
    if !(1e-4..1e9).contains(&size) {
        return format!("{:.4e}", score.value());
    }
    // The digits before the point are counted on the text, which has no exponent.
    let whole = exact.trim_start_matches('-').split('.').next().map_or(0, str::len);
    let rounded = format!("{:.*}", DIGITS.saturating_sub(whole), score.value());
    if rounded.contains('.') {
        rounded.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        rounded
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::Brief;
    use super::*;

    fn tally(rows: &[(Decision, Option<f64>)]) -> Tally {
        let brief = |(at, (decision, score)): (usize, &(Decision, Option<f64>))| Brief {
            iter: u32::try_from(at).unwrap(),
            decision: *decision,
            score: score.and_then(Score::new),
            solved: false,
            note: String::new(),
            secs: 0.0,
            marks: Vec::new(),
            candidate: None,
            kept_snap: None,
        };
        Tally { rows: rows.iter().enumerate().map(brief).collect(), ..Tally::default() }
    }

    #[test]
    fn shows_what_was_kept_discarded_and_not_scored() {
        use Decision::{Baseline, Discard, Keep};
        let rows = [
            (Baseline, Some(0.0)),
            (Keep, Some(2.0)),
            (Discard, Some(1.0)),
            (Discard, None),
            (Keep, Some(6.0)),
        ];
        insta::assert_snapshot!(chart(&tally(&rows)), @r"
        6 |    *
          |
          |
          |
          | *
          |  .
        0 |*
          |   x
          +-----
        ");
    }

    #[test]
    fn scores_are_shortened_so_that_a_person_reads_them() {
        for (value, expect) in [
            (5.0, "5"),
            (-0.5, "-0.5"),
            (73.488_712_310_791_02, "73.4887"),
            (1.0 / 3.0, "0.33333"),
            (0.000_123_456_789, "0.00012"),
            (1_234_567.891, "1234568"),
            (12_345_678_901.0, "1.2346e10"),
            (1e300, "1.0000e300"),
            (1e-9, "1.0000e-9"),
            (-99.999_999_99, "-100"),
        ] {
            assert_eq!(short(Score::new(value).unwrap()), expect);
        }
    }

    #[test]
    fn is_empty_without_scores_and_stands_extremes() {
        assert_eq!(chart(&tally(&[])), "");
        assert_eq!(chart(&tally(&[(Decision::Discard, None)])), "");
        let text = chart(&tally(&[(Decision::Baseline, Some(-1e308)), (Decision::Keep, Some(1e308))]));
        assert_eq!(text.lines().count(), HEIGHT + 1, "{text}");
        let many: Vec<_> = (0..1000).map(|at| (Decision::Keep, Some(f64::from(at)))).collect();
        assert!(chart(&tally(&many)).lines().all(|line| line.chars().count() < 80));
    }
}

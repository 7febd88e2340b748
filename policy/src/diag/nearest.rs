//! Turns a word nobody knows into the known word that was probably meant.
//! It refuses to know what the words are for.

/// The candidate nearest to `word`, if one is near enough that a person would have meant it. Case, `-` and `_` count
/// for nothing; otherwise one slip (a letter too many, too few, wrong or swapped) is allowed per three letters.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    if word.is_empty() || word.chars().count() > LONGEST {
        return None;
    }
    let word = folded(word);
    let allowed = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &folded(candidate)), candidate))
        .filter(|(slips, candidate)| *slips <= allowed && *slips < candidate.chars().count())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

fn folded(word: &str) -> Vec<char> {
    word.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// Optimal string alignment distance, one row at a time.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut left_previous = None;
    for (row, &a) in left.iter().enumerate() {
        let mut current = Vec::with_capacity(right.len() + 1);
        current.push(row + 1);
        let mut right_previous = None;
        for (column, &b) in right.iter().enumerate() {
            let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX / 2);
            let mut best = at(&last, column) + usize::from(a != b);
            best = best.min(at(&last, column + 1) + 1).min(at(&current, column) + 1);
            if left_previous == Some(b) && right_previous == Some(a) {
                best = best.min(at(&before_last, column.wrapping_sub(1)) + 1);
            }
            current.push(best);
            right_previous = Some(b);
        }
        before_last = std::mem::replace(&mut last, current);
        left_previous = Some(a);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_offered_and_a_far_one_is_not() {
        let keys = ["url", "path", "ref", "measure_cmd", "direction", "tiebreak_direction"];
        let cases = [
            ("urll", Some("url")),
            ("ulr", Some("url")),
            ("Path", Some("path")),
            ("measure-cmd", Some("measure_cmd")),
            ("measurecommand", Some("measure_cmd")),
            ("mesure_cmd", Some("measure_cmd")),
            ("dierction", Some("direction")),
            ("x", None),
            ("zzz", None),
            ("", None),
        ];
        for (word, expected) in cases {
            assert_eq!(did_you_mean(word, keys), expected, "{word}");
        }
    }

    #[test]
    fn distance_counts_slips() {
        let cases =
            [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("kitten", "sitting", 3), ("ab", "ba", 1)];
        for (left, right, slips) in cases {
            assert_eq!(distance(&folded(left), &folded(right)), slips, "{left} {right}");
        }
    }
}

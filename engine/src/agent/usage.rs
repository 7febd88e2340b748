//! Turns what a turn says it has used into finite, non-negative numbers (note N11, `CRUCIBLE_USAGE`).
//! It refuses to know prices and ceilings.

use std::fmt;

use policy::json::parse_object;
use serde::Deserialize;

use crate::sys::fs::{FsError, RelPath, Root};

/// The file at the root of the workspace whose path a turn finds in `CRUCIBLE_USAGE`.
pub const USAGE: &str = ".crucible-usage.json";
/// The variable that names it.
pub const USAGE_VARIABLE: &str = "CRUCIBLE_USAGE";
/// The variable that tells a turn how many US dollars are left.
pub const COST_LEFT_VARIABLE: &str = "CRUCIBLE_COST_LEFT";

const USAGE_MAX: u64 = 4 * 1024;
/// More US dollars than this are no cost of a turn: any number of turns adds up to a number that can be written.
const COST_MAX: f64 = 1e9;

/// What a turn has used. What is not known is absent, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// US dollars, finite and not negative.
    pub cost_usd: Option<f64>,
    /// Tokens read.
    pub input_tokens: Option<u64>,
    /// Tokens written.
    pub output_tokens: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    cost_usd: Option<f64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// US dollars for a person: four decimals, or as many as it takes to show four digits of less than one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usd(pub f64);

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.abs() >= 1.0 {
            let text = format!("{:.4}", self.0);
            return f.write_str(text.trim_end_matches('0').trim_end_matches('.'));
        }
        let rounded: f64 = format!("{:.3e}", self.0).parse().unwrap_or(self.0);
        write!(f, "{rounded}")
    }
}

impl Usage {
    /// Takes numbers from outside; a cost that is negative, not finite or past any price is none.
    #[must_use]
    pub fn new(cost_usd: Option<f64>, input_tokens: Option<u64>, output_tokens: Option<u64>) -> Usage {
        let cost_usd = cost_usd.filter(|cost| (0.0..=COST_MAX).contains(cost));
        Usage { cost_usd, input_tokens, output_tokens }
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Usage::default()
    }

    /// Both together; what only one of them knows counts as it is.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        fn sum<T>(one: Option<T>, other: Option<T>, add: fn(T, T) -> T) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(add(one, other)),
                (known, None) | (None, known) => known,
            }
        }
        Usage {
            cost_usd: sum(self.cost_usd, other.cost_usd, |one, other| one + other),
            input_tokens: sum(self.input_tokens, other.input_tokens, u64::saturating_add),
            output_tokens: sum(self.output_tokens, other.output_tokens, u64::saturating_add),
        }
    }

    /// Reads what a harness wrote.
    ///
    /// # Errors
    /// Why it is no usage, as what follows the file's name.
    pub fn parse(bytes: &[u8]) -> Result<Usage, String> {
        let written: Written = parse_object(bytes).map_err(|error| error.to_string())?;
        let Written { cost_usd, input_tokens, output_tokens } = written;
        let usage = Usage::new(cost_usd, input_tokens, output_tokens);
        if usage.cost_usd != cost_usd {
            return Err("`cost_usd` is not a number from 0 to 1,000,000,000".to_owned());
        }
        Ok(usage)
    }

    /// Reads the file of a turn, through no link. The text is why one that is there cannot be taken.
    #[must_use]
    pub fn look(workspace: &Root) -> (Usage, Option<String>) {
        // INVARIANT: the name is a constant of this file, and a relative path.
        let Ok(path) = RelPath::parse(USAGE) else { return (Usage::default(), None) };
        let parsed = match workspace.read(&path, USAGE_MAX) {
            Ok(None) => return (Usage::default(), None),
            Ok(Some(bytes)) => Usage::parse(&bytes),
            Err(error) => Err(error.to_string()),
        };
        match parsed {
            Ok(usage) => (usage, None),
            Err(why) => (Usage::default(), Some(format!("{USAGE}: {why}"))),
        }
    }

    /// Removes the file of a turn, whatever stands there.
    ///
    /// # Errors
    /// When it cannot be removed: the next turn would seem to have written it.
    pub fn clear(workspace: &Root) -> Result<(), FsError> {
        // INVARIANT: the name is a constant of this file, and a relative path.
        RelPath::parse(USAGE).map_or(Ok(()), |path| workspace.remove_any(&path).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finite_numbers_from_zero_are_a_usage() {
        for (text, expect) in [
            ("{}", Some(Usage::default())),
            (r#"{"cost_usd":0.25,"input_tokens":3}"#, Some(Usage::new(Some(0.25), Some(3), None))),
            (r#"{"cost_usd":0}"#, Some(Usage::new(Some(0.0), None, None))),
            (r#"{"cost_usd":-0.5}"#, None),
            (r#"{"cost_usd":1e999}"#, None),
            (r#"{"cost_usd":1e308}"#, None),
            (r#"{"cost_usd":"1"}"#, None),
            (r#"{"input_tokens":-1}"#, None),
            (r#"{"input_tokens":1.5}"#, None),
            (r#"{"cost":1}"#, None),
            ("[0.25, 3, 4]", None),
            (r#"{"cost_usd":1,"cost_usd":0}"#, None),
            ("", None),
        ] {
            assert_eq!(Usage::parse(text.as_bytes()).ok(), expect, "{text}");
        }
    }

    #[test]
    fn money_is_told_to_four_decimals_or_digits() {
        for (amount, expect) in [
            (1.200_000_000_000_000_2, "1.2"),
            (0.1 + 0.2, "0.3"),
            (12.0, "12"),
            (1_234.567_89, "1234.5679"),
            (100.0, "100"),
            (0.000_123_456, "0.0001235"),
            (0.999_99, "1"),
            (0.0, "0"),
        ] {
            assert_eq!(Usd(amount).to_string(), expect);
        }
    }

    #[test]
    fn what_is_not_known_stays_unknown_until_somebody_knows_it() {
        let known = Usage::new(Some(0.5), None, Some(7));
        assert_eq!(Usage::default().plus(Usage::default()), Usage::default());
        assert_eq!(Usage::default().plus(known), known);
        assert_eq!(known.plus(known), Usage::new(Some(1.0), None, Some(14)));
    }

    #[test]
    fn the_file_is_read_and_removed_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(outside.path(), r#"{"cost_usd":9}"#).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let look = || {
            let seen = Usage::look(&root);
            assert_eq!(Usage::look(&root), seen, "to look changes nothing");
            Usage::clear(&root).unwrap();
            seen
        };
        assert_eq!(look(), (Usage::default(), None));
        std::fs::write(dir.path().join(USAGE), r#"{"cost_usd":1}"#).unwrap();
        assert_eq!(look(), (Usage::new(Some(1.0), None, None), None));
        assert_eq!(look(), (Usage::default(), None));
        std::os::unix::fs::symlink(outside.path(), dir.path().join(USAGE)).unwrap();
        let (usage, why) = look();
        assert!(usage.is_unknown() && why.is_some(), "{usage:?} {why:?}");
        assert!(outside.path().exists() && dir.path().join(USAGE).symlink_metadata().is_err());
        std::fs::write(dir.path().join(USAGE), " ".repeat(8000)).unwrap();
        let (usage, why) = look();
        assert!(usage.is_unknown() && why.is_some());
    }
}

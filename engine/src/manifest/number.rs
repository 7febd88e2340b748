//! Turns the numbers and sizes of a manifest into whole numbers between two bounds.
//! It refuses to know which key a number came from.

use toml::de::{DeInteger, DeValue};

use super::section::found;
use super::value::{ValueError, parse_duration};

const THOUSAND: f64 = 1000.0;
const SUFFIXES: [(char, u64); 3] = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];

/// What the schema says of a size.
pub(super) const SIZE_PATTERN: &str = "^[0-9]+[KMG]$";

/// The least and the most that a key takes, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The smallest.
    pub(super) least: u64,
    /// The largest.
    pub(super) most: u64,
}

impl Bounds {
    pub(super) const fn new(least: u64, most: u64) -> Self {
        Self { least, most }
    }

    /// What a number that is more than none breaks, with the bounds as `show` writes them.
    fn check(self, number: u64, show: impl Fn(u64) -> String) -> Result<u64, ValueError> {
        if number < self.least {
            return Err(ValueError::TooSmall { least: show(self.least) });
        }
        if number > self.most {
            return Err(ValueError::TooLarge { most: show(self.most) });
        }
        Ok(number)
    }
}

/// Reads a whole number.
pub(super) fn whole(value: &DeValue<'_>, bounds: Bounds) -> Result<u64, ValueError> {
    match value {
        DeValue::Integer(integer) => {
            let too_large = || ValueError::TooLarge { most: bounds.most.to_string() };
            match positive(integer) {
                Err(ValueError::Zero) if bounds.least == 0 => Ok(0),
                number => bounds.check(number?.ok_or_else(too_large)?, |bound| bound.to_string()),
            }
        }
        DeValue::Float(float) if !is_finite(float.as_str()) => Err(ValueError::NotFinite),
        other => Err(ValueError::WrongType { expected: "an integer", found: found(other) }),
    }
}

/// Reads a number with at most three decimals as thousandths; the bounds are thousandths too.
pub(super) fn thousandths(value: &DeValue<'_>, bounds: Bounds) -> Result<u64, ValueError> {
    let too_large = || ValueError::TooLarge { most: decimal(bounds.most) };
    match value {
        DeValue::Integer(integer) => {
            let number = positive(integer)?.and_then(|number| number.checked_mul(1000));
            bounds.check(number.ok_or_else(too_large)?, decimal)
        }
        DeValue::Float(float) => {
            let number: f64 = float.as_str().parse().unwrap_or(f64::NAN);
            bounds.check(float_thousandths(number)?.ok_or_else(too_large)?, decimal)
        }
        other => Err(ValueError::WrongType { expected: "a number", found: found(other) }),
    }
}

/// Reads a size such as `"512M"` as bytes.
pub(super) fn size(value: &DeValue<'_>, bounds: Bounds) -> Result<u64, ValueError> {
    let text = match value {
        DeValue::String(text) => text.as_ref(),
        DeValue::Integer(_) | DeValue::Float(_) => return Err(ValueError::SizeNumber),
        other => return Err(ValueError::WrongType { expected: "a string", found: found(other) }),
    };
    if text.trim().is_empty() {
        return Err(ValueError::Empty);
    }
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let suffix = SUFFIXES.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(*suffix)?, *unit)));
    let (digits, unit) = suffix.ok_or(ValueError::SizeUnreadable)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ValueError::SizeUnreadable);
    }
    if digits.bytes().all(|byte| byte == b'0') {
        return Err(ValueError::Zero);
    }
    if negative {
        return Err(ValueError::Negative);
    }
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let too_large = || ValueError::TooLarge { most: size_text(bounds.most) };
    bounds.check(bytes.ok_or_else(too_large)?, size_text)
}

/// Reads a length of time such as `"90s"` as milliseconds.
pub(super) fn millis(value: &DeValue<'_>, bounds: Bounds) -> Result<u64, ValueError> {
    unitless(value)?;
    let text = value.as_str().ok_or(ValueError::WrongType { expected: "a string", found: found(value) })?;
    if text.trim().is_empty() {
        return Err(ValueError::Empty);
    }
    let duration = parse_duration(text)?;
    bounds.check(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), time_text)
}

/// Refuses a number where a length of time is to stand.
pub(super) fn unitless(value: &DeValue<'_>) -> Result<(), ValueError> {
    if value.is_integer() || value.is_float() {
        return Err(ValueError::DurationNumber { digits: whole_seconds(value) });
    }
    Ok(())
}

fn whole_seconds(value: &DeValue<'_>) -> Option<String> {
    let integer = value.as_integer().filter(|integer| integer.radix() == 10)?;
    let digits = integer.as_str();
    let plain = digits.len() < 8 && digits.bytes().all(|byte| byte.is_ascii_digit()) && digits != "0";
    plain.then(|| digits.to_owned())
}

/// Milliseconds as a manifest writes them, in the largest unit that divides them.
pub(super) fn time_text(millis: u64) -> String {
    let units = [("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let fitting = units.iter().find(|(_, unit)| millis.is_multiple_of(*unit));
    fitting.map_or_else(|| format!("{millis}ms"), |(suffix, unit)| format!("{}{suffix}", millis / unit))
}

/// Bytes as a manifest writes them, in the largest unit that divides them.
pub(super) fn size_text(bytes: u64) -> String {
    let fitting = SUFFIXES.iter().rev().find(|(_, unit)| bytes.is_multiple_of(*unit));
    fitting.map_or_else(|| format!("{bytes} bytes"), |(suffix, unit)| format!("{}{suffix}", bytes / unit))
}

/// Thousandths as a manifest writes them.
pub(super) fn decimal(thousandths: u64) -> String {
    let (whole, rest) = (thousandths / 1000, thousandths % 1000);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:03}").trim_end_matches('0').to_owned()
}

/// The number, if it is more than none; `None` if it is larger than any that is stored.
fn positive(integer: &DeInteger<'_>) -> Result<Option<u64>, ValueError> {
    let digits = integer.as_str();
    if digits.trim_start_matches(['+', '-']).bytes().all(|byte| byte == b'0') {
        return Err(ValueError::Zero);
    }
    if digits.starts_with('-') {
        return Err(ValueError::Negative);
    }
    Ok(u64::from_str_radix(digits, integer.radix()).ok())
}

fn is_finite(float: &str) -> bool {
    float.parse::<f64>().is_ok_and(f64::is_finite)
}

fn float_thousandths(number: f64) -> Result<Option<u64>, ValueError> {
    // The largest below which every whole number is its own float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if !number.is_finite() {
        return Err(ValueError::NotFinite);
    }
    if number == 0.0 {
        return Err(ValueError::Zero);
    }
    if number < 0.0 {
        return Err(ValueError::Negative);
    }
    let thousandths = (number * THOUSAND).round();
    if thousandths >= EXACT {
        return Ok(None);
    }
    // Division rounds as the reading of a decimal does, so a number of three decimals comes back as itself.
    #[expect(clippy::float_cmp, reason = "equal is what is asked: no fourth decimal was written")]
    let exact = thousandths / THOUSAND == number;
    if !exact {
        return Err(ValueError::TooFine);
    }
    #[expect(clippy::as_conversions, reason = "whole, more than none and below 2^53, checked above")]
    let thousandths = thousandths as u64;
    Ok(Some(thousandths))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = fn(&DeValue<'_>, Bounds) -> Result<u64, ValueError>;

    fn read(read: Read, text: &str, bounds: Bounds) -> Result<u64, ValueError> {
        read(DeValue::parse(text).unwrap().get_ref(), bounds)
    }

    fn small(least: &str) -> Result<u64, ValueError> {
        Err(ValueError::TooSmall { least: least.to_owned() })
    }

    fn large(most: &str) -> Result<u64, ValueError> {
        Err(ValueError::TooLarge { most: most.to_owned() })
    }

    fn wrong(expected: &'static str, found: &'static str) -> Result<u64, ValueError> {
        Err(ValueError::WrongType { expected, found })
    }

    #[test]
    fn zero_is_a_number_where_its_bounds_say_so() {
        let whole = |text: &str, least| {
            let document = format!("a = {text}");
            let document = toml::de::DeTable::parse(&document).unwrap();
            whole(document.get_ref()["a"].get_ref(), Bounds::new(least, 9))
        };
        assert_eq!(whole("0", 0), Ok(0));
        assert_eq!(whole("-0", 0), Ok(0));
        assert_eq!(whole("0", 1), Err(ValueError::Zero));
        assert_eq!(whole("-1", 0), Err(ValueError::Negative));
    }

    #[test]
    fn whole_numbers_are_positive_and_bounded() {
        let cases = [
            ("16", Ok(16)),
            ("1_000", Ok(1000)),
            ("+99", Ok(99)),
            ("0x10", Ok(16)),
            ("0o20", Ok(16)),
            ("15", small("16")),
            ("1001", large("1000")),
            ("99999999999999999999999999999999999999999", large("1000")),
            ("0", Err(ValueError::Zero)),
            ("-0", Err(ValueError::Zero)),
            ("0x0", Err(ValueError::Zero)),
            ("-1", Err(ValueError::Negative)),
            ("-99999999999999999999999", Err(ValueError::Negative)),
            ("nan", Err(ValueError::NotFinite)),
            ("-inf", Err(ValueError::NotFinite)),
            ("1e999", Err(ValueError::NotFinite)),
            ("16.0", wrong("an integer", "a float")),
            ("\"16\"", wrong("an integer", "a string")),
            ("[16]", wrong("an integer", "an array")),
            ("true", wrong("an integer", "a boolean")),
        ];
        for (text, expected) in cases {
            assert_eq!(read(whole, text, Bounds::new(16, 1000)), expected, "{text}");
        }
    }

    #[test]
    fn thousandths_are_exact() {
        let cases = [
            ("2", Ok(2000)),
            ("0.5", Ok(500)),
            ("5e-1", Ok(500)),
            ("1.001", Ok(1001)),
            ("0.1", Ok(100)),
            ("0.29", Ok(290)),
            ("64.0", Ok(64_000)),
            ("64.001", large("64")),
            ("65", large("64")),
            ("1e300", large("64")),
            ("18446744073709551615", large("64")),
            ("0.009", small("0.01")),
            ("0.0105", Err(ValueError::TooFine)),
            ("0.3333333333333333", Err(ValueError::TooFine)),
            ("1e-300", Err(ValueError::TooFine)),
            ("0", Err(ValueError::Zero)),
            ("0.0", Err(ValueError::Zero)),
            ("-0.0", Err(ValueError::Zero)),
            ("-0.5", Err(ValueError::Negative)),
            ("-2", Err(ValueError::Negative)),
            ("nan", Err(ValueError::NotFinite)),
            ("+inf", Err(ValueError::NotFinite)),
            ("1e999", Err(ValueError::NotFinite)),
            ("\"2\"", wrong("a number", "a string")),
        ];
        for (text, expected) in cases {
            assert_eq!(read(thousandths, text, Bounds::new(10, 64_000)), expected, "{text}");
        }
    }

    #[test]
    fn every_thousandth_is_read_as_itself() {
        for number in 1..=20_000 {
            let text = format!("{}.{:03}", number / 1000, number % 1000);
            assert_eq!(read(thousandths, &text, Bounds::new(1, 20_000)), Ok(number), "{text}");
        }
    }

    #[test]
    fn sizes_have_a_binary_unit() {
        let cases = [
            ("\"512M\"", Ok(512 << 20)),
            ("\"8G\"", Ok(8 << 30)),
            ("\"1024K\"", Ok(1 << 20)),
            ("\" 2M \"", Err(ValueError::SizeUnreadable)),
            ("\"1K\"", small("1M")),
            ("\"9G\"", large("8G")),
            ("\"99999999999999999999G\"", large("8G")),
            ("\"18446744073709551615K\"", large("8G")),
            ("\"0M\"", Err(ValueError::Zero)),
            ("\"-1G\"", Err(ValueError::Negative)),
            ("\"\"", Err(ValueError::Empty)),
            ("\"512\"", Err(ValueError::SizeUnreadable)),
            ("\"M\"", Err(ValueError::SizeUnreadable)),
            ("\"1.5G\"", Err(ValueError::SizeUnreadable)),
            ("\"8GB\"", Err(ValueError::SizeUnreadable)),
            ("\"8g\"", Err(ValueError::SizeUnreadable)),
            ("\"+8G\"", Err(ValueError::SizeUnreadable)),
            ("\"infG\"", Err(ValueError::SizeUnreadable)),
            ("\"٣M\"", Err(ValueError::SizeUnreadable)),
            ("512", Err(ValueError::SizeNumber)),
            ("nan", Err(ValueError::SizeNumber)),
            ("false", wrong("a string", "a boolean")),
        ];
        for (text, expected) in cases {
            assert_eq!(read(size, text, Bounds::new(1 << 20, 8 << 30)), expected, "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_what_is_read() {
        for bytes in [1 << 10, 3 << 20, 1536 << 20, 8 << 30] {
            let text = format!("\"{}\"", size_text(bytes));
            assert_eq!(read(size, &text, Bounds::new(1, u64::MAX)), Ok(bytes));
        }
        assert_eq!(size_text(1500), "1500 bytes");
        for (number, text) in [(10, "0.01"), (500, "0.5"), (1000, "1"), (1001, "1.001"), (100_000, "100")] {
            assert_eq!(decimal(number), text);
        }
    }
}

//! Turns text from agents, judges and servers into text that is safe on a terminal (note N12).
//! It refuses to know what the text is about.

use std::fmt::Write;

/// One line: control characters, escapes and bidirectional overrides are shown as `\u{…}`, line feeds as `\n`.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => safe.push(' '),
            c if c.is_control() || is_format(c) => {
                let _ = write!(safe, "{}", c.escape_default());
            }
            c => safe.push(c),
        }
    }
    safe
}

/// The same, cut to a number of characters, with `…` where something is left out.
#[must_use]
pub fn plain_cut(text: &str, max: usize) -> String {
    let safe = plain(text);
    if safe.chars().count() <= max {
        return safe;
    }
    let mut cut: String = safe.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Characters that reorder or hide what a terminal shows.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_gets_through() {
        for (text, expect) in [
            ("plain é", "plain é"),
            ("a\u{1b}[31mred", "a\\u{1b}[31mred"),
            ("two\nlines\r", "two\\nlines\\r"),
            ("tab\there", "tab here"),
            ("\u{202e}gnp.exe", "\\u{202e}gnp.exe"),
            ("c1 \u{9b}2J", "c1 \\u{9b}2J"),
        ] {
            assert_eq!(plain(text), expect);
        }
    }

    #[test]
    fn a_cut_is_seen() {
        assert_eq!(plain_cut("abcdef", 4), "abc…");
        assert_eq!(plain_cut("abcd", 4), "abcd");
    }
}

//! Turns a stream of standard output into its last line that starts with `{` (contract §3), in bounded memory.
//! It refuses to know what the line says.

/// The longest line that can be a reading, in bytes; a longer one is a fault, not a reading cut short.
pub const LINE_MAX: usize = 1024 * 1024;

/// Collects the last line that starts with `{` from chunks of any size.
#[derive(Debug, Default)]
pub struct ObjectLine {
    last: Line,
    current: Line,
    /// Lines after the last one that starts with `{`, blank ones aside.
    after: u64,
    /// Lines that start with `{`, the current one aside.
    objects: u64,
}

#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    /// Bytes seen of this line, kept or not.
    seen: usize,
    is_object: bool,
}

impl Line {
    fn push(&mut self, part: &[u8]) {
        if self.seen == 0 {
            self.is_object = part.first() == Some(&b'{');
        }
        self.seen = self.seen.saturating_add(part.len());
        if self.is_object && self.seen <= LINE_MAX {
            self.bytes.extend_from_slice(part);
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.seen = 0;
        self.is_object = false;
    }
}

/// What the stream held when it ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// No line starts with `{`.
    Nothing,
    /// The last such line, without its line ending.
    Line(&'a [u8]),
    /// The last such line is longer than [`LINE_MAX`].
    TooLong,
}

impl ObjectLine {
    /// Takes the next bytes of the stream.
    pub fn push(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, tail) = rest.split_at(end);
            self.current.push(line);
            self.end_line();
            rest = tail.get(1..).unwrap_or_default();
        }
        if !rest.is_empty() {
            self.current.push(rest);
        }
    }

    fn end_line(&mut self) {
        if self.current.is_object {
            std::mem::swap(&mut self.last, &mut self.current);
            self.objects = self.objects.saturating_add(1);
            self.after = 0;
        } else if self.current.seen > 0 {
            self.after = self.after.saturating_add(1);
        }
        self.current.clear();
    }

    /// Ends the stream; a last line without a line feed counts.
    pub fn finish(&mut self) -> Found<'_> {
        if self.current.seen > 0 {
            self.end_line();
        }
        if !self.last.is_object {
            return Found::Nothing;
        }
        if self.last.seen > LINE_MAX {
            return Found::TooLong;
        }
        Found::Line(self.last.bytes.strip_suffix(b"\r").unwrap_or(&self.last.bytes))
    }

    /// How many lines started with `{`: more than one means that some log line looks like a reading.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// How many lines with text came after the last one that starts with `{`.
    #[must_use]
    pub fn lines_after(&self) -> u64 {
        self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expect: &Found<'_>) {
        let mut tail = ObjectLine::default();
        tail.push(text.as_bytes());
        assert_eq!(&tail.finish(), expect, "{text:?}");
    }

    #[test]
    fn finds_the_last_line_that_starts_with_a_brace() {
        check("", &Found::Nothing);
        check("a\nb\n", &Found::Nothing);
        check(" {\n", &Found::Nothing);
        check("{1\n{2\nx\n", &Found::Line(b"{2"));
        check("{1\r\n", &Found::Line(b"{1"));
        check("x\n{1", &Found::Line(b"{1"));
    }

    #[test]
    fn a_line_past_the_bound_is_said_to_be_too_long_and_not_kept() {
        let mut tail = ObjectLine::default();
        tail.push(b"{");
        for _ in 0..(LINE_MAX / 1024 + 1) {
            tail.push(&[b'x'; 1024]);
        }
        assert!(tail.current.bytes.len() <= LINE_MAX);
        assert_eq!(tail.finish(), Found::TooLong);
        tail.push(b"\n{ok\n");
        assert_eq!(tail.finish(), Found::Line(b"{ok"));
    }

    proptest! {
        #[test]
        fn the_size_of_the_chunks_does_not_matter(text in "[a{\n\r]{0,60}", at in 0usize..60) {
            let mut whole = ObjectLine::default();
            whole.push(text.as_bytes());
            let mut parts = ObjectLine::default();
            let (left, right) = text.as_bytes().split_at(at.min(text.len()));
            parts.push(left);
            parts.push(right);
            prop_assert_eq!(whole.finish(), parts.finish());
            prop_assert_eq!(whole.objects(), parts.objects());
        }
    }
}

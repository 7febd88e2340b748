//! Turns pieces of a stream into whole lines of bounded length.
//! It refuses to know what is in a line.

/// The longest line that is kept, in bytes: a harness repeats a model's whole answer in one.
pub const LINE_MAX: usize = 16 << 20;

/// Cuts a stream at line ends.
#[derive(Debug, Default)]
pub struct Lines {
    pending: Vec<u8>,
    /// Bytes of a line that is too long, counted and not kept.
    over: u64,
}

/// One line of a stream, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line as it is.
    Whole(&'a [u8]),
    /// A line that was too long to be kept, and how long it was.
    TooLong(u64),
}

impl Lines {
    /// Takes the next piece and hands over each line that it ends.
    pub fn push(&mut self, mut piece: &[u8], line: &mut dyn FnMut(Line<'_>)) {
        while let Some(end) = memchr(piece) {
            let (head, rest) = piece.split_at(end);
            self.keep(head);
            self.hand_over(line);
            piece = rest.get(1..).unwrap_or_default();
        }
        self.keep(piece);
    }

    /// Hands over a last line that has no end.
    pub fn finish(&mut self, line: &mut dyn FnMut(Line<'_>)) {
        if !self.pending.is_empty() || self.over > 0 {
            self.hand_over(line);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.over == 0 && self.pending.len().saturating_add(bytes.len()) <= LINE_MAX {
            return self.pending.extend_from_slice(bytes);
        }
        let length = self.pending.len().saturating_add(bytes.len());
        self.over = self.over.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        self.pending = Vec::new();
    }

    fn hand_over(&mut self, line: &mut dyn FnMut(Line<'_>)) {
        match std::mem::take(&mut self.over) {
            0 => line(Line::Whole(&self.pending)),
            length => line(Line::TooLong(length)),
        }
        self.pending.clear();
    }
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&[u8]]) -> Vec<Result<Vec<u8>, u64>> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let mut take = |line: Line<'_>| {
            found.push(match line {
                Line::Whole(bytes) => Ok(bytes.to_vec()),
                Line::TooLong(length) => Err(length),
            });
        };
        for piece in pieces {
            lines.push(piece, &mut take);
        }
        lines.finish(&mut take);
        found
    }

    #[test]
    fn a_line_that_is_too_long_is_counted_and_the_next_one_is_whole() {
        let long = vec![b'x'; LINE_MAX];
        assert_eq!(cut(&[&long, b"y\nnext\n"]), [Err(16_777_217), Ok(b"next".to_vec())]);
        assert_eq!(cut(&[&long, b"\n"]), [Ok(long.clone())]);
        assert_eq!(cut(&[&long, &long]), [Err(33_554_432)]);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "[ab\n]{0,40}", at in 0usize..40) {
            let (head, tail) = text.as_bytes().split_at(at.min(text.len()));
            prop_assert_eq!(cut(&[head, tail]), cut(&[text.as_bytes()]));
            let whole: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
            prop_assert_eq!(cut(&[head, tail]).into_iter().collect::<Result<Vec<_>, _>>(), Ok(whole));
        }
    }
}

//! Turns the bytes of a body into how many of them belong to it, without keeping any.
//! It refuses to change them: what is well-formed is passed on as it came (row 50).

use super::fields::Framing;

/// The most bytes of extensions of one chunk.
const EXTENSION_MAX: u32 = 1024;
/// The most bytes of trailers.
const TRAILER_MAX: u32 = 8192;

/// Where in a body the next byte is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Done,
    Left(u64),
    Forever,
    /// In a chunk's size: digits so far, value so far.
    Size(u8, u64),
    /// In a chunk's extension: its size, bytes so far.
    Extension(u64, u32),
    /// After the CR of a size line.
    SizeEnd(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a trailer line; bytes of trailers so far.
    TrailerStart(u32),
    Trailer(u32),
    TrailerLf(u32),
    LastLf,
}

/// The body is not what its framing says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Body {
    /// A body that has not begun.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Left(length),
            Framing::Chunked => State::Size(0, 0),
            Framing::Close => State::Forever,
        };
        Self { state }
    }

    /// Whether all of it has been taken.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether it goes on until the connection ends.
    pub fn is_endless(&self) -> bool {
        self.state == State::Forever
    }

    /// Takes as many of the bytes as belong to the body and tells how many.
    ///
    /// # Errors
    /// A malformed chunk; the bytes must not be passed on.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match &mut self.state {
                State::Done => break,
                State::Forever => return Ok(bytes.len()),
                State::Left(left) | State::Data(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= u64::try_from(taken).unwrap_or(*left);
                    at += taken;
                    self.state = match self.state {
                        State::Left(0) => State::Done,
                        State::Data(0) => State::DataCr,
                        state => state,
                    };
                }
                _ => {
                    let byte = rest.first().copied().unwrap_or_default();
                    self.state = self.state.step(byte).ok_or(Malformed)?;
                    at += 1;
                }
            }
        }
        Ok(at)
    }
}

impl State {
    /// One byte of a chunked body outside its data.
    fn step(self, byte: u8) -> Option<Self> {
        let text = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        Some(match (self, byte) {
            (Self::Size(digits, value), _) if byte.is_ascii_hexdigit() && digits < 15 => {
                let digit = char::from(byte).to_digit(16)?;
                Self::Size(digits + 1, value * 16 + u64::from(digit))
            }
            (Self::Size(1.., value), b';') => Self::Extension(value, 0),
            (Self::Size(1.., value) | Self::Extension(value, _), b'\r') => Self::SizeEnd(value),
            (Self::Extension(value, length), _) if text && length < EXTENSION_MAX => {
                Self::Extension(value, length + 1)
            }
            (Self::SizeEnd(0), b'\n') => Self::TrailerStart(0),
            (Self::SizeEnd(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Size(0, 0),
            (Self::TrailerStart(_), b'\r') => Self::LastLf,
            (Self::TrailerStart(length), _) if super::fields::is_token(byte) => Self::Trailer(length + 1),
            (Self::Trailer(length), b'\r') => Self::TrailerLf(length),
            (Self::Trailer(length), _) if text && length < TRAILER_MAX => Self::Trailer(length + 1),
            (Self::TrailerLf(length), b'\n') => Self::TrailerStart(length),
            (Self::LastLf, b'\n') => Self::Done,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunked(text: &str) -> Result<(usize, bool), Malformed> {
        let mut body = Body::new(Framing::Chunked);
        let taken = body.take(text.as_bytes())?;
        Ok((taken, body.is_done()))
    }

    #[test]
    fn row_44_51_a_chunked_body_is_exact_or_refused() {
        let whole = [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "A;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: a\r\nOther: b\r\n\r\n",
        ];
        for text in whole {
            assert_eq!(chunked(text), Ok((text.len(), true)), "{text:?}");
            assert_eq!(
                chunked(&format!("{text}GET")),
                Ok((text.len(), true)),
                "{text:?}: the next request stays"
            );
        }
        let part = ["", "5", "5\r\nhel", "5\r\nhello\r\n0\r\n", "0\r\nA: b\r\n"];
        for text in part {
            assert_eq!(chunked(text), Ok((text.len(), false)), "{text:?}");
        }
        let wrong = [
            "\r\n",
            "5\nhello",
            "0x5\r\n",
            "-1\r\n",
            " 5\r\n",
            "5 \r\nhello\r\n",
            "5\r\nhelloX",
            "5\r\nhello\n",
            "5;a\nb\r\n",
            "5\r\rhello",
            "FFFFFFFFFFFFFFFF\r\n",
            "0\r\n X: folded\r\n",
            "0\r\nA: b\n\r\n",
            "0\r\n\n",
        ];
        for text in wrong {
            assert_eq!(chunked(text), Err(Malformed), "{text:?}");
        }
    }

    #[test]
    fn a_length_takes_exactly_its_bytes() {
        let mut body = Body::new(Framing::Length(3));
        assert_eq!(body.take(b"ab"), Ok(2));
        assert!(!body.is_done());
        assert_eq!(body.take(b"cGET"), Ok(1));
        assert!(body.is_done());
        assert!(Body::new(Framing::None).is_done());
    }

    proptest! {
        #[test]
        fn where_the_bytes_are_cut_does_not_matter(data in proptest::collection::vec(any::<u8>(), 0..64), cuts in proptest::collection::vec(1_usize..9, 40)) {
            let mut text = format!("{:x}\r\n", data.len()).into_bytes();
            if !data.is_empty() {
                text.extend(&data);
                text.extend(b"\r\n0\r\n");
            }
            text.extend(b"\r\nnext");
            let mut body = Body::new(Framing::Chunked);
            let mut at = 0;
            for cut in cuts {
                let end = (at + cut).min(text.len());
                at += body.take(&text[at..end]).unwrap();
            }
            at += body.take(&text[at..]).unwrap();
            prop_assert!(body.is_done());
            prop_assert_eq!(&text[at..], b"next");
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(taken) = Body::new(Framing::Chunked).take(&bytes) {
                prop_assert!(taken <= bytes.len());
            }
        }
    }
}

//! Turns the header lines of a message into checked fields, a framing and what belongs to one hop only.
//! It refuses to know requests from responses.

use policy::reason::Reason;

/// The most header lines of a message.
const LINES_MAX: usize = 128;
/// What a connection may not nominate for removal: a message would mean something else without it.
const NEEDED: [&str; 4] = ["host", "content-length", "transfer-encoding", "authorization"];
/// What belongs to one hop only, or to the broker, and is never passed on (rows 41, 92).
const HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "upgrade",
    "http2-settings",
    "crucible-broker-token",
];

/// One header line: a token and a value without controls, outer blanks taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// As written.
    pub name: &'a str,
    /// As written, blanks around it taken off.
    pub value: &'a [u8],
}

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// All until the connection ends; responses only.
    Close,
}

/// The fields of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    lines: Vec<Field<'a>>,
}

/// The bytes of a head up to and with its blank line, if they are all there.
///
/// # Errors
/// [`Reason::HeadTooLarge`] when it does not end within `max` bytes.
pub fn head_end(buf: &[u8], max: usize) -> Result<Option<usize>, Reason> {
    let end = memchr::memmem::find(buf, b"\r\n\r\n").map(|at| at + 4);
    match end {
        Some(end) if end > max => Err(Reason::HeadTooLarge),
        None if buf.len() >= max => Err(Reason::HeadTooLarge),
        end => Ok(end),
    }
}

/// The lines of a head without their ends; a bare CR or LF is refused.
pub(crate) fn lines(head: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let head = head.strip_suffix(b"\r\n\r\n")?;
    let plain = memchr::memchr2_iter(b'\r', b'\n', head).all(|at| match head.get(at) {
        Some(b'\r') => head.get(at + 1) == Some(&b'\n'),
        _ => at > 0 && head.get(at - 1) == Some(&b'\r'),
    });
    plain.then(|| head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)))
}

/// A character of a method or a field's name.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl<'a> Fields<'a> {
    /// Reads lines. No blank before the colon, no folding, no control in a value.
    pub(crate) fn read(lines: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut found = Vec::with_capacity(16);
        for line in lines {
            let colon = memchr::memchr(b':', line).filter(|at| *at > 0)?;
            let (name, value) = line.split_at_checked(colon)?;
            let value = value.get(1..)?.trim_ascii();
            let plain = value.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f));
            if !plain || !name.iter().all(|byte| is_token(*byte)) || found.len() == LINES_MAX {
                return None;
            }
            found.push(Field { name: std::str::from_utf8(name).ok()?, value });
        }
        Some(Self { lines: found })
    }

    /// The values of every line of this name, which is given in lower case.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.lines.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// The value of the only line of this name.
    ///
    /// # Errors
    /// When there are several.
    pub fn only(&self, name: &str) -> Result<Option<&'a [u8]>, Reason> {
        let mut all = self.all(name);
        let first = all.next();
        if all.next().is_some() { Err(Reason::HeadMalformed) } else { Ok(first) }
    }

    /// Whether a comma-separated field holds this token, in any case.
    pub fn has(&self, name: &str, token: &str) -> bool {
        self.all(name).any(|value| {
            value
                .split(|byte| *byte == b',')
                .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
        })
    }

    /// The framing that the fields give; `None` when they give none.
    ///
    /// # Errors
    /// Rows 44 to 51: several lines of either kind, both kinds, a coding other than exactly `chunked`, a length that is not
    /// plain digits.
    pub fn framing(&self) -> Result<Option<Framing>, Reason> {
        let (mut codings, mut lengths) = (self.all("transfer-encoding"), self.all("content-length"));
        let (coding, length) = (codings.next(), lengths.next());
        if codings.next().is_some() || lengths.next().is_some() || (coding.is_some() && length.is_some()) {
            return Err(Reason::FramingInvalid);
        }
        if let Some(coding) = coding {
            let lower = coding.to_ascii_lowercase();
            return match lower.as_slice() {
                b"chunked" => Ok(Some(Framing::Chunked)),
                b"gzip" | b"deflate" | b"compress" | b"identity" | b"gzip, chunked" | b"deflate, chunked" => {
                    Err(Reason::CodingNotServed)
                }
                _ => Err(Reason::FramingInvalid),
            };
        }
        length.map(|digits| length_of(digits).map(Framing::Length).ok_or(Reason::FramingInvalid)).transpose()
    }

    /// Whether a connection option takes away something that the message cannot do without.
    pub(crate) fn nominates_needed(&self) -> bool {
        NEEDED.iter().any(|name| self.has("connection", name))
    }

    /// Writes every line but those of one hop and those for which `skip` says so.
    pub fn write(&self, out: &mut Vec<u8>, skip: impl Fn(&str) -> bool) {
        let nominated: Vec<&[u8]> = self
            .all("connection")
            .flat_map(|value| value.split(|b| *b == b','))
            .map(<[u8]>::trim_ascii)
            .collect();
        for Field { name, value } in &self.lines {
            let own = HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop));
            let named = nominated.iter().any(|option| name.as_bytes().eq_ignore_ascii_case(option));
            if !own && !named && !skip(name) {
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b": ");
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// Digits only, so many that they fit.
fn length_of(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if !plain {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

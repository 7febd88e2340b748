//! Turns the bytes of a server's head into what may be passed on and how long its body is.
//! It refuses to know who asked.

use policy::reason::Reason;

use super::fields::{Fields, Framing, head_end, lines};
use super::head::Version;

/// A response's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// From 100 to 599.
    pub status: u16,
    /// The version.
    pub version: Version,
    /// Its reason phrase.
    pub phrase: &'a str,
    /// The header lines.
    pub fields: Fields<'a>,
    /// The body.
    pub framing: Framing,
}

/// Reads a head and tells its length; `None` while more bytes are needed.
///
/// # Errors
/// [`Reason::UpstreamMalformed`]: nothing of it is passed on.
pub fn read<'a>(buf: &'a [u8], method: &str, max: usize) -> Result<Option<(Response<'a>, usize)>, Reason> {
    let Some(end) = head_end(buf, max).map_err(|_| Reason::UpstreamMalformed)? else { return Ok(None) };
    let response = buf.get(..end).and_then(|head| parse(head, method));
    response.map(|response| Some((response, end))).ok_or(Reason::UpstreamMalformed)
}

fn parse<'a>(head: &'a [u8], method: &str) -> Option<Response<'a>> {
    let mut lines = lines(head)?;
    let line = std::str::from_utf8(lines.next()?).ok()?;
    let (version, rest) = line.split_once(' ')?;
    let version = match version {
        "HTTP/1.1" => Version::V11,
        "HTTP/1.0" => Version::V10,
        _ => return None,
    };
    let (code, phrase) = rest.split_once(' ').unwrap_or((rest, ""));
    let plain =
        code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit()) && !phrase.chars().any(char::is_control);
    let status = code.parse().ok().filter(|status| plain && (100..600).contains(status))?;
    let fields = Fields::read(lines)?;
    let given = fields.framing().ok()?;
    let bodiless = method == "HEAD" || status < 200 || matches!(status, 204 | 304);
    let framing = if bodiless { Framing::None } else { given.unwrap_or(Framing::Close) };
    Some(Response { status, version, phrase, fields, framing })
}

impl Response<'_> {
    /// Whether the server's connection may be used again after this.
    pub fn keeps(&self) -> bool {
        let open = match self.version {
            Version::V11 => !self.fields.has("connection", "close"),
            Version::V10 => self.fields.has("connection", "keep-alive"),
        };
        open && self.framing != Framing::Close
    }

    /// Writes the head as it goes to the client.
    pub fn write(&self, keep: bool, out: &mut Vec<u8>) {
        let version = match self.version {
            Version::V11 => "HTTP/1.1",
            Version::V10 => "HTTP/1.0",
        };
        out.extend_from_slice(format!("{version} {} {}\r\n", self.status, self.phrase).as_bytes());
        self.fields.write(out, |_| false);
        if self.status >= 200 {
            out.extend_from_slice(if keep {
                b"Connection: keep-alive\r\n"
            } else {
                b"Connection: close\r\n"
            });
        }
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(text: &str, method: &str) -> Result<Framing, Reason> {
        read(text.as_bytes(), method, 1000).map(|found| found.unwrap().0.framing)
    }

    #[test]
    fn a_response_has_one_length_or_is_refused() {
        let wrong = Err(Reason::UpstreamMalformed);
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "GET", Ok(Framing::Length(5))),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", Ok(Framing::None)),
            ("HTTP/1.1 204 \r\n\r\n", "GET", Ok(Framing::None)),
            ("HTTP/1.1 200\r\n\r\n", "GET", Ok(Framing::Close)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", Ok(Framing::Chunked)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "GET", wrong),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", "GET", wrong),
            ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", "GET", wrong),
            ("HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n", "GET", wrong),
            ("HTTP/1.1 200 OK\r\nBad Name: 5\r\n\r\n", "GET", wrong),
            ("HTTP/1.1 99 OK\r\n\r\n", "GET", wrong),
            ("HTTP/2 200 OK\r\n\r\n", "GET", wrong),
            ("ICY 200 OK\r\n\r\n", "GET", wrong),
        ];
        for (text, method, expected) in cases {
            assert_eq!(framing(text, method), expected, "{text:?}");
        }
        assert_eq!(read(&[b'x'; 1000], "GET", 1000), Err(Reason::UpstreamMalformed));
    }

    #[test]
    fn what_belongs_to_one_hop_is_not_passed_on() {
        let text =
            "HTTP/1.1 200 Fine\r\nConnection: X-Own, close\r\nX-Own: 1\r\nKeep-Alive: 2\r\nServer: s\r\n\r\n";
        let (response, _) = read(text.as_bytes(), "GET", 1000).unwrap().unwrap();
        assert!(!response.keeps());
        let mut out = Vec::new();
        response.write(true, &mut out);
        assert_eq!(out, b"HTTP/1.1 200 Fine\r\nServer: s\r\nConnection: keep-alive\r\n\r\n");
    }
}

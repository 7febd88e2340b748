//! Turns the first bytes of a connection into the server that a TLS hello names (N13, rows 38 to 43).
//! It refuses to know keys: nothing is decrypted, and the bytes are passed on as they came.

use policy::host::{Host, Name};
use policy::reason::Reason;

/// The longest hello, in bytes of its records.
pub const HELLO_MAX: usize = 32 * 1024;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
/// Encrypted ClientHello, and the draft before it.
const HIDDEN: [u16; 2] = [0xfe0d, 0xffce];

/// What a hello says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The server that it names.
    pub server: Option<Name>,
    /// Whether it may name another one under encryption.
    pub hidden: bool,
}

/// How strict the check of a hello is; both off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tolerance {
    /// A hello for a name may leave the name out.
    pub absent: bool,
    /// A hello may carry an encrypted one.
    pub encrypted: bool,
}

/// Whether the first byte is one of TLS.
pub fn is_tls(first: u8) -> bool {
    first == HANDSHAKE
}

/// Reads a hello, over as many records as it comes in (row 40); `None` while more bytes are needed.
///
/// # Errors
/// [`Reason::NotTls`] or [`Reason::HelloMalformed`].
pub fn read(buf: &[u8]) -> Result<Option<Hello>, Reason> {
    match buf.first() {
        None => return Ok(None),
        Some(first) if !is_tls(*first) => return Err(Reason::NotTls),
        Some(_) => {}
    }
    let Some(message) = handshake(buf)? else {
        return if buf.len() >= HELLO_MAX { Err(Reason::HelloMalformed) } else { Ok(None) };
    };
    parse(&message).map(Some).ok_or(Reason::HelloMalformed)
}

/// Puts the handshake message together from its records.
fn handshake(mut buf: &[u8]) -> Result<Option<Vec<u8>>, Reason> {
    let mut message = Vec::new();
    loop {
        let wanted = match message.as_slice() {
            [CLIENT_HELLO, a, b, c, ..] => {
                Some(4 + (usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c)))
            }
            [] | [CLIENT_HELLO, ..] => None,
            _ => return Err(Reason::HelloMalformed),
        };
        if let Some(wanted) = wanted {
            if wanted > HELLO_MAX {
                return Err(Reason::HelloMalformed);
            }
            if message.len() >= wanted {
                message.truncate(wanted);
                return Ok(Some(message));
            }
        }
        let Some((header, rest)) = buf.split_at_checked(5) else {
            return if looks_right(buf) { Ok(None) } else { Err(Reason::HelloMalformed) };
        };
        let &[kind, 3, _, high, low] = header else { return Err(Reason::HelloMalformed) };
        let length = usize::from(high) << 8 | usize::from(low);
        if kind != HANDSHAKE || length == 0 || length > 16384 {
            return Err(Reason::HelloMalformed);
        }
        let Some((fragment, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        message.extend_from_slice(fragment);
        buf = rest;
    }
}

/// Whether the start of a record header can still become one.
fn looks_right(start: &[u8]) -> bool {
    matches!(start, [] | [HANDSHAKE] | [HANDSHAKE, 3, ..])
}

/// A reader of the length-prefixed vectors of TLS.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.bytes(length.into())
    }

    fn long(&mut self) -> Option<Reader<'a>> {
        let length = self.u16()?;
        self.bytes(length.into()).map(Reader)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn parse(message: &[u8]) -> Option<Hello> {
    let mut reader = Reader(message.get(4..)?);
    reader.bytes(2 + 32)?;
    reader.short()?;
    reader.long()?;
    reader.short()?;
    let mut hello = Hello::default();
    if reader.is_empty() {
        return Some(hello);
    }
    let mut extensions = reader.long()?;
    if !reader.is_empty() {
        return None;
    }
    let mut seen = Vec::new();
    while !extensions.is_empty() {
        let (kind, body) = (extensions.u16()?, extensions.long()?);
        if seen.contains(&kind) {
            return None;
        }
        seen.push(kind);
        hello.hidden |= HIDDEN.contains(&kind);
        if kind == SERVER_NAME {
            hello.server = Some(server_name(body)?);
        }
    }
    Some(hello)
}

/// The one name of the extension. Anything but one DNS name without a final dot is malformed.
fn server_name(mut body: Reader<'_>) -> Option<Name> {
    let mut list = body.long()?;
    let (kind, mut name) = (list.u8()?, list.long()?);
    if kind != 0 || !list.is_empty() || !body.is_empty() {
        return None;
    }
    let length = name.0.len();
    let text = std::str::from_utf8(name.bytes(length)?)
        .ok()
        .filter(|text| text.is_ascii() && !text.ends_with('.'))?;
    Name::parse(text).ok()
}

impl Hello {
    /// Whether the hello is for this host and no other.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(&self, host: &Host, tolerance: Tolerance) -> Result<(), Reason> {
        if self.hidden && !tolerance.encrypted {
            return Err(Reason::EncryptedHello);
        }
        match (host, &self.server) {
            (Host::Name(name), Some(server)) if name == server => Ok(()),
            (Host::Name(_), Some(_)) => Err(Reason::SniMismatch),
            (Host::Name(_), None) if tolerance.absent => Ok(()),
            (Host::Name(_), None) => Err(Reason::SniAbsent),
            (Host::Ip(_), Some(_)) => Err(Reason::SniUnexpected),
            (Host::Ip(_), None) => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vector(bytes: &[u8]) -> Vec<u8> {
        let mut out = u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        out.extend(bytes);
        out
    }

    fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [kind.to_be_bytes().to_vec(), vector(body)].concat()
    }

    pub(crate) fn sni(name: &str) -> Vec<u8> {
        extension(0, &vector(&[vec![0], vector(name.as_bytes())].concat()))
    }

    /// A hello with these extensions, in records of at most `record` bytes.
    pub(crate) fn hello(extensions: &[Vec<u8>], record: usize) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(0);
        body.extend(vector(&[0x13, 0x01]));
        body.extend([1, 0]);
        body.extend(vector(&extensions.concat()));
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let message = [vec![1], length[1..].to_vec(), body].concat();
        message.chunks(record).flat_map(|part| [vec![22, 3, 1], vector(part)].concat()).collect()
    }

    fn checked(bytes: &[u8], host: &str) -> Result<(), Reason> {
        let hello = read(bytes)?.expect("a whole hello");
        hello.check(&Host::parse(host).unwrap(), Tolerance::default())
    }

    #[test]
    fn rows_38_to_43_a_hello_must_name_the_target() {
        let ech = extension(0xfe0d, &[0]);
        let cases = [
            (hello(&[sni("a.example")], 9000), "a.example", Ok(())),
            (hello(&[sni("A.Example")], 9000), "a.example", Ok(())),
            (hello(&[sni("a.example")], 1), "a.example", Ok(())),
            (hello(&[sni("b.example")], 5), "a.example", Err(Reason::SniMismatch)),
            (hello(&[], 9000), "a.example", Err(Reason::SniAbsent)),
            (hello(&[], 9000), "10.0.0.1", Ok(())),
            (hello(&[sni("a.example")], 9000), "10.0.0.1", Err(Reason::SniUnexpected)),
            (hello(&[sni("10.0.0.1")], 9000), "10.0.0.1", Err(Reason::HelloMalformed)),
            (hello(&[sni("a.example."), vec![]], 9000), "a.example", Err(Reason::HelloMalformed)),
            (hello(&[sni("a.example\0")], 9000), "a.example", Err(Reason::HelloMalformed)),
            (hello(&[sni("a.example"), sni("b.example")], 9000), "a.example", Err(Reason::HelloMalformed)),
            (hello(&[sni("a.example"), ech], 9000), "a.example", Err(Reason::EncryptedHello)),
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "a.example", Err(Reason::NotTls)),
            (b"SSH-2.0-x".to_vec(), "a.example", Err(Reason::NotTls)),
            (vec![22, 3, 1, 0, 0], "a.example", Err(Reason::HelloMalformed)),
            (vec![22, 3, 1, 0, 4, 2, 0, 0, 0], "a.example", Err(Reason::HelloMalformed)),
            (vec![22, 9], "a.example", Err(Reason::HelloMalformed)),
        ];
        for (bytes, host, expected) in cases {
            assert_eq!(checked(&bytes, host), expected, "{host} {bytes:?}");
        }
        let lenient = Tolerance { absent: true, encrypted: true };
        let absent = read(&hello(&[], 9000)).unwrap().unwrap();
        assert_eq!(absent.check(&Host::parse("a.example").unwrap(), lenient), Ok(()));
    }

    #[test]
    fn a_part_of_a_hello_is_waited_for_and_an_endless_one_is_not() {
        let whole = hello(&[sni("a.example")], 20);
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Ok(None), "{end}");
        }
        let mut endless = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
        endless.resize(HELLO_MAX, 0);
        assert_eq!(read(&endless), Err(Reason::HelloMalformed));
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            if let Some(first) = bytes.first_mut() { *first = 22; }
            let _ = read(&bytes);
        }

        #[test]
        fn a_changed_byte_never_makes_another_name_pass(at in 0_usize..200, to in any::<u8>()) {
            let mut bytes = hello(&[sni("a.example")], 30);
            let at = at % bytes.len();
            bytes[at] = to;
            if let Ok(Some(hello)) = read(&bytes) {
                let passes = hello.check(&Host::parse("b.example").unwrap(), Tolerance::default()).is_ok();
                prop_assert_eq!(passes, hello.server.as_ref().is_some_and(|name| name.as_str() == "b.example"));
            }
        }
    }
}

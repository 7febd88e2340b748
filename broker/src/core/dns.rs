//! Turns a question for a name into an answer of our own: a synthetic address for what is allowed, and no such name for the rest.
//! It refuses to know any other resolver: nothing of a question leaves the machine (row 30).

use std::net::Ipv4Addr;

use policy::host::Name;

/// The longest question over UDP that is read.
pub const QUESTION_MAX: usize = 512;
/// Seconds for which an answer may be kept.
const TTL: u32 = 60;
const A: u16 = 1;
const ANY: u16 = 255;
const INTERNET: u16 = 1;

/// A question for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    id: [u8; 2],
    recursion: bool,
    /// The question as it came, for the answer to repeat.
    raw: Vec<u8>,
    /// The name, where it is one that can be reached.
    pub name: Option<Name>,
    /// The name for the record: labels with dots between.
    pub asked: String,
    kind: u16,
    class: u16,
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The name is known, by this address.
    Known(Ipv4Addr),
    /// There is no such name.
    NoName,
    /// No address is left to give.
    Failed,
}

/// Reads a question. `None` is a message that gets no answer: a response, or too short to have an id.
///
/// # Errors
/// A malformed or unserved question, with the answer that says so.
pub fn read(message: &[u8]) -> Option<Result<Question, Vec<u8>>> {
    let (header, rest) = message.split_at_checked(12)?;
    let &[a, b, high, _, q1, q2, ..] = header else { return None };
    if high & 0x80 != 0 {
        return None;
    }
    let (id, recursion) = ([a, b], high & 1 == 1);
    if high & 0x78 != 0 {
        return Some(Err(bare(id, recursion, 4)));
    }
    if [q1, q2] != [0, 1] {
        return Some(Err(bare(id, recursion, 1)));
    }
    let question = question(id, recursion, rest);
    Some(question.ok_or_else(|| bare(id, recursion, 1)))
}

fn question(id: [u8; 2], recursion: bool, rest: &[u8]) -> Option<Question> {
    let mut at = 0;
    let mut asked = String::new();
    let mut plain = true;
    loop {
        let length = usize::from(*rest.get(at)?);
        if length == 0 {
            break;
        }
        // Compression has no place in a question.
        if length > 63 || at > 255 {
            return None;
        }
        let label = rest.get(at + 1..=at + length)?;
        if !asked.is_empty() {
            asked.push('.');
        }
        plain &= label.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        asked.extend(label.iter().flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from));
        at += length + 1;
    }
    let end = at + 5;
    let &[k1, k2, c1, c2] = rest.get(at + 1..end)? else { return None };
    let name = if plain { Name::parse(&asked).ok() } else { None };
    let raw = rest.get(..end)?.to_vec();
    Some(Question {
        id,
        recursion,
        raw,
        name,
        asked,
        kind: u16::from_be_bytes([k1, k2]),
        class: u16::from_be_bytes([c1, c2]),
    })
}

/// A header with no question and this code.
fn bare(id: [u8; 2], recursion: bool, code: u8) -> Vec<u8> {
    let mut out = header(id, recursion, code);
    out.extend_from_slice(&[0; 8]);
    out
}

fn header(id: [u8; 2], recursion: bool, code: u8) -> Vec<u8> {
    let [a, b] = id;
    // A response, authoritative, recursion available.
    vec![a, b, 0x84 | u8::from(recursion), 0x80 | code]
}

impl Question {
    /// Whether it asks for something that names and addresses are about.
    pub fn wants_address(&self) -> bool {
        self.class == INTERNET && matches!(self.kind, A | ANY)
    }

    /// The bytes of the answer. A name that is known has an IPv4 address and nothing else: no IPv6, no keys, no services.
    pub fn answer(&self, answer: Answer) -> Vec<u8> {
        let (code, address) = match answer {
            Answer::Known(address) => (0, Some(address).filter(|_| self.wants_address())),
            Answer::NoName => (3, None),
            Answer::Failed => (2, None),
        };
        let mut out = header(self.id, self.recursion, code);
        out.extend_from_slice(&[0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
        out.extend_from_slice(&self.raw);
        if let Some(address) = address {
            // The name by a pointer to the question's.
            out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
            out.extend_from_slice(&TTL.to_be_bytes());
            out.extend_from_slice(&[0, 4]);
            out.extend_from_slice(&address.octets());
        }
        out
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn ask(name: &str, kind: u16) -> Vec<u8> {
        let mut out = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.').filter(|label| !label.is_empty()) {
            out.push(u8::try_from(label.len()).unwrap());
            out.extend(label.as_bytes());
        }
        out.push(0);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out
    }

    #[test]
    fn a_known_name_has_one_ipv4_address_and_nothing_else() {
        let address = Ipv4Addr::new(198, 18, 0, 9);
        for (kind, answers) in [(A, 1), (28, 0), (65, 0), (16, 0), (ANY, 1)] {
            let question = read(&ask("Api.Example.COM", kind)).unwrap().unwrap();
            assert_eq!(question.name.as_ref().map(Name::as_str), Some("api.example.com"));
            let answer = question.answer(Answer::Known(address));
            assert_eq!(answer[..4], [0xab, 0xcd, 0x85, 0x80], "{kind}");
            assert_eq!(answer[7], answers, "{kind}");
            assert_eq!(answer.ends_with(&address.octets()), answers == 1, "{kind}");
        }
    }

    #[test]
    fn any_other_name_does_not_exist() {
        let question = read(&ask("data.leak.example", A)).unwrap().unwrap();
        assert_eq!(question.answer(Answer::NoName)[3], 0x83);
        let odd = read(&ask("evil\0.example", A)).unwrap().unwrap();
        assert_eq!((odd.name, odd.asked.as_str()), (None, "evil\\x00.example"));
        assert_eq!(read(&ask("", A)).unwrap().unwrap().name, None);
    }

    #[test]
    fn what_is_no_question_is_refused_or_ignored() {
        let mut response = ask("a.example", A);
        response[2] |= 0x80;
        assert_eq!(read(&response), None);
        let mut update = ask("a.example", A);
        update[2] |= 5 << 3;
        assert_eq!(read(&update).unwrap().unwrap_err()[3], 0x84);
        let mut two = ask("a.example", A);
        two[5] = 2;
        assert_eq!(read(&two).unwrap().unwrap_err()[3], 0x81);
        let mut pointer = ask("a.example", A);
        pointer[12] = 0xc0;
        assert_eq!(read(&pointer).unwrap().unwrap_err()[3], 0x81);
        assert_eq!(read(&[1, 2, 3]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(Ok(question)) = read(&bytes) {
                prop_assert!(question.answer(Answer::NoName).len() <= bytes.len());
            }
        }
    }
}

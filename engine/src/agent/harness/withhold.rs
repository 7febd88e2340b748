//! Turns text that comes in pieces into text without secrets, also where one is cut between two pieces.
//! It refuses to know where a text comes from.

/// What stands in the place of a secret.
const WITHHELD: &str = "[withheld]";

/// The values that are never told.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Longest first, so that none is cut by a shorter one that stands in it.
    values: Vec<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.values.len())
    }
}

impl Secrets {
    /// Values as they are, and as they stand in JSON text; empty ones are none.
    #[must_use]
    pub fn new(values: Vec<String>) -> Secrets {
        let quoted = |value: &String| {
            let json = serde_json::Value::from(value.as_str()).to_string();
            json.get(1..json.len().saturating_sub(1)).map(str::to_owned)
        };
        let mut all: Vec<String> = values.iter().filter_map(quoted).collect();
        all.extend(values);
        all.retain(|value| !value.is_empty());
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Secrets { values: all }
    }

    /// The text without any that stands in it whole.
    #[must_use]
    pub fn clean(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, secret| text.replace(secret, WITHHELD))
    }

    /// Whether any stands in it whole.
    #[must_use]
    pub fn stand_in(&self, text: &str) -> bool {
        self.values.iter().any(|secret| text.contains(secret))
    }

    /// How many bytes of the end of a text could be the beginning of one.
    #[must_use]
    pub fn begun_in(&self, text: &[u8]) -> usize {
        let begun = |secret: &String| {
            let most = secret.len().saturating_sub(1).min(text.len());
            let head = |length: usize| secret.as_bytes().get(..length).unwrap_or_default();
            (1..=most).rev().find(|length| text.ends_with(head(*length)))
        };
        self.values.iter().filter_map(begun).max().unwrap_or(0)
    }
}

/// A stream of bytes without secrets. What could be the beginning of one waits for the next piece: never more than the
/// longest secret has.
#[derive(Debug, Default)]
pub(super) struct Withhold {
    held: Vec<u8>,
}

impl Withhold {
    /// What may be told of the stream after its next piece.
    #[must_use]
    pub(super) fn push(&mut self, secrets: &Secrets, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        for secret in &secrets.values {
            bytes = without(&bytes, secret.as_bytes());
        }
        self.held = bytes.split_off(bytes.len().saturating_sub(secrets.begun_in(&bytes)));
        bytes
    }

    /// What was held back, at the end of the stream.
    #[must_use]
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

fn without(bytes: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(secret.len()).position(|part| part == secret) {
        let (head, tail) = rest.split_at(at);
        clean.extend_from_slice(head);
        clean.extend_from_slice(WITHHELD.as_bytes());
        rest = tail.get(secret.len()..).unwrap_or_default();
    }
    clean.extend_from_slice(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(secrets: &Secrets, pieces: &[&[u8]]) -> String {
        let mut withhold = Withhold::default();
        let mut all: Vec<u8> = pieces.iter().flat_map(|piece| withhold.push(secrets, piece)).collect();
        all.extend(withhold.finish());
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn a_secret_is_withheld_wherever_it_is_cut() {
        let secrets = Secrets::new(vec!["sk-canary".to_owned(), String::new()]);
        let text = b"key=sk-canary, sk-cannot sk-";
        for at in 0..text.len() {
            let (head, tail) = text.split_at(at);
            assert_eq!(told(&secrets, &[head, tail]), "key=[withheld], sk-cannot sk-", "cut at {at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(told(&secrets, &bytes), "key=[withheld], sk-cannot sk-");
    }

    #[test]
    fn no_more_waits_than_could_begin_a_secret() {
        let secrets = Secrets::new(vec!["abcabd".to_owned()]);
        let mut withhold = Withhold::default();
        assert_eq!(withhold.push(&secrets, b"xxabcab"), b"xx");
        assert_eq!(withhold.push(&secrets, b"c"), b"abc");
        assert_eq!(withhold.push(&secrets, b"abd!"), b"[withheld]!");
        assert_eq!(withhold.finish(), b"");
    }

    #[test]
    fn a_secret_with_quotes_is_withheld_in_json_too() {
        let secrets = Secrets::new(vec!["a\"b".to_owned()]);
        assert_eq!(secrets.clean(r#"{"k":"a\"b"} a"b"#), r#"{"k":"[withheld]"} [withheld]"#);
        assert_eq!(format!("{secrets:?}"), "2 secrets");
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "[abc]{0,40}", cuts in proptest::collection::vec(0usize..40, 0..6)) {
            let secrets = Secrets::new(vec!["abca".to_owned(), "bb".to_owned()]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            let told = told(&secrets, &pieces);
            prop_assert!(!secrets.stand_in(&told), "{told}");
        }
    }
}

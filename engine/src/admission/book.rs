//! Turns the lines of the admission ledger into what is known of each key (contract §7.1).
//! It refuses to know files.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::input::{Input, Key};
use super::wire::Line;

/// How many inputs may be owed at once. Each is kept in memory until it is settled.
pub const OWED_MAX: usize = 1024;

/// How an input came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Settlement {
    /// It took effect. For a steer: it was delivered into a turn's prompt.
    Applied,
    /// Something later took its place.
    Superseded,
    /// It could not take effect.
    Rejected,
}

/// What the book says to an input that is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is new.
    New,
    /// It was delivered before, and settled like this.
    Again(Option<Settlement>),
}

/// Why an input is not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The key stands for something else.
    #[error("idempotency conflict: the id was given with another payload before")]
    Conflict,
    /// More is owed than is kept.
    #[error("{OWED_MAX} inputs wait for the run already")]
    Full,
}

/// Everything that is known of the inputs of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Book {
    entries: HashMap<Key, Entry>,
    /// The keys that are owed, in the order of their admission.
    owed: BTreeMap<u64, Key>,
    count: u64,
}

/// What is known of one key. The input itself is kept while it is owed, its digest for ever.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    place: u64,
    digest: Option<[u8; 32]>,
    input: Option<Input>,
    settled: Option<Settlement>,
}

impl Book {
    /// Folds one line. The first admission of a key stands, and its first settlement.
    pub fn see(&mut self, line: Line) {
        match line {
            Line::Admitted { key, input } if !self.entries.contains_key(&key) => {
                self.count = self.count.saturating_add(1);
                let place = self.count;
                if input.is_some() {
                    self.owed.insert(place, key.clone());
                }
                let digest = input.as_ref().map(digest);
                self.entries.insert(key, Entry { place, digest, input, settled: None });
            }
            Line::Settled { key, outcome, .. } => {
                if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.settled.is_none()) {
                    entry.settled = Some(outcome);
                    entry.input = None;
                    self.owed.remove(&entry.place);
                }
            }
            Line::Admitted { .. } => {}
        }
    }

    /// What a delivery of `input` under `key` is.
    ///
    /// # Errors
    /// When the key stands for something else, or too much is owed already. An end is never too much.
    pub fn ask(&self, key: &Key, input: &Input) -> Result<Admission, Refusal> {
        match self.entries.get(key) {
            Some(entry) if entry.digest == Some(digest(input)) => Ok(Admission::Again(entry.settled)),
            Some(_) => Err(Refusal::Conflict),
            None if self.owed.len() >= OWED_MAX && !input.ends_the_run() => Err(Refusal::Full),
            None => Ok(Admission::New),
        }
    }

    /// The inputs that the run owes, in the order of their admission.
    pub fn owed(&self) -> impl Iterator<Item = (&Key, &Input)> {
        self.owed.values().filter_map(|key| Some((key, self.entries.get(key)?.input.as_ref()?)))
    }

    /// Whether a key was admitted, and how it was settled.
    #[must_use]
    pub fn standing(&self, key: &Key) -> Option<Option<Settlement>> {
        self.entries.get(key).map(|entry| entry.settled)
    }

    /// Whether any key that fulfils `which` was admitted after `key`.
    pub fn followed_by(&self, key: &Key, which: impl Fn(&Key) -> bool) -> bool {
        let place = self.entries.get(key).map_or(u64::MAX, |entry| entry.place);
        self.entries.iter().any(|(other, entry)| entry.place > place && which(other))
    }
}

/// What tells two payloads apart.
fn digest(input: &Input) -> [u8; 32] {
    // The debug form has every field with its name, and texts quoted.
    Sha256::digest(format!("{input:?}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> Key {
        Key::chosen(text).unwrap()
    }

    fn admitted(at: &str, input: Input) -> Line {
        Line::Admitted { key: key(at), input: Some(input) }
    }

    fn settled(at: &str, outcome: Settlement) -> Line {
        Line::Settled { key: key(at), outcome, note: String::new() }
    }

    #[test]
    fn the_first_admission_and_the_first_settlement_stand() {
        let mut book = Book::default();
        book.see(settled("a", Settlement::Rejected));
        assert_eq!(book.standing(&key("a")), None, "nothing is settled before it is admitted");
        book.see(admitted("a", Input::Pause));
        book.see(admitted("a", Input::Resume));
        assert_eq!(book.owed().map(|(_, input)| input.clone()).collect::<Vec<_>>(), [Input::Pause]);
        assert_eq!(book.ask(&key("a"), &Input::Pause), Ok(Admission::Again(None)));
        assert_eq!(book.ask(&key("a"), &Input::Resume), Err(Refusal::Conflict));
        book.see(settled("a", Settlement::Applied));
        book.see(settled("a", Settlement::Rejected));
        assert_eq!(book.ask(&key("a"), &Input::Pause), Ok(Admission::Again(Some(Settlement::Applied))));
        assert_eq!(book.ask(&key("a"), &Input::Resume), Err(Refusal::Conflict), "also when it is settled");
        assert_eq!(book.owed().count(), 0);
    }

    #[test]
    fn what_this_build_does_not_know_keeps_its_key_and_is_not_owed() {
        let mut book = Book::default();
        book.see(Line::Admitted { key: key("a"), input: None });
        assert_eq!(book.ask(&key("a"), &Input::Pause), Err(Refusal::Conflict));
        assert_eq!(book.owed().count(), 0);
    }

    #[test]
    fn too_much_is_refused_but_never_an_end() {
        let mut book = Book::default();
        for at in 0..OWED_MAX {
            book.see(admitted(&at.to_string(), Input::Steer { text: "x".into() }));
        }
        let steer = Input::Steer { text: "y".into() };
        assert_eq!(book.ask(&key("more"), &steer), Err(Refusal::Full));
        assert_eq!(book.ask(&key("0"), &Input::Steer { text: "x".into() }), Ok(Admission::Again(None)));
        assert_eq!(book.ask(&key("stop"), &Input::Stop), Ok(Admission::New));
        book.see(settled("7", Settlement::Applied));
        assert_eq!(book.ask(&key("more"), &steer), Ok(Admission::New));
    }

    #[derive(Debug, Clone)]
    enum Move {
        Deliver(u8, u8),
        Settle(u8, u8),
    }

    proptest! {
        /// Whatever is delivered and settled, in whichever order: one admission a key, at most one settlement, and a
        /// fold of the written lines says the same as the book that wrote them.
        #[test]
        fn each_key_is_admitted_once_and_settled_at_most_once(
            moves in proptest::collection::vec(prop_oneof![
                (0u8..6, 0u8..3).prop_map(|(key, input)| Move::Deliver(key, input)),
                (0u8..6, 0u8..3).prop_map(|(key, outcome)| Move::Settle(key, outcome)),
            ], 0..60)
        ) {
            let inputs = [Input::Pause, Input::Steer { text: "a".into() }, Input::Steer { text: "b".into() }];
            let outcomes = [Settlement::Applied, Settlement::Superseded, Settlement::Rejected];
            let (mut book, mut lines) = (Book::default(), Vec::new());
            for one in moves {
                let line = match one {
                    Move::Deliver(at, which) => {
                        let (at, input) = (key(&at.to_string()), inputs[usize::from(which)].clone());
                        match book.ask(&at, &input) {
                            Ok(Admission::New) => Line::Admitted { key: at, input: Some(input) },
                            _ => continue,
                        }
                    }
                    Move::Settle(at, how) => {
                        let at = key(&at.to_string());
                        if book.standing(&at) != Some(None) { continue }
                        Line::Settled { key: at, outcome: outcomes[usize::from(how)], note: String::new() }
                    }
                };
                book.see(line.clone());
                lines.push(line);
            }
            for at in 0u8..6 {
                let at = key(&at.to_string());
                let admissions = lines.iter().filter(|line| matches!(line, Line::Admitted { key, .. } if *key == at)).count();
                let settlements = lines.iter().filter(|line| matches!(line, Line::Settled { key, .. } if *key == at)).count();
                prop_assert!(admissions <= 1 && settlements <= admissions);
                prop_assert_eq!(book.owed().any(|(key, _)| *key == at), admissions == 1 && settlements == 0);
            }
            let mut again = Book::default();
            lines.iter().chain(&lines).cloned().for_each(|line| again.see(line));
            prop_assert_eq!(again, book);
        }
    }
}

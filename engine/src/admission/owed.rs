//! Turns a ledger whose run died into what the resumed run still owes, and what a resume closes (contract §7.1).
//! It refuses to know what the inputs do.

use super::book::{Book, Settlement};
use super::input::{Budget, Input, Key, OWN_KEYS};

/// What the keys of grants begin with, behind [`OWN_KEYS`].
const GRANT: &str = "grant:";

/// The note of an approval whose grant the ledger has. The log need not have taken it up: the machine may have died with that line.
pub const GRANTED_BEFORE: &str = "granted before the engine died";

/// What the session log says was settled: the key, how, and why.
pub type Settled = Vec<(Key, Settlement, String)>;

/// What a resumed run begins with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Owed {
    /// The inputs that are taken in again, in the order of their admission.
    pub again: Vec<(Key, Input)>,
    /// Those that are settled instead: how, and why.
    pub closed: Settled,
}

impl Owed {
    /// The same where the command line of the resume names ceilings: a budget of before that nothing would be left of beside
    /// them is superseded.
    #[must_use]
    pub fn beside(mut self, named: &Budget) -> Owed {
        let (covered, again) = self
            .again
            .into_iter()
            .partition(|(_, input)| matches!(input, Input::SetBudget(budget) if named.covers(budget)));
        self.again = again;
        let covered: Vec<(Key, Input)> = covered;
        let why = "the resume names other ceilings";
        self.closed.extend(covered.into_iter().map(|(key, _)| (key, Settlement::Superseded, why.to_owned())));
        self
    }
}

/// The key of the rescope that grants the `ordinal`-th ask of a run.
#[must_use]
pub fn grant_key(ordinal: u32, trace_id: &str, handle: &str) -> Key {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    for part in [trace_id, handle] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Key::own(&format!("{GRANT}{ordinal}:{digest}"))
}

/// Whether a key is that of a grant.
fn is_grant(key: &Key) -> bool {
    key.as_str().strip_prefix(OWN_KEYS).is_some_and(|rest| rest.starts_with(GRANT))
}

/// Sorts what is owed into what is taken up again and what a resume closes. What the log says was settled, and the
/// engine died before it could record, is settled so now.
#[must_use]
pub fn owed(book: &Book, settled: &Settled) -> Owed {
    let mut owed = Owed::default();
    for (key, input) in book.owed() {
        let told = settled.iter().find(|(at, _, _)| at == key);
        let closed = match (input, told) {
            (Input::Stop | Input::Abort, _) => Some((Settlement::Superseded, "the run was resumed")),
            (_, Some((_, outcome, note))) => Some((*outcome, note.as_str())),
            (Input::Approve { .. }, None) if book.followed_by(key, is_grant) => {
                Some((Settlement::Applied, GRANTED_BEFORE))
            }
            (Input::Approve { .. }, None) => {
                Some((Settlement::Superseded, "the engine died before the grant was recorded"))
            }
            _ => None,
        };
        match closed {
            Some((outcome, note)) => owed.closed.push((key.clone(), outcome, note.to_owned())),
            None => owed.again.push((key.clone(), input.clone())),
        }
    }
    owed
}

#[cfg(test)]
mod tests {
    use super::super::wire::Line;
    use super::*;

    fn key(text: &str) -> Key {
        Key::chosen(text).unwrap()
    }

    fn steer() -> Input {
        Input::Steer { text: "x".into() }
    }

    fn approve() -> Input {
        Input::Approve { handle: None, regime: None }
    }

    fn check(inputs: &[(Key, Input)], told: &Settled, again: &[&str], closed: &[(&str, Settlement)]) {
        let mut book = Book::default();
        for (key, input) in inputs {
            book.see(Line::Admitted { key: key.clone(), input: Some(input.clone()) });
        }
        let got = owed(&book, told);
        let names: Vec<&str> = got.again.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(names, again);
        let settled: Vec<(&str, Settlement)> =
            got.closed.iter().map(|(key, outcome, _)| (key.as_str(), *outcome)).collect();
        assert_eq!(settled, closed);
    }

    #[test]
    fn what_is_not_delivered_is_owed_and_what_a_resume_overrides_is_closed() {
        use Settlement::{Applied, Superseded};
        let told = ["s1", "r1"].map(|name| (key(name), Applied, "in the log".to_owned())).to_vec();
        let rescope = || Input::Rescope { regime: "c=48".into() };
        let budget = Input::SetBudget(Budget { max_cost: Some(1.0), ..Default::default() });
        check(
            &[
                (key("s1"), steer()),
                (key("s2"), steer()),
                (key("r1"), rescope()),
                (key("r2"), rescope()),
                (key("b"), budget),
                (key("p"), Input::Pause),
                (key("stop"), Input::Stop),
                (key("abort"), Input::Abort),
                (key("no"), Input::Deny { handle: None, reason: String::new() }),
            ],
            &told,
            &["s2", "r2", "b", "p", "no"],
            &[("s1", Applied), ("r1", Applied), ("stop", Superseded), ("abort", Superseded)],
        );
    }

    #[test]
    fn a_budget_of_before_gives_way_to_the_ceilings_that_a_resume_names() {
        let mut book = Book::default();
        for (name, budget) in [
            ("both", Budget { max_cost: Some(1.0), iterations: Some(2), ..Budget::default() }),
            ("iterations", Budget { iterations: Some(2), ..Budget::default() }),
        ] {
            book.see(Line::Admitted { key: key(name), input: Some(Input::SetBudget(budget)) });
        }
        let named = Budget { iterations: Some(9), ..Budget::default() };
        let got = owed(&book, &Settled::new()).beside(&named);
        assert_eq!(got.again.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["both"]);
        let closed: Vec<_> = got.closed.iter().map(|(key, how, _)| (key.as_str(), *how)).collect();
        assert_eq!(closed, [("iterations", Settlement::Superseded)]);
        assert_eq!(owed(&book, &Settled::new()).beside(&Budget::default()).again.len(), 2);
    }

    #[test]
    fn an_approval_is_closed_as_its_grant_says_and_the_grant_stays_owed() {
        use Settlement::{Applied, Superseded};
        let grant = grant_key(1, "t", "gpu");
        let rescope = Input::Rescope { regime: "gpu".into() };
        check(
            &[(key("yes"), approve()), (grant.clone(), rescope)],
            &Settled::new(),
            &[grant.as_str()],
            &[("yes", Applied)],
        );
        check(&[(key("yes"), approve())], &Settled::new(), &[], &[("yes", Superseded)]);
    }

    #[test]
    fn each_ask_has_a_key_of_its_own() {
        let keys = [grant_key(1, "a", "bc"), grant_key(1, "ab", "c"), grant_key(2, "a", "bc")];
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        assert_eq!(grant_key(1, "a", "bc"), keys[0]);
    }
}

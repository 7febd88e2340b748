//! Turns the token of a turn into a yes or no about a header, in a time that does not depend on the guess.
//! It refuses to keep the token itself.

use sha2::{Digest as _, Sha256};

/// A token that is only known by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token([u8; 32]);

impl Token {
    /// Knows a token.
    pub(crate) fn new(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Whether an `Authorization` carries it. Digests are compared, whole: how far a guess fits cannot be told.
    pub(crate) fn admits(&self, authorization: &[u8]) -> bool {
        let given =
            authorization.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        let Some((_, given)) = given else { return false };
        let given: [u8; 32] = Sha256::digest(given).into();
        self.0.iter().zip(given).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_is_admitted() {
        let token = Token::new("canary-0123456789");
        assert!(token.admits(b"Bearer canary-0123456789") && token.admits(b"bearer canary-0123456789"));
        for other in
            ["", "Bearer ", "Bearer canary-012345678", "Bearer canary-01234567890", "Basic canary-0123456789"]
        {
            assert!(!token.admits(other.as_bytes()), "{other}");
        }
        assert!(!format!("{token:?}").contains("canary"));
    }
}

//! Turns a turn into a token that only its sandbox and the broker know.
//! It refuses to know what the token opens.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a token before it is written in hex.
const TOKEN_BYTES: usize = 32;

/// The tokens of turns that run. `Debug` shows none.
#[derive(Clone, Default)]
pub struct Tokens(Arc<Mutex<BTreeMap<String, String>>>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

impl Tokens {
    /// Makes a new token for a turn.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn begin(&self, turn: &str) -> io::Result<String> {
        let mut bytes = [0; TOKEN_BYTES];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.lock().insert(turn.to_owned(), token.clone());
        Ok(token)
    }

    /// The token of a turn.
    #[must_use]
    pub fn of(&self, turn: &str) -> Option<String> {
        self.lock().get(turn).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

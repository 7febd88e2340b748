//! Turns a turn into a token that only its sandbox and the broker know, and into what tells the agent where its tools are (N14).
//! It refuses to know what the tools do.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::sync::{Arc, Mutex, PoisonError};

use broker::mcp::{PATH, TOKEN, URL};
use driver::turn::Relay;

/// Bytes of a token before it is written in hex.
const TOKEN_BYTES: usize = 32;
/// Where an agent's own configuration of MCP servers stands: in its home, which is no part of the candidate.
const CONFIG: &str = "/sandbox/home/.mcp.json";

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

/// Where the tools of a run are served, and who may call them.
#[derive(Clone, Debug)]
pub struct ToolAccess {
    /// The broker's URL as the sandbox sees it, `http://host:port`.
    pub url: String,
    /// The tokens.
    pub tokens: Tokens,
}

impl ToolAccess {
    /// The variables and the file of a turn's sandbox.
    ///
    /// # Errors
    /// When no token can be made.
    pub fn begin(&self, turn: &str) -> io::Result<([(String, String); 2], Relay)> {
        let token = self.tokens.begin(turn)?;
        let variables = [(URL.to_owned(), self.url.clone()), (TOKEN.to_owned(), token)];
        let relay = Relay { dest: CONFIG.to_owned(), content: self.config().into_bytes(), mode: 0o600 };
        Ok((variables, relay))
    }

    /// What harnesses read as `.mcp.json`. The token is not in it: harnesses take it from the variable.
    fn config(&self) -> String {
        let server = serde_json::json!({
            "type": "http",
            "url": format!("{}{PATH}", self.url),
            "headers": { "Authorization": format!("Bearer ${{{TOKEN}}}") },
        });
        format!("{:#}\n", serde_json::json!({ "mcpServers": { "crucible": server } }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_a_token_of_its_own_and_no_file_holds_it() {
        let access = ToolAccess { url: "http://broker.internal:8080".to_owned(), tokens: Tokens::default() };
        let (one, file) = access.begin("turn-1").unwrap();
        let (two, _) = access.begin("turn-2").unwrap();
        assert_ne!(one[1].1, two[1].1);
        assert_eq!(one[1].1.len(), 64);
        assert_eq!(access.tokens.of("turn-1").as_ref(), Some(&one[1].1));
        assert_eq!(access.tokens.of("turn-3"), None);
        let text = String::from_utf8(file.content).unwrap();
        assert!(!text.contains(&one[1].1) && !format!("{access:?}").contains(&one[1].1));
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(config["mcpServers"]["crucible"]["url"], "http://broker.internal:8080/mcp");
        assert_eq!(
            config["mcpServers"]["crucible"]["headers"]["Authorization"],
            "Bearer ${CRUCIBLE_TOOLS_TOKEN}"
        );
    }
}

//! Turns a turn into a token that only its sandbox and the broker know, and into what tells the agent where its tools are (N14).
//! It refuses to know what the tools do.

use std::io;

use broker::mcp::{PATH, TOKEN, URL};
use driver::turn::Relay;

use super::harness::McpServer;
use crate::egress::Tokens;

/// Where an agent's own configuration of MCP servers stands: in its home, which is no part of the candidate.
const CONFIG: &str = "/sandbox/home/.mcp.json";

/// Where the tools of a run are served, and who may call them.
#[derive(Clone, Debug)]
pub struct ToolAccess {
    /// The broker's URL as the sandbox sees it, `http://host:port`.
    pub url: String,
    /// The tokens.
    pub tokens: Tokens,
}

/// What tells one turn where its tools are.
pub struct BegunTools {
    /// For scripts, in the environment.
    pub variables: [(String, String); 2],
    /// The file that harnesses read.
    pub config: Relay,
    /// For harnesses that are told by their arguments.
    pub server: McpServer,
}

impl ToolAccess {
    /// The variables and the file of a turn's sandbox.
    ///
    /// # Errors
    /// When no token can be made.
    pub fn begin(&self, turn: &str) -> io::Result<BegunTools> {
        let token = self.tokens.begin(turn)?;
        let server = McpServer { url: format!("{}{PATH}", self.url), token: token.clone() };
        let variables = [(URL.to_owned(), self.url.clone()), (TOKEN.to_owned(), token)];
        let config = Relay { dest: CONFIG.to_owned(), content: self.config().into_bytes(), mode: 0o600 };
        Ok(BegunTools { variables, config, server })
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
        let BegunTools { variables: one, config: file, .. } = access.begin("turn-1").unwrap();
        let two = access.begin("turn-2").unwrap().variables;
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

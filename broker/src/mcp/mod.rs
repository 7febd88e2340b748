//! Turns connections to the broker's own URL into calls of tools, over MCP's streamable HTTP (note N14).
//! It refuses to know what a tool does, and whoever has no token of the turn.

pub mod call;
pub(crate) mod face;

/// Where the tools are served below the broker's URL.
pub const PATH: &str = "/mcp";
/// The variable of a sandbox with the URL of the tools.
pub const URL: &str = "CRUCIBLE_TOOLS_URL";
/// The variable of a sandbox with the token of the turn.
pub const TOKEN: &str = "CRUCIBLE_TOOLS_TOKEN";

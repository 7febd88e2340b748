//! Turns the variables that model clients read from their environment into data.
//! It refuses to know any value.

/// Who reads a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Clients of Anthropic's API.
    Anthropic,
    /// The same clients, when they go through Vertex.
    Vertex,
    /// Clients of OpenAI's API, and of what speaks like it.
    OpenAi,
}

/// One variable that says which model is reached, where, or with which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// As it is written.
    pub name: &'static str,
    /// Who reads it.
    pub family: Family,
    /// What its value is.
    pub holds: Holds,
}

/// What the value of a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A key or a token: pack commands do not see it (note N12).
    Key,
    /// Where requests go.
    Url,
    /// A path of this machine, which means nothing in a sandbox.
    Path,
    /// A setting.
    Setting,
}

const fn row(name: &'static str, family: Family, holds: Holds) -> Variable {
    Variable { name, family, holds }
}

use Family::{Anthropic, OpenAi, Vertex};
use Holds::{Key, Path, Setting, Url};

/// All of them. Where a document binds the agent, none of these that stands in the environment or in `[agent.env]` counts.
pub const AMBIENT: [Variable; 24] = [
    row("ANTHROPIC_API_KEY", Anthropic, Key),
    row("ANTHROPIC_AUTH_TOKEN", Anthropic, Key),
    row("CLAUDE_CODE_OAUTH_TOKEN", Anthropic, Key),
    row("ANTHROPIC_CUSTOM_HEADERS", Anthropic, Key),
    row("ANTHROPIC_BASE_URL", Anthropic, Url),
    row("ANTHROPIC_MODEL", Anthropic, Setting),
    row("ANTHROPIC_SMALL_FAST_MODEL", Anthropic, Setting),
    row("ANTHROPIC_DEFAULT_OPUS_MODEL", Anthropic, Setting),
    row("ANTHROPIC_DEFAULT_SONNET_MODEL", Anthropic, Setting),
    row("ANTHROPIC_DEFAULT_HAIKU_MODEL", Anthropic, Setting),
    row("CLAUDE_CODE_SUBAGENT_MODEL", Anthropic, Setting),
    row("CLAUDE_CODE_USE_BEDROCK", Anthropic, Setting),
    row("AWS_BEARER_TOKEN_BEDROCK", Anthropic, Key),
    row("CLAUDE_CODE_USE_VERTEX", Vertex, Setting),
    row("ANTHROPIC_VERTEX_PROJECT_ID", Vertex, Setting),
    row("ANTHROPIC_VERTEX_BASE_URL", Vertex, Url),
    row("CLOUD_ML_REGION", Vertex, Setting),
    row("GOOGLE_CLOUD_PROJECT", Vertex, Setting),
    row("GOOGLE_APPLICATION_CREDENTIALS", Vertex, Path),
    row("OPENAI_API_KEY", OpenAi, Key),
    row("CODEX_API_KEY", OpenAi, Key),
    row("OPENAI_BASE_URL", OpenAi, Url),
    row("OPENAI_ORGANIZATION", OpenAi, Setting),
    row("OPENAI_PROJECT", OpenAi, Setting),
];

impl Family {
    /// The variable that its clients read the key from.
    #[must_use]
    pub fn key_name(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Vertex => "ANTHROPIC_API_KEY",
            Self::OpenAi => "OPENAI_API_KEY",
        }
    }

    /// The variable that its clients read the endpoint from.
    #[must_use]
    pub fn url_name(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::Vertex => "ANTHROPIC_VERTEX_BASE_URL",
            Self::OpenAi => "OPENAI_BASE_URL",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_once_and_what_a_binding_sets_is_among_them() {
        for (at, variable) in AMBIENT.iter().enumerate() {
            assert!(
                AMBIENT.iter().skip(at + 1).all(|other| other.name != variable.name),
                "{}",
                variable.name
            );
        }
        let holds = |name| AMBIENT.iter().find(|variable| variable.name == name).map(|found| found.holds);
        for family in [Anthropic, Vertex, OpenAi] {
            assert_eq!(holds(family.key_name()), Some(Key));
            assert_eq!(holds(family.url_name()), Some(Url));
        }
    }
}

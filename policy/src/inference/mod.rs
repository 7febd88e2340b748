//! Turns the inference document (note N6, ADR-0065) into typed bindings, or into the first thing that is wrong with it.
//! It refuses to know where the document comes from, and a key never is in it: only the name of its variable.

mod ambient;
mod parse;
mod url;
mod words;

use std::fmt;

pub use ambient::{AMBIENT, Family, Holds, Variable};
pub use url::{InferenceUrl, UrlFault};
pub use words::{KeyFault, KeyName, ModelFault, ModelName};

use crate::egress::Plumbing;
use crate::host::{Host, Port, Target};

/// The variable that holds the document.
pub const VARIABLE: &str = "CRUCIBLE_INFERENCE";
/// A longer document is refused, in bytes.
pub const DOCUMENT_MAX: usize = 64 * 1024;
/// The only version there is.
pub const VERSION: u64 = 1;

/// What a document binds, at most one binding for each role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// The whole answer for agent turns.
    pub agent: Option<AgentBinding>,
    /// What decides a model-decided route.
    pub decision: Option<DecisionBinding>,
}

/// The model of agent turns, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentBinding {
    /// What is spoken.
    pub protocol: AgentProtocol,
    /// Where, or the protocol's own endpoint.
    pub url: Option<InferenceUrl>,
    /// The model's name.
    pub model: ModelName,
    /// The variable that holds the key; without one no key is sent.
    pub key_env: Option<KeyName>,
}

/// The model that decides routes, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionBinding {
    /// What is spoken, and where.
    pub protocol: DecisionProtocol,
    /// The model's name.
    pub model: ModelName,
    /// The variable that holds the key. It never leaves the engine's own process.
    pub key_env: Option<KeyName>,
}

/// What agents may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentProtocol {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's chat completions.
    ChatCompletions,
    /// OpenAI's Responses.
    Responses,
}

/// What deciders may speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionProtocol {
    /// System One, which has no endpoint of its own.
    SystemOne(InferenceUrl),
    /// OpenAI's Decisions API, at OpenAI's own endpoint.
    Decisions,
}

/// What is wrong with a document, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct InferenceError {
    /// `the document`, or a path such as `bindings[0].key_env`.
    pub place: String,
    /// What is wrong there.
    pub fault: Fault,
}

/// What can be wrong with a document. None shows a value that could be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Longer than is read.
    #[error("it is longer than {DOCUMENT_MAX} bytes")]
    TooLong,
    /// Not text.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// Not JSON, or a key twice in one object, by the parser's words.
    #[error("{0}")]
    NotJson(String),
    /// Another type than the field takes.
    #[error("it is {found}: it must be {expected}")]
    Type {
        /// With its article.
        expected: &'static str,
        /// With its article.
        found: &'static str,
    },
    /// A field that must be there.
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    /// A field of nobody.
    #[error("the field `{0}` is unknown")]
    Unknown(String),
    /// Another version.
    #[error("the version {0} is unknown: this build reads version {VERSION}")]
    Version(String),
    /// A role of nobody.
    #[error("the role `{0}` is unknown: it is agent or decision")]
    Role(String),
    /// A second binding of a role.
    #[error("the role {0} is bound twice")]
    Twice(&'static str),
    /// A protocol that the role does not have.
    #[error("the protocol `{protocol}` is not one of the role {role}, which has {known}")]
    Protocol {
        /// As written, shortened.
        protocol: String,
        /// `agent` or `decision`.
        role: &'static str,
        /// The role's protocols.
        known: &'static str,
    },
    /// A protocol without an endpoint of its own.
    #[error("the protocol {0} has no endpoint of its own: `url` is missing")]
    NoUrl(&'static str),
    /// A protocol with no other endpoint than its own.
    #[error("the protocol {0} takes no `url`")]
    UrlNotTaken(&'static str),
    /// Not a URL that can be used.
    #[error("the URL {0}")]
    Url(UrlFault),
    /// Not a model's name.
    #[error("the model's name {0}")]
    Model(ModelFault),
    /// Not a variable that can hold a key.
    #[error("the name of the key's variable {0}")]
    Key(KeyFault),
}

impl Bindings {
    /// Reads the document. An empty one binds nothing.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place (note N6).
    pub fn parse(text: &[u8]) -> Result<Bindings, InferenceError> {
        parse::document(text)
    }

    /// The variables that hold keys.
    pub fn key_names(&self) -> impl Iterator<Item = &KeyName> {
        let agent = self.agent.iter().filter_map(|binding| binding.key_env.as_ref());
        agent.chain(self.decision.iter().filter_map(|binding| binding.key_env.as_ref()))
    }
}

impl AgentBinding {
    /// Where the model is reached: the URL's host and port, or those of the protocol's own endpoint.
    #[must_use]
    pub fn target(&self) -> Target {
        let own = || Target { host: self.protocol.host(), port: Port::HTTPS };
        self.url.as_ref().map_or_else(own, |url| url.target().clone())
    }

    /// The entry that its endpoint has in a sandbox's list (note N13).
    #[must_use]
    pub fn plumbing(&self) -> Plumbing {
        Plumbing { what: "inference".to_owned(), target: self.target(), programs: Some(Vec::new()) }
    }
}

impl AgentProtocol {
    /// The token of the document.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::ChatCompletions => "chat_completions",
            Self::Responses => "responses",
        }
    }

    /// Whose variables its clients read.
    #[must_use]
    pub fn family(self) -> Family {
        match self {
            Self::Messages => Family::Anthropic,
            Self::ChatCompletions | Self::Responses => Family::OpenAi,
        }
    }

    fn host(self) -> Host {
        let name = match self.family() {
            Family::Anthropic | Family::Vertex => "api.anthropic.com",
            Family::OpenAi => "api.openai.com",
        };
        // INVARIANT: both are names; a host that could not be read would be one that nothing reaches.
        Host::parse(name).unwrap_or(Host::Ip(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)))
    }
}

impl DecisionProtocol {
    /// The token of the document.
    #[must_use]
    pub fn token(&self) -> &'static str {
        match self {
            Self::SystemOne(_) => "system_one",
            Self::Decisions => "decisions",
        }
    }
}

impl fmt::Display for AgentProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

#[cfg(test)]
mod tests;

//! Turns `[[capabilities.secret]]` into what each credential of a run authorises, and who holds it (contract §1.9).
//! It refuses to know any value: a manifest names credentials and never holds one.

use std::collections::BTreeMap;
use std::ops::Range;

pub use policy::capability::Context;
use toml::de::DeTable;

use super::At;
use super::env::EnvName;
use super::error::{Mistake, Sink};
use super::keys::{Key, Kind, Table};
use super::relay::Relay;
use super::section::Section;
use super::value::{ValueError, check_line};

const TEXT_CHARS: usize = 200;

/// What one credential authorises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// The variable that holds it, in the operator's environment or in `[agent.env]`.
    pub name: EnvName,
    /// Whether its value enters the sandbox.
    pub context: Context,
    /// The system that it is for.
    pub system: String,
    /// What it allows there.
    pub scope: String,
}

/// What can be wrong with `[[capabilities.secret]]`, beside the rest of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// One name twice.
    #[error("two [[capabilities.secret]] have the name `{name}`")]
    Twice {
        /// The name.
        name: String,
    },
    /// The agent is given what only the broker may hold.
    #[error("`{name}` has context = \"broker\", and [agent.env] gives it to the agent")]
    InAgentEnv {
        /// The name.
        name: String,
    },
    /// The agent is relayed what only the broker may hold.
    #[error("`{name}` has context = \"broker\", and the relay to {dest} puts it into the sandbox")]
    InRelay {
        /// The name.
        name: String,
        /// Where it would stand.
        dest: String,
    },
    /// More than a line says.
    #[error("{key} has {chars} characters: it has at most {TEXT_CHARS}")]
    TooLong {
        /// The key with its table.
        key: &'static str,
        /// How many.
        chars: usize,
    },
}

/// `[capabilities]`.
pub(super) static TABLE: Table = Table {
    path: "capabilities",
    doc: "What the run discloses about its reach beyond what the rest of the manifest shows.",
    keys: &[Key::optional("secret", Kind::Tables(&SECRET), "none", SECRET.doc)],
    rules: &[],
    example: "[[capabilities.secret]]\nname = \"GITHUB_TOKEN\"\ncontext = \"agent\"\nsystem = \"github\"\nscope = \"read \
              owner/repo\"\n",
};

/// `[[capabilities.secret]]`.
pub(super) static SECRET: Table = Table {
    path: "capabilities.secret",
    doc: "What a credential authorises, written as `[[capabilities.secret]]`: its name alone does not say. A name of \
          `[agent.env]` without one is disclosed as undeclared.",
    keys: &[
        Key::required(
            "name",
            Kind::Text,
            "The variable that holds it. Its value is never in a manifest's table of secrets.",
        ),
        Key::required(
            "context",
            Kind::OneOf(&["broker", "agent"]),
            "Who holds it. `broker` never enters a sandbox and is taken out of the environment of the pack's commands; \
             `agent` may enter.",
        ),
        Key::required("system", Kind::Text, "The system that it is for, one line."),
        Key::required("scope", Kind::Text, "What it allows there, one line, for the person who reviews it."),
    ],
    rules: &[],
    example: "[[capabilities.secret]]\nname = \"JIRA_API_TOKEN\"\ncontext = \"broker\"\nsystem = \"jira\"\nscope = \"read + \
              comment on PROJ\"\n",
};

impl CapabilityError {
    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Twice { .. } => "keep one of them",
            Self::InAgentEnv { .. } => {
                "remove it from [agent.env], or write context = \"agent\" to let it enter the sandbox"
            }
            Self::InRelay { .. } => {
                "relay something else, or write context = \"agent\" to let it enter the sandbox"
            }
            Self::TooLong { .. } => "say it in one line, such as \"read + comment on PROJ\"",
        };
        Some(hint.to_owned())
    }
}

/// Reads the list.
pub(super) fn decode(section: &Section<'_>, sink: &mut Sink) -> Vec<At<Secret>> {
    let mut seen: BTreeMap<String, Range<usize>> = BTreeMap::new();
    let mut secrets = Vec::new();
    for (secret, span) in section.tables("secret", &SECRET, sink) {
        let name = secret.parse("name", sink, EnvName::parse);
        if let Some(At { value, span }) = &name {
            if let Some(first) = seen.get(value.as_str()).cloned() {
                let twice = CapabilityError::Twice { name: value.to_string() };
                sink.put_related(span.clone(), twice, (first, "the first one"));
            } else {
                seen.insert(value.to_string(), span.clone());
            }
        }
        let context = secret.parse("context", sink, parse_context);
        let system = secret.parse("system", sink, |text| parse_text("[capabilities.secret].system", text));
        let scope = secret.parse("scope", sink, |text| parse_text("[capabilities.secret].scope", text));
        if let (Some(name), Some(context), Some(system), Some(scope)) = (name, context, system, scope) {
            let span = if span.is_empty() { name.span } else { span };
            let (name, context) = (name.value, context.value);
            secrets
                .push(At { value: Secret { name, context, system: system.value, scope: scope.value }, span });
        }
    }
    secrets
}

fn parse_context(word: &str) -> Result<Context, Mistake> {
    let wrong = || Mistake::NoSuchWord {
        key: "[capabilities.secret].context".to_owned(),
        word: super::value::shorten(word),
        words: "\"broker\" or \"agent\"",
    };
    Context::parse(word).ok_or_else(wrong)
}

fn parse_text(key: &'static str, text: &str) -> Result<String, Mistake> {
    check_line(text).map_err(|error: ValueError| Mistake::from((key, error)))?;
    let chars = text.chars().count();
    if chars > TEXT_CHARS {
        return Err(CapabilityError::TooLong { key, chars }.into());
    }
    Ok(text.to_owned())
}

/// Refuses what would give the agent a credential that only the broker may hold (note N5). `env` is `[agent.env]`.
pub(super) fn check(
    secrets: &[At<Secret>],
    env: Option<&DeTable<'_>>,
    relays: &[At<Relay>],
    sink: &mut Sink,
) {
    let held = secrets.iter().filter(|secret| secret.value.context == Context::Broker);
    for At { value: Secret { name, .. }, span } in held {
        let declared = || (span.clone(), "declared here");
        if let Some((key, _)) = env.and_then(|env| env.get_key_value(name.as_str())) {
            let mistake = CapabilityError::InAgentEnv { name: name.to_string() };
            sink.put_related(key.span(), mistake, declared());
        }
        for relay in relays.iter().filter(|relay| relay.value.variables().any(|used| used == name)) {
            let (name, dest) = (name.to_string(), relay.value.dest.to_string());
            sink.put_related(relay.span.clone(), CapabilityError::InRelay { name, dest }, declared());
        }
    }
}

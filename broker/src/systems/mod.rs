//! Turns what the launch document says of the operator's systems into values that can be used and not shown.
//! It refuses to know where the credentials were kept.

pub mod url;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::url::{Url, UrlError};

/// A credential. Nothing shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes a credential.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// Its value, for the one place that sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Which tracker it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrackerKind {
    /// Jira's REST API, version 2.
    Jira,
    /// GitHub issues.
    Github,
}

/// A tracker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tracker {
    /// Which.
    pub kind: TrackerKind,
    /// Where its API begins: `https://jira.example`, `https://api.github.com`.
    pub url: String,
    /// The user that the token belongs to, where the tracker wants both (Jira Cloud).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The token.
    pub token: Secret,
}

/// A chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chat {
    /// An incoming webhook of Slack's; the URL is the credential.
    pub webhook: Secret,
}

/// An image registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// Its host, with a port where it has one: the only one that gets the credential.
    pub host: String,
    /// The user, with a password or token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password or token; absent for a registry that asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// The systems of a run. What is absent is staged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Systems {
    /// Where comments go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracker: Option<Tracker>,
    /// Where messages go; the operator channel needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<Chat>,
    /// Where images go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<Registry>,
}

/// Why a system cannot be used. Reads as what follows "failed to".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use the URL of the {system}: {error}")]
pub struct ConfigError {
    /// Which.
    pub system: &'static str,
    /// What is wrong.
    pub error: UrlError,
}

impl Systems {
    /// Looks at every URL before anything is sent.
    ///
    /// # Errors
    /// One that cannot be used.
    pub fn check(&self) -> Result<(), ConfigError> {
        let check = |system, text: &str| {
            Url::of_system(text).map(drop).map_err(|error| ConfigError { system, error })
        };
        self.tracker.as_ref().map_or(Ok(()), |tracker| check("tracker", &tracker.url))?;
        self.chat.as_ref().map_or(Ok(()), |chat| check("chat", chat.webhook.reveal()))?;
        let registry = self.registry.as_ref().map(|registry| format!("https://{}", registry.host));
        registry.map_or(Ok(()), |url| check("registry", &url))
    }

    /// Every value that nothing may show, with the forms in which it travels.
    pub fn secrets(&self) -> Vec<String> {
        use base64::Engine as _;
        let encode = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
        let mut all = Vec::new();
        let mut pair = |user: Option<&String>, secret: &Secret| {
            all.push(secret.reveal().to_owned());
            all.extend(user.map(|user| encode(format!("{user}:{}", secret.reveal()))));
        };
        if let Some(tracker) = &self.tracker {
            pair(tracker.user.as_ref(), &tracker.token);
        }
        if let Some(Registry { user, password: Some(password), .. }) = &self.registry {
            pair(user.as_ref(), password);
        }
        if let Some(chat) = &self.chat {
            pair(None, &chat.webhook);
            all.extend(
                Url::parse(chat.webhook.reveal()).map(|url| url.path).ok().filter(|path| path.len() > 1),
            );
        }
        all
    }
}

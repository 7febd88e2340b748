//! Turns a message into a call of a Slack incoming webhook.
//! It refuses to write without a permit, and to let a message call people by markup.

use hyper::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::call::Failed;
use super::fault::{Fault, Trouble};
use super::fetch::{Ask, Credential, Fetcher};
use crate::systems::Chat;
use crate::systems::url::Url;
use crate::writes::Permit;

/// The most bytes of an answer, which is a word.
const ANSWER_MAX: usize = 4096;

impl Chat {
    /// Sends a message to the webhook's channel.
    pub(super) async fn message(
        &self,
        fetch: &Fetcher,
        permit: &Permit,
        text: &str,
    ) -> Result<Value, Failed> {
        let unusable =
            || Trouble::nothing(Fault::Malformed("the webhook".to_owned(), "its URL cannot be used"));
        let url = Url::of_system(self.webhook.reveal()).map_err(|_| unusable())?;
        let body = serde_json::to_vec(&json!({ "text": escaped(text) })).map_err(|_| unusable())?;
        let body = Some(("application/json", Bytes::from(body)));
        let credential = Credential::None;
        let ask = Ask { method: Method::POST, url: &url, credential, accept: "*/*", body, most: ANSWER_MAX };
        fetch.ask(ask).await?.ok(&url.authority())?;
        Ok(json!({ "written": true, "target": permit.target() }))
    }
}

/// The three characters that begin markup, as Slack wants them: so no text can mention a person or a channel.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_calls_nobody() {
        assert_eq!(super::escaped("<!channel> & <@U1>"), "&lt;!channel&gt; &amp; &lt;@U1&gt;");
    }
}

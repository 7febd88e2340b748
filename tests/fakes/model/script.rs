//! Turns a script, a JSON file, into the reply to each request of an agent's tool.
//! It refuses to know the protocol that the reply is spoken in.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// What is answered, lane by lane.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// The first lane whose `when` stands in a request answers it.
    pub(crate) lanes: Vec<Lane>,
}

/// The replies of one conversation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lane {
    /// A text that a request must hold; an empty one stands in each.
    #[serde(default)]
    pub(crate) when: String,
    /// One for each request, in order.
    #[serde(default)]
    pub(crate) replies: Vec<Reply>,
    /// What is answered when `replies` are used up; without it they begin anew.
    pub(crate) then: Option<Reply>,
}

/// One reply: what the model says, and what goes wrong with it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Reply {
    /// What it thinks.
    pub(crate) thinking: String,
    /// What it says.
    pub(crate) text: String,
    /// So often is `text` said.
    pub(crate) times: Option<usize>,
    /// A shell command that it wants run, by whatever tool of the request runs one.
    pub(crate) run: Option<String>,
    /// Any other tool that it wants used.
    pub(crate) tool: Option<Tool>,
    /// Tokens that it says it read and wrote.
    pub(crate) usage: Usage,
    /// Another status than 200: an error is answered.
    pub(crate) status: Option<u16>,
    /// The error's message.
    pub(crate) error: String,
    /// The header of that name, in seconds.
    pub(crate) retry_after: Option<u32>,
    /// Other headers.
    pub(crate) headers: BTreeMap<String, String>,
    /// Nothing is answered before this many milliseconds.
    pub(crate) delay_ms: u64,
    /// The connection is closed after so many bytes of the body.
    pub(crate) cut_after: Option<usize>,
    /// The body is never ended: the connection stays open after it, or after `cut_after` bytes of it.
    pub(crate) hang: bool,
    /// Stands in the place of the body.
    pub(crate) raw: Option<String>,
}

/// A use of a tool by name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) input: Value,
}

/// Token counts.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage { input: 1000, output: 100 }
    }
}

/// Where each lane stands.
#[derive(Debug)]
pub(crate) struct Player {
    lanes: Vec<(Lane, usize)>,
}

impl Player {
    /// A script before its first request.
    pub(crate) fn new(script: Script) -> Player {
        Player { lanes: script.lanes.into_iter().map(|lane| (lane, 0)).collect() }
    }

    /// The reply to a request with this body.
    pub(crate) fn next(&mut self, body: &str) -> Reply {
        let Some((lane, at)) = self.lanes.iter_mut().find(|(lane, _)| body.contains(&lane.when)) else {
            return Reply {
                status: Some(404),
                error: "the script has no lane for it".to_owned(),
                ..Reply::default()
            };
        };
        let here = *at;
        *at += 1;
        match (lane.replies.get(here), &lane.then) {
            (Some(reply), _) => reply.clone(),
            (None, Some(then)) => then.clone(),
            (None, None) => match lane.replies.len() {
                0 => Reply::default(),
                count => lane.replies[here % count].clone(),
            },
        }
    }
}

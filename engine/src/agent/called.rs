//! Turns a harness, its program and its model into what a backend starts and how it reads what comes of it (contract §6).
//! It refuses to know which backend that is.

use std::path::PathBuf;
use std::sync::Arc;

use super::harness::{Ask, Call, Conversation, Harness, Home, McpServer, Stream};

/// An agent's tool, found and told its model.
#[derive(Debug, Clone)]
pub struct Called {
    /// How it is called and read.
    pub harness: Arc<dyn Harness>,
    /// The program that is run; without one that of the call.
    pub program: Option<PathBuf>,
    /// The model's name.
    pub model: String,
    /// How much the model is to think, for harnesses that have a flag for it.
    pub effort: Option<&'static str>,
    /// Where the model is, for harnesses that read no variable for it.
    pub endpoint: Option<String>,
    /// The server of tools that turns are offered.
    pub mcp: Option<McpServer>,
    /// Values that no event may show.
    pub secrets: Vec<String>,
}

impl Called {
    /// The call of one turn and the reader of its output.
    #[must_use]
    pub fn turn(&self, conversation: Option<Conversation<'_>>, cost_left: Option<f64>) -> (Call, Stream) {
        let Called { harness, program, model, effort, endpoint, mcp, secrets } = self;
        let endpoint = endpoint.as_deref();
        let ask = Ask { model, effort: *effort, endpoint, conversation, cost_left, mcp: mcp.as_ref() };
        let mut call = harness.call(&ask);
        if let Some(program) = program {
            call.program = program.display().to_string();
        }
        let token = mcp.iter().map(|server| server.token.clone());
        let secrets = secrets.iter().cloned().chain(token).collect();
        (call, Stream::new(harness.decoder(&ask), secrets))
    }

    /// Where the tool keeps what it remembers.
    #[must_use]
    pub fn home(&self) -> Option<Home> {
        self.harness.home()
    }
}

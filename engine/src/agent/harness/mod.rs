//! Turns a turn into the call of an agent's tool, and the stream that the tool writes into events and a verdict (contract §6).
//! It refuses to know where the tool runs: on this host and in a sandbox it is called and read alike.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::usage::Usage;
use crate::manifest::Harness as Name;

mod claude;
mod codex;
mod command;
mod lines;
mod stream;
mod teller;
mod withhold;

pub use claude::Claude;
pub use codex::Codex;
pub use command::Shell;
pub use lines::{LINE_MAX, Line, Lines};
pub use stream::{End, Stream};
pub use teller::{Budget, TEXT_MAX, TURN_MAX, Teller};
pub use withhold::Secrets;

/// An agent's tool: how it is called, and how what it writes is read.
///
/// Nothing of it runs anything: a backend starts the call and feeds the decoder.
pub trait Harness: fmt::Debug + Send + Sync {
    /// What the manifest calls it.
    fn name(&self) -> Name;

    /// What is run. Arguments hold no secret: other users of a machine can read them.
    fn call(&self, ask: &Ask<'_>) -> Call;

    /// Reads the standard output of one turn; without one it is told as it is, and the exit code is the verdict.
    fn decoder(&self, ask: &Ask<'_>) -> Option<Box<dyn Decoder>>;

    /// The directory of the tool's own configuration under its home in a sandbox, and the variable that names it. A
    /// tool without one keeps nothing between turns.
    fn home(&self) -> Option<Home> {
        None
    }
}

/// Where a tool keeps its configuration and its transcripts, and how it tells one from another.
#[derive(Debug, Clone, Copy)]
pub struct Home {
    /// Its name under the home.
    pub directory: &'static str,
    /// The variable that tells the tool.
    pub variable: &'static str,
    /// The directory of transcripts in it.
    pub transcripts: &'static str,
    /// An empty file that stands in it before the tool starts, where the tool does not make its directory itself.
    pub seed: Option<&'static str>,
    /// The name of a transcript, with a shell's wildcards.
    pub pattern: &'static str,
    /// The conversation whose transcript a path in that directory is, if it is one's.
    pub conversation_of: fn(&Path) -> Option<String>,
    /// Whether a text is the transcript of a conversation, torn or not.
    pub belongs: fn(&str, &[u8]) -> bool,
}

/// What a turn asks of its harness.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ask<'a> {
    /// The model's name.
    pub model: &'a str,
    /// How much it is to think.
    pub effort: Option<&'a str>,
    /// Where the model is, without a path of the protocol's own; without it the provider's own endpoint.
    pub endpoint: Option<&'a str>,
    /// The conversation that the turn belongs to, as the harness names it, and the transcript that it goes on from.
    pub conversation: Option<Conversation<'a>>,
    /// How many US dollars it may use.
    pub cost_left: Option<f64>,
    /// The server of tools that it is offered.
    pub mcp: Option<&'a McpServer>,
}

/// A durable conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversation<'a> {
    /// It begins; a harness that takes a name is given this one.
    Start(&'a str),
    /// It goes on: its name, and what was said.
    Resume(&'a str, &'a [u8]),
}

/// A server of tools, reached over HTTP (contract §6).
#[derive(Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Its URL, as the turn sees it.
    pub url: String,
    /// The bearer's token of the turn, which is told by [`TOKEN_VARIABLE`] only.
    pub token: String,
}

/// The variable that holds the token of [`McpServer`].
pub const TOKEN_VARIABLE: &str = "CRUCIBLE_MCP_TOKEN";
/// The name under which a harness knows the server.
pub const SERVER: &str = "crucible";

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("url", &self.url).finish_non_exhaustive()
    }
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Call {
    /// The name of the program on `PATH`; a path is taken as it is.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that are set whatever else is.
    pub env: Vec<(String, String)>,
}

/// Reads one turn.
pub trait Decoder: Send {
    /// Takes a line of standard output.
    fn line(&mut self, line: Line<'_>, teller: &mut Teller<'_>);

    /// Whether the turn is done, as far as the tool is concerned: it may still hang.
    fn is_done(&self) -> bool {
        false
    }

    /// Whether the tool only waits for what will not come.
    fn is_hopeless(&self) -> bool {
        false
    }

    /// What the turn came to; `exit` is none where the engine ended the process after the turn was done.
    fn verdict(&self, exit: Option<i32>) -> Verdict;
}

/// What a turn came to, as its harness tells it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    /// How it failed.
    pub failure: Option<Failure>,
    /// When its model takes requests again, where it failed of that and the tool tells.
    pub reset: Option<Reset>,
    /// What it used.
    pub usage: Usage,
    /// The name of its conversation, where the harness gave it one.
    pub conversation: Option<String>,
}

/// When a model's provider takes requests again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// When so much time has passed.
    After(Duration),
    /// At this time, in seconds since 1970.
    At(i64),
}

impl Reset {
    /// How long that is from a time, in seconds since 1970; nothing where it has been.
    #[must_use]
    pub fn from(self, now: i64) -> Duration {
        match self {
            Reset::After(wait) => wait,
            Reset::At(then) => Duration::from_secs(u64::try_from(then.saturating_sub(now)).unwrap_or(0)),
        }
    }
}

/// How a turn failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// As what follows "the agent".
    pub how: String,
    /// Whether the model's provider failed, and not the agent.
    pub provider: bool,
}

impl Failure {
    fn agent(how: impl Into<String>) -> Failure {
        Failure { how: how.into(), provider: false }
    }

    fn provider(how: impl Into<String>) -> Failure {
        Failure { how: how.into(), provider: true }
    }
}

/// The directory in a sandbox that a tool's own configuration stands in.
#[must_use]
pub fn home_in_sandbox(home: &Home) -> std::path::PathBuf {
    Path::new("/sandbox/home").join(home.directory)
}

/// The objects of a transcript's lines. A last line may be torn: the tools themselves pass over it.
fn objects(transcript: &[u8]) -> Option<Vec<serde_json::Value>> {
    let mut lines: Vec<&[u8]> = transcript.split(|byte| *byte == b'\n').collect();
    let torn = lines.pop().unwrap_or_default();
    let whole = lines.into_iter().filter(|line| !line.trim_ascii().is_empty());
    let mut objects: Vec<serde_json::Value> =
        whole.map(|line| serde_json::from_slice(line).ok()).collect::<Option<_>>()?;
    objects.extend(serde_json::from_slice::<serde_json::Value>(torn).ok());
    Some(objects)
}

/// Whether a text is a UUID as both tools write it: lower case, in five groups.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let hex = |group: &&str| group.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(hex)
}

/// The longest reason that a failure repeats of a tool's own words, in characters.
const REASON_MAX: usize = 300;

/// One line of what a tool said.
fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(REASON_MAX).collect();
    line.trim().to_owned()
}

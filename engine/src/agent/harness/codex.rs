//! Turns a turn into a call of Codex, and its stream of JSON lines into events and a verdict.
//! It refuses to know which version runs: what is not known of a line is passed over.

use std::path::Path;

use serde_json::Value;

use super::{
    Ask, Call, Conversation, Decoder, Failure, Harness, Home, Line, Name, SERVER, TOKEN_VARIABLE, Teller,
    Usage, Verdict, is_uuid, objects, one_line,
};
use crate::log::AgentEvent;

/// Codex, called as `codex exec`.
#[derive(Debug, Clone, Copy)]
pub struct Codex;

/// The endpoint of the provider that its own models are at.
const ENDPOINT: &str = "https://api.openai.com/v1";
/// The variable that it finds its key in.
const KEY: &str = "OPENAI_API_KEY";
/// The length of a thread's name.
const UUID: usize = 36;
/// How often it asks again for an answer, and for a stream that broke.
const RETRIES: u32 = 3;
/// So many errors in a row, with nothing between them, are no turn any more. Its retries are fewer; while nothing answers
/// at all it does not count them, and would go on for ever.
const ERRORS_MAX: u32 = 6;

impl Harness for Codex {
    fn name(&self) -> Name {
        Name::Codex
    }

    fn call(&self, ask: &Ask<'_>) -> Call {
        let mut args = vec!["exec".to_owned()];
        if matches!(ask.conversation, Some(Conversation::Resume(..))) {
            args.push("resume".to_owned());
        }
        let flags = [
            "--json",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "-m",
            ask.model,
        ];
        args.extend(flags.map(str::to_owned));
        let endpoint = ask.endpoint.unwrap_or(ENDPOINT).trim_end_matches('/');
        let mut settings = vec![
            ("model_provider".to_owned(), quoted(SERVER)),
            (format!("model_providers.{SERVER}.name"), quoted(SERVER)),
            (format!("model_providers.{SERVER}.base_url"), quoted(endpoint)),
            (format!("model_providers.{SERVER}.wire_api"), quoted("responses")),
            (format!("model_providers.{SERVER}.env_key"), quoted(KEY)),
            (format!("model_providers.{SERVER}.request_max_retries"), RETRIES.to_string()),
            (format!("model_providers.{SERVER}.stream_max_retries"), RETRIES.to_string()),
            ("check_for_update_on_startup".to_owned(), "false".to_owned()),
            ("analytics.enabled".to_owned(), "false".to_owned()),
            ("feedback.enabled".to_owned(), "false".to_owned()),
            ("history.persistence".to_owned(), quoted("none")),
            // They are fetched at every start, from where a turn has nothing to do.
            ("features.plugins".to_owned(), "false".to_owned()),
            ("features.remote_plugin".to_owned(), "false".to_owned()),
            ("features.apps".to_owned(), "false".to_owned()),
        ];
        if let Some(server) = ask.mcp {
            settings.push((format!("mcp_servers.{SERVER}.url"), quoted(&server.url)));
            settings.push((format!("mcp_servers.{SERVER}.bearer_token_env_var"), quoted(TOKEN_VARIABLE)));
        }
        args.extend(
            settings.into_iter().flat_map(|(key, value)| ["-c".to_owned(), format!("{key}={value}")]),
        );
        if let Some(Conversation::Resume(id, _)) = ask.conversation {
            args.push(id.to_owned());
        }
        args.push("-".to_owned());
        let env = ask.mcp.map(|server| (TOKEN_VARIABLE.to_owned(), server.token.clone()));
        Call { program: "codex".to_owned(), args, env: env.into_iter().collect() }
    }

    fn decoder(&self, ask: &Ask<'_>) -> Option<Box<dyn Decoder>> {
        let before = match ask.conversation {
            Some(Conversation::Resume(_, transcript)) => counted(transcript),
            _ => Counted::default(),
        };
        Some(Box::new(Reader { before, ..Reader::default() }))
    }

    fn home(&self) -> Option<Home> {
        Some(Home {
            directory: ".codex",
            variable: "CODEX_HOME",
            transcripts: "sessions",
            seed: Some("config.toml"),
            pattern: "rollout-*.jsonl",
            conversation_of,
            belongs,
        })
    }
}

/// `<year>/<month>/<day>/rollout-<time>-<thread>.jsonl`.
fn conversation_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.strip_prefix("rollout-")?;
    let id = name.get(name.len().checked_sub(UUID)?..)?;
    (path.components().count() == 4 && is_uuid(id)).then(|| id.to_owned())
}

/// Its first line names the thread.
fn belongs(id: &str, transcript: &[u8]) -> bool {
    let objects = objects(transcript).unwrap_or_default();
    let named = |first: &Value| {
        let payload = &first["payload"];
        first["type"] == "session_meta" && payload["id"] == id
    };
    objects.first().is_some_and(named)
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    // A JSON string of these texts is a TOML string too.
    Value::from(text).to_string()
}

/// Tokens of a whole conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counted {
    input: u64,
    output: u64,
}

/// The tokens that a conversation had used by the end of its transcript.
fn counted(transcript: &[u8]) -> Counted {
    let total = |line: &[u8]| {
        let line = &serde_json::from_slice::<Value>(line).ok()?;
        let payload = &line["payload"];
        let info = &payload["info"];
        (payload["type"] == "token_count").then(|| Counted::of(&info["total_token_usage"]))
    };
    transcript.rsplit(|byte| *byte == b'\n').find_map(total).unwrap_or_default()
}

impl Counted {
    fn of(usage: &Value) -> Counted {
        let tokens = |name: &str| usage[name].as_u64().unwrap_or(0);
        Counted { input: tokens("input_tokens"), output: tokens("output_tokens") }
    }
}

/// What was read of one turn.
#[derive(Debug, Default)]
struct Reader {
    /// What the conversation had used before: its figures go on counting.
    before: Counted,
    conversation: Option<String>,
    completed: Option<Usage>,
    failed: Option<String>,
    /// The last error, which a turn that died had no time to repeat.
    error: Option<String>,
    errors: u32,
}

impl Decoder for Reader {
    fn line(&mut self, line: Line<'_>, teller: &mut Teller<'_>) {
        if let Some(value) = teller.object(line) {
            self.object(&value, teller);
        }
    }

    fn is_done(&self) -> bool {
        self.completed.is_some() || self.failed.is_some()
    }

    fn is_hopeless(&self) -> bool {
        self.errors >= ERRORS_MAX
    }

    fn verdict(&self, exit: Option<i32>) -> Verdict {
        let last = || self.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        let failure = match (&self.failed, &self.completed, exit) {
            (Some(why), _, _) => Some(Failure::provider(format!("could not use its model: {why}"))),
            (None, Some(_), Some(0) | None) => None,
            (None, Some(_), Some(code)) => Some(Failure::agent(format!("ended with exit code {code}"))),
            (None, None, _) if self.is_hopeless() => {
                Some(Failure::provider(format!("could not reach its model{}", last())))
            }
            (None, None, Some(code)) if code != 0 => {
                Some(Failure::agent(format!("ended with exit code {code} and without a result{}", last())))
            }
            (None, None, _) => Some(Failure::agent(format!("ended without a result{}", last()))),
        };
        let usage = self.completed.unwrap_or_default();
        // What it says of a reset is a time of day in the middle of a sentence, if anything.
        Verdict { failure, reset: None, usage, conversation: self.conversation.clone() }
    }
}

impl Reader {
    fn object(&mut self, value: &Value, teller: &mut Teller<'_>) {
        let kind = value["type"].as_str().unwrap_or_default();
        if kind != "error" {
            self.errors = 0;
        }
        match kind {
            "thread.started" => {
                self.conversation = value["thread_id"].as_str().map(str::to_owned);
                let (version, model) = (String::new(), String::new());
                teller.tell(AgentEvent::Init { harness: Name::Codex.token().to_owned(), version, model });
            }
            "item.started" => item(&value["item"], false, teller),
            "item.completed" => item(&value["item"], true, teller),
            "error" => {
                let said = value["message"].as_str().unwrap_or_default();
                self.error = Some(one_line(said));
                self.errors = self.errors.saturating_add(1);
                teller.tell(AgentEvent::Retry { attempt: None, wait_secs: None, text: teller.fit(said) });
            }
            "turn.failed" => {
                let error = &value["error"];
                let said = error["message"].as_str().unwrap_or_default();
                self.failed = Some(one_line(said));
                teller.tell(AgentEvent::Result { ok: false, stop: None, text: teller.fit(said) });
            }
            "turn.completed" => {
                let now = Counted::of(&value["usage"]);
                let input = now.input.saturating_sub(self.before.input);
                let output = now.output.saturating_sub(self.before.output);
                let usage = Usage::new(None, Some(input), Some(output));
                teller.tell(AgentEvent::Result { ok: true, stop: None, text: String::new() });
                let Usage { cost_usd, input_tokens, output_tokens } = usage;
                teller.tell(AgentEvent::Tokens { cost_usd, input_tokens, output_tokens });
                self.completed = Some(usage);
            }
            _ => {}
        }
    }
}

/// What the model thought, said or did.
fn item(item: &Value, done: bool, teller: &mut Teller<'_>) {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    let kind = text("type");
    let event = match (kind, done) {
        ("reasoning", true) => AgentEvent::Thinking { text: teller.fit(text("text")) },
        ("agent_message", true) => AgentEvent::Text { text: teller.fit(text("text")) },
        ("error", true) => AgentEvent::Error { text: teller.fit(text("message")) },
        ("command_execution", false) => tool(kind, "use", text("command"), teller),
        ("command_execution", true) => {
            let step = if item["exit_code"] == 0 { "result" } else { "failure" };
            tool(kind, step, text("aggregated_output"), teller)
        }
        ("mcp_tool_call" | "web_search", false) => tool(kind, "use", &item.to_string(), teller),
        ("mcp_tool_call" | "web_search" | "file_change" | "todo_list", true) => {
            let step = if item["status"] == "failed" { "failure" } else { "result" };
            tool(kind, step, &item.to_string(), teller)
        }
        _ => return,
    };
    teller.tell(event);
}

fn tool(name: &str, step: &str, text: &str, teller: &Teller<'_>) -> AgentEvent {
    AgentEvent::Tool { name: name.to_owned(), step: step.to_owned(), text: teller.fit(text) }
}

#[cfg(test)]
mod tests;

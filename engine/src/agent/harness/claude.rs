//! Turns a turn into a call of Claude Code, and its stream of JSON lines into events and a verdict.
//! It refuses to know which version runs: what is not known of a line is passed over.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    Ask, Call, Conversation, Decoder, Failure, Harness, Home, Line, Name, Reset, SERVER, TOKEN_VARIABLE,
    Teller, Usage, Verdict, is_uuid, objects, one_line,
};
use crate::log::AgentEvent;

/// Claude Code, called as `claude -p`.
#[derive(Debug, Clone, Copy)]
pub struct Claude {
    /// Whether it runs as root, which it only does where it is told that a sandbox is around it.
    pub root: bool,
}

/// What keeps it quiet and as it is.
const QUIET: [&str; 4] = [
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_AUTOUPDATER",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
];

impl Harness for Claude {
    fn name(&self) -> Name {
        Name::Claude
    }

    fn call(&self, ask: &Ask<'_>) -> Call {
        let mut args: Vec<String> = [
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--permission-mode",
            "bypassPermissions",
            "--strict-mcp-config",
            "--model",
            ask.model,
        ]
        .map(str::to_owned)
        .into();
        let mut put = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
        match ask.conversation {
            Some(Conversation::Start(id)) => put("--session-id", id.to_owned()),
            Some(Conversation::Resume(id, _)) => put("--resume", id.to_owned()),
            None => {}
        }
        if let Some(effort) = ask.effort {
            put("--effort", effort.to_owned());
        }
        if let Some(left) = ask.cost_left {
            put("--max-budget-usd", left.to_string());
        }
        let mut env: Vec<(String, String)> = QUIET.map(|name| (name.to_owned(), "1".to_owned())).into();
        if self.root {
            env.push(("IS_SANDBOX".to_owned(), "1".to_owned()));
        }
        if let Some(server) = ask.mcp {
            let bearer = format!("Bearer ${{{TOKEN_VARIABLE}}}");
            let server = json!({ "type": "http", "url": server.url, "headers": { "Authorization": bearer } });
            put("--mcp-config", json!({ "mcpServers": { SERVER: server } }).to_string());
        }
        env.extend(ask.mcp.map(|server| (TOKEN_VARIABLE.to_owned(), server.token.clone())));
        Call { program: "claude".to_owned(), args, env }
    }

    fn decoder(&self, _: &Ask<'_>) -> Option<Box<dyn Decoder>> {
        Some(Box::new(Reader::default()))
    }

    fn home(&self) -> Option<Home> {
        Some(Home {
            directory: ".claude",
            variable: "CLAUDE_CONFIG_DIR",
            transcripts: "projects",
            seed: None,
            pattern: "*-*-*-*-*.jsonl",
            conversation_of,
            belongs,
        })
    }
}

/// `<munged working directory>/<session>.jsonl`; what lies deeper is of helpers.
fn conversation_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    (path.components().count() == 2 && is_uuid(name)).then(|| name.to_owned())
}

fn belongs(id: &str, transcript: &[u8]) -> bool {
    let Some(objects) = objects(transcript) else { return false };
    let mut named = objects.iter().filter_map(|object| object["sessionId"].as_str()).peekable();
    named.peek().is_some() && named.all(|named| named == id)
}

/// What was read of one turn.
#[derive(Debug, Default)]
struct Reader {
    /// The last result; there may be more than one, and lines after it.
    result: Option<Value>,
    /// How often the model was asked again.
    retries: u64,
    /// When the model takes requests again, until it answers one.
    reset: Option<Reset>,
}

impl Decoder for Reader {
    fn line(&mut self, line: Line<'_>, teller: &mut Teller<'_>) {
        if let Some(value) = teller.object(line) {
            self.object(value, teller);
        }
    }

    fn is_done(&self) -> bool {
        self.result.is_some()
    }

    fn verdict(&self, exit: Option<i32>) -> Verdict {
        let Some(result) = &self.result else {
            let how = match exit {
                Some(0) | None => "ended without a result".to_owned(),
                Some(code) => format!("ended with exit code {code} and without a result"),
            };
            let failure = if self.retries > 0 { Failure::provider(how) } else { Failure::agent(how) };
            return Verdict { reset: self.reset, failure: Some(failure), ..Verdict::default() };
        };
        Verdict {
            failure: failure(result, exit),
            reset: self.reset,
            usage: usage(result),
            conversation: None,
        }
    }
}

/// The order is by what was observed: a result may say success and carry an error, and a stream that was cut has no reason
/// to stop.
fn failure(result: &Value, exit: Option<i32>) -> Option<Failure> {
    let subtype = result["subtype"].as_str().unwrap_or_default();
    if result["is_error"] != false {
        let said = one_line(result["result"].as_str().unwrap_or_default());
        return Some(match subtype {
            "success" => Failure::provider(format!("could not use its model: {said}")),
            "error_max_budget_usd" => Failure::agent("was stopped by its tool: the cost ceiling is reached"),
            other => Failure::agent(format!("was stopped by its tool: {}", one_line(other))),
        });
    }
    match (exit, result["stop_reason"].as_str()) {
        (Some(code), _) if code != 0 => Some(Failure::agent(format!("ended with exit code {code}"))),
        (_, None) => Some(Failure::provider("got an answer of its model that was cut off")),
        _ => None,
    }
}

/// The result's own figures, which are of the whole process: what other lines say of usage is in them.
fn usage(result: &Value) -> Usage {
    let tokens = &result["usage"];
    let read = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    let read: Vec<u64> = read.iter().filter_map(|name| tokens[*name].as_u64()).collect();
    let input = (!read.is_empty()).then(|| read.into_iter().fold(0, u64::saturating_add));
    Usage::new(result["total_cost_usd"].as_f64(), input, tokens["output_tokens"].as_u64())
}

impl Reader {
    fn object(&mut self, value: Value, teller: &mut Teller<'_>) {
        let line = &value;
        match line["type"].as_str() {
            Some("system") => self.system(line, teller),
            Some("assistant" | "user") => {
                if line["type"] == "assistant" && line["error"].is_null() {
                    self.reset = None;
                }
                let said = &line["message"];
                message(&said["content"], teller);
            }
            Some("rate_limit_event") => {
                let info = &line["rate_limit_info"];
                let at = info["resetsAt"].as_i64().filter(|_| info["status"] == "rejected");
                self.reset = at.map(Reset::At);
            }
            Some("result") => {
                let text = teller.fit(line["result"].as_str().unwrap_or_default());
                let stop = line["stop_reason"].as_str().map(|stop| teller.fit(stop));
                teller.tell(AgentEvent::Result { ok: line["is_error"] == false, stop, text });
                let Usage { cost_usd, input_tokens, output_tokens } = usage(line);
                teller.tell(AgentEvent::Tokens { cost_usd, input_tokens, output_tokens });
                self.result = Some(value);
            }
            _ => {}
        }
    }

    fn system(&mut self, value: &Value, teller: &mut Teller<'_>) {
        match value["subtype"].as_str() {
            Some("init") => {
                let version = teller.fit(value["claude_code_version"].as_str().unwrap_or_default());
                let model = teller.fit(value["model"].as_str().unwrap_or_default());
                teller.tell(AgentEvent::Init { harness: Name::Claude.token().to_owned(), version, model });
            }
            Some("api_retry") => {
                self.retries = self.retries.saturating_add(1);
                let wait = value["retry_delay_ms"].as_f64().map(|millis| millis / 1000.0);
                self.reset = value["retry_delay_ms"].as_u64().and_then(asked);
                let status =
                    value["error_status"].as_u64().map(|status| format!("{status} ")).unwrap_or_default();
                let text = format!("{status}{}", teller.fit(value["error"].as_str().unwrap_or("no answer")));
                teller.tell(AgentEvent::Retry { attempt: value["attempt"].as_u64(), wait_secs: wait, text });
            }
            _ => {}
        }
    }
}

/// A wait that the provider asked for, in milliseconds: its header tells whole seconds. A wait of the tool's own is a random
/// one, with a fraction.
fn asked(millis: u64) -> Option<Reset> {
    (millis > 0 && millis.is_multiple_of(1000)).then(|| Reset::After(Duration::from_millis(millis)))
}

/// The blocks of a message: what the model thought and said, the tools it used, and what they gave.
fn message(content: &Value, teller: &mut Teller<'_>) {
    for block in content.as_array().into_iter().flatten() {
        let text = |name: &str| block[name].as_str().unwrap_or_default();
        let event = match block["type"].as_str() {
            Some("thinking") => AgentEvent::Thinking { text: teller.fit(text("thinking")) },
            Some("text") => AgentEvent::Text { text: teller.fit(text("text")) },
            Some("tool_use") => AgentEvent::Tool {
                name: teller.fit(text("name")),
                step: "use".to_owned(),
                text: teller.fit(&block["input"].to_string()),
            },
            Some("tool_result") => AgentEvent::Tool {
                name: String::new(),
                step: if block["is_error"] == true { "failure" } else { "result" }.to_owned(),
                text: teller.fit(&plain(&block["content"])),
            },
            _ => continue,
        };
        teller.tell(event);
    }
}

/// The text of a tool's result, which is a text or a list of blocks.
fn plain(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;

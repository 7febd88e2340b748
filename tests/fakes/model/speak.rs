//! Turns a reply into the bytes of a protocol: Anthropic Messages, OpenAI Responses, OpenAI chat completions.
//! It refuses to know when they are sent, and what goes wrong with them.

use serde_json::{Value, json};

use crate::script::Reply;

/// What a request is spoken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Messages,
    Responses,
    Chat,
}

/// The body of a reply and its media type.
pub(crate) fn speak(protocol: Protocol, request: &Value, reply: &Reply, id: usize) -> (String, &'static str) {
    let streams = request["stream"] == true;
    let said = Said::new(protocol, request, reply, id);
    let body = match (protocol, streams) {
        (Protocol::Messages, true) => said.messages(),
        (Protocol::Messages, false) => said.message().to_string(),
        (Protocol::Responses, true) => said.responses(),
        (Protocol::Responses, false) => said.response("completed").to_string(),
        (Protocol::Chat, true) => said.chunks(),
        (Protocol::Chat, false) => said.completion().to_string(),
    };
    (body, if streams { "text/event-stream" } else { "application/json" })
}

/// An error as the protocol tells it.
pub(crate) fn error(protocol: Protocol, reply: &Reply, status: u16) -> String {
    let kind = match status {
        401 => "authentication_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    let error = json!({ "type": kind, "message": reply.error });
    match protocol {
        Protocol::Messages => json!({ "type": "error", "error": error }).to_string(),
        _ => json!({ "error": error }).to_string(),
    }
}

/// A reply on the way to a protocol.
struct Said<'a> {
    model: &'a Value,
    /// What the request offers.
    tools: &'a Value,
    id: String,
    thinking: &'a str,
    text: String,
    /// A tool's name and its input.
    tool: Option<(String, Value)>,
    input: u64,
    output: u64,
}

impl<'a> Said<'a> {
    fn new(protocol: Protocol, request: &'a Value, reply: &'a Reply, id: usize) -> Said<'a> {
        let tool = match (&reply.run, &reply.tool) {
            (Some(command), _) => Some(shell(protocol, request, command)),
            (None, Some(tool)) => Some((tool.name.clone(), tool.input.clone())),
            (None, None) => None,
        };
        Said {
            model: &request["model"],
            tools: &request["tools"],
            id: format!("{id:06}"),
            thinking: &reply.thinking,
            text: reply.text.repeat(reply.times.unwrap_or(1)),
            tool,
            input: reply.usage.input,
            output: reply.usage.output,
        }
    }

    fn message(&self) -> Value {
        let mut content = Vec::new();
        if !self.thinking.is_empty() {
            content.push(json!({ "type": "thinking", "thinking": self.thinking, "signature": "c2ln" }));
        }
        if !self.text.is_empty() {
            content.push(json!({ "type": "text", "text": self.text }));
        }
        if let Some((name, input)) = &self.tool {
            content.push(
                json!({ "type": "tool_use", "id": format!("toolu_{}", self.id), "name": name, "input": input }),
            );
        }
        json!({
            "id": format!("msg_{}", self.id), "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": self.stop_reason(), "stop_sequence": null,
            "usage": { "input_tokens": self.input, "output_tokens": self.output },
        })
    }

    fn stop_reason(&self) -> &'static str {
        if self.tool.is_some() { "tool_use" } else { "end_turn" }
    }

    fn messages(&self) -> String {
        let mut whole = self.message();
        let content = whole["content"].take();
        whole["content"] = json!([]);
        whole["stop_reason"] = Value::Null;
        whole["usage"]["output_tokens"] = json!(1);
        let mut events = vec![json!({ "type": "message_start", "message": whole })];
        for (index, block) in content.as_array().into_iter().flatten().enumerate() {
            let (start, delta) = match block["type"].as_str() {
                Some("thinking") => (
                    json!({ "type": "thinking", "thinking": "", "signature": "" }),
                    json!({ "type": "thinking_delta", "thinking": block["thinking"] }),
                ),
                Some("tool_use") => (
                    json!({ "type": "tool_use", "id": block["id"], "name": block["name"], "input": {} }),
                    json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() }),
                ),
                _ => (
                    json!({ "type": "text", "text": "" }),
                    json!({ "type": "text_delta", "text": block["text"] }),
                ),
            };
            events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
            events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
            if block["type"] == "thinking" {
                let signature = json!({ "type": "signature_delta", "signature": block["signature"] });
                events.push(json!({ "type": "content_block_delta", "index": index, "delta": signature }));
            }
            events.push(json!({ "type": "content_block_stop", "index": index }));
        }
        events.push(json!({
            "type": "message_delta", "delta": { "stop_reason": self.stop_reason(), "stop_sequence": null },
            "usage": { "output_tokens": self.output },
        }));
        events.push(json!({ "type": "message_stop" }));
        named(&events)
    }

    fn items(&self) -> Vec<Value> {
        let mut items = Vec::new();
        if !self.thinking.is_empty() {
            let summary = json!([{ "type": "summary_text", "text": self.thinking }]);
            items.push(json!({ "type": "reasoning", "id": format!("rs_{}", self.id), "summary": summary }));
        }
        if !self.text.is_empty() {
            let content = json!([{ "type": "output_text", "text": self.text, "annotations": [] }]);
            items.push(json!({
                "type": "message", "id": format!("msg_{}", self.id), "status": "completed", "role": "assistant", "content": content,
            }));
        }
        if let Some((name, input)) = &self.tool {
            let mut call = json!({
                "type": "function_call", "id": format!("fc_{}", self.id), "call_id": format!("call_{}", self.id),
                "name": name, "arguments": input.to_string(), "status": "completed",
            });
            if let Some((space, name)) = spaced(self.tools, name) {
                call["namespace"] = json!(space);
                call["name"] = json!(name);
            }
            items.push(call);
        }
        items
    }

    fn response(&self, status: &str) -> Value {
        let done = status == "completed";
        let usage = json!({
            "input_tokens": self.input, "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": self.output, "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": self.input + self.output,
        });
        json!({
            "id": format!("resp_{}", self.id), "object": "response", "status": status, "model": self.model,
            "output": if done { self.items() } else { Vec::new() }, "usage": if done { usage } else { Value::Null },
        })
    }

    fn responses(&self) -> String {
        let mut events =
            vec![json!({ "type": "response.created", "response": self.response("in_progress") })];
        for (index, item) in self.items().into_iter().enumerate() {
            events.push(json!({ "type": "response.output_item.added", "output_index": index, "item": item }));
            if item["type"] == "message" {
                events.push(json!({
                    "type": "response.output_text.delta", "item_id": item["id"], "output_index": index, "content_index": 0,
                    "delta": self.text,
                }));
            }
            events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
        }
        events.push(json!({ "type": "response.completed", "response": self.response("completed") }));
        named(&events)
    }

    fn called(&self) -> Option<Value> {
        let (name, input) = self.tool.as_ref()?;
        Some(json!([{
            "index": 0, "id": format!("call_{}", self.id), "type": "function",
            "function": { "name": name, "arguments": input.to_string() },
        }]))
    }

    fn finish_reason(&self) -> &'static str {
        if self.tool.is_some() { "tool_calls" } else { "stop" }
    }

    fn completion(&self) -> Value {
        json!({
            "id": format!("chatcmpl-{}", self.id), "object": "chat.completion", "created": 0, "model": self.model,
            "choices": [{
                "index": 0, "finish_reason": self.finish_reason(),
                "message": { "role": "assistant", "content": self.text, "tool_calls": self.called() },
            }],
            "usage": self.counted(),
        })
    }

    fn counted(&self) -> Value {
        json!({
            "prompt_tokens": self.input, "completion_tokens": self.output, "total_tokens": self.input + self.output,
        })
    }

    fn chunks(&self) -> String {
        let chunk = |delta: Value, finish: Value, usage: Value| {
            let choices = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
            let id = format!("chatcmpl-{}", self.id);
            format!(
                "data: {}\n\n",
                json!({
                    "id": id, "object": "chat.completion.chunk", "created": 0, "model": self.model, "choices": choices,
                    "usage": usage,
                })
            )
        };
        let mut body = chunk(json!({ "role": "assistant", "content": self.text }), Value::Null, Value::Null);
        if let Some(calls) = self.called() {
            body.push_str(&chunk(json!({ "tool_calls": calls }), Value::Null, Value::Null));
        }
        body.push_str(&chunk(json!({}), json!(self.finish_reason()), self.counted()));
        body.push_str("data: [DONE]\n\n");
        body
    }
}

/// Server-sent events that carry their type as their name too.
fn named(events: &[Value]) -> String {
    let event =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(event).collect()
}

/// The namespace of a request's tools that holds the tool `<namespace>__<name>`, and the name in it.
fn spaced<'t>(tools: &'t Value, whole: &'t str) -> Option<(&'t str, &'t str)> {
    tools.as_array()?.iter().filter(|tool| tool["type"] == "namespace").find_map(|tool| {
        let space = tool["name"].as_str()?;
        let name = whole.strip_prefix(space)?.strip_prefix("__")?;
        let held = tool["tools"].as_array()?.iter().any(|tool| tool["name"] == name);
        held.then_some((space, name))
    })
}

/// How the tools of a request run a shell command.
fn shell(protocol: Protocol, request: &Value, command: &str) -> (String, Value) {
    let names: Vec<&str> = request["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str().or(tool["function"]["name"].as_str()))
        .collect();
    let has = |name: &str| names.contains(&name);
    match protocol {
        Protocol::Messages => ("Bash".to_owned(), json!({ "command": command, "description": "as told" })),
        _ if has("exec_command") => ("exec_command".to_owned(), json!({ "cmd": command })),
        _ if has("shell_command") => ("shell_command".to_owned(), json!({ "command": command })),
        _ => ("shell".to_owned(), json!({ "command": ["sh", "-c", command] })),
    }
}

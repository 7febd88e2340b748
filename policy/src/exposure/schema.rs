//! Turns the shape of an exposure into a JSON Schema (draft 2020-12) and its page.
//! It refuses to say anything of one run.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::access::{Access, Enforcement, Protocol};
use crate::outputs::Kind;

/// The JSON Schema of what `crucible plan exposure` prints.
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "crucible plan exposure",
        "description": "What a run may write to the outside, and what its agent may reach.",
        "type": "object",
        "properties": {
            "version": { "const": super::VERSION, "description": "Of this shape." },
            "outputs": {
                "type": "array",
                "description": "The bound of each kind of write, one for each kind, in this order.",
                "minItems": Kind::ALL.len(),
                "maxItems": Kind::ALL.len(),
                "items": output(),
            },
            "capabilities": {
                "type": "array",
                "description": "What reaches the agent and what it reaches.",
                "items": { "oneOf": capabilities() },
            },
            "enforced": {
                "type": "boolean",
                "description": "Whether anything stands between the agent and the network.",
            },
        },
        "required": ["version", "outputs", "capabilities", "enforced"],
        "additionalProperties": false,
    })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn words(words: &[&str], description: &str) -> Value {
    json!({ "type": "string", "enum": words, "description": description })
}

fn object(description: &str, fields: &[(&str, Value)], optional: &[&str]) -> Value {
    let required: Vec<&str> =
        fields.iter().map(|(name, _)| *name).filter(|name| !optional.contains(name)).collect();
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn output() -> Value {
    let open = object(
        "Any place in a scope.",
        &[
            ("scope", text("What the place must match; `*` stands for any characters.")),
            (
                "param",
                json!({ "type": ["string", "null"], "description": "The parameter whose value it must be." }),
            ),
        ],
        &["param"],
    );
    let fixed = object("One place, and what lies below it.", &[("fixed", text("Its address."))], &[]);
    let open = object("An open target.", &[("open", open)], &[]);
    let target = json!({
        "description": "Where they go. `null` for a kind that is addressed refuses every write of it.",
        "oneOf": [{ "type": "null" }, fixed, open],
    });
    let count = json!({ "type": "integer", "minimum": 0, "description": "How many writes of a run." });
    object(
        "The bound of one kind.",
        &[
            ("kind", words(&Kind::TOKENS, "The kind of write.")),
            ("count", count),
            ("target", target),
            ("source", words(&["manifest", "engine-default"], "Where the bound comes from.")),
        ],
        &[],
    )
}

fn capability(kind: &str, description: &str, fields: &[(&str, Value)], optional: &[&str]) -> Value {
    let kind = ("kind", json!({ "const": kind, "description": description }));
    let fields: Vec<(&str, Value)> = std::iter::once(kind).chain(fields.iter().cloned()).collect();
    object(description, &fields, optional)
}

fn capabilities() -> Vec<Value> {
    let path = |description: &str| ("path", text(description));
    let protocol: Vec<Value> = Protocol::WORDS.iter().map(|word| json!(word)).chain([Value::Null]).collect();
    let port = json!({ "type": "integer", "minimum": 1, "maximum": 65535, "description": "The port." });
    let sources = json!({
        "type": "array",
        "items": { "type": "string" },
        "description": "What it is made of: `env:NAME`, `file:PATH`, `file64:PATH`, `cmd:COMMAND`. None is the manifest's own text.",
    });
    let variables = json!({
        "type": "array",
        "items": { "type": "string" },
        "description": "The names of the variables that the agent is given for it; no value is told.",
    });
    vec![
        capability(
            "egress",
            "An entry of the resolved list of what the sandbox reaches.",
            &[
                ("host", text("A name, a wildcard or an address.")),
                ("port", port),
                ("access", words(Access::WORDS, "What may be done there.")),
                ("protocol", json!({ "enum": protocol, "description": "What is spoken there." })),
                ("enforcement", words(Enforcement::WORDS, "What happens to what the access does not cover.")),
                ("source", words(&["builtin", "manifest", "engine"], "Who put it on the list.")),
                (
                    "named",
                    json!({ "type": "boolean", "description": "Whether the manifest names a built-in host as well." }),
                ),
                ("unreachable", text("Why nothing comes through it in this build.")),
            ],
            &["named", "unreachable"],
        ),
        capability(
            "binary",
            "A program that may open a connection, by itself or by what it starts.",
            &[path("In the sandbox."), ("source", words(&["builtin", "manifest"], "Who named it."))],
            &[],
        ),
        capability(
            "host-path",
            "A path of the host that the sandbox shows, to read and to execute.",
            &[path("Absolute.")],
            &[],
        ),
        capability(
            "inference",
            "The model that `CRUCIBLE_INFERENCE` binds the agent to.",
            &[
                ("harness", text("What runs the agent.")),
                ("model", text("The model.")),
                ("protocol", text("What is spoken.")),
                ("endpoint", text("Host and port.")),
                ("variables", variables),
                ("key_env", text("The variable of the operator's that the key is taken from.")),
            ],
            &["key_env"],
        ),
        capability(
            "credential",
            "A credential, by name.",
            &[
                ("name", text("The variable that holds it.")),
                ("context", words(&["agent", "broker"], "Who holds it: `broker` never enters a sandbox.")),
                ("system", text("The system that it is for, or `undeclared`.")),
                ("scope", text("What it allows there, or `undeclared`.")),
            ],
            &[],
        ),
        capability(
            "relay",
            "A file that is put into the sandbox.",
            &[path("In the sandbox."), ("sources", sources)],
            &[],
        ),
        capability("broker-bin", "A program in the broker's place.", &[("bin", text("Its path."))], &[]),
        capability(
            "external-commands",
            "Whether the pack runs commands on the host, outside of any sandbox.",
            &[("present", json!({ "type": "boolean", "description": "Whether it does." }))],
            &[],
        ),
    ]
}

/// The page `docs/src/exposure-format.md`.
pub fn page() -> String {
    let schema = schema();
    let mut page = String::from(
        "# The exposure document\n\nMade from the code; `UPDATE_GOLDEN=1` with the tests writes it anew.\n\n`crucible plan exposure` \
         prints one JSON object, `{version, outputs, capabilities, enforced}`, in a stable order. What the lines mean to a \
         reviewer is on [Exposure](exposure.md).\n\n",
    );
    section(&mut page, "outputs", &output());
    for one in capabilities() {
        let kind = one.pointer("/properties/kind/const").and_then(Value::as_str).unwrap_or_default();
        section(&mut page, kind, &one);
    }
    let _ = writeln!(
        page,
        "## Schema\n\n`crucible plan exposure --schema` prints it.\n\n```json\n{schema:#}\n```"
    );
    page
}

fn section(page: &mut String, title: &str, schema: &Value) {
    let text =
        |value: &Value| value.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    let _ = writeln!(page, "## `{title}`\n\n{}\n\n| field | meaning |\n| --- | --- |", text(schema));
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, field) in
        fields.into_iter().flatten().filter(|(name, _)| *name != "kind" || title == "outputs")
    {
        let _ = writeln!(page, "| `{name}` | {} |", text(field));
    }
    page.push('\n');
}

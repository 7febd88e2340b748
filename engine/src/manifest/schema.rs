//! Turns the key tables into a JSON Schema (draft 2020-12) for editors and other programs.
//! It refuses to know how a manifest is decoded: what the tables say is all it says.

use serde_json::{Map, Value, json};

use super::env::NAME_PATTERN;
use super::image::CAPABILITY_PATTERN;
use super::inject;
use super::keys::{Key, Kind, Presence, ROOT, Rule, Table};
use super::number;

/// The JSON Schema of a manifest read as JSON. Keys that this build does not have are not in it.
pub fn schema() -> Value {
    let mut schema = table(&ROOT);
    if let Value::Object(fields) = &mut schema {
        fields.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        fields.insert("title".into(), json!("crucible.toml"));
    }
    schema
}

fn table(table: &Table) -> Value {
    let built = || table.keys.iter().filter(|key| key.is_built());
    let properties: Map<String, Value> = built().map(|entry| (entry.name.to_owned(), key(entry))).collect();
    let required: Vec<&str> = built().filter(|key| key.is_required()).map(|key| key.name).collect();
    let mut schema = json!({
        "type": "object",
        "description": table.doc,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let rules: Vec<Value> = table.rules.iter().map(rule).collect();
    if let (Value::Object(fields), false) = (&mut schema, rules.is_empty()) {
        fields.insert("allOf".into(), Value::Array(rules));
    }
    schema
}

fn rule(rule: &Rule) -> Value {
    match *rule {
        Rule::OneOf(names) => {
            let each: Vec<Value> = names.iter().map(|name| json!({ "required": [name] })).collect();
            json!({ "oneOf": each })
        }
        Rule::NotBoth(a, b) => json!({ "not": { "required": [a, b] } }),
        Rule::Pair(a, b) => json!({ "dependentRequired": { a: [b], b: [a] } }),
        Rule::OnlyWith(key, word, other) => {
            json!({ "if": { "required": [other] }, "then": where_it_is(key, word) })
        }
        Rule::NotWith(key, word, other) => {
            json!({ "if": where_it_is(key, word), "then": { "not": { "required": [other] } } })
        }
        Rule::NeededWith(key, word, other) => {
            json!({ "if": where_it_is(key, word), "then": { "required": [other] } })
        }
    }
}

fn where_it_is(key: &str, word: &str) -> Value {
    json!({ "properties": { key: { "const": word } }, "required": [key] })
}

fn key(key: &Key) -> Value {
    let mut schema = kind(key.kind);
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".into(), json!(described(key)));
    }
    schema
}

fn described(key: &Key) -> String {
    match key.presence {
        Presence::Optional(default) => format!("{} Default: {default}.", key.doc),
        _ => key.doc.to_owned(),
    }
}

fn kind(kind: Kind) -> Value {
    match kind {
        Kind::Text | Kind::Path | Kind::Command | Kind::Duration | Kind::Within(_) => {
            json!({ "type": "string", "minLength": 1 })
        }
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Whole(bounds) => {
            json!({ "type": "integer", "minimum": bounds.least, "maximum": bounds.most })
        }
        Kind::Thousandths(bounds) => {
            // Whole numbers are written as such, so that a bound reads as its author would write it.
            let bound = |thousandths| number::decimal(thousandths).parse::<serde_json::Number>().ok();
            json!({ "type": "number", "minimum": bound(bounds.least), "maximum": bound(bounds.most) })
        }
        Kind::Size(_) => json!({ "type": "string", "pattern": number::SIZE_PATTERN }),
        Kind::OneOf(words) => json!({ "type": "string", "enum": words }),
        Kind::Texts | Kind::Distinct => {
            let text = json!({ "type": "string", "minLength": 1 });
            let distinct = matches!(kind, Kind::Distinct);
            json!({ "type": "array", "items": text, "uniqueItems": distinct })
        }
        Kind::Injects => {
            let text = json!({ "type": "string", "minLength": 1 });
            json!({ "type": "array", "items": { "oneOf": [text, table(&inject::TABLE)] } })
        }
        Kind::Table(inner) => table(inner),
        Kind::Tables(inner) => json!({ "type": "array", "items": table(inner) }),
        Kind::Float => json!({ "type": "number" }),
        Kind::Names => json!({
            "type": "object",
            "propertyNames": { "pattern": NAME_PATTERN },
            "additionalProperties": { "type": "string" },
        }),
        Kind::Demands => json!({
            "type": "object",
            "propertyNames": { "pattern": CAPABILITY_PATTERN },
            "additionalProperties": { "type": "string", "minLength": 1 },
        }),
        Kind::Never => json!(false),
    }
}

//! As much of JSON Schema as `schema()` uses, so that it can be held against the decoder.

use serde_json::{Map, Value, json};
use toml::de::{DeTable, DeValue};

use super::*;

fn json_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => json!(text),
        DeValue::Boolean(flag) => json!(flag),
        DeValue::Array(items) => items.iter().map(|item| json_of(item.get_ref())).collect(),
        DeValue::Table(table) => object(table),
        DeValue::Integer(integer) => {
            json!(i64::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i64::MAX))
        }
        // JSON has no numbers that are not finite: null stands for them.
        DeValue::Float(float) => json!(float.as_str().parse::<f64>().unwrap()),
        DeValue::Datetime(_) => json!(1),
    }
}

fn object(table: &DeTable<'_>) -> Value {
    let fields = table.iter().map(|(key, value)| (key.get_ref().to_string(), json_of(value.get_ref())));
    Value::Object(fields.collect::<Map<_, _>>())
}

fn accepts(schema: &Value, value: &Value) -> bool {
    let Some(rules) = schema.as_object() else { return schema.as_bool().unwrap() };
    rules.iter().all(|(name, rule)| holds(name, rule, rules, value))
}

fn names(rule: &Value) -> impl Iterator<Item = &str> {
    rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap())
}

fn holds(name: &str, rule: &Value, rules: &Map<String, Value>, value: &Value) -> bool {
    let fields = value.as_object();
    match name {
        "type" => match rule.as_str().unwrap() {
            "object" => value.is_object(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            "number" => value.is_number(),
            "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            other => panic!("type {other}"),
        },
        "enum" => rule.as_array().unwrap().contains(value),
        "minLength" => value.as_str().is_none_or(|text| !text.is_empty() || rule == 0),
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
        "uniqueItems" => value
            .as_array()
            .is_none_or(|items| items.iter().enumerate().all(|(at, item)| !items[..at].contains(item))),
        "const" => value == rule,
        "if" => !accepts(rule, value) || accepts(&rules["then"], value),
        "then" => true,
        "pattern" => {
            assert_eq!(rule, number::SIZE_PATTERN);
            value.as_str().is_none_or(|text| {
                let digits = text.strip_suffix(['K', 'M', 'G']).unwrap_or_default();
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
            })
        }
        "required" => fields.is_none_or(|fields| names(rule).all(|name| fields.contains_key(name))),
        "properties" => fields.is_none_or(|fields| {
            fields.iter().all(|(name, value)| rule.get(name).is_none_or(|schema| accepts(schema, value)))
        }),
        "additionalProperties" => fields.is_none_or(|fields| {
            let known = rules.get("properties");
            let mut other =
                fields.iter().filter(|(name, _)| known.is_none_or(|known| known.get(name).is_none()));
            other.all(|(_, value)| accepts(rule, value))
        }),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| accepts(rule, item))),
        "oneOf" => rule.as_array().unwrap().iter().filter(|schema| accepts(schema, value)).count() == 1,
        "allOf" => rule.as_array().unwrap().iter().all(|schema| accepts(schema, value)),
        "not" => !accepts(rule, value),
        "dependentRequired" => fields.is_none_or(|fields| {
            let asked = rule.as_object().unwrap().iter().filter(|(name, _)| fields.contains_key(*name));
            asked.into_iter().all(|(_, others)| names(others).all(|name| fields.contains_key(name)))
        }),
        "$schema" | "title" | "description" => true,
        // No regular expressions here: the names of variables have a test of their own.
        "propertyNames" => true,
        other => panic!("the schema uses {other}"),
    }
}

#[test]
fn the_schema_takes_what_the_decoder_takes() {
    let samples = [
        GOOD.to_owned(),
        with("[workspace]\ndir = \"x\"\ninject = [\"a\", { src = \"a\", dst = \"b\" }]\nhistory = true"),
        with("[[workspace.inject]]\nsrc = \"a\"\ndst = \"b\""),
        with("[agent.env]\nA = \"\"\n[world]\nsnapshot_cmd = \"a\"\nrestore_cmd = \"b\""),
        with_repo("url = \"https://h/x\"\nref = \"main\""),
        sandboxed(""),
        sandboxed("").replace("harness = \"command\"\n", ""),
        sandboxed("").replace("harness = \"command\"", "harness = \"codex\""),
        GOOD.replace("\"command\"", "\"local\""),
        GOOD.replace("backend = \"command\"", "harness = \"command\""),
        with_agent(
            "toolbox_dir = \"t\"\nallow_unverified_image = true\nrequires = { \"a.b\" = \">=1\" }\nprefers = {}",
        ),
        sandboxed(
            "endpoints = []\nread_only_paths = [\"/opt\"]\n[agent.openshell.limits]\ncpus = 0.01\nmemory = \"1G\"",
        ),
        sandboxed("[agent.openshell.limits.egress]\nconnections = 8\nage = \"1h\"\nbytes = \"1K\""),
        sandboxed("[agent.openshell.limits]\ncpus = 1024\nprocesses = 4194304\nopen_files = 64"),
        sandboxed("[agent.broker]\nenabled = true\nurl = \"http://b.example:81\""),
        sandboxed("[[agent.relay]]\ndest = \"/tmp/x\"\ntemplate = \"${env:A}\"\nmode = \"0400\""),
        with_agent("[agent.openshell]\ninherit_defaults = false"),
        with(
            "[outputs.gpu-capture]\ncount = 0\n[outputs.deploy]\ncount = 1\ntarget = { open = { scope = \"a/*\", param = \"p\" } }",
        ),
        with("[[capabilities.secret]]\nname = \"A\"\ncontext = \"broker\"\nsystem = \"s\"\nscope = \"t\""),
        with_judge("direction = \"lower\"\ntiebreak_direction = \"higher\"\ntimeout = \"1m\""),
    ];
    let schema = schema();
    for text in samples {
        assert!(Manifest::parse("c.toml", &text).is_ok(), "{text}");
        assert!(accepts(&schema, &object(DeTable::parse(&text).unwrap().get_ref())), "{text}");
    }
}

#[test]
fn the_schema_refuses_what_has_the_wrong_shape() {
    let samples = [
        String::new(),
        with("[search]\nwide = 0"),
        with("[workspace]\ninject = \"a\""),
        with("[workspace]\ninject = [{ src = \"a\" }]"),
        with("[workspace]\nhistory = \"yes\""),
        with("[world]\nsnapshot_cmd = \"a\""),
        with("[agent.env]\nA = 1"),
        with_repo(""),
        with_repo("path = \".\"\nurl = \"https://h/x\""),
        with_agent("goal = \"a\"\ngoal_file = \"b\""),
        with_agent("harness = \"claude\""),
        with_agent("harness = \"command\""),
        sandboxed("").replace("harness = \"command\"", "harness = \"pi\""),
        sandboxed("").replace("agent_cmd = \"./bump.sh\"\n", ""),
        GOOD.replace("agent_cmd = \"./bump.sh\"\n", ""),
        with_agent("requires = { a = 1 }"),
        with_agent("allow_unverified_image = \"yes\""),
        with_agent("[[agent.relay]]\ndest = \"/tmp/x\"\nfrom_file = \"x\""),
        sandboxed("[[agent.relay]]\ndest = \"/tmp/x\""),
        sandboxed("[[agent.relay]]\ndest = \"/tmp/x\"\nfrom_file = \"x\"\nfrom_cmd = \"x\""),
        sandboxed("[agent.relay]\ndest = \"/tmp/x\"\nfrom_file = \"x\""),
        sandboxed("[agent.broker]\nbin = \"x\""),
        sandboxed("[agent.broker]\nenabled = \"yes\""),
        with("[outputs.image-push]\ncount = 1"),
        with("[outputs.image-push]\ncount = -1\ntarget = { fixed = \"quay.io/x\" }"),
        with("[outputs.image-push]\ncount = 1\ntarget = \"quay.io/x\""),
        with("[outputs.image-push]\ncount = 1\ntarget = { fixed = \"a\", open = { scope = \"a\" } }"),
        with("[outputs.image-push]\ncount = 1\ntarget = {}"),
        with("[outputs.gpu-capture]\ncount = 1\ntarget = { fixed = \"a\" }"),
        with("[outputs.email]\ncount = 1"),
        with("[[capabilities.secret]]\nname = \"A\"\ncontext = \"agent\"\nsystem = \"s\""),
        with("[[capabilities.secret]]\nname = \"A\"\ncontext = \"both\"\nsystem = \"s\"\nscope = \"s\""),
        sandboxed("gateway = \"x\""),
        sandboxed("read_only_paths = \"/opt\""),
        sandboxed("read_only_paths = [1]"),
        sandboxed("read_only_paths = [\"/opt\", \"/opt\"]"),
        sandboxed("[agent.openshell.limits]\ncpus = 1025"),
        sandboxed("[agent.openshell.limits]\ncpus = 0.001"),
        sandboxed("[agent.openshell.limits]\ncpus = nan"),
        sandboxed("[agent.openshell.limits]\nprocesses = 64.5"),
        sandboxed("[agent.openshell.limits.egress]\nconnections = 7"),
        sandboxed("[agent.openshell.limits.egress]\nidle_timeout = 5"),
        sandboxed("[agent.openshell.limits.egress]\nwidth = 5"),
        sandboxed("[agent.openshell.limits]\nprocesses = 0"),
        sandboxed("[agent.openshell.limits]\nopen_files = \"64\""),
        sandboxed("[agent.openshell.limits]\nmemory = 8"),
        sandboxed("[agent.openshell.limits]\nmemory = \"8GB\""),
        with_judge("direction = \"min\""),
        GOOD.replace("agent_cmd", "agent_command"),
    ];
    let schema = schema();
    for text in samples {
        assert!(Manifest::parse("c.toml", &text).is_err(), "{text}");
        assert!(!accepts(&schema, &object(DeTable::parse(&text).unwrap().get_ref())), "{text}");
    }
}

#[test]
fn the_schema_has_every_built_key_and_no_other() {
    let schema = schema();
    for key in keys::ROOT.keys {
        assert_eq!(schema["properties"].get(key.name).is_some(), key.is_built(), "{}", key.name);
    }
    assert_eq!(schema["properties"]["judge"]["required"], json!(["measure_cmd", "direction"]));
    assert_eq!(schema["additionalProperties"], json!(false));
}

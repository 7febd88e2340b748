//! Turns the embedded gateway's `driver_config` into a type and back: what travels by host path, not by copy.
//! It refuses to know whether the caller may use it; the service decides that by the connection.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use policy::egress::Document;

use crate::limits::Limits;

/// What a caller on the same host, of the same user, may add to a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DriverConfig {
    /// The host directory that stands in the sandbox as `/sandbox/<its name>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// A git directory shown as the workspace's `.git`; what is written there is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<PathBuf>,
    /// Host paths joined to the view at the same place, read and execute.
    pub read_only_paths: Vec<PathBuf>,
    /// What the sandbox may use.
    pub limits: Limits,
    /// What it may reach, through whoever the gateway was given for that. Without it there is no way out at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Document>,
    /// Certificates that it trusts beside the system's, in PEM; told to programs only where there is a way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<String>,
    /// Layers to leave out; only a build for tests of the layers knows any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weaken: Vec<String>,
}

impl DriverConfig {
    /// The configuration as the wire's `Struct`. Numbers above 2^53 lose precision there; no limit is that large.
    pub(crate) fn to_wire(&self) -> Result<prost_types::Struct, serde_json::Error> {
        let value = serde_json::to_value(self)?;
        Ok(match struct_value(value).kind {
            Some(prost_types::value::Kind::StructValue(fields)) => fields,
            _ => prost_types::Struct::default(),
        })
    }

    /// Reads the wire's `Struct`; unknown keys and wrong types are errors that name the key.
    pub(crate) fn from_wire(wire: prost_types::Struct) -> Result<Self, serde_json::Error> {
        let kind = Some(prost_types::value::Kind::StructValue(wire));
        serde_json::from_value(json_value(prost_types::Value { kind }))
    }
}

fn struct_value(json: serde_json::Value) -> prost_types::Value {
    use prost_types::value::Kind;
    use serde_json::Value;
    let kind = match json {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(value),
        Value::Number(value) => Kind::NumberValue(value.as_f64().unwrap_or(0.0)),
        Value::String(value) => Kind::StringValue(value),
        Value::Array(values) => {
            Kind::ListValue(prost_types::ListValue { values: values.into_iter().map(struct_value).collect() })
        }
        Value::Object(fields) => Kind::StructValue(prost_types::Struct {
            fields: fields.into_iter().map(|(key, value)| (key, struct_value(value))).collect(),
        }),
    };
    prost_types::Value { kind: Some(kind) }
}

fn json_value(wire: prost_types::Value) -> serde_json::Value {
    use prost_types::value::Kind;
    use serde_json::Value;
    match wire.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(value),
        Some(Kind::NumberValue(value)) => json_number(value),
        Some(Kind::StringValue(value)) => Value::String(value),
        Some(Kind::ListValue(list)) => Value::Array(list.values.into_iter().map(json_value).collect()),
        Some(Kind::StructValue(fields)) => {
            Value::Object(fields.fields.into_iter().map(|(key, value)| (key, json_value(value))).collect())
        }
    }
}

/// Whole numbers become integers, so that a limit of `4.0` reads as `4`.
fn json_number(value: f64) -> serde_json::Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && (0.0..EXACT).contains(&value) {
        #[expect(clippy::as_conversions, reason = "whole, not negative and below 2^53, checked above")]
        let whole = value as u64;
        return whole.into();
    }
    serde_json::Number::from_f64(value).map_or(serde_json::Value::Null, Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach() -> Document {
        let endpoints = vec![policy::endpoint::Endpoint::parse("a.example:443:full").unwrap()];
        let binaries = vec![policy::egress::BinaryPath::parse("/usr/bin/curl").unwrap()];
        let declared = policy::egress::Declared { endpoints, binaries, inherit_defaults: true };
        policy::egress::Egress::resolve(&declared, &[]).document()
    }

    #[test]
    fn a_configuration_survives_the_wire() {
        let config = DriverConfig {
            workspace: Some("/work/space".into()),
            read_only_paths: vec!["/opt/tool".into()],
            egress: Some(reach()),
            ..DriverConfig::default()
        };
        assert_eq!(DriverConfig::from_wire(config.to_wire().unwrap()).unwrap(), config);
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let mut wire = DriverConfig::default().to_wire().unwrap();
        wire.fields.insert("privileged".to_owned(), struct_value(true.into()));
        let error = DriverConfig::from_wire(wire).unwrap_err().to_string();
        assert!(error.contains("privileged"), "{error}");
    }
}

//! Turns bytes into a JSON value in which no object holds one key twice, at any depth, and which is not too deep.
//! It refuses to know what the value means.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// So deep may objects and arrays stand in each other: whoever writes a value into a line of its own can read it again, and
/// readers give up at 128.
pub const DEPTH_MAX: u32 = 64;

/// Parses exactly one JSON value; a repeated key, a number beyond a double, more than [`DEPTH_MAX`] objects and arrays in each
/// other and trailing text are errors.
///
/// # Errors
/// What serde_json says of the text, that a key stands twice in one object, or that it is too deep.
pub fn parse_strict(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { room: DEPTH_MAX }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Why bytes are no object with the fields that are wanted.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// No JSON, or a field that is missing, unknown or of another type.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Another value: an array is none, though its items could be taken for the fields in order.
    #[error("it must be a JSON object, and is {0}")]
    Type(&'static str),
}

/// Parses exactly one JSON object into its type, as strictly as [`parse_strict`].
///
/// # Errors
/// See [`ObjectError`].
pub fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ObjectError> {
    match parse_strict(bytes)? {
        object @ Value::Object(_) => Ok(serde_json::from_value(object)?),
        other => Err(ObjectError::Type(kind(&other))),
    }
}

/// What kind of value it is, with its article.
#[must_use]
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

struct Strict {
    /// How many objects and arrays may still stand in each other.
    room: u32,
}

impl Strict {
    /// For what stands in an object or array.
    fn inside<E: Error>(&self) -> Result<impl Fn() -> Strict, E> {
        let room = self.room.checked_sub(1);
        let room = room.ok_or_else(|| E::custom(format!("nested more than {DEPTH_MAX} deep")))?;
        Ok(move || Strict { room })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value without repeated keys")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(inside())? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key `{}` stands twice", key.escape_debug())));
            }
            let value = access.next_value_seed(inside())?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_serde_json_on_what_holds_no_repeated_key() {
        for text in
            ["null", "[1, -2, 3.5, \"x\", true, {}]", r#"{"a":{"b":[{"c":1e300}]}}"#, "18446744073709551615"]
        {
            let loose: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse_strict(text.as_bytes()).unwrap(), loose, "{text}");
        }
    }

    #[test]
    fn fields_stand_in_an_object_and_in_no_array() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Pair {
            a: u8,
            b: u8,
        }
        let read = |text: &str| parse_object::<Pair>(text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"b":2,"a":1}"#), Ok(Pair { a: 1, b: 2 }));
        for (text, why) in [
            ("[1, 2]", "it must be a JSON object, and is an array"),
            ("null", "it must be a JSON object, and is null"),
            (r#"{"a":1}"#, "missing field `b`"),
            (r#"{"a":1,"b":2,"a":3}"#, "the key `a` stands twice at line 1 column 16"),
        ] {
            assert_eq!(read(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_nested_too_deep_is_refused_whatever_it_is_made_of() {
        for (open, close) in [("[", "]"), ("{\"a\":[", "]}"), ("[1,", "]")] {
            let each = close.len();
            let deep = |by: usize| format!("{}0{}", open.repeat(by / each), close.repeat(by / each));
            assert!(parse_strict(deep(64).as_bytes()).is_ok(), "{open}");
            for by in [66, 126, 1_000_000] {
                let error = parse_strict(deep(by).as_bytes()).unwrap_err().to_string();
                assert!(error.starts_with("nested more than 64 deep"), "{open}: {error}");
            }
        }
    }

    #[test]
    fn refuses_repeated_keys_at_any_depth_and_trailing_text() {
        for text in
            [r#"{"a":1,"a":2}"#, r#"[{"a":{"b":1,"b":1}}]"#, r#"{"\u0061":1,"a":2}"#, "{} {}", "1e999"]
        {
            assert!(parse_strict(text.as_bytes()).is_err(), "{text}");
        }
    }
}

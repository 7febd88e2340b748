//! Turns places in a JSON document into texts, and values into places: what is not there is empty, and nothing panics.
//! It refuses to know what the document is.

use serde_json::Value;

/// The text at a JSON pointer, empty where there is none.
pub fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a key.
pub fn list<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    value.get_mut(key)?.as_array_mut()
}

/// Puts a value at a key of an object; what is no object stays as it is.
pub fn put(value: &mut Value, key: &str, what: impl Into<Value>) {
    if let Some(object) = value.as_object_mut() {
        object.insert(key.to_owned(), what.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_empty() {
        let mut value = serde_json::json!({"a": {"b": "c"}, "n": 1, "l": []});
        assert_eq!((text(&value, "/a/b"), text(&value, "/a/x"), text(&value, "/n")), ("c", "", ""));
        put(&mut value, "new", 2);
        assert_eq!(value.get("new"), Some(&2.into()));
        assert!(list(&mut value, "l").is_some() && list(&mut value, "a").is_none());
    }
}

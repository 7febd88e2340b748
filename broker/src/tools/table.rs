//! Turns the name and the arguments of a call into a typed request, or an answer that says what is wrong with it.
//! It refuses to decide whether it may be done.

use policy::outputs::Kind;
use policy::record::clean;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::core::json::put;

/// The longest comment, in bytes.
const BODY_MAX: usize = 32 * 1024;
/// The longest message, in bytes.
const TEXT_MAX: usize = 4 * 1024;
/// The longest target, in bytes.
const TARGET_MAX: usize = 512;
/// The longest idempotency key, in bytes.
const KEY_MAX: usize = 128;
/// The most files of a layer.
const FILES_MAX: usize = 1024;
/// The most bytes of a layer's files, as they travel.
const LAYER_MAX: usize = 8 << 20;

/// A tool.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What its target is called among the arguments.
    pub target: &'static str,
    /// The kind of output that bounds it.
    pub kind: Kind,
    /// Whether it changes anything.
    pub writes: bool,
    /// What it is for, for the agent.
    pub about: &'static str,
}

/// Every tool that there is.
pub const TABLE: [Tool; 4] = [
    Tool {
        name: "tracker_comment",
        target: "item",
        kind: Kind::TrackerComment,
        writes: true,
        about: "Comment on a tracker item. Without `item` it is the one item that the run is bound to.",
    },
    Tool {
        name: "tracker_get",
        target: "item",
        kind: Kind::TrackerComment,
        writes: false,
        about: "Read a tracker item: its title, state and description.",
    },
    Tool {
        name: "chat_message",
        target: "channel",
        kind: Kind::ChatMessage,
        writes: true,
        about: "Send a message. Without `channel` it goes to the operator.",
    },
    Tool {
        name: "image_push",
        target: "image",
        kind: Kind::ImagePush,
        writes: true,
        about: "Append files as one layer onto a pinned base image of the same registry, and push the result.",
    },
];

/// The tool of a name.
pub fn tool(name: &str) -> Option<&'static Tool> {
    TABLE.iter().find(|tool| tool.name == name)
}

/// Why arguments are none. Reads as what follows "failed to".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the arguments: {0}")]
pub struct BadArguments(pub String);

/// Arguments that fit their tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// Of `tracker_comment`.
    Comment {
        /// The item.
        item: Option<String>,
        /// The comment.
        body: String,
    },
    /// Of `tracker_get`.
    Get {
        /// The item.
        item: Option<String>,
    },
    /// Of `chat_message`.
    Message {
        /// The channel.
        channel: Option<String>,
        /// The message.
        text: String,
    },
    /// Of `image_push`.
    Image {
        /// Where to.
        image: Option<String>,
        /// What it is based on, by digest.
        base: String,
        /// The changed sources.
        files: Vec<LayerFile>,
    },
}

/// A file of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerFile {
    /// Where it stands in the image, without a `/` at the start and without `..`.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
    /// Whether it can be executed.
    pub executable: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommentRaw {
    item: Option<String>,
    body: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetRaw {
    item: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageRaw {
    channel: Option<String>,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageRaw {
    image: Option<String>,
    base: String,
    files: Vec<FileRaw>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRaw {
    path: String,
    content: Option<String>,
    content_base64: Option<String>,
    #[serde(default)]
    executable: bool,
}

/// A call that fits its tool.
#[derive(Clone, Debug)]
pub struct Fitting {
    /// The arguments.
    pub arguments: Arguments,
    /// The caller's idempotency key.
    pub key: Option<String>,
    /// SHA-256 of the arguments without the key, in hex.
    pub hash: String,
}

impl Tool {
    /// Reads the arguments of a call. An unknown field is refused, and so is what is too long.
    ///
    /// # Errors
    /// What is wrong, for the agent.
    pub fn read(&self, mut arguments: Map<String, Value>) -> Result<Fitting, BadArguments> {
        let key = match arguments.remove("idempotency_key") {
            None => None,
            Some(Value::String(key)) if self.writes && !key.is_empty() && key.len() <= KEY_MAX => Some(key),
            Some(_) if self.writes => {
                return bad(&format!("`idempotency_key` is a text of 1 to {KEY_MAX} bytes"));
            }
            Some(_) => return bad("unknown field `idempotency_key`: nothing is written"),
        };
        // Keys of a map are in order, so equal arguments have one text.
        let text = serde_json::to_vec(&arguments).map_err(|error| BadArguments(error.to_string()))?;
        let hash = hex(&Sha256::digest(&text));
        let arguments = self.fit(Value::Object(arguments))?;
        bounded(self.target, arguments.target().unwrap_or_default(), TARGET_MAX)?;
        Ok(Fitting { arguments, key, hash })
    }

    fn fit(&self, value: Value) -> Result<Arguments, BadArguments> {
        match self.name {
            "tracker_comment" => {
                let CommentRaw { item, body } = raw(value)?;
                filled("body", &body, BODY_MAX)?;
                Ok(Arguments::Comment { item, body })
            }
            "tracker_get" => raw(value).map(|GetRaw { item }| Arguments::Get { item }),
            "chat_message" => {
                let MessageRaw { channel, text } = raw(value)?;
                filled("text", &text, TEXT_MAX)?;
                Ok(Arguments::Message { channel, text })
            }
            _ => {
                let files = value.get("files").and_then(Value::as_array);
                if files.is_some_and(|files| !files.iter().all(Value::is_object)) {
                    return bad("`files` holds objects only");
                }
                let ImageRaw { image, base, files } = raw(value)?;
                filled("base", &base, TARGET_MAX)?;
                Ok(Arguments::Image { image, base, files: layer(files)? })
            }
        }
    }

    /// The JSON Schema of its arguments.
    pub fn schema(&self) -> Map<String, Value> {
        let text =
            |about: &str, most: usize| json!({"type": "string", "description": about, "maxLength": most});
        let (mut properties, required) = match self.name {
            "tracker_comment" => {
                (json!({ "body": text("The comment, in the tracker's markup.", BODY_MAX) }), vec!["body"])
            }
            "tracker_get" => (json!({}), vec![]),
            "chat_message" => (json!({ "text": text("The message.", TEXT_MAX) }), vec!["text"]),
            _ => (image_schema(), vec!["base", "files"]),
        };
        let target = text(&format!("The target: {}.", self.kind.addresses().shape()), TARGET_MAX);
        put(&mut properties, self.target, target);
        if self.writes {
            let about = "A retry with the same key and arguments gets the first answer and writes nothing.";
            put(&mut properties, "idempotency_key", text(about, KEY_MAX));
        }
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    }
}

fn image_schema() -> Value {
    let file = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where the file stands in the image."},
            "content": {"type": "string"},
            "content_base64": {"type": "string"},
            "executable": {"type": "boolean"},
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    json!({
        "base": {"type": "string", "description": "registry/path@sha256:digest, in the registry of the target."},
        "files": {"type": "array", "items": file, "maxItems": FILES_MAX},
    })
}

impl Arguments {
    /// The target that is asked for.
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::Comment { item, .. } | Self::Get { item } => item.as_deref(),
            Self::Message { channel, .. } => channel.as_deref(),
            Self::Image { image, .. } => image.as_deref(),
        }
    }
}

fn bad<T>(why: &str) -> Result<T, BadArguments> {
    Err(BadArguments(why.to_owned()))
}

/// The message of serde quotes a field's name, which is the agent's own text.
fn raw<T: DeserializeOwned>(value: Value) -> Result<T, BadArguments> {
    serde_json::from_value(value).map_err(|error| BadArguments(clean(&error.to_string())))
}

fn bounded(name: &str, text: &str, most: usize) -> Result<(), BadArguments> {
    if text.len() > most { bad(&format!("`{name}` has more than {most} bytes")) } else { Ok(()) }
}

fn filled(name: &str, text: &str, most: usize) -> Result<(), BadArguments> {
    if text.trim().is_empty() { bad(&format!("`{name}` is empty")) } else { bounded(name, text, most) }
}

fn layer(files: Vec<FileRaw>) -> Result<Vec<LayerFile>, BadArguments> {
    use base64::Engine as _;
    if files.is_empty() || files.len() > FILES_MAX {
        return bad(&format!("`files` has 1 to {FILES_MAX} files"));
    }
    let mut all = Vec::with_capacity(files.len());
    let mut total = 0_usize;
    for FileRaw { path, content, content_base64, executable } in files {
        if !is_inside(&path) {
            return bad("a path of `files` is relative, of at most 100 bytes, without `..` and empty parts");
        }
        let content = match (content, content_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|_| BadArguments("`content_base64` is not base64".to_owned()))?,
            _ => return bad("a file has either `content` or `content_base64`"),
        };
        total = total.saturating_add(content.len());
        all.push(LayerFile { path, content, executable });
    }
    if total > LAYER_MAX { bad(&format!("`files` have more than {LAYER_MAX} bytes")) } else { Ok(all) }
}

/// Whether a path stays below the root of an image. A whiteout would remove a file of the base.
fn is_inside(path: &str) -> bool {
    path.len() <= 100
        && path.bytes().all(|byte| byte.is_ascii_graphic())
        && path.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.starts_with(".wh."))
}

/// Bytes in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len().saturating_mul(2)), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: Value) -> Result<Fitting, BadArguments> {
        let Value::Object(arguments) = value else { panic!() };
        tool(name).unwrap().read(arguments)
    }

    #[test]
    fn row_101_an_unknown_field_is_refused_by_every_tool_and_its_schema_says_so() {
        for tool in &TABLE {
            assert_eq!(tool.schema()["additionalProperties"], false, "{}", tool.name);
            let base = format!("r.example/b@sha256:{}", "0".repeat(64));
            let mut good = match tool.name {
                "tracker_comment" => json!({"body": "x"}),
                "chat_message" => json!({"text": "x"}),
                "image_push" => json!({"base": base, "files": [{"path": "a", "content": "x"}]}),
                _ => json!({}),
            };
            assert!(read(tool.name, good.clone()).is_ok(), "{}", tool.name);
            for required in tool.schema()["required"].as_array().unwrap() {
                let mut less = good.clone();
                less.as_object_mut().unwrap().remove(required.as_str().unwrap());
                assert!(read(tool.name, less).is_err(), "{} without {required}", tool.name);
            }
            good["labels"] = json!(["x"]);
            let error = read(tool.name, good).unwrap_err().to_string();
            assert!(error.contains("unknown field `labels`"), "{error}");
        }
    }

    #[test]
    fn sizes_and_paths_are_bounded() {
        assert!(read("tracker_comment", json!({"body": "x".repeat(BODY_MAX)})).is_ok());
        for (name, value) in [
            ("tracker_comment", json!({"body": "x".repeat(BODY_MAX + 1)})),
            ("tracker_comment", json!({"body": "  "})),
            ("image_push", json!({"base": "b", "files": [["a", "x", null, false]]})),
            ("tracker_comment", json!({"body": "x", "item": "P".repeat(TARGET_MAX + 1)})),
            ("tracker_comment", json!({"body": "x", "idempotency_key": ""})),
            ("tracker_comment", json!({"body": "x", "idempotency_key": 7})),
            ("tracker_get", json!({"idempotency_key": "k"})),
            ("chat_message", json!({"text": "x".repeat(TEXT_MAX + 1)})),
            ("image_push", json!({"base": "b", "files": []})),
            ("image_push", json!({"base": "b", "files": [{"path": "a"}]})),
            ("image_push", json!({"base": "b", "files": [{"path": "../a", "content": ""}]})),
            ("image_push", json!({"base": "b", "files": [{"path": "/a", "content": ""}]})),
            ("image_push", json!({"base": "b", "files": [{"path": "d/.wh.a", "content": ""}]})),
            ("image_push", json!({"base": "b", "files": [{"path": "a", "content": "", "mode": "0777"}]})),
        ] {
            assert!(read(name, value.clone()).is_err(), "{value}");
        }
    }

    #[test]
    fn the_hash_is_of_the_arguments_without_the_key_in_any_order() {
        let one =
            read("tracker_comment", json!({"body": "x", "item": "P-1", "idempotency_key": "a"})).unwrap();
        let two =
            read("tracker_comment", json!({"item": "P-1", "idempotency_key": "b", "body": "x"})).unwrap();
        let other = read("tracker_comment", json!({"item": "P-2", "body": "x"})).unwrap();
        assert_eq!(one.hash, two.hash);
        assert_ne!(one.hash, other.hash);
    }
}

//! Turns the bytes of an inference document into bindings, field by field.
//! It refuses to know what a binding is for.

use serde_json::{Map, Value};

use super::{
    AgentBinding, AgentProtocol, Bindings, DOCUMENT_MAX, DecisionBinding, DecisionProtocol, Fault,
    InferenceError, InferenceUrl, KeyName, ModelName, VERSION,
};
use crate::json::{kind as found, parse_strict};

/// The longest part of a name that an error repeats, in characters.
const SHOWN_MAX: usize = 60;

/// A field's value, or what is wrong with it.
type Read<T> = Result<T, InferenceError>;

pub(super) fn document(text: &[u8]) -> Read<Bindings> {
    let whole = |fault| at("the document", fault);
    if text.len() > DOCUMENT_MAX {
        return Err(whole(Fault::TooLong));
    }
    let text = std::str::from_utf8(text).map_err(|_| whole(Fault::NotUtf8))?;
    if text.trim().is_empty() {
        return Ok(Bindings::default());
    }
    let value = parse_strict(text.as_bytes()).map_err(|error| whole(Fault::NotJson(error.to_string())))?;
    let fields = Fields::of(&value, String::new())?;
    // A later version may have other fields, so its number is looked at first.
    let version = fields.needed("version")?;
    if version.as_u64() != Some(VERSION) {
        let shown = if version.is_number() { version.to_string() } else { found(version).to_owned() };
        return Err(at("version", Fault::Version(shown)));
    }
    fields.only(&["version", "bindings"])?;
    let bindings = fields.needed("bindings")?;
    let wrong = || at("bindings", Fault::Type { expected: "an array", found: found(bindings) });
    let mut read = Bindings::default();
    for (number, binding) in bindings.as_array().ok_or_else(wrong)?.iter().enumerate() {
        add(&mut read, binding, format!("bindings[{number}]"))?;
    }
    Ok(read)
}

fn add(read: &mut Bindings, binding: &Value, place: String) -> Read<()> {
    let fields = Fields::of(binding, place)?;
    fields.only(&["role", "protocol", "url", "model", "key_env"])?;
    let role = fields.text("role")?.ok_or_else(|| fields.wrong("role", Fault::Missing("role")))?;
    let protocol =
        fields.text("protocol")?.ok_or_else(|| fields.wrong("protocol", Fault::Missing("protocol")))?;
    let (twice, known) = match role {
        "agent" => (read.agent.is_some(), "agent"),
        "decision" => (read.decision.is_some(), "decision"),
        other => return Err(fields.wrong("role", Fault::Role(shorten(other)))),
    };
    if twice {
        return Err(fields.wrong("role", Fault::Twice(known)));
    }
    if known == "agent" {
        read.agent = Some(agent(&fields, protocol)?);
    } else {
        read.decision = Some(decision(&fields, protocol)?);
    }
    Ok(())
}

fn agent(fields: &Fields<'_>, protocol: &str) -> Read<AgentBinding> {
    let all = [AgentProtocol::Messages, AgentProtocol::ChatCompletions, AgentProtocol::Responses];
    let unknown = || Fault::Protocol {
        protocol: shorten(protocol),
        role: "agent",
        known: "messages, chat_completions and responses",
    };
    let protocol = all.into_iter().find(|known| known.token() == protocol);
    Ok(AgentBinding {
        protocol: protocol.ok_or_else(|| fields.wrong("protocol", unknown()))?,
        url: fields.url()?,
        model: fields.model()?,
        key_env: fields.key()?,
    })
}

fn decision(fields: &Fields<'_>, protocol: &str) -> Read<DecisionBinding> {
    let protocol = match (protocol, fields.url()?) {
        ("system_one", Some(url)) => DecisionProtocol::SystemOne(url),
        ("system_one", None) => return Err(fields.wrong("url", Fault::NoUrl("system_one"))),
        ("decisions", None) => DecisionProtocol::Decisions,
        ("decisions", Some(_)) => return Err(fields.wrong("url", Fault::UrlNotTaken("decisions"))),
        (other, _) => {
            let protocol = shorten(other);
            let unknown = Fault::Protocol { protocol, role: "decision", known: "system_one and decisions" };
            return Err(fields.wrong("protocol", unknown));
        }
    };
    Ok(DecisionBinding { protocol, model: fields.model()?, key_env: fields.key()? })
}

/// One object and where it stands.
struct Fields<'v> {
    map: &'v Map<String, Value>,
    place: String,
}

impl<'v> Fields<'v> {
    fn of(value: &'v Value, place: String) -> Read<Self> {
        match value.as_object() {
            Some(map) => Ok(Self { map, place }),
            None => {
                let place = if place.is_empty() { "the document".to_owned() } else { place };
                Err(at(&place, Fault::Type { expected: "an object", found: found(value) }))
            }
        }
    }

    fn wrong(&self, field: &str, fault: Fault) -> InferenceError {
        let dot = if self.place.is_empty() { "" } else { "." };
        at(&format!("{}{dot}{field}", self.place), fault)
    }

    fn only(&self, known: &[&str]) -> Read<()> {
        match self.map.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(self.wrong(&shorten(name), Fault::Unknown(shorten(name)))),
            None => Ok(()),
        }
    }

    fn needed(&self, name: &'static str) -> Read<&'v Value> {
        self.map.get(name).ok_or_else(|| self.wrong(name, Fault::Missing(name)))
    }

    /// A text; null is the same as no field.
    fn text(&self, name: &'static str) -> Read<Option<&'v str>> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, Fault::Type { expected: "a string", found: found(other) })),
        }
    }

    fn url(&self) -> Read<Option<InferenceUrl>> {
        let url = self.text("url")?.map(InferenceUrl::parse).transpose();
        url.map_err(|fault| self.wrong("url", Fault::Url(fault)))
    }

    fn model(&self) -> Read<ModelName> {
        let text = self.text("model")?.ok_or_else(|| self.wrong("model", Fault::Missing("model")))?;
        ModelName::parse(text).map_err(|fault| self.wrong("model", Fault::Model(fault)))
    }

    fn key(&self) -> Read<Option<KeyName>> {
        let name = self.text("key_env")?.map(KeyName::parse).transpose();
        name.map_err(|fault| self.wrong("key_env", Fault::Key(fault)))
    }
}

fn at(place: &str, fault: Fault) -> InferenceError {
    InferenceError { place: place.to_owned(), fault }
}

/// A name of the document as an error may repeat it.
fn shorten(name: &str) -> String {
    let shown = name.escape_debug().to_string();
    match shown.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", shown.get(..end).unwrap_or_default()),
        None => shown,
    }
}

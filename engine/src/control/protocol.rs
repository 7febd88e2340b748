//! Turns a line of a control client into a request, and an answer into a line (contract §7.1).
//! It refuses to know sockets.

use policy::json::parse_object;
use serde::{Deserialize, Serialize};

use crate::admission::{Command, Fields, Input, InputError, Key, Settlement};

/// What a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// The token, which must be the first line over TCP.
    Auth {
        /// As given.
        token: String,
    },
    /// Where the run stands.
    Status,
    /// The lines of the session log.
    Tail {
        /// The first sequence number that is wanted; what is written from now on, where it is absent.
        from: Option<u64>,
        /// Whether lines to come are wanted too.
        follow: bool,
    },
    /// An input for the run.
    Input {
        /// The client's own key for it.
        key: Option<Key>,
        /// What is asked for.
        input: Input,
    },
}

/// Why a line is no request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It is no JSON object with known fields of the right types.
    #[error("not a request: {0}")]
    Json(String),
    /// There is no such command.
    #[error("there is no command `{0}`")]
    Unknown(String),
    /// A field that the command has no use for.
    #[error("`{cmd}` takes no `{field}`")]
    Foreign {
        /// The command.
        cmd: String,
        /// The field.
        field: &'static str,
    },
    /// The token is missing.
    #[error("`auth` needs `token`")]
    NoToken,
    /// The payload of an input.
    #[error(transparent)]
    Input(#[from] InputError),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    cmd: String,
    id: Option<String>,
    text: Option<String>,
    handle: Option<String>,
    reason: Option<String>,
    regime: Option<String>,
    max_cost: Option<f64>,
    max_secs: Option<f64>,
    iterations: Option<u32>,
    from: Option<u64>,
    follow: Option<bool>,
    token: Option<String>,
}

impl Raw {
    /// A field that only `cmd` may have.
    fn only_for(&self, given: bool, cmd: &str, field: &'static str) -> Result<(), RequestError> {
        match given && self.cmd != cmd {
            true => Err(RequestError::Foreign { cmd: self.cmd.clone(), field }),
            false => Ok(()),
        }
    }

    fn fields(&mut self) -> Fields {
        Fields {
            text: self.text.take(),
            handle: self.handle.take(),
            reason: self.reason.take(),
            regime: self.regime.take(),
            max_cost: self.max_cost.take(),
            max_secs: self.max_secs.take(),
            iterations: self.iterations.take(),
        }
    }
}

/// Reads one line: an object with `cmd`, or, for a command without fields, its bare name as a JSON string.
///
/// # Errors
/// The name of the command, as far as it is known, and what is wrong.
pub fn parse(line: &[u8]) -> Result<Request, (Option<String>, RequestError)> {
    let raw = match serde_json::from_slice::<String>(line) {
        Ok(cmd) => Raw { cmd, ..Raw::default() },
        Err(_) => parse_object::<Raw>(line).map_err(|error| (None, RequestError::Json(error.to_string())))?,
    };
    let cmd = raw.cmd.clone();
    request(raw).map_err(|error| (Some(cmd), error))
}

fn request(mut raw: Raw) -> Result<Request, RequestError> {
    raw.only_for(raw.token.is_some(), "auth", "token")?;
    raw.only_for(raw.from.is_some(), "tail", "from")?;
    raw.only_for(raw.follow.is_some(), "tail", "follow")?;
    if let Some(command) = Command::of(&raw.cmd) {
        let key = raw.id.as_deref().map(Key::chosen).transpose()?;
        return Ok(Request::Input { key, input: Input::new(command, raw.fields())? });
    }
    let request = match raw.cmd.as_str() {
        "auth" => Request::Auth { token: raw.token.take().ok_or(RequestError::NoToken)? },
        "status" => Request::Status,
        "tail" => Request::Tail { from: raw.from, follow: raw.follow.unwrap_or(true) },
        _ => return Err(RequestError::Unknown(raw.cmd)),
    };
    let payload = raw.fields() != Fields::default();
    let foreign = raw.id.as_ref().map(|_| "id").or(payload.then_some("payload"));
    match foreign {
        None => Ok(request),
        Some(field) => Err(RequestError::Foreign { cmd: raw.cmd, field }),
    }
}

/// What a client is answered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Whether it was done.
    pub ok: bool,
    /// The command that was asked for, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
    /// The key of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether the input was delivered before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dup: bool,
    /// How the earlier delivery was settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Settlement>,
    /// It takes effect and is in no record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unrecorded: bool,
    /// The first sequence number that `tail` sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Reply {
    /// It was done.
    #[must_use]
    pub fn done(cmd: &str) -> Reply {
        Reply { ok: true, cmd: Some(cmd.to_owned()), ..Reply::default() }
    }

    /// It was not done.
    #[must_use]
    pub fn refused(cmd: Option<String>, error: String) -> Reply {
        Reply { cmd, error: Some(error), ..Reply::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Budget;

    fn check(line: &str, expect: Result<Request, &str>) {
        let got = parse(line.as_bytes()).map_err(|(_, error)| error.to_string());
        match expect {
            Ok(request) => assert_eq!(got, Ok(request), "{line}"),
            Err(part) => {
                assert!(got.as_ref().is_err_and(|error| error.contains(part)), "{line}: {got:?}");
            }
        }
    }

    #[test]
    fn each_command_is_read_and_nothing_else_is() {
        let input = |input| Ok(Request::Input { key: None, input });
        check(r#"{"cmd":"status"}"#, Ok(Request::Status));
        check(r#""status""#, Ok(Request::Status));
        check(r#"{"cmd":"tail","from":3}"#, Ok(Request::Tail { from: Some(3), follow: true }));
        check(r#"{"cmd":"tail","follow":false}"#, Ok(Request::Tail { from: None, follow: false }));
        check(r#"{"cmd":"auth","token":"t"}"#, Ok(Request::Auth { token: "t".into() }));
        check(
            r#"{"cmd":"steer","text":"…","id":"pr-comment:owner/repo#7:12345"}"#,
            Ok(Request::Input {
                key: Some(Key::chosen("pr-comment:owner/repo#7:12345").unwrap()),
                input: Input::Steer { text: "…".into() },
            }),
        );
        check(
            r#"{"cmd":"set-budget","max_cost":2}"#,
            input(Input::SetBudget(Budget { max_cost: Some(2.0), ..Budget::default() })),
        );
        for (word, value) in [
            ("pause", Input::Pause),
            ("resume", Input::Resume),
            ("stop", Input::Stop),
            ("abort", Input::Abort),
        ] {
            check(&format!("\"{word}\""), input(value.clone()));
            check(&format!("{{\"cmd\":\"{word}\"}}"), input(value));
        }
        check(r#""steer""#, Err("needs `text`"));
        check(r#"{"cmd":"go"}"#, Err("no command `go`"));
        check(r#"{"cmd":"status","id":"x"}"#, Err("takes no `id`"));
        check(r#"{"cmd":"status","text":"x"}"#, Err("takes no `payload`"));
        check(r#"{"cmd":"pause","from":1}"#, Err("takes no `from`"));
        check(r#"{"cmd":"pause","token":"x"}"#, Err("takes no `token`"));
        check(r#"{"cmd":"pause","txt":"x"}"#, Err("unknown field `txt`"));
        check(r#"{"cmd":"pause","id":""}"#, Err("1 to 256"));
        check(r#"{"cmd":"pause","id":7}"#, Err("not a request"));
        check(r#"["pause"]"#, Err("not a request: it must be a JSON object, and is an array"));
        check(r#"{"cmd":"pause","cmd":"stop"}"#, Err("the key `cmd` stands twice"));
        check(
            r#"{"cmd":"set-budget","max_secs":-0.0}"#,
            Err("`max_secs` must be a number that is more than 0"),
        );
        check(r#"{"cmd":"set-budget","max_cost":0}"#, Err("`max_cost` must be a number that is more than 0"));
        check(r#"{"cmd":"set-budget","iterations":0}"#, Err("`iterations` must be"));
        for garbage in ["", "{", "[]", "7", "GET / HTTP/1.1", "{\"text\":\"x\"}", "\u{0}"] {
            check(garbage, Err("not a request"));
        }
    }

    #[test]
    fn a_reply_says_only_what_there_is_to_say() {
        let line = |reply: &Reply| serde_json::to_string(reply).unwrap();
        let done = Reply { key: Some("k".into()), ..Reply::done("steer") };
        assert_eq!(line(&done), r#"{"ok":true,"cmd":"steer","key":"k"}"#);
        let again = Reply { dup: true, outcome: Some(Settlement::Applied), ..done };
        assert_eq!(line(&again), r#"{"ok":true,"cmd":"steer","key":"k","dup":true,"outcome":"applied"}"#);
        assert_eq!(line(&Reply::refused(None, "no".into())), r#"{"ok":false,"error":"no"}"#);
    }
}

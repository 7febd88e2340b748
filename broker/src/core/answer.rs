//! Turns a refusal into the bytes that the sandbox gets: constants and escaped input only (row 57).
//! It refuses to know what only the operator may read.

use policy::reason::Reason;

/// A refusal over HTTP.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// Why.
    pub reason: Reason,
    /// The target, redacted and cut.
    pub target: &'a str,
    /// The hash of the policy in force.
    pub policy: &'a str,
    /// Whether the connection goes on.
    pub keep: bool,
    /// Whether the request was a HEAD, whose answer has no body.
    pub bodiless: bool,
}

impl Refusal<'_> {
    /// `{error, reason, target, policy}` alone.
    pub fn body(&self) -> String {
        serde_json::json!({
            "error": self.reason.public(),
            "reason": self.reason.token(),
            "target": self.target,
            "policy": self.policy,
        })
        .to_string()
    }

    /// Status line, fields, and `{error, reason, target, policy}`.
    pub fn bytes(&self) -> Vec<u8> {
        let body = self.body();
        let status = self.reason.status();
        let connection = if self.keep { "keep-alive" } else { "close" };
        let mut out = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
            phrase(status),
            body.len(),
        );
        if !self.bodiless {
            out.push_str(&body);
        }
        out.into_bytes()
    }
}

/// What a TLS client gets instead: a fatal alert, `access_denied`.
pub const TLS_REFUSAL: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// What a CONNECT gets when its tunnel stands.
pub const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

fn phrase(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        408 => "Request Timeout",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        504 => "Gateway Timeout",
        _ => "Service Unavailable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_57_a_refusal_is_json_with_its_reason_and_policy_and_no_raw_input() {
        let target = "a\"\r\nX: y\u{1b}.example:443";
        let refusal =
            Refusal { reason: Reason::HostNotListed, target, policy: "h", keep: false, bodiless: false };
        let text = String::from_utf8(refusal.bytes()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["reason"], "host-not-listed");
        assert_eq!(body["target"], target);
        assert_eq!(body["policy"], "h");
        assert!(!text.contains('\u{1b}'));
        let bodiless = Refusal { bodiless: true, ..refusal };
        assert!(bodiless.bytes().ends_with(b"\r\n\r\n"));
    }
}

//! Turns the bytes of a request's head into a target, a framing and what may be passed on, or the reason why not.
//! It refuses to know whether the target is allowed.

use policy::host::{Host, HostError, Port, Target};
use policy::reason::Reason;

use super::fields::{Fields, Framing, head_end, is_token, lines};

/// The longest method.
const METHOD_MAX: usize = 32;

/// The two versions that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0.
    V10,
    /// HTTP/1.1.
    V11,
}

/// What a request's target says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// A tunnel.
    Connect(Target),
    /// A URL.
    Absolute {
        /// `http`, `https`, `ws` or `wss`.
        scheme: Scheme,
        /// Where to.
        target: Target,
        /// Path and query; what is passed on.
        path: Path<'a>,
    },
    /// A path on the server that the connection is for.
    Origin(Path<'a>),
}

/// The schemes that a URL may have (row 55).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP or WebSocket: port 80.
    Plain,
    /// WebSocket without TLS.
    Ws,
    /// Over TLS: port 443.
    Secure,
}

/// Path and query in visible ASCII, as written; a URL without a path has `/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    slash: bool,
    text: &'a str,
}

/// A request's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The method, as written.
    pub method: &'a str,
    /// The target as written.
    pub asked: &'a str,
    /// The target.
    pub form: Form<'a>,
    /// The version.
    pub version: Version,
    /// The header lines.
    pub fields: Fields<'a>,
    /// The body; never until the end of the connection (row 49).
    pub framing: Framing,
}

/// Why a head is refused, with what was readable of its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadHead {
    /// Why.
    pub reason: Reason,
    /// The target as written, where the request line was one.
    pub asked: Option<String>,
}

impl From<Reason> for BadHead {
    fn from(reason: Reason) -> Self {
        Self { reason, asked: None }
    }
}

/// Reads a head and tells its length; `None` while more bytes are needed.
///
/// # Errors
/// What is wrong with it; `max` is the most bytes it may have.
pub fn read(buf: &[u8], max: usize) -> Result<Option<(Head<'_>, usize)>, BadHead> {
    // Another protocol is refused at its first byte, not when a time has passed.
    if buf.first().is_some_and(|byte| !is_token(*byte)) {
        return Err(Reason::HeadMalformed.into());
    }
    let Some(end) = head_end(buf, max)? else { return Ok(None) };
    let bytes = buf.get(..end).unwrap_or_default();
    let mut lines = lines(bytes).ok_or(Reason::HeadMalformed)?;
    let (method, asked, version) = request_line(lines.next().unwrap_or_default())?;
    let bad = |reason| BadHead { reason, asked: Some(asked.to_owned()) };
    let fields = Fields::read(lines).ok_or_else(|| bad(Reason::HeadMalformed))?;
    if fields.nominates_needed() {
        return Err(bad(Reason::HeadMalformed));
    }
    let framing = fields.framing().map_err(bad)?.unwrap_or(Framing::None);
    if version == Version::V10 && framing == Framing::Chunked {
        return Err(bad(Reason::FramingInvalid));
    }
    let form = form(method, asked).map_err(bad)?;
    if matches!(form, Form::Connect(_)) && framing != Framing::None && framing != Framing::Length(0) {
        return Err(bad(Reason::FramingInvalid));
    }
    let head = Head { method, asked, form, version, fields, framing };
    head.check_host().map_err(bad)?;
    Ok(Some((head, end)))
}

fn request_line(line: &[u8]) -> Result<(&str, &str, Version), Reason> {
    let line = std::str::from_utf8(line).map_err(|_| Reason::HeadMalformed)?;
    let mut parts = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Reason::HeadMalformed);
    };
    let token = !method.is_empty() && method.len() <= METHOD_MAX && method.bytes().all(is_token);
    if !token || target.is_empty() {
        return Err(Reason::HeadMalformed);
    }
    let version = match version {
        "HTTP/1.1" => Version::V11,
        "HTTP/1.0" => Version::V10,
        other if other.starts_with("HTTP/") => return Err(Reason::VersionInvalid),
        _ => return Err(Reason::HeadMalformed),
    };
    Ok((method, target, version))
}

fn form<'a>(method: &str, asked: &'a str) -> Result<Form<'a>, Reason> {
    if method == "CONNECT" {
        return Target::parse(nobody(asked)?).map(Form::Connect).map_err(blame);
    }
    if asked.starts_with('/') {
        return Path::read(asked).map(Form::Origin).ok_or(Reason::TargetInvalid);
    }
    let Some((scheme, rest)) = asked.split_once("://") else {
        return Err(if asked.contains(':') { Reason::SchemeInvalid } else { Reason::TargetInvalid });
    };
    let (scheme, port) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (Scheme::Plain, Port::HTTP),
        "ws" => (Scheme::Ws, Port::HTTP),
        "https" | "wss" => (Scheme::Secure, Port::HTTPS),
        _ => return Err(Reason::SchemeInvalid),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).ok_or(Reason::TargetInvalid)?;
    let target = Target::parse_or(nobody(authority)?, port).map_err(blame)?;
    let path = Path::read(path).ok_or(Reason::TargetInvalid)?;
    Ok(Form::Absolute { scheme, target, path })
}

/// An authority without a user in it.
fn nobody(authority: &str) -> Result<&str, Reason> {
    if authority.contains('@') { Err(Reason::HostInvalid) } else { Ok(authority) }
}

fn blame(error: HostError) -> Reason {
    match error {
        HostError::Port | HostError::NoPort => Reason::TargetInvalid,
        _ => Reason::HostInvalid,
    }
}

impl<'a> Path<'a> {
    /// Reads path and query of a URL or a request line; never an authority (row 61), never a fragment.
    fn read(text: &'a str) -> Option<Self> {
        let plain = text.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'#');
        plain.then_some(Self { slash: !text.starts_with('/'), text })
    }

    /// Writes it as a request's target.
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.slash {
            out.push(b'/');
        }
        out.extend_from_slice(self.text.as_bytes());
    }
}

impl Head<'_> {
    /// Rows 38 and 39: the Host header names the same host as the target, and the same port where it has one.
    fn check_host(&self) -> Result<(), Reason> {
        let host = self.fields.only("host")?;
        let (target, default) = match &self.form {
            Form::Connect(target) => (target, target.port),
            Form::Absolute { scheme: Scheme::Secure, target, .. } => (target, Port::HTTPS),
            Form::Absolute { target, .. } => (target, Port::HTTP),
            Form::Origin(_) => return host.map(drop).ok_or(Reason::HeadMalformed),
        };
        let Some(host) = host else {
            // A tunnel's target says it all, and old clients send no Host with it.
            let optional = self.version == Version::V10 || matches!(self.form, Form::Connect(_));
            return if optional { Ok(()) } else { Err(Reason::HeadMalformed) };
        };
        if named(host, default)? == *target { Ok(()) } else { Err(Reason::HostMismatch) }
    }

    /// Whether the Host header of a request in origin form names this target.
    ///
    /// # Errors
    /// [`Reason::HostMismatch`] and malformed headers.
    pub fn host_is(&self, target: &Target, secure: bool) -> Result<(), Reason> {
        let host = self.fields.only("host")?.ok_or(Reason::HeadMalformed)?;
        let default = if secure { Port::HTTPS } else { Port::HTTP };
        let named = named(host, default)?;
        // On the way that knows no proxy a Host without a port is common whatever the port.
        let bare = !has_port(host) && named.host == target.host;
        if named == *target || bare { Ok(()) } else { Err(Reason::HostMismatch) }
    }

    /// Whether the connection may go on after the answer.
    pub fn keeps(&self) -> bool {
        let option =
            |token| self.fields.has("connection", token) || self.fields.has("proxy-connection", token);
        match self.version {
            Version::V11 => !option("close"),
            Version::V10 => option("keep-alive"),
        }
    }

    /// Writes the head as it goes upstream: origin form, the Host of the target, nothing of this hop.
    pub fn write(&self, target: &Target, path: Path<'_>, keep: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method.as_bytes());
        out.push(b' ');
        path.write(out);
        out.extend_from_slice(match self.version {
            Version::V11 => b" HTTP/1.1\r\nHost: ",
            Version::V10 => b" HTTP/1.0\r\nHost: ",
        });
        out.extend_from_slice(authority(target).as_bytes());
        out.extend_from_slice(b"\r\n");
        self.fields.write(out, |name| name.eq_ignore_ascii_case("host"));
        let close: &[u8] = match (keep, self.version) {
            (false, _) => b"Connection: close\r\n\r\n",
            (true, Version::V10) => b"Connection: keep-alive\r\n\r\n",
            (true, Version::V11) => b"\r\n",
        };
        out.extend_from_slice(close);
    }
}

fn has_port(host: &[u8]) -> bool {
    !host.ends_with(b"]") && host.contains(&b':')
}

fn named(host: &[u8], default: Port) -> Result<Target, Reason> {
    let text = std::str::from_utf8(host).map_err(|_| Reason::HostInvalid)?;
    Target::parse_or(text, default).map_err(blame)
}

/// The Host header of a target: the port of plain HTTP is left out.
fn authority(target: &Target) -> String {
    let text = target.to_string();
    let port = if target.port == Port::HTTP { text.strip_suffix(":80") } else { None };
    port.map_or_else(|| text.clone(), str::to_owned)
}

/// Whether a target is the name itself, for SNI: an address has none.
pub fn server_name(target: &Target) -> Option<&str> {
    match &target.host {
        Host::Name(name) => Some(name.as_str()),
        Host::Ip(_) => None,
    }
}

#[cfg(test)]
mod tests;

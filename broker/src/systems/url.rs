//! Turns the text of an operator's or a server's URL into where to connect and what to ask for.
//! It refuses to know credentials: a URL with a user in it is none.

use std::fmt;

use policy::host::{Host, Port, Target};

/// An absolute `http` or `https` URL without a user, a fragment or a character that needs care.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether it is `https`.
    pub secure: bool,
    /// Its host and port.
    pub target: Target,
    /// Path and query, from the first `/`; never empty.
    pub path: String,
}

/// A text that is no usable URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Neither scheme.
    #[error("it starts with neither https:// nor http://")]
    Scheme,
    /// No host and port, or a user.
    #[error("it has no host that can be used")]
    Host,
    /// A blank, a control, or something that is not ASCII.
    #[error("it has a character that must be escaped")]
    Character,
    /// Plain HTTP to another machine, where a credential would be readable on the way.
    #[error("it is http:// to another machine, where anybody on the way could read the credential")]
    Plain,
}

impl fmt::Debug for Url {
    /// Without the path, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({}://{})", self.scheme(), self.target)
    }
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let (secure, default) = match scheme.to_ascii_lowercase().as_str() {
            "https" => (true, Port::HTTPS),
            "http" => (false, Port::HTTP),
            _ => return Err(UrlError::Scheme),
        };
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(UrlError::Character);
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let target = Target::parse_or(authority, default).map_err(|_| UrlError::Host)?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { secure, target, path })
    }

    /// Reads the URL of a system that gets a credential: `https`, or `http` on this machine's loopback.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn of_system(text: &str) -> Result<Self, UrlError> {
        let url = Self::parse(text)?;
        if url.secure || is_loopback(&url.target.host) { Ok(url) } else { Err(UrlError::Plain) }
    }

    /// This URL with more of a path after its own, which is taken without a final `/`.
    pub fn join(&self, more: &str) -> Self {
        let base = self.path.split('?').next().unwrap_or_default().trim_end_matches('/');
        Self { path: format!("{base}{more}"), ..self.clone() }
    }

    /// Where a `Location` leads from here: another path of the same host, or somewhere else.
    pub fn follow(&self, location: &str) -> Result<Self, UrlError> {
        if location.starts_with('/') && !location.starts_with("//") {
            let plain = location.bytes().all(|byte| byte.is_ascii_graphic());
            return if plain {
                Ok(Self { path: location.to_owned(), ..self.clone() })
            } else {
                Err(UrlError::Character)
            };
        }
        Self::parse(location)
    }

    /// Whether another URL is at the same place, so that it may get the same credential.
    pub fn same_place(&self, other: &Self) -> bool {
        self.secure == other.secure && self.target == other.target
    }

    fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// The `Host` of a request.
    pub fn authority(&self) -> String {
        let default = if self.secure { Port::HTTPS } else { Port::HTTP };
        if self.target.port == default { self.target.host.to_string() } else { self.target.to_string() }
    }
}

/// Whether a host is this machine by its name.
pub(crate) fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Ip(address) => address.is_loopback(),
        Host::Name(name) => name.as_str() == "localhost",
    }
}

/// A text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_strictly_and_joined() {
        let url = Url::parse("https://jira.example/base/?x=1#frag").unwrap();
        assert_eq!(url.join("/rest").path, "/base/rest");
        assert_eq!((url.authority().as_str(), url.secure), ("jira.example", true));
        assert_eq!(Url::parse("http://h.example:8080").unwrap().authority(), "h.example:8080");
        for text in [
            "jira.example",
            "ftp://a.example",
            "https://u:p@a.example/",
            "https://a.example/a b",
            "https:///x",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
        assert_eq!(Url::of_system("http://jira.example/"), Err(UrlError::Plain));
        assert!(Url::of_system("http://127.0.0.1:2990/jira").is_ok());
        assert_eq!(segment("a/b?c"), "a%2Fb%3Fc");
    }

    #[test]
    fn a_location_on_another_host_is_told_apart() {
        let url = Url::parse("https://a.example/x").unwrap();
        assert!(url.same_place(&url.follow("/y?z").unwrap()));
        assert!(url.same_place(&url.follow("https://a.example:443/y").unwrap()));
        for location in ["https://b.example/", "http://a.example/", "https://a.example:444/", "//b.example/x"]
        {
            assert!(!url.follow(location).is_ok_and(|to| url.same_place(&to)), "{location}");
        }
    }

    #[test]
    fn row_91_a_url_whose_path_is_a_secret_does_not_show_it() {
        let url = Url::parse("https://hooks.example/services/T0/B0/canary").unwrap();
        assert!(!format!("{url:?}").contains("canary"));
    }
}

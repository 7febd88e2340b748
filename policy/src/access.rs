//! Turns the words for access, protocol and enforcement of an endpoint into closed types, and a method into yes or no.
//! It refuses to know hosts.

use std::fmt;

/// What may be done at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Requests that only read: GET, HEAD, OPTIONS.
    ReadOnly,
    /// Those, and POST, PUT, PATCH.
    ReadWrite,
    /// Everything.
    Full,
}

/// What is spoken at an endpoint. None is TLS whose SNI equals the target, or plain HTTP (N13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// HTTP whose requests are judged one by one.
    Rest,
    /// WebSocket.
    Websocket,
    /// Bytes that nobody looks into: ssh, a database.
    Tcp,
}

/// What happens to a request that the access does not cover. Absent means [`Enforcement::Enforce`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Enforcement {
    /// It is refused.
    #[default]
    Enforce,
    /// It is let through and recorded.
    Audit,
}

macro_rules! words {
    ($type:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $type {
            /// Every word, in the order of the table.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// Reads one word; `None` for any other.
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words!(Access { ReadOnly = "read-only", ReadWrite = "read-write", Full = "full" });
words!(Protocol { Rest = "rest", Websocket = "websocket", Tcp = "tcp" });
words!(Enforcement { Enforce = "enforce", Audit = "audit" });

impl Access {
    /// Whether a request with this method (case matters, as in HTTP) is covered.
    pub fn covers(self, method: &str) -> bool {
        match self {
            Self::ReadOnly => matches!(method, "GET" | "HEAD" | "OPTIONS"),
            Self::ReadWrite => matches!(method, "GET" | "HEAD" | "OPTIONS" | "POST" | "PUT" | "PATCH"),
            Self::Full => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_covered_by_its_access() {
        let cases = [
            ("GET", true, true),
            ("HEAD", true, true),
            ("OPTIONS", true, true),
            ("POST", false, true),
            ("PATCH", false, true),
            ("DELETE", false, false),
            ("get", false, false),
            ("TRACE", false, false),
        ];
        for (method, reads, writes) in cases {
            assert_eq!(Access::ReadOnly.covers(method), reads, "{method}");
            assert_eq!(Access::ReadWrite.covers(method), writes, "{method}");
            assert!(Access::Full.covers(method));
        }
    }

    #[test]
    fn words_round_trip_and_others_are_nothing() {
        for word in Access::WORDS {
            assert_eq!(Access::parse(word).map(Access::as_str), Some(*word));
        }
        assert_eq!(Access::parse("Full"), None);
        assert_eq!(Protocol::parse("gopher"), None);
        assert_eq!(Enforcement::parse(""), None);
    }
}

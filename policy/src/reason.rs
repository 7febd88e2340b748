//! Turns a refusal, or the end of a connection, into a stable token, a short text for the sandbox, and an HTTP status.
//! It refuses to know the target and what else only the operator may read.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a refusal is answered over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The policy says no: 403.
    Policy,
    /// The request is malformed: 400.
    Request,
    /// Nobody says who asks: 401.
    Caller,
    /// The head is too large: 431.
    TooLarge,
    /// The request uses something that is not served: 501.
    NotServed,
    /// Too much at once: 429.
    Pace,
    /// The other side: 502.
    Upstream,
    /// The other side is late: 504.
    UpstreamLate,
    /// The client is late: 408.
    Late,
    /// The broker cannot: 503.
    Broker,
}

impl Blame {
    /// The status code.
    pub fn status(self) -> u16 {
        match self {
            Self::Policy => 403,
            Self::Request => 400,
            Self::Caller => 401,
            Self::TooLarge => 431,
            Self::NotServed => 501,
            Self::Pace => 429,
            Self::Upstream => 502,
            Self::UpstreamLate => 504,
            Self::Late => 408,
            Self::Broker => 503,
        }
    }
}

macro_rules! reasons {
    ($($variant:ident $token:literal $blame:ident $public:literal)+) => {
        /// Why something was refused or cut. A token is never reused for something else.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Reason {
            $(#[doc = $public] #[serde(rename = $token)] $variant,)+
        }

        impl Reason {
            /// Every reason, in the order of the reference.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable token.
            pub fn token(self) -> &'static str {
                match self { $(Self::$variant => $token,)+ }
            }

            /// What the sandbox is told: nothing that it did not say itself.
            pub fn public(self) -> &'static str {
                match self { $(Self::$variant => $public,)+ }
            }

            /// How it is answered.
            pub fn blame(self) -> Blame {
                match self { $(Self::$variant => Blame::$blame,)+ }
            }
        }
    };
}

reasons! {
    HostNotListed "host-not-listed" Policy "the host is not on the allowlist"
    PortNotListed "port-not-listed" Policy "the host is on the allowlist, with other ports"
    BinaryNotListed "binary-not-listed" Policy "the connecting program is not one of those that may connect"
    BinaryUnknown "binary-unknown" Policy "the connecting program cannot be told"
    BinaryAmbiguous "binary-ambiguous" Policy "several programs hold the connection"
    BinaryDeleted "binary-deleted" Policy "the connecting program's file was deleted or replaced"
    OwnUrl "own-url" Policy "the broker's own URL is served by a listener inside the sandbox, and in no other way"
    NeedsTermination "needs-termination" Policy "requests there must be judged one by one, and inside TLS they cannot be"
    MethodNotCovered "method-not-covered" Policy "the access of the entry does not cover the method"
    NotTls "not-tls" Policy "what is spoken is neither TLS nor plain HTTP; the entry is not for tcp"
    SniAbsent "sni-absent" Policy "the TLS hello names no server"
    SniMismatch "sni-mismatch" Policy "the TLS hello names another server than the target"
    SniUnexpected "sni-unexpected" Policy "the TLS hello names a server, and the target is an address"
    EncryptedHello "encrypted-hello" Policy "the TLS hello may hide the name of another server"
    HelloMalformed "hello-malformed" Policy "the TLS hello is malformed"
    HostMismatch "host-mismatch" Policy "the Host header names another server than the target"
    AddressPrivate "address-private" Policy "the name leads to a private address, and no exact entry of the manifest names it"
    AddressLoopback "address-loopback" Policy "the name leads to this host, and no entry names it literally"
    AddressLinkLocal "address-link-local" Policy "the name leads to a link-local address"
    AddressMetadata "address-metadata" Policy "the name leads to a cloud's metadata service"
    AddressReserved "address-reserved" Policy "the name leads to an address that nothing has"
    NotATarget "not-a-target" Policy "the address belongs to no name that was asked for"
    Canary "canary" Policy "the policy lets the canary through"
    HostInvalid "host-invalid" Request "the target's host is not in a form that is accepted"
    TargetInvalid "target-invalid" Request "the request's target is not in a form that is accepted"
    SchemeInvalid "scheme-invalid" Request "the scheme is none of http, https, ws, wss"
    HeadMalformed "head-malformed" Request "the request's head is malformed"
    FramingInvalid "framing-invalid" Request "the request's length is ambiguous or malformed"
    BodyMalformed "body-malformed" Request "the request's body is malformed"
    VersionInvalid "version-invalid" Request "the version is neither HTTP/1.0 nor HTTP/1.1"
    HeadTooLarge "head-too-large" TooLarge "the request's head is too large"
    CodingNotServed "coding-not-served" NotServed "the transfer coding is not served"
    BadToken "bad-token" Caller "the call does not carry the token of this turn"
    ToolsNotServed "tools-not-served" NotServed "no tools are served here"
    TooManyConnections "too-many-connections" Broker "too many connections are open"
    TooFast "too-fast" Pace "too many requests in a short time"
    TooManyBytes "too-many-bytes" Pace "the turn's bytes are spent"
    HeadLate "head-late" Late "the request's head did not arrive in time"
    HelloLate "hello-late" Late "nothing that can be judged arrived in time"
    Idle "idle" Late "nothing moved for too long"
    Aged "aged" Late "the tunnel reached its greatest age"
    Unresolved "unresolved" Upstream "the name does not resolve"
    Unreachable "unreachable" Upstream "no address of the name takes connections"
    DialLate "dial-late" UpstreamLate "no address of the name answered in time"
    ParentRefused "parent-refused" Upstream "the parent proxy refused"
    UpstreamMalformed "upstream-malformed" Upstream "the server's answer is malformed"
    UpstreamClosed "upstream-closed" Upstream "the server closed before its answer was whole"
    UpstreamLate "upstream-late" UpstreamLate "the server did not answer in time"
    NoDescriptors "no-descriptors" Broker "the broker has no descriptors left"
    AuditFull "audit-full" Broker "the turn's record is full, and nothing passes unrecorded"
    AuditFailed "audit-failed" Broker "the record cannot be written, and nothing passes unrecorded"
    Ending "ending" Broker "the turn is ending"
}

impl Reason {
    /// The status of an HTTP answer.
    pub fn status(self) -> u16 {
        self.blame().status()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn tokens_are_unique_plain_and_what_is_serialised() {
        let mut seen = HashSet::new();
        for reason in Reason::ALL {
            let token = reason.token();
            assert!(seen.insert(token), "{token}");
            assert!(token.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{token}");
            assert_eq!(serde_json::to_value(reason).unwrap(), token);
            assert!((400..=504).contains(&reason.status()), "{token}");
            assert!(!reason.public().contains(['"', '\\']), "{token}: goes into JSON as it is");
        }
    }
}

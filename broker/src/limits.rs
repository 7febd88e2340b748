//! Turns the numbers that bound a sandbox's traffic into one value with documented defaults.
//! It refuses to know where they were written.

use std::time::Duration;

use serde::{Deserialize, Serialize};

macro_rules! limits {
    ($($name:ident = $default:literal, $doc:literal;)+) => {
        /// What one sandbox may use during a turn. Times are milliseconds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Limits {
            $(#[doc = $doc] pub $name: u64,)+
        }

        impl Limits {
            /// Every key with its default and what it bounds.
            pub const KEYS: &'static [(&'static str, u64, &'static str)] = &[$((stringify!($name), $default, $doc)),+];
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }
    };
}

limits! {
    head_bytes = 32_768, "The most bytes of a request's or a response's head (`head-too-large`).";
    head_ms = 15_000, "How long a head may take to arrive once it has begun (`head-late`).";
    hello_ms = 15_000, "How long a tunnel may take to show a TLS hello (`hello-late`).";
    resolve_ms = 10_000, "How long a name may take to resolve (`unresolved`).";
    dial_ms = 15_000, "How long all addresses of a target together may take to answer (`dial-late`).";
    answer_ms = 900_000, "How long a server may take to begin its answer (`upstream-late`).";
    idle_ms = 900_000, "How long a connection may stand with nothing moving (`idle`). A stream has no other end.";
    age_ms = 86_400_000, "How long a tunnel may stand (`aged`).";
    connections = 512, "Connections from the sandbox at one time (`too-many-connections`).";
    requests_per_second = 500, "Decisions per second, in the long run (`too-fast`).";
    requests_burst = 2_000, "Decisions at once before the pace holds (`too-fast`).";
    bytes = 68_719_476_736, "Bytes in both directions during the turn (`too-many-bytes`).";
    tool_calls_per_second = 10, "Calls of each tool per second, in the long run.";
    tool_calls_burst = 60, "Calls of each tool at once before the pace holds.";
    tool_calls = 10_000, "Calls of tools that one broker answers.";
    records = 50_000, "Audit records of the turn (`audit-full`): nothing passes after the last one.";
}

impl Limits {
    /// A time as a duration.
    pub fn time(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A size as one of this machine.
    pub fn size(bytes: u64) -> usize {
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

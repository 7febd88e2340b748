//! Turns the numbers that bound a sandbox's traffic into one value with documented defaults and bounds.
//! It refuses to know where they were written.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Time,
    /// Bytes.
    Size,
    /// Things.
    Count,
}

/// One limit as it is documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The field of [`Limits`], and the key of a manifest.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// The smallest value, in the unit: with less the self-test could not be told from what it looks for.
    pub least: u64,
    /// The largest.
    pub most: u64,
    /// What holds where nothing is said.
    pub default: u64,
    /// The default as a manifest writes it.
    pub text: &'static str,
    /// What it bounds, and the reason of what it cuts.
    pub doc: &'static str,
}

macro_rules! limits {
    ($($name:ident: $unit:ident($least:expr, $most:expr) = $default:expr, $text:literal, $doc:literal;)+) => {
        /// What one sandbox may use during a turn. Times are milliseconds, sizes bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Limits {
            $(#[doc = $doc] pub $name: u64,)+
        }

        impl Limits {
            /// Every limit, in the order of the reference.
            pub const KEYS: &'static [Limit] = &[$(Limit {
                name: stringify!($name),
                unit: Unit::$unit,
                least: $least,
                most: $most,
                default: $default,
                text: $text,
                doc: $doc,
            }),+];

            /// The limits with those values that `value` has for their names.
            pub fn of(value: impl Fn(&str) -> Option<u64>) -> Self {
                Self { $($name: value(stringify!($name)).unwrap_or($default),)+ }
            }
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }
    };
}

const KIB: u64 = 1 << 10;
const TIB: u64 = 1 << 40;
const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

limits! {
    connections: Count(8, 65_536) = 512, "512", "Connections from the sandbox at one time (`too-many-connections`).";
    requests_per_second: Count(1, 1_000_000) = 500, "500", "Decisions per second, in the long run (`too-fast`).";
    requests_burst: Count(16, 1_000_000) = 2_000, "2000", "Decisions at once before the pace holds (`too-fast`).";
    bytes: Size(KIB, 1024 * TIB) = 64 << 30, "\"64G\"", "Bytes in both directions during the turn (`too-many-bytes`).";
    records: Count(16, 100_000_000) = 50_000, "50000", "Audit records of the turn (`audit-full`): nothing passes after the last one.";
    head_size: Size(KIB, 1024 * KIB) = 32 * KIB, "\"32K\"", "A request's or a response's head (`head-too-large`).";
    head_timeout: Time(100, HOUR) = 15 * SECOND, "\"15s\"", "How long a head may take to arrive once it has begun (`head-late`).";
    hello_timeout: Time(100, HOUR) = 15 * SECOND, "\"15s\"", "How long a tunnel may take to show a TLS hello (`hello-late`).";
    resolve_timeout: Time(100, HOUR) = 10 * SECOND, "\"10s\"", "How long a name may take to resolve (`unresolved`).";
    dial_timeout: Time(100, HOUR) = 15 * SECOND, "\"15s\"", "How long all addresses of a target together may take to answer (`dial-late`).";
    answer_timeout: Time(100, 30 * DAY) = HOUR / 4, "\"15m\"", "How long a server may take to begin its answer (`upstream-late`).";
    idle_timeout: Time(100, 30 * DAY) = HOUR / 4, "\"15m\"", "How long a connection may stand with nothing moving (`idle`). A stream has no other end.";
    age: Time(SECOND, 30 * DAY) = DAY, "\"24h\"", "How long a tunnel may stand (`aged`).";
    tool_calls_per_second: Count(1, 1_000_000) = 10, "10", "Calls of each tool per second, in the long run.";
    tool_calls_burst: Count(1, 1_000_000) = 60, "60", "Calls of each tool at once before the pace holds.";
    tool_calls: Count(1, 100_000_000) = 10_000, "10000", "Calls of tools that one broker answers.";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_bounds_and_names_find_their_fields() {
        for limit in Limits::KEYS {
            assert!((limit.least..=limit.most).contains(&limit.default), "{}", limit.name);
            let one = Limits::of(|name| (name == limit.name).then_some(limit.most));
            let value = serde_json::to_value(one).unwrap();
            assert_eq!(value[limit.name], limit.most, "{}", limit.name);
        }
        assert_eq!(Limits::of(|_| None), Limits::default());
    }
}

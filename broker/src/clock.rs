//! Turns the machine's clock into the times of records, and nothing else: the one place of the crate that reads it.
//! It refuses to know what the time is for.

/// Now, in RFC 3339 and UTC with microseconds.
pub(crate) fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

/// Now, in whole seconds since 1970.
pub(crate) fn unix() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0)
}

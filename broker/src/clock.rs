//! Turns the machine's clock into the times of records, and nothing else: the one place of the crate that reads it.
//! It refuses to know what the time is for.

/// Now, in RFC 3339 and UTC with microseconds.
pub(crate) fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

//! Turns the machine's clocks into timestamps and durations.
//! It refuses to know what is being timed: what decides gets `now` as a value.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// The wall clock, and a monotonic one that starts at zero when the value is made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
    before: Duration,
}

impl Clock {
    /// A clock whose monotonic side reads zero now.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub fn start() -> Clock {
        Clock { started: Instant::now(), before: Duration::ZERO }
    }

    /// This clock with its monotonic side put forward by what was counted before it was started.
    #[must_use]
    pub fn after(self, before: Duration) -> Clock {
        Clock { before, ..self }
    }

    /// The wall clock, UTC.
    pub fn now_utc(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Time since [`Clock::start`], and what was counted before. It never goes back, and wall-clock changes do not touch it.
    pub fn monotonic(&self) -> Duration {
        self.before.saturating_add(self.started.elapsed())
    }
}

/// RFC 3339 in UTC with milliseconds, `2026-01-02T03:04:05.678Z`: the form of `ts` in the log (N9).
pub fn rfc3339(at: Timestamp) -> String {
    format!("{at:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_exactly_three_digits_of_a_second() {
        for (nanos, expect) in [
            (1_767_323_045_678_000_000, "2026-01-02T03:04:05.678Z"),
            (1_767_323_045_000_000_000, "2026-01-02T03:04:05.000Z"),
            (1_767_323_045_678_999_999, "2026-01-02T03:04:05.678Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_nanosecond(nanos).unwrap()), expect);
        }
    }

    #[test]
    fn the_monotonic_side_never_goes_back() {
        let clock = Clock::start();
        let readings: Vec<_> = (0..100).map(|_| clock.monotonic()).collect();
        assert!(readings.is_sorted());
    }
}

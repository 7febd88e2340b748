//! Turns a pace and a burst into yes or no for the next decision.
//! It refuses to know what is decided.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

/// How fast decisions may follow each other.
#[derive(Debug)]
pub struct Rate {
    limiter: RateLimiter<NotKeyed, InMemoryState, Since, NoOpMiddleware<Duration>>,
}

/// Time since the pace began; the runtime's clock, which tests may stop.
#[derive(Clone, Debug)]
struct Since(Instant);

impl Clock for Since {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

impl Rate {
    /// So many per second in the long run, so many at once. Zero means one.
    pub fn new(per_second: u64, burst: u64) -> Self {
        let count = |number: u64| {
            u32::try_from(number).ok().and_then(NonZeroU32::new).unwrap_or(if number == 0 {
                NonZeroU32::MIN
            } else {
                NonZeroU32::MAX
            })
        };
        let quota = Quota::per_second(count(per_second)).allow_burst(count(burst));
        Self { limiter: RateLimiter::direct_with_clock(quota, Since(Instant::now())) }
    }

    /// Whether one more fits now.
    pub fn admits(&self) -> bool {
        self.limiter.check().is_ok()
    }
}

/// Something that is counted while it lives, up to a limit.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more, if there are fewer than `most`.
    pub fn enter(&self, most: u64) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < most).then_some(count + 1))
            .is_ok()
    }

    /// One less.
    pub fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds and tells the sum.
    pub fn add(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, Ordering::Relaxed).saturating_add(amount)
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_the_pace_holds() {
        let rate = Rate::new(10, 3);
        assert!((0..3).all(|_| rate.admits()));
        assert!(!rate.admits());
        tokio::time::advance(Duration::from_millis(110)).await;
        assert!(rate.admits());
        assert!(!rate.admits());
    }

    #[test]
    fn no_more_enter_than_may() {
        let count = Count::default();
        assert!(count.enter(2) && count.enter(2) && !count.enter(2));
        count.leave();
        assert!(count.enter(2));
    }
}

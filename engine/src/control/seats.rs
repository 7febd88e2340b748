//! Turns connections into at most so many clients: one more waits, and takes the place of the quietest (§7.1).
//! It refuses to know what they say. So nobody who only holds connections keeps an operator out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::sys::clock::Clock;

/// The clients that are served.
#[derive(Debug, Clone)]
pub struct Seats {
    room: Arc<Room>,
}

#[derive(Debug)]
struct Room {
    held: Mutex<Held>,
    freed: Notify,
    clock: Clock,
}

/// The places that are taken, as a value without a clock.
#[derive(Debug)]
struct Held {
    most: usize,
    /// How long a client may be quiet before another may have its place.
    quiet: Duration,
    places: BTreeMap<u64, Place>,
    count: u64,
}

#[derive(Debug)]
struct Place {
    /// Whether it may do anything: one that has not shown the token goes first.
    known: bool,
    /// Whether it follows the log, and is quiet with reason.
    follows: bool,
    /// When it was last heard of.
    heard: Duration,
    leave: CancellationToken,
}

/// A client's place. It is free again when this is dropped.
#[derive(Debug)]
pub struct Seat {
    number: u64,
    room: Arc<Room>,
    /// Says when the client must go.
    pub leave: CancellationToken,
}

impl Held {
    /// A place for one more, or how long to wait for one.
    fn take(&mut self, now: Duration, known: bool) -> Result<(u64, CancellationToken), Duration> {
        if self.places.len() >= self.most {
            let quietest =
                self.places.iter().min_by_key(|(_, place)| (place.known, place.follows, place.heard));
            let Some((number, place)) = quietest else { return Err(self.quiet) };
            let since = now.saturating_sub(place.heard);
            if since < self.quiet {
                return Err(self.quiet.saturating_sub(since));
            }
            place.leave.cancel();
            let number = *number;
            self.places.remove(&number);
        }
        self.count = self.count.saturating_add(1);
        let leave = CancellationToken::new();
        let place = Place { known, follows: false, heard: now, leave: leave.clone() };
        self.places.insert(self.count, place);
        Ok((self.count, leave))
    }
}

impl Room {
    fn locked(&self) -> MutexGuard<'_, Held> {
        // Nothing here can panic half-way, so what a poisoned lock guards is whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    /// So many seats, each for a client that is not `quiet` for longer while others wait.
    #[must_use]
    pub fn new(most: usize, quiet: Duration) -> Seats {
        let held = Held { most, quiet, places: BTreeMap::new(), count: 0 };
        Seats { room: Arc::new(Room { held: Mutex::new(held), freed: Notify::new(), clock: Clock::start() }) }
    }

    /// A seat for one more, `known` or not. It waits for one no longer than a client may be quiet.
    pub async fn take(&self, known: bool) -> Seat {
        loop {
            let now = self.room.clock.monotonic();
            let taken = self.room.locked().take(now, known);
            match taken {
                Ok((number, leave)) => return Seat { number, room: self.room.clone(), leave },
                Err(wait) => {
                    let _ = tokio::time::timeout(wait, self.room.freed.notified()).await;
                }
            }
        }
    }
}

impl Seat {
    /// The client did something.
    pub fn heard(&self) {
        self.with(|_| {});
    }

    /// The client has shown who it is.
    pub fn known(&self) {
        self.with(|place| place.known = true);
    }

    /// The client follows the log from here on.
    pub fn follows(&self) {
        self.with(|place| place.follows = true);
    }

    fn with(&self, change: impl FnOnce(&mut Place)) {
        let now = self.room.clock.monotonic();
        if let Some(place) = self.room.locked().places.get_mut(&self.number) {
            place.heard = now;
            change(place);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.locked().places.remove(&self.number);
        self.room.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quietest_goes_first_and_only_who_was_quiet_for_long() {
        let secs = Duration::from_secs;
        let mut held = Held { most: 3, quiet: secs(5), places: BTreeMap::new(), count: 0 };
        let (follower, leave) = held.take(secs(0), true).unwrap();
        held.places.get_mut(&follower).unwrap().follows = true;
        let (_, quiet) = held.take(secs(1), true).unwrap();
        let (_, loud) = held.take(secs(4), true).unwrap();
        assert_eq!(held.take(secs(5), true).unwrap_err(), secs(1), "the second one has a second left");
        let (fourth, _) = held.take(secs(6), true).unwrap();
        assert!(quiet.is_cancelled() && !loud.is_cancelled());
        held.places.get_mut(&fourth).unwrap().heard = secs(20);
        let (_, stranger) = held.take(secs(20), false).unwrap();
        assert!(loud.is_cancelled());
        let (_, _) = held.take(secs(26), true).unwrap();
        assert!(stranger.is_cancelled(), "a stranger goes before who was heard of earlier");
        assert!(!leave.is_cancelled(), "who follows goes last");
    }

    #[tokio::test]
    async fn a_seat_that_is_given_back_is_had_at_once() {
        let seats = Seats::new(1, Duration::from_secs(3600));
        let first = seats.take(true).await;
        let waiting = tokio::spawn({
            let seats = seats.clone();
            async move { seats.take(true).await }
        });
        tokio::task::yield_now().await;
        drop(first);
        waiting.await.unwrap();
    }
}

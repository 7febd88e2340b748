//! Turns what a client may cost the run into numbers.
//! It refuses to know who spends them.

use std::time::Duration;

/// The longest line of a client, in bytes.
pub const LINE_MAX: usize = 64 * 1024;
/// How many clients are served at once. One more takes the place of the one that has been quiet for longest.
pub const CLIENTS_MAX: usize = 64;
/// How long a client may be quiet while others wait for its place.
pub const QUIET: Duration = Duration::from_millis(200);
/// How many lines of one connection may be no request.
pub const FAULTS_MAX: u32 = 8;
/// How long a client may take for its next line.
pub const IDLE: Duration = Duration::from_secs(60);
/// How long a client over TCP may take to show the token.
pub const AUTH: Duration = Duration::from_secs(5);
/// How long a client may take to read a piece of what is sent to it.
pub const SLOW: Duration = Duration::from_secs(5);
/// How much of a log is read and sent at once, in bytes. It is all that a slow client keeps in memory.
pub const PIECE: usize = 32 * 1024;
/// How long clients may take for the last lines, when the run is over.
pub const GRACE: Duration = Duration::from_millis(250);
/// How long nobody is let in when the system has no descriptor left.
pub const EXHAUSTED: Duration = Duration::from_millis(100);

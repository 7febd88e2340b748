//! Turns lines that operators send into admitted inputs, and a run into status and lines for them (contract §7.1).
//! It refuses to know how the loop works, and the loop never waits for it.

pub mod conversation;
pub mod desk;
pub mod dial;
pub mod follow;
pub mod limits;
pub mod protocol;
pub mod seats;
pub mod server;
pub mod status;

pub use desk::{Arrival, Office};
pub use dial::{Dial, DialError};
pub use protocol::Reply;
pub use server::{ADMISSIONS_FILE, Config, Control, ControlError, SOCKET_FILE};
pub use status::Status;

#[cfg(test)]
mod tests;

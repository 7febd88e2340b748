//! Turns a wanted write into a permit with a durable count, or a refusal with a row of the session log (contract §1.9).
//! It refuses to know how anything is written: what writes takes a [`Permit`], and only [`Gate`] makes one.

mod admit;
mod durable;
pub mod outbox;
mod resume;

pub use self::admit::{Admitted, Denied, Gate, Opened, Permit, Wanted};
pub use self::durable::{Durable, Points};
pub use self::resume::{ResumeError, read};

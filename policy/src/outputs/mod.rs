//! Turns what a pack declares about its writes into bounds, and a wanted write into an admission or a refusal (contract §1.9, N4).
//! It refuses to know files, sockets and clocks: counts come in as numbers and go out as numbers.

mod bounds;
mod kind;
mod ledger;
mod reason;
mod target;

pub use bounds::{
    Admission, Bound, Declaration, DeclareError, Declared, Document, DocumentError, Outputs, Refusal,
    RunContext, Source, VERSION,
};
pub use kind::{Addresses, Kind};
pub use ledger::{Call, Ended, Entry, Intent, Known, Ledger, LedgerError, Outcome};
pub use reason::Refused;
pub use target::{OPERATOR, Scope, ScopeError, Target, address};

#[cfg(test)]
mod tests;

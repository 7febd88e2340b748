//! Turns what a manifest asks for into the one list of what can be reached, and a target into a verdict (contract §6.1).
//! It refuses to know how a connection is made.

mod binary;
mod compare;
mod decide;
mod defaults;
mod disclose;
mod explain;
mod index;
mod lint;
mod resolve;

pub use binary::{Binaries, BinaryPath, BinaryPathError, Caller, Process};
pub use compare::Gains;
pub use decide::{Ask, Carry, Denial, Grant, Way, address};
pub use defaults::{BINARIES as BUILTIN_BINARIES, Builtin, ENDPOINTS as BUILTIN_ENDPOINTS};
pub use disclose::{Disclosed, disclosed};
pub use explain::{Explanation, Wonder};
pub use lint::{Lint, LintKind, lints, rendered};
pub(crate) use resolve::hex;
pub use resolve::{
    BrokerUrl, BrokerUrlError, Declared, Document, DocumentError, Egress, Entry, Plumbing, Source,
};

#[cfg(test)]
mod tests;

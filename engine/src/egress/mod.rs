//! Turns sandboxes' sockets into ones that the broker answers on, started, watched and tried by this process (contract §6.1).
//! It refuses to know runs and manifests: a run has one broker, and so has a gateway on its own.

mod broker;
mod launch;
mod tokens;
mod trial;

pub use self::broker::{Broker, DEATHS_MAX, EgressError, Standing};
pub use self::launch::launch;
pub use self::tokens::Tokens;
pub use self::trial::{Canary, TrialError, try_canary};

/// The record of what sandboxes asked for, in a state directory.
pub const AUDIT_FILE: &str = "egress.jsonl";
/// The turn of the self-test, which is the engine's own.
pub const SELF_TEST: &str = "self-test";

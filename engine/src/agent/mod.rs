//! Turns a goal, a method and the state of a run into a prompt, and a prompt into edits of the workspace
//! (contract §6). It refuses to know the judge.

pub mod called;
pub mod harness;
pub mod marker;
pub mod output;
pub mod prompt;
pub mod relay;
pub mod results;
pub mod sandbox;
pub mod session;
pub mod status;
pub mod task;
pub mod toolbox;
pub mod tools;
pub mod turn;
pub mod usage;

pub use called::Called;
pub use marker::{Escalation, Markers};
pub use output::with_last_line;
pub use prompt::{Template, Values, delta, first};
pub use results::Results;
pub use sandbox::SandboxTurn;
pub use session::{SessionName, Sessions};
pub use status::{Brief, Recent};
pub use task::Upstream;
pub use toolbox::Settings;
pub use turn::{HostTurn, TurnError, TurnTerms, Turned};
pub use usage::{Usage, Usd};

/// The private directory of agents' tools in a state directory.
pub const PRIVATE: &str = "agent";

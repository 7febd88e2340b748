//! Turns a goal, a method and the state of a run into a prompt, and a prompt into edits of the workspace
//! (contract §6). It refuses to know the judge.

pub mod prompt;
pub mod status;

pub use prompt::Template;
pub use status::{Brief, Recent};

//! Turns the calls of an agent into admitted writes and reads of the systems that the operator configured.
//! It refuses to know how calls arrive.

mod call;
mod chat;
mod fault;
mod fetch;
mod image;
mod layer;
mod registry;
mod table;
mod tracker;

pub use self::call::{Reply, Tools, send};
pub use self::fault::{Fault, Trouble};
pub use self::fetch::Fetcher;
pub(crate) use self::table::hex;
pub use self::table::{Arguments, BadArguments, Fitting, LayerFile, TABLE, Tool, tool};

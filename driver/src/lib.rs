//! Turns an agent turn into calls of OpenShell's gateway API, and answers them with Linux namespaces.
//! It refuses to know judges, loops and prompts.
//!
//! ```text
//! turn::TurnSpec ─> turn::run ─> client::Client ──gRPC──> gateway::service ─> gateway::sandbox
//!                       ^                                                          │
//!                       └── turn::TurnEnd <── transfer: the changed files <────────┘
//! ```

pub mod client;
pub mod error;
pub mod exec;
pub mod gateway;
pub mod limits;
pub mod network;
pub(crate) mod transfer;
pub mod trial;
pub mod trust;
pub mod turn;
pub mod wire;

pub use client::Client;
pub use error::{Step, TransportClass, TurnError};
pub use gateway::{Gateway, GatewayConfig, GatewayError, ServeConfig};
pub use limits::Limits;
pub use network::{Network, Outlets};

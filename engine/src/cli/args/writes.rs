//! Turns the command line of `tool` and `outbox` into values. It refuses to know what they do.

use clap::{Args, Subcommand};

use super::StateArgs;

/// What `crucible tool` can do, in a sandbox.
#[derive(Debug, Subcommand)]
pub enum ToolCommand {
    /// List the tools that this turn is granted, with their arguments
    List {
        /// Print them as JSON, with the schemas of their arguments
        #[arg(long)]
        json: bool,
    },
    /// Call a tool, and print its answer as JSON
    Call(ToolCallArgs),
}

/// The options of `tool call`.
#[derive(Debug, Args)]
pub struct ToolCallArgs {
    /// The tool
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The arguments, a JSON object; `-` reads them from standard input
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub json: String,
}

/// What `crucible outbox` can do.
#[derive(Debug, Subcommand)]
pub enum OutboxCommand {
    /// List the writes that wait to be sent, and what became of the others
    List {
        /// Where the run's state is.
        #[command(flatten)]
        state: StateArgs,
        /// Print them as a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show one write whole, as JSON
    Show {
        /// Which.
        #[command(flatten)]
        which: OutboxWhich,
    },
    /// Send one write to its system, once
    Send {
        /// Which.
        #[command(flatten)]
        which: OutboxWhich,
    },
    /// Decide against a write
    Drop {
        /// Which.
        #[command(flatten)]
        which: OutboxWhich,
    },
}

/// One write of an outbox.
#[derive(Debug, Clone, Args)]
pub struct OutboxWhich {
    /// The number of the write, as `outbox list` shows it
    #[arg(value_name = "ID")]
    pub id: u64,
    /// Where the run's state is.
    #[command(flatten)]
    pub state: StateArgs,
}

//! Turns an operator's options into values. It refuses to know what they do.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::args::{StateArgs, duration};

/// Where the run is.
#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// Where its state is.
    #[command(flatten)]
    pub state: StateArgs,
    /// The address of a run that was started with --control-addr, in place of its state directory
    #[arg(long, value_name = "ADDRESS:PORT", requires = "control_token_file")]
    pub control_addr: Option<SocketAddr>,
    /// A file with that run's token in its first line
    #[arg(long, value_name = "PATH", requires = "control_addr")]
    pub control_token_file: Option<PathBuf>,
    /// Print JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// What every input has.
#[derive(Debug, Clone, Args)]
pub struct InputArgs {
    /// Where the run is.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// A name for this input: given twice, it acts once
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
}

/// The options of `status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Where the run is.
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// The options of `tail`.
#[derive(Debug, Clone, Args)]
pub struct TailArgs {
    /// Where the run is.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The sequence number of the first line [default: that of the last line but nine]
    #[arg(long, value_name = "SEQ")]
    pub from: Option<u64>,
    /// Go on with the lines to come, until the run is over
    #[arg(short, long)]
    pub follow: bool,
}

/// The options of `steer`.
#[derive(Debug, Clone, Args)]
pub struct SteerArgs {
    /// What to say; `-` reads it from standard input
    #[arg(value_name = "TEXT")]
    pub text: String,
    /// What every input has.
    #[command(flatten)]
    pub input: InputArgs,
}

/// The options of `budget`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("ceiling").required(true).multiple(true))]
pub struct BudgetArgs {
    /// What the whole run may cost, in US dollars
    #[arg(long, value_name = "USD", group = "ceiling")]
    pub max_cost: Option<f64>,
    /// How long the whole run may take, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration, group = "ceiling")]
    pub max_time: Option<Duration>,
    /// How many iterations may run after the baseline
    #[arg(long, value_name = "N", group = "ceiling")]
    pub iterations: Option<u32>,
    /// What every input has.
    #[command(flatten)]
    pub input: InputArgs,
}

/// The options of `approve`.
#[derive(Debug, Clone, Args)]
pub struct ApproveArgs {
    /// The handle that is granted [default: whichever is asked for]
    #[arg(long, value_name = "HANDLE")]
    pub handle: Option<String>,
    /// A label for what is measured from then on [default: the handle]
    #[arg(long, value_name = "LABEL")]
    pub regime: Option<String>,
    /// What every input has.
    #[command(flatten)]
    pub input: InputArgs,
}

/// The options of `deny`.
#[derive(Debug, Clone, Args)]
pub struct DenyArgs {
    /// The handle that is refused [default: whichever is asked for]
    #[arg(long, value_name = "HANDLE")]
    pub handle: Option<String>,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// What every input has.
    #[command(flatten)]
    pub input: InputArgs,
}

/// The options of `rescope`.
#[derive(Debug, Clone, Args)]
pub struct RescopeArgs {
    /// A label for what is measured from then on, such as `c=48`
    #[arg(value_name = "REGIME")]
    pub regime: String,
    /// What every input has.
    #[command(flatten)]
    pub input: InputArgs,
}

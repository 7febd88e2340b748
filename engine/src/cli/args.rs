//! Turns the command line into values. It refuses to know what they do.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use super::operator::args::{
    ApproveArgs, BudgetArgs, DenyArgs, InputArgs, RescopeArgs, StatusArgs, SteerArgs, TailArgs,
};
use crate::manifest::ParamName;
use crate::report::Ui;
use crate::score::Direction;

mod writes;

pub use writes::{OutboxCommand, OutboxWhich, ToolCallArgs, ToolCommand};

/// Lets a coding agent improve a codebase in a loop: it proposes, a frozen judge measures, the engine keeps or discards.
#[derive(Debug, Parser)]
#[command(name = "crucible", version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Cli {
    /// A run, when no subcommand is given.
    #[command(flatten)]
    pub run: RunArgs,
    /// What to do instead of a run.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What `crucible` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the loop (what `crucible` does without a subcommand)
    Run(Box<RunArgs>),
    /// Write a manifest, a judge, a method and an agent that run as they are
    Init(InitArgs),
    /// Resolve every file of a pack, print what was found, and measure once in a scratch workspace
    Check(CheckArgs),
    /// Tell what a pack plans, without running any of it
    Plan {
        /// What to tell.
        #[command(subcommand)]
        command: PlanCommand,
    },
    /// Print the JSON Schema of the manifest
    Schema,
    /// Serve sandboxes to other programs over OpenShell's gateway API
    Gateway {
        /// What to do with it.
        #[command(subcommand)]
        command: GatewayCommand,
    },
    /// Explain what a sandbox may reach
    Egress {
        /// What to explain.
        #[command(subcommand)]
        command: EgressCommand,
    },
    /// Show what the sandboxes of a run tried to reach and to write, and what they were denied
    Audit(AuditArgs),
    /// Decide every keep of a session log again, and print the first line that does not follow
    Replay(ReplayArgs),
    /// Tell which harnesses, models, credentials and sandboxes a run would find here, and what each lacks
    Doctor(DoctorArgs),
    /// Review the writes that no configured system took, and send or drop them
    Outbox {
        /// What to do with them.
        #[command(subcommand)]
        command: OutboxCommand,
    },
    /// Call the broker's tools from a script in a sandbox
    Tool {
        /// What to do.
        #[command(subcommand)]
        command: ToolCommand,
    },
    /// Show where a run stands
    Status(StatusArgs),
    /// Show the lines of a run's session log
    Tail(TailArgs),
    /// Say something to the agent: it stands in the prompt of the next turn
    Steer(SteerArgs),
    /// Begin no further iteration until `resume`
    Pause(InputArgs),
    /// Go on after `pause`
    Resume(InputArgs),
    /// End the run after the running iteration
    Stop(InputArgs),
    /// End the run now, and put the workspace back
    Abort(InputArgs),
    /// Set other ceilings
    Budget(BudgetArgs),
    /// Grant what the agent asked for
    Approve(ApproveArgs),
    /// Refuse what the agent asked for
    Deny(DenyArgs),
    /// Measure in another regime from the next iteration on, against a new baseline
    Rescope(RescopeArgs),
    /// Print completions for a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Everything else: parts of the contract that this build does not have, and misspellings.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// What `crucible gateway` can do.
#[derive(Debug, Subcommand)]
pub enum GatewayCommand {
    /// Serve until SIGINT or SIGTERM
    Serve(ServeArgs),
}

/// What `crucible egress` can do.
#[derive(Debug, Subcommand)]
pub enum EgressCommand {
    /// Tell whether a URL can be reached, which entry decides, and which line of the manifest would change it
    Explain(ExplainArgs),
}

/// The options of `egress explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// `http[s]://host[:port]/…`, or `host:port`
    #[arg(value_name = "URL")]
    pub url: String,
    /// The method of a request over plain HTTP [default: GET]
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// The program that connects, as a path in the sandbox [default: one that is listed]
    #[arg(long, value_name = "PATH")]
    pub binary: Option<String>,
    /// Where the manifest is.
    #[command(flatten)]
    pub manifest: ManifestArg,
}

/// The options of `audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Where the run's state is.
    #[command(flatten)]
    pub state: StateArgs,
    /// Prove that no record is missing, altered or out of order, and show none
    #[arg(long)]
    pub verify: bool,
    /// Show the writes instead: what was written, staged, sent and refused, and the counts against their bounds
    #[arg(long, conflicts_with_all = ["csv", "verify", "denied", "allowed", "turn", "host", "reason", "binary"])]
    pub writes: bool,
    /// Show the records as a JSON array
    #[arg(long, conflicts_with_all = ["csv", "verify"])]
    pub json: bool,
    /// Show the records as CSV
    #[arg(long, conflicts_with = "verify")]
    pub csv: bool,
    /// Only what was denied
    #[arg(long, conflicts_with = "allowed")]
    pub denied: bool,
    /// Only what was allowed
    #[arg(long)]
    pub allowed: bool,
    /// Only this turn, such as `turn-3` or `self-test`
    #[arg(long, value_name = "TURN")]
    pub turn: Option<String>,
    /// Only targets that contain this
    #[arg(long, value_name = "TEXT")]
    pub host: Option<String>,
    /// Only this reason, such as `host-not-listed`
    #[arg(long, value_name = "REASON")]
    pub reason: Option<String>,
    /// Only programs whose path contains this
    #[arg(long, value_name = "TEXT")]
    pub binary: Option<String>,
}

/// The options of `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The session log [default: `session.jsonl` of the run]
    #[arg(value_name = "LOG", conflicts_with_all = ["manifest", "state_dir"])]
    pub log: Option<PathBuf>,
    /// Where the run is.
    #[command(flatten)]
    pub state: StateArgs,
    /// The engine's repository of the run, in which each commit must be [default: `git` beside the log, where it is]
    #[arg(long, value_name = "DIR")]
    pub git: Option<PathBuf>,
    /// Which way scores get better, for a log that does not say
    #[arg(long, value_name = "lower|higher")]
    pub direction: Option<Direction>,
}

/// The options of `gateway serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// A directory of this gateway alone, for its socket and what its sandboxes write
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,
    /// Where to listen [default: `gateway/socket` in the state directory]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// A loopback address to listen on as well; every caller there must have the token
    #[arg(long, value_name = "ADDRESS:PORT", requires = "token_file")]
    pub tcp: Option<SocketAddr>,
    /// A file with the bearer token in its first line
    #[arg(long, value_name = "PATH")]
    pub token_file: Option<PathBuf>,
}

/// Where the manifest is.
#[derive(Debug, Clone, Args)]
pub struct ManifestArg {
    /// The manifest to read
    #[arg(long, value_name = "PATH", default_value = "crucible.toml")]
    pub manifest: PathBuf,
}

/// Where the state of a run is.
#[derive(Debug, Clone, Args)]
pub struct StateArgs {
    /// The manifest of the run.
    #[command(flatten)]
    pub manifest: ManifestArg,
    /// The state directory of the run, or of one that was put away [default: `state` beside the manifest]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// The options of a run.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Where the manifest is.
    #[command(flatten)]
    pub manifest: ManifestArg,
    /// How many iterations may run after the baseline [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,
    /// The wall-clock ceiling, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_time: Option<Duration>,
    /// The goal, in place of the manifest's
    #[arg(long, value_name = "TEXT", conflicts_with = "goal_file")]
    pub goal: Option<String>,
    /// A file with the goal, in place of the manifest's
    #[arg(long, value_name = "PATH")]
    pub goal_file: Option<PathBuf>,
    /// Where the run keeps its state [default: `state` beside the manifest]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The cost ceiling in US dollars, as far as turns say what they cost
    #[arg(long, value_name = "USD")]
    pub max_cost: Option<f64>,
    /// Go on with the run that is in the state directory, however it ended; what it was given stands
    #[arg(long, conflicts_with = "fresh")]
    pub resume: bool,
    /// Archive an unfinished run and start a new one
    #[arg(long)]
    pub fresh: bool,
    /// A file to steer by: what is written there stands in the next prompt [default: `STEER.md` beside the manifest]
    #[arg(long, value_name = "PATH")]
    pub steer: Option<PathBuf>,
    /// How long to wait for an answer to what the agent asks for [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_park: Option<Duration>,
    /// A loopback address to hear operators at, besides the socket in the state directory
    #[arg(long, value_name = "ADDRESS:PORT", requires = "control_token_file")]
    pub control_addr: Option<SocketAddr>,
    /// A file whose first line is the token that they must show there
    #[arg(long, value_name = "PATH", requires = "control_addr")]
    pub control_token_file: Option<PathBuf>,
    /// How to tell what happens: auto, stream or headless
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub ui: Ui,
    /// Print the report as JSON on standard output at the end
    #[arg(long)]
    pub json: bool,
    /// What the run is for.
    #[command(flatten)]
    pub purpose: PurposeArgs,
    /// Options of the contract that this build does not have.
    #[command(flatten)]
    pub absent: AbsentArgs,
}

/// What a run is for, and on what terms.
#[derive(Debug, Clone, Default, Args)]
pub struct PurposeArgs {
    /// A parameter of the run, which a target of `[outputs]` may be bound to; may be repeated
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = param)]
    pub params: Vec<(ParamName, String)>,
    /// The tracker item that the run is for: PROJECT-NUMBER or owner/repo#number
    #[arg(long, value_name = "ITEM")]
    pub item: Option<String>,
    /// Take a pack with `inherit_defaults = false` on a backend that cannot enforce it
    #[arg(long)]
    pub unenforced_egress: bool,
}

/// Options of the contract that this build does not have: known, so that they are refused by name.
#[derive(Debug, Clone, Args)]
pub struct AbsentArgs {
    #[arg(long, hide = true, value_name = "N")]
    wide: Option<String>,
    #[arg(long, hide = true, value_name = "K")]
    wide_keep: Option<String>,
}

impl AbsentArgs {
    /// The first one that was given.
    #[must_use]
    pub fn given(&self) -> Option<&'static str> {
        let given = [("--wide", self.wide.is_some()), ("--wide-keep", self.wide_keep.is_some())];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}

/// The options of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The directory to write into
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
}

/// The options of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Where the manifest is.
    #[command(flatten)]
    pub manifest: ManifestArg,
    /// Run nothing of the pack
    #[arg(long)]
    pub no_run: bool,
    /// Print the findings as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// What the run would be for.
    #[command(flatten)]
    pub purpose: PurposeArgs,
}

/// What `crucible plan` can do.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Print what a run may write to the outside and what its agent may reach, as JSON; nothing of the pack is run
    Exposure(ExposureArgs),
    /// Everything else: parts of the contract that this build does not have, and misspellings.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// The options of `plan exposure`.
#[derive(Debug, Args)]
pub struct ExposureArgs {
    /// Where the manifest is.
    #[command(flatten)]
    pub manifest: ManifestArg,
    /// Tell instead what is added and dropped since an exposure that was printed before; exits with 15 where it widens
    #[arg(long, value_name = "OLD.json")]
    pub diff: Option<PathBuf>,
    /// Print the differences as JSON
    #[arg(long, requires = "diff")]
    pub json: bool,
    /// Print the JSON Schema of the exposure instead
    #[arg(long, conflicts_with_all = ["diff", "manifest", "params", "item", "unenforced_egress"])]
    pub schema: bool,
    /// What the run would be for.
    #[command(flatten)]
    pub purpose: PurposeArgs,
}

/// The options of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A pack: what it needs must be there, or the exit code says so
    #[arg(long, value_name = "PATH")]
    pub manifest: Option<PathBuf>,
    /// Print what was found as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Subcommands of the contract that this build does not have.
pub const ABSENT_COMMANDS: [&str; 4] = ["scope", "ps", "deploy", "watch-pr"];

/// Subcommands of `plan` that this build does not have.
pub const ABSENT_PLANS: [&str; 2] = ["run", "compile-workflow"];

/// Subcommands of `plan` that this build has.
pub const PLANS: [&str; 1] = ["exposure"];

/// Subcommands that this build has.
pub const COMMANDS: [&str; 24] = [
    "run",
    "init",
    "check",
    "plan",
    "gateway",
    "schema",
    "egress",
    "audit",
    "outbox",
    "tool",
    "replay",
    "doctor",
    "status",
    "tail",
    "steer",
    "pause",
    "resume",
    "stop",
    "abort",
    "budget",
    "approve",
    "deny",
    "rescope",
    "completions",
];

/// A name and a value, which may hold anything that a line can.
fn param(text: &str) -> Result<(ParamName, String), String> {
    const MOST: usize = 4096;
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let name = ParamName::parse(name).map_err(|error| error.to_string())?;
    if value.len() > MOST || value.chars().any(char::is_control) {
        return Err(format!("a value is one line of at most {MOST} bytes"));
    }
    Ok((name, value.to_owned()))
}

/// A duration in the friendly format, longer than nothing.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "not a duration: write 90s, 10m or 1h30m".to_owned())?;
    match Duration::try_from(parsed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be longer than nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_parameter_has_a_name_and_a_value() {
        let read = |text: &str| param(text).map(|(name, value)| format!("{name} {value}"));
        for (text, expect) in [("a=b", "a b"), ("_A-1=", "_A-1 "), ("a=b=c", "a b=c")] {
            assert_eq!(read(text).as_deref(), Ok(expect), "{text}");
        }
        for text in ["a", "=b", "1a=b", "a b=c", "a=b\nc", "ä=b"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_ceiling_is_longer_than_nothing() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        for text in ["0s", "-5s", "10", "", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}

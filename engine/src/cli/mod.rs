//! Turns arguments into a command, and its result into text and an exit code (contract §9).
//! It refuses to know how a run works.

pub mod args;
pub mod audit;
mod bases;
pub mod check;
mod controls;
mod described;
pub mod doctor;
pub mod egress;
pub mod error;
pub mod exit;
pub mod exposure;
pub mod gateway;
pub mod init;
mod judged;
pub mod operator;
pub mod outbox;
pub mod replay;
mod resumed;
pub mod run;
pub mod tool;
mod writes;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use policy::diag::did_you_mean;

use args::{ABSENT_COMMANDS, ABSENT_PLANS, COMMANDS, PLANS};
use args::{Cli, Command, EgressCommand, GatewayCommand, PlanCommand};
use error::{CliError, render};
use exit::Exit;

/// Parses the arguments of this process and does what they ask for.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        None => run::run(&cli.run),
        Some(command) => other(command),
    };
    let exit = done.unwrap_or_else(|error| {
        complain(&render(&error));
        error.exit()
    });
    ExitCode::from(exit.code())
}

fn other(command: Command) -> Result<Exit, CliError> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Init(args) => {
            let dir = error::absolute(&args.dir)?;
            let mut text = String::new();
            for path in init::init(&dir)? {
                text.push_str(&format!("wrote {}\n", path.display()));
            }
            let manifest = dir.join("crucible.toml");
            text.push_str(&format!("next: crucible check --manifest {}\n", manifest.display()));
            run::print(&text)?;
            Ok(Exit::Ok)
        }
        Command::Check(args) => check::check(&args),
        Command::Gateway { command: GatewayCommand::Serve(args) } => gateway::serve(&args),
        Command::Egress { command: EgressCommand::Explain(args) } => egress::explain(&args),
        Command::Plan { command: PlanCommand::Exposure(args) } => exposure::exposure(&args),
        Command::Plan { command: PlanCommand::Other(words) } => {
            let word = words.into_iter().next().unwrap_or_default();
            Err(unknown("plan ", &word, &ABSENT_PLANS, &PLANS))
        }
        Command::Audit(args) => audit::audit(&args),
        Command::Outbox { command } => outbox::outbox(&command),
        Command::Tool { command } => tool::tool(&command),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Status(args) => operator::status::status(&args),
        Command::Tail(args) => operator::tail::tail(&args),
        Command::Steer(args) => operator::send::steer(&args),
        Command::Pause(args) => operator::send::bare("pause", &args),
        Command::Resume(args) => operator::send::bare("resume", &args),
        Command::Stop(args) => operator::send::bare("stop", &args),
        Command::Abort(args) => operator::send::bare("abort", &args),
        Command::Budget(args) => operator::send::budget(&args),
        Command::Approve(args) => operator::send::approve(&args),
        Command::Deny(args) => operator::send::deny(&args),
        Command::Rescope(args) => operator::send::rescope(&args),
        Command::Schema => {
            run::print(&format!("{:#}\n", crate::manifest::schema()))?;
            Ok(Exit::Ok)
        }
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "crucible", &mut text);
            run::print(&String::from_utf8_lossy(&text))?;
            Ok(Exit::Ok)
        }
        Command::Other(words) => {
            Err(unknown("", &words.into_iter().next().unwrap_or_default(), &ABSENT_COMMANDS, &COMMANDS))
        }
    }
}

/// A word below `crucible` or below the subcommand `under`.
fn unknown(under: &str, word: &str, absent: &[&str], known: &[&'static str]) -> CliError {
    if absent.contains(&word) {
        return CliError::Absent(format!("`crucible {under}{word}`"));
    }
    let near = did_you_mean(word, known.iter().copied()).map(|near| format!("{under}{near}"));
    CliError::Unknown { word: format!("{under}{word}"), near }
}

/// Writes to standard error, which may be gone.
fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
}

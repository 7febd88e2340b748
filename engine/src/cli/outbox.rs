//! Turns the writes that wait in an outbox into what a person reads, and one of them into one sending (`outbox`).
//! It refuses to send anything twice.

use std::path::PathBuf;

use broker::limits::Limits;
use broker::outside::Host;
use broker::tools::{Fetcher, send, tool};
use broker::writes::outbox::{Claim, Staged, Standing, discard, list, show};
use policy::no_proxy::NoProxy;
use policy::outputs::Outcome;

use super::args::{OutboxCommand, OutboxWhich, StateArgs};
use super::error::{CliError, absolute};
use super::exit::Exit;
use super::resumed::state_of;
use super::run::{load, print, runtime};
use crate::plan::{Overrides, RunPlan};
use crate::report::plain;
use crate::run::begin::RunError;
use crate::run::mediate::{shown, systems};
use crate::run::statedir::OUTBOX;
use crate::sys::env::Environment;

/// Lists, shows, sends or drops.
///
/// # Errors
/// A write that is not there or not waiting any more, and one that could not be sent.
pub fn outbox(command: &OutboxCommand) -> Result<Exit, CliError> {
    match command {
        OutboxCommand::List { state, json } => {
            let all = list(&place(state)?).map_err(CliError::Outbox)?;
            let encode =
                |error: serde_json::Error| CliError::Io { doing: "encode the outbox", source: error.into() };
            if *json {
                let all: Vec<_> = all
                    .iter()
                    .map(|(standing, staged)| serde_json::json!({ "standing": standing, "write": staged }))
                    .collect();
                print(&format!("{}\n", serde_json::to_string_pretty(&all).map_err(encode)?))?;
            } else {
                print(&all.iter().map(|(standing, staged)| line(*standing, staged)).collect::<String>())?;
            }
        }
        OutboxCommand::Show { which } => {
            let (_, staged) = show(&place(&which.state)?, which.id).map_err(CliError::Outbox)?;
            let text = serde_json::to_string_pretty(&staged);
            let text =
                text.map_err(|error| CliError::Io { doing: "encode the write", source: error.into() })?;
            print(&format!("{text}\n"))?;
        }
        OutboxCommand::Send { which } => send_one(which)?,
        OutboxCommand::Drop { which } => {
            discard(&place(&which.state)?, which.id).map_err(CliError::Outbox)?;
            print(&format!("dropped write {}\n", which.id))?;
        }
    }
    Ok(Exit::Ok)
}

fn place(state: &StateArgs) -> Result<PathBuf, CliError> {
    Ok(state_of(state)?.join(OUTBOX))
}

fn line(standing: Standing, staged: &Staged) -> String {
    let standing = match standing {
        Standing::Waiting => "waiting",
        Standing::Sending => "sending, outcome unknown",
        Standing::Sent => "sent",
        Standing::Dropped => "dropped",
    };
    let intent = &staged.intent;
    let target = plain(intent.target.as_deref().unwrap_or("-"));
    format!(
        "{:>6}  {:<16} {target:<24} {:<10} {standing}\n",
        intent.id,
        intent.output.token(),
        plain(&intent.turn)
    )
}

/// Claims the write on the disk, sends it, and says there how it ended. What may have arrived stays claimed.
fn send_one(which: &OutboxWhich) -> Result<(), CliError> {
    let (outbox, env, runtime) = (place(&which.state)?, Environment::of_this_process(), runtime()?);
    let (_, staged) = show(&outbox, which.id).map_err(CliError::Outbox)?;
    let pack = load(&absolute(&which.state.manifest.manifest)?, None, &env, &runtime)?;
    let plan = RunPlan::resolve(pack, &Overrides::default())?;
    let systems = systems(&plan, &env).map_err(RunError::from)?;
    let kind = staged.intent.output;
    let (true, Some(tool)) = (systems.have(kind), tool(&staged.intent.tool)) else {
        return Err(CliError::NoSystem(kind.token()));
    };
    let unreadable = |error: broker::tools::BadArguments| CliError::NotSent(error.to_string());
    let fitting = tool.read(staged.arguments.clone()).map_err(unreadable)?;
    let fetcher = fetcher(&plan, &env)?;
    let claim = Claim::take(&outbox, which.id).map_err(CliError::Outbox)?;
    let done = runtime.block_on(send(&fetcher, &systems, &claim.permit(), &fitting.arguments));
    match done {
        Ok(answer) => {
            claim.sent().map_err(CliError::Outbox)?;
            print(&format!("sent write {}: {}\n", which.id, shown(&systems, &answer.to_string())))
        }
        Err((outcome, reply)) => {
            if outcome == Outcome::Failed {
                claim.back().map_err(CliError::Outbox)?;
            }
            let why = reply.value.get("error").and_then(|error| error.as_str()).unwrap_or_default();
            let why = why.strip_prefix("failed to ").unwrap_or(why);
            Err(CliError::NotSent(shown(&systems, why)))
        }
    }
}

/// The broker's own client, over the host's network as the broker would use it.
fn fetcher(plan: &RunPlan, env: &Environment) -> Result<Fetcher, CliError> {
    let launch = crate::run::begin::launch(plan, env)?;
    let parent = launch.parent.map(|parent| (parent, NoProxy::parse(&launch.no_proxy)));
    Ok(Fetcher::new(std::sync::Arc::new(Host), parent, Limits::default(), launch.ca))
}

//! Turns commands into what they said in a sandbox without a workspace, which is gone afterwards.
//! It refuses to know what the commands try.

use std::time::Duration;

use policy::egress::Document;

use crate::{
    Limits,
    client::{Client, SandboxSpec},
    error::{Step, TurnError},
    exec::{ExecSpec, Exit},
    turn::{Clock, Guard, READY, follow, within},
    wire::config::DriverConfig,
};

/// What is tried.
#[derive(Debug, Clone, Default)]
pub struct Trial {
    /// The sandbox's name, as for a turn.
    pub name: String,
    /// What the sandbox may reach.
    pub egress: Document,
    /// Certificates that it trusts beside the system's, in PEM.
    pub certificates: Option<String>,
    /// What it may use.
    pub limits: Limits,
    /// Each a program and its arguments, run in order until one fails.
    pub commands: Vec<Vec<String>>,
    /// How long each command may take.
    pub timeout: Option<Duration>,
}

/// Runs the commands and answers how the last that ran ended, and what all wrote to either output.
///
/// # Errors
/// Whatever step failed.
pub async fn run(client: &Client, trial: Trial) -> Result<(Exit, String), TurnError> {
    let sandbox = Guard::new(client.clone(), trial.name.clone());
    let result = steps(client, trial).await;
    let deleted = sandbox.delete().await;
    let end = result?;
    deleted?;
    Ok(end)
}

async fn steps(client: &Client, trial: Trial) -> Result<(Exit, String), TurnError> {
    let Trial { name, egress, certificates, limits, commands, timeout } = trial;
    let config = DriverConfig { egress: Some(egress), certificates, limits, ..DriverConfig::default() };
    let spec = SandboxSpec { name: name.clone(), request_id: name.clone(), config, ..SandboxSpec::default() };
    client.create(&spec).await?;
    within(Step::Ready, READY, client.ready(&name)).await?;
    let (mut exit, mut said) = (Exit::Code(0), Vec::new());
    for command in commands {
        let spec = ExecSpec { command, workdir: Some("/".to_owned()), ..ExecSpec::default() };
        let running = client.exec(&name, spec, Step::Exec).await?;
        let clock = Clock::new(timeout, None);
        (exit, _) = follow(running, clock, &mut |_, data| said.extend_from_slice(data)).await?;
        if exit != Exit::Code(0) {
            break;
        }
    }
    Ok((exit, String::from_utf8_lossy(&said).into_owned()))
}

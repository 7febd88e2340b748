//! Turns the two controls of a pack into findings of `check`, with the workspace pristine again whatever happens (contract §1.1).
//! It refuses to know how a control is staged and measured: the judge's room does that.

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::check::Findings;
use super::error::CliError;
use crate::judge::{Bench, ControlError, Tested};
use crate::manifest::SelfTest;
use crate::plan::RunPlan;
use crate::sys::chain;
use crate::sys::signal::Interrupts;
use crate::world::{CommandWorld, DomainCommands, GitWorld, PackRunner, Workspace, World};

/// The mean scores of the two controls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Means {
    pub(super) good: f64,
    pub(super) bad: f64,
}

/// What the controls are tried with.
pub(super) struct Tried {
    pub(super) bench: Bench,
    pub(super) runner: PackRunner,
    pub(super) workspace: Workspace,
}

/// Tries the controls. A signal ends what runs, and then the pristine state is put back all the same.
///
/// # Errors
/// [`CliError::Interrupted`]; what was found is a finding.
pub(super) async fn test(
    controls: &SelfTest,
    plan: &RunPlan,
    tried: Tried,
    interrupts: &mut Interrupts,
    findings: &mut Findings,
) -> Result<(), CliError> {
    let Tried { bench, runner, workspace } = tried;
    let domain = plan.world.snapshot_restore.as_ref().map(|(snapshot, restore)| DomainCommands {
        snapshot_cmd: snapshot.to_string(),
        restore_cmd: restore.to_string(),
    });
    let tested = match domain {
        None => watched(&bench, controls, GitWorld::new(workspace), interrupts).await,
        domain => {
            let runner = PackRunner { timeout: Some(plan.world.timeout), ..runner };
            watched(&bench, controls, CommandWorld::new(workspace, runner, domain), interrupts).await
        }
    };
    match tested {
        Err(ControlError::Interrupted) => return Err(CliError::Interrupted),
        Err(error) => findings.errors.push(format!("the self-test failed to {}", chain(&error))),
        Ok(tested) => match tested.verdict(plan.judge.direction) {
            Ok((good, bad)) => findings.selftest = Some(Means { good, bad }),
            Err(why) => findings.errors.push(format!("the judge does not tell its controls apart: {why}")),
        },
    }
    Ok(())
}

async fn watched<W: World>(
    bench: &Bench,
    controls: &SelfTest,
    mut world: W,
    interrupts: &mut Interrupts,
) -> Result<Tested, ControlError> {
    let best = world.workspace().best().clone();
    // The one reading before it may have left something behind.
    world.workspace().restore(&best).await?;
    let cancel = CancellationToken::new();
    let mut testing = std::pin::pin!(bench.test(controls, &mut world, &cancel));
    loop {
        tokio::select! {
            biased;
            tested = &mut testing => return tested,
            _ = interrupts.next() => cancel.cancel(),
        }
    }
}

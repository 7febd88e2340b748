//! Turns a list of what a sandbox may reach into proof that a name on no list gets out by no way.
//! It refuses to know what is begun when the proof holds.

use std::time::Duration;

use driver::network::PROGRAM;
use driver::trial::{self, Trial};
use driver::turn::Exit;
use policy::egress::Document;

use super::SELF_TEST;
use crate::sys::chain;

/// How long the self-test may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What passed or was not there, a line for each way.
#[derive(Debug, thiserror::Error)]
#[error("prove that a sandbox has no way out but the broker:\n{0}")]
pub struct TrialError(String);

/// Tries every way out of a sandbox with this list, by a name that no list has: each must refuse it.
///
/// # Errors
/// See [`TrialError`].
pub async fn try_canary(
    client: &driver::Client,
    egress: Document,
    limits: driver::Limits,
) -> Result<(), TrialError> {
    let trial = Trial {
        name: SELF_TEST.to_owned(),
        egress,
        limits,
        command: [PROGRAM, "broker", "probe"].map(str::to_owned).to_vec(),
        timeout: Some(PATIENCE),
    };
    match trial::run(client, trial).await {
        Ok((Exit::Code(0), _)) => Ok(()),
        Ok((_, said)) => Err(TrialError(said.trim_end().to_owned())),
        Err(error) => Err(TrialError(chain(&error))),
    }
}

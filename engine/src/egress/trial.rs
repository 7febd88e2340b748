//! Turns a list of what a sandbox may reach into proof that a name on no list gets out by no way.
//! It refuses to know what is begun when the proof holds.

use std::time::Duration;

use driver::network::PROGRAM;
use driver::trial::{self, Trial};
use driver::trust;
use driver::turn::Exit;
use policy::egress::Document;

use super::SELF_TEST;
use crate::sys::chain;

/// How long the self-test may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why nothing may be begun. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// What passed or was not there, a line for each way and each variable.
    #[error("prove that a sandbox has no way out but the broker, and trusts what it should:\n{0}")]
    Found(String),
    /// The host's certificates.
    #[error("read the certificates that this system trusts")]
    Trust(#[source] std::io::Error),
}

/// Tries every way out of a sandbox with this list, by a name that no list has: each must refuse it. Looks whether programs
/// are led to the system's certificates and `certificates`, in PEM.
///
/// # Errors
/// See [`TrialError`].
pub async fn try_canary(
    client: &driver::Client,
    egress: Document,
    limits: driver::Limits,
    certificates: Option<String>,
) -> Result<(), TrialError> {
    let look = trust::look(certificates.as_deref()).map_err(TrialError::Trust)?;
    let probe = [PROGRAM, "broker", "probe"].map(str::to_owned).to_vec();
    let trial = Trial {
        name: SELF_TEST.to_owned(),
        egress,
        limits,
        certificates,
        commands: std::iter::once(probe).chain(look).collect(),
        timeout: Some(PATIENCE),
    };
    match trial::run(client, trial).await {
        Ok((Exit::Code(0), _)) => Ok(()),
        Ok((_, said)) => Err(TrialError::Found(said.trim_end().to_owned())),
        Err(error) => Err(TrialError::Found(chain(&error))),
    }
}

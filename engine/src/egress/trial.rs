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

/// The sandbox that is tried.
#[derive(Debug)]
pub struct Canary {
    /// What it may reach.
    pub egress: Document,
    /// What it may use.
    pub limits: driver::Limits,
    /// What it trusts beside the system's certificates, in PEM.
    pub certificates: Option<String>,
    /// The broker's own URL inside, `host:port`, which must answer nobody without a token.
    pub own: Option<String>,
}

/// Tries every way out of such a sandbox, by a name that no list has: each must refuse it. Looks whether its programs are led to
/// the certificates that it trusts.
///
/// # Errors
/// See [`TrialError`].
pub async fn try_canary(client: &driver::Client, canary: Canary) -> Result<(), TrialError> {
    let Canary { egress, limits, certificates, own } = canary;
    let look = trust::look(certificates.as_deref()).map_err(TrialError::Trust)?;
    let probe = [PROGRAM, "broker", "probe"].map(str::to_owned).into_iter().chain(own).collect();
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

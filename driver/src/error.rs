//! Turns whatever can end a turn badly into one typed failure with a transport class.
//! It refuses to know how often a class was seen; the engine counts.

use std::{fmt, path::PathBuf, time::Duration};

/// What a failed turn died on; the token of contract §7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransportClass {
    /// The gateway did not answer, or not in a way we understand.
    Gateway,
    /// The sandbox could not be made, or died under the turn.
    Sandbox,
    /// The agent could not be started or did not behave.
    Agent,
    /// A model provider failed.
    Provider,
    /// The workspace could not be brought in or back.
    Workspace,
    /// The command could not be run.
    Command,
    /// Anything else, a cancelled turn included.
    Other,
}

impl TransportClass {
    /// The token that stands in the session log.
    #[must_use]
    pub const fn token(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Sandbox => "sandbox",
            Self::Agent => "agent",
            Self::Provider => "provider",
            Self::Workspace => "workspace",
            Self::Command => "command",
            Self::Other => "other",
        }
    }

    /// The class whose token this is.
    #[must_use]
    pub fn parse(token: &str) -> Option<Self> {
        [
            Self::Gateway,
            Self::Sandbox,
            Self::Agent,
            Self::Provider,
            Self::Workspace,
            Self::Command,
            Self::Other,
        ]
        .into_iter()
        .find(|class| class.token() == token)
    }
}

impl fmt::Display for TransportClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

/// One step of a turn; the word that stands in its errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Make the sandbox, the workspace already mounted in it.
    Create,
    /// Wait until it is ready.
    Ready,
    /// Put relayed files in.
    Relay,
    /// Run the command.
    Exec,
    /// Bring the changes back.
    SyncBack,
    /// Remove the sandbox.
    Delete,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create the sandbox",
            Self::Ready => "wait for the sandbox",
            Self::Relay => "put a relayed file into the sandbox",
            Self::Exec => "run the command in the sandbox",
            Self::SyncBack => "bring the changes back",
            Self::Delete => "delete the sandbox",
        })
    }
}

/// Why a turn ended without a result. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The gateway's address cannot be connected to.
    #[error("connect to the gateway at {}", address.display())]
    Connect {
        /// The Unix socket that was tried.
        address: PathBuf,
        /// What the transport said.
        source: tonic::transport::Error,
    },
    /// The gateway speaks a dialect that this build does not.
    #[error("speak to the gateway: it is version {theirs}, this build speaks {ours}")]
    Dialect {
        /// What `Health` answered.
        theirs: String,
        /// The dialect of this build.
        ours: &'static str,
    },
    /// A call failed.
    #[error("{step}: {message}")]
    Call {
        /// The step that the call belongs to.
        step: Step,
        /// Whose fault it was.
        class: TransportClass,
        /// What the gateway said.
        message: String,
    },
    /// The sandbox went into a phase that it does not come back from.
    #[error("wait for the sandbox: it is in phase {phase}")]
    Phase {
        /// The name of the phase.
        phase: String,
    },
    /// The specification cannot be sent.
    #[error("{0}")]
    Spec(String),
    /// The exec stream ended with no exit event.
    #[error("run the command in the sandbox: its output ended without an exit status")]
    NoExit,
    /// The turn was cancelled by its caller; the workspace is as it was.
    #[error("finish the turn: it was cancelled")]
    Cancelled,
    /// A step took longer than it may.
    #[error("{step} within {} seconds", limit.as_secs())]
    Slow {
        /// The step that hung.
        step: Step,
        /// How long it had.
        limit: Duration,
    },
}

impl TurnError {
    /// What the turn died on (contract §7).
    #[must_use]
    pub fn class(&self) -> TransportClass {
        match self {
            Self::Connect { .. } | Self::Dialect { .. } => TransportClass::Gateway,
            Self::Call { class, .. } => *class,
            Self::Phase { .. } | Self::NoExit => TransportClass::Sandbox,
            Self::Spec(_) | Self::Cancelled => TransportClass::Other,
            Self::Slow { step: Step::SyncBack, .. } => TransportClass::Workspace,
            Self::Slow { .. } => TransportClass::Gateway,
        }
    }
}

/// The metadata key by which the embedded gateway says whose fault an error was.
pub(crate) const CLASS_KEY: &str = "crucible-class";

/// Classifies a status by what the gateway says of it, else by its code and the step.
pub(crate) fn call_error(step: Step, status: &tonic::Status) -> TurnError {
    let said = status.metadata().get(CLASS_KEY).and_then(|value| value.to_str().ok());
    let class = said.and_then(TransportClass::parse).unwrap_or_else(|| class_of(step, status.code()));
    TurnError::Call { step, class, message: status.message().to_owned() }
}

fn class_of(step: Step, code: tonic::Code) -> TransportClass {
    use tonic::Code;
    match (code, step) {
        (Code::Cancelled, _) => TransportClass::Other,
        (Code::Unavailable | Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented, _)
        | (Code::Unknown | Code::DeadlineExceeded | Code::OutOfRange, _) => TransportClass::Gateway,
        (_, Step::Create | Step::Ready | Step::Delete) => TransportClass::Sandbox,
        (_, Step::Relay) => TransportClass::Agent,
        (_, Step::Exec) => TransportClass::Command,
        (_, Step::SyncBack) => TransportClass::Workspace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_parses_back() {
        for token in ["gateway", "sandbox", "agent", "provider", "workspace", "command", "other"] {
            assert_eq!(TransportClass::parse(token).map(TransportClass::token), Some(token));
        }
        assert_eq!(TransportClass::parse("Gateway"), None);
    }

    #[test]
    fn a_status_is_classified_by_what_is_said_then_by_code_and_step() {
        let mut said = tonic::Status::internal("x");
        said.metadata_mut().insert(CLASS_KEY, "workspace".parse().unwrap());
        let table = [
            (Step::Create, said, TransportClass::Workspace),
            (Step::Create, tonic::Status::internal("x"), TransportClass::Sandbox),
            (Step::Exec, tonic::Status::unavailable("x"), TransportClass::Gateway),
            (Step::Exec, tonic::Status::failed_precondition("x"), TransportClass::Command),
            (Step::SyncBack, tonic::Status::internal("x"), TransportClass::Workspace),
        ];
        for (step, status, class) in table {
            assert_eq!(call_error(step, &status).class(), class, "{step}");
        }
    }
}

//! Turns what keeps the embedded gateway from working into errors that name the remedy.
//! It refuses to know gRPC codes; the service maps them.

use std::{io, path::PathBuf};

use crate::error::TransportClass;

/// Why the embedded gateway or one of its sandboxes does not work. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// A system call failed.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A layer that a sandbox must have cannot be had (N15).
    #[error("confine a sandbox: {layer} is missing ({source}); {remedy}")]
    Layer {
        /// The layer.
        layer: &'static str,
        /// What the operator can do.
        remedy: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The sandbox's first process reported a step that failed.
    #[error("set a sandbox up: {step}: {reason}")]
    Setup {
        /// The step.
        step: String,
        /// What the kernel said.
        reason: String,
    },
    /// The sandbox's first process is gone.
    #[error("reach the sandbox: its first process ended{0}")]
    Died(String),
    /// The workspace cannot be used or brought back; it is as it was.
    #[error("{0}")]
    Workspace(String),
    /// Another gateway has the state directory.
    #[error("use the state directory {}: another gateway has it", .0.display())]
    Busy(PathBuf),
    /// What was asked for is refused.
    #[error("{0}")]
    Refused(String),
    /// The command cannot be started.
    #[error("start {program}: {reason}")]
    Command {
        /// What was to run.
        program: String,
        /// Why it does not.
        reason: String,
    },
    /// Whoever answers for the sandbox's ways out does not.
    #[error("give the sandbox its way out: {0}")]
    Network(String),
    /// The gateway's server ended.
    #[error("serve the gateway's API")]
    Serve(#[source] tonic::transport::Error),
}

impl GatewayError {
    /// For `map_err`: an error of the kernel under what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Why new namespaces could not be had, with what to do about it.
    pub(crate) fn namespaces(source: io::Error) -> Self {
        let remedy = match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                "allow them: sysctl kernel.unprivileged_userns_clone=1 or \
                 kernel.apparmor_restrict_unprivileged_userns=0; in a container, run it with \
                 --security-opt seccomp=unconfined or --privileged"
            }
            Some(libc::ENOSPC | libc::EUSERS) => "raise sysctl user.max_user_namespaces and its kin",
            Some(libc::EINVAL | libc::ENOSYS) => "use a kernel of 5.12 or later, built with namespaces",
            _ => "see what the kernel says",
        };
        Self::Layer { layer: "namespaces", remedy, source }
    }

    /// What the turn died on, for the driver.
    pub(crate) fn class(&self) -> TransportClass {
        match self {
            Self::Workspace(_) => TransportClass::Workspace,
            Self::Command { .. } => TransportClass::Command,
            Self::Busy(_) | Self::Serve(_) | Self::Network(_) => TransportClass::Gateway,
            Self::Io { .. } | Self::Layer { .. } | Self::Setup { .. } | Self::Died(_) | Self::Refused(_) => {
                TransportClass::Sandbox
            }
        }
    }

    /// The error with its sources, for where only text goes.
    pub(crate) fn full(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        // `Layer` shows its source itself.
        if matches!(self, Self::Layer { .. }) {
            return text;
        }
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        text
    }
}

//! Turns the relays of a plan into the files of one turn's sandbox, made on this host when the turn begins (note N16).
//! It refuses to print, log or keep what it read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use driver::turn::Relay as Relayed;
use tokio_util::sync::CancellationToken;

use crate::manifest::{Command, ManifestPath, Piece, Relay, RelaySource};
use crate::plan::SandboxPlan;
use crate::sys::env::Environment;
use crate::sys::fs::{FsError, read_bounded};
use crate::sys::keeper::{Keeper, KeeperError, PackCommand, Stdin, Stream};

/// The most that one file holds, in bytes.
const CONTENT_MAX: usize = 1 << 20;
/// How long one command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Values that only the broker may hold, by name. `Debug` shows the names.
#[derive(Clone, Default)]
pub struct Held(pub Vec<(String, String)>);

/// The relays of a run and what they are made with.
#[derive(Clone, Debug)]
pub struct Relays {
    relays: Vec<Relay>,
    /// Where relative paths start and commands run.
    dir: PathBuf,
    /// What an agent may have written: nothing is relayed from there.
    workspace: PathBuf,
    /// The operator's environment as pack commands see it.
    env: Environment,
    held: Held,
}

/// Why a file could not be made. Reads as what follows "failed to"; no value is in it.
#[derive(Debug, thiserror::Error)]
pub enum RelayFault {
    /// A variable that is not set, or that pack commands do not see.
    #[error("relay a file to {dest}: the variable `{name}` is not set")]
    Unset {
        /// In the sandbox.
        dest: String,
        /// Its name.
        name: String,
    },
    /// A file that cannot be read.
    #[error("relay a file to {dest}")]
    File {
        /// In the sandbox.
        dest: String,
        /// Why.
        source: FsError,
    },
    /// A file that an agent may have written.
    #[error("relay a file to {dest}: {} leads into the workspace", .path.display())]
    InWorkspace {
        /// In the sandbox.
        dest: String,
        /// As named.
        path: PathBuf,
    },
    /// A command that failed.
    #[error("relay a file to {dest}: its command {how}")]
    Command {
        /// In the sandbox.
        dest: String,
        /// How.
        how: String,
    },
    /// More than is relayed.
    #[error("relay a file to {dest}: it has more than {CONTENT_MAX} bytes")]
    TooLarge {
        /// In the sandbox.
        dest: String,
    },
    /// What only the broker may hold.
    #[error(
        "relay a file to {dest}: it holds the value of `{name}`, which is declared with context = \"broker\""
    )]
    Held {
        /// In the sandbox.
        dest: String,
        /// Its name.
        name: String,
    },
    /// The keeper could not run a command.
    #[error("relay a file to {dest}")]
    Keeper {
        /// In the sandbox.
        dest: String,
        /// Why.
        source: KeeperError,
    },
}

impl RelayFault {
    /// The transport class that a turn without its files died on (contract §7).
    #[must_use]
    pub fn class(&self) -> driver::TransportClass {
        match self {
            Self::Command { .. } | Self::Keeper { .. } => driver::TransportClass::Command,
            _ => driver::TransportClass::Other,
        }
    }
}

impl Relays {
    /// The relays of a sandbox; `env` is what pack commands see.
    #[must_use]
    pub fn new(sandbox: &SandboxPlan, workspace: &Path, env: &Environment, held: Held) -> Relays {
        Relays {
            relays: sandbox.relays.clone(),
            dir: sandbox.relay_dir.clone(),
            workspace: workspace.to_owned(),
            env: env.clone(),
            held,
        }
    }

    /// Where they stand in the sandbox.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.relays.iter().map(|relay| relay.dest.as_str())
    }

    /// What of them cannot be made, as far as it is known without running anything: a variable that is not set, a file that
    /// cannot be read or is not to be relayed.
    #[must_use]
    pub fn unmade(&self) -> Vec<RelayFault> {
        self.relays.iter().filter_map(|relay| self.look(relay).err()).collect()
    }

    fn look(&self, relay: &Relay) -> Result<(), RelayFault> {
        let dest = relay.dest.as_str();
        let content = match &relay.source {
            RelaySource::Command(_) => return Ok(()),
            RelaySource::File(path) => self.file(dest, path)?,
            RelaySource::Template(pieces) => {
                let still = pieces.iter().filter_map(|piece| self.still(dest, piece));
                still.collect::<Result<Vec<_>, _>>()?.concat()
            }
        };
        self.fits(dest, &content)
    }

    /// Makes every file anew: all or none.
    ///
    /// # Errors
    /// The first one that cannot be made.
    pub async fn make(
        &self,
        keeper: &Keeper,
        cancel: &CancellationToken,
    ) -> Result<Vec<Relayed>, RelayFault> {
        let mut made = Vec::new();
        for relay in &self.relays {
            let dest = relay.dest.to_string();
            let maker = Maker { relays: self, keeper, cancel, dest: &dest };
            let content = maker.content(&relay.source).await?;
            self.fits(&dest, &content)?;
            made.push(Relayed { dest, content, mode: relay.mode });
        }
        Ok(made)
    }

    /// Refuses what is too much, and what only the broker may hold.
    fn fits(&self, dest: &str, content: &[u8]) -> Result<(), RelayFault> {
        let dest = || dest.to_owned();
        if content.len() > CONTENT_MAX {
            return Err(RelayFault::TooLarge { dest: dest() });
        }
        match self.held.found_in(content) {
            Some(name) => Err(RelayFault::Held { dest: dest(), name: name.to_owned() }),
            None => Ok(()),
        }
    }

    /// What a piece becomes without running anything; none for a command.
    fn still(&self, dest: &str, piece: &Piece) -> Option<Result<Vec<u8>, RelayFault>> {
        Some(match piece {
            Piece::Text(text) => Ok(text.clone().into_bytes()),
            Piece::Env(name) => {
                let unset = || RelayFault::Unset { dest: dest.to_owned(), name: name.to_string() };
                self.env.value(name.as_str()).map(|value| value.as_encoded_bytes().to_vec()).ok_or_else(unset)
            }
            Piece::File(path) => self.file(dest, path).map(|bytes| bytes.trim_ascii().to_vec()),
            Piece::File64(path) => self.file(dest, path).map(|bytes| STANDARD.encode(bytes).into_bytes()),
            Piece::Command(_) => return None,
        })
    }

    /// The bytes of a file of the operator's. Links are followed, but not into what an agent may have written.
    fn file(&self, dest: &str, path: &ManifestPath) -> Result<Vec<u8>, RelayFault> {
        let path = path.under(&self.dir);
        let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if real.starts_with(&self.workspace) {
            return Err(RelayFault::InWorkspace { dest: dest.to_owned(), path });
        }
        let most = u64::try_from(CONTENT_MAX).unwrap_or(u64::MAX);
        read_bounded(&real, most).map_err(|source| RelayFault::File { dest: dest.to_owned(), source })
    }
}

impl Held {
    fn found_in(&self, content: &[u8]) -> Option<&str> {
        let holds = |value: &str| content.windows(value.len().max(1)).any(|part| part == value.as_bytes());
        self.0.iter().find(|(_, value)| !value.is_empty() && holds(value)).map(|(name, _)| name.as_str())
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// What makes one file.
struct Maker<'a> {
    relays: &'a Relays,
    keeper: &'a Keeper,
    cancel: &'a CancellationToken,
    dest: &'a str,
}

impl Maker<'_> {
    async fn content(&self, source: &RelaySource) -> Result<Vec<u8>, RelayFault> {
        match source {
            RelaySource::File(path) => self.relays.file(self.dest, path),
            RelaySource::Command(command) => self.output(command).await,
            RelaySource::Template(pieces) => {
                let mut content = Vec::new();
                for piece in pieces {
                    self.piece(piece, &mut content).await?;
                }
                Ok(content)
            }
        }
    }

    async fn piece(&self, piece: &Piece, content: &mut Vec<u8>) -> Result<(), RelayFault> {
        match (piece, self.relays.still(self.dest, piece)) {
            (Piece::Command(command), _) => {
                content.extend_from_slice(self.output(command).await?.trim_ascii());
            }
            (_, still) => content.extend(still.transpose()?.unwrap_or_default()),
        }
        Ok(())
    }

    /// What a command prints on its standard output. What it complains of is shown to nobody, because it may hold a secret.
    async fn output(&self, command: &Command) -> Result<Vec<u8>, RelayFault> {
        let order = PackCommand {
            shell: command.to_string(),
            cwd: self.relays.dir.clone(),
            env: self.relays.env.clone(),
            stdin: Stdin::Null,
            timeout: Some(COMMAND_TIMEOUT),
            idle_timeout: None,
        };
        let mut printed = Vec::new();
        let mut sink = |stream, bytes: &[u8]| {
            if stream == Stream::Out && printed.len() <= CONTENT_MAX {
                printed.extend_from_slice(bytes);
            }
        };
        let dest = || self.dest.to_owned();
        let finished = self.keeper.run(order, self.cancel, &mut sink).await;
        let finished = finished.map_err(|source| RelayFault::Keeper { dest: dest(), source })?;
        match finished.failure() {
            None => Ok(printed),
            Some(how) => Err(RelayFault::Command { dest: dest(), how }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_holds_no_value() {
        let held = Held(vec![("TOKEN".to_owned(), "hunter2hunter2".to_owned())]);
        assert_eq!(format!("{held:?}"), "[\"TOKEN\"]");
        assert_eq!(held.found_in(b"a hunter2hunter2 b"), Some("TOKEN"));
        assert_eq!(held.found_in(b"a hunter2 b"), None);
        assert_eq!(Held(vec![("A".to_owned(), String::new())]).found_in(b"x"), None);
    }
}

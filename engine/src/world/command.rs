//! Turns a pack's snapshot and restore commands, with git's memory under them, into a world (contract §3, §5).
//! It refuses to know what a domain token means.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::workspace::Workspace;
use super::{CommitSha, SnapshotToken, World, WorldError};
use crate::sys::env::Environment;
use crate::sys::keeper::{EndedBy, Finished, Keeper, PackCommand, Stdin, Stream};

/// The longest domain token: it has to fit into one environment variable, of which Linux takes 128 KiB.
const TOKEN_LIMIT: usize = 120 * 1024;

/// How much of a failed command's output an error shows, from its end.
const TAIL_LIMIT: usize = 4 * 1024;

/// How commands of the pack are run on the host.
#[derive(Debug, Clone)]
pub struct PackRunner {
    /// The engine's keeper.
    pub keeper: Arc<Keeper>,
    /// What they may see (N12).
    pub env: Environment,
    /// How long each may take.
    pub timeout: Option<Duration>,
    /// What ends them early.
    pub cancel: CancellationToken,
}

/// The commands of `[world]` that a [`CommandWorld`] layers on git. They come as a pair or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainCommands {
    /// Its last line of standard output names the state of the domain.
    pub snapshot_cmd: String,
    /// Brings the domain back to the token in `CRUCIBLE_TOKEN`.
    pub restore_cmd: String,
}

/// The world of a pack with `[world]` commands: git's memory, and the domain's on top.
#[derive(Debug)]
pub struct CommandWorld {
    workspace: Workspace,
    runner: PackRunner,
    domain: Option<DomainCommands>,
}

impl CommandWorld {
    /// The world of `workspace` and `domain`; a pack that gives only `apply_cmd` has no domain commands.
    pub fn new(workspace: Workspace, runner: PackRunner, domain: Option<DomainCommands>) -> CommandWorld {
        CommandWorld { workspace, runner, domain }
    }

    async fn domain_token(&self, command: &str) -> Result<String, WorldError> {
        let failed = |why| WorldError::Snapshot { why };
        let ran = self.runner.run(command, self.workspace.path(), None).await?;
        ran.outcome().map_err(failed)?;
        ran.last_line.token().map_err(failed)
    }
}

impl World for CommandWorld {
    async fn snapshot(&mut self) -> Result<SnapshotToken, WorldError> {
        let before = self.workspace.position();
        let commit = self.workspace.keep().await?;
        let Some(domain) = &self.domain else { return Ok(SnapshotToken::of_git(commit)) };
        match self.domain_token(&domain.snapshot_cmd).await {
            Ok(token) => Ok(SnapshotToken::composite(commit, token)),
            Err(error) => {
                self.workspace.return_to(before).await?;
                Err(error)
            }
        }
    }

    async fn restore(&mut self, token: &SnapshotToken) -> Result<(), WorldError> {
        let (command, domain) = match (&self.domain, token.domain()) {
            (Some(domain), Some(token)) => (domain.restore_cmd.clone(), token),
            (None, None) => return self.workspace.restore(token.commit()).await,
            _ => return Err(WorldError::BadToken { token: token.to_string().chars().take(200).collect() }),
        };
        self.workspace.restore(token.commit()).await?;
        let ran = self.runner.run(&command, self.workspace.path(), Some(domain)).await?;
        ran.outcome().map_err(|why| WorldError::Restore { why })
    }

    fn last_commit_sha(&self) -> &CommitSha {
        self.workspace.best()
    }

    fn workspace(&mut self) -> &mut Workspace {
        &mut self.workspace
    }
}

impl PackRunner {
    /// Runs `command` in `cwd` to its end, with `CRUCIBLE_TOKEN` where there is one.
    pub(super) async fn run(
        &self,
        command: &str,
        cwd: &Path,
        token: Option<&str>,
    ) -> Result<Ran, WorldError> {
        let mut env = self.env.clone();
        if let Some(token) = token {
            env.set("CRUCIBLE_TOKEN", token);
        }
        let command = PackCommand {
            shell: command.to_owned(),
            cwd: cwd.to_owned(),
            env,
            stdin: Stdin::Null,
            timeout: self.timeout,
            idle_timeout: None,
        };
        let (mut last_line, mut tail) = (LastLine::default(), Vec::new());
        let mut sink = |stream, bytes: &[u8]| {
            if stream == Stream::Out {
                last_line.push(bytes);
            }
            tail.extend_from_slice(bytes);
            tail.drain(..tail.len().saturating_sub(TAIL_LIMIT));
        };
        let finished = self.keeper.run(command, &self.cancel, &mut sink).await;
        let finished = finished.map_err(WorldError::process("run a command of the pack"))?;
        Ok(Ran { finished, last_line, tail })
    }
}

/// A command of the pack that is over.
pub(super) struct Ran {
    pub(super) finished: Finished,
    pub(super) last_line: LastLine,
    tail: Vec<u8>,
}

impl Ran {
    /// Nothing when it ended well by itself, else how it ended and the end of its output.
    pub(super) fn outcome(&self) -> Result<(), String> {
        let how = match self.finished.ended_by {
            Some(EndedBy::Timeout | EndedBy::Idle) => "took too long and was ended".to_owned(),
            Some(EndedBy::Cancelled) => "was cancelled".to_owned(),
            None if self.finished.exit.success() => return Ok(()),
            None => format!("ended with {}", self.finished.exit),
        };
        let tail = String::from_utf8_lossy(&self.tail);
        Err(if tail.trim().is_empty() { how } else { format!("{how}: {}", tail.trim()) })
    }
}

/// The last line of a stream, as far as a token may be long.
#[derive(Debug, Default)]
pub(super) struct LastLine {
    line: Vec<u8>,
    ended: bool,
    long: bool,
}

impl LastLine {
    fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.ended {
                *self = LastLine::default();
            }
            let (text, ended) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            self.ended = ended;
            if self.line.len() + text.len() > TOKEN_LIMIT {
                self.long = true;
            } else {
                self.line.extend_from_slice(text);
            }
        }
    }

    /// The line as a token: non-empty text that fits into a variable.
    fn token(&self) -> Result<String, String> {
        if self.long {
            return Err(format!("wrote a last line of more than {TOKEN_LIMIT} bytes, which is no token"));
        }
        match std::str::from_utf8(&self.line) {
            Ok("") => Err("wrote no token: the last line of its standard output is empty".to_owned()),
            Ok(token) if !token.contains('\0') => Ok(token.to_owned()),
            _ => Err("wrote a last line that is no text, and so no token".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(parts: &[&[u8]]) -> Result<String, String> {
        let mut line = LastLine::default();
        for part in parts {
            line.push(part);
        }
        line.token()
    }

    #[test]
    fn the_last_line_is_the_token_whatever_the_pieces() {
        let tables: [(&[&[u8]], &str); 6] = [
            (&[b"a\nb\n"], "b"),
            (&[b"a\nb"], "b"),
            (&[b"a", b"b\n"], "ab"),
            (&[b"a\n", b"b", b"", b"c"], "bc"),
            (&[b" tab\tand space \n"], " tab\tand space "),
            (&[b"\n\nx\n"], "x"),
        ];
        for (parts, expect) in tables {
            assert_eq!(token(parts).as_deref(), Ok(expect), "{parts:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_token_is_refused_with_the_reason() {
        let long = vec![b'x'; TOKEN_LIMIT + 1];
        let tables: [(&[&[u8]], &str); 5] = [
            (&[], "is empty"),
            (&[b"a\n\n"], "is empty"),
            (&[b"\xff\n"], "no text"),
            (&[b"a\0b"], "no text"),
            (&[&long], "more than"),
        ];
        for (parts, expect) in tables {
            assert!(token(parts).unwrap_err().contains(expect));
        }
    }

    #[test]
    fn a_long_line_before_the_last_does_not_matter() {
        let long = vec![b'x'; 3 * TOKEN_LIMIT];
        assert_eq!(token(&[&long, b"\ntoken\n"]).as_deref(), Ok("token"));
    }
}

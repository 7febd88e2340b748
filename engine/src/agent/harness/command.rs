//! Turns a turn into a run of `agent_cmd`, which is told the prompt and nothing else.
//! It refuses to know what the command is: its output is told as it comes, and its exit code is the verdict.

use super::{Ask, Call, Decoder, Harness, Name};

/// `agent_cmd`, run by `sh -c`.
#[derive(Debug, Clone)]
pub struct Shell {
    /// The text of `[agent].agent_cmd`.
    pub agent_cmd: String,
}

impl Harness for Shell {
    fn name(&self) -> Name {
        Name::Command
    }

    fn call(&self, _: &Ask<'_>) -> Call {
        let args = vec!["-c".to_owned(), self.agent_cmd.clone()];
        Call { program: "/bin/sh".to_owned(), args, env: Vec::new() }
    }

    fn decoder(&self, _: &Ask<'_>) -> Option<Box<dyn Decoder>> {
        None
    }
}

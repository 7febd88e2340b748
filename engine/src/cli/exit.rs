//! Turns how a command ended into an exit code, one for each thing a script may want to tell apart (contract §9).
//! It refuses to know what went wrong in detail.

use crate::log::Outcome;

/// An exit code of `crucible`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked; a run was solved or ran all its iterations.
    Ok,
    /// The engine could not go on.
    Failure,
    /// The arguments are wrong.
    Usage,
    /// The manifest or a file it names is wrong.
    Manifest,
    /// The workspace could not be set up.
    Setup,
    /// The state directory is in use or holds an unfinished run.
    State,
    /// The baseline cannot be scored.
    Baseline,
    /// `check` found what would make a run fail.
    Check,
    /// A required layer of the sandbox cannot be had here.
    Sandbox,
    /// An audit file is whole but for bytes that a crash tore.
    Torn,
    /// A change of a pack reaches or writes more than before.
    Widens,
    /// No run is live that could take a command.
    NotLive,
    /// A ceiling refused further work.
    Budget,
    /// An operator ended the run.
    Stopped,
    /// The agent gave up.
    Escalated,
    /// Turns stopped making a difference.
    Stalled,
    /// Something would reach the agent that nothing discloses, or isolation that nothing enforces was asked for.
    Uncovered,
}

/// Each code with its number and meaning: the source of `docs/src/exit-codes.md`.
const TABLE: [(Exit, u8, &str); 17] = [
    (Exit::Ok, 0, "It did what was asked. A run was solved or ran all its iterations."),
    (Exit::Failure, 1, "The engine could not go on: the disk, git, a restore. The message names the cause."),
    (
        Exit::Usage,
        2,
        "The arguments or the inference document are wrong, a model's key is not set, what a relayed file is made from is not there, or something is asked for that this \
         build does not have.",
    ),
    (
        Exit::Manifest,
        3,
        "The manifest, or a file that it names, is wrong. Every mistake is listed with its place.",
    ),
    (
        Exit::Setup,
        4,
        "The workspace could not be set up: a failed clone or `setup_cmd`, a dirty tree, a directory that is not ours.",
    ),
    (Exit::State, 5, "The state directory is used by a running engine, or holds a run that did not end."),
    (Exit::Baseline, 6, "The pristine workspace cannot be scored. The judge's output is shown."),
    (Exit::Check, 7, "`check` or `doctor` found what would make a run fail."),
    (
        Exit::Sandbox,
        8,
        "A layer that the sandbox must have cannot be had here, or the self-test of its ways out and of what it trusts failed. The message names which.",
    ),
    (
        Exit::Torn,
        9,
        "`audit --verify` found every record, and beside them bytes that a broker left which died while it wrote. They are listed.",
    ),
    (Exit::Budget, 10, "A run ended because a ceiling refused further work."),
    (Exit::Stopped, 11, "A run was ended by its operator."),
    (Exit::Escalated, 12, "A run ended because the agent gave up and said why."),
    (Exit::Stalled, 13, "A run ended because its turns stopped making a difference."),
    (
        Exit::Uncovered,
        14,
        "A run was refused at its start: something would reach the agent that nothing discloses, or the pack asks for isolation \
         that its backend does not enforce.",
    ),
    (Exit::Widens, 15, "`plan exposure --diff` found that the pack reaches or writes more than before."),
    (Exit::NotLive, 16, "No run is live at the state directory or address, so nobody took the command."),
];

impl Exit {
    /// The number the process exits with.
    #[must_use]
    pub fn code(self) -> u8 {
        TABLE.iter().find(|(exit, _, _)| *exit == self).map_or(1, |(_, code, _)| *code)
    }

    /// The code of a run that came to an outcome.
    #[must_use]
    pub fn of(outcome: Outcome) -> Exit {
        match outcome {
            Outcome::Finished | Outcome::Solved => Exit::Ok,
            Outcome::Budget => Exit::Budget,
            Outcome::Stopped => Exit::Stopped,
            Outcome::Escalated => Exit::Escalated,
            Outcome::Stalled => Exit::Stalled,
            Outcome::Error => Exit::Failure,
        }
    }
}

/// The page of the exit codes, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from(
        "# Exit codes\n\nGenerated from the table in `engine/src/cli/exit.rs`; do not edit.\n\n| code | meaning |\n| --- | --- |\n",
    );
    for (_, code, meaning) in TABLE {
        text.push_str(&format!("| {code} | {meaning} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_distinct_and_leave_signals_alone() {
        let mut codes: Vec<u8> = TABLE.iter().map(|(_, code, _)| *code).collect();
        codes.dedup();
        assert_eq!(codes.len(), TABLE.len());
        assert!(codes.iter().all(|code| *code < 64));
    }
}

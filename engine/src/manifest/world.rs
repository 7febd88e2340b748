//! Turns `[world]` into the commands that make a candidate live and take it back (contract §1, §3, §5).
//! It refuses to know what they change.

use std::time::Duration;

use super::error::Sink;
use super::keys::{Key, Kind, Rule, Table};
use super::section::Section;
use super::value::{Command, DEFAULT_TIMEOUT, parse_duration};

/// The commands beside git. Without any, git alone keeps and takes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// Makes the candidate live, before it is measured.
    pub apply_cmd: Option<Command>,
    /// Prints a token for the state as it is, and brings such a state back.
    pub snapshot_restore: Option<(Command, Command)>,
    /// How long each of them may take.
    pub timeout: Duration,
}

/// What can be wrong with `[world]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// A snapshot that nothing restores, or the reverse.
    #[error("[world].{present} is there, and [world].{missing} is not: they work as a pair")]
    Unpaired {
        /// The one that is there.
        present: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
}

/// `[world]`.
pub(super) static TABLE: Table = Table {
    path: "world",
    doc: "Commands that make a candidate live and take it back. Without any, git alone does: only the tree changes.",
    keys: &[
        Key::optional(
            "apply_cmd",
            Kind::Command,
            "none",
            "Makes the candidate live, before it is measured. Exit code 75 says that the candidate does not build: the agent gets \
             the output and another turn on the tree as it left it, twice at most, which costs no iteration. With any other \
             code but 0 the candidate is discarded.",
        ),
        Key::optional(
            "snapshot_cmd",
            Kind::Command,
            "none",
            "Prints a token for the live state as its last line. It needs `restore_cmd`.",
        ),
        Key::optional(
            "restore_cmd",
            Kind::Command,
            "none",
            "Brings back the state whose token is in `CRUCIBLE_TOKEN`. It needs `snapshot_cmd`.",
        ),
        Key::optional("timeout", Kind::Duration, "\"30m\"", "How long each of them may take."),
    ],
    rules: &[Rule::Pair("snapshot_cmd", "restore_cmd")],
    example: "[world]\napply_cmd = \"./deploy.sh\"\nsnapshot_cmd = \"./snap.sh\"\nrestore_cmd = \"./restore.sh\"\ntimeout = \
              \"10m\"\n",
};

impl WorldError {
    pub(super) fn hint(&self) -> Option<String> {
        let Self::Unpaired { missing, .. } = self;
        Some(format!("write {missing} too, or remove the other"))
    }
}

fn unpaired(present: &'static str, missing: &'static str) -> WorldError {
    WorldError::Unpaired { present, missing }
}

/// Reads the table.
pub(super) fn decode(section: &Section<'_>, sink: &mut Sink) -> Option<World> {
    let apply = section.value("apply_cmd", sink, Command::parse);
    let snapshot = section.value("snapshot_cmd", sink, Command::parse);
    let restore = section.value("restore_cmd", sink, Command::parse);
    let timeout = section.value("timeout", sink, parse_duration);
    match (section.place("snapshot_cmd"), section.place("restore_cmd")) {
        (Some(at), None) => sink.put(at, unpaired("snapshot_cmd", "restore_cmd")),
        (None, Some(at)) => sink.put(at, unpaired("restore_cmd", "snapshot_cmd")),
        _ => {}
    }
    Some(World {
        apply_cmd: apply.map(|apply| apply.value),
        snapshot_restore: snapshot.zip(restore).map(|(snapshot, restore)| (snapshot.value, restore.value)),
        timeout: timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.value),
    })
}

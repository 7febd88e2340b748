//! Turns what a pack allows one sandbox to use into numbers the kernel takes.
//! It refuses to know how they are enforced.

use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;

/// What one sandbox may use at most. Every limit is for the whole sandbox but `open_files`, which is per process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Resident memory in bytes, what the sandbox wrote to its workspace, home and `/tmp` included.
    pub memory: u64,
    /// Processes and threads alive at once.
    pub processes: u64,
    /// CPU time in thousandths of a processor; zero means all processors.
    pub cpu_millis: u64,
    /// Open descriptors of one process.
    pub open_files: u64,
    /// Bytes that the turn may change in the workspace.
    pub disk: u64,
    /// Bytes in the home, `/tmp` and `/dev/shm` together.
    pub tmp: u64,
}

impl Limits {
    /// The name of a limit that is zero, which the kernel would take as none at all.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let named = [
            ("memory", self.memory),
            ("processes", self.processes),
            ("open_files", self.open_files),
            ("disk", self.disk),
            ("tmp", self.tmp),
        ];
        named.into_iter().find(|(_, value)| *value == 0).map(|(name, _)| name)
    }

    /// For the test that takes the limits away: none that is reached in a test.
    pub(crate) fn unlimited() -> Self {
        Self { processes: 100_000, memory: 1 << 40, cpu_millis: 0, ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 8192 * MIB,
            processes: 2048,
            cpu_millis: 0,
            open_files: 65_536,
            disk: 4096 * MIB,
            tmp: 2048 * MIB,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_zero_is_named() {
        assert_eq!(Limits::default().missing(), None);
        assert_eq!(Limits { disk: 0, ..Limits::default() }.missing(), Some("disk"));
    }
}

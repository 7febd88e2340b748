//! Turns `/proc` into the tree of processes below one of them.
//! It refuses to know what will be done with them.
//!
//! The parent column of each `stat` file is used, not the `children` files: those exist only where the kernel was
//! built for checkpointing, and a look happens only when a command has left something behind.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use nix::libc::pid_t;

/// One process, as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: pid_t,
    pub(super) parent: pid_t,
    pub(super) zombie: bool,
    pub(super) name: String,
}

/// All processes below `root`, without it, and without those in `spared` and what is below them.
pub(super) fn descendants(root: pid_t, spared: &BTreeSet<pid_t>) -> io::Result<BTreeMap<pid_t, Process>> {
    Ok(below(all()?, root, spared))
}

fn below(all: Vec<Process>, root: pid_t, spared: &BTreeSet<pid_t>) -> BTreeMap<pid_t, Process> {
    let mut by_parent: BTreeMap<pid_t, Vec<Process>> = BTreeMap::new();
    for process in all {
        by_parent.entry(process.parent).or_default().push(process);
    }
    let mut found = BTreeMap::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for child in by_parent.remove(&parent).unwrap_or_default() {
            if !spared.contains(&child.pid) {
                parents.push(child.pid);
                found.insert(child.pid, child);
            }
        }
    }
    found
}

/// The process `pid`, if there is one.
pub(super) fn look(pid: pid_t) -> Option<Process> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(&stat)
}

/// Every process that can be seen.
pub(super) fn all() -> io::Result<Vec<Process>> {
    let entries = std::fs::read_dir("/proc")?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(look).collect())
}

/// `123 (name) S 1 …`, where the name may hold anything, parentheses and newlines included.
fn parse(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let pid = std::str::from_utf8(stat.get(..open)?).ok()?.trim().parse().ok()?;
    let name = stat.get(open + 1..close)?.escape_ascii().to_string();
    let mut fields = std::str::from_utf8(stat.get(close + 1..)?).ok()?.split_ascii_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok()?;
    Some(Process { pid, parent, zombie, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_control_bytes_are_read_and_escaped() {
        let process = parse(b"12 (a) R 1\n\x1b(b) Z 34 12 12 0 -1\n").unwrap();
        let name = r"a) R 1\n\x1b(b".to_owned();
        assert_eq!(process, Process { pid: 12, parent: 34, zombie: true, name });
        for torn in [&b""[..], b"12", b"12 (a", b"12 (a)", b"12 (a) S", b"x (a) S 1", b")(", b"12 (a) S x"] {
            assert_eq!(parse(torn), None, "{}", torn.escape_ascii());
        }
    }

    #[test]
    fn the_tree_leaves_out_the_root_the_spared_and_what_is_below_them() {
        let all = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 5), (7, 4), (8, 99)]
            .map(|(pid, parent)| Process { pid, parent, zombie: false, name: String::new() })
            .to_vec();
        let pids = |spared: &[pid_t]| {
            let spared = spared.iter().copied().collect();
            below(all.clone(), 1, &spared).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(pids(&[]), [2, 3, 4, 5, 6, 7]);
        assert_eq!(pids(&[3]), [2, 5, 6]);
    }

    #[test]
    fn this_process_is_found() {
        let pid = pid_t::try_from(std::process::id()).unwrap();
        let own = look(pid).unwrap();
        assert!(!own.zombie);
        assert!(descendants(own.parent, &BTreeSet::new()).unwrap().contains_key(&pid));
    }
}

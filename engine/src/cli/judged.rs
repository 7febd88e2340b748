//! Turns `measure_cmd` and the files of a workspace into the parts of the judge that an agent can edit (contract §9).
//! It refuses to run anything, and does not claim to find what a script calls in turn.

use std::path::{Component, Path, PathBuf};

/// The paths that `measure_cmd` names, that stand in the workspace, and that no frozen inject covers.
#[must_use]
pub(super) fn editable(measure_cmd: &str, workspace: &Path, frozen: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for token in measure_cmd.split(|c: char| c.is_whitespace() || ";|&()<>\"'`=,".contains(c)) {
        let Some(path) = inside(token, workspace) else { continue };
        let stands = workspace.join(&path).symlink_metadata().is_ok();
        if stands && !covered(&path, workspace, frozen) && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// A token as a path relative to the workspace, if it is one.
fn inside(token: &str, workspace: &Path) -> Option<PathBuf> {
    let path = Path::new(token);
    let relative = if path.is_absolute() { path.strip_prefix(workspace).ok()? } else { path };
    let mut plain = PathBuf::new();
    for part in relative.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => plain.push(name),
            _ => return None,
        }
    }
    (!plain.as_os_str().is_empty()).then_some(plain)
}

/// A file is covered by a frozen inject of that name; a directory when everything in it is.
fn covered(path: &Path, workspace: &Path, frozen: &[PathBuf]) -> bool {
    if frozen.iter().any(|dst| dst == path) {
        return true;
    }
    let Ok(entries) = std::fs::read_dir(workspace.join(path)) else { return false };
    let mut any = false;
    for entry in entries.flatten() {
        any = true;
        if !covered(&path.join(entry.file_name()), workspace, frozen) {
            return false;
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(measure_cmd: &str, expect: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("tests/unit")).unwrap();
        std::fs::create_dir_all(dir.path().join("gate")).unwrap();
        for name in ["measure.sh", "frozen.sh", "tests/unit/a.py", "gate/one.sh"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let frozen = ["frozen.sh", "gate/one.sh"].map(PathBuf::from);
        let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
        assert_eq!(editable(measure_cmd, dir.path(), &frozen), expect, "{measure_cmd}");
    }

    #[test]
    fn names_what_an_agent_could_edit() {
        check("./measure.sh", &["measure.sh"]);
        check("sh measure.sh && sh ./measure.sh", &["measure.sh"]);
        check("sh frozen.sh", &[]);
        check("A=1 bench --tests=tests/unit", &["tests/unit"]);
        check("sh gate/one.sh gate", &[]);
        check("bench ../elsewhere/measure.sh /usr/bin/env missing.sh", &[]);
        check("cat 'measure.sh'|awk -f frozen.sh", &["measure.sh"]);
    }
}

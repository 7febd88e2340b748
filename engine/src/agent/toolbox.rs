//! Turns a toolbox into the skills that stand in the workspace for one turn, and takes back what the turn made of its own
//! settings (contract §1, §5). It refuses to know what a skill or a setting says.

use std::io::Cursor;

use crate::pack::Toolbox;
use crate::sys::fs::{FsError, Kind, Obstacles, RelPath, Root, WriteOptions};

/// Where an agent keeps what is its own.
const HOME: &str = ".claude";
/// Where its skills are.
const SKILLS: &str = ".claude/skills";
/// Where a turn could change what the next one may do, or what is run around it.
const SETTINGS: [&str; 2] = [".claude/settings.json", ".claude/settings.local.json"];
/// Larger settings are not put back but removed, in bytes.
const SETTINGS_MAX: u64 = 1 << 20;

/// The settings as they were before a turn.
#[derive(Debug)]
pub struct Settings {
    /// What stood where the agent keeps what is its own.
    home: Option<Kind>,
    files: Vec<(RelPath, Before)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    File(Vec<u8>),
    Other(Kind),
}

/// Puts the skills into the workspace anew. Whatever a turn left there is gone.
///
/// # Errors
/// When the workspace cannot be written.
pub fn place(toolbox: &Toolbox, workspace: &Root) -> Result<(), FsError> {
    let Some((home, skills)) = path(HOME).zip(path(SKILLS)) else { return Ok(()) };
    if workspace.kind(&home)?.is_some_and(|kind| kind != Kind::Dir) {
        workspace.remove_any(&home)?;
    }
    workspace.remove_any(&skills)?;
    for file in toolbox.files.iter() {
        let Ok(below) = RelPath::parse(file.path.as_path()) else { continue };
        let mode = if file.executable { 0o755 } else { 0o644 };
        let options = WriteOptions { mode, durable: false, obstacles: Obstacles::Remove };
        workspace.write_atomic(&skills.join(&below), &mut Cursor::new(&file.bytes), options)?;
    }
    Ok(())
}

impl Settings {
    /// Looks at the settings before a turn. A link is none, and is not followed.
    ///
    /// # Errors
    /// When the workspace cannot be read.
    pub fn look(workspace: &Root) -> Result<Settings, FsError> {
        let home = path(HOME).map(|home| workspace.kind(&home)).transpose()?.flatten();
        let mut files = Vec::new();
        for file in SETTINGS.iter().filter_map(|name| path(name)) {
            let before = Before::of(workspace, &file)?;
            files.push((file, before));
        }
        Ok(Settings { home, files })
    }

    /// Puts them back after it, and names those that the turn had changed.
    ///
    /// # Errors
    /// When the workspace cannot be written.
    pub fn put_back(&self, workspace: &Root) -> Result<Vec<String>, FsError> {
        let mut changed = Vec::new();
        if let Some(home) = path(HOME) {
            let now = workspace.kind(&home)?;
            if now != self.home && now.is_some_and(|kind| kind != Kind::Dir) {
                workspace.remove_any(&home)?;
                changed.push(HOME.to_owned());
            }
        }
        for (path, before) in &self.files {
            if Before::of(workspace, path)? == *before {
                continue;
            }
            workspace.remove_any(path)?;
            if let Before::File(bytes) = before {
                let options = WriteOptions { mode: 0o644, durable: false, obstacles: Obstacles::Remove };
                workspace.write_atomic(path, &mut Cursor::new(bytes), options)?;
            }
            changed.push(path.as_path().display().to_string());
        }
        Ok(changed)
    }
}

impl Before {
    fn of(workspace: &Root, path: &RelPath) -> Result<Before, FsError> {
        let obstructed =
            |error| if matches!(error, FsError::Obstructed { .. }) { Ok(None) } else { Err(error) };
        match workspace.kind(path).or_else(obstructed)? {
            None => Ok(Before::Nothing),
            Some(Kind::File) => match workspace.read(path, SETTINGS_MAX) {
                Ok(Some(bytes)) => Ok(Before::File(bytes)),
                Ok(None) => Ok(Before::Nothing),
                Err(FsError::TooLarge { .. }) => Ok(Before::Other(Kind::File)),
                Err(error) => Err(error),
            },
            Some(kind) => Ok(Before::Other(kind)),
        }
    }
}

/// INVARIANT: every name of this file is a relative path.
fn path(name: &str) -> Option<RelPath> {
    RelPath::parse(name).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::pack::ToolFile;

    fn toolbox(files: &[(&str, &str, bool)]) -> Toolbox {
        let file = |(path, text, executable): &(&str, &str, bool)| ToolFile {
            path: crate::manifest::RelPath::parse(path).unwrap(),
            bytes: text.as_bytes().to_vec(),
            executable: *executable,
        };
        Toolbox { src: PathBuf::from("/t"), files: files.iter().map(file).collect() }
    }

    fn read(dir: &Path, path: &str) -> String {
        fs::read_to_string(dir.join(path)).unwrap()
    }

    #[test]
    fn skills_are_anew_for_each_turn_and_nothing_is_written_through_a_link() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = Root::open(dir.path()).unwrap();
        let skills = toolbox(&[("a/SKILL.md", "one", false), ("run.sh", "two", true)]);
        place(&skills, &root).unwrap();
        fs::write(dir.path().join(".claude/skills/a/SKILL.md"), "changed").unwrap();
        fs::write(dir.path().join(".claude/skills/left"), "left").unwrap();
        fs::write(dir.path().join(".claude/memory.md"), "kept").unwrap();
        place(&skills, &root).unwrap();
        assert_eq!(read(dir.path(), ".claude/skills/a/SKILL.md"), "one");
        assert!(!dir.path().join(".claude/skills/left").exists());
        assert_eq!(read(dir.path(), ".claude/memory.md"), "kept");
        for link in [".claude/skills", ".claude"] {
            root.remove_any(&RelPath::parse(link).unwrap()).unwrap();
            fs::create_dir_all(dir.path().join(link).parent().unwrap()).unwrap();
            symlink(outside.path(), dir.path().join(link)).unwrap();
            place(&skills, &root).unwrap();
            assert_eq!(read(dir.path(), ".claude/skills/run.sh"), "two");
            assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{link}");
        }
    }

    #[test]
    fn what_a_turn_writes_into_its_settings_does_not_outlive_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        fs::create_dir(dir.path().join(".claude")).unwrap();
        let [shared, local] = SETTINGS.map(|name| dir.path().join(name));
        fs::write(&shared, "{}").unwrap();
        let before = Settings::look(&root).unwrap();
        assert_eq!(before.put_back(&root).unwrap(), Vec::<String>::new());
        fs::write(&shared, r#"{"hooks":1}"#).unwrap();
        fs::write(&local, "{}").unwrap();
        assert_eq!(before.put_back(&root).unwrap(), SETTINGS);
        assert_eq!((read(dir.path(), SETTINGS[0]).as_str(), local.exists()), ("{}", false));
        fs::remove_file(&shared).unwrap();
        symlink("/etc/passwd", &shared).unwrap();
        fs::create_dir(&local).unwrap();
        assert_eq!(before.put_back(&root).unwrap(), SETTINGS);
        assert_eq!(read(dir.path(), SETTINGS[0]), "{}");
        fs::remove_dir_all(dir.path().join(".claude")).unwrap();
        symlink("/nowhere", dir.path().join(".claude")).unwrap();
        assert_eq!(before.put_back(&root).unwrap(), [HOME, SETTINGS[0]]);
        assert!(shared.is_file());
    }
}

//! Turns the name of an agent's tool into the program that is run, and the files of this host that it needs (note N11).
//! It refuses to know what the tool does.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A tool of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// What is run, without links.
    pub program: PathBuf,
    /// What must be seen for it to run, where that is not part of every sandbox's view.
    pub needs: PathBuf,
    /// The executable that connects: the program itself, or what interprets it.
    pub executable: PathBuf,
}

/// Why a tool cannot be run. Reads as what follows "failed to".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// It is not installed, or not found.
    #[error("find `{0}` on PATH: the harness needs it on this machine")]
    Missing(String),
    /// A path that cannot stand in a policy.
    #[error("let {} connect from a sandbox: a policy cannot name its path", .0.display())]
    Unnameable(PathBuf),
    /// A script whose interpreter cannot be found.
    #[error("run {}: its interpreter `{interpreter}` is not on PATH", .script.display())]
    NoInterpreter {
        /// The script.
        script: PathBuf,
        /// As its first line names it.
        interpreter: String,
    },
}

/// The first bytes of a program that the kernel runs by itself.
const ELF: &[u8] = b"\x7fELF";

impl Tool {
    /// Finds a tool by its name, as a shell would, and follows its links. Where a package brings a native program beside the
    /// script that starts it, as npm's do for each platform, the native one is taken: nothing else is then needed.
    ///
    /// # Errors
    /// [`ToolError`].
    pub fn find(name: &str, path: Option<&OsStr>) -> Result<Tool, ToolError> {
        let missing = || ToolError::Missing(name.to_owned());
        let found = search(name, path).ok_or_else(missing)?;
        let real = std::fs::canonicalize(&found).map_err(|_| missing())?;
        if head(&real).starts_with(ELF) {
            return Ok(Tool::native(real));
        }
        let root = package(&real);
        if let Some(native) = root.and_then(|root| beside(root, name)) {
            return Ok(Tool::native(native));
        }
        let executable = interpreter(&real, path)?;
        let needs = root.unwrap_or(&real).to_owned();
        Ok(Tool { program: real, needs, executable })
    }

    fn native(program: PathBuf) -> Tool {
        // What a package keeps beside its program, it may look for.
        let needs = package(&program).unwrap_or(&program).to_owned();
        Tool { needs, executable: program.clone(), program }
    }
}

fn search(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name));
    }
    std::env::split_paths(path?)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|at| is_program(at))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn head(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // What cannot be read has no head.
        let _ = file.take(256).read_to_end(&mut head);
    }
    head
}

/// The directory of the npm package that a file belongs to.
fn package(file: &Path) -> Option<&Path> {
    let of_one = file.ancestors().skip(1).take(8).find(|dir| dir.join("package.json").is_file());
    // A file that is in no package may still be under some project's.
    of_one.filter(|dir| dir.ancestors().any(|above| above.ends_with("node_modules")))
}

/// The native program of a package for this platform: `<package>-linux-<arch>` stands beside it.
fn beside(package: &Path, name: &str) -> Option<PathBuf> {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let own = package.file_name()?.to_str()?;
    let native = package.with_file_name(format!("{own}-linux-{arch}"));
    let vendor = std::fs::read_dir(native.join("vendor")).into_iter().flatten().flatten();
    let mut places = vec![native.join(name), native.join("bin").join(name)];
    places.extend(vendor.map(|entry| entry.path().join("bin").join(name)));
    places.into_iter().find(|at| is_program(at) && head(at).starts_with(ELF))
}

/// What runs a script, by its first line.
fn interpreter(script: &Path, path: Option<&OsStr>) -> Result<PathBuf, ToolError> {
    let head = head(script);
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line.strip_prefix(b"#!").unwrap_or_default()).into_owned();
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let named = if first.ends_with("/env") { words.next().unwrap_or_default() } else { first };
    let found = Some(named).filter(|named| !named.is_empty()).and_then(|named| search(named, path));
    let found = found.and_then(|found| std::fs::canonicalize(found).ok());
    found.ok_or_else(|| ToolError::NoInterpreter { script: script.to_owned(), interpreter: named.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, text: &[u8]) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_tool_is_the_native_program_of_its_package() {
        let dir = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(dir.path()).unwrap();
        let modules = top.join("node_modules");
        let native = modules.join("@a/t-linux-x64/vendor/musl/bin/t");
        put(&modules.join("@a/t/package.json"), b"{}");
        put(&modules.join("@a/t/bin/t.js"), b"#!/usr/bin/env sh\n");
        std::fs::create_dir_all(modules.join(".bin")).unwrap();
        std::os::unix::fs::symlink("../@a/t/bin/t.js", modules.join(".bin/t")).unwrap();
        let path = std::env::join_paths([modules.join(".bin"), "/bin".into(), "/usr/bin".into()]).unwrap();
        let script = Tool::find("t", Some(&path)).unwrap();
        assert_eq!(script.program, modules.join("@a/t/bin/t.js"));
        assert_eq!(script.needs, modules.join("@a/t"));
        assert!(script.executable.is_absolute());
        if cfg!(target_arch = "x86_64") {
            put(&native, b"\x7fELF...");
            put(&modules.join("@a/t-linux-x64/package.json"), b"{}");
            let found = Tool::find("t", Some(&path)).unwrap();
            let needs = modules.join("@a/t-linux-x64");
            assert_eq!(found, Tool { program: native.clone(), needs, executable: native });
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().as_os_str();
        assert_eq!(Tool::find("t", Some(path)), Err(ToolError::Missing("t".into())));
        assert_eq!(Tool::find("t", None), Err(ToolError::Missing("t".into())));
        put(&dir.path().join("t"), b"#!/no/such/interpreter\n");
        assert!(matches!(Tool::find("t", Some(path)), Err(ToolError::NoInterpreter { .. })));
    }
}

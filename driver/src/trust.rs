//! Turns the system's certificates and those of a pack into the one bundle that a sandbox trusts, and a look at it from inside
//! into what is wrong with it. It refuses to know what a certificate says: who read the pack checked that.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use policy::seam::{BUNDLE, BUNDLE_PATH};
use sha2::{Digest, Sha256};

use crate::network::PROGRAM;

/// Where a system keeps all certificates that it trusts in one file.
const SYSTEM: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-bundle.crt",
];
/// The arguments by which this binary looks at the bundle inside a sandbox.
const LOOK: [&str; 2] = ["sandbox", "trust"];

/// The system's file of certificates, where there is one.
pub(crate) fn system() -> Option<PathBuf> {
    SYSTEM.into_iter().map(PathBuf::from).find(|path| path.exists())
}

/// The bundle: the system's file as it is, and after it what the pack adds, in PEM.
///
/// # Errors
/// The system's file cannot be read.
pub(crate) fn bundle(system: Option<&Path>, added: &str) -> io::Result<Vec<u8>> {
    let mut bundle = system.map(fs::read).transpose()?.unwrap_or_default();
    if !added.is_empty() && !bundle.is_empty() && !bundle.ends_with(b"\n") {
        bundle.push(b'\n');
    }
    bundle.extend_from_slice(added.as_bytes());
    Ok(bundle)
}

/// The command that looks, inside a sandbox with ways out, at the bundle that is expected there and at every variable that
/// leads to it (row 69 of the table of faults). `None` where neither the system nor the pack has a certificate.
///
/// # Errors
/// The system's file cannot be read.
pub fn look(added: Option<&str>) -> io::Result<Option<Vec<String>>> {
    let bundle = bundle(system().as_deref(), added.unwrap_or_default())?;
    if bundle.is_empty() {
        return Ok(None);
    }
    let [sandbox, trust] = LOOK;
    Ok(Some(vec![PROGRAM.to_owned(), sandbox.to_owned(), trust.to_owned(), digest(&bundle)]))
}

/// Takes over when this process was started by [`look`]'s command.
pub(crate) fn role() -> Option<ExitCode> {
    let args: Vec<_> = std::env::args_os().skip(1).take(4).collect();
    let [sandbox, trust, expected] = args.as_slice() else { return None };
    if [sandbox, trust] != LOOK {
        return None;
    }
    let wrong = faults(&expected.to_string_lossy(), Path::new(BUNDLE_PATH), |name| {
        #[expect(clippy::disallowed_methods, reason = "the variables are what is looked at")]
        std::env::var(name).ok()
    });
    let mut text = String::new();
    for fault in &wrong {
        // Writing to a string does not fail.
        let _ = writeln!(text, "trust: {fault}");
    }
    // Without a reader the code says enough.
    let _ = io::Write::write_all(&mut io::stdout(), text.as_bytes());
    Some(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is not as it should be.
fn faults(expected: &str, at: &Path, variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    match fs::read(at) {
        Ok(bundle) if digest(&bundle) == expected => {}
        Ok(bundle) => wrong.push(format!(
            "{} is not the system's certificates and ca_file's: {} bytes of something else",
            at.display(),
            bundle.len()
        )),
        Err(error) => wrong.push(format!("{}: {error}", at.display())),
    }
    if fs::OpenOptions::new().append(true).open(at).is_ok() {
        wrong.push(format!("{} can be written", at.display()));
    }
    for name in BUNDLE {
        if variable(name).as_deref().map(Path::new) != Some(at) {
            wrong.push(format!("{name} does not lead to {}", at.display()));
        }
    }
    wrong
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_file_is_kept_as_it_is_and_the_rest_begins_on_a_line_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let system = dir.path().join("system");
        for (text, added, expected) in
            [("a", "b\n", "a\nb\n"), ("a\n", "b\n", "a\nb\n"), ("a", "", "a"), ("", "b\n", "b\n")]
        {
            fs::write(&system, text).unwrap();
            assert_eq!(bundle(Some(&system), added).unwrap(), expected.as_bytes());
        }
        assert_eq!(bundle(None, "").unwrap(), b"");
        assert!(bundle(Some(&dir.path().join("none")), "").is_err(), "what cannot be read is not left out");
    }

    #[test]
    fn row_69_each_way_to_the_wrong_bundle_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("bundle");
        let right = |_: &str| Some(at.display().to_string());
        assert!(faults(&digest(b"a"), &at, right)[0].contains("No such file"));
        fs::write(&at, "a").unwrap();
        let writable = format!("{} can be written", at.display());
        assert_eq!(faults(&digest(b"a"), &at, right), [writable.as_str()], "all else is right");
        assert!(faults(&digest(b"b"), &at, right)[0].contains("1 bytes of something else"));
        for name in BUNDLE {
            let elsewhere =
                |asked: &str| if asked == name { Some("/other".to_owned()) } else { right(asked) };
            let unset = |asked: &str| right(asked).filter(|_| asked != name);
            assert!(faults(&digest(b"a"), &at, elsewhere)[1].starts_with(name));
            assert!(faults(&digest(b"a"), &at, unset)[1].starts_with(name));
        }
    }
}

//! Turns requests into ones within the API's limits, or into the error it has for them.
//! It refuses to know whether what they name exists.

use tonic::Status;

use crate::wire::openshell::v1 as api;

const NAME: usize = 19;
const ARGUMENTS: usize = 1024;
const ARGUMENT: usize = 32 * 1024;
const COMMAND: usize = 256 * 1024;
const ENVIRONMENT: usize = 256 * 1024;
const WORKDIR: usize = 4096;
const SPEC_ENVIRONMENT: usize = 128;
const SPEC_VALUE: usize = 8192;
const SPEC_KEY: usize = 256;
const PROVIDERS: usize = 32;
/// The one name with the reserved prefix that a client may set.
const PYTHON_FUNCTION: &str = "OPENSHELL_PYFUNC_B64";

fn bad<T>(message: impl Into<String>) -> Result<T, Status> {
    Err(Status::invalid_argument(message))
}

/// A DNS label of at most 19 characters.
pub(crate) fn name(name: &str) -> Result<(), Status> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let inside = !name.starts_with('-') && !name.ends_with('-') && name.chars().all(fine);
    if name.is_empty() || name.len() > NAME || !inside {
        return bad(format!("sandbox name {name:?} is not a DNS label of at most {NAME} characters"));
    }
    Ok(())
}

/// What a sandbox may be made of here.
pub(crate) fn spec(spec: &api::SandboxSpec) -> Result<(), Status> {
    if spec.environment.len() > SPEC_ENVIRONMENT {
        return bad(format!("environment has more than {SPEC_ENVIRONMENT} entries"));
    }
    for (key, value) in &spec.environment {
        variable(key)?;
        if key.len() > SPEC_KEY || value.len() > SPEC_VALUE || value.contains('\0') {
            return bad(format!("environment variable {key} is too long or has a zero byte"));
        }
    }
    if spec.providers.len() > PROVIDERS {
        return bad(format!("more than {PROVIDERS} providers"));
    }
    if !spec.providers.is_empty() {
        return Err(Status::failed_precondition("this gateway has no providers"));
    }
    if spec.resource_requirements.as_ref().is_some_and(|needs| needs.gpu.is_some()) {
        return Err(Status::failed_precondition("this gateway has no GPUs to give"));
    }
    if !spec.command.is_empty() {
        return Err(Status::unimplemented(
            "this gateway runs no main command: exec one when the sandbox is ready",
        ));
    }
    Ok(())
}

/// What may be executed.
pub(crate) fn exec(request: &api::ExecSandboxRequest) -> Result<(), Status> {
    let command = &request.command;
    if command.first().is_none_or(String::is_empty) {
        return bad("command is empty");
    }
    if command.len() > ARGUMENTS || command.iter().any(|arg| arg.len() > ARGUMENT) {
        return bad(format!(
            "command has more than {ARGUMENTS} arguments, or one longer than {ARGUMENT} bytes"
        ));
    }
    if command.iter().map(String::len).sum::<usize>() > COMMAND {
        return bad(format!("command is longer than {COMMAND} bytes"));
    }
    if command.iter().any(|arg| arg.contains('\0')) {
        return bad("an argument has a zero byte");
    }
    let workdir = &request.workdir;
    if workdir.len() > WORKDIR || workdir.contains(['\n', '\r', '\0']) {
        return bad(format!("workdir is longer than {WORKDIR} bytes or has a line break"));
    }
    if !workdir.is_empty() && !workdir.starts_with('/') {
        return bad("workdir is not absolute");
    }
    let mut total = 0;
    for (key, value) in &request.environment {
        variable(key)?;
        if value.len() > ARGUMENT || value.contains(['\n', '\r', '\0']) {
            return bad(format!(
                "environment variable {key} is longer than {ARGUMENT} bytes or has a line break"
            ));
        }
        total += key.len() + value.len();
    }
    if total > ENVIRONMENT {
        return bad(format!("environment is longer than {ENVIRONMENT} bytes"));
    }
    Ok(())
}

fn variable(key: &str) -> Result<(), Status> {
    let start = key.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !start || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return bad(format!("environment variable name {key:?} is invalid"));
    }
    if key.starts_with("OPENSHELL_") && key != PYTHON_FUNCTION {
        return bad(format!("environment variable {key} is reserved"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn names_are_dns_labels_of_19_characters() {
        for (text, fine) in [
            ("a", true),
            ("a-1", true),
            ("abcdefghijklmnopqrs", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a_b", false),
            ("a.b", false),
            ("abcdefghijklmnopqrst", false),
            ("é", false),
        ] {
            assert_eq!(name(text).is_ok(), fine, "{text:?}");
        }
    }

    #[test]
    fn commands_are_within_the_limits() {
        let request = |change: fn(&mut api::ExecSandboxRequest)| {
            let mut request =
                api::ExecSandboxRequest { command: vec!["true".to_owned()], ..Default::default() };
            change(&mut request);
            exec(&request).err().map(|status| status.code())
        };
        let refused = Some(Code::InvalidArgument);
        assert_eq!(request(|_| {}), None);
        assert_eq!(request(|r| r.command.clear()), refused);
        assert_eq!(request(|r| r.command = vec!["a".to_owned(); 1025]), refused);
        assert_eq!(request(|r| r.command.push("a".repeat(32 * 1024 + 1))), refused);
        assert_eq!(request(|r| r.command.push("a\0b".to_owned())), refused);
        assert_eq!(request(|r| r.workdir = "relative".to_owned()), refused);
        assert_eq!(request(|r| r.workdir = "/a\nb".to_owned()), refused);
        assert_eq!(request(|r| drop(r.environment.insert("1A".to_owned(), String::new()))), refused);
        assert_eq!(request(|r| drop(r.environment.insert("OPENSHELL_X".to_owned(), String::new()))), refused);
        assert_eq!(
            request(|r| drop(r.environment.insert("OPENSHELL_PYFUNC_B64".to_owned(), String::new()))),
            None
        );
        assert_eq!(request(|r| drop(r.environment.insert("A".to_owned(), "x\ny".to_owned()))), refused);
    }

    #[test]
    fn what_this_gateway_has_not_is_refused_and_says_so() {
        let refused = |change: fn(&mut api::SandboxSpec)| {
            let mut asked = api::SandboxSpec::default();
            change(&mut asked);
            spec(&asked).unwrap_err().code()
        };
        assert_eq!(refused(|s| s.providers.push("p".to_owned())), Code::FailedPrecondition);
        assert_eq!(refused(|s| s.command.push("sleep".to_owned())), Code::Unimplemented);
    }
}

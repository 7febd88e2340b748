//! Turns the bounds and credentials of a plan into what the broker's child is started with (contract §1.9, notes N4, N12).
//! It refuses to make a write, and to show a credential.

use broker::launch::Writes;
use broker::project::Projection;
use broker::systems::{Chat, ConfigError, Registry, Secret, Systems, Tracker, TrackerKind};
use policy::capability::Context;
use policy::record::Redactor;

use super::statedir::{OUTBOX, OUTPUTS_FILE, SESSION_FILE};
use crate::plan::RunPlan;
use crate::sys::env::Environment;

/// GitHub's own API, unless `GITHUB_API_URL` names another.
const GITHUB: &str = "https://api.github.com";

/// Why the operator's systems cannot be used. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
pub enum SystemsError {
    /// Two trackers, of which no comment could choose one.
    #[error("choose a tracker: credentials of both jira and github are declared with context = \"broker\"")]
    TwoTrackers,
    /// A credential without the place that it is for.
    #[error("use the {system}: its credential is set, and {variable}, which says where it is, is not")]
    NoPlace {
        /// Which.
        system: &'static str,
        /// The variable.
        variable: &'static str,
    },
    /// A URL that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// What the child is told of writes: their record and systems in its launch document, their bounds in its environment.
///
/// # Errors
/// See [`SystemsError`].
pub fn mediated(plan: &RunPlan, env: &Environment) -> Result<(Writes, Projection), SystemsError> {
    let state = &plan.state_dir;
    let writes =
        Writes { ledger: state.join(OUTPUTS_FILE), outbox: state.join(OUTBOX), systems: systems(plan, env)? };
    Ok((writes, Projection { outputs: plan.outputs.clone(), session_log: state.join(SESSION_FILE) }))
}

/// The systems that the operator configured: by the value of a credential that the manifest declares for the broker, and
/// the variable that says where the system is. A system without them is absent, and what goes there is staged.
///
/// # Errors
/// See [`SystemsError`].
pub fn systems(plan: &RunPlan, env: &Environment) -> Result<Systems, SystemsError> {
    let text = |name: &str| env.value(name).and_then(|value| value.to_str()).filter(|text| !text.is_empty());
    let secret = |system: &str| {
        let held = plan.secrets.iter().filter(|secret| secret.context == Context::Broker);
        let mut of = held.filter(|secret| secret.system.eq_ignore_ascii_case(system));
        of.find_map(|secret| text(secret.name.as_str())).map(Secret::new)
    };
    let at = |system, variable| {
        text(variable).map(str::to_owned).ok_or(SystemsError::NoPlace { system, variable })
    };
    let tracker = match (secret("jira"), secret("github")) {
        (Some(_), Some(_)) => return Err(SystemsError::TwoTrackers),
        (Some(token), None) => {
            let user = text("JIRA_USER").map(str::to_owned);
            Some(Tracker { kind: TrackerKind::Jira, url: at("jira", "JIRA_URL")?, user, token })
        }
        (None, Some(token)) => {
            let url = text("GITHUB_API_URL").unwrap_or(GITHUB).to_owned();
            Some(Tracker { kind: TrackerKind::Github, url, user: None, token })
        }
        (None, None) => None,
    };
    let password = secret("registry");
    let registry = match (text("REGISTRY_HOST"), password) {
        (None, Some(_)) => at("registry", "REGISTRY_HOST").map(|_| None)?,
        (host, password) => {
            let user = text("REGISTRY_USER").map(str::to_owned);
            host.map(|host| Registry { host: host.to_owned(), user, password })
        }
    };
    let systems = Systems { tracker, chat: secret("slack").map(|webhook| Chat { webhook }), registry };
    systems.check()?;
    Ok(systems)
}

/// A text without the credentials of these systems.
#[must_use]
pub fn shown(systems: &Systems, text: &str) -> String {
    Redactor::new(systems.secrets()).secrets(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Pack;
    use crate::plan::Overrides;

    fn read(systems_declared: &[&str], variables: &[(&str, &str)]) -> Result<Systems, String> {
        let dir = tempfile::tempdir().unwrap();
        let manifest = dir.path().join("crucible.toml");
        let mut text = String::from(
            "[repo]\npath = \"up\"\n[agent]\nbackend = \"command\"\nagent_cmd = \"a\"\n[judge]\nmeasure_cmd = \"m\"\ndirection = \"lower\"\n",
        );
        for system in systems_declared {
            let name = format!("{}_TOKEN", system.to_uppercase());
            text.push_str(&format!(
                "[[capabilities.secret]]\nname = \"{name}\"\ncontext = \"broker\"\nsystem = \"{system}\"\nscope = \"s\"\n"
            ));
        }
        std::fs::write(&manifest, text).unwrap();
        let plan = RunPlan::resolve(Pack::load(&manifest).unwrap(), &Overrides::default()).unwrap();
        let mut env = Environment::empty();
        for (name, value) in variables {
            env.set(name, value);
        }
        systems(&plan, &env).map_err(|error| error.to_string())
    }

    #[test]
    fn a_system_is_there_with_its_credential_and_its_place_and_otherwise_staged() {
        let token = ("JIRA_TOKEN", "canary");
        let url = ("JIRA_URL", "https://jira.example");
        assert_eq!(read(&["jira"], &[url]), Ok(Systems::default()), "no value, no system");
        assert_eq!(read(&[], &[token, url]), Ok(Systems::default()), "an undeclared value is not used");
        let jira = read(&["jira"], &[token, url, ("JIRA_USER", "me")]).unwrap().tracker.unwrap();
        assert_eq!((jira.kind, jira.user.as_deref()), (TrackerKind::Jira, Some("me")));
        let github = read(&["github"], &[("GITHUB_TOKEN", "canary")]).unwrap().tracker.unwrap();
        assert_eq!(github.url, GITHUB);
        let registry = read(&[], &[("REGISTRY_HOST", "127.0.0.1:5000")]).unwrap().registry.unwrap();
        assert_eq!(registry.password, None, "a registry without a credential is one");
    }

    #[test]
    fn what_cannot_be_used_is_told_and_no_credential_with_it() {
        let token = ("JIRA_TOKEN", "canary");
        for (declared, variables, said) in [
            (&["jira"][..], &[token][..], "JIRA_URL"),
            (&["jira"], &[token, ("JIRA_URL", "http://jira.example")], "anybody on the way"),
            (&["jira", "github"], &[token, ("GITHUB_TOKEN", "canary")], "choose a tracker"),
            (&["registry"], &[("REGISTRY_TOKEN", "canary")], "REGISTRY_HOST"),
            (&["slack"], &[("SLACK_TOKEN", "canary")], "https://"),
        ] {
            let error = read(declared, variables).unwrap_err();
            assert!(error.contains(said) && !error.contains("canary"), "{error}");
        }
    }
}

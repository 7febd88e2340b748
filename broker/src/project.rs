//! Turns the three variables that the child is started with into the bounds of the run's writes (contract §1.9, N4).
//! It refuses to know any other variable, and nothing reads these again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use policy::json::parse_object;
use policy::outputs::{DocumentError, Outputs};

/// The bounds, as [`policy::outputs::Document`].
pub const OUTPUTS: &str = "BROKER_OUTPUTS";
/// The values of the run's parameters, a JSON object.
pub const PARAMS: &str = "BROKER_OUTPUT_PARAMS";
/// The path of the session log.
pub const SESSION_LOG: &str = "BROKER_SESSION_LOG";

/// What is projected to the child, and to nobody else. None of it is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// The bounds.
    pub outputs: Outputs,
    /// Where refusals are written.
    pub session_log: PathBuf,
}

/// Why the variables cannot be used. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// One is there and another is not.
    #[error("read the bounds of the run's writes: {0} is missing")]
    Missing(&'static str),
    /// One is not JSON of its shape.
    #[error("read the bounds of the run's writes: {name}")]
    Json {
        /// Which.
        name: &'static str,
        /// What is wrong.
        source: policy::json::ObjectError,
    },
    /// They are not those of this build.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl Projection {
    /// The variables for the child's environment.
    ///
    /// # Errors
    /// Never for values that a manifest can hold.
    pub fn variables(&self) -> Result<[(&'static str, std::ffi::OsString); 3], ProjectionError> {
        let json = |name, source: serde_json::Error| ProjectionError::Json { name, source: source.into() };
        let outputs =
            serde_json::to_string(&self.outputs.document()).map_err(|error| json(OUTPUTS, error))?;
        let params = serde_json::to_string(self.outputs.params()).map_err(|error| json(PARAMS, error))?;
        Ok([
            (OUTPUTS, outputs.into()),
            (PARAMS, params.into()),
            (SESSION_LOG, self.session_log.clone().into_os_string()),
        ])
    }

    /// Reads the variables; `None` where none of them is set.
    ///
    /// # Errors
    /// Some but not all, or one that is not what [`Projection::variables`] makes.
    pub fn read(value: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<Option<Self>, ProjectionError> {
        let all = [OUTPUTS, PARAMS, SESSION_LOG].map(|name| (name, value(name)));
        if all.iter().all(|(_, value)| value.is_none()) {
            return Ok(None);
        }
        let [outputs, params, log] = all.map(|(name, value)| value.ok_or(ProjectionError::Missing(name)));
        let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        let json = |name| move |source| ProjectionError::Json { name, source };
        let document = parse_object(text(outputs?).as_bytes()).map_err(json(OUTPUTS))?;
        let params: BTreeMap<String, String> =
            parse_object(text(params?).as_bytes()).map_err(json(PARAMS))?;
        Ok(Some(Self { outputs: Outputs::read(document, params)?, session_log: PathBuf::from(log?) }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use policy::outputs::{Declared, RunContext};

    use super::*;

    #[test]
    fn the_variables_read_back_and_a_part_of_them_is_refused() {
        let run = RunContext { item: Some("PROJ-1".to_owned()), ..RunContext::default() };
        let projection = Projection {
            outputs: Outputs::resolve(&Declared::default(), &run),
            session_log: PathBuf::from("/state/session.jsonl"),
        };
        let all: HashMap<_, _> = projection.variables().unwrap().into_iter().collect();
        assert_eq!(Projection::read(|name| all.get(name).cloned()).unwrap(), Some(projection));
        assert_eq!(Projection::read(|_| None).unwrap(), None);
        for left_out in [OUTPUTS, PARAMS, SESSION_LOG] {
            let read = Projection::read(|name| all.get(name).cloned().filter(|_| name != left_out));
            assert!(matches!(read, Err(ProjectionError::Missing(name)) if name == left_out));
        }
        for (name, array) in [(OUTPUTS, "[1,[]]"), (PARAMS, "[]")] {
            let other = |of: &str| (of == name).then(|| array.into());
            let read = Projection::read(|name| other(name).or_else(|| all.get(name).cloned()));
            assert!(matches!(read, Err(ProjectionError::Json { .. })), "{name}");
        }
    }
}

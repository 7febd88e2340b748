//! Turns the ceilings of the command line into ceilings that a run can keep.
//! It refuses to know who keeps them.

use std::time::Duration;

use super::{DEFAULT_ITERATIONS, Overrides, PlanError};
use crate::admission::{Budget, Ceiling};

/// When the run ends at the latest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// At least 1.
    pub iterations: u32,
    /// In US dollars, finite and more than none.
    pub max_cost: Option<f64>,
    /// How long the loop waits for an answer to an ask of the agent's; for ever where there is none.
    pub max_park: Option<Duration>,
    /// From the start of the run; more than none.
    pub max_time: Option<Duration>,
}

/// Checks the ceilings, with the default where nothing is said.
///
/// # Errors
/// The first one that ends a run before it begins.
pub(super) fn limits(overrides: &Overrides) -> Result<Limits, PlanError> {
    let iterations = overrides.iterations.unwrap_or(DEFAULT_ITERATIONS);
    let Overrides { max_time, max_cost, max_park, .. } = *overrides;
    let max_secs = max_time.map(|time| time.as_secs_f64());
    match (Budget { max_cost, max_secs, iterations: Some(iterations) }).fault() {
        None => {}
        Some(Ceiling::Iterations) => return Err(PlanError::NoIterations),
        Some(Ceiling::Time) => return Err(PlanError::NoTime),
        Some(Ceiling::Cost) => return Err(PlanError::NoCost(max_cost.unwrap_or_default())),
    }
    Ok(Limits { iterations, max_time, max_cost, max_park })
}

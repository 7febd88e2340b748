//! Turns the ceilings of the command line into ceilings that a run can keep.
//! It refuses to know who keeps them.

use std::time::Duration;

use super::{DEFAULT_ITERATIONS, Overrides, PlanError};

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
    if iterations == 0 {
        return Err(PlanError::NoIterations);
    }
    if overrides.max_time == Some(Duration::ZERO) {
        return Err(PlanError::NoTime);
    }
    if let Some(cost) = overrides.max_cost.filter(|cost| !cost.is_finite() || *cost <= 0.0) {
        return Err(PlanError::NoCost(cost));
    }
    let Overrides { max_time, max_cost, max_park, .. } = *overrides;
    Ok(Limits { iterations, max_time, max_cost, max_park })
}

//! Turns the output of `measure_cmd` into a reading (contract §3). It refuses to know what is kept.

pub mod controls;
pub mod ground;
pub use policy::json;
pub mod measure;
pub mod reading;
pub mod tail;

pub use controls::{Bench, ControlError, Indistinct, Tested};
pub use ground::{Confined, Ground, GroundError, Ran};
pub use measure::{Known, Measure, Measured};
pub use reading::{Fault, Reading};
pub use tail::ObjectLine;

//! Turns the output of `measure_cmd` into a reading (contract §3). It refuses to know what is kept.

pub use policy::json;
pub mod measure;
pub mod reading;
pub mod tail;

pub use measure::{Known, Measure, Measured};
pub use reading::{Fault, Reading};
pub use tail::ObjectLine;

//! Turns the output of `measure_cmd` into a reading (contract §3). It refuses to know what is kept.

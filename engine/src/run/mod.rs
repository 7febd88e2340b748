//! Turns events into a state and effects, and effects into events, until the run has an outcome.
//! It refuses to know how a log line looks and how a file is restored.

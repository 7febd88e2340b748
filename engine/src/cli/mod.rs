//! Turns arguments into a command, and its result into text and an exit code (contract §9).
//! It refuses to know how a run works.

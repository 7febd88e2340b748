//! Turns the text of a `crucible.toml` into a valid manifest, or into every mistake it holds (contract §1).
//! It refuses to know the file system and the run.

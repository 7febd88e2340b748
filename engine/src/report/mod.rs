//! Turns the events of a run into what a person or a script reads. It refuses to decide anything.

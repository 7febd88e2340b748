//! Turns the state of a workspace into a token, and a token into that state again (contract §5).
//! It refuses to know scores and what a candidate is for.

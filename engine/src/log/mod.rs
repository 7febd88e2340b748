//! Turns what happened in a run into lines of `state/session.jsonl`, and back (contract §7).
//! It refuses to know why anything happened.

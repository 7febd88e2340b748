//! Turns a reading and the best so far into keep or discard (contract §4).
//! It refuses to know where either came from.

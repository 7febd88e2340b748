//! Turns a mistake at a place in a text into a message a person can act on.
//! It refuses to know where the text came from.

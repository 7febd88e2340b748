//! Turns bytes into heads, bodies, TLS hellos and questions for names, strictly: what is not plain is refused, not repaired.
//! It refuses to know sockets and clocks.

pub mod answer;
pub mod body;
pub mod dns;
pub mod fields;
pub mod head;
pub mod hello;
pub mod json;
pub mod response;
pub mod synthetic;

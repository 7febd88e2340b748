//! Turns `[agent.openshell.limits.egress]` into what bounds a sandbox's traffic (contract §6.1).
//! It refuses to list the limits: the broker has their names, bounds and defaults.

pub use broker::limits::Limits as TrafficLimits;
use broker::limits::{Limit, Unit};

use super::error::Sink;
use super::keys::{Key, Kind, Table};
use super::number::Bounds;
use super::section::Section;

/// `[agent.openshell.limits.egress]`.
pub(super) static TABLE: Table = Table {
    path: "agent.openshell.limits.egress",
    doc: "What one turn's sandbox may send and ask for through the broker. What is cut has the reason that stands with the key \
          in the audit file.",
    keys: &KEYS,
    rules: &[],
    example: "[agent.openshell.limits.egress]\nconnections = 64\nbytes = \"1G\"\nidle_timeout = \"5m\"\n",
};

static KEYS: [Key; TrafficLimits::KEYS.len()] = keys();

#[expect(clippy::indexing_slicing, reason = "evaluated while compiling, where a wrong place is an error")]
const fn keys() -> [Key; TrafficLimits::KEYS.len()] {
    let mut keys = [key(&TrafficLimits::KEYS[0]); TrafficLimits::KEYS.len()];
    let mut at = 1;
    while at < keys.len() {
        keys[at] = key(&TrafficLimits::KEYS[at]);
        at += 1;
    }
    keys
}

const fn key(limit: &Limit) -> Key {
    let bounds = Bounds::new(limit.least, limit.most);
    let kind = match limit.unit {
        Unit::Time => Kind::Within(bounds),
        Unit::Size => Kind::Size(bounds),
        Unit::Count => Kind::Whole(bounds),
    };
    Key::optional(limit.name, kind, limit.text, limit.doc)
}

/// Reads the table that stands in `limits`.
pub(super) fn decode(limits: &Section<'_>, sink: &mut Sink) -> TrafficLimits {
    let Some((entries, at)) = limits.table("egress") else { return TrafficLimits::default() };
    let section = Section::open(&TABLE, Some(entries), &at, sink);
    TrafficLimits::of(|name| section.number(name))
}

#[cfg(test)]
mod tests {
    use super::super::number::{size_text, time_text};
    use super::*;

    #[test]
    fn the_defaults_that_are_documented_are_the_brokers() {
        for limit in TrafficLimits::KEYS {
            let text = match limit.unit {
                Unit::Time => format!("\"{}\"", time_text(limit.default)),
                Unit::Size => format!("\"{}\"", size_text(limit.default)),
                Unit::Count => limit.default.to_string(),
            };
            assert_eq!(limit.text, text, "{}", limit.name);
        }
    }
}

//! Turns inputs of operators and asks of the agent into what the loop has to heed at its next step (contract §7.1).
//! It refuses to know how they were recorded.

use std::collections::VecDeque;
use std::time::Duration;

use crate::admission::{Budget, Key, grant_key};
use crate::log::{AskMode, AskWire};

/// How much of steers goes into one prompt, in bytes; the rest waits for the next one.
const STEERS_MAX: usize = 128 * 1024;

/// What operators want of the run, and what the agent waits for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Operator {
    /// Steers that no turn has been given, oldest first.
    pub steers: VecDeque<(Key, String)>,
    /// The pause that is in force.
    pub paused: Option<Key>,
    /// The rescope that the next head of an iteration drains, and its regime.
    pub rescope: Option<(Key, String)>,
    /// The ceilings that are in force in place of those of the command line, in their order.
    pub budgets: Vec<(Key, Budget)>,
    /// The ask that has no answer.
    pub ask: Option<Ask>,
    /// How many asks there were.
    pub asks: u32,
    /// The regime that scores are measured in, once there was a rescope.
    pub regime: Option<String>,
}

/// An ask without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// What the agent said.
    pub said: AskWire,
    /// Its number, from 1.
    pub ordinal: u32,
    /// Whether it is granted, and the grant not drained yet.
    pub granted: bool,
    /// When the loop began to wait for it.
    pub parked: Option<Duration>,
}

impl Ask {
    /// The key under which its grant is recorded.
    #[must_use]
    pub fn grant_key(&self) -> Key {
        grant_key(self.ordinal, &self.said.trace_id, &self.said.handle)
    }

    /// Whether the loop waits for it.
    #[must_use]
    pub fn blocks(&self) -> bool {
        self.said.mode == AskMode::Block && !self.granted
    }

    /// Whether `handle`, where one is named, means this ask.
    #[must_use]
    pub fn is_meant_by(&self, handle: Option<&str>) -> bool {
        handle.is_none_or(|handle| handle == self.said.handle)
    }
}

impl Operator {
    /// Takes the steers that the next prompt has room for; at least one, if there is any.
    pub fn take_steers(&mut self) -> Vec<(Key, String)> {
        let mut taken = Vec::new();
        let mut length = 0usize;
        while let Some((_, text)) = self.steers.front() {
            length = length.saturating_add(text.len());
            if length > STEERS_MAX && !taken.is_empty() {
                break;
            }
            taken.extend(self.steers.pop_front());
        }
        taken
    }

    /// Gives steers back that were delivered to nobody.
    pub fn give_back(&mut self, steers: Vec<(Key, String)>) {
        for steer in steers.into_iter().rev() {
            self.steers.push_front(steer);
        }
    }

    /// Puts ceilings in force, and returns the keys of those that nothing is left of.
    pub fn put_in_force(&mut self, key: Key, budget: Budget) -> Vec<Key> {
        let (covered, left) = self.budgets.drain(..).partition(|(_, earlier)| budget.covers(earlier));
        let covered: Vec<(Key, Budget)> = covered;
        self.budgets = left;
        self.budgets.push((key, budget));
        covered.into_iter().map(|(key, _)| key).collect()
    }

    /// The last one of a ceiling.
    pub fn ceiling<T>(&self, of: impl Fn(&Budget) -> Option<T>) -> Option<T> {
        self.budgets.iter().rev().find_map(|(_, budget)| of(budget))
    }

    /// Forgets what the ledger will hand in again; what the agent waits for stays.
    pub fn forget(&mut self) {
        self.steers.clear();
        self.budgets.clear();
        (self.paused, self.rescope) = (None, None);
        if let Some(ask) = &mut self.ask {
            // A grant is in the ledger before the log tells of it, and what superseded it grants the ask as well.
            ask.parked = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::known(text.to_owned())
    }

    #[test]
    fn a_prompt_has_room_for_so_much_and_the_rest_waits_in_order() {
        let mut operator = Operator::default();
        for (at, length) in [("a", STEERS_MAX + 1), ("b", 10), ("c", STEERS_MAX)] {
            operator.steers.push_back((key(at), "x".repeat(length)));
        }
        let names =
            |steers: &[(Key, String)]| steers.iter().map(|(key, _)| key.to_string()).collect::<String>();
        let first = operator.take_steers();
        assert_eq!(names(&first), "a", "one that is too long goes alone");
        let second = operator.take_steers();
        assert_eq!(names(&second), "b");
        operator.give_back(second);
        assert_eq!(names(operator.steers.make_contiguous()), "bc");
    }

    #[test]
    fn a_ceiling_is_the_last_one_that_was_set() {
        let mut operator = Operator::default();
        let cost = |cost| Budget { max_cost: Some(cost), ..Budget::default() };
        assert!(operator.put_in_force(key("a"), Budget { iterations: Some(3), ..cost(1.0) }).is_empty());
        assert!(
            operator.put_in_force(key("b"), cost(2.0)).is_empty(),
            "the iterations of the first are left"
        );
        assert_eq!(operator.put_in_force(key("c"), cost(3.0)), [key("b")]);
        assert_eq!(operator.ceiling(|budget| budget.max_cost), Some(3.0));
        assert_eq!(operator.ceiling(|budget| budget.iterations), Some(3));
        assert_eq!(operator.ceiling(|budget| budget.max_secs), None);
    }
}

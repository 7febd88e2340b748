//! Turns patterns into an index that finds those for a host in the order of how exact they are.
//! It refuses to know ports and what an entry allows.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::endpoint::{First, Pattern};
use crate::host::{Host, Name};

/// Positions of entries, in the order of the list.
type Rows = Vec<u32>;
type Map<K, V> = HashMap<K, V, BuildHasherDefault<Fnv>>;

/// Patterns by exact host and by suffix.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    exact: Map<Host, Rows>,
    wild: Map<Box<str>, Below>,
}

/// The wildcards over one suffix.
#[derive(Clone, Debug, Default)]
struct Below {
    /// The shapes of partial labels: how long the text before and after the star is; the longest first.
    shapes: Vec<(usize, usize)>,
    /// Rows by `before*after`.
    partial: Map<Box<str>, Rows>,
    labels: Rows,
}

impl Index {
    pub(super) fn add(&mut self, pattern: &Pattern, row: u32) {
        let wild = match pattern {
            Pattern::Exact(host) => return self.exact.entry(host.clone()).or_default().push(row),
            Pattern::Wild(wild) => wild,
        };
        let below = self.wild.entry(wild.suffix().as_str().into()).or_default();
        let First::Label { before, after } = wild.first() else { return below.labels.push(row) };
        below.partial.entry(format!("{before}*{after}").into()).or_default().push(row);
        let shape = (before.len(), after.len());
        if !below.shapes.contains(&shape) {
            below.shapes.push(shape);
            below.shapes.sort_by_key(|(before, after)| std::cmp::Reverse(before + after));
        }
    }

    /// The entries for `host` in groups, the most specific group first: the exact host; then the longest suffix, and over it
    /// the longest text in the label, `*`, `**`. Stops at the first group for which `visit` answers something.
    pub(super) fn find<T>(&self, host: &Host, mut visit: impl FnMut(&[u32]) -> Option<T>) -> Option<T> {
        if let Some(found) = self.exact.get(host).and_then(|rows| visit(rows)) {
            return Some(found);
        }
        self.below(host.name()?, &mut visit)
    }

    fn below<T>(&self, name: &Name, visit: &mut impl FnMut(&[u32]) -> Option<T>) -> Option<T> {
        if self.wild.is_empty() {
            return None;
        }
        let name = name.as_str();
        let mut dots = name.match_indices('.');
        let first = dots.next().map(|(at, _)| at)?;
        for at in std::iter::once(first).chain(dots.map(|(at, _)| at)) {
            let Some(below) = name.get(at + 1..).and_then(|suffix| self.wild.get(suffix)) else { continue };
            let label = name.get(..at).filter(|_| at == first);
            let found = label
                .and_then(|label| below.partial(label, visit))
                .or_else(|| (!below.labels.is_empty()).then(|| visit(&below.labels)).flatten());
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

impl Below {
    fn partial<T>(&self, label: &str, visit: &mut impl FnMut(&[u32]) -> Option<T>) -> Option<T> {
        let mut key = String::with_capacity(label.len() + 1);
        for (before, after) in self.shapes.iter().copied() {
            let Some(end) = label.len().checked_sub(after).filter(|end| *end > before) else { continue };
            key.clear();
            key.push_str(label.get(..before).unwrap_or_default());
            key.push('*');
            key.push_str(label.get(end..).unwrap_or_default());
            if let Some(found) = self.partial.get(key.as_str()).and_then(|rows| visit(rows)) {
                return Some(found);
            }
        }
        None
    }
}

/// FNV-1a. The keys are those of a list that its owner wrote, so nobody can choose them to collide.
#[derive(Clone, Copy, Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

//! Turns two resolved lists into which entries of the new one admit what the old one did not (note N5, `plan exposure --diff`).
//! It refuses to know why they differ.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::binary::{Binaries, BinaryPath, Caller, Process};
use super::decide::{Ask, Carry, Way, weigh};
use super::resolve::{Egress, Entry};
use crate::endpoint::{First, Pattern};
use crate::host::{Host, Name, Port, Target};

/// Every way in, and methods of each class that an access tells apart.
const WAYS: [Way; 6] = [Way::Connect, Way::Forward, Way::Transparent, Way::Loopback, Way::Own, Way::Name];
const METHODS: [Option<&str>; 4] = [None, Some("GET"), Some("POST"), Some("DELETE")];

/// The comparison of a new list with an old one. It never misses a target that only the new one admits. It asks one old entry
/// for all hosts of a new one, so a wildcard that only several old ones together cover is said to gain.
#[derive(Debug)]
pub struct Gains<'a> {
    old: Groups<'a>,
    new: Groups<'a>,
}

/// The entries of one list by port and pattern, in order: what decides together.
#[derive(Debug, Default)]
struct Groups<'a> {
    ports: HashMap<Port, Vec<(&'a Pattern, Vec<&'a Entry>)>>,
    /// Where a shape of wildcard first stands, over each suffix: of two as exact as each other the first one decides.
    shapes: HashMap<Shape<'a>, usize>,
}

/// A suffix, and how long the text before and after the star is.
type Shape<'a> = (&'a str, usize, usize);

impl<'a> Gains<'a> {
    /// Prepares the comparison.
    pub fn new(old: &'a Egress, new: &'a Egress) -> Self {
        Self { old: Groups::of(old), new: Groups::of(new) }
    }

    /// Whether programs gain something by this entry of the new list. `programs` are those that are asked about; an entry
    /// of the engine's is for every program.
    pub fn by(&self, entry: &Entry, programs: &[BinaryPath]) -> bool {
        let callers: Vec<Caller> = match &entry.binaries {
            Binaries::Any => vec![Caller::Unknown],
            Binaries::Of(_) => {
                programs.iter().map(|path| Caller::Known(vec![Process::new(path.as_str())])).collect()
            }
        };
        callers.iter().any(|caller| self.caller_gains(entry, caller))
    }

    /// Whether the new list admits this program anywhere at all by an entry that is not for every program.
    pub fn admits(&self, program: &BinaryPath) -> bool {
        let caller = Caller::Known(vec![Process::new(program.as_str())]);
        let mut groups = self.new.ports.values().flatten();
        groups.any(|(pattern, group)| {
            group.iter().any(|entry| entry.binaries != Binaries::Any)
                && Allowance::of(group, pattern, &caller).is_some()
        })
    }

    fn caller_gains(&self, entry: &Entry, caller: &Caller) -> bool {
        let (pattern, port) = (&entry.endpoint.pattern, entry.endpoint.port);
        let Some(wanted) =
            self.new.group(port, pattern).and_then(|group| Allowance::of(group, pattern, caller))
        else {
            return false;
        };
        let had =
            |group: &[&Entry]| Allowance::of(group, pattern, caller).is_some_and(|had| had.covers(&wanted));
        let old = self.old.at(port);
        let covering = old.iter().filter(|(other, _)| other.covers(pattern));
        let covering =
            covering.reduce(|best, other| if self.old.beats(other.0, best.0) { other } else { best });
        let Some((covering, group)) = covering else { return true };
        // What decided for a part of its hosts before, and does so no more.
        let mut lost = old.iter().filter(|(other, _)| {
            let decides = self.new.group(port, other).is_some() && self.new.beats(other, pattern);
            self.old.beats(other, covering) && other.meets(pattern) && !decides
        });
        !had(group) || lost.any(|(_, group)| !had(group))
    }
}

impl<'a> Groups<'a> {
    fn of(egress: &'a Egress) -> Self {
        let mut groups = Self::default();
        let mut places: HashMap<(Port, &Pattern), usize> = HashMap::new();
        for (position, entry) in egress.entries().iter().enumerate() {
            if let Some(shape) = shape(&entry.endpoint.pattern) {
                groups.shapes.entry(shape).or_insert(position);
            }
            let (port, pattern) = (entry.endpoint.port, &entry.endpoint.pattern);
            let at_port = groups.ports.entry(port).or_default();
            let place = *places.entry((port, pattern)).or_insert(at_port.len());
            match at_port.get_mut(place) {
                Some((_, group)) => group.push(entry),
                None => at_port.push((pattern, vec![entry])),
            }
        }
        groups
    }

    /// Whether the first pattern decides for a host of both.
    fn beats(&self, one: &Pattern, other: &Pattern) -> bool {
        let first = |pattern| shape(pattern).and_then(|shape| self.shapes.get(&shape)).copied();
        match rank(one).cmp(&rank(other)) {
            Ordering::Equal => first(one) < first(other),
            order => order == Ordering::Greater,
        }
    }

    fn at(&self, port: Port) -> &[(&'a Pattern, Vec<&'a Entry>)] {
        self.ports.get(&port).map(Vec::as_slice).unwrap_or_default()
    }

    fn group(&self, port: Port, pattern: &Pattern) -> Option<&[&'a Entry]> {
        self.at(port).iter().find(|(other, _)| *other == pattern).map(|(_, group)| group.as_slice())
    }
}

fn shape(pattern: &Pattern) -> Option<Shape<'_>> {
    let Pattern::Wild(wild) = pattern else { return None };
    match wild.first() {
        First::Label { before, after } => Some((wild.suffix().as_str(), before.len(), after.len())),
        First::Labels => None,
    }
}

/// How exact a pattern is among those for one host: the exact host, the longest suffix, the longest text, `*`, `**`.
fn rank(pattern: &Pattern) -> (bool, usize, bool, usize) {
    match pattern {
        Pattern::Exact(_) => (true, 0, true, 0),
        Pattern::Wild(wild) => {
            let suffix = wild.suffix().as_str().len();
            match wild.first() {
                First::Label { before, after } => (false, suffix, true, before.len() + after.len()),
                First::Labels => (false, suffix, false, 0),
            }
        }
    }
}

/// What one program may do at the hosts of one group: for each way and method what may flow, and to which addresses.
#[derive(Debug, PartialEq, Eq)]
struct Allowance(Vec<Option<(Carry, bool, bool)>>);

impl Allowance {
    /// `None` where it is nothing.
    fn of(group: &[&Entry], pattern: &Pattern, caller: &Caller) -> Option<Self> {
        let port = group.first()?.endpoint.port;
        let target = Target { host: some_host(pattern)?, port };
        let cell = |way, method| {
            let ask = Ask { way, target: &target, caller, method };
            group.iter().find_map(|entry| {
                let (private, local) = entry.addresses();
                weigh(entry, &ask).ok().map(|grant| (grant.carry, private, local))
            })
        };
        let cells = WAYS.iter().flat_map(|way| METHODS.iter().map(move |method| cell(*way, *method)));
        let cells: Vec<_> = cells.collect();
        cells.iter().any(Option::is_some).then_some(Self(cells))
    }

    fn covers(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| match (own, other) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some((a, private, local)), Some((b, other_private, other_local))) => {
                carries(*a, *b) && private >= other_private && local >= other_local
            }
        })
    }
}

/// Whether all that `b` lets flow flows by `a`.
fn carries(a: Carry, b: Carry) -> bool {
    a == b || a == Carry::Raw || (a == Carry::TlsOrHttp && b != Carry::Raw)
}

/// Any host that the pattern is for: what an entry says does not depend on which.
fn some_host(pattern: &Pattern) -> Option<Host> {
    let wild = match pattern {
        Pattern::Exact(host) => return Some(host.clone()),
        Pattern::Wild(wild) => wild,
    };
    let label = match wild.first() {
        First::Label { before, after } => format!("{before}x{after}"),
        First::Labels => "x".to_owned(),
    };
    Name::parse(&format!("{label}.{}", wild.suffix())).ok().map(Host::Name)
}

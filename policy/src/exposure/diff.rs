//! Turns two exposures into what the new one adds and drops, and whether it widens (`plan exposure --diff`).
//! It refuses to guess: what cannot be shown to be no wider is wider.
//!
//! What widens:
//! - an egress entry, where it admits a target, a method, a way or a kind of address to a program that the old list did not admit
//!   there, by the rules that decide in a run: also an old entry, where a narrower one that decided before it is gone;
//! - a program that may connect, where the new list admits it anywhere;
//! - a count that goes up; a target that is not within the old one, a binding to a parameter that is gone or another;
//! - a credential that is new, that the agent gets and only the broker had, or whose declared system or scope reads otherwise;
//! - a model's endpoint that is new, or is another, or is told by other variables or asked with another key;
//! - a host path that does not lie within an old one; a relayed file that is new or has a new source; a program in the broker's
//!   place; commands outside of the sandbox where there were none;
//! - `enforced` that turns false. What the network and the host's files are concerned, nothing is wider than that.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use super::{Exposure, ExposureError};
use crate::capability::{Binding, Capability, Context, UNDECLARED};
use crate::egress::{Binaries, BinaryPath, Disclosed, Egress, Entry, Gains, Source};
use crate::outputs::{Bound, Scope, Target};

/// Characters at which an address goes on after a literal scope.
const BOUNDARIES: [&str; 4] = ["/", ":", "@", "#"];
/// A character that no scope has: what stands where a wildcard does, only a wildcard can match.
const ANYTHING: &str = "\u{1}";

/// What a change does to what can be reached or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Something new can be.
    Widens,
    /// Less can be, as far as this row goes.
    Narrows,
    /// The same can be.
    Keeps,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What it does.
    pub effect: Effect,
    /// What it is about, such as `egress api.example.com:443:full`.
    pub subject: String,
    /// What changed, in words.
    pub change: String,
}

/// All differences, in the order of the new document and then of the old one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// None where both documents disclose the same.
    pub changes: Vec<Change>,
}

impl Diff {
    /// Whether any change widens.
    pub fn widens(&self) -> bool {
        self.changes.iter().any(|change| change.effect == Effect::Widens)
    }

    fn put(&mut self, effect: Effect, subject: impl Into<String>, change: impl Into<String>) {
        self.changes.push(Change { effect, subject: subject.into(), change: change.into() });
    }

    fn widened(&mut self, widens: bool, subject: impl Into<String>, change: impl Into<String>) {
        self.put(if widens { Effect::Widens } else { Effect::Keeps }, subject, change);
    }
}

impl Exposure {
    /// What this one adds to `old` and drops from it.
    ///
    /// # Errors
    /// An egress entry or program of either that is none.
    pub fn since(&self, old: &Self) -> Result<Diff, ExposureError> {
        let mut diff = Diff::default();
        match (old.enforced, self.enforced) {
            (true, false) => {
                diff.put(
                    Effect::Widens,
                    "enforced",
                    "nothing stands between the agent and the network any more",
                );
            }
            (false, true) => diff.put(Effect::Narrows, "enforced", "the agent is in a sandbox now"),
            _ => {}
        }
        for (old, new) in old.outputs.iter().zip(&self.outputs) {
            output(old, new, &mut diff);
        }
        // Where nothing is enforced, rows of the network and of the host's files say nothing.
        if old.enforced && self.enforced {
            egress(old, self, &mut diff)?;
            host_paths(old, self, &mut diff);
        }
        inference(old, self, &mut diff);
        credentials(old, self, &mut diff);
        relays(old, self, &mut diff);
        rest(old, self, &mut diff);
        Ok(diff)
    }

    /// The egress list that it discloses, as it decides in a run.
    pub(super) fn egress(&self) -> Result<Egress, ExposureError> {
        let programs = Binaries::of(self.programs()?);
        let rows: Vec<&Disclosed> = self.rows().collect();
        let named: BTreeSet<&str> = rows
            .iter()
            .filter(|row| row.source != "builtin" || row.named)
            .map(|row| row.host.as_str())
            .collect();
        let entry = |row: &&Disclosed| {
            let endpoint = row.endpoint().map_err(|_| ExposureError::Egress(row.to_string()))?;
            let source = match row.source.as_str() {
                "builtin" => Source::Builtin(String::new()),
                "manifest" => Source::Manifest,
                "engine" => Source::Engine(String::new()),
                _ => return Err(ExposureError::Egress(row.to_string())),
            };
            let binaries = match source {
                Source::Engine(_) => Binaries::Any,
                _ => programs.clone(),
            };
            let named = named.contains(row.host.as_str());
            let entry = Entry { endpoint, source, binaries, named };
            Ok(Entry { named: named && entry.is_exact(), ..entry })
        };
        Ok(Egress::new(rows.iter().map(entry).collect::<Result<_, _>>()?))
    }

    fn programs(&self) -> Result<Vec<BinaryPath>, ExposureError> {
        let paths = self.capabilities.iter().filter_map(|row| match row {
            Capability::Binary { path, .. } => Some(path),
            _ => None,
        });
        paths.map(|path| BinaryPath::parse(path).map_err(|_| ExposureError::Binary(path.clone()))).collect()
    }

    fn rows(&self) -> impl Iterator<Item = &Disclosed> {
        self.capabilities.iter().filter_map(|row| match row {
            Capability::Egress(row) => Some(row),
            _ => None,
        })
    }
}

/// How many writes a bound lets through at all: one that is addressed and has no target refuses every one.
fn writes(bound: &Bound) -> u32 {
    if bound.kind.is_addressed() && bound.target.is_none() { 0 } else { bound.count }
}

fn output(old: &Bound, new: &Bound, diff: &mut Diff) {
    let subject = |key: &str| format!("[outputs.{}].{key}", new.kind);
    let (before, after) = (writes(old), writes(new));
    if old.count != new.count {
        let effect = if new.count < old.count { Effect::Narrows } else { Effect::Keeps };
        let effect = if after > before { Effect::Widens } else { effect };
        diff.put(effect, subject("count"), format!("from {} to {}", old.count, new.count));
    }
    if old.target != new.target {
        let wider = after > 0 && !within(old.target.as_ref(), new.target.as_ref());
        let narrower = before > 0 && !within(new.target.as_ref(), old.target.as_ref());
        let effect = match (wider, narrower) {
            (true, _) => Effect::Widens,
            (false, true) => Effect::Narrows,
            (false, false) => Effect::Keeps,
        };
        let shown =
            |target: &Option<Target>| target.as_ref().map_or("none".to_owned(), super::render::target);
        diff.put(effect, subject("target"), format!("from {} to {}", shown(&old.target), shown(&new.target)));
    }
}

/// Whether every write that `new` lets through, `old` does too, whatever the parameters are.
fn within(old: Option<&Target>, new: Option<&Target>) -> bool {
    let parts = |target: &Target| match target {
        Target::Fixed(scope) => (scope.clone(), None),
        Target::Open { scope, param } => (scope.clone(), param.clone()),
    };
    match (old.map(parts), new.map(parts)) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some((old, bound)), Some((new, new_bound))) => {
            (bound.is_none() || bound == new_bound) && covers(&old, &new)
        }
    }
}

/// Whether every value in `new` lies in `old`.
fn covers(old: &Scope, new: &Scope) -> bool {
    let text = new.as_str();
    if text.contains('*') {
        return old.admits(&text.replace('*', ANYTHING));
    }
    let below = |boundary: &str| old.admits(&format!("{text}{boundary}{ANYTHING}"));
    old.admits(text) && BOUNDARIES.into_iter().all(below)
}

fn egress(old: &Exposure, new: &Exposure, diff: &mut Diff) -> Result<(), ExposureError> {
    let (before, after) = (old.egress()?, new.egress()?);
    let (gains, losses) = (Gains::new(&before, &after), Gains::new(&after, &before));
    let (had, have) = (old.programs()?, new.programs()?);
    let both: Vec<BinaryPath> = have.iter().filter(|path| had.contains(path)).cloned().collect();
    let same = |a: &Entry, b: &Entry| a.endpoint == b.endpoint && a.source == b.source && a.named == b.named;
    for entry in after.entries() {
        let subject = format!("egress {}", entry.endpoint);
        let kept = before.entries().iter().any(|other| same(other, entry));
        if kept && gains.by(entry, &both) {
            diff.put(
                Effect::Widens,
                subject,
                "admits more than before: what decided for a part of it is gone",
            );
        } else if !kept {
            let widens = gains.by(entry, &have);
            let what = if widens { "new, and reaches what was not" } else { "new, and reaches nothing more" };
            diff.widened(widens, subject, what);
        }
    }
    for path in have.iter().filter(|path| !had.contains(path)) {
        diff.widened(gains.admits(path), format!("binary {path}"), "new among the programs that may connect");
    }
    for entry in
        before.entries().iter().filter(|entry| !after.entries().iter().any(|other| same(other, entry)))
    {
        let narrows = losses.by(entry, &had);
        let effect = if narrows { Effect::Narrows } else { Effect::Keeps };
        diff.put(effect, format!("egress {}", entry.endpoint), "gone");
    }
    for path in had.iter().filter(|path| !have.contains(path)) {
        diff.put(Effect::Narrows, format!("binary {path}"), "gone from the programs that may connect");
    }
    Ok(())
}

fn host_paths(old: &Exposure, new: &Exposure, diff: &mut Diff) {
    let paths = |of: &Exposure| -> Vec<String> {
        let paths = of.capabilities.iter().filter_map(|row| match row {
            Capability::HostPath { path } => Some(path.clone()),
            _ => None,
        });
        paths.collect()
    };
    let (before, after) = (paths(old), paths(new));
    let inside = |path: &str, of: &[String]| of.iter().any(|outer| Path::new(path).starts_with(outer));
    for path in after.iter().filter(|path| !before.contains(path)) {
        diff.widened(!inside(path, &before), format!("host-path {path}"), "new");
    }
    for path in before.iter().filter(|path| !after.contains(path)) {
        let effect = if inside(path, &after) { Effect::Keeps } else { Effect::Narrows };
        diff.put(effect, format!("host-path {path}"), "gone");
    }
}

fn inference(old: &Exposure, new: &Exposure, diff: &mut Diff) {
    let bound = |of: &Exposure| {
        of.capabilities.iter().find_map(|row| match row {
            Capability::Inference(binding) => Some(binding.clone()),
            _ => None,
        })
    };
    match (bound(old), bound(new)) {
        (before, Some(after)) if before.as_ref() == Some(&after) => {}
        (None, Some(after)) => {
            diff.put(Effect::Widens, "inference", format!("new: {}", super::render::inference(&after)));
        }
        (Some(before), Some(after)) => {
            // Another model at the same place, asked in the same way, is told no more.
            let same = Binding { model: before.model.clone(), ..after.clone() } == before;
            diff.widened(!same, "inference", format!("now {}", super::render::inference(&after)));
        }
        (Some(_), None) => diff.put(Effect::Narrows, "inference", "gone"),
        (None, None) => {}
    }
}

fn credentials(old: &Exposure, new: &Exposure, diff: &mut Diff) {
    let rows = |of: &Exposure| -> Vec<(String, Context, String, String)> {
        let rows = of.capabilities.iter().filter_map(|row| match row {
            Capability::Credential { name, context, system, scope } => {
                Some((name.clone(), *context, system.clone(), scope.clone()))
            }
            _ => None,
        });
        rows.collect()
    };
    let (before, after) = (rows(old), rows(new));
    for (name, context, system, scope) in &after {
        let subject = format!("credential {name}");
        let shown = || format!("{}, {system}: {scope}", context.as_str());
        match before.iter().find(|(other, ..)| other == name) {
            None => diff.put(Effect::Widens, subject, format!("new: {}", shown())),
            Some((_, held, was, allowed)) if (held, was, allowed) != (context, system, scope) => {
                // Undeclared is all that it could be for.
                let said = was == UNDECLARED || (was, allowed) == (system, scope);
                let entered = *held == Context::Broker && *context == Context::Agent;
                let change = format!("from {}, {was}: {allowed} to {}", held.as_str(), shown());
                diff.widened(entered || !said, subject, change);
            }
            Some(_) => {}
        }
    }
    for (name, ..) in before.iter().filter(|(name, ..)| !after.iter().any(|(other, ..)| other == name)) {
        diff.put(Effect::Narrows, format!("credential {name}"), "gone");
    }
}

fn relays(old: &Exposure, new: &Exposure, diff: &mut Diff) {
    let rows = |of: &Exposure| -> Vec<(String, Vec<String>)> {
        let rows = of.capabilities.iter().filter_map(|row| match row {
            Capability::Relay { path, sources } => Some((path.clone(), sources.clone())),
            _ => None,
        });
        rows.collect()
    };
    let (before, after) = (rows(old), rows(new));
    for (path, sources) in &after {
        let subject = format!("relay {path}");
        match before.iter().find(|(other, _)| other == path) {
            None => {
                diff.put(Effect::Widens, subject, format!("new, from {}", super::render::sources(sources)));
            }
            Some((_, had)) if had != sources => {
                let widens = sources.iter().any(|source| !had.contains(source));
                let change =
                    format!("from {} to {}", super::render::sources(had), super::render::sources(sources));
                diff.widened(widens, subject, change);
            }
            Some(_) => {}
        }
    }
    for (path, _) in before.iter().filter(|(path, _)| !after.iter().any(|(other, _)| other == path)) {
        diff.put(Effect::Narrows, format!("relay {path}"), "gone");
    }
}

/// A program in the broker's place, and commands outside of the sandbox.
fn rest(old: &Exposure, new: &Exposure, diff: &mut Diff) {
    let rows = |of: &Exposure| -> Vec<String> {
        let rows = of.capabilities.iter().filter_map(|row| match row {
            Capability::BrokerBin { bin } => Some(format!("broker-bin {bin}")),
            Capability::ExternalCommands { present: true } => Some("external-commands".to_owned()),
            _ => None,
        });
        rows.collect()
    };
    let (before, after) = (rows(old), rows(new));
    for subject in after.iter().filter(|row| !before.contains(row)) {
        diff.put(Effect::Widens, subject.as_str(), "new");
    }
    for subject in before.iter().filter(|row| !after.contains(row)) {
        diff.put(Effect::Narrows, subject.as_str(), "gone");
    }
}

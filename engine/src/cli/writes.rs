//! Turns what is known of a run's writes into a table: each write, each refusal, and the counts against their bounds (`audit`).
//! It refuses to know how they are recorded.

use std::fmt::Write as _;

use broker::writes::outbox::Standing;
use policy::outputs::{Bound, Outcome, Source, Target};

use crate::report::plain;
use crate::run::writes::{Refused, Write, Writes};

/// The table.
pub(super) fn table(writes: &Writes) -> String {
    let mut text = String::new();
    for write in &writes.writes {
        text.push_str(&made(write));
    }
    for refused in &writes.refused {
        text.push_str(&not_made(refused));
    }
    for bound in writes.bounds.iter().flat_map(|bounds| &bounds.outputs) {
        text.push_str(&counted(bound, writes));
    }
    text
}

fn made(write: &Write) -> String {
    let outcome = match (write.outcome, write.outbox) {
        (Some(Outcome::Done), _) => "written",
        (_, Some(Standing::Waiting)) => "staged, waiting",
        (_, Some(Standing::Sending)) => "staged, sending began, outcome unknown",
        (_, Some(Standing::Sent)) => "staged, sent",
        (_, Some(Standing::Dropped)) => "staged, dropped",
        (Some(Outcome::Staged), None) => "staged, and its file is gone",
        (Some(Outcome::Failed), None) => "failed, nothing written, not counted",
        (Some(Outcome::Unknown) | None, None) => "outcome unknown, counted",
    };
    let intent = &write.intent;
    let target = plain(intent.target.as_deref().unwrap_or("-"));
    format!(
        "{}  {:<10} write {:<4} {:<16} {target:<24} {outcome}\n",
        plain(&write.ts),
        plain(&intent.turn),
        intent.id,
        intent.output.token()
    )
}

fn not_made(refused: &Refused) -> String {
    let refusal = &refused.refusal;
    format!(
        "{}  {:<10} refused    {:<16} {:<24} {}: {}\n",
        plain(&refused.ts),
        plain(&refused.turn),
        plain(&refused.tool),
        plain(&refusal.requested),
        plain(&refusal.bound),
        refusal.reason.public()
    )
}

/// One bound, with how much of it is used.
fn counted(bound: &Bound, writes: &Writes) -> String {
    let of = |write: &&Write| write.intent.output == bound.kind && write.outcome != Some(Outcome::Failed);
    let used = writes.writes.iter().filter(of).count();
    let refused = writes.refused.iter().filter(|row| row.refusal.kind == bound.kind).count();
    let target = match &bound.target {
        Some(Target::Fixed(scope)) => scope.to_string(),
        Some(Target::Open { scope, param: None }) => format!("{scope} (open)"),
        Some(Target::Open { scope, param: Some(param) }) => format!("{scope} (open, the value of {param})"),
        None if bound.kind.is_addressed() => "no target, so none".to_owned(),
        None => "-".to_owned(),
    };
    let source = match bound.source {
        Source::Manifest => "manifest",
        Source::EngineDefault => "engine default",
    };
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{:<18} {used} of {} used, {refused} refused  {}  ({source})",
        bound.kind.token(),
        bound.count,
        plain(&target)
    );
    text
}

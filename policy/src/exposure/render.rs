//! Turns an exposure into lines for a person, a label and a text each.
//! It refuses to know anything that the document does not hold.

use super::Exposure;
use crate::capability::{BinarySource, Binding, Capability};
use crate::egress::Disclosed;
use crate::outputs::{Bound, Source, Target};

/// The bounds, then what is reached, in the order of the document.
pub fn rendered(exposure: &Exposure) -> Vec<(&'static str, String)> {
    let mut lines: Vec<_> = exposure.outputs.iter().map(|bound| ("output", output(bound))).collect();
    let enforced = if exposure.enforced {
        "yes: the agent is in a sandbox, and the broker is its only way out"
    } else {
        "no: nothing stands between the agent and the network, this machine's files and your environment"
    };
    lines.push(("enforced", enforced.to_owned()));
    let rows = exposure.capabilities.iter();
    let entries = rows.filter_map(|row| match row {
        Capability::Egress(row) => Some(row.to_string().len()),
        _ => None,
    });
    let wide = entries.max();
    if wide.is_none() && exposure.enforced {
        lines.push(("egress", "nothing at all: no entry is listed".to_owned()));
    }
    lines.extend(exposure.capabilities.iter().map(|row| capability(row, wide.unwrap_or(0))));
    lines
}

fn output(bound: &Bound) -> String {
    let source = match bound.source {
        Source::Manifest => "manifest",
        Source::EngineDefault => "engine-default",
    };
    let place = match &bound.target {
        Some(bound) => format!("to {}", target(bound)),
        None if bound.kind.is_addressed() => "to nowhere: every one is refused".to_owned(),
        None => "addressed to nothing".to_owned(),
    };
    format!("{:<17}  at most {}, {place}  {source}", bound.kind.token(), bound.count)
}

/// Where writes go.
pub(super) fn target(target: &Target) -> String {
    match target {
        Target::Fixed(scope) => scope.to_string(),
        Target::Open { scope, param: None } => format!("any of {scope}"),
        Target::Open { scope, param: Some(param) } => format!("any of {scope} that is the value of {param}"),
    }
}

/// What a relayed file is made of.
pub(super) fn sources(sources: &[String]) -> String {
    if sources.is_empty() { "the manifest's own text".to_owned() } else { sources.join(", ") }
}

fn capability(row: &Capability, wide: usize) -> (&'static str, String) {
    match row {
        Capability::Egress(row) => ("egress", egress(row, wide)),
        Capability::Binary { path, source } => {
            let source = match source {
                BinarySource::Builtin => "builtin",
                BinarySource::Manifest => "manifest",
            };
            ("binary", format!("{path}  {source}"))
        }
        Capability::HostPath { path } => ("host-path", path.clone()),
        Capability::Inference(binding) => ("inference", inference(binding)),
        Capability::Credential { name, context, system, scope } => {
            ("credential", format!("{name}  held by the {}  {system}: {scope}", context.as_str()))
        }
        Capability::Relay { path, sources: made_of } => {
            ("relay", format!("{path}  from {}", sources(made_of)))
        }
        Capability::BrokerBin { bin } => ("broker-bin", bin.clone()),
        Capability::ExternalCommands { present: true } => {
            ("commands", "the pack runs commands on this machine, outside of any sandbox".to_owned())
        }
        Capability::ExternalCommands { present: false } => {
            ("commands", "none outside of the sandbox".to_owned())
        }
    }
}

/// The model that the agent is bound to.
pub(super) fn inference(binding: &Binding) -> String {
    let Binding { harness, model, protocol, endpoint, variables, key_env } = binding;
    let told = if variables.is_empty() { "no variable".to_owned() } else { variables.join(", ") };
    let key = key_env.as_ref().map_or("without a key".to_owned(), |name| format!("with the key in {name}"));
    format!("{harness}  {model} over {protocol} at {endpoint}, {key}, told by {told}")
}

fn egress(row: &Disclosed, wide: usize) -> String {
    let text = row.to_string();
    let note = row.unreachable.as_ref().map(|why| format!("  unreachable: {why}")).unwrap_or_default();
    format!("{text:wide$}  {}{note}", row.source)
}

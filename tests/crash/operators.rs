//! Runs with operators, who are the agent's own turns: so that they say the same at the same place each time.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{BINARY, Pack};

/// Tells whether its prompt has the steer, and says what an operator says in the turn of each iteration. It gives the engine
/// time to flush what it settles by that, since two lines of the ledger that come together share a flush.
const OPERATORS: &str = "echo turn >> \"$OUTSIDE\"; printf '{\"cost_usd\": 0.25}' > \"$CRUCIBLE_USAGE\"; say() { \"$BIN\" \"$@\" --state-dir ../state > /dev/null || exit 9; }; \
    settled() { until grep -q \"settled\\\",\\\"key\\\":\\\"$1\\\"\" ../state/admissions.jsonl; do sleep 0.01; done; sleep 0.1; }; \
    prompt=$(cat); case $prompt in *faster*) echo steered >> \"$OUTSIDE\";; esac; \
    n=$(cat counter.txt); i=$(printf '%s\\n' \"$prompt\" | sed -n 's/^Iteration \\([0-9]*\\) of .*/\\1/p'); \
    case $i in 1) say steer 'be faster' --id s; say budget --iterations 4 --id b;; \
    2) say pause --id p; say resume --id r; settled r; say budget --iterations 3 --id c; settled b;; esac; \
    echo $((n + 1)) > counter.txt";

/// Asks and goes on, answers itself in the turn after that, and asks once more for what nobody answers.
/// It waits for its grant: an approval whose grant the engine did not live to record is superseded, and the run another one.
const APPROVALS: &str = "echo turn >> \"$OUTSIDE\"; printf '{\"cost_usd\": 0.25}' > \"$CRUCIBLE_USAGE\"; i=$(sed -n 's/^Iteration \\([0-9]*\\) of .*/\\1/p'); n=$(cat counter.txt); \
    granted() { until grep -q '\"outcome\":\"applied\"' ../state/admissions.jsonl; do sleep 0.01; done; }; \
    ask() { printf '{\"mode\": \"%s\", \"trace_id\": \"t\", \"handle\": \"%s\"}' \"$1\" \"$2\" > PROVISIONING_PENDING.json; }; \
    case $i in 1) ask continue gpu;; 2) \"$BIN\" approve --state-dir ../state > /dev/null || exit 9; granted;; 3) ask block tpu;; esac; \
    echo $((n + 1)) > counter.txt";

fn with_binary(agent: &str) -> String {
    agent.replace("$BIN", BINARY)
}

/// A steer, a pause, a resume and two budgets.
pub(crate) fn operators(judge: &str) -> Pack {
    Pack::new(&with_binary(OPERATORS), judge, "")
}

/// An ask that is granted and one that nobody answers.
pub(crate) fn approvals(judge: &str) -> Pack {
    Pack::new(&with_binary(APPROVALS), judge, "")
}

/// What the ledger says of each key: the input, how often it was admitted, and how it was settled.
pub(crate) type Inputs = BTreeMap<String, (Value, usize, Vec<Value>)>;

/// Reads the ledger.
pub(crate) fn inputs(pack: &Pack) -> Inputs {
    let text = std::fs::read_to_string(pack.path("state/admissions.jsonl")).unwrap_or_default();
    let mut inputs = Inputs::new();
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let (input, admitted, settled) =
            inputs.entry(line["key"].as_str().unwrap().to_owned()).or_insert((Value::Null, 0, Vec::new()));
        match line["kind"].as_str() {
            Some("admitted") => {
                *admitted += 1;
                *input = line["input"].clone();
            }
            _ => settled.push(line["outcome"].clone()),
        }
    }
    inputs
}

/// Whether each input was admitted once and settled at most once, and every one with a name of its own as it is when
/// nobody kills the run.
pub(crate) fn agree(expect: &Inputs, got: &Inputs) -> Result<(), String> {
    if let Some((key, found)) =
        got.iter().find(|(_, (_, admitted, settled))| *admitted != 1 || settled.len() > 1)
    {
        return Err(format!("the input {key}: {found:?}"));
    }
    let named = |inputs: &Inputs| -> Inputs {
        let named = inputs.iter().filter(|(key, _)| !key.starts_with("crucible:given:"));
        named.map(|(key, found)| (key.clone(), found.clone())).collect()
    };
    let (expect, got) = (named(expect), named(got));
    if expect == got { Ok(()) } else { Err(format!("inputs: {got:?} instead of {expect:?}")) }
}

/// The asks and answers of a log, and the regimes that were begun.
pub(crate) fn brackets(log: &[Value]) -> Vec<Value> {
    let told = log.iter().filter_map(|line| match line["kind"].as_str() {
        Some("approval_wait") => Some(line["handle"].clone()),
        Some("approval_resolved") => Some(line["outcome"].clone()),
        Some("segment") => Some(line["regime"].clone()),
        _ => None,
    });
    told.collect()
}

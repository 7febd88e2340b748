//! Turns the lines that a long log is made of into entries in one pass, without what no fold of a log looks at.
//! It refuses to know any other line: what it does not take is read in full.
//!
//! An event's kind is a tag in the middle of an object, for which serde keeps the object aside first and then reads it again, and
//! that is most of the time that a fold takes. Here the kind is guessed from where the writer puts it, and the line is then read
//! straight into the fields of that kind, its envelope among them, so that a wrong guess is seen.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::agent::AgentEvent;
use super::read::Entry;
use super::row::{Decision, RowWire};
use super::wire::{BlockedWire, SessionEvent};
use super::word::{Phase, TaskStatus};
use crate::score::Score;

/// A line of one kind: the envelope and the fields that a fold reads.
macro_rules! lines {
    ($($kind:literal $name:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* } => $event:expr;)*) => {
        $(
            #[derive(Deserialize)]
            struct $name<'a> {
                v: u32,
                #[serde(default)]
                seq: Option<u64>,
                #[serde(default, borrow)]
                ts: Option<Cow<'a, str>>,
                #[serde(borrow)]
                kind: Cow<'a, str>,
                $($(#[$meta])* $field: $type,)*
            }

            impl $name<'_> {
                fn entry(line: &[u8]) -> Option<Entry> {
                    let $name { v, seq, ts, kind, $($field,)* } = serde_json::from_slice(line).ok()?;
                    let is = v == 1 && kind == $kind;
                    let event = $event;
                    is.then(|| Entry { seq, ts: ts.map(Cow::into_owned), event: event($($field,)*) })
                }
            }
        )*

        /// Reads a line as one of the kind that it seems to be; `None` where it is not, or is of no kind that is read here.
        pub(super) fn entry(line: &[u8]) -> Option<Entry> {
            match guess(line)? {
                $($kind => $name::entry(line),)*
                _ => None,
            }
        }
    };
}

lines! {
    "row" RowLine { row: LeanRow, solved: bool, } => |row: LeanRow, solved| SessionEvent::Row { row: Box::new(row.whole()), solved };
    "phase" PhaseLine { phase: Phase, iter: u32, } => |phase, iter| SessionEvent::Phase { phase, iter };
    "agent_start" StartLine {
        iter: u32,
        #[serde(default)]
        task: Option<String>,
    } => |iter, task| SessionEvent::AgentStart { iter, task };
    "agent" SaidLine {
        event: Said,
        #[serde(default)]
        task: Option<String>,
    } => |_: Said, task| SessionEvent::Agent { event: AgentEvent::Other, task };
    "budget" BudgetLine {
        spent: f64,
        elapsed_secs: f64,
        #[serde(default)]
        input_tokens: Option<u64>,
        #[serde(default)]
        output_tokens: Option<u64>,
    } => |spent, elapsed_secs, input_tokens, output_tokens| {
        SessionEvent::Budget { spent, elapsed_secs, input_tokens, output_tokens }
    };
    "task_result" TaskLine {
        task: String,
        status: TaskStatus,
        plan_version: u32,
        task_kind: String,
        iter: u32,
        attempts: u32,
        #[serde(default)]
        cost_usd: f64,
        #[serde(default)]
        input_tokens: Option<u64>,
        #[serde(default)]
        output_tokens: Option<u64>,
        #[serde(default)]
        metric: Option<Score>,
        #[serde(default)]
        output: Option<Value>,
        #[serde(default)]
        recorded: Option<Value>,
        note: String,
        secs: f64,
        #[serde(default)]
        transport: Option<String>,
        #[serde(default)]
        blocked: Option<BlockedWire>,
    } => |task, status, plan_version, task_kind, iter, attempts, cost_usd, input_tokens, output_tokens, metric, output, recorded, note, secs, transport, blocked| {
        SessionEvent::TaskResult {
            task, status, plan_version, task_kind, iter, attempts, cost_usd, input_tokens, output_tokens, metric, output, recorded, note, secs,
            transport, blocked,
        }
    };
}

/// What an agent's line says is for people; that it says something is enough.
#[derive(Deserialize)]
struct Said {
    #[serde(rename = "type")]
    _type: IgnoredAny,
}

/// A row without its patch, the texts and hashes beside it, and the judge's detail.
#[derive(Deserialize)]
struct LeanRow {
    iter: u32,
    decision: Decision,
    #[serde(default)]
    note: String,
    #[serde(default)]
    score: Option<Score>,
    #[serde(default)]
    tiebreak: Option<Score>,
    #[serde(default)]
    total: Option<Score>,
    #[serde(default)]
    phase: Option<String>,
    #[serde(default)]
    kept_snap: Option<String>,
    #[serde(default)]
    candidate: Option<String>,
    #[serde(default)]
    killed: Vec<String>,
    #[serde(default)]
    frozen_restored: Vec<String>,
    #[serde(default)]
    dropped: Vec<String>,
    #[serde(default)]
    unchanged: bool,
    #[serde(default)]
    cost_usd: Option<f64>,
    #[serde(default)]
    secs: f64,
}

impl LeanRow {
    fn whole(self) -> RowWire {
        let LeanRow { note, score, tiebreak, total, phase, kept_snap, candidate, .. } = self;
        let LeanRow { killed, frozen_restored, dropped, unchanged, cost_usd, secs, .. } = self;
        RowWire {
            note,
            score,
            tiebreak,
            total,
            phase,
            kept_snap,
            candidate,
            killed,
            frozen_restored,
            dropped,
            unchanged,
            cost_usd,
            secs,
            ..RowWire::new(self.iter, self.decision)
        }
    }
}

/// The kind that stands where the writer of the log puts it: behind `v`, `seq` and `ts`.
fn guess(line: &[u8]) -> Option<&str> {
    let rest = line.strip_prefix(b"{\"v\":1,\"seq\":")?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let rest = rest.get(digits..)?.strip_prefix(b",\"ts\":\"")?;
    let (_, rest) = rest.split_at_checked(rest.iter().position(|byte| *byte == b'"')?)?;
    let rest = rest.strip_prefix(b"\",\"kind\":\"")?;
    std::str::from_utf8(rest.get(..rest.iter().position(|byte| *byte == b'"')?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::LogReader;
    use super::*;

    const HEAD: &str = r#"{"v":1,"seq":7,"ts":"2026-01-02T03:04:05.678Z","kind":"#;

    fn check(rest: &str) -> Option<Entry> {
        let line = format!("{HEAD}{rest}");
        let (lean, whole) = (entry(line.as_bytes()), LogReader::parse(line.as_bytes()));
        if let Some(lean) = &lean {
            let whole = whole.unwrap();
            assert_eq!((&lean.seq, &lean.ts), (&whole.seq, &whole.ts), "{line}");
            let event = match whole.event {
                SessionEvent::Row { mut row, solved } => {
                    let plain = RowWire::new(row.iter, row.decision);
                    (row.detail, row.diff, row.diffstat) = (plain.detail, plain.diff, plain.diffstat);
                    (row.evidence, row.candidate_md, row.frozen) =
                        (plain.evidence, plain.candidate_md, plain.frozen);
                    SessionEvent::Row { row, solved }
                }
                SessionEvent::Agent { task, .. } => SessionEvent::Agent { event: AgentEvent::Other, task },
                other => other,
            };
            assert_eq!(lean.event, event, "{line}");
        }
        lean
    }

    #[test]
    fn a_line_that_is_read_straight_says_what_the_whole_one_says_to_a_fold() {
        for rest in [
            r#""phase","phase":"iteration","iter":3}"#,
            r#""phase","new":{"kind":"row"},"phase":"iteration","iter":3}"#,
            r#""agent_start","iter":3}"#,
            r#""agent_start","iter":3,"task":"t"}"#,
            r#""agent","task":"t","event":{"type":"tokens"}}"#,
            r#""agent","event":{"type":"raw","stream":"stdout","text":"x"}}"#,
            r#""agent","event":{"type":"to come"}}"#,
            r#""budget","spent":0.1,"elapsed_secs":1e2,"input_tokens":3}"#,
            r#""task_result","task":"m","status":"fail","plan_version":1,"task_kind":"measure","iter":3,"attempts":2,"cost_usd":0.1,"input_tokens":1,"output_tokens":2,"metric":0.5,"output":{"valid":true},"recorded":{"changed":true},"blocked":{"reason":"budget_ceiling","task":"t"},"note":"\u00e9\n","secs":1.5,"transport":"provider"}"#,
            r#""row","row":{"iter":3,"decision":"keep","note":"n\"","detail":{"a":1},"diff":"d\n\u0000","diffstat":"s","score":2.5,"tiebreak":1,"total":3,"phase":"wide","kept_snap":"abc","evidence":[{"task":"a","disposition":"b","note":"c"}],"candidate_md":"m","candidate":"c","killed":["k"],"frozen_restored":["f"],"frozen":[{"path":"p","before":"b","after":null}],"dropped":["d"],"unchanged":true,"cost_usd":0.5,"secs":1.5,"new":[1]},"solved":true}"#,
            r#""row","row":{"iter":3,"decision":"discard"},"solved":false}"#,
        ] {
            assert!(check(rest).is_some(), "{rest}");
        }
    }

    #[test]
    fn what_is_not_what_it_seems_is_left_to_be_read_in_full() {
        for rest in [
            // Cut off, with a field twice, with a field that is missing or of another type, of a kind that is told later.
            r#""phase","phase":"iteration","iter":3"#,
            r#""phase","phase":"iteration","iter":3,"seq":8}"#,
            r#""phase","phase":"iteration"}"#,
            r#""phase","phase":"unheard of","iter":3}"#,
            r#""agent","event":{"text":"x"}}"#,
            r#""row","row":{"iter":3,"decision":"discard"},"solved":false,"kind":"phase"}"#,
            r#""note","msg":"x"}"#,
            r#""a_kind_to_come"}"#,
        ] {
            assert_eq!(check(rest), None, "{rest}");
        }
        for line in [
            "",
            "{",
            r#"{"v":2,"seq":7,"ts":"t","kind":"agent_start","iter":3}"#,
            r#"{"v":1,"kind":"agent_start","iter":3}"#,
            r#"{"v":1,"seq":7,"ts":"t\","kind":"agent_start","iter":3}"#,
        ] {
            assert_eq!(entry(line.as_bytes()), None, "{line}");
        }
    }
}

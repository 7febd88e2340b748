//! Turns the written tasks of a workflow into typed ones, each judged alone.
//! It refuses to know how they go together.

use std::ops::Range;

use super::super::error::Sink;
use super::super::section::Section;
use super::super::value::{Command, shorten};
use super::super::{At, Harness, agent};
use super::tables::{DIRECTIONS, EFFORTS, HARNESSES, JOINS, KINDS, LANES, OPS, OWN, STAGES, TASK};
use super::{
    EngineOp, Join, Lane, SessionName, TASKS_MAX, Task, TaskKind, TaskName, Workflow, WorkflowError, check,
};
use crate::score::Direction;

/// A task as it was read, with what only this build's limits ask about.
pub(super) struct Written {
    pub(super) task: Task,
    pub(super) epilogue: Option<Range<usize>>,
    pub(super) needs: Option<At<String>>,
    pub(super) advisory: Option<Range<usize>>,
    pub(super) isolated: Option<Range<usize>>,
    pub(super) kind: Range<usize>,
}

/// Reads the table; `at` is where what is not there is reported.
pub(in crate::manifest) fn decode(
    section: &Section<'_>,
    at: &Range<usize>,
    sink: &mut Sink,
) -> Option<Workflow> {
    let lane = word(section, "type", "type", LANES, sink);
    let lane = match lane.as_ref().map(|at| at.value) {
        Some("custom") => Lane::Custom,
        Some("playbook") => Lane::Playbook,
        _ => Lane::Autoresearch,
    };
    let tables = section.tables("task", &TASK, sink);
    if !(1..=TASKS_MAX).contains(&tables.len()) {
        let count = WorkflowError::Count { count: tables.len(), max: TASKS_MAX };
        if let Some(place) = section.place("task") {
            sink.put(place, count);
        }
        return None;
    }
    let wanted = tables.len();
    let tasks: Vec<Written> = tables.iter().filter_map(|(table, at)| task(table, at, sink)).collect();
    let result = name(section, "result", sink);
    let whole = tasks.len() == wanted;
    if whole {
        check::graph(&tasks, result.as_ref(), lane, sink);
    }
    if lane != Lane::Autoresearch {
        sink.put(section.place("type").unwrap_or(at.clone()), WorkflowError::LaneNotBuilt { lane });
    } else if whole {
        check::runnable(&tasks, sink);
    }
    let tasks = tasks.into_iter().map(|written| written.task).collect();
    Some(Workflow { tasks, result: result?.value })
}

fn task(table: &Section<'_>, at: &Range<usize>, sink: &mut Sink) -> Option<Written> {
    let name = name(table, "name", sink);
    let kind = word(table, "kind", "kind", KINDS, sink);
    let join = word(table, "join", "join", JOINS, sink);
    let stage = word(table, "stage", "stage", STAGES, sink);
    word(table, "isolation", "isolation", &["worktree"], sink);
    let depends_on = names(table, "depends_on", sink);
    let session = session(table, sink);
    let required = table.flag("required");
    let (name, kind) = (name?, kind?);
    for (key, kinds) in OWN {
        if let (Some(place), false) = (table.place(key), kinds.contains(&kind.value)) {
            sink.put(place, WorkflowError::KeyOfKind { key, kind: kind.value, kinds });
        }
    }
    let own = own(table, &name, kind.value, at, sink)?;
    let text = |At { value, span }: At<&str>| At { value: value.to_owned(), span };
    Some(Written {
        epilogue: stage.filter(|stage| stage.value == "epilogue").map(|stage| stage.span),
        needs: table.text("needs").filter(|needs| needs.value != "any").map(text),
        advisory: required.as_ref().filter(|flag| !flag.value).map(|flag| flag.span.clone()),
        isolated: table.place("isolation"),
        kind: kind.span,
        task: Task {
            name,
            kind: own,
            depends_on,
            session,
            required: required.is_none_or(|flag| flag.value),
            isolated: table.place("isolation").is_some(),
            join: match join.map(|join| join.value) {
                Some("passed") => Join::Passed,
                Some("settled") => Join::Settled,
                _ => Join::All,
            },
            emits: table
                .place("emits")
                .map(|_| table.texts("emits").iter().map(|at| at.value.to_owned()).collect()),
        },
    })
}

/// The keys of one kind.
fn own(
    table: &Section<'_>,
    name: &At<TaskName>,
    kind: &'static str,
    at: &Range<usize>,
    sink: &mut Sink,
) -> Option<TaskKind> {
    let needed = |key: &'static str, sink: &mut Sink| {
        if table.place(key).is_none() && !table.misspells(key) {
            let task = name.value.to_string();
            sink.put(at.clone(), WorkflowError::Needed { task, key, what: kind });
        }
    };
    match kind {
        "agent" => {
            needed("prompt", sink);
            let harness = word(table, "harness", "harness", HARNESSES, sink);
            let harness = Harness::ALL
                .into_iter()
                .find(|known| harness.as_ref().is_some_and(|harness| harness.value == known.token()));
            let model = table.parse("model", sink, agent::model).map(|at| at.value);
            let effort = word(table, "effort", "effort", EFFORTS, sink).map(|at| at.value);
            let prompt = table.text("prompt")?.value.to_owned();
            Some(TaskKind::Agent { prompt, harness, model, effort })
        }
        "command" => {
            needed("command", sink);
            Some(TaskKind::Command(table.value("command", sink, Command::parse)?.value))
        }
        "evaluate" => {
            needed("command", sink);
            let command = table.value("command", sink, Command::parse);
            let (threshold, direction) = (table.float("threshold"), direction(table, sink));
            let (written, with) = (table.place("threshold"), table.place("direction"));
            if let (Some(place), None) | (None, Some(place)) = (written, with) {
                sink.put(place, WorkflowError::Threshold);
            }
            Some(TaskKind::Evaluate { command: command?.value, threshold: threshold.zip(direction) })
        }
        "top_k" => {
            needed("k", sink);
            needed("direction", sink);
            Some(TaskKind::TopK { k: table.number("k")?, direction: direction(table, sink)? })
        }
        _ => {
            needed("op", sink);
            engine(table, name, at, sink)
        }
    }
}

fn engine(table: &Section<'_>, task: &At<TaskName>, at: &Range<usize>, sink: &mut Sink) -> Option<TaskKind> {
    let op = word(table, "op", "op", OPS, sink)?;
    let op = EngineOp::ALL.into_iter().find(|known| known.token() == op.value)?;
    let folds = matches!(op, EngineOp::Grade | EngineOp::Decide);
    for key in ["source", "tiebreak"] {
        if let (Some(place), false) = (table.place(key), folds) {
            sink.put(place, WorkflowError::KeyOfOp { key, op: op.token() });
        }
    }
    if folds && table.place("source").is_none() && !table.misspells("source") {
        let task = task.value.to_string();
        sink.put(at.clone(), WorkflowError::Needed { task, key: "source", what: op.token() });
    }
    Some(TaskKind::Engine {
        op,
        source: name(table, "source", sink),
        tiebreak: name(table, "tiebreak", sink),
    })
}

fn direction(table: &Section<'_>, sink: &mut Sink) -> Option<Direction> {
    word(table, "direction", "direction", DIRECTIONS, sink)?.value.parse().ok()
}

/// One of a few words.
fn word(
    table: &Section<'_>,
    key: &str,
    what: &'static str,
    words: &'static [&'static str],
    sink: &mut Sink,
) -> Option<At<&'static str>> {
    let At { value, span } = table.text(key)?;
    match words.iter().find(|word| **word == value) {
        Some(word) => Some(At { value: *word, span }),
        None => {
            sink.put(span, WorkflowError::Word { what, word: shorten(value), words });
            None
        }
    }
}

fn name(table: &Section<'_>, key: &str, sink: &mut Sink) -> Option<At<TaskName>> {
    one_name(table.text(key)?, sink)
}

fn one_name(At { value, span }: At<&str>, sink: &mut Sink) -> Option<At<TaskName>> {
    let name = TaskName::parse(value);
    if name.is_none() {
        sink.put(span.clone(), WorkflowError::Name { what: "task", name: shorten(value) });
    }
    Some(At { value: name?, span })
}

fn names(table: &Section<'_>, key: &str, sink: &mut Sink) -> Vec<At<TaskName>> {
    table.texts(key).into_iter().filter_map(|text| one_name(text, sink)).collect()
}

fn session(table: &Section<'_>, sink: &mut Sink) -> Option<At<SessionName>> {
    let At { value, span } = table.text("session")?;
    let name = SessionName::parse(value);
    if name.is_none() {
        sink.put(span.clone(), WorkflowError::Name { what: "session", name: shorten(value) });
    }
    Some(At { value: name?, span })
}

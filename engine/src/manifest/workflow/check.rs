//! Turns the tasks of a workflow, each good alone, into what is wrong with them as a graph (contract §1.3, note N3).
//! It refuses to know their text: every mistake goes to the place that its task was read from.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use policy::diag::did_you_mean;

use super::super::At;
use super::super::error::Sink;
use super::super::value::shorten;
use super::decode::Written;
use super::{EngineOp, Join, Lane, Task, TaskKind, TaskName, WorkflowError};

/// The tasks by name, and what each waits for, near and far.
struct Graph<'t> {
    tasks: BTreeMap<&'t TaskName, &'t Task>,
    above: BTreeMap<&'t TaskName, BTreeSet<&'t TaskName>>,
}

/// Looks at all of the tasks together.
pub(super) fn graph(written: &[Written], result: Option<&At<TaskName>>, lane: Lane, sink: &mut Sink) {
    let mut tasks: BTreeMap<&TaskName, &Task> = BTreeMap::new();
    for Written { task, .. } in written {
        if let Some(first) = tasks.get(&task.name.value) {
            let twice = WorkflowError::Twice { name: task.name.value.to_string() };
            sink.put_related(task.name.span.clone(), twice, (first.name.span.clone(), "the first one"));
            continue;
        }
        tasks.insert(&task.name.value, task);
    }
    let mut lost = false;
    for Written { task, .. } in written {
        for dependency in &task.depends_on {
            lost |= !known(&tasks, "depends_on", dependency, sink);
        }
    }
    lost |= result.is_some_and(|result| !known(&tasks, "[workflow].result", result, sink));
    if lost || tasks.len() != written.len() {
        return;
    }
    let order = match order(&tasks) {
        Ok(order) => order,
        Err((span, path)) => return sink.put(span, WorkflowError::Cycle { path }),
    };
    let above = above(&tasks, &order);
    let graph = Graph { tasks, above };
    for Written { task, .. } in written {
        graph.sources(task, sink);
        graph.scores(task, sink);
        if task.join != Join::All && task.depends_on.is_empty() {
            let task_name = task.name.value.to_string();
            sink.put(task.name.span.clone(), WorkflowError::JoinsNothing { task: task_name });
        }
    }
    graph.advisory(sink);
    graph.sessions(written, sink);
    if let (Lane::Autoresearch, Some(result)) = (lane, result) {
        graph.shape(result, sink);
    }
}

fn known(
    tasks: &BTreeMap<&TaskName, &Task>,
    key: &'static str,
    name: &At<TaskName>,
    sink: &mut Sink,
) -> bool {
    let there = tasks.contains_key(&name.value);
    if !there {
        let near =
            did_you_mean(name.value.as_str(), tasks.keys().map(|name| name.as_str())).map(str::to_owned);
        let name_shown = shorten(name.value.as_str());
        sink.put(name.span.clone(), WorkflowError::NoTask { key, name: name_shown, near });
    }
    there
}

/// The tasks, each behind all that it waits for; or a way from one back to itself, at the dependency that closes it.
fn order<'t>(tasks: &BTreeMap<&'t TaskName, &'t Task>) -> Result<Vec<&'t TaskName>, (Range<usize>, String)> {
    let mut left: BTreeSet<&TaskName> = tasks.keys().copied().collect();
    let mut order = Vec::new();
    loop {
        let waits = |name: &TaskName| {
            tasks.get(name).is_some_and(|task| task.depends_on.iter().any(|at| left.contains(&at.value)))
        };
        let free: Vec<&TaskName> = left.iter().filter(|name| !waits(name)).copied().collect();
        if free.is_empty() {
            return round(tasks, &left).map_or(Ok(order), Err);
        }
        left.retain(|name| !free.contains(name));
        order.extend(free);
    }
}

/// A way round among tasks each of which waits for another of them.
fn round(tasks: &BTreeMap<&TaskName, &Task>, left: &BTreeSet<&TaskName>) -> Option<(Range<usize>, String)> {
    let mut way: Vec<&TaskName> = vec![left.first()?];
    loop {
        let task = tasks.get(*way.last()?)?;
        let next = task.depends_on.iter().find(|at| left.contains(&at.value))?;
        if let Some(start) = way.iter().position(|name| **name == next.value) {
            let mut names: Vec<&str> = way.iter().skip(start).map(|name| name.as_str()).collect();
            names.push(next.value.as_str());
            return Some((next.span.clone(), names.join(" -> ")));
        }
        way.push(&next.value);
    }
}

/// All that each task waits for.
fn above<'t>(
    tasks: &BTreeMap<&'t TaskName, &'t Task>,
    order: &[&'t TaskName],
) -> BTreeMap<&'t TaskName, BTreeSet<&'t TaskName>> {
    let mut above: BTreeMap<&TaskName, BTreeSet<&TaskName>> = BTreeMap::new();
    for name in order {
        let mut all = BTreeSet::new();
        for near in tasks.get(name).iter().flat_map(|task| &task.depends_on) {
            all.extend(above.get(&near.value).into_iter().flatten().copied());
            all.insert(&near.value);
        }
        above.insert(name, all);
    }
    above
}

impl<'t> Graph<'t> {
    fn waits_for(&self, task: &TaskName, other: &TaskName) -> bool {
        self.above.get(task).is_some_and(|above| above.contains(other))
    }

    /// What a grade or a decide takes its numbers from.
    fn sources(&self, task: &Task, sink: &mut Sink) {
        let TaskKind::Engine { op, source, tiebreak } = &task.kind else { return };
        let named = [("source", source), ("tiebreak", tiebreak)];
        for (key, source) in named.into_iter().filter_map(|(key, source)| Some((key, source.as_ref()?))) {
            if !known(&self.tasks, key, source, sink) {
                continue;
            }
            let names = || (task.name.value.to_string(), source.value.to_string());
            if !self.waits_for(&task.name.value, &source.value) {
                let (task, source_task) = names();
                sink.put(source.span.clone(), WorkflowError::SourceApart { task, key, source_task });
            }
            let kind = self.tasks.get(&source.value).map(|task| &task.kind);
            let scores = matches!(kind, Some(TaskKind::Evaluate { .. }));
            let judges = kind
                .and_then(TaskKind::op)
                .is_some_and(|op| matches!(op, EngineOp::Measure | EngineOp::Grade));
            let (good, wanted) = match (op, key) {
                (EngineOp::Decide, "source") => (judges, "measure or grade"),
                (EngineOp::Grade, _) => (scores, "evaluate task"),
                _ => (scores || judges, "evaluate task, measure or grade"),
            };
            if !good {
                let (task, source_task) = names();
                sink.put(source.span.clone(), WorkflowError::SourceKind { task, key, source_task, wanted });
            }
        }
    }

    /// Who needs a score from a task that promises none.
    fn scores(&self, task: &Task, sink: &mut Sink) {
        let silent =
            |task: &Task| task.emits.as_ref().is_some_and(|emits| !emits.iter().any(|name| name == "score"));
        let from: Vec<&TaskName> = match &task.kind {
            TaskKind::TopK { .. } => task.depends_on.iter().map(|at| &at.value).collect(),
            TaskKind::Engine { op: EngineOp::Grade, source: Some(source), .. } => vec![&source.value],
            TaskKind::Evaluate { threshold: Some(_), .. } => vec![&task.name.value],
            _ => Vec::new(),
        };
        for source in from.into_iter().filter(|name| self.tasks.get(name).is_some_and(|task| silent(task))) {
            let error =
                WorkflowError::NoScore { task: task.name.value.to_string(), source_task: source.to_string() };
            sink.put(task.name.span.clone(), error);
        }
    }

    /// A required task that an advisory one could block, by a way of joins that want all.
    fn advisory(&self, sink: &mut Sink) {
        for task in self.tasks.values().filter(|task| task.required) {
            let mut todo: Vec<&Task> = vec![task];
            let mut seen = BTreeSet::new();
            while let Some(next) = todo.pop() {
                if next.join != Join::All {
                    continue;
                }
                for at in next.depends_on.iter().filter(|at| seen.insert(&at.value)) {
                    let Some(dependency) = self.tasks.get(&at.value) else { continue };
                    if !dependency.required {
                        let (required, advisory) = (task.name.value.to_string(), at.value.to_string());
                        sink.put_related(
                            task.name.span.clone(),
                            WorkflowError::Advisory { required, advisory },
                            (dependency.name.span.clone(), "the advisory one"),
                        );
                    }
                    todo.push(dependency);
                }
            }
        }
    }

    /// Tasks of one conversation, which is one line of turns under one configuration.
    fn sessions(&self, written: &[Written], sink: &mut Sink) {
        let mut before: Vec<&Task> = Vec::new();
        for Written { task, .. } in written {
            let Some(session) = &task.session else { continue };
            let name = session.value.to_string();
            let turns =
                matches!(task.kind, TaskKind::Agent { .. }) || task.kind.op() == Some(EngineOp::Propose);
            let task_name = task.name.value.to_string();
            if !turns {
                sink.put(session.span.clone(), WorkflowError::SessionOfNone { task: task_name });
                continue;
            }
            let same =
                |other: &&&Task| other.session.as_ref().is_some_and(|other| other.value == session.value);
            let others: Vec<&Task> = before.iter().filter(same).copied().collect();
            for isolated in
                others.iter().copied().chain([task]).filter(|one| one.isolated && !others.is_empty())
            {
                let task = isolated.name.value.to_string();
                sink.put(
                    session.span.clone(),
                    WorkflowError::SessionIsolated { session: name.clone(), task },
                );
            }
            for other in others {
                let (one, two) = (&other.name.value, &task.name.value);
                let (session_name, a, b) = (name.clone(), one.to_string(), two.to_string());
                if !self.waits_for(one, two) && !self.waits_for(two, one) {
                    let error = WorkflowError::SessionUnordered { session: session_name, a, b };
                    sink.put(session.span.clone(), error);
                } else if let Some(key) = differs(other, task) {
                    let error = WorkflowError::SessionDiffers { session: session_name, a, b, key };
                    sink.put(session.span.clone(), error);
                }
            }
            before.push(task);
        }
    }

    /// The shape of an autoresearch graph: a decide over a judged candidate.
    fn shape(&self, result: &At<TaskName>, sink: &mut Sink) {
        let kind = self.tasks.get(&result.value).map(|task| &task.kind);
        let Some(TaskKind::Engine { op: EngineOp::Decide, source, .. }) = kind else {
            let error = WorkflowError::ResultKind { name: result.value.to_string() };
            return sink.put(result.span.clone(), error);
        };
        let Some(source) = source.as_ref().filter(|source| self.tasks.contains_key(&source.value)) else {
            return;
        };
        for op in [EngineOp::Propose, EngineOp::Apply] {
            let above = self.above.get(&source.value).into_iter().flatten();
            let mut ops = above.filter_map(|name| self.tasks.get(name)?.kind.op());
            if !ops.any(|found| found == op) {
                let source_task = source.value.to_string();
                sink.put(source.span.clone(), WorkflowError::NoAncestor { source_task, op: op.token() });
            }
        }
    }
}

/// The key in which two tasks of one conversation differ. A propose has the manifest's own configuration.
fn differs(one: &Task, two: &Task) -> Option<&'static str> {
    let of = |task: &'_ Task| match &task.kind {
        TaskKind::Agent { harness, model, effort, .. } => (*harness, model.clone(), *effort),
        _ => (None, None, None),
    };
    let ((harness, model, effort), (of_two, models, efforts)) = (of(one), of(two));
    let pairs = [("harness", harness != of_two), ("model", model != models), ("effort", effort != efforts)];
    pairs.into_iter().find(|(_, differ)| *differ).map(|(key, _)| key)
}

/// Refuses by name what is a good graph and not run by this build.
pub(super) fn runnable(written: &[Written], sink: &mut Sink) {
    const STEPS: &str =
        "runs agent tasks, and one each of the engine's steps propose, apply, measure and decide";
    let mut seen: Vec<EngineOp> = Vec::new();
    for Written { task, epilogue, needs, advisory, isolated, kind } in written {
        let mut refuse = |at: &Range<usize>, what: String, built| {
            let task = task.name.value.to_string();
            sink.put(at.clone(), WorkflowError::NotBuilt { task, what, built });
        };
        match task.kind.op() {
            None if matches!(task.kind, TaskKind::Agent { .. }) => {}
            None => refuse(kind, format!("kind = \"{}\"", task.kind.token()), STEPS),
            Some(EngineOp::Grade) => refuse(kind, "op = \"grade\"".to_owned(), STEPS),
            Some(op) if seen.contains(&op) => refuse(kind, format!("a second {}", op.token()), STEPS),
            Some(op) => seen.push(op),
        }
        if let TaskKind::Engine { tiebreak: Some(tiebreak), .. } = &task.kind {
            refuse(&tiebreak.span, "`tiebreak`".to_owned(), "takes a tiebreak from the judge's reading");
        }
        if let Some(at) = epilogue {
            refuse(at, "stage = \"epilogue\"".to_owned(), "runs iterations only");
        }
        if let Some(at) = needs {
            refuse(&at.span, format!("needs = \"{}\"", shorten(&at.value)), "offers no capability");
        }
        let is_agents = matches!(task.kind, TaskKind::Agent { .. });
        if let (Some(at), false) = (advisory, is_agents) {
            refuse(at, "required = false".to_owned(), "discards a candidate whose engine's step failed");
        }
        if let (Some(at), true) = (isolated, is_agents) {
            let built = "runs agent tasks one at a time, in the candidate's files";
            refuse(at, "isolation = \"worktree\"".to_owned(), built);
        }
        for at in task.depends_on.iter().filter(|_| task.kind.is_turn()) {
            let above = written.iter().find(|other| other.task.name.value == at.value);
            if let Some(Written { task: above, .. }) = above
                && !above.kind.is_turn()
            {
                let name = shorten(at.value.as_str());
                let built = "records the candidate when all turns are over, and then applies it";
                refuse(&at.span, format!("waiting for `{name}`, which is no turn,"), built);
            }
        }
    }
}

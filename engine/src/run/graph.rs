//! Turns the tasks of an iteration into the order in which they become ready (contract §1.3).
//! It refuses to know what a task does.

use crate::log::TaskStatus;

/// What an engine task is for (contract §1.3, note N16 `op`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// An agent turn that edits the workspace.
    Propose,
    /// Makes the candidate live.
    Apply,
    /// Asks the frozen judge.
    Measure,
    /// Applies the universal rule.
    Decide,
}

impl Op {
    /// The wire token, `task_kind` of a `task_result`.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Op::Propose => "propose",
            Op::Apply => "apply",
            Op::Measure => "measure",
            Op::Decide => "decide",
        }
    }
}

/// The place of a task in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(usize);

/// One task of an iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its name, unique in the graph.
    pub name: String,
    /// What it is for.
    pub op: Op,
    /// The tasks that must have passed before it runs.
    pub depends_on: Vec<TaskId>,
}

/// The graph that each iteration runs. Every task depends only on tasks before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    tasks: Vec<Task>,
}

impl Graph {
    /// What a pack without `[workflow]` gets: propose, apply, measure, decide.
    #[must_use]
    pub fn autoresearch() -> Graph {
        let ops = [Op::Propose, Op::Apply, Op::Measure, Op::Decide];
        let tasks = ops.iter().enumerate().map(|(at, op)| Task {
            name: op.token().to_owned(),
            op: *op,
            depends_on: at.checked_sub(1).map(TaskId).into_iter().collect(),
        });
        Graph { tasks: tasks.collect() }
    }

    /// The tasks in declaration order.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks.iter().enumerate().map(|(at, task)| (TaskId(at), task))
    }

    /// One task.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(id.0)
    }

    /// The first task that has not settled and whose dependencies have all passed.
    #[must_use]
    pub fn ready(&self, settled: &Settled) -> Option<TaskId> {
        let passed = |id: &TaskId| settled.status(*id) == Some(TaskStatus::Pass);
        self.tasks()
            .find(|(id, task)| settled.status(*id).is_none() && task.depends_on.iter().all(passed))
            .map(|(id, _)| id)
    }
}

/// How the tasks of one iteration have settled so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settled {
    statuses: Vec<(TaskId, TaskStatus)>,
}

impl Settled {
    /// How a task settled; `None` while it has not.
    #[must_use]
    pub fn status(&self, id: TaskId) -> Option<TaskStatus> {
        self.statuses.iter().find(|(task, _)| *task == id).map(|(_, status)| *status)
    }

    /// Settles a task; the first status stands.
    pub fn settle(&mut self, id: TaskId, status: TaskStatus) {
        if self.status(id).is_none() {
            self.statuses.push((id, status));
        }
    }

    /// Keeps how these tasks settled, and forgets it of the others.
    pub fn retain(&mut self, keep: impl Fn(TaskId) -> bool) {
        self.statuses.retain(|(id, _)| keep(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_waits_for_the_one_before_it_to_pass() {
        let graph = Graph::autoresearch();
        let mut settled = Settled::default();
        let mut order = Vec::new();
        while let Some(id) = graph.ready(&settled) {
            order.push(graph.task(id).unwrap().op);
            settled.settle(id, TaskStatus::Pass);
        }
        assert_eq!(order, [Op::Propose, Op::Apply, Op::Measure, Op::Decide]);
    }

    #[test]
    fn nothing_is_ready_behind_a_failed_task() {
        let graph = Graph::autoresearch();
        let mut settled = Settled::default();
        let first = graph.ready(&settled).unwrap();
        settled.settle(first, TaskStatus::Fail);
        assert_eq!(graph.ready(&settled), None);
    }
}

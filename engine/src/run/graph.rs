//! Turns the tasks of an iteration into the order in which they become ready (contract §1.3).
//! It refuses to know what a task does.

use crate::log::{PlanTask, TaskStatus};
use crate::manifest::{EngineOp, TaskName, Workflow};

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
    /// The step of a manifest's engine task, where this build runs it.
    fn of(op: EngineOp) -> Option<Op> {
        match op {
            EngineOp::Propose => Some(Op::Propose),
            EngineOp::Apply => Some(Op::Apply),
            EngineOp::Measure => Some(Op::Measure),
            EngineOp::Decide => Some(Op::Decide),
            EngineOp::Grade => None,
        }
    }

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

/// Why a graph is not the built-in one.
const MANIFESTS: &str = "the manifest's [workflow]";

/// The graph that each iteration runs. Every task depends only on tasks before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    tasks: Vec<Task>,
    reason: &'static str,
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
        Graph { tasks: tasks.collect(), reason: "the built-in graph" }
    }

    /// What a pack with `[workflow]` gets: its engine tasks, each behind all that it waits for. A manifest holds no other
    /// tasks and none that wait for each other.
    #[must_use]
    pub fn of(workflow: &Workflow) -> Graph {
        let mut left: Vec<_> =
            workflow.tasks.iter().filter_map(|task| Some((Op::of(task.kind.op()?)?, task))).collect();
        let mut placed: Vec<&TaskName> = Vec::new();
        let mut tasks = Vec::new();
        let ready = |placed: &[&TaskName], task: &crate::manifest::Task| {
            task.depends_on.iter().all(|at| placed.contains(&&at.value))
        };
        while let Some(at) = left.iter().position(|(_, task)| ready(&placed, task)) {
            let (op, task) = left.remove(at);
            let place = |name: &TaskName| placed.iter().position(|placed| *placed == name).map(TaskId);
            let depends_on = task.depends_on.iter().filter_map(|at| place(&at.value)).collect();
            tasks.push(Task { name: task.name.value.to_string(), op, depends_on });
            placed.push(&task.name.value);
        }
        Graph { tasks, reason: MANIFESTS }
    }

    /// What a log tells of a graph that a manifest brought. None where it names a step that there is not, or a task that does
    /// not come before the one that waits for it.
    #[must_use]
    pub fn of_log(told: &[PlanTask]) -> Option<Graph> {
        let mut tasks: Vec<Task> = Vec::new();
        for PlanTask { name, op, depends_on } in told {
            let op = EngineOp::ALL.into_iter().find(|known| known.token() == op.as_str()).and_then(Op::of)?;
            let place = |name: &String| tasks.iter().position(|task| task.name == *name).map(TaskId);
            let depends_on = depends_on.iter().map(place).collect::<Option<_>>()?;
            tasks.push(Task { name: name.clone(), op, depends_on });
        }
        Some(Graph { tasks, reason: MANIFESTS })
    }

    /// The tasks for the log; none where they are the built-in ones, which every reader knows.
    #[must_use]
    pub fn told(&self) -> Vec<PlanTask> {
        let name = |id: &TaskId| self.task(*id).map(|task| task.name.clone());
        let told = |task: &Task| PlanTask {
            name: task.name.clone(),
            op: task.op.token().to_owned(),
            depends_on: task.depends_on.iter().filter_map(name).collect(),
        };
        self.tasks.iter().filter(|_| self.reason == MANIFESTS).map(told).collect()
    }

    /// Why it is this one, for the log.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.reason
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
    fn a_manifests_tasks_run_behind_what_they_wait_for_whatever_their_order() {
        let task = |name: &str, op: &str, more: &str| {
            format!("[[workflow.task]]\nname = \"{name}\"\nkind = \"engine\"\nop = \"{op}\"\n{more}\n")
        };
        let text = [
            "[repo]\npath = \".\"\n[agent]\nbackend = \"command\"\nagent_cmd = \"a\"\n[judge]\nmeasure_cmd = \"m\"\n\
             direction = \"lower\"\n[workflow]\nresult = \"choose\"\n",
            &task("choose", "decide", "source = \"bench\"\ndepends_on = [\"bench\"]"),
            &task("bench", "measure", "depends_on = [\"invent\", \"deploy\"]"),
            &task("invent", "propose", ""),
            &task("deploy", "apply", "depends_on = [\"invent\"]"),
        ];
        let manifest = crate::manifest::Manifest::parse("c.toml", &text.concat()).unwrap();
        let graph = Graph::of(&manifest.workflow.unwrap());
        let mut settled = Settled::default();
        let mut order = Vec::new();
        while let Some(id) = graph.ready(&settled) {
            order.push(graph.task(id).unwrap().name.clone());
            settled.settle(id, TaskStatus::Pass);
        }
        assert_eq!(order, ["invent", "deploy", "bench", "choose"]);
        assert_eq!(graph.task(TaskId(2)).unwrap().depends_on, [TaskId(0), TaskId(1)]);
        assert_eq!(Graph::of_log(&graph.told()), Some(graph));
        assert_eq!(Graph::autoresearch().told(), []);
        let unknown = PlanTask { name: "x".into(), op: "dance".into(), depends_on: Vec::new() };
        assert_eq!(Graph::of_log(&[unknown]), None);
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

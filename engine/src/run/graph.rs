//! Turns the tasks of an iteration into the order in which they become ready (contract §1.3).
//! It refuses to know what a task does.

use crate::log::{PlanTask, TaskStatus};
use crate::manifest::{self, EngineOp, Join, TaskKind, TaskName, Workflow};

/// What a task is for (contract §1.3, note N16 `kind` and `op`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// An agent turn that edits the workspace.
    Propose,
    /// A turn of an agent on the candidate as the tasks before it left it.
    Agent,
    /// Makes the candidate live.
    Apply,
    /// Asks the frozen judge.
    Measure,
    /// Applies the universal rule.
    Decide,
}

impl Op {
    const ALL: [Op; 5] = [Op::Propose, Op::Agent, Op::Apply, Op::Measure, Op::Decide];

    /// What a manifest's task is for, where this build runs it.
    fn of(kind: &TaskKind) -> Option<Op> {
        match kind {
            TaskKind::Agent { .. } => Some(Op::Agent),
            TaskKind::Engine { op: EngineOp::Propose, .. } => Some(Op::Propose),
            TaskKind::Engine { op: EngineOp::Apply, .. } => Some(Op::Apply),
            TaskKind::Engine { op: EngineOp::Measure, .. } => Some(Op::Measure),
            TaskKind::Engine { op: EngineOp::Decide, .. } => Some(Op::Decide),
            _ => None,
        }
    }

    /// Whether it is a turn of an agent.
    #[must_use]
    pub fn is_turn(self) -> bool {
        matches!(self, Op::Propose | Op::Agent)
    }

    /// The wire token, `task_kind` of a `task_result`.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Op::Propose => "propose",
            Op::Agent => "agent",
            Op::Apply => "apply",
            Op::Measure => "measure",
            Op::Decide => "decide",
        }
    }
}

/// The place of a task in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(usize);

impl TaskId {
    /// Which of the tasks it is, from 1, as `plan_admitted` names them.
    #[must_use]
    pub fn place(self) -> usize {
        self.0.saturating_add(1)
    }
}

/// One task of an iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its name, unique in the graph.
    pub name: String,
    /// What it is for.
    pub op: Op,
    /// The tasks that must have settled before it runs.
    pub depends_on: Vec<TaskId>,
    /// Which of them must have passed.
    pub join: Join,
    /// Whether its failure discards the candidate.
    pub required: bool,
}

/// What an iteration does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The task runs.
    Run(TaskId),
    /// The task cannot run: too few of those that it waits for have passed.
    Blocked(TaskId),
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
            join: Join::All,
            required: true,
        });
        Graph { tasks: tasks.collect(), reason: "the built-in graph" }
    }

    /// What a pack with `[workflow]` gets: its tasks, each behind all that it waits for, and the turns of agents before the
    /// rest, since what they leave is what is applied. A manifest holds no tasks that wait for each other, and no turn that
    /// waits for what is no turn.
    #[must_use]
    pub fn of(workflow: &Workflow) -> Graph {
        let mut left: Vec<_> =
            workflow.tasks.iter().filter_map(|task| Some((Op::of(&task.kind)?, task))).collect();
        let mut placed: Vec<&TaskName> = Vec::new();
        let mut tasks = Vec::new();
        let ready = |placed: &[&TaskName], task: &manifest::Task| {
            task.depends_on.iter().all(|at| placed.contains(&&at.value))
        };
        loop {
            let turn = left.iter().position(|(op, task)| op.is_turn() && ready(&placed, task));
            let next = turn.or_else(|| left.iter().position(|(_, task)| ready(&placed, task)));
            let Some(at) = next else { return Graph { tasks, reason: MANIFESTS } };
            let (op, task) = left.remove(at);
            let place = |name: &TaskName| placed.iter().position(|placed| *placed == name).map(TaskId);
            let depends_on = task.depends_on.iter().filter_map(|at| place(&at.value)).collect();
            let name = task.name.value.to_string();
            tasks.push(Task { name, op, depends_on, join: task.join, required: task.required });
            placed.push(&task.name.value);
        }
    }

    /// What a log tells of a graph that a manifest brought. None where it names a step that there is not, or a task that does
    /// not come before the one that waits for it.
    #[must_use]
    pub fn of_log(told: &[PlanTask]) -> Option<Graph> {
        let mut tasks: Vec<Task> = Vec::new();
        for PlanTask { name, op, depends_on, advisory, join } in told {
            let op = Op::ALL.into_iter().find(|known| known.token() == op.as_str())?;
            let join = match join {
                Some(join) => Join::EVERY.into_iter().find(|known| known.token() == join.as_str())?,
                None => Join::All,
            };
            let place = |name: &String| tasks.iter().position(|task| task.name == *name).map(TaskId);
            let depends_on = depends_on.iter().map(place).collect::<Option<_>>()?;
            tasks.push(Task { name: name.clone(), op, depends_on, join, required: !advisory });
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
            advisory: !task.required,
            join: (task.join != Join::All).then(|| task.join.token().to_owned()),
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

    /// What comes next: the first task that has not settled, whose dependencies all have.
    #[must_use]
    pub fn next(&self, settled: &Settled) -> Option<Next> {
        let terminal = |id: &TaskId| settled.status(*id).is_some();
        let (id, task) = self
            .tasks()
            .find(|(id, task)| settled.status(*id).is_none() && task.depends_on.iter().all(terminal))?;
        let passed = |id: &TaskId| settled.status(*id) == Some(TaskStatus::Pass);
        let free = match task.join {
            // One that had nothing to do is in nobody's way.
            Join::All => {
                task.depends_on.iter().all(|id| settled.status(*id).is_some_and(TaskStatus::is_good))
            }
            Join::Passed => task.depends_on.iter().any(passed),
            Join::Settled => true,
        };
        Some(if free { Next::Run(id) } else { Next::Blocked(id) })
    }

    /// Whether a turn has not settled.
    #[must_use]
    pub fn has_turns_left(&self, settled: &Settled) -> bool {
        self.turns().any(|id| settled.status(id).is_none())
    }

    /// The turns of agents.
    pub fn turns(&self) -> impl Iterator<Item = TaskId> {
        self.tasks().filter(|(_, task)| task.op.is_turn()).map(|(id, _)| id)
    }

    /// Whether a task is a turn of an agent.
    #[must_use]
    pub fn is_turn(&self, id: TaskId) -> bool {
        self.task(id).is_some_and(|task| task.op.is_turn())
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
        while let Some(Next::Run(id)) = graph.next(&settled) {
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
        let manifest = manifest::Manifest::parse("c.toml", &text.concat()).unwrap();
        let graph = Graph::of(&manifest.workflow.unwrap());
        let mut settled = Settled::default();
        let mut order = Vec::new();
        while let Some(Next::Run(id)) = graph.next(&settled) {
            order.push(graph.task(id).unwrap().name.clone());
            settled.settle(id, TaskStatus::Pass);
        }
        assert_eq!(order, ["invent", "deploy", "bench", "choose"]);
        assert_eq!(graph.task(TaskId(2)).unwrap().depends_on, [TaskId(0), TaskId(1)]);
        assert_eq!(Graph::of_log(&graph.told()), Some(graph));
        assert_eq!(Graph::autoresearch().told(), []);
        let critic = "[[workflow.task]]\nname = \"critic\"\nkind = \"agent\"\nprompt = \"p\"\ndepends_on = [\"invent\"]\n\
                      required = false\n[[workflow.task]]\nname = \"plan\"\nkind = \"agent\"\nprompt = \"p\"\n";
        let manifest = manifest::Manifest::parse("c.toml", &(text.concat() + critic)).unwrap();
        let graph = Graph::of(&manifest.workflow.unwrap());
        let names: Vec<&str> = graph.tasks().map(|(_, task)| task.name.as_str()).collect();
        assert_eq!(names, ["invent", "critic", "plan", "deploy", "bench", "choose"], "turns come first");
        assert!(!graph.task(TaskId(1)).unwrap().required);
        let told = |op: &str, join: Option<&str>| PlanTask {
            name: "x".into(),
            op: op.into(),
            depends_on: Vec::new(),
            advisory: false,
            join: join.map(str::to_owned),
        };
        assert_eq!(Graph::of_log(&[told("dance", None)]), None);
        assert_eq!(Graph::of_log(&[told("agent", Some("most"))]), None);
    }

    #[test]
    fn what_waits_for_a_failed_task_is_blocked_and_a_join_takes_what_it_is_for() {
        use TaskStatus::{Blocked, Fail, Pass, Skipped};
        for (join, statuses, free) in [
            (Join::All, [Pass, Pass], true),
            (Join::All, [Pass, Skipped], true),
            (Join::All, [Pass, Fail], false),
            (Join::Passed, [Blocked, Pass], true),
            (Join::Passed, [Fail, Skipped], false),
            (Join::Settled, [Fail, Blocked], true),
        ] {
            let task = |name: &str, depends_on| Task {
                name: name.to_owned(),
                op: Op::Agent,
                depends_on,
                join,
                required: false,
            };
            let ends = [TaskId(0), TaskId(1)];
            let tasks = vec![task("a", vec![]), task("b", vec![]), task("c", ends.to_vec())];
            let graph = Graph { tasks, reason: MANIFESTS };
            let mut settled = Settled::default();
            settled.settle(ends[0], statuses[0]);
            settled.settle(ends[1], statuses[1]);
            let expected = if free { Next::Run(TaskId(2)) } else { Next::Blocked(TaskId(2)) };
            assert_eq!(graph.next(&settled), Some(expected), "{join:?} {statuses:?}");
            assert_eq!(Graph::of_log(&graph.told()), Some(graph));
        }
    }
}

//! Turns the keys of `[workflow]` and of its tasks into data (note N16).
//! It refuses to know what a graph of them means.

use super::super::keys::{Key, Kind, Table};
use super::super::number::Bounds;

/// The words of `type`.
pub(super) const LANES: &[&str] = &["autoresearch", "custom", "playbook"];
/// The words of `kind`.
pub(super) const KINDS: &[&str] = &["agent", "command", "evaluate", "top_k", "engine"];
/// The words of `op`.
pub(super) const OPS: &[&str] = &["propose", "apply", "measure", "grade", "decide"];
/// The words of `direction`.
pub(super) const DIRECTIONS: &[&str] = &["lower", "higher"];
/// The words of a task's `harness`.
pub(super) const HARNESSES: &[&str] = &["claude", "codex", "command"];
/// The words of `effort`.
pub(super) const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];
/// The words of `join`.
pub(super) const JOINS: &[&str] = &["all", "passed", "settled"];
/// The words of `stage`.
pub(super) const STAGES: &[&str] = &["iteration", "epilogue"];

/// Which kinds take a key that not all of them take.
pub(super) const OWN: &[(&str, &[&str])] = &[
    ("prompt", &["agent"]),
    ("harness", &["agent"]),
    ("model", &["agent"]),
    ("effort", &["agent"]),
    ("command", &["command", "evaluate"]),
    ("threshold", &["evaluate"]),
    ("direction", &["evaluate", "top_k"]),
    ("k", &["top_k"]),
    ("op", &["engine"]),
    ("source", &["engine"]),
    ("tiebreak", &["engine"]),
    ("isolation", &["agent", "command", "evaluate"]),
    ("emits", &["agent", "command", "evaluate"]),
];

/// `[workflow]`.
pub(in crate::manifest) static TABLE: Table = Table {
    path: "workflow",
    doc: "The tasks of each iteration. Without it they are propose, apply, measure and decide, one after the other. The whole \
          table is read and judged as a graph; what this build does not run is refused by name before anything is spent: it \
          runs agent tasks, and one task of each of the engine's steps propose, apply, measure and decide.",
    keys: &[
        Key::optional(
            "type",
            Kind::OneOf(LANES),
            "\"autoresearch\"",
            "What kind of graph it is. This build runs `autoresearch`.",
        ),
        Key::required("result", Kind::Text, "The task whose verdict is the iteration's: a `decide`."),
        Key::required("task", Kind::Tables(&TASK), TASK.doc),
    ],
    rules: &[],
    example: "[workflow]\nresult = \"choose\"\n\n[[workflow.task]]\nname = \"invent\"\nkind = \"engine\"\nop = \
              \"propose\"\n\n[[workflow.task]]\nname = \"deploy\"\nkind = \"engine\"\nop = \"apply\"\ndepends_on = \
              [\"invent\"]\n\n[[workflow.task]]\nname = \"bench\"\nkind = \"engine\"\nop = \"measure\"\ndepends_on = \
              [\"deploy\"]\n\n[[workflow.task]]\nname = \"choose\"\nkind = \"engine\"\nop = \"decide\"\nsource = \
              \"bench\"\ndepends_on = [\"bench\"]\n",
};

/// `[[workflow.task]]`.
pub(in crate::manifest) static TASK: Table = Table {
    path: "workflow.task",
    doc: "One task. Each key but `name`, `kind`, `depends_on`, `session`, `needs`, `required`, `join` and `stage` goes with \
          some kinds only.",
    keys: &[
        Key::required(
            "name",
            Kind::Text,
            "Its name: a letter or digit, then letters, digits, `.`, `-` and `_`, at most 64. No two tasks share one.",
        ),
        Key::required("kind", Kind::OneOf(KINDS), "What it does. This build runs `agent` and `engine`."),
        Key::optional(
            "op",
            Kind::OneOf(OPS),
            "none",
            "Of an `engine` task: which step. This build does not grade.",
        ),
        Key::optional(
            "source",
            Kind::Text,
            "none",
            "Of a `decide`: the `measure` or `grade` that it goes by. Of a `grade`: the `evaluate` whose score it takes.",
        ),
        Key::optional(
            "tiebreak",
            Kind::Text,
            "none",
            "Of a `grade` or `decide`: the task whose score breaks ties.",
        ),
        Key::optional(
            "prompt",
            Kind::Text,
            "none",
            "Of an `agent` task, which must have it: what it is told. What the tasks that it waits for came to follows it, and \
             where its result belongs: one JSON object in `PLAN_TASK_RESULT.json`, without which it fails. Agent tasks run \
             before `apply`, one at a time, in the candidate's files; what one that passes changed is part of the candidate.",
        ),
        Key::optional(
            "harness",
            Kind::OneOf(HARNESSES),
            "`[agent].harness`",
            "Of an `agent` task: what runs its turn. `command` is `[agent].agent_cmd`.",
        ),
        Key::optional(
            "model",
            Kind::Text,
            "`[agent].model`",
            "Of an `agent` task: the model that is asked for. `CRUCIBLE_INFERENCE` beats it.",
        ),
        Key::optional(
            "effort",
            Kind::OneOf(EFFORTS),
            "none",
            "Of an `agent` task: how much the model is to think. The harness must have a flag for it, which `claude` has.",
        ),
        Key::optional("command", Kind::Command, "none", "Of a `command` or `evaluate` task: run by `sh -c`."),
        Key::optional("threshold", Kind::Float, "none", "Of an `evaluate` task: what its score must reach."),
        Key::optional("direction", Kind::OneOf(DIRECTIONS), "none", "Which way the score is better."),
        Key::optional("k", Kind::Whole(Bounds::new(1, 256)), "none", "Of a `top_k` task: how many it keeps."),
        Key::optional(
            "depends_on",
            Kind::Texts,
            "empty",
            "The tasks that it waits for, by name. A `propose` and an `agent` task wait for their like only.",
        ),
        Key::optional(
            "session",
            Kind::Text,
            "none",
            "The durable conversation that its turns belong to, of an `agent` task or a `propose`. Tasks that share one depend \
             on each other in a line and are not isolated. The harness must be able to go on with a conversation. An agent task \
             that begins the conversation of the proposals is told the method before its own prompt.",
        ),
        Key::optional(
            "needs",
            Kind::Text,
            "\"any\"",
            "A capability that the substrate must offer. This build offers none.",
        ),
        Key::optional(
            "required",
            Kind::Flag,
            "true",
            "Whether its failure discards the candidate. An `agent` task that is not required and fails is taken back, and the \
             iteration goes on.",
        ),
        Key::optional(
            "isolation",
            Kind::OneOf(&["worktree"]),
            "none",
            "A worktree of its own, which is thrown away.",
        ),
        Key::optional(
            "join",
            Kind::OneOf(JOINS),
            "\"all\"",
            "Which of what it depends on must have passed: `all` every one, `passed` at least one, `settled` none. With `passed` \
             an `agent` task is told of those that passed only.",
        ),
        Key::optional("stage", Kind::OneOf(STAGES), "\"iteration\"", "When it runs."),
        Key::optional(
            "emits",
            Kind::Texts,
            "none",
            "The fields that its output promises. An `agent` task whose result lacks one fails.",
        ),
    ],
    rules: &[],
    example: "[workflow]\nresult = \"choose\"\n\n[[workflow.task]]\nname = \"invent\"\nkind = \"engine\"\nop = \
              \"propose\"\n\n[[workflow.task]]\nname = \"deploy\"\nkind = \"engine\"\nop = \"apply\"\ndepends_on = \
              [\"invent\"]\n\n[[workflow.task]]\nname = \"bench\"\nkind = \"engine\"\nop = \"measure\"\ndepends_on = \
              [\"deploy\"]\n\n[[workflow.task]]\nname = \"choose\"\nkind = \"engine\"\nop = \"decide\"\nsource = \
              \"bench\"\ndepends_on = [\"bench\"]\n",
};

//! Turns the agent tasks of a workflow into who takes their turns: the model, the harness, the conversation (contract §1.3).
//! It refuses to know when a task runs.

use super::{Inference, Model, PlanError, Tool};
use crate::manifest::{Agent, Harness, SessionName, Task, TaskKind, Workflow};

/// An agent task of each iteration, and who takes its turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlan {
    /// Its name.
    pub name: String,
    /// What it is told.
    pub prompt: String,
    /// The fields that its result must have.
    pub emits: Vec<String>,
    /// The durable conversation that its turns belong to; without one each is a new one.
    pub session: Option<SessionName>,
    /// How much the model is to think.
    pub effort: Option<&'static str>,
    /// The model, its harness, its endpoint and its key.
    pub model: Model,
    /// The program of the harness, once it was looked for; a command needs none.
    pub tool: Option<Tool>,
}

/// The agent tasks of a manifest. An inference document beats a task's model and harness as it does the manifest's own.
///
/// # Errors
/// A harness that cannot do what the task asks for.
pub(super) fn tasks(
    workflow: Option<&Workflow>,
    agent: &Agent,
    inference: &Inference,
) -> Result<Vec<TaskPlan>, PlanError> {
    workflow.into_iter().flat_map(Workflow::agents).map(|task| one(task, agent, inference)).collect()
}

fn one(task: &Task, agent: &Agent, inference: &Inference) -> Result<TaskPlan, PlanError> {
    let name = task.name.value.to_string();
    let TaskKind::Agent { prompt, harness, model, effort } = &task.kind else {
        return Err(PlanError::TaskHarness { task: name, harness: agent.harness });
    };
    let own = harness.unwrap_or(agent.harness);
    if own == Harness::Command && agent.command.is_none() {
        return Err(PlanError::TaskHarness { task: name, harness: own });
    }
    // The manifest's model is one of its harness.
    let inherited = agent.model.as_ref().filter(|_| own == agent.harness);
    let asked = Agent { harness: own, model: model.as_ref().or(inherited).cloned(), ..agent.clone() };
    let model = Model::resolve(&asked, inference)?;
    if effort.is_some() && !model.harness.takes_effort() {
        return Err(PlanError::TaskEffort { task: name, harness: model.harness });
    }
    let session = task.session.as_ref().map(|at| at.value.clone());
    if let Some(session) = session.as_ref().filter(|_| !model.harness.keeps_sessions()) {
        return Err(PlanError::Session { session: session.clone(), harness: model.harness });
    }
    let (prompt, emits) = (prompt.clone(), task.emits.clone().unwrap_or_default());
    Ok(TaskPlan { name, prompt, emits, session, effort: *effort, model, tool: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;
    use crate::plan::inference::Inference;
    use crate::sys::env::Environment;

    /// The task `t` with keys of its own, beside an agent with its keys.
    fn resolve(agent: &str, task: &str, document: &str) -> Result<TaskPlan, PlanError> {
        let step = |name: &str, op: &str, more: &str| {
            format!("[[workflow.task]]\nname = \"{name}\"\nkind = \"engine\"\nop = \"{op}\"\n{more}\n")
        };
        let text = [
            "[repo]\npath = \".\"\n[agent]\n",
            agent,
            "\n[judge]\nmeasure_cmd = \"m\"\ndirection = \"lower\"\n[workflow]\nresult = \"d\"\n",
            &step("p", "propose", ""),
            &step("a", "apply", "depends_on = [\"p\"]"),
            &step("m", "measure", "depends_on = [\"a\"]"),
            &step("d", "decide", "depends_on = [\"m\"]\nsource = \"m\""),
            "[[workflow.task]]\nname = \"t\"\nkind = \"agent\"\nprompt = \"x\"\n",
            task,
        ];
        let manifest = Manifest::parse("c.toml", &text.concat()).unwrap_or_else(|errors| panic!("{errors}"));
        let env: Environment = [("CRUCIBLE_INFERENCE".to_owned(), document.to_owned())].into_iter().collect();
        let inference = Inference::of(&env).unwrap();
        Ok(tasks(manifest.workflow.as_ref(), &manifest.agent, &inference)?.remove(0))
    }

    #[test]
    fn a_task_has_the_agents_model_and_harness_or_its_own_and_a_document_beats_both() {
        let claude = "model = \"mine\"";
        let bound = r#"{"version":1,"bindings":[{"role":"agent","protocol":"responses","model":"bound"}]}"#;
        for (agent, task, document, expect) in [
            (claude, "", "", (Harness::Claude, "mine")),
            (claude, "model = \"other\"", "", (Harness::Claude, "other")),
            (claude, "harness = \"codex\"\nmodel = \"other\"", "", (Harness::Codex, "other")),
            (
                "backend = \"command\"\nagent_cmd = \"a\"",
                "harness = \"claude\"\nmodel = \"m\"",
                "",
                (Harness::Claude, "m"),
            ),
            (claude, "model = \"other\"", bound, (Harness::Codex, "bound")),
        ] {
            let plan = resolve(agent, task, document).unwrap();
            assert_eq!((plan.model.harness, plan.model.name.as_str()), expect, "{agent} {task}");
        }
        let plan = resolve(claude, "effort = \"max\"\nsession = \"s\"\nemits = [\"a\"]", "").unwrap();
        assert_eq!((plan.effort, plan.emits, plan.session.is_some()), (Some("max"), vec!["a".into()], true));
    }

    #[test]
    fn what_its_harness_cannot_do_is_refused_with_its_name() {
        let command = "backend = \"command\"\nagent_cmd = \"a\"";
        for (agent, task, expect) in [
            ("", "harness = \"codex\"", "choose a model for the harness \"codex\""),
            (
                "",
                "harness = \"command\"",
                "run the task `t` with the harness \"command\": [agent] has no agent_cmd",
            ),
            (
                "",
                "harness = \"codex\"\nmodel = \"m\"\neffort = \"low\"",
                "the harness \"codex\" has no flag for it",
            ),
            (command, "effort = \"low\"", "run the task `t` with its `effort`: the harness \"command\""),
            (command, "session = \"s\"", "keep the session `s`: it needs agent.session.persist"),
        ] {
            let error = resolve(agent, task, "").unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}

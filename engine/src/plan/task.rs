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

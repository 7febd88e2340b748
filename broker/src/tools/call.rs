//! Turns a call of a tool into its answer: read, admitted, done or staged, and recorded.
//! It refuses to let a caller that goes away cut a write in two.

use std::path::PathBuf;
use std::sync::Arc;

use policy::outputs::{Kind, OPERATOR, Outcome};
use serde_json::{Map, Value, json};

use super::fault::{Fault, Trouble};
use super::fetch::Fetcher;
use super::table::{Arguments, BadArguments, Fitting, TABLE, Tool, tool};
use crate::core::json::put;
use crate::systems::Systems;
use crate::writes::{Admitted, Denied, Gate, Permit, Wanted, outbox};

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Whether it failed.
    pub failed: bool,
    /// A JSON object; of a failure with `error` and `reason`.
    pub value: Value,
}

/// What kept a write from being made.
#[derive(Debug)]
pub(super) enum Failed {
    /// The system.
    Trouble(Trouble),
    /// The bound, which does not cover the target's real name.
    Denied(Denied),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<Denied> for Failed {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl Trouble {
    /// The same of a step before the one that writes: certainly nothing was written.
    pub(super) fn before_writing(self) -> Self {
        Self { nothing: true, ..self }
    }
}

/// The tools of a run.
#[derive(Debug)]
pub struct Tools {
    /// The chokepoint.
    pub gate: Arc<Gate>,
    /// What reaches the systems.
    pub fetcher: Fetcher,
    /// The systems that are configured.
    pub systems: Systems,
    /// Where writes without a system lie.
    pub outbox: PathBuf,
}

impl Reply {
    fn done(value: Value) -> Self {
        Self { failed: false, value }
    }

    fn failed(reason: &str, error: &dyn std::fmt::Display) -> Self {
        Self { failed: true, value: json!({ "error": format!("failed to {error}"), "reason": reason }) }
    }
}

impl From<Denied> for Reply {
    fn from(denied: Denied) -> Self {
        match &denied {
            Denied::Refused(refusal) => {
                let mut reply = Self::failed(refusal.reason.token(), &denied);
                put(&mut reply.value, "bound", refusal.bound.as_str());
                reply
            }
            // The cause is the operator's to read.
            Denied::Record(_) => Self::failed("not-recorded", &denied),
        }
    }
}

impl Tools {
    /// The tools that this run is granted: those whose bound leaves a write possible, and reads of a system that is there.
    pub fn granted(&self) -> Vec<&'static Tool> {
        let outputs = self.gate.outputs();
        let possible = |kind: Kind| {
            let bound = outputs.of(kind);
            bound.is_some_and(|bound| bound.count > 0 && bound.target.is_some())
        };
        TABLE
            .iter()
            .filter(|tool| possible(tool.kind) && (tool.writes || self.systems.tracker.is_some()))
            .collect()
    }

    /// Does one call of a turn to its end, also when who waits for it goes away.
    pub async fn call(self: &Arc<Self>, name: &str, arguments: Map<String, Value>, turn: &str) -> Reply {
        let Some(tool) = tool(name) else {
            return Reply::failed("unknown-tool", &"find a tool of that name");
        };
        let fitting = match tool.read(arguments.clone()) {
            Ok(fitting) => fitting,
            Err(error @ BadArguments(_)) => {
                let reply = Reply::failed("arguments", &error);
                return Reply { value: self.gate.redacted(reply.value), ..reply };
            }
        };
        let (tools, turn) = (Arc::clone(self), turn.to_owned());
        let task = tokio::spawn(async move {
            let wanted = Wanted {
                kind: tool.kind,
                tool: tool.name,
                target: fitting.arguments.target(),
                key: fitting.key.as_deref(),
                args: &fitting.hash,
                turn: &turn,
            };
            if tool.writes {
                tools.write(wanted, &fitting, &arguments).await
            } else {
                tools.look(wanted).await
            }
        });
        let reply = task.await.unwrap_or_else(|_| Reply::failed("broken", &"finish the call"));
        // A system may repeat a credential in what it says.
        Reply { value: self.gate.redacted(reply.value), ..reply }
    }

    async fn look(&self, wanted: Wanted<'_>) -> Reply {
        let item = match self.gate.admit_read(wanted).await {
            Ok(item) => item,
            Err(denied) => return denied.into(),
        };
        let Some(tracker) = &self.systems.tracker else {
            return Reply::failed("not-configured", &"read the item: no tracker is configured");
        };
        match tracker.get(&self.fetcher, &item).await {
            // What was moved elsewhere is not within the bound any more.
            Ok((name, value)) if name == item => Reply::done(value),
            Ok((name, value)) => match self.gate.admit_read(Wanted { target: Some(&name), ..wanted }).await {
                Ok(_) => Reply::done(value),
                Err(denied) => denied.into(),
            },
            Err(Trouble { fault, .. }) => Reply::failed(fault.token(), &fault),
        }
    }

    async fn write(&self, wanted: Wanted<'_>, fitting: &Fitting, arguments: &Map<String, Value>) -> Reply {
        let permit = match self.gate.admit(wanted).await {
            Ok(Admitted::Permit(permit)) => permit,
            Ok(Admitted::Stored(answer)) => return stored(&answer),
            Err(denied) => return denied.into(),
        };
        if permit.kind() == Kind::ChatMessage && permit.target() == OPERATOR {
            return self.tell_operator(permit, &fitting.arguments).await;
        }
        if !self.systems.have(permit.kind()) {
            let staged = outbox::stage(&self.outbox, &permit, arguments);
            return match staged {
                Ok(answer) => ended(permit, Outcome::Staged, stored(&answer)).await,
                // The file may be there all the same.
                Err(_) => {
                    ended(permit, Outcome::Unknown, Reply::failed("not-recorded", &"stage the write")).await
                }
            };
        }
        let done = send(&self.fetcher, &self.systems, &permit, &fitting.arguments).await;
        let (outcome, reply) = judged(done);
        ended(permit, outcome, reply).await
    }

    async fn tell_operator(&self, permit: Permit, arguments: &Arguments) -> Reply {
        let Arguments::Message { text, .. } = arguments else {
            return ended(permit, Outcome::Failed, Reply::failed("arguments", &"find a message")).await;
        };
        match self.gate.message(&permit, text).await {
            Ok(()) => {
                ended(permit, Outcome::Done, Reply::done(json!({ "written": true, "target": OPERATOR })))
                    .await
            }
            Err(_) => {
                ended(permit, Outcome::Unknown, Reply::failed("not-recorded", &"write to the run's log"))
                    .await
            }
        }
    }
}

/// Makes an admitted write at its system.
async fn done(
    fetcher: &Fetcher,
    systems: &Systems,
    permit: &Permit,
    arguments: &Arguments,
) -> Result<Value, Failed> {
    let absent = || Trouble::nothing(Fault::Malformed("the system".to_owned(), "it is not configured"));
    match arguments {
        Arguments::Comment { body, .. } => {
            systems.tracker.as_ref().ok_or_else(absent)?.comment(fetcher, permit, body).await
        }
        Arguments::Message { text, .. } => {
            systems.chat.as_ref().ok_or_else(absent)?.message(fetcher, permit, text).await
        }
        Arguments::Image { base, files, .. } => {
            systems.registry.as_ref().ok_or_else(absent)?.push(fetcher, permit, base, files).await
        }
        Arguments::Get { .. } => Err(absent().into()),
    }
}

/// Makes an admitted write at its system: what a broker does at once, and the operator later with what was staged.
pub async fn send(
    fetcher: &Fetcher,
    systems: &Systems,
    permit: &Permit,
    arguments: &Arguments,
) -> Result<Value, (Outcome, Reply)> {
    done(fetcher, systems, permit, arguments).await.map_err(|failed| match failed {
        Failed::Denied(denied) => (Outcome::Failed, denied.into()),
        Failed::Trouble(Trouble { fault, nothing }) => {
            let mut reply = Reply::failed(fault.token(), &fault);
            if let Fault::Pace { wait: Some(wait), .. } = &fault {
                put(&mut reply.value, "retry_after", *wait);
            }
            if !nothing {
                put(
                    &mut reply.value,
                    "outcome",
                    "unknown: it may have been written; it is counted and not repeated",
                );
            }
            (if nothing { Outcome::Failed } else { Outcome::Unknown }, reply)
        }
    })
}

fn judged(done: Result<Value, (Outcome, Reply)>) -> (Outcome, Reply) {
    match done {
        Ok(value) => (Outcome::Done, Reply::done(value)),
        Err((outcome, reply)) => (outcome, reply),
    }
}

/// Records the outcome, and only then answers.
async fn ended(permit: Permit, outcome: Outcome, reply: Reply) -> Reply {
    match permit.end(outcome, &reply.value.to_string()).await {
        Ok(()) => reply,
        Err(_) => Reply::failed("not-recorded", &"record the outcome of the write, which may have happened"),
    }
}

fn stored(answer: &str) -> Reply {
    Reply::done(serde_json::from_str(answer).unwrap_or_else(|_| json!({ "written": true })))
}

impl Systems {
    /// Whether there is a system for a kind.
    pub fn have(&self, kind: Kind) -> bool {
        match kind {
            Kind::TrackerComment => self.tracker.is_some(),
            Kind::ChatMessage => self.chat.is_some(),
            Kind::ImagePush => self.registry.is_some(),
            _ => false,
        }
    }
}

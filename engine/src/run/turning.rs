//! Turns what a turn is for into an agent turn that is over, with its conversation begun before it and kept after it, and what
//! it left for the engine taken (contract §1.3, §6).
//! It refuses to know what becomes of the candidate.

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::event::{TaskReport, TurnReport};
use super::hands::{Aside, Broken, Caller, Hands, Tools, Turn, survivable};
use crate::agent::harness::Home;
use crate::agent::relay::RelayFault;
use crate::agent::session::Begun;
use crate::agent::status::status;
use crate::agent::{
    Brief, Markers, SandboxTurn, Settings, TurnError, TurnTerms, Turned, Upstream, Usage, Values, delta,
    first, task, toolbox::place,
};
use crate::egress::DEATHS_MAX;
use crate::log::{AgentEvent, SessionEvent};
use crate::sys::chain;
use crate::sys::fs::{FsError, Root};
use crate::sys::keeper::KeeperError;
use crate::world::World;

/// What a turn is told.
#[derive(Debug, Clone, Copy)]
pub(super) enum Told<'a> {
    /// To propose.
    Proposal,
    /// To do an agent task.
    Task {
        /// Its place in the graph.
        place: usize,
        /// Its name.
        name: &'a str,
        /// What the tasks that it waited for came to.
        upstream: &'a [Upstream],
    },
}

impl Told<'_> {
    /// As the lines of a turn name it.
    fn task(self) -> Option<String> {
        match self {
            Told::Proposal => None,
            Told::Task { name, .. } => Some(name.to_owned()),
        }
    }

    /// The name of its sandbox, which has room for no task's name.
    fn turn(self, iter: u32) -> String {
        match self {
            Told::Proposal => format!("turn-{iter}"),
            Told::Task { place, .. } => format!("turn-{iter}-{place}"),
        }
    }
}

impl<W: World> Hands<W> {
    pub(super) async fn take_turn(
        &mut self,
        (brief, told): (&Brief, Told<'_>),
        cancel: &CancellationToken,
        aside: &mut Aside,
    ) -> Result<TaskReport, Broken> {
        let (caller, emits) = self.caller(told)?;
        self.put_frozen_back()?;
        // What stands there already is no word of this turn's; what one that died had used was counted before.
        self.take_markers(&mut TurnReport::default());
        self.clear_usage().map_or(Ok(()), |why| Err(Broken(why)))?;
        if let Told::Task { .. } = told {
            self.take_result().map_err(|error| Broken(chain(&error)))?;
        }
        self.tell_results(brief);
        let settings = self.furnish()?;
        let begun = self.begin_session(&caller, told)?;
        let prompt = self.prompt((brief, told), &caller, begun.as_ref());
        let terms = TurnTerms { cost_left: brief.cost_left, session: begun.as_ref() };
        let turned = self.turn((brief.iter, told), caller, (&prompt, terms), cancel).await?;
        let Turned { failure, transport, reset, usage, killed, dropped, started, .. } = turned;
        let retry_after = reset.map(|reset| reset.from(self.tools.clock.now_utc().as_second()));
        aside.killed = killed;
        let who = if transport.is_some() { "the turn" } else { "the agent" };
        let failure = failure.map(|how| format!("{who} {how}"));
        let mut report =
            TurnReport { failure, transport, retry_after, usage, started, dropped, ..TurnReport::default() };
        let mut result = None;
        if self.missing()?.is_none() {
            self.clear_settings(&settings)?;
            aside.frozen_restored = self.put_frozen_back()?;
            self.take_markers(&mut report);
            result = self.take_result().unwrap_or_else(|error| Some(Err(chain(&error))));
        }
        if let Some(emits) = emits.filter(|_| report.failure.is_none()) {
            match task::checked(result, &emits) {
                Ok(result) => report.result = Some(result),
                Err(why) => report.failure = Some(why),
            }
        }
        Ok(TaskReport::Turned(Box::new(report)))
    }

    /// Who takes a turn, and the fields that a task's result must have.
    fn caller(&self, told: Told<'_>) -> Result<(Caller, Option<Vec<String>>), Broken> {
        let Told::Task { name, .. } = told else { return Ok((self.tools.proposer.clone(), None)) };
        let task =
            self.tools.tasks.get(name).ok_or_else(|| Broken(format!("the plan has no task `{name}`")))?;
        Ok((task.caller.clone(), Some(task.emits.clone())))
    }

    /// Writes the agent's memory of the run. Where it cannot be had the agent goes without.
    fn tell_results(&mut self, brief: &Brief) {
        if let Err(msg) = self.tools.results.write(&self.tools.workspace, brief) {
            let _ = self.tools.tell.send(SessionEvent::Note { msg });
        }
    }

    /// Reads and removes what the agent left for the engine. What the turn has used stays until its line is on the disk: an
    /// engine that dies before that has another one count it.
    fn take_markers(&self, report: &mut TurnReport) {
        let root = Root::open(&self.tools.workspace);
        let taken = root.and_then(|root| Ok((Markers::take(&root)?, Usage::look(&root))));
        match taken {
            Ok((Markers { account, escalation, ask, refused }, (usage, unread))) => {
                report.ask = ask;
                report.account = account;
                report.escalation = escalation;
                report.dropped.extend(refused.into_iter().chain(unread));
                if report.usage.is_unknown() {
                    report.usage = usage;
                }
            }
            Err(error) => report.dropped.push(format!("the markers: {}", chain(&error))),
        }
    }

    /// Puts the skills of a turn into the workspace, and looks at the settings that it must not leave changed.
    fn furnish(&self) -> Result<Settings, Broken> {
        let root = Root::open(&self.tools.workspace).map_err(|error| Broken(chain(&error)))?;
        if let Some(toolbox) = &self.tools.toolbox {
            place(toolbox, &root).map_err(|error| Broken(chain(&error)))?;
        }
        Settings::look(&root).map_err(|error| Broken(chain(&error)))
    }

    /// Takes back what a turn wrote into its own settings, and says so.
    fn clear_settings(&self, settings: &Settings) -> Result<(), Broken> {
        let changed = Root::open(&self.tools.workspace).and_then(|root| settings.put_back(&root));
        let changed = changed.map_err(|error| Broken(chain(&error)))?;
        if !changed.is_empty() {
            let msg =
                format!("the turn changed settings of its own, which were put back: {}", changed.join(", "));
            let _ = self.tools.tell.send(SessionEvent::Note { msg });
        }
        Ok(())
    }

    fn take_result(&self) -> Result<Option<Result<Value, String>>, FsError> {
        task::take(&Root::open(&self.tools.workspace)?)
    }

    /// Begins the next turn of the conversation that a turn belongs to, and tells that it begins.
    fn begin_session(&self, caller: &Caller, told: Told<'_>) -> Result<Option<Begun>, Broken> {
        let Some(name) = &caller.session else { return Ok(None) };
        let called = caller.turn.called();
        let Some(home) = called.home() else {
            // The plan refuses such a session before anything is spent.
            let harness = called.harness.name();
            return Err(Broken(format!(
                "the harness \"{harness}\" keeps no conversation for the session `{name}`"
            )));
        };
        let begun = self.tools.sessions.begin(name, called.harness.name(), &home);
        let begun = begun.map_err(|error| Broken(format!("failed to {}", chain(&error))))?;
        let line = SessionEvent::AgentSession {
            session: name.to_string(),
            action: begun.action().to_owned(),
            turn: begun.turn(),
            task: told.task(),
        };
        let _ = self.tools.tell.send(line);
        Ok(Some(begun))
    }

    /// What the agent is told: the method with its goal, or, where the conversation knows them, what is new; or its task. A
    /// task that begins the conversation of the proposals begins it with the method, which they then no longer have to tell.
    fn prompt(&self, (brief, told): (&Brief, Told<'_>), caller: &Caller, begun: Option<&Begun>) -> String {
        let status = status(brief);
        let goes_on = begun.is_some_and(|begun| begun.transcript().is_some());
        let method = |steer| {
            let values = Values { goal: &self.tools.goal, status: &status, steer };
            self.tools.method.render(values)
        };
        match told {
            Told::Proposal if goes_on => delta(&status, &brief.steer),
            Told::Proposal => method(&brief.steer),
            Told::Task { name, upstream, .. } => {
                let task = self.tools.tasks.get(name);
                let (own, emits) = task.map_or(("", &[][..]), |task| (&task.prompt, &task.emits));
                let own = task::prompt(own, upstream, emits);
                let is_proposers = begun.is_some() && caller.session == self.tools.proposer.session;
                if is_proposers && !goes_on { first(&method(""), &own) } else { own }
            }
        }
    }

    /// Runs the agent. Nothing of it runs any more when this returns, and its conversation is kept.
    async fn turn(
        &mut self,
        which: (u32, Told<'_>),
        caller: Caller,
        asked: (&str, TurnTerms<'_>),
        cancel: &CancellationToken,
    ) -> Result<Turned, Broken> {
        let home = caller.turn.called().home();
        let turned = self.carry(which, caller.turn, asked, cancel).await?;
        Ok(match asked.1.session.zip(home) {
            Some((begun, home)) => self.end_session(begun, &home, turned),
            None => turned,
        })
    }

    async fn carry(
        &mut self,
        (iter, told): (u32, Told<'_>),
        turn: Turn,
        (prompt, terms): (&str, TurnTerms<'_>),
        cancel: &CancellationToken,
    ) -> Result<Turned, Broken> {
        let tell = self.tools.tell.clone();
        let task = told.task();
        let mut say = move |event: AgentEvent| {
            // The shell outlives the job; a line it no longer takes has nowhere to go.
            let _ = tell.send(SessionEvent::Agent { event, task: task.clone() });
        };
        match turn {
            Turn::Host(mut turn) => {
                if let Some(begun) = terms.session {
                    turn.live = self.tools.sessions.live(begun.name().as_str());
                }
                match turn.run(&self.tools.keeper, (prompt, terms), cancel, &mut say).await {
                    Ok(turned) => Ok(turned),
                    Err(TurnError::Keeper(error)) => {
                        let started = !matches!(error, KeeperError::Start { .. });
                        Ok(Turned { started, ..Turned::failed(survivable(&error)?) })
                    }
                    Err(error) => Ok(Turned::failed(format!("failed to {}", chain(&error)))),
                }
            }
            Turn::Sandbox(turn) => {
                let repository = self.world.workspace().agent_repository().await;
                let repository = repository.map_err(|error| Broken(chain(&error)))?;
                let (known, deaths) = (turn.layers.clone(), turn.deaths.clone());
                let relayed = match turn.relays.make(&self.tools.keeper, cancel).await {
                    Ok(relayed) => relayed,
                    Err(fault) => return unrelayed(&fault),
                };
                let live = terms.session.map(|begun| self.tools.sessions.live(begun.name().as_str()));
                let turn = SandboxTurn { relayed, live, ..*turn };
                let turned = turn.run(told.turn(iter), repository, (prompt, terms), cancel, &mut say).await;
                let count = *deaths.borrow();
                if count >= DEATHS_MAX {
                    return Err(Broken(format!("the broker died {count} times in a row")));
                }
                self.tell_layers(&known, &turned);
                Ok(turned)
            }
        }
    }

    /// Keeps what the conversation goes on from. A turn that ended well and left nothing of it counts as failed.
    fn end_session(&self, begun: &Begun, home: &Home, turned: Turned) -> Turned {
        let good = turned.failure.is_none();
        let told = turned.conversation.as_deref();
        match self.tools.sessions.end(begun, home, (good, told), &turned.left) {
            Ok(()) => turned,
            Err(error) => {
                let msg = format!("failed to {}", chain(&error));
                let failure = turned.failure.or(Some(msg));
                Turned { failure, ..turned }
            }
        }
    }

    /// Tells where a turn's sandbox had other layers than the one that was tried at the start, and what it may reach, once each.
    fn tell_layers(&mut self, known: &[String], turned: &Turned) {
        let new: Vec<String> = turned.layers.iter().filter(|layer| !known.contains(layer)).cloned().collect();
        // The sandbox at the start has no workspace and no list of the pack's own to tell of.
        let (reach, others): (Vec<&str>, Vec<&str>) =
            new.iter().map(String::as_str).partition(|layer| layer.starts_with("egress: "));
        let mut notes: Vec<String> = reach.iter().map(|layer| format!("the sandbox's {layer}")).collect();
        if !others.is_empty() {
            let all = others.join("\n");
            notes.push(format!("the sandbox of this turn has other layers than the first one:\n{all}"));
        }
        for msg in notes {
            let _ = self.tools.tell.send(SessionEvent::Note { msg });
        }
        let Tools { proposer, tasks, .. } = &mut self.tools;
        let callers = tasks.values_mut().map(|task| &mut task.caller);
        for caller in callers.chain([proposer]) {
            if let Turn::Sandbox(turn) = &mut caller.turn {
                turn.layers.extend(new.iter().cloned());
            }
        }
    }
}

/// A turn that did not begin, because a file for it could not be made.
fn unrelayed(fault: &RelayFault) -> Result<Turned, Broken> {
    if let RelayFault::Keeper { source, .. } = fault {
        survivable(source)?;
    }
    let transport = Some(fault.class().token().to_owned());
    Ok(Turned { transport, ..Turned::failed(format!("failed to {}", chain(fault))) })
}

//! Turns a prompt into an agent turn that is over, with its conversation begun before it and kept after it (contract §1.3, §6).
//! It refuses to know what becomes of the candidate.

use tokio_util::sync::CancellationToken;

use super::hands::{Broken, Hands, Turn, survivable};
use crate::agent::relay::RelayFault;
use crate::agent::session::Begun;
use crate::agent::status::status;
use crate::agent::{Brief, SandboxTurn, TurnError, TurnTerms, Turned, Values, delta};
use crate::egress::DEATHS_MAX;
use crate::log::{AgentEvent, SessionEvent};
use crate::sys::chain;
use crate::sys::keeper::KeeperError;
use crate::world::World;

impl<W: World> Hands<W> {
    /// Begins the next turn of the conversation that proposals belong to, and tells that it begins.
    pub(super) fn begin_session(&self) -> Result<Option<Begun>, Broken> {
        let Some(name) = &self.tools.session else { return Ok(None) };
        let called = self.tools.turn.called();
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
        };
        let _ = self.tools.tell.send(line);
        Ok(Some(begun))
    }

    /// What the agent is told: the method with its goal, or, where the conversation knows them, what is new.
    pub(super) fn prompt(&self, brief: &Brief, begun: Option<&Begun>) -> String {
        let status = status(brief);
        match begun.and_then(Begun::transcript) {
            Some(_) => delta(&status, &brief.steer),
            None => {
                let values = Values { goal: &self.tools.goal, status: &status, steer: &brief.steer };
                self.tools.method.render(values)
            }
        }
    }

    /// Runs the agent. Nothing of it runs any more when this returns, and its conversation is kept.
    pub(super) async fn turn(
        &mut self,
        iter: u32,
        prompt: &str,
        terms: TurnTerms<'_>,
        cancel: &CancellationToken,
    ) -> Result<Turned, Broken> {
        let turned = self.carry(iter, prompt, terms, cancel).await?;
        Ok(match terms.session {
            Some(begun) => self.end_session(begun, turned),
            None => turned,
        })
    }

    async fn carry(
        &mut self,
        iter: u32,
        prompt: &str,
        terms: TurnTerms<'_>,
        cancel: &CancellationToken,
    ) -> Result<Turned, Broken> {
        let tell = self.tools.tell.clone();
        let mut say = move |event: AgentEvent| {
            // The shell outlives the job; a line it no longer takes has nowhere to go.
            let _ = tell.send(SessionEvent::Agent { event });
        };
        match self.tools.turn.clone() {
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
                let name = format!("turn-{iter}");
                let turned = turn.run(name, repository, (prompt, terms), cancel, &mut say).await;
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
    fn end_session(&self, begun: &Begun, turned: Turned) -> Turned {
        let Some(home) = self.tools.turn.called().home() else { return turned };
        let good = turned.failure.is_none();
        let told = turned.conversation.as_deref();
        match self.tools.sessions.end(begun, &home, (good, told), &turned.left) {
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
        if let (Turn::Sandbox(turn), false) = (&mut self.tools.turn, new.is_empty()) {
            // The sandbox at the start has no workspace and no list of the pack's own to tell of.
            let (reach, others): (Vec<&str>, Vec<&str>) =
                new.iter().map(String::as_str).partition(|layer| layer.starts_with("egress: "));
            let mut notes: Vec<String> = reach.iter().map(|layer| format!("the sandbox's {layer}")).collect();
            if !others.is_empty() {
                let all = others.join("\n");
                notes.push(format!("the sandbox of this turn has other layers than the first one:\n{all}"));
            }
            turn.layers.extend(new.iter().cloned());
            for msg in notes {
                let _ = self.tools.tell.send(SessionEvent::Note { msg });
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

//! Turns effects into jobs and log lines, and messages and deadlines into events, until the run has its outcome.
//! It refuses to decide anything: `step` does.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::bridge::Bridge;
use super::effect::{Effect, Job};
use super::event::{Event, EventKind, Interrupt};
use super::hands::Hands;
use super::state::State;
use super::step::step;
use crate::agent::Usage;
use crate::egress::{Broker, Standing};
use crate::log::{AgentEvent, Durability, LogError, Outcome, SessionEvent, SessionLog};
use crate::report::Progress;
use crate::sys::chain;
use crate::sys::clock::Clock;
use crate::sys::signal::{self, Interrupts};
use crate::world::World;

/// How often the progress line tells the time.
const TICK: Duration = Duration::from_secs(1);

/// What the shell writes to and listens to.
#[derive(Debug)]
pub struct Shell {
    /// The session log.
    pub log: SessionLog,
    /// What a person sees.
    pub progress: Progress,
    /// Times the run; its monotonic side began with it.
    pub clock: Clock,
    /// The operator's signals.
    pub interrupts: Interrupts,
    /// Lines that jobs tell while they run.
    pub told: UnboundedReceiver<SessionEvent>,
    /// When no further iteration may start, on the clock's monotonic side.
    pub deadline: Option<Duration>,
    /// `state/control.json`, by which another process asks for the end.
    pub control: PathBuf,
    /// The state directory, where the run can make writes: their record is there.
    pub writes: Option<PathBuf>,
    /// What operators say.
    pub bridge: Bridge,
    /// Answers for the sandboxes of the run, where it has any.
    pub broker: Option<Arc<Broker>>,
}

/// How the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The outcome.
    pub outcome: Outcome,
    /// Why, for a person.
    pub reason: String,
}

impl Shell {
    /// Runs the loop from a workspace at its baseline to an outcome. Everything that was started has ended then.
    ///
    /// # Errors
    /// When the log cannot be written: then nothing further is done.
    pub async fn run<W: World>(&mut self, mut state: State, mut hands: Hands<W>) -> Result<Ended, LogError> {
        let mut inbox = VecDeque::new();
        if state.left.is_some() {
            state = self.charge(state, &hands).await?;
        }
        self.heed(&mut inbox).await?;
        inbox.push_back(EventKind::Ready);
        loop {
            let mut job = None;
            while let Some(kind) = inbox.pop_front() {
                let (next, effects) = step(state, Event { at: self.clock.monotonic(), kind });
                state = next;
                for effect in effects {
                    match effect {
                        Effect::Run(next) => job = Some(next),
                        // Nothing runs between two jobs.
                        Effect::Cancel => {}
                        Effect::Finish { outcome, reason } => return Ok(Ended { outcome, reason }),
                        other => inbox.extend(self.record(other).await?),
                    }
                }
            }
            let Some(job) = job else {
                let reason = "the loop waits for nothing".to_owned();
                return Ok(Ended { outcome: Outcome::Error, reason });
            };
            let settles = matches!(job, Job::Snapshot | Job::Restore { .. });
            let (next, answer) = self.attend(state, &mut hands, job).await?;
            state = next;
            if settles {
                if self.stop_asked_for() {
                    inbox.push_back(EventKind::Interrupted(Interrupt::Stop));
                }
                self.heed(&mut inbox).await?;
            }
            inbox.push_back(answer);
        }
    }

    /// Counts what the turn has used that the engine before died in. Its file goes when that is on the disk.
    async fn charge<W: World>(&mut self, state: State, hands: &Hands<W>) -> Result<State, LogError> {
        let (usage, unread) = hands.usage_left();
        let kind = EventKind::Charged(usage);
        let (state, effects) = step(state, Event { at: self.clock.monotonic(), kind });
        for effect in effects {
            self.record(effect).await?;
        }
        for msg in unread.into_iter().chain(hands.clear_usage()) {
            self.write(&SessionEvent::Note { msg }, Durability::Buffered)?;
        }
        Ok(state)
    }

    /// Waits for a job while messages and deadlines come in.
    async fn attend<W: World>(
        &mut self,
        mut state: State,
        hands: &mut Hands<W>,
        job: Job,
    ) -> Result<(State, EventKind), LogError> {
        let cancel = CancellationToken::new();
        let mut running = std::pin::pin!(hands.perform(job, &cancel));
        // What follows from an input before the job has answered.
        let mut next = VecDeque::new();
        let answer = loop {
            let kind = tokio::select! {
                biased;
                Some(kind) = std::future::ready(next.pop_front()), if !next.is_empty() => kind,
                Some(event) = self.told.recv() => {
                    self.write(&event, Durability::Buffered)?;
                    match used(&event) {
                        Some(usage) => EventKind::Spending(usage),
                        None => continue,
                    }
                }
                answer = &mut running => break answer,
                interrupt = self.interrupts.next() => EventKind::Interrupted(match interrupt {
                    signal::Interrupt::Stop => Interrupt::Stop,
                    signal::Interrupt::Abort => Interrupt::Abort,
                }),
                arrival = self.bridge.next() => EventKind::Admitted(Box::new(arrival)),
                () = until(self.deadline, &self.clock) => {
                    self.deadline = None;
                    EventKind::OutOfTime
                }
                () = tokio::time::sleep(TICK), if self.progress.ticks() => {
                    self.progress.draw(self.clock.monotonic());
                    continue;
                }
            };
            let (stepped, effects) = step(state, Event { at: self.clock.monotonic(), kind });
            state = stepped;
            for effect in effects {
                match effect {
                    Effect::Cancel => cancel.cancel(),
                    // INVARIANT: `step` starts nothing and finishes nothing while a job runs.
                    Effect::Run(_) | Effect::Finish { .. } => {}
                    other => next.extend(self.record(other).await?),
                }
            }
        };
        while let Ok(event) = self.told.try_recv() {
            self.write(&event, Durability::Buffered)?;
        }
        Ok((state, answer))
    }

    /// Writes what is to be written, and returns what happened by that.
    async fn record(&mut self, effect: Effect) -> Result<Option<EventKind>, LogError> {
        match effect {
            Effect::Log(event, durability) => {
                let event = self.with_egress(*event).await?;
                self.write(&event, durability)?;
            }
            Effect::Settle { key, outcome, note } => {
                if let Err(msg) = self.bridge.settle(key, outcome, note).await {
                    self.write(&SessionEvent::Note { msg }, Durability::Buffered)?;
                }
            }
            Effect::Grant { by, grant } => match self.bridge.grant(by, grant).await {
                Ok(grant) => return Ok(grant.map(|grant| EventKind::Admitted(Box::new(grant)))),
                Err(msg) => self.write(&SessionEvent::Note { msg }, Durability::Buffered)?,
            },
            Effect::Deadline { secs } => self.deadline = Duration::try_from_secs_f64(secs).ok(),
            Effect::Run(_) | Effect::Cancel | Effect::Finish { .. } => {}
        }
        Ok(None)
    }

    /// Hands in what operators said by now.
    async fn heed(&mut self, inbox: &mut VecDeque<EventKind>) -> Result<(), LogError> {
        let (arrived, remarks) = self.bridge.drain().await;
        for msg in remarks {
            self.write(&SessionEvent::Note { msg }, Durability::Buffered)?;
        }
        inbox.extend(arrived.into_iter().map(|arrival| EventKind::Admitted(Box::new(arrival))));
        Ok(())
    }

    /// A summary with where the audit file ends; every other line as it is.
    async fn with_egress(&mut self, mut event: SessionEvent) -> Result<SessionEvent, LogError> {
        if let (SessionEvent::Summary { outputs, .. }, Some(state)) = (&mut event, &self.writes) {
            *outputs = super::writes::counts(state);
        }
        let Some(broker) = &self.broker else { return Ok(event) };
        if let SessionEvent::Summary { egress_seq, egress_head, egress_allowed, egress_denied, .. } =
            &mut event
        {
            match broker.standing().await {
                Ok(Standing { head, allowed, denied }) => {
                    (*egress_seq, *egress_head) = (Some(head.seq), Some(head.hash));
                    (*egress_allowed, *egress_denied) = (Some(allowed), Some(denied));
                }
                Err(error) => {
                    let msg = format!("failed to {}: the summary does not say where it ends", chain(&error));
                    self.write(&SessionEvent::Note { msg }, Durability::Buffered)?;
                }
            }
        }
        Ok(event)
    }

    /// Appends a line and shows it.
    ///
    /// # Errors
    /// When the line could not be written whole.
    pub fn write(&mut self, event: &SessionEvent, durability: Durability) -> Result<(), LogError> {
        let seq = self.log.append(event, durability)?;
        self.bridge.tell(seq, event);
        self.progress.see(event, self.clock.monotonic());
        Ok(())
    }

    /// Whether `state/control.json` says `{"stop": true}`.
    fn stop_asked_for(&self) -> bool {
        asks_to_stop(&self.control)
    }
}

/// What a line says the running turn has used so far.
fn used(event: &SessionEvent) -> Option<Usage> {
    match event {
        SessionEvent::Agent {
            event: AgentEvent::Tokens { cost_usd, input_tokens, output_tokens }, ..
        } => Some(Usage::new(*cost_usd, *input_tokens, *output_tokens)),
        _ => None,
    }
}

/// Reads the control file; one that is not there or not what it should be asks for nothing.
fn asks_to_stop(control: &Path) -> bool {
    #[derive(serde::Deserialize)]
    struct Control {
        stop: bool,
    }
    let bytes = crate::sys::fs::read_bounded(control, 4096).ok();
    bytes
        .and_then(|bytes| policy::json::parse_object(&bytes).ok())
        .is_some_and(|control: Control| control.stop)
}

/// Waits until a time of the clock's monotonic side; for ever where there is none.
pub(super) async fn until(deadline: Option<Duration>, clock: &Clock) {
    match deadline {
        Some(deadline) => tokio::time::sleep(deadline.saturating_sub(clock.monotonic())).await,
        None => std::future::pending().await,
    }
}

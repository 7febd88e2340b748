//! Turns a job into what is done in the workspace, and what came of it into an event.
//! It refuses to know what comes next.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::effect::Job;
use super::event::{Candidate, EventKind, TaskEnd, TaskReport};
use super::graph::TaskId;
use super::judged::hashes;
use super::turning::Told;
use crate::agent::{
    Called, HostTurn, Results, SandboxTurn, SessionName, Sessions, Template, Usage, with_last_line,
};

use crate::judge::{Fault, Ground, GroundError, Known, Measure, Reading};
use crate::log::{FrozenHash, SessionEvent};
use crate::pack::Toolbox;
use crate::sys::chain;
use crate::sys::clock::Clock;
use crate::sys::env::Environment;
use crate::sys::fs::Root;
use crate::sys::keeper::{Keeper, KeeperError, PackCommand, Stdin};
use crate::world::{FrozenFiles, Recorded, SnapshotToken, World, WorldError};

/// The exit code of an `apply_cmd` whose candidate does not build (note N11).
const UNBUILT: i32 = 75;
/// `apply_cmd` and how long it may take.
#[derive(Debug, Clone)]
pub struct Apply {
    /// The text for `sh -c`.
    pub apply_cmd: String,
    /// Its limit.
    pub timeout: Option<Duration>,
}

/// How a turn of the agent is run (contract §6).
#[derive(Debug, Clone)]
pub enum Turn {
    /// On this host, in the workspace.
    Host(Box<HostTurn>),
    /// In a sandbox of its own.
    Sandbox(Box<SandboxTurn>),
}

impl Turn {
    /// What is run in it.
    #[must_use]
    pub fn called(&self) -> &Called {
        match self {
            Turn::Host(turn) => &turn.called,
            Turn::Sandbox(turn) => &turn.called,
        }
    }
}

/// Who takes turns.
#[derive(Debug, Clone)]
pub struct Caller {
    /// How they are run.
    pub turn: Turn,
    /// The conversation that they belong to; without one each begins anew.
    pub session: Option<SessionName>,
}

/// An agent task of the graph.
#[derive(Debug, Clone)]
pub struct AgentTask {
    /// Who takes its turns.
    pub caller: Caller,
    /// What it is told.
    pub prompt: String,
    /// The fields that its result must have.
    pub emits: Vec<String>,
}

/// What the jobs of a run need.
#[derive(Debug)]
pub struct Tools {
    /// Runs the pack's commands and ends what they start.
    pub keeper: Arc<Keeper>,
    /// The workspace.
    pub workspace: PathBuf,
    /// What pack commands may see (note N12).
    pub env: Environment,
    /// Who proposes.
    pub proposer: Caller,
    /// The agent tasks of the graph, by name.
    pub tasks: BTreeMap<String, AgentTask>,
    /// The durable conversations of the run.
    pub sessions: Sessions,
    /// The method, cut at its placeholders.
    pub method: Template,
    /// The goal's text.
    pub goal: String,
    /// `[world].apply_cmd`.
    pub apply: Option<Apply>,
    /// Where the judge and `apply_cmd` run.
    pub ground: Ground,
    /// The judge.
    pub measure: Measure,
    /// The skills of the agent.
    pub toolbox: Option<Toolbox>,
    /// The frozen injects.
    pub frozen: FrozenFiles,
    /// The agent's memory of the run.
    pub results: Results,
    /// Where lines for the log go while a job runs.
    pub tell: UnboundedSender<SessionEvent>,
    /// Times the tasks.
    pub clock: Clock,
}

/// Does the jobs of a run, one at a time.
#[derive(Debug)]
pub struct Hands<W> {
    pub(super) tools: Tools,
    pub(super) world: W,
}

/// What a task brings back beside its report.
#[derive(Debug, Default)]
pub(super) struct Aside {
    pub(super) killed: Vec<String>,
    pub(super) frozen_restored: Vec<String>,
}

impl<W: World> Hands<W> {
    /// Hands over what the jobs need.
    pub fn new(tools: Tools, world: W) -> Hands<W> {
        Hands { tools, world }
    }

    /// Does one job to its end. Nothing of it runs any more when this returns.
    pub async fn perform(&mut self, job: Job, cancel: &CancellationToken) -> EventKind {
        let began = self.tools.clock.monotonic();
        let mut aside = Aside::default();
        if matches!(job, Job::Record { .. } | Job::Restore { .. } | Job::Recall { .. }) {
            self.forget_usage();
        }
        let (task, report) = match job {
            Job::Propose { task, brief } => {
                let told = Told::Proposal;
                (task, self.take_turn((&brief, told), cancel, &mut aside).await)
            }
            Job::Agent { task, name, brief, upstream } => {
                let told = Told::Task { place: task.place(), name: &name, upstream: &upstream };
                (task, self.take_turn((&brief, told), cancel, &mut aside).await)
            }
            Job::Record { task, iter } => (task, self.record(iter, cancel).await),
            Job::Apply { task } => (task, self.apply(cancel, &mut aside).await),
            Job::Measure { task, known } => (task, self.measure(known, cancel, &mut aside).await),
            Job::Snapshot => {
                let token = self.world.snapshot().await.map(|token| token.to_string());
                self.tell_notes();
                return EventKind::Snapshotted(token.map_err(|error| chain(&error)));
            }
            Job::Restore { token } => {
                let restored = self.restore(&token).await;
                self.tell_notes();
                return EventKind::Restored(restored.map_err(|error| chain(&error)));
            }
            Job::Recall { iter, best, files } => {
                let found = self.recall(iter, best.as_deref(), files).await;
                self.tell_notes();
                return EventKind::Recalled(found.map_err(|error| chain(&error)));
            }
            Job::Hold { until } => {
                let released = tokio::select! {
                    () = cancel.cancelled() => false,
                    () = super::shell::until(until, &self.tools.clock) => true,
                };
                return EventKind::Released { timed_out: released };
            }
            Job::Wait { pause } => {
                // Whoever ends the pause early decides what follows.
                let _ = tokio::time::timeout(pause, cancel.cancelled()).await;
                return EventKind::Waited;
            }
        };
        let secs = self.tools.clock.monotonic().saturating_sub(began).as_secs_f64();
        self.end(task, report, aside, secs)
    }

    fn end(
        &mut self,
        task: TaskId,
        report: Result<TaskReport, Broken>,
        aside: Aside,
        secs: f64,
    ) -> EventKind {
        let Aside { killed, frozen_restored } = aside;
        let report = report.unwrap_or_else(|Broken(reason)| TaskReport::Broken { reason });
        self.tell_notes();
        EventKind::Task(Box::new(TaskEnd { task, report, killed, frozen_restored, secs }))
    }

    async fn restore(&mut self, token: &str) -> Result<(), WorldError> {
        let token = SnapshotToken::parse(token)?;
        self.world.restore(&token).await
    }

    /// What a turn that nobody saw end says it has used; and why that cannot be read.
    pub(super) fn usage_left(&self) -> (Usage, Option<String>) {
        match Root::open(&self.tools.workspace) {
            Ok(root) => Usage::look(&root),
            Err(error) => (Usage::default(), Some(chain(&error))),
        }
    }

    /// Removes what such a turn said of it; the text is why it stays.
    pub(super) fn clear_usage(&self) -> Option<String> {
        let cleared = Root::open(&self.tools.workspace).and_then(|root| Usage::clear(&root));
        cleared.err().map(|error| chain(&error))
    }

    /// A turn is over, and the log says what it has used: one of these jobs comes before any other turn.
    fn forget_usage(&self) {
        if let Some(msg) = self.clear_usage() {
            let _ = self.tools.tell.send(SessionEvent::Note { msg });
        }
    }

    async fn record(&mut self, iter: u32, cancel: &CancellationToken) -> Result<TaskReport, Broken> {
        let workspace = self.world.workspace();
        let recorded = workspace.record_unless(iter, cancel).await.map_err(|error| Broken(chain(&error)))?;
        let dropped = workspace.take_notes();
        let candidate = match recorded {
            Recorded::Candidate(found) => Candidate { dropped, ..told(found) },
            Recorded::Refused { why } => Candidate { refused: Some(why), dropped, ..Candidate::default() },
        };
        Ok(TaskReport::Recorded { candidate: Box::new(candidate) })
    }

    /// Finds the candidate of an iteration again that another process left open.
    async fn recall(
        &mut self,
        iter: u32,
        best: Option<&str>,
        files: bool,
    ) -> Result<Box<Candidate>, WorldError> {
        let best = best.map(SnapshotToken::parse).transpose()?;
        let workspace = self.world.workspace();
        let found = workspace.recall(iter, best.as_ref().map(SnapshotToken::commit), files).await?;
        Ok(Box::new(found.map(told).unwrap_or_default()))
    }

    async fn apply(&mut self, cancel: &CancellationToken, aside: &mut Aside) -> Result<TaskReport, Broken> {
        let Some(Apply { apply_cmd, timeout }) = self.tools.apply.clone() else {
            return Ok(TaskReport::Applied { failure: None });
        };
        if let Some(why) = self.missing()? {
            return Ok(TaskReport::Applied { failure: Some(why) });
        }
        aside.frozen_restored = self.put_frozen_back()?;
        let command = PackCommand {
            shell: apply_cmd,
            cwd: self.tools.workspace.clone(),
            env: self.tools.env.clone(),
            stdin: Stdin::Null,
            timeout,
            idle_timeout: None,
        };
        let mut shown = Vec::new();
        let mut sink = |_, bytes: &[u8]| crate::judge::measure::keep_end(&mut shown, bytes);
        let failure = match self.tools.ground.run(command, cancel, &mut sink).await {
            Ok(ran) => {
                aside.killed.extend(ran.killed);
                if ran.code == UNBUILT && ran.ended_early.is_none() {
                    return Ok(TaskReport::Unbuilt { output: String::from_utf8_lossy(&shown).into_owned() });
                }
                ran.failure.map(|how| with_last_line(&format!("apply_cmd {how}"), &shown))
            }
            Err(error) => Some(grounded(&error)?),
        };
        Ok(TaskReport::Applied { failure })
    }

    async fn measure(
        &mut self,
        known: Known,
        cancel: &CancellationToken,
        aside: &mut Aside,
    ) -> Result<TaskReport, Broken> {
        if let Some(why) = self.missing()? {
            let reading = Reading::faulty(&Fault::Ended(format!("cannot be run: {why}")));
            return Ok(TaskReport::Measured { reading, frozen: Vec::new(), shown: String::new() });
        }
        aside.frozen_restored = self.put_frozen_back()?;
        let first = known.baseline_score.is_none();
        let mut shown = String::new();
        let reading = match self.tools.measure.run(&self.tools.ground, known, cancel).await {
            Ok(measured) => {
                aside.killed.extend(measured.ended.killed);
                let mut reading = measured.reading;
                if let Some(fault) = reading.fault.take() {
                    if first && !measured.shown.is_empty() {
                        let msg = format!("the end of the judge's output:\n{}", measured.shown);
                        let _ = self.tools.tell.send(SessionEvent::Note { msg });
                    }
                    reading.fault = Some(with_last_line(&fault, measured.shown.as_bytes()));
                }
                if !reading.valid {
                    shown = measured.shown;
                }
                reading
            }
            Err(error) => Reading::faulty(&Fault::Ended(grounded(&error)?)),
        };
        let frozen = self.frozen_hashes()?;
        Ok(TaskReport::Measured { reading, frozen, shown })
    }

    /// Why nothing can be read from the workspace or put into it: something that ran in it took it away.
    pub(super) fn missing(&mut self) -> Result<Option<String>, Broken> {
        self.world.workspace().missing().map_err(|error| Broken(chain(&error)))
    }

    /// Puts the frozen injects back and names those that had been changed.
    pub(super) fn put_frozen_back(&self) -> Result<Vec<String>, Broken> {
        let changed =
            self.tools.frozen.restore(&self.tools.workspace).map_err(|error| Broken(chain(&error)))?;
        Ok(changed.iter().map(|path| path.display().to_string()).collect())
    }

    /// What judged: the frozen files as they were put before the measurement, and as they are after it.
    fn frozen_hashes(&mut self) -> Result<Vec<FrozenHash>, Broken> {
        if self.missing()?.is_some() {
            return Ok(Vec::new());
        }
        let found = self.tools.frozen.compare(&self.tools.workspace);
        Ok(hashes(&found.map_err(|error| Broken(chain(&error)))?))
    }

    fn tell_notes(&mut self) {
        for msg in self.world.workspace().take_notes() {
            let _ = self.tools.tell.send(SessionEvent::Note { msg });
        }
    }
}

/// A candidate as the loop knows it.
fn told(found: crate::world::Candidate) -> Candidate {
    Candidate {
        commit: Some(found.commit.to_string()),
        refused: None,
        changed: found.changed,
        diff: found.diff.text,
        diffstat: found.diff.stat,
        dropped: Vec::new(),
    }
}

/// The engine cannot go on: nothing measured from here on could be trusted.
pub(super) struct Broken(pub(super) String);

/// The same for a command of the judge's side. Without its sandbox nothing can be measured.
fn grounded(error: &GroundError) -> Result<String, Broken> {
    match error {
        GroundError::Keeper(error) => survivable(error),
        GroundError::Sandbox(_) => Err(Broken(format!("failed to {}", chain(error)))),
    }
}

/// A keeper's failure that costs the candidate, not the run.
pub(super) fn survivable(error: &KeeperError) -> Result<String, Broken> {
    match error {
        KeeperError::Start { .. } | KeeperError::Died { .. } | KeeperError::Io(_) => {
            Ok(format!("failed to {}", chain(error)))
        }
        KeeperError::Launch { .. } | KeeperError::NotEnded { .. } => {
            Err(Broken(format!("failed to {}", chain(error))))
        }
    }
}

//! Turns a wanted write into a [`Permit`], counted on the disk before anything leaves, or a refusal told to the log first.
//! It is the one chokepoint: nothing else makes a permit, and nothing writes without one.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::outputs::{Call, Ended, Entry, Intent, Kind, Known, Ledger, Outcome, Outputs, Refusal, Refused};
use policy::record::{Redactor, clean};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use super::durable::{Durable, Points};
use super::resume::{self, ResumeError};
use crate::rate::{Count, Rate};

/// How long a refused call waits for its answer when it came faster than the pace: what slows a loop down.
const SLOW: Duration = Duration::from_millis(250);
/// The longest answer that is kept for a retry, in bytes.
const ANSWER_MAX: usize = 8 * 1024;

/// Leave to write once, at one target. Only [`Gate::admit`] makes one, and for what lies in an outbox
/// [`outbox::Claim`](super::outbox::Claim), of a write that was admitted before.
///
/// ```compile_fail
/// // A permit has no constructor and no field that can be named, so nothing that takes one can be called without asking.
/// let permit = broker::writes::Permit { intent: todo!(), gate: todo!() };
/// ```
#[derive(Debug)]
#[must_use = "a permit that is dropped leaves a write whose outcome is unknown"]
pub struct Permit {
    intent: Intent,
    /// Where its outcome goes; a claim of the outbox keeps its own account.
    gate: Option<Arc<Gate>>,
    ended: bool,
}

/// A wanted write.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Its kind.
    pub kind: Kind,
    /// The tool.
    pub tool: &'a str,
    /// The target that was asked for.
    pub target: Option<&'a str>,
    /// The idempotency key.
    pub key: Option<&'a str>,
    /// SHA-256 of the arguments, in hex.
    pub args: &'a str,
    /// The turn.
    pub turn: &'a str,
}

/// A yes.
#[derive(Debug)]
pub enum Admitted {
    /// Leave to write.
    Permit(Permit),
    /// It was done before with the same key and arguments; this was answered.
    Stored(String),
}

/// A no. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// The bound says so; the row is on the session log.
    #[error("write: {}: {}", .0.bound, .0.reason.public())]
    Refused(Refusal),
    /// It cannot be counted or recorded, so it is not done.
    #[error("record the write, and nothing is written unrecorded")]
    Record(#[source] io::Error),
}

/// The row of a refusal, without its envelope.
#[derive(Debug, Serialize)]
struct Row<'a> {
    kind: &'static str,
    #[serde(flatten)]
    refusal: &'a Refusal,
    tool: &'a str,
    turn: &'a str,
}

/// A remark on the session log, without its envelope.
#[derive(Debug, Serialize)]
struct Note<'a> {
    kind: &'static str,
    msg: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<&'a str>,
}

/// What a gate is opened with.
#[derive(Debug)]
pub struct Opened {
    /// The bounds.
    pub outputs: Outputs,
    /// `state/outputs.jsonl`, for reading and appending.
    pub ledger: File,
    /// `state/session.jsonl`, for reading and appending.
    pub session_log: File,
    /// `state/outbox`, where staged writes lie.
    pub outbox: std::path::PathBuf,
    /// What no row may show.
    pub redactor: Redactor,
    /// Calls of each tool per second in the long run, and at once.
    pub pace: (u64, u64),
    /// Calls of tools altogether.
    pub calls: u64,
    /// Where a test looks in.
    pub points: Points,
}

/// The chokepoint of a run's writes.
#[derive(Debug)]
pub struct Gate {
    ledger: Mutex<Ledger>,
    journal: Durable,
    log: Durable,
    redactor: Redactor,
    pace: (u64, u64),
    paces: Mutex<HashMap<String, Arc<Rate>>>,
    calls: Count,
    most: u64,
    /// How many writes ended; who waits for one listens.
    ended: watch::Sender<u64>,
}

impl Gate {
    /// Goes on from what the ledger holds. A write that began and did not end is ended as unknown, or as staged where its
    /// file lies in the outbox, and the session log says so.
    ///
    /// # Errors
    /// A ledger that cannot be read or gone on with.
    pub async fn open(with: Opened) -> Result<Arc<Self>, ResumeError> {
        let Opened { outputs, ledger: file, session_log, outbox, redactor, pace, calls, points } = with;
        let ledger = resume::replayed(outputs, &file)?;
        let gate = Self {
            ledger: Mutex::new(ledger),
            journal: Durable::new(file, points.clone())?,
            log: Durable::new(session_log, points)?,
            redactor,
            pace,
            paces: Mutex::default(),
            calls: Count::default(),
            most: calls,
            ended: watch::Sender::new(0),
        };
        let open: Vec<Intent> = gate.ledger().open().cloned().collect();
        for intent in open {
            gate.recover(&intent, &outbox)?;
        }
        gate.journal.sync().await?;
        gate.log.sync().await?;
        Ok(Arc::new(gate))
    }

    /// Ends a write that an earlier broker began.
    fn recover(&self, intent: &Intent, outbox: &std::path::Path) -> io::Result<()> {
        let staged = super::outbox::find(outbox, intent.id)?.is_some();
        let (outcome, answer) = if staged {
            (Outcome::Staged, super::outbox::answer(intent))
        } else {
            (Outcome::Unknown, String::new())
        };
        if !staged {
            let target = intent.target.as_deref().unwrap_or("nothing");
            self.note(&format!(
                "the outcome of write {} ({} to {target}, {}) is unknown, because the broker ended in between; it is counted and not repeated",
                intent.id, intent.tool, intent.turn
            ))?;
        }
        self.write_end(&Ended { id: intent.id, outcome, answer })
    }

    /// The bounds.
    pub fn outputs(&self) -> Outputs {
        self.ledger().outputs().clone()
    }

    /// A value without secrets in any of its texts.
    pub(crate) fn redacted(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redactor.secrets(&text)),
            Value::Array(all) => all.into_iter().map(|value| self.redacted(value)).collect(),
            Value::Object(all) => all
                .into_iter()
                .map(|(name, value)| (self.redactor.secrets(&name), self.redacted(value)))
                .collect(),
            other => other,
        }
    }

    /// Decides a wanted write. With a permit its count is on the disk; with a refusal the row is.
    ///
    /// # Errors
    /// See [`Denied`].
    pub async fn admit(self: &Arc<Self>, wanted: Wanted<'_>) -> Result<Admitted, Denied> {
        let swift = self.swift(wanted.tool);
        let mut changes = self.ended.subscribe();
        loop {
            changes.mark_unchanged();
            let known = match self.decide(&wanted, swift) {
                Ok(known) => known.map_err(Denied::Record)?,
                Err(refusal) => return Err(self.refused(&wanted, refusal, swift.is_err()).await),
            };
            match known {
                Known::Stored(answer) => return Ok(Admitted::Stored(answer)),
                Known::New(intent) => {
                    // From here on the permit's end or its drop accounts for the intent.
                    let permit = Permit { intent, gate: Some(Arc::clone(self)), ended: false };
                    self.journal.sync().await.map_err(Denied::Record)?;
                    return Ok(Admitted::Permit(permit));
                }
                // The sender lives as long as the gate.
                Known::InFlight(_) => drop(changes.changed().await),
            }
        }
    }

    /// Counts a call that only reads against pace and ceiling.
    ///
    /// # Errors
    /// The refusal, whose row is on the session log.
    pub async fn admit_read(&self, wanted: Wanted<'_>) -> Result<String, Denied> {
        let swift = self.swift(wanted.tool);
        // A read needs a target within the bound and none of its count.
        let admitted = self.ledger().outputs().admit_read(wanted.kind, wanted.target);
        let within = admitted.and_then(|target| match swift {
            Ok(()) => Ok(target),
            Err(reason) => Err(paced(&wanted, reason)),
        });
        match within {
            Ok(target) => Ok(target),
            Err(refusal) => Err(self.refused(&wanted, refusal, swift.is_err()).await),
        }
    }

    /// The decision and its first line, under one lock, so that lines are in the order of decisions.
    fn decide(&self, wanted: &Wanted<'_>, swift: Result<(), Refused>) -> Result<io::Result<Known>, Refusal> {
        let Wanted { kind, tool, target, key, args, turn } = *wanted;
        let mut ledger = self.ledger();
        let call = Call { output: kind, tool, requested: target, key, args, turn };
        if let Err(reason) = swift {
            // What the bound refuses is told so, however fast it came.
            ledger.would(&call)?;
            return Err(paced(wanted, reason));
        }
        let known = ledger.want(call)?;
        if let Known::New(intent) = &known {
            return Ok(self.journal.append(&Entry::Intent(intent.clone())).map(|()| known));
        }
        Ok(Ok(known))
    }

    /// Whether a call fits the tool's pace and the run's ceiling.
    fn swift(&self, tool: &str) -> Result<(), Refused> {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        let rate =
            paces.entry(tool.to_owned()).or_insert_with(|| Arc::new(Rate::new(self.pace.0, self.pace.1)));
        if !rate.admits() {
            return Err(Refused::TooFast);
        }
        if self.calls.enter(self.most) { Ok(()) } else { Err(Refused::CallCeiling) }
    }

    /// Records a refusal; its row is on the disk when this returns.
    async fn refused(&self, wanted: &Wanted<'_>, refusal: Refusal, slow: bool) -> Denied {
        let refusal = Refusal { requested: clean(&self.redactor.secrets(&refusal.requested)), ..refusal };
        let row = Row { kind: "output_refused", refusal: &refusal, tool: wanted.tool, turn: wanted.turn };
        if let Err(error) = self.log.append(&row) {
            return Denied::Record(error);
        }
        if let Err(error) = self.log.sync().await {
            return Denied::Record(error);
        }
        if slow {
            sleep(SLOW).await;
        }
        Denied::Refused(refusal)
    }

    /// Puts a remark on the session log.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn note(&self, msg: &str) -> io::Result<()> {
        self.log.append(&Note { kind: "note", msg: &self.redactor.secrets(msg), turn: None })
    }

    /// Puts an agent's message to the operator on the session log.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) async fn message(&self, permit: &Permit, text: &str) -> io::Result<()> {
        let turn = permit.turn();
        let msg = self.redactor.secrets(&format!("message of {turn}: {text}"));
        self.log.append(&Note { kind: "note", msg: &msg, turn: Some(turn) })?;
        self.log.sync().await
    }

    fn write_end(&self, ended: &Ended) -> io::Result<()> {
        let mut ledger = self.ledger();
        self.journal.append(&Entry::Ended(ended.clone()))?;
        // It began here, or was replayed.
        let _ = ledger.end(ended);
        drop(ledger);
        self.ended.send_modify(|count| *count = count.saturating_add(1));
        Ok(())
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A refusal by the pace of calls.
fn paced(wanted: &Wanted<'_>, reason: Refused) -> Refusal {
    let bound = if reason == Refused::CallCeiling { "calls of tools in a run" } else { "pace of calls" };
    let requested = wanted.target.unwrap_or_default().to_owned();
    Refusal { kind: wanted.kind, bound: bound.to_owned(), requested, reason }
}

impl Permit {
    /// The permit of a write that lies in an outbox, admitted before and now claimed.
    pub(super) fn claimed(intent: Intent) -> Self {
        Self { intent, gate: None, ended: false }
    }

    /// The write.
    pub fn id(&self) -> u64 {
        self.intent.id
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.intent.output
    }

    /// Where it goes; empty for a kind without an address.
    pub fn target(&self) -> &str {
        self.intent.target.as_deref().unwrap_or_default()
    }

    /// The turn it falls in.
    pub fn turn(&self) -> &str {
        &self.intent.turn
    }

    /// What was admitted.
    pub fn intent(&self) -> &Intent {
        &self.intent
    }

    /// Whether the target's real name, after renames and moves, is within the bound too (row 102).
    ///
    /// # Errors
    /// The refusal, whose row is on the session log.
    pub async fn also_at(&self, resolved: &str) -> Result<(), Denied> {
        let Some(gate) = &self.gate else {
            // A claim has the target that a person read.
            return if resolved == self.target() { Ok(()) } else { Err(elsewhere(self, resolved)) };
        };
        let admitted = gate.ledger().outputs().admit_read(self.kind(), Some(resolved));
        let Err(refusal) = admitted else { return Ok(()) };
        let Intent { output, tool, args, turn, .. } = &self.intent;
        let wanted = Wanted { kind: *output, tool, target: Some(resolved), key: None, args, turn };
        Err(gate.refused(&wanted, refusal, false).await)
    }

    /// Records what came of it; the outcome is on the disk when this returns. The answer is what a retry with the same key
    /// gets, cut at 8 KiB.
    ///
    /// # Errors
    /// The file system's.
    pub async fn end(mut self, outcome: Outcome, answer: &str) -> io::Result<()> {
        self.ended = true;
        let Some(gate) = self.gate.take() else { return Ok(()) };
        let cut =
            (0..=ANSWER_MAX.min(answer.len())).rev().find(|at| answer.is_char_boundary(*at)).unwrap_or(0);
        let answer = answer.get(..cut).unwrap_or_default();
        let answer = gate.redactor.secrets(answer);
        gate.write_end(&Ended { id: self.intent.id, outcome, answer })?;
        gate.journal.sync().await
    }
}

fn elsewhere(permit: &Permit, resolved: &str) -> Denied {
    let bound = format!("[outputs.{}].target", permit.kind());
    let requested = resolved.to_owned();
    Denied::Refused(Refusal { kind: permit.kind(), bound, requested, reason: Refused::OutsideScope })
}

impl Drop for Permit {
    /// A write that nobody ended may have happened.
    fn drop(&mut self) {
        if let (false, Some(gate)) = (self.ended, self.gate.take()) {
            // Without this line the next broker ends it the same way.
            let _ = gate.write_end(&Ended {
                id: self.intent.id,
                outcome: Outcome::Unknown,
                answer: String::new(),
            });
        }
    }
}

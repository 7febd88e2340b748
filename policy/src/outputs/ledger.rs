//! Turns the lines of `state/outputs.jsonl` into how many writes there were, and a wanted write into its first line.
//! It refuses to know where the lines are kept: whoever keeps them has each on the disk before what follows from it.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::bounds::{Outputs, Refusal};
use super::kind::Kind;
use super::reason::Refused;

/// What is to be written, before anything of it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The write; unique in the run, from 1.
    pub id: u64,
    /// Its kind.
    pub output: Kind,
    /// The tool, or the engine's own part, that writes.
    pub tool: String,
    /// Where it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The caller's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// SHA-256 of the arguments, in hex.
    pub args: String,
    /// The turn it falls in.
    pub turn: String,
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was written.
    Done,
    /// It lies in the outbox, to be sent by a person.
    Staged,
    /// Certainly nothing was written: its count is given back.
    Failed,
    /// Nobody can tell. It stays counted, and is not repeated.
    Unknown,
}

/// The end of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The write.
    pub id: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// What the caller was answered.
    pub answer: String,
}

/// One line of `state/outputs.jsonl`, without its envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    /// On the disk before the call leaves.
    Intent(Intent),
    /// On the disk before the caller is answered.
    Ended(Ended),
}

/// A wanted write.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Its kind.
    pub output: Kind,
    /// The tool.
    pub tool: &'a str,
    /// The target that was asked for.
    pub requested: Option<&'a str>,
    /// The idempotency key.
    pub key: Option<&'a str>,
    /// SHA-256 of the arguments, in hex.
    pub args: &'a str,
    /// The turn.
    pub turn: &'a str,
}

/// What is known about a wanted write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is new, within its bound, and counted from now on.
    New(Intent),
    /// It was done before with the same key and arguments; this was answered.
    Stored(String),
    /// The same key and arguments are being written now, by this write.
    InFlight(u64),
}

/// Lines that no broker wrote in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A write begins twice, or out of order.
    #[error("go on with the writes of the run: write {0} begins out of order")]
    Order(u64),
    /// A write ends that did not begin, or ended before.
    #[error("go on with the writes of the run: write {0} ends without having begun")]
    NotBegun(u64),
}

/// What became of a key.
#[derive(Clone, Debug)]
struct Keyed {
    id: u64,
    args: String,
    ended: Option<(Outcome, String)>,
}

/// The state of a run's writes. It is what [`Ledger::replay`] makes of the lines, and nothing else.
#[derive(Clone, Debug)]
pub struct Ledger {
    outputs: Outputs,
    used: BTreeMap<Kind, u32>,
    last: u64,
    open: BTreeMap<u64, Intent>,
    keys: HashMap<(String, String), Keyed>,
}

impl Ledger {
    /// A run without a write.
    pub fn new(outputs: Outputs) -> Self {
        Self { outputs, used: BTreeMap::new(), last: 0, open: BTreeMap::new(), keys: HashMap::new() }
    }

    /// The bounds.
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// How many writes of a kind count against its bound.
    pub fn used(&self, kind: Kind) -> u32 {
        self.used.get(&kind).copied().unwrap_or(0)
    }

    /// The writes that began and did not end.
    pub fn open(&self) -> impl Iterator<Item = &Intent> {
        self.open.values()
    }

    /// Takes in one line, in the order of the file.
    ///
    /// # Errors
    /// A line that cannot stand there.
    pub fn replay(&mut self, entry: Entry) -> Result<(), LedgerError> {
        match entry {
            Entry::Intent(intent) => self.begin(intent),
            Entry::Ended(ended) => self.end(&ended),
        }
    }

    /// Tells whether [`Ledger::want`] would refuse, and counts nothing.
    ///
    /// # Errors
    /// The refusal.
    pub fn would(&self, call: &Call<'_>) -> Result<(), Refusal> {
        match self.known(call)? {
            Some(_) => Ok(()),
            None => self.outputs.admit(call.output, call.requested, self.used(call.output)).map(drop),
        }
    }

    /// Decides a wanted write. A new one is counted when this returns; the caller has its [`Intent`] on the disk before
    /// anything leaves, or lets nothing leave ever after.
    ///
    /// # Errors
    /// The refusal, which names the bound.
    pub fn want(&mut self, call: Call<'_>) -> Result<Known, Refusal> {
        if let Some(known) = self.known(&call)? {
            return Ok(known);
        }
        let admission = self.outputs.admit(call.output, call.requested, self.used(call.output))?;
        let intent = Intent {
            id: self.last.saturating_add(1),
            output: call.output,
            tool: call.tool.to_owned(),
            target: admission.target,
            key: call.key.map(str::to_owned),
            args: call.args.to_owned(),
            turn: call.turn.to_owned(),
        };
        // In order by the line above.
        let _ = self.begin(intent.clone());
        Ok(Known::New(intent))
    }

    /// What is known of the call's key.
    fn known(&self, call: &Call<'_>) -> Result<Option<Known>, Refusal> {
        let Some(key) = call.key else { return Ok(None) };
        let Some(keyed) = self.keys.get(&(call.tool.to_owned(), key.to_owned())) else { return Ok(None) };
        let refused = |reason| Refusal {
            kind: call.output,
            bound: "idempotency_key".to_owned(),
            requested: call.requested.unwrap_or_default().to_owned(),
            reason,
        };
        match &keyed.ended {
            _ if keyed.args != call.args => Err(refused(Refused::KeyReused)),
            None => Ok(Some(Known::InFlight(keyed.id))),
            Some((Outcome::Unknown, _)) => Err(refused(Refused::OutcomeUnknown)),
            Some((_, answer)) => Ok(Some(Known::Stored(answer.clone()))),
        }
    }

    fn begin(&mut self, intent: Intent) -> Result<(), LedgerError> {
        if intent.id <= self.last {
            return Err(LedgerError::Order(intent.id));
        }
        self.last = intent.id;
        let used = self.used.entry(intent.output).or_insert(0);
        *used = used.saturating_add(1);
        if let Some(key) = &intent.key {
            let keyed = Keyed { id: intent.id, args: intent.args.clone(), ended: None };
            self.keys.insert((intent.tool.clone(), key.clone()), keyed);
        }
        self.open.insert(intent.id, intent);
        Ok(())
    }

    /// Ends a write. One that certainly wrote nothing gives its count and its key back.
    ///
    /// # Errors
    /// A write that is not open.
    pub fn end(&mut self, ended: &Ended) -> Result<(), LedgerError> {
        let intent = self.open.remove(&ended.id).ok_or(LedgerError::NotBegun(ended.id))?;
        let key = intent.key.map(|key| (intent.tool, key));
        if ended.outcome == Outcome::Failed {
            if let Some(used) = self.used.get_mut(&intent.output) {
                *used = used.saturating_sub(1);
            }
            key.map(|key| self.keys.remove(&key));
        } else if let Some(keyed) = key.and_then(|key| self.keys.get_mut(&key)) {
            keyed.ended = Some((ended.outcome, ended.answer.clone()));
        }
        Ok(())
    }
}

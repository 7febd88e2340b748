//! Turns names and ids into the sandboxes of this gateway, with their phases, logs and watchers.
//! It refuses to know how a sandbox works inside.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tokio::sync::{broadcast, watch};

use super::sandbox::Sandbox;
use crate::{
    client::SyncedBack,
    error::TransportClass,
    wire::{
        openshell::{
            datamodel::v1::ObjectMeta,
            sandbox::v1::SandboxPolicy,
            v1::{self as api, SandboxPhase},
        },
        timestamp,
    },
};

/// Log lines kept of one sandbox.
const LOG_LINES: usize = 2000;
/// Events that a slow watcher may be behind.
const WATCHERS_BEHIND: usize = 256;

/// One sandbox as the API sees it.
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) request_id: String,
    pub(crate) spec: api::SandboxSpec,
    labels: std::collections::HashMap<String, String>,
    annotations: std::collections::HashMap<String, String>,
    created: SystemTime,
    state: Mutex<State>,
    events: broadcast::Sender<api::sandbox_stream_event::Payload>,
    /// Held while a sync or a deletion is under way.
    pub(crate) ending: tokio::sync::Mutex<Option<SyncedBack>>,
    settled: watch::Sender<bool>,
}

struct State {
    phase: SandboxPhase,
    version: u64,
    failure: Option<(TransportClass, String)>,
    sandbox: Option<Arc<Sandbox>>,
    logs: VecDeque<api::SandboxLogLine>,
}

impl Record {
    /// A record in phase provisioning.
    pub(crate) fn new(id: String, request: api::CreateSandboxRequest) -> Self {
        Self {
            id,
            name: request.name,
            request_id: request.request_id,
            spec: request.spec.unwrap_or_default(),
            labels: request.labels,
            annotations: request.annotations,
            created: SystemTime::now(),
            state: Mutex::new(State {
                phase: SandboxPhase::Provisioning,
                version: 1,
                failure: None,
                sandbox: None,
                logs: VecDeque::new(),
            }),
            events: broadcast::Sender::new(WATCHERS_BEHIND),
            ending: tokio::sync::Mutex::new(None),
            settled: watch::Sender::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn phase(&self) -> SandboxPhase {
        self.state().phase
    }

    /// The sandbox, once it stands.
    pub(crate) fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.state().sandbox.clone()
    }

    /// Hands over the sandbox that was made.
    pub(crate) fn stands(&self, sandbox: Arc<Sandbox>) {
        self.state().sandbox = Some(sandbox);
        self.enter(SandboxPhase::Ready);
    }

    /// It stands, or it never will.
    pub(crate) fn settled(&self) {
        self.settled.send_replace(true);
    }

    /// Waits for that.
    pub(crate) async fn wait_settled(&self) {
        // The sender lives in this record, so the wait cannot fail.
        drop(self.settled.subscribe().wait_for(|settled| *settled).await);
    }

    /// It does not stand, or no longer; whose fault that is, and why.
    pub(crate) fn fail(&self, class: TransportClass, why: String) {
        self.state().failure = Some((class, why));
        self.enter(SandboxPhase::Error);
    }

    /// Goes into a phase and tells the watchers. A sandbox that is being deleted goes nowhere else.
    pub(crate) fn enter(&self, phase: SandboxPhase) {
        {
            let mut state = self.state();
            if state.phase == SandboxPhase::Deleting {
                return;
            }
            state.phase = phase;
            state.version += 1;
        }
        // Nobody watching is no error.
        drop(self.events.send(api::sandbox_stream_event::Payload::Sandbox(self.wire())));
    }

    /// Appends to the log, the oldest lines going first.
    pub(crate) fn log(&self, level: &str, message: String) {
        let line = api::SandboxLogLine {
            sandbox_id: self.id.clone(),
            level: level.to_owned(),
            target: "gateway".to_owned(),
            message,
            source: "gateway".to_owned(),
            event_time: Some(timestamp(SystemTime::now())),
            ..api::SandboxLogLine::default()
        };
        let mut state = self.state();
        if state.logs.len() == LOG_LINES {
            state.logs.pop_front();
        }
        state.logs.push_back(line.clone());
        drop(state);
        // As in `enter`.
        drop(self.events.send(api::sandbox_stream_event::Payload::Log(line)));
    }

    /// The newest lines, oldest first, and how many there are in all.
    pub(crate) fn logs(&self, lines: usize) -> (Vec<api::SandboxLogLine>, usize) {
        let state = self.state();
        let skip = state.logs.len().saturating_sub(lines);
        (state.logs.iter().skip(skip).cloned().collect(), state.logs.len())
    }

    pub(crate) fn watch(&self) -> broadcast::Receiver<api::sandbox_stream_event::Payload> {
        self.events.subscribe()
    }

    pub(crate) fn policy(&self) -> SandboxPolicy {
        self.spec.policy.clone().unwrap_or(SandboxPolicy { version: 1, ..SandboxPolicy::default() })
    }

    /// Whether it carries every label of a selector `k=v,k2=v2`.
    fn matches(&self, selector: &str) -> bool {
        selector.split(',').filter(|pair| !pair.is_empty()).all(|pair| {
            pair.split_once('=')
                .is_some_and(|(key, value)| self.labels.get(key.trim()).is_some_and(|v| v == value.trim()))
        })
    }

    /// The record as the API sends it.
    pub(crate) fn wire(&self) -> api::Sandbox {
        let state = self.state();
        let ready = state.phase == SandboxPhase::Ready;
        let (reason, message) = match &state.failure {
            Some((class, why)) => (class.token(), why.as_str()),
            None => ("", ""),
        };
        let condition = api::SandboxCondition {
            r#type: "Ready".to_owned(),
            status: if ready { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            transition_time: None,
        };
        api::Sandbox {
            metadata: Some(ObjectMeta {
                id: self.id.clone(),
                name: self.name.clone(),
                labels: self.labels.clone(),
                resource_version: state.version,
                annotations: self.annotations.clone(),
                workspace: "default".to_owned(),
                created_time: Some(timestamp(self.created)),
                deletion_time: None,
            }),
            spec: Some(self.spec.clone()),
            status: Some(api::SandboxStatus {
                conditions: vec![condition],
                phase: state.phase.into(),
                current_policy_version: 1,
                exit_code: None,
            }),
        }
    }
}

/// All sandboxes of this gateway, by name.
#[derive(Default)]
pub(crate) struct Store(Mutex<BTreeMap<String, Arc<Record>>>);

impl Store {
    fn records(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Record>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record; answers the one that has its name, if there is one.
    pub(crate) fn insert(&self, record: Arc<Record>) -> Result<(), Arc<Record>> {
        match self.records().entry(record.name.clone()) {
            std::collections::btree_map::Entry::Occupied(entry) => Err(entry.get().clone()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(record);
                Ok(())
            }
        }
    }

    /// The record of this name or id.
    pub(crate) fn find(&self, name_or_id: &str) -> Option<Arc<Record>> {
        let records = self.records();
        records.get(name_or_id).or_else(|| records.values().find(|record| record.id == name_or_id)).cloned()
    }

    /// Takes the record away.
    pub(crate) fn remove(&self, record: &Record) {
        self.records().remove(&record.name);
    }

    /// Up to `size` records after the name `after`, with these labels.
    pub(crate) fn page(&self, after: &str, size: usize, selector: &str) -> (Vec<Arc<Record>>, bool) {
        let records = self.records();
        let mut all = records
            .values()
            .filter(|record| record.name.as_str() > after && record.matches(selector))
            .cloned();
        let page = all.by_ref().take(size).collect();
        (page, all.next().is_some())
    }

    /// Every record.
    pub(crate) fn all(&self) -> Vec<Arc<Record>> {
        self.records().values().cloned().collect()
    }
}

/// An identity in the form that clients expect.
pub(crate) fn fresh_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let half = || RandomState::new().hash_one(std::time::Instant::now());
    let (a, b) = (half(), half());
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        a >> 32,
        a >> 16 & 0xFFFF,
        a & 0xFFF,
        b >> 52,
        b & 0xFFFF_FFFF_FFFF
    )
}

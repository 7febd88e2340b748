//! Turns a question of a sandbox into a permit or a refusal, with one record of it written before the answer.
//! It is the one chokepoint: nothing else makes a [`Permit`], and nothing dials without one.

mod permit;
mod question;

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use policy::egress::{Ask, Denial, Egress, Entry, address};
use policy::host::{Host, Target};
use policy::no_proxy::NoProxy;
use policy::reason::Reason;
use policy::record::{Address, Close, Cut, Decision, End, Record, Redactor, Verdict};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use self::question::chain;
use crate::audit::Audit;
use crate::core::hello::Tolerance;
use crate::core::synthetic::Synthetic;
use crate::launch::Parent;
use crate::limits::Limits;
use crate::outside::Outside;
use crate::peer::Peer;
use crate::rate::{Count, Rate};
use crate::token::Token;

pub use self::permit::{Permit, Route};
pub use self::question::{Asker, Question, Spoken};

/// Who serves connections to the broker's own URL.
pub trait Face: Send + Sync + 'static {
    /// Serves one connection of a sandbox to its end.
    fn serve(
        &self,
        sandbox: Arc<Sandbox>,
        asker: Asker,
        stream: TcpStream,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// What every sandbox of one broker shares.
pub struct Shared {
    /// The record.
    pub audit: Audit,
    /// The host's network.
    pub outside: Arc<dyn Outside>,
    /// The host's own way out, and what goes past it.
    pub parent: Option<(Parent, NoProxy)>,
    /// What each sandbox may use.
    pub limits: Limits,
    /// How strict hellos are judged.
    pub tolerance: Tolerance,
    /// What no record may show.
    pub redactor: Redactor,
    /// Numbers for connections.
    pub next: AtomicU64,
    /// Who serves the broker's own URL, where anybody does.
    pub face: Option<Arc<dyn Face>>,
}

/// One sandbox's turn.
pub struct Sandbox {
    /// What it shares with others.
    pub shared: Arc<Shared>,
    /// The turn's name.
    pub turn: String,
    /// Who may call tools; nobody without one.
    pub(crate) token: Option<Token>,
    egress: RwLock<Arc<Egress>>,
    /// Who is who inside.
    pub(crate) peer: Peer,
    /// Addresses that names have inside.
    pub(crate) names: Mutex<Synthetic>,
    pub(crate) open: Count,
    pub(crate) bytes: Count,
    rate: Rate,
    tally: Tally,
    /// Says when the turn ends; every task of the turn listens while it runs.
    pub(crate) ending: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Tally {
    records: Count,
    cut: Mutex<bool>,
    allowed: Count,
    denied: Count,
    unrecorded: Count,
}

impl Sandbox {
    /// A sandbox whose turn begins.
    pub fn new(shared: Arc<Shared>, turn: String, egress: Egress, peer: Peer) -> Self {
        Self::serving(shared, turn, None, egress, peer)
    }

    /// A sandbox whose turn begins, and whose programs may call tools with this token.
    pub(crate) fn serving(
        shared: Arc<Shared>,
        turn: String,
        token: Option<Token>,
        egress: Egress,
        peer: Peer,
    ) -> Self {
        let limits = shared.limits;
        Self {
            shared,
            turn,
            token,
            egress: RwLock::new(Arc::new(egress)),
            peer,
            names: Mutex::default(),
            open: Count::default(),
            bytes: Count::default(),
            rate: Rate::new(limits.requests_per_second, limits.requests_burst),
            tally: Tally::default(),
            ending: watch::Sender::new(false),
        }
    }

    /// Whether one more request for tools fits the pace of decisions.
    pub(crate) fn calls_admitted(&self) -> bool {
        self.rate.admits()
    }

    /// Runs a task until it or the turn ends.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut ending = self.ending.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                // A tunnel that sees the end itself still records what flowed.
                biased;
                () = task => {}
                _ = ending.wait_for(|ended| *ended) => {}
            }
        });
    }

    /// Waits for the turn's end.
    pub(crate) async fn ended(&self) {
        // The sender lives as long as the sandbox, so this waits for nothing else.
        let _ = self.ending.subscribe().wait_for(|ended| *ended).await;
    }

    /// The policy in force.
    pub fn egress(&self) -> Arc<Egress> {
        Arc::clone(&self.egress.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another policy in force for every later question.
    pub fn replace(&self, egress: Egress) {
        *self.egress.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(egress);
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// A number for a new connection.
    pub(crate) fn number(&self) -> u64 {
        self.shared.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Decides, resolves the name once where the policy says yes, checks every address, and records the outcome. `known`
    /// is the route of an open connection to the same target, which is not resolved again.
    ///
    /// # Errors
    /// The reason, already recorded.
    pub async fn admit(
        &self,
        asker: &Asker,
        question: Question<'_>,
        known: Option<&Route>,
    ) -> Result<Permit, Reason> {
        let egress = self.egress();
        if !self.rate.admits() {
            return Err(self.deny(asker, &egress, &question, Reason::TooFast, None, Vec::new()));
        }
        let ask =
            Ask { way: asker.way, target: question.target, caller: &asker.caller, method: question.method };
        let grant = match egress.decide(&ask) {
            Ok(grant) => grant,
            Err(Denial { reason, entry }) => {
                return Err(self.deny(asker, &egress, &question, reason, entry, Vec::new()));
            }
        };
        if let Err(reason) = question.spoken.fits(grant.carry) {
            return Err(self.deny(asker, &egress, &question, reason, Some(grant.entry), Vec::new()));
        }
        let (route, addresses) = match known {
            Some(route) => (route.clone(), route.addresses()),
            None => match self.route(question.target, grant.entry).await {
                Ok(found) => found,
                Err((reason, addresses)) => {
                    return Err(self.deny(asker, &egress, &question, reason, Some(grant.entry), addresses));
                }
            },
        };
        let mut decision = self.decision(asker, &egress, &question, Some(grant.entry), addresses);
        decision.reason = grant.audited;
        decision.via = matches!(route, Route::Parent(_)).then(|| "parent".to_owned());
        self.allow(decision)?;
        let (target, carry) = (question.target.clone(), grant.carry);
        Ok(Permit { target, carry, route, since: Instant::now(), conn: asker.conn })
    }

    /// Where a granted target is reached: the one resolution of a connection (row 19).
    async fn route(
        &self,
        target: &Target,
        entry: &Entry,
    ) -> Result<(Route, Vec<Address>), (Reason, Vec<Address>)> {
        if let Some((parent, past)) = &self.shared.parent
            && !entry.is_local()
            && !past.covers(target)
        {
            return Ok((Route::Parent(parent.clone()), Vec::new()));
        }
        let found = match &target.host {
            Host::Ip(address) => vec![*address],
            Host::Name(name) => {
                let limit = Limits::time(self.limits().resolve_ms);
                let answer = timeout(limit, self.shared.outside.resolve(name)).await;
                answer.ok().and_then(Result::ok).unwrap_or_default()
            }
        };
        let mut addresses: Vec<Address> = Vec::with_capacity(found.len());
        for ip in found.into_iter().map(|ip| ip.to_canonical()) {
            if !addresses.iter().any(|known| known.ip == ip) {
                addresses.push(Address { ip, refused: address(entry, ip).err() });
            }
        }
        let allowed = addresses.iter().filter(|address| address.refused.is_none());
        let allowed: Arc<[SocketAddr]> =
            allowed.map(|address| SocketAddr::new(address.ip, target.port.get())).collect();
        if allowed.is_empty() {
            let reason = addresses.first().and_then(|address| address.refused).unwrap_or(Reason::Unresolved);
            return Err((reason, addresses));
        }
        Ok((Route::Direct(allowed), addresses))
    }

    /// Records a refusal that needs no policy: a malformed head, a hello for another server, a limit.
    pub fn refuse(&self, asker: &Asker, asked: &str, target: Option<&Target>, reason: Reason) -> Reason {
        let egress = self.egress();
        let mut decision = self.blank(asker, &egress, asked);
        decision.target = target.map(ToString::to_string);
        decision.reason = Some(reason);
        self.record_denial(decision, reason)
    }

    fn deny(
        &self,
        asker: &Asker,
        egress: &Egress,
        question: &Question<'_>,
        reason: Reason,
        entry: Option<&Entry>,
        addresses: Vec<Address>,
    ) -> Reason {
        let mut decision = self.decision(asker, egress, question, entry, addresses);
        decision.reason = Some(reason);
        decision.detail = chain(&asker.caller, reason);
        self.record_denial(decision, reason)
    }

    fn decision(
        &self,
        asker: &Asker,
        egress: &Egress,
        question: &Question<'_>,
        entry: Option<&Entry>,
        addresses: Vec<Address>,
    ) -> Decision {
        let mut decision = self.blank(asker, egress, question.asked);
        decision.target = Some(question.target.to_string());
        decision.method = question.method.map(str::to_owned);
        decision.addresses = addresses;
        decision.entry = entry.map(|entry| entry.endpoint.to_string());
        decision.source = entry.map(|entry| entry.source.to_string());
        decision
    }

    fn blank(&self, asker: &Asker, egress: &Egress, asked: &str) -> Decision {
        Decision {
            turn: self.turn.clone(),
            conn: asker.conn,
            way: asker.way,
            asked: self.shared.redactor.target(asked),
            target: None,
            method: None,
            addresses: Vec::new(),
            via: None,
            binary: asker.caller.binary().map(policy::record::clean),
            verdict: Verdict::Deny,
            entry: None,
            source: None,
            reason: None,
            detail: None,
            policy: egress.hash().to_owned(),
        }
    }

    /// Records a yes; without a record there is none.
    fn allow(&self, mut decision: Decision) -> Result<(), Reason> {
        decision.verdict = Verdict::Allow;
        match self.write(&Record::Decision(Box::new(decision))) {
            Ok(()) => {
                self.tally.allowed.add(1);
                Ok(())
            }
            Err(reason) => {
                self.tally.denied.add(1);
                self.tally.unrecorded.add(1);
                Err(reason)
            }
        }
    }

    fn record_denial(&self, decision: Decision, reason: Reason) -> Reason {
        self.tally.denied.add(1);
        match self.write(&Record::Decision(Box::new(decision))) {
            Ok(()) => reason,
            Err(unwritten) => {
                self.tally.unrecorded.add(1);
                unwritten
            }
        }
    }

    /// Writes a record of the turn while there is room, and once that there is no more.
    fn write(&self, record: &Record) -> Result<(), Reason> {
        let limit = self.limits().records;
        if self.tally.records.enter(limit) {
            return self.shared.audit.write(record).map_err(|_| Reason::AuditFailed);
        }
        let mut cut = self.tally.cut.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *cut, true) {
            let record = Record::Cut(Cut { turn: self.turn.clone(), limit });
            self.shared.audit.write(&record).map_err(|_| Reason::AuditFailed)?;
        }
        Err(Reason::AuditFull)
    }

    /// Waits until every record so far is on the disk: what a refusal waits for before it is answered.
    pub(crate) async fn settle(&self) {
        // A disk that fails makes every later record fail, and then nothing passes; this one is a refusal already.
        let _ = self.shared.audit.settle().await;
    }

    /// Records how a permitted connection ended. Past the turn's room it is only the turn's end that tells of it.
    pub fn close(&self, permit: &Permit, up: u64, down: u64, reason: Option<Reason>) {
        let millis = u64::try_from(permit.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let close = Close { turn: self.turn.clone(), conn: permit.conn, up, down, millis, reason };
        // A refusal to write is felt by the next decision, which fails closed.
        let _ = self.write(&Record::Close(close));
    }

    /// Records what the turn came to.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn end(&self) -> Result<End, crate::audit::AuditError> {
        let end = End {
            turn: self.turn.clone(),
            allowed: self.tally.allowed.get(),
            denied: self.tally.denied.get(),
            unrecorded: self.tally.unrecorded.get(),
        };
        self.shared.audit.write(&Record::End(end.clone()))?;
        Ok(end)
    }

    /// The target of a connection that knows no proxy, by the address at which it arrived.
    pub(crate) fn arrived_at(&self, local: SocketAddr) -> Option<Target> {
        let port = policy::host::Port::new(local.port())?;
        let ip = local.ip().to_canonical();
        let host = match ip {
            IpAddr::V4(address) if crate::core::synthetic::is_synthetic(ip) => {
                let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                Host::Name(names.name(address)?.clone())
            }
            _ => Host::Ip(ip),
        };
        Some(Target { host, port })
    }
}

//! Turns deliveries of clients and orders of the loop into entries of the ledger, several to one sync (§7.1).
//! It refuses to know connections. The loop's orders come first: however many clients there are, it waits for one sync.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::status::Status;
use crate::admission::{Admission, Admitted, Book, Input, Key, Ledger, LedgerError, Refusal, Settlement};
use crate::sys::chain;

/// How many entries share a sync.
const BATCH_MAX: usize = 64;
/// How many deliveries of clients may wait for the desk.
const QUEUE_MAX: usize = 64;
/// How long no delivery of a client is taken up after a sync for one.
const REST: Duration = Duration::from_millis(5);

/// An input that is on the disk and is the run's to act on.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// Its key, to settle it by.
    pub key: Key,
    /// What is asked for.
    pub input: Input,
}

/// What a client is told of its delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// Its key.
    pub key: Key,
    /// Whether it is new.
    pub admission: Admission,
    /// It takes effect and is in no record.
    pub unrecorded: bool,
}

/// Why a delivery has no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeskError {
    /// It is not taken in.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It could not be recorded.
    #[error("failed to {0}")]
    Unrecorded(String),
    /// The run takes no more.
    #[error("the run is ending")]
    Ending,
}

/// A way to the desk for clients.
#[derive(Debug, Clone)]
pub struct Counter {
    calls: mpsc::Sender<Call>,
}

#[derive(Debug)]
enum Call {
    Deliver { key: Option<Key>, input: Input, answer: oneshot::Sender<Result<Delivered, DeskError>> },
    Status { status: Box<Status>, answer: oneshot::Sender<Status> },
}

impl Counter {
    /// Delivers an input. Once this returns well, it is recorded and on its way to the loop.
    ///
    /// # Errors
    /// [`DeskError`]: then it has no effect.
    pub async fn deliver(&self, key: Option<Key>, input: Input) -> Result<Delivered, DeskError> {
        let (answer, answered) = oneshot::channel();
        let call = Call::Deliver { key, input, answer };
        self.calls.send(call).await.map_err(|_| DeskError::Ending)?;
        answered.await.unwrap_or(Err(DeskError::Ending))
    }

    /// A status with what the ledger adds to it.
    pub async fn complete(&self, status: Status) -> Option<Status> {
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call::Status { status: Box::new(status), answer }).await.ok()?;
        answered.await.ok()
    }
}

/// The loop's way to the desk.
#[derive(Debug, Clone)]
pub struct Office {
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
enum Order {
    Admit { key: Key, input: Input, answer: oneshot::Sender<Result<Admission, String>> },
    Settle { key: Key, outcome: Settlement, note: String, answer: oneshot::Sender<Result<(), String>> },
}

impl Office {
    /// Records an input of the engine's own finding, such as a line of `STEER.md` or a grant.
    ///
    /// # Errors
    /// Why it is in no record: then it must have no effect.
    pub async fn admit(&self, key: Key, input: Input) -> Result<Admission, String> {
        let (answer, answered) = oneshot::channel();
        self.send(Order::Admit { key, input, answer });
        answered.await.unwrap_or_else(|_| Err("the ledger is closed".to_owned()))
    }

    /// Records how an input came to its end.
    ///
    /// # Errors
    /// Why it is in no record: then a resumed run would owe it still.
    pub async fn settle(&self, key: Key, outcome: Settlement, note: String) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        self.send(Order::Settle { key, outcome, note, answer });
        answered.await.unwrap_or_else(|_| Err("the ledger is closed".to_owned()))
    }

    fn send(&self, order: Order) {
        // A desk that is gone drops the answer, which the caller hears of.
        let _ = self.orders.send(order);
    }
}

/// Owns the ledger of a run.
#[derive(Debug)]
pub struct Desk {
    ledger: Ledger,
    calls: mpsc::Receiver<Call>,
    orders: mpsc::UnboundedReceiver<Order>,
    arrivals: mpsc::UnboundedSender<Arrival>,
    ending: watch::Receiver<bool>,
}

/// The ends of a desk.
#[derive(Debug)]
pub struct Ends {
    /// For clients.
    pub counter: Counter,
    /// For the loop.
    pub office: Office,
    /// What has arrived, in the order of its admission.
    pub arrivals: mpsc::UnboundedReceiver<Arrival>,
}

/// What is answered once the batch is on the disk.
enum Due {
    Delivery(Arrival, Result<Admitted, LedgerError>, oneshot::Sender<Result<Delivered, DeskError>>),
    Admission(Result<Admitted, LedgerError>, oneshot::Sender<Result<Admission, String>>),
    Settlement(Result<(), LedgerError>, oneshot::Sender<Result<(), String>>),
    Nothing,
}

impl Desk {
    /// A desk over a ledger. It refuses clients from when `ending` says `true`.
    #[must_use]
    pub fn new(ledger: Ledger, ending: watch::Receiver<bool>) -> (Desk, Ends) {
        let (calls, called) = mpsc::channel(QUEUE_MAX);
        let (orders, ordered) = mpsc::unbounded_channel();
        let (arrive, arrivals) = mpsc::unbounded_channel();
        let desk = Desk { ledger, calls: called, orders: ordered, arrivals: arrive, ending };
        (desk, Ends { counter: Counter { calls }, office: Office { orders }, arrivals })
    }

    /// What is known of each key.
    #[must_use]
    pub fn book(&self) -> &Book {
        self.ledger.book()
    }

    /// Serves until the loop's end is gone. Between two syncs for clients it rests, so that the disk is the run's
    /// however much they deliver.
    pub async fn run(mut self) {
        let mut resting = false;
        loop {
            let mut due = Vec::new();
            tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(order) => due.push(self.obey(order)),
                    None => return,
                },
                () = tokio::time::sleep(REST), if resting => {
                    resting = false;
                    continue;
                }
                Some(call) = self.calls.recv(), if !resting => due.push(self.hear(call)),
            }
            self.fill(&mut due, resting);
            resting |= due.iter().any(|due| matches!(due, Due::Delivery(..)));
            let writes = due.iter().any(|due| !matches!(due, Due::Nothing));
            let synced = if writes { self.ledger.sync().map_err(|error| chain(&error)) } else { Ok(()) };
            for due in due {
                self.answer(due, &synced);
            }
        }
    }

    /// Takes along what waits already.
    fn fill(&mut self, due: &mut Vec<Due>, resting: bool) {
        while due.len() < BATCH_MAX {
            if let Ok(order) = self.orders.try_recv() {
                due.push(self.obey(order));
                continue;
            }
            match if resting { None } else { self.calls.try_recv().ok() } {
                Some(call) => due.push(self.hear(call)),
                None => break,
            }
        }
    }

    fn obey(&mut self, order: Order) -> Due {
        match order {
            Order::Admit { key, input, answer } => {
                Due::Admission(self.ledger.admit(Some(key), &input), answer)
            }
            Order::Settle { key, outcome, note, answer } => {
                Due::Settlement(self.ledger.settle(&key, outcome, &note), answer)
            }
        }
    }

    fn hear(&mut self, call: Call) -> Due {
        match call {
            Call::Status { status, answer } => {
                let _ = answer.send(status.with(self.ledger.book()));
                Due::Nothing
            }
            Call::Deliver { answer, .. } if *self.ending.borrow() => {
                let _ = answer.send(Err(DeskError::Ending));
                Due::Nothing
            }
            Call::Deliver { key, input, answer } => {
                let admitted = self.ledger.admit(key, &input);
                let key = admitted.as_ref().map(|admitted| admitted.key.clone());
                let key = key.unwrap_or_else(|_| Key::own("unrecorded"));
                Due::Delivery(Arrival { key, input }, admitted, answer)
            }
        }
    }

    /// Tells what became of an entry. An input that is new goes to the loop first.
    fn answer(&self, due: Due, synced: &Result<(), String>) {
        match due {
            Due::Nothing => {}
            Due::Settlement(recorded, answer) => {
                let recorded = recorded.map_err(|error| chain(&error)).and(synced.clone());
                let _ = answer.send(recorded);
            }
            Due::Admission(admitted, answer) => {
                let admitted = admitted.map_err(|error| chain(&error));
                let _ = answer.send(synced.clone().and(admitted.map(|admitted| admitted.admission)));
            }
            Due::Delivery(arrival, admitted, answer) => {
                let delivered = self.settle_delivery(arrival, admitted, synced);
                // The client may have gone away: the input stands all the same.
                let _ = answer.send(delivered);
            }
        }
    }

    fn settle_delivery(
        &self,
        arrival: Arrival,
        admitted: Result<Admitted, LedgerError>,
        synced: &Result<(), String>,
    ) -> Result<Delivered, DeskError> {
        let why = match (admitted, synced) {
            (Err(LedgerError::Refused(refusal)), _) => return Err(refusal.into()),
            (Ok(Admitted { key, admission: Admission::Again(outcome) }), _) => {
                let admission = Admission::Again(outcome);
                return Ok(Delivered { key, admission, unrecorded: false });
            }
            (Ok(Admitted { key, admission }), Ok(())) => {
                let _ = self.arrivals.send(arrival);
                return Ok(Delivered { key, admission, unrecorded: false });
            }
            (Ok(_), Err(why)) => why.clone(),
            (Err(error), _) => chain(&error),
        };
        if !arrival.input.ends_the_run() {
            return Err(DeskError::Unrecorded(why));
        }
        let key = arrival.key.clone();
        let _ = self.arrivals.send(arrival);
        Ok(Delivered { key, admission: Admission::New, unrecorded: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock::Clock;

    fn key(text: &str) -> Option<Key> {
        Some(Key::chosen(text).unwrap())
    }

    fn desk(dir: &std::path::Path) -> (Ends, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
        let ledger = Ledger::open(&dir.join("admissions.jsonl"), Clock::start()).unwrap();
        let (end, ending) = watch::channel(false);
        let (desk, ends) = Desk::new(ledger, ending);
        (ends, end, tokio::spawn(desk.run()))
    }

    #[tokio::test]
    async fn a_delivery_is_on_the_disk_before_it_arrives_and_arrives_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut ends, end, _running) = desk(dir.path());
        let steer = || Input::Steer { text: "x".into() };
        let first = ends.counter.deliver(key("a"), steer()).await.unwrap();
        assert_eq!((first.admission, first.unrecorded), (Admission::New, false));
        assert_eq!(ends.arrivals.try_recv().unwrap().input, steer());
        let again = ends.counter.deliver(key("a"), steer()).await.unwrap();
        assert_eq!(again.admission, Admission::Again(None));
        let conflict = ends.counter.deliver(key("a"), Input::Pause).await;
        assert_eq!(conflict, Err(DeskError::Refused(Refusal::Conflict)));
        ends.office.settle(first.key, Settlement::Applied, String::new()).await.unwrap();
        let settled = ends.counter.deliver(key("a"), steer()).await.unwrap();
        assert_eq!(settled.admission, Admission::Again(Some(Settlement::Applied)));
        assert!(ends.arrivals.try_recv().is_err(), "redelivered inputs arrive no second time");
        end.send(true).unwrap();
        assert_eq!(ends.counter.deliver(None, Input::Pause).await, Err(DeskError::Ending));
    }

    #[tokio::test]
    async fn without_a_record_only_an_end_takes_effect() {
        let dir = tempfile::tempdir().unwrap();
        let (mut ends, _end, _running) = desk(dir.path());
        std::fs::remove_file(dir.path().join("admissions.jsonl")).unwrap();
        let refused = ends.counter.deliver(None, Input::Pause).await;
        assert!(matches!(refused, Err(DeskError::Unrecorded(_))), "{refused:?}");
        assert!(ends.arrivals.try_recv().is_err());
        for input in [Input::Stop, Input::Abort] {
            let stopped = ends.counter.deliver(None, input.clone()).await.unwrap();
            assert!(stopped.unrecorded);
            assert_eq!(ends.arrivals.try_recv().unwrap().input, input);
        }
    }
}

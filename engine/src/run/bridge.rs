//! Turns the control server, the ledger and `STEER.md` into inputs for the loop, and its settlements into records (§7.1).
//! It refuses to know what an input does.

use std::collections::VecDeque;

use super::steer_file::SteerFile;
use crate::admission::{Admission, Input, Key, Owed, Settlement};
use crate::control::{Arrival, Control};
use crate::log::SessionEvent;

/// The run's side of everything that operators say.
#[derive(Debug)]
pub struct Bridge {
    control: Control,
    steer: SteerFile,
    /// What arrived before the loop began.
    early: VecDeque<Arrival>,
}

impl Bridge {
    /// A bridge over a control server that is up.
    #[must_use]
    pub fn new(control: Control, steer: SteerFile) -> Bridge {
        Bridge { control, steer, early: VecDeque::new() }
    }

    /// Takes up what a process before this one left unsettled, and settles what a resume closes. The texts are why a
    /// settlement is in no record.
    pub async fn take_up(&mut self, owed: Owed) -> Vec<String> {
        let mut failed = Vec::new();
        for (key, outcome, note) in owed.closed {
            failed.extend(self.settle(key, outcome, note).await.err());
        }
        self.early.extend(owed.again.into_iter().map(|(key, input)| Arrival { key, input }));
        failed
    }

    /// The next input. Safe to cancel.
    pub async fn next(&mut self) -> Arrival {
        if let Some(early) = self.early.pop_front() {
            return early;
        }
        match self.control.next().await {
            Some(arrival) => arrival,
            // The server ends with the bridge only; without it nothing arrives any more.
            None => std::future::pending().await,
        }
    }

    /// Waits for an operator who ends the run before its loop begins; what else arrives waits for the loop.
    pub async fn end(&mut self) -> Arrival {
        loop {
            if let Some(at) = self.early.iter().position(|early| early.input.ends_the_run())
                && let Some(end) = self.early.remove(at)
            {
                return end;
            }
            match self.control.next().await {
                Some(arrival) => self.early.push_back(arrival),
                None => std::future::pending().await,
            }
        }
    }

    /// Everything that has arrived by now, `STEER.md` included. The texts are remarks for the log.
    pub async fn drain(&mut self) -> (Vec<Arrival>, Vec<String>) {
        let mut arrived: Vec<Arrival> = self.early.drain(..).collect();
        while let Some(arrival) = self.control.arrived() {
            arrived.push(arrival);
        }
        match self.steer.look() {
            Ok(None) => (arrived, Vec::new()),
            Err(remark) => (arrived, vec![remark]),
            Ok(Some((key, text))) => {
                let input = Input::Steer { text };
                match self.control.office().admit(key.clone(), input.clone()).await {
                    Ok(admission) => {
                        self.steer.done();
                        if admission == Admission::New {
                            arrived.push(Arrival { key, input });
                        }
                        (arrived, Vec::new())
                    }
                    Err(why) => (arrived, vec![format!("the steer file stays as it is: failed to {why}")]),
                }
            }
        }
    }

    /// Records how an input came to its end.
    ///
    /// # Errors
    /// Why it is in no record.
    pub async fn settle(&self, key: Key, outcome: Settlement, note: String) -> Result<(), String> {
        let name = key.to_string();
        let settled = self.control.office().settle(key, outcome, note).await;
        settled.map_err(|why| format!("that {name:?} is settled is not recorded: failed to {why}"))
    }

    /// Records a grant, and settles the approval that it follows from. The grant is an input like any other then.
    ///
    /// # Errors
    /// Why a settlement is in no record.
    pub async fn grant(&self, by: Key, grant: Arrival) -> Result<Option<Arrival>, String> {
        let admitted = self.control.office().admit(grant.key.clone(), grant.input.clone()).await;
        match admitted {
            Ok(admission) => {
                self.settle(by, Settlement::Applied, String::new()).await?;
                Ok((admission == Admission::New).then_some(grant))
            }
            Err(why) => {
                let note = format!("the grant could not be recorded: failed to {why}");
                self.settle(by, Settlement::Rejected, note).await?;
                Ok(None)
            }
        }
    }

    /// Tells clients of a line that was written.
    pub fn tell(&self, seq: u64, event: &SessionEvent) {
        self.control.tell(seq, event);
    }

    /// The run takes no more inputs.
    pub fn refuse(&self) {
        self.control.refuse();
    }
}

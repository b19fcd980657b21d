//! Makes the calls that the [machine](super::machine) of a lease decides on.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::boot::boot_nanos;
use super::calls::{LeaseReply, read_lease, write_lease};
use super::machine::{LeaseAnswer, LeaseCall, LeaseLoss, LeaseMachine, LeaseWrite};
use super::record::{found, since, written};
use super::timing::LeaseTiming;
use crate::sync::Mutex;
use crate::{Client, ClientError, ObjectKey, SharedObject};
use homeostat::base::Clock;
use homeostat::manager::Holder;
use homeostat::rt::{Chain, Draws, Nanos};

/// The state that all candidates of an elector share.
pub(super) struct LeaseShared {
    pub(super) client: Arc<dyn Client>,
    pub(super) key: ObjectKey,
    /// The name of this process. An identity is this name plus a random number.
    pub(super) name: String,
    pub(super) timing: LeaseTiming,
    /// The last known leader.
    pub(super) leader: Mutex<Option<Holder>>,
}

/// A candidate or a term: the machine, and everything that its calls need.
pub(super) struct LeaseSession {
    shared: Arc<LeaseShared>,
    /// The name in log lines.
    pub(super) elector: String,
    pub(super) machine: LeaseMachine,
    pub(super) clock: Clock,
    draws: Draws,
    /// The lease as it was last read or written.
    last: Option<Value>,
    /// The calls that failed at their last attempt.
    failing: FailingCalls,
}

#[derive(Default)]
struct FailingCalls {
    reads: bool,
    writes: bool,
}

/// Why a session pauses.
pub(super) enum LeasePause {
    Leading,
    For(Duration),
    Ended(LeaseLoss),
}

impl LeaseSession {
    pub(super) fn new(shared: &Arc<LeaseShared>, clock: &Clock) -> Self {
        let mut draws = clock.draws();
        let me = format!("{}_{:016x}", shared.name, draws.draw());
        Self {
            elector: shared.key.to_string(),
            machine: LeaseMachine::new(me, shared.timing),
            shared: Arc::clone(shared),
            clock: clock.clone(),
            draws,
            last: None,
            failing: FailingCalls::default(),
        }
    }

    /// Makes calls until the machine wants to wait, or `stops` returns true after a call.
    pub(super) fn advance(&mut self, stops: impl Fn(&LeaseMachine) -> bool) -> LeasePause {
        loop {
            let now = boot_nanos(&self.clock);
            let answer = match self.machine.next(now) {
                LeaseCall::Wait(at) => return LeasePause::For(at.since(now)),
                LeaseCall::Ended(loss) => return LeasePause::Ended(loss),
                LeaseCall::Read => self.read(),
                LeaseCall::Write(write) => self.write(&write),
            };
            let draw = self.draws.draw();
            // Counted from `now`, a time before the call was sent.
            self.machine.answered(now, boot_nanos(&self.clock), answer, draw);
            if stops(&self.machine) {
                return LeasePause::Leading;
            }
        }
    }

    fn read(&mut self) -> LeaseAnswer {
        let reply = read_lease(&*self.shared.client, &self.shared.key);
        let known = self.last.as_ref().map(|last| last["metadata"]["uid"].clone());
        let answer = self.note(false, reply);
        match &answer {
            LeaseAnswer::Missing => *self.shared.leader.lock() = None,
            // The lease of this term was deleted, although another one with this name exists now.
            LeaseAnswer::Found(_) if self.term().is_some() => {
                let is_another =
                    known.is_some() && known.as_ref() != self.last.as_ref().map(|last| &last["metadata"]["uid"]);
                return if is_another { LeaseAnswer::Missing } else { answer };
            }
            _ => {}
        }
        answer
    }

    fn write(&mut self, write: &LeaseWrite) -> LeaseAnswer {
        let lease = written(write, &self.shared.key, self.last.as_ref(), self.clock.time_of_day());
        let reply = write_lease(&*self.shared.client, lease);
        self.note(true, reply)
    }

    /// Records whether a call has failed, and keeps the lease that came with its answer.
    fn note(&mut self, is_write: bool, reply: LeaseReply) -> LeaseAnswer {
        self.log_change(is_write, reply.as_ref().err());
        let Ok((answer, lease)) = reply else { return LeaseAnswer::Failed };
        if let Some(lease) = lease {
            self.keep(&lease);
        }
        answer
    }

    fn keep(&mut self, lease: &SharedObject) {
        let holder = found(lease).spec.holder;
        let leader = (!holder.is_empty()).then(|| Holder { name: Some(holder), pid: None, since: since(lease) });
        let before = std::mem::replace(&mut *self.shared.leader.lock(), leader.clone());
        self.last = Some(lease.to_value());
        let elector = self.elector.as_str();
        let name = |holder: &Option<Holder>| holder.as_ref().and_then(|holder| holder.name.clone());
        if let Some(leader) = leader.filter(|leader| name(&before) != leader.name) {
            log::info!(elector; "{elector}: the leader is {leader}");
        }
    }

    /// Logs the first failure of a series, and its end. A successful read says nothing about writes.
    fn log_change(&mut self, is_write: bool, error: Option<&ClientError>) {
        let FailingCalls { reads, writes } = &mut self.failing;
        let (flag, verb) = if is_write { (writes, "written") } else { (reads, "read") };
        let before = std::mem::replace(flag, error.is_some());
        let elector = self.elector.as_str();
        if let Some(error) = error {
            let level = if before { log::Level::Debug } else { log::Level::Warn };
            let shown = Chain(error);
            let hint = if is_write && error.is_not_found() { ": does its namespace exist?" } else { "" };
            log::log!(level, elector, error:% = shown; "{elector}: the lease cannot be {verb}: {shown}{hint}");
        } else if before {
            log::info!(elector; "{elector}: the lease can be {verb} again");
        }
    }

    /// Returns the number of the current term and the time at which its work must end.
    pub(super) fn term(&self) -> Option<(u64, Nanos)> {
        self.machine.term()
    }
}

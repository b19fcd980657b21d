//! Threads that wait for a key to be idle, and the runs that they are told about.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::failed_keys::bounded;
use crate::base::clock::{Clock, Wake};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::thread::shielded;
use crate::base::time::Nanos;
use crate::base::wait::{WaiterCounts, Waiters};
use crate::queue::{FastState, Key};
use crate::run::error::Chain;
use crate::run::runner::RunResult;

/// The result of a key's run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunOutcome {
    /// The run succeeded and asked for no other run.
    Succeeded,
    /// The run asked for another run after this time.
    Requeued(Duration),
    /// The run failed and is not retried. Holds the error with its sources, at most 1,024 bytes (see [`FailedKey::error`]).
    ///
    /// [`FailedKey::error`]: super::FailedKey::error
    Failed(String),
}

/// The reason why a wait ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The time ran out before the key was idle or the initial listings were in.
    Timeout,
    /// The controller was stopped.
    Stopped,
    /// The controller failed. [`ControllerHandle::failure`](super::ControllerHandle::failure) returns the error.
    Failed,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "the time was over before the key was idle or the initial listings were in",
            Self::Stopped => "the controller has been stopped",
            Self::Failed => "the controller has failed",
        })
    }
}

impl Error for WaitError {}

/// The threads that wait for keys of one controller.
pub(super) struct KeyWaiters<K> {
    clock: Clock,
    waits: Mutex<Waits<K>>,
    /// The number of waiting threads. While it is zero, runs take no lock here.
    waiting: AtomicUsize,
    settled: Waiters,
}

struct Waits<K> {
    keys: HashMap<K, AwaitedKey, FastState>,
    waiters: WaiterCounts,
    /// Keys are being dropped, so an idle key proves nothing any more.
    frozen: bool,
    /// Set once nothing will change any more.
    closed: Option<WaitError>,
}

/// A key with waiting threads, and its runs since the first of them arrived.
#[derive(Debug, Default)]
struct AwaitedKey {
    waiting: usize,
    /// The number of runs that have begun.
    begun: u64,
    /// The number and the outcome of the last run that ended; number 0 if that run began before the first wait.
    ended: Option<(u64, RunOutcome)>,
}

impl<K: Key> KeyWaiters<K> {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        let waits = Waits { keys: HashMap::default(), waiters: WaiterCounts::default(), frozen: false, closed: None };
        Arc::new(Self { clock, waits: Mutex::new(waits), waiting: AtomicUsize::new(0), settled: Waiters::new() })
    }

    /// Counts a run that begins.
    #[inline]
    pub(super) fn begin(&self, key: &K) {
        if self.waiting.load(SeqCst) > 0
            && let Some(awaited) = self.waits.lock().keys.get_mut(key)
        {
            awaited.begun += 1;
        }
    }

    /// Keeps the outcome of a run whose claim has not ended yet.
    pub(super) fn note(&self, key: &K, outcome: &RunResult<'_>) {
        if self.waiting.load(SeqCst) > 0
            && let Some(awaited) = self.waits.lock().keys.get_mut(key)
        {
            let outcome = match outcome {
                RunResult::Succeeded => RunOutcome::Succeeded,
                RunResult::Requeued(after) => RunOutcome::Requeued(*after),
                RunResult::Failed(failed) => RunOutcome::Failed(bounded(Chain(failed.error).to_string())),
                RunResult::Aborted => return,
            };
            awaited.ended = Some((awaited.begun, outcome));
        }
    }

    /// Wakes all waiting threads to check their conditions, after a claim has ended or a source has handed keys over.
    #[inline]
    pub(super) fn settle(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        let count = self.waits.lock().waiters.mark_woken(usize::MAX, &self.clock);
        self.settled.notify(count);
    }

    /// Lets no wait succeed before [`close`](Self::close). Called before keys are dropped, so that a dropped key does not
    /// count as idle.
    pub(super) fn freeze(&self) {
        self.waits.lock().frozen = true;
    }

    /// Ends all waits, now and later, with `why`. The first call counts.
    pub(super) fn close(&self, why: WaitError) {
        self.waits.lock().closed.get_or_insert(why);
        self.wake_all();
    }

    /// Starts a wait for `key`. Runs of the key are counted from now on.
    pub(super) fn start<'a>(self: &'a Arc<Self>, key: &K) -> KeyWait<'a, K> {
        KeyWait::new(self, key.clone())
    }

    /// Blocks until `holds` returns true. It is called under a lock. [`settle`](Self::settle) wakes it, and so does the end
    /// of the controller.
    pub(super) fn wait_until(self: &Arc<Self>, deadline: Nanos, holds: impl Fn() -> bool) -> Result<(), WaitError> {
        // Before the first look: from here on `settle` wakes this thread.
        self.waiting.fetch_add(1, SeqCst);
        let held = self.look_until(deadline, |_| holds().then_some(()));
        self.waiting.fetch_sub(1, SeqCst);
        held
    }

    fn look_until<T>(self: &Arc<Self>, deadline: Nanos, look: impl Fn(&Waits<K>) -> Option<T>) -> Result<T, WaitError> {
        let mut waits = self.waits.lock();
        loop {
            if (!waits.frozen || waits.closed.is_some())
                && let Some(found) = look(&waits)
            {
                return Ok(found);
            }
            if let Some(why) = waits.closed {
                return Err(why);
            }
            if self.clock.reached(deadline) {
                return Err(WaitError::Timeout);
            }
            let waker = || Arc::clone(self) as Arc<dyn Wake>;
            self.settled.wait(&mut waits, |waits| &mut waits.waiters, &self.clock, deadline, waker);
        }
    }
}

impl<K: Key> Wake for KeyWaiters<K> {
    fn wake(&self) {
        self.wake_all();
    }
}

/// One thread's wait for a key.
pub(super) struct KeyWait<'a, K: Key> {
    waiters: &'a Arc<KeyWaiters<K>>,
    key: K,
    /// The number of runs that had begun when the wait started.
    before: u64,
}

impl<'a, K: Key> KeyWait<'a, K> {
    fn new(waiters: &'a Arc<KeyWaiters<K>>, key: K) -> Self {
        let own = key.clone();
        let before = {
            let mut waits = waiters.waits.lock();
            let awaited = waits.keys.entry(own).or_default();
            awaited.waiting += 1;
            awaited.begun
        };
        // Before the first look: from here on runs are counted and `settle` wakes this thread.
        waiters.waiting.fetch_add(1, SeqCst);
        Self { waiters, key, before }
    }

    /// Blocks until `is_idle` returns true. It is called under a lock. The end of a claim wakes it, and so does the end of the
    /// controller. Returns the outcome of the last run that began after the wait started.
    pub(super) fn wait(self, deadline: Nanos, is_idle: impl Fn() -> bool) -> Result<Option<RunOutcome>, WaitError> {
        self.waiters.look_until(deadline, |waits| {
            if !is_idle() {
                return None;
            }
            let ended = waits.keys.get(&self.key).and_then(|awaited| awaited.ended.clone());
            let outcome = ended.filter(|(number, _)| *number > self.before).map(|(_, outcome)| outcome);
            // A controller that has ended may have dropped the run of an idle key.
            (outcome.is_some() || waits.closed.is_none()).then_some(outcome)
        })
    }

    fn leave(&self) {
        let mut waits = self.waiters.waits.lock();
        let gone = match waits.keys.get_mut(&self.key) {
            Some(awaited) if awaited.waiting > 1 => {
                awaited.waiting -= 1;
                None
            }
            _ => waits.keys.remove_entry(&self.key),
        };
        drop(waits);
        drop(gone);
    }
}

impl<K: Key> Drop for KeyWait<'_, K> {
    fn drop(&mut self) {
        // Looks the key up, perhaps while a panic of the key's own code unwinds.
        shielded("the end of a wait for a key", || self.leave());
        self.waiters.waiting.fetch_sub(1, SeqCst);
    }
}

//! Threads that wait for idle keys, and the run outcomes that they receive.
//!
//! # Invariants
//!
//! - A wait covers only runs that began after the call. Runs are counted while a thread waits.
//! - A wait looks at its key only once every source has handed over the keys that it had accepted at the call.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::failed_keys::bounded;
use crate::base::clock::Clock;
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::thread::shielded;
use crate::base::time::Nanos;
use crate::base::wait::Monitor;
use crate::queue::{FastState, Key};
use crate::run::error::Chain;
use crate::run::runner::RunResult;

/// The result of a key's run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunOutcome {
    /// The run succeeded and requested no other run.
    Succeeded,
    /// The run requested another run after this time.
    Requeued(Duration),
    /// The run failed and is not retried. Holds the error with its sources, at most 1,024 bytes (see [`FailedKey::error`]).
    ///
    /// [`FailedKey::error`]: super::FailedKey::error
    Failed(String),
}

/// The reason why a wait failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The time ran out before the key was idle or the initial listings were complete.
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
    waits: Arc<Monitor<Waits<K>>>,
    /// The number of waiting threads. While it is zero, runs take no lock here.
    waiting: AtomicUsize,
}

struct Waits<K> {
    keys: HashMap<K, AwaitedKey, FastState>,
    /// Keys are being dropped: from now on an idle key proves nothing.
    frozen: bool,
    /// Set once nothing can change any more.
    closed: Option<WaitError>,
}

/// A key with waiting threads, and its runs since the first wait.
#[derive(Debug, Default)]
struct AwaitedKey {
    waiting: usize,
    /// The number of runs that have begun.
    begun: u64,
    /// The number and outcome of the last ended run. Number 0 if it began before the first wait.
    ended: Option<(u64, RunOutcome)>,
}

impl<K: Key> KeyWaiters<K> {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        let waits = Waits { keys: HashMap::default(), frozen: false, closed: None };
        Arc::new(Self { waits: Monitor::of(clock, waits), waiting: AtomicUsize::new(0) })
    }

    /// Counts a run that begins.
    #[inline]
    pub(super) fn begin(&self, key: &K) {
        self.count(key, |awaited| awaited.begun += 1);
    }

    /// Records the outcome of a run, before its claim ends.
    pub(super) fn note(&self, key: &K, outcome: &RunResult<'_>) {
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        // The error shows itself outside the lock.
        let outcome = match outcome {
            RunResult::Succeeded => RunOutcome::Succeeded,
            RunResult::Requeued(after) => RunOutcome::Requeued(*after),
            RunResult::Failed(failed) => RunOutcome::Failed(bounded(Chain(failed.error).to_string())),
            RunResult::Aborted => return,
        };
        self.count(key, |awaited| awaited.ended = Some((awaited.begun, outcome)));
    }

    /// Changes the record of a key with waiting threads.
    #[inline]
    fn count(&self, key: &K, change: impl FnOnce(&mut AwaitedKey)) {
        if self.waiting.load(SeqCst) > 0 {
            self.waits.with(|waits| waits.keys.get_mut(key).map(change));
        }
    }

    /// Wakes all waiting threads after a claim has ended or a source has delivered keys. They check their conditions again.
    #[inline]
    pub(super) fn settle(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.waits.change(|_| ());
        }
    }

    /// Prevents success of all waits until [`close`](Self::close). Called before keys are dropped, so that a dropped key does not
    /// count as idle.
    pub(super) fn freeze(&self) {
        self.waits.with(|waits| waits.frozen = true);
    }

    /// Ends all current and later waits with `why`. The first call decides.
    pub(super) fn close(&self, why: WaitError) {
        self.waits.change(|waits| *waits.closed.get_or_insert(why));
    }

    /// Starts a wait for `key`. Runs of the key are counted from now on.
    pub(super) fn start<'a>(self: &'a Arc<Self>, key: &K) -> KeyWait<'a, K> {
        KeyWait::new(self, key.clone())
    }

    /// Blocks until `holds` returns true. Calls it under a lock. [`settle`](Self::settle) and the end of the controller wake
    /// this.
    pub(super) fn wait_until(self: &Arc<Self>, deadline: Nanos, holds: impl Fn() -> bool) -> Result<(), WaitError> {
        // Before the first check: from here on `settle` wakes this thread.
        self.waiting.fetch_add(1, SeqCst);
        let held = self.look_until(deadline, |_| holds().then_some(()));
        self.waiting.fetch_sub(1, SeqCst);
        held
    }

    fn look_until<T>(self: &Arc<Self>, deadline: Nanos, look: impl Fn(&Waits<K>) -> Option<T>) -> Result<T, WaitError> {
        let found = self.waits.wait_for_some(deadline, |waits| {
            let found = if waits.frozen && waits.closed.is_none() { None } else { look(waits) };
            found.map(Ok).or_else(|| waits.closed.map(Err))
        });
        found.unwrap_or(Err(WaitError::Timeout))
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
        let before = waiters.waits.with(|waits| {
            let awaited = waits.keys.entry(own).or_default();
            awaited.waiting += 1;
            awaited.begun
        });
        // Before the first check: from here on runs are counted and `settle` wakes this thread.
        waiters.waiting.fetch_add(1, SeqCst);
        Self { waiters, key, before }
    }

    /// Blocks until `is_idle` returns true. Calls it under a lock. The end of a claim and the end of the controller wake this.
    /// Returns the outcome of the last run that began after the wait started.
    pub(super) fn wait(self, deadline: Nanos, is_idle: impl Fn() -> bool) -> Result<Option<RunOutcome>, WaitError> {
        self.waiters.look_until(deadline, |waits| {
            if !is_idle() {
                return None;
            }
            let ended = waits.keys.get(&self.key).and_then(|awaited| awaited.ended.clone());
            let outcome = ended.filter(|(number, _)| *number > self.before).map(|(_, outcome)| outcome);
            // An ended controller may have dropped the run of an idle key.
            (outcome.is_some() || waits.closed.is_none()).then_some(outcome)
        })
    }

    fn leave(&self) {
        // The removed key drops outside the lock.
        self.waiters.waits.with(|waits| match waits.keys.get_mut(&self.key) {
            Some(awaited) if awaited.waiting > 1 => {
                awaited.waiting -= 1;
                None
            }
            _ => waits.keys.remove_entry(&self.key),
        });
    }
}

impl<K: Key> Drop for KeyWait<'_, K> {
    fn drop(&mut self) {
        // The lookup may run user code, during the unwinding of a panic in the key's own code.
        shielded("the end of a wait for a key", || self.leave());
        self.waiters.waiting.fetch_sub(1, SeqCst);
    }
}

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

use super::observers::RunOutcome;
use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::base::thread::shielded;
use crate::base::time::Nanos;
use crate::base::wait::Monitor;
use crate::queue::{FastState, Key};
use crate::run::outcome::RunResult;

/// The reason why a wait failed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The time ran out before the key was idle. The initial listings are complete.
    Timeout,
    /// The time ran out before the initial listings of all sources were complete.
    NotSynced,
    /// The time ran out, and the controller has not been started.
    NotStarted,
    /// The controller was stopped, or its [`Running`](crate::Running) was dropped.
    Stopped,
    /// The controller failed. [`ControllerHandle::failure`](super::ControllerHandle::failure) returns the error.
    Failed,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "timed out before the key became idle",
            Self::NotSynced => "timed out before the first listings completed; a push watch needs a call of `synced`",
            Self::NotStarted => {
                "the controller has not been started: call its `start`, or add it to a manager and start the manager"
            }
            Self::Stopped => "the controller has been stopped (or its `Running` was dropped)",
            Self::Failed => "the controller has failed",
        })
    }
}

impl Error for WaitError {}

crate::base::chain::debug_with_causes!(WaitError);

/// The threads that wait for keys of one controller.
pub(super) struct KeyWaiters<K> {
    clock: Clock,
    waits: Mutex<Waits<K>>,
    /// The number of waiting threads. While it is zero, runs take no lock here.
    waiting: AtomicUsize,
}

/// The number of changes that may end the waits of some threads. They sleep until it rises.
type Changes = Monitor<u64>;

struct Waits<K> {
    keys: HashMap<K, AwaitedKey, FastState>,
    /// The changes for threads that wait for all sources instead of a key.
    changes: Arc<Changes>,
    /// Whether keys are being dropped. From then on, an idle key proves nothing.
    frozen: bool,
    /// Set once nothing can change.
    closed: Option<WaitError>,
}

/// A key with waiting threads, and its runs since the first wait.
struct AwaitedKey {
    changes: Arc<Changes>,
    waiting: usize,
    /// The number of runs that have begun.
    begun: u64,
    /// The number and outcome of the last ended run. Number 0 if it began before the first wait.
    ended: Option<(u64, RunOutcome)>,
}

impl<K: Key> KeyWaiters<K> {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        let changes = Monitor::of(clock.clone(), 0);
        let waits = Mutex::new(Waits { keys: HashMap::default(), changes, frozen: false, closed: None });
        Arc::new(Self { clock, waits, waiting: AtomicUsize::new(0) })
    }

    /// Counts a run that begins.
    #[inline]
    pub(super) fn begin(&self, key: &K) {
        self.count(key, |awaited| awaited.begun += 1);
    }

    /// Records the outcome of a run, before its claim ends.
    pub(super) fn note(&self, key: &K, outcome: &RunResult<'_>) {
        if self.waiting.load(SeqCst) == 0 || matches!(outcome, RunResult::Aborted) {
            return;
        }
        // The error is formatted outside the lock.
        let outcome = RunOutcome::of(outcome);
        self.count(key, |awaited| awaited.ended = Some((awaited.begun, outcome)));
    }

    /// Changes the record of a key with waiting threads.
    #[inline]
    fn count(&self, key: &K, change: impl FnOnce(&mut AwaitedKey)) {
        if self.waiting.load(SeqCst) > 0 {
            self.waits.lock().keys.get_mut(key).map(change);
        }
    }

    /// Clones the key of a claim before the claim ends, for [`settle`](Self::settle). Returns `None` if no thread
    /// waits.
    #[inline]
    pub(super) fn awaited(&self, key: &K) -> Option<K> {
        if self.waiting.load(SeqCst) > 0 { Some(key.clone()) } else { None }
    }

    /// Wakes the threads that wait for the key `ended`, after its claim has ended. They check their conditions again.
    /// Without a key, wakes all threads, for example after a source has delivered keys.
    #[inline]
    pub(super) fn settle(&self, ended: Option<&K>) {
        if self.waiting.load(SeqCst) > 0 {
            self.wake(ended);
        }
    }

    #[cold]
    fn wake(&self, ended: Option<&K>) {
        let woken: Vec<_> = {
            let waits = self.waits.lock();
            if let Some(key) = ended {
                waits.keys.get(key).map(|awaited| Arc::clone(&awaited.changes)).into_iter().collect()
            } else {
                let keys = waits.keys.values().map(|awaited| &awaited.changes);
                keys.chain([&waits.changes]).cloned().collect()
            }
        };
        for changes in woken {
            changes.change(|count| *count += 1);
        }
    }

    /// Prevents success of all waits until [`close`](Self::close). Called before keys are dropped, so that a dropped
    /// key does not count as idle.
    pub(super) fn freeze(&self) {
        self.waits.lock().frozen = true;
    }

    /// Ends all current and later waits with `why`. The first call decides.
    pub(super) fn close(&self, why: WaitError) {
        self.waits.lock().closed.get_or_insert(why);
        self.wake(None);
    }

    /// Starts a wait for `key`. Runs of the key are counted from now on.
    pub(super) fn start<'a>(self: &'a Arc<Self>, key: &K) -> KeyWait<'a, K> {
        // The key that is not needed drops without the lock.
        let (key, mut own, changes) = (key.clone(), Some(key.clone()), Monitor::of(self.clock.clone(), 0));
        let (before, changes) = {
            let mut waits = self.waits.lock();
            if !waits.keys.contains_key(&key)
                && let Some(own) = own.take()
            {
                waits.keys.insert(own, AwaitedKey { changes: Arc::clone(&changes), waiting: 0, begun: 0, ended: None });
            }
            waits.keys.get_mut(&key).map_or((0, changes), |awaited| {
                awaited.waiting += 1;
                (awaited.begun, Arc::clone(&awaited.changes))
            })
        };
        // Before the first check: from here on runs are counted and `settle` wakes this thread.
        self.waiting.fetch_add(1, SeqCst);
        KeyWait { waiters: self, key, changes, before }
    }

    /// Blocks until `holds` returns true. Calls it under a lock. [`settle`](Self::settle) and the end of the controller
    /// wake this.
    pub(super) fn wait_until(self: &Arc<Self>, deadline: Nanos, holds: impl Fn() -> bool) -> Result<(), WaitError> {
        // Before the first check: from here on `settle` wakes this thread.
        self.waiting.fetch_add(1, SeqCst);
        let changes = Arc::clone(&self.waits.lock().changes);
        let held = self.look_until(deadline, &changes, |_| holds().then_some(()));
        self.waiting.fetch_sub(1, SeqCst);
        held
    }

    /// Calls `look` under the lock until it returns a value: now, after each of `changes`, and at the deadline.
    fn look_until<T>(
        &self,
        deadline: Nanos,
        changes: &Arc<Changes>,
        look: impl Fn(&Waits<K>) -> Option<T>,
    ) -> Result<T, WaitError> {
        loop {
            // Read before the look: a later change ends the sleep.
            let seen = changes.with(|count| *count);
            let is_last = self.clock.reached(deadline);
            {
                let waits = self.waits.lock();
                let found = if waits.frozen && waits.closed.is_none() { None } else { look(&waits) };
                if let Some(result) = found.map(Ok).or_else(|| waits.closed.map(Err)) {
                    return result;
                }
            }
            if is_last {
                return Err(WaitError::Timeout);
            }
            changes.wait_for_some(deadline, |count| (*count != seen).then_some(()));
        }
    }
}

/// One thread's wait for a key.
pub(super) struct KeyWait<'a, K: Key> {
    waiters: &'a Arc<KeyWaiters<K>>,
    key: K,
    changes: Arc<Changes>,
    /// The number of runs that had begun when the wait started.
    before: u64,
}

impl<K: Key> KeyWait<'_, K> {
    /// Blocks until `is_idle` returns true. Calls it under a lock. The end of a claim and the end of the controller
    /// wake this. Returns the outcome of the last run that began after the wait started.
    pub(super) fn wait(self, deadline: Nanos, is_idle: impl Fn() -> bool) -> Result<Option<RunOutcome>, WaitError> {
        self.waiters.look_until(deadline, &self.changes, |waits| {
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
        let mut waits = self.waiters.waits.lock();
        let removed = match waits.keys.get_mut(&self.key) {
            Some(awaited) if awaited.waiting > 1 => {
                awaited.waiting -= 1;
                None
            }
            _ => waits.keys.remove_entry(&self.key),
        };
        drop(waits);
        drop(removed);
    }
}

impl<K: Key> Drop for KeyWait<'_, K> {
    fn drop(&mut self) {
        // The lookup may run user code, during the unwinding of a panic in the key's own code.
        shielded("the end of a wait for a key", || self.leave());
        self.waiters.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::thread;

    use super::*;
    use crate::base::clock::ManualClock;

    #[test]
    fn the_end_of_a_claim_wakes_only_the_threads_that_wait_for_its_key() {
        let clock = ManualClock::new();
        let waiters = KeyWaiters::new(clock.clock());
        thread::scope(|scope| {
            let waits = [1, 2].map(|key| {
                let wait = waiters.start(&key);
                let idle = Arc::new(AtomicUsize::new(0));
                let seen = Arc::clone(&idle);
                (idle, scope.spawn(move || wait.wait(Nanos::NEVER, || seen.load(SeqCst) == 1)))
            });
            clock.wait_for_sleepers(2);
            waiters.settle(Some(&3));
            assert_eq!(clock.sleepers(), 2);
            let [(first, one), (second, two)] = waits;
            first.store(1, SeqCst);
            waiters.settle(Some(&1));
            assert_eq!((one.join().unwrap(), clock.sleepers()), (Ok(None), 1));
            second.store(1, SeqCst);
            waiters.settle(None);
            assert_eq!((two.join().unwrap(), clock.sleepers()), (Ok(None), 0));
        });
    }

    /// A key that starts a wait when it drops.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Waits(u32);

    thread_local! {
        static WAITERS: RefCell<Option<Arc<KeyWaiters<Waits>>>> = const { RefCell::new(None) };
        static STARTED: Cell<u32> = const { Cell::new(0) };
    }

    impl Drop for Waits {
        fn drop(&mut self) {
            if let Some(waiters) = WAITERS.take() {
                drop(waiters.start(self));
                STARTED.set(STARTED.get() + 1);
                WAITERS.set(Some(waiters));
            }
        }
    }

    #[test]
    fn a_key_may_start_a_wait_when_it_drops() {
        let key = Waits(1);
        let waiters = KeyWaiters::new(Clock::system());
        WAITERS.set(Some(Arc::clone(&waiters)));
        let first = waiters.start(&key);
        let second = waiters.start(&key);
        drop(second);
        drop(first);
        WAITERS.take();
        assert!(STARTED.get() > 0);
        assert_eq!((waiters.waiting.load(SeqCst), waiters.waits.lock().keys.len()), (0, 0));
    }
}

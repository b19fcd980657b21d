//! What a controller remembers of its keys beside the queue: those in trouble, those suspended, and who waits for one.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::troubles::{FailedKey, Forgotten, Troubles, bounded};
use crate::base::clock::{Clock, Wake};
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::thread::shielded;
use crate::base::time::Nanos;
use crate::base::wait::{WaiterCounts, Waiters};
use crate::queue::{FastState, Key, Reasons};
use crate::run::error::Chain;
use crate::run::runner::{Failed, Next, Outcome};

/// A run that has failed, as a hook sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunFailure<'a, K> {
    /// The name of the controller.
    pub controller: &'a str,
    /// The key.
    pub key: &'a K,
    /// The error; [`Panicked`](crate::run::Panicked) if the reconciler panicked.
    pub error: &'a (dyn Error + 'static),
    /// How many runs in a row have failed, this one included.
    pub failures: u32,
    /// When it is tried again, from now; `None` if it is not.
    pub retry_after: Option<Duration>,
}

/// How a run of a key has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunOutcome {
    /// It succeeded and asked for nothing.
    Succeeded,
    /// It asked for another run this much later.
    Requeued(Duration),
    /// It failed, with this error and its sources (at most 1,024 bytes, as [`FailedKey::error`]), and is not tried again.
    Failed(String),
}

/// Why a wait has ended without what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The key was not idle, or the initial listings were not in, when the time was over.
    Timeout,
    /// The controller has been stopped.
    Stopped,
    /// The controller has stopped by itself. [`ControllerHandle::failure`](super::ControllerHandle::failure) says why.
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

/// How the log names the drop of a key that the book had.
const KEY: &str = "the drop of a key";

pub(super) type ErrorHook<K> = Box<dyn Fn(&RunFailure<'_, K>) + Send + Sync>;

pub(super) struct Book<K> {
    clock: Clock,
    on_error: Option<ErrorHook<K>>,
    /// The lock is for those who have something to look up; the counts say whether there is anything.
    troubles: Mutex<Troubles<K>>,
    troubled: AtomicUsize,
    /// With the reasons that have come meanwhile, if any have.
    suspended: Mutex<HashMap<K, Option<Reasons>, FastState>>,
    suspensions: AtomicUsize,
    waits: Mutex<Waits<K>>,
    waiting: AtomicUsize,
    settled: Waiters,
}

struct Waits<K> {
    /// Those that somebody waits for.
    keys: HashMap<K, Awaited, FastState>,
    sleepers: WaiterCounts,
    /// Keys are being dropped, so that a key is idle says nothing any more.
    frozen: bool,
    /// Why nothing will change any more.
    closed: Option<WaitError>,
}

/// A key that somebody waits for, and its runs since the first one who waits came.
#[derive(Debug, Default)]
struct Awaited {
    waiting: usize,
    /// How many have begun.
    begun: u64,
    /// The number of the last one that has ended, and how; 0 if it had begun before.
    ended: Option<(u64, RunOutcome)>,
}

impl<K: Key> Book<K> {
    pub(super) fn new(clock: Clock, on_error: Option<ErrorHook<K>>, max_failed_keys: usize) -> Arc<Self> {
        let waits = Waits { keys: HashMap::default(), sleepers: WaiterCounts::default(), frozen: false, closed: None };
        Arc::new(Self {
            clock,
            on_error,
            troubles: Mutex::new(Troubles::new(max_failed_keys)),
            troubled: AtomicUsize::new(0),
            suspended: Mutex::new(HashMap::default()),
            suspensions: AtomicUsize::new(0),
            waits: Mutex::new(waits),
            waiting: AtomicUsize::new(0),
            settled: Waiters::new(),
        })
    }

    /// A run begins.
    #[inline]
    pub(super) fn begin(&self, key: &K) {
        if self.waiting.load(SeqCst) > 0
            && let Some(awaited) = self.waits.lock().keys.get_mut(key)
        {
            awaited.begun += 1;
        }
    }

    /// A run has ended; its claim has not yet.
    pub(super) fn note(&self, controller: &str, key: &K, outcome: &Outcome<'_>) {
        match outcome {
            Outcome::Succeeded | Outcome::Requeued(_) if self.troubled.load(SeqCst) > 0 => self.forget(key),
            Outcome::Failed(failed) => self.remember(controller, key, failed),
            _ => {}
        }
        if self.waiting.load(SeqCst) > 0
            && let Some(awaited) = self.waits.lock().keys.get_mut(key)
        {
            let outcome = match outcome {
                Outcome::Succeeded => RunOutcome::Succeeded,
                Outcome::Requeued(after) => RunOutcome::Requeued(*after),
                Outcome::Failed(failed) => RunOutcome::Failed(bounded(Chain(failed.error).to_string())),
                Outcome::Aborted => return,
            };
            awaited.ended = Some((awaited.begun, outcome));
        }
    }

    fn forget(&self, key: &K) {
        let mut troubles = self.troubles.lock();
        let gone = troubles.remove(key);
        self.unlock(troubles, gone);
    }

    /// Counts the failed keys anew, and drops what is no longer known of them outside the lock.
    fn unlock(&self, troubles: MutexGuard<'_, Troubles<K>>, gone: Forgotten<K>) {
        self.troubled.store(troubles.len(), SeqCst);
        drop(troubles);
        let (key, gone) = gone;
        // Several keys: one must not panic while the panic of another one unwinds.
        shielded(KEY, || drop(key));
        for trouble in gone {
            shielded(KEY, || drop(trouble));
        }
    }

    fn remember(&self, controller: &str, key: &K, failed: &Failed<'_>) {
        let Failed { error, failures, next } = *failed;
        let trouble = FailedKey {
            key: key.clone(),
            error: bounded(Chain(error).to_string()),
            failures,
            since: self.clock.now(),
            parked: !matches!(next, Next::Retry(_)),
        };
        let mut troubles = self.troubles.lock();
        let gone = troubles.add(trouble);
        self.unlock(troubles, gone);
        if let Some(hook) = &self.on_error {
            let retry_after = if let Next::Retry(after) = next { Some(after) } else { None };
            let failure = RunFailure { controller, key, error, failures, retry_after };
            shielded("the error hook of a controller", || hook(&failure));
        }
    }

    /// The keys in trouble: those that are parked, or (false) those that will be tried again. In the order of their errors' times.
    pub(super) fn troubles(&self, parked: bool) -> Vec<FailedKey<K>> {
        let mut found = self.troubles.lock().list(parked);
        self.clock.arrange(&mut found, |trouble| &trouble.key);
        found.sort_by_key(|trouble| trouble.since);
        found
    }

    /// All keys in trouble, also those whose errors are not kept.
    pub(super) fn troubled_keys(&self) -> Vec<K> {
        let mut keys = self.troubles.lock().keys();
        self.clock.arrange(&mut keys, |key| key);
        keys
    }

    /// How many keys are parked, and how many will be tried again.
    pub(super) fn troubled(&self) -> (usize, usize) {
        self.troubles.lock().counts()
    }

    /// The scheduled run of a key has been cancelled. If `is_idle` says that nothing has wanted the key since, it is not tried
    /// again, nor run when it is resumed.
    pub(super) fn cancelled(&self, key: &K, is_idle: impl Fn() -> bool) {
        if self.troubled.load(SeqCst) > 0 {
            let mut troubles = self.troubles.lock();
            if troubles.is_parked(key) == Some(false) && is_idle() {
                let gone = troubles.remove(key);
                self.unlock(troubles, gone);
            }
        }
        if self.suspensions.load(SeqCst) > 0 {
            self.cancel_held(key, is_idle);
        }
        self.settle();
    }

    /// Cancels the run that a suspended key has been held back from, if `cancelled` says that nothing else wants the key. Returns
    /// what `cancelled` says.
    fn cancel_held(&self, key: &K, cancelled: impl FnOnce() -> bool) -> bool {
        // Under the lock: the key is held, or in line.
        let mut suspended = self.suspended.lock();
        let held = suspended.get_mut(key);
        let cancelled = cancelled();
        if let Some(held) = held.filter(|_| cancelled) {
            *held = None;
        }
        cancelled
    }

    /// Forgets that a key has failed, unless it will be tried again and `cancel` does not keep it from that. If `cancel` does, a
    /// suspended key does not run when it is resumed either. Returns whether the failure has been forgotten.
    pub(super) fn dismiss(&self, key: &K, cancel: impl FnOnce() -> bool) -> bool {
        let mut troubles = self.troubles.lock();
        // Under the lock: a run that fails is noted before its key waits for its backoff.
        let dismissed = match troubles.is_parked(key) {
            Some(true) => true,
            Some(false) => self.cancel_held(key, cancel),
            None => false,
        };
        let gone = if dismissed { troubles.remove(key) } else { Forgotten::default() };
        self.unlock(troubles, gone);
        self.settle();
        dismissed
    }

    /// No run of the key begins until it is resumed.
    pub(super) fn suspend(&self, key: K) {
        let mut suspended = self.suspended.lock();
        suspended.entry(key).or_default();
        self.suspensions.store(suspended.len(), SeqCst);
    }

    /// The key is not suspended any more. If it has been held it is wanted, for some reasons: `again` puts it in line.
    pub(super) fn resume(&self, key: &K, again: impl FnOnce(Reasons)) {
        let mut suspended = self.suspended.lock();
        let found = suspended.remove_entry(key);
        self.suspensions.store(suspended.len(), SeqCst);
        // Under the lock: the key is held, or in line.
        if let Some((_, Some(reasons))) = &found {
            again(*reasons);
        }
        drop(suspended);
        drop(found);
    }

    /// Whether a key is not suspended and wanted all the same, and `is_idle` says that it is. Nobody resumes it meanwhile.
    pub(super) fn is_idle(&self, key: &K, is_idle: impl FnOnce() -> bool) -> bool {
        let suspended = self.suspended.lock();
        !suspended.get(key).is_some_and(Option::is_some) && is_idle()
    }

    pub(super) fn suspended(&self) -> Vec<K> {
        let mut suspended: Vec<_> = self.suspended.lock().keys().cloned().collect();
        self.clock.arrange(&mut suspended, |key| key);
        suspended
    }

    /// Whether this key, which has been taken, is suspended. Its reasons are kept for when it is resumed.
    #[inline]
    pub(super) fn holds(&self, key: &K, reasons: Reasons) -> bool {
        if self.suspensions.load(SeqCst) == 0 {
            return false;
        }
        self.suspended.lock().get_mut(key).is_some_and(|held| {
            *held = Some(held.unwrap_or_default() | reasons);
            true
        })
    }

    /// A claim has ended, or something else that somebody may wait for: all who wait look again.
    #[inline]
    pub(super) fn settle(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.rouse();
        }
    }

    fn rouse(&self) {
        let count = self.waits.lock().sleepers.rouse(usize::MAX, &self.clock);
        self.settled.ring(count);
    }

    /// Nobody who waits is answered before the book is closed. Called before keys are dropped, so that none of them counts as
    /// idle.
    pub(super) fn freeze(&self) {
        self.waits.lock().frozen = true;
    }

    /// No key is taken any more, for the reason `why`; the first reason counts. All who wait are answered.
    pub(super) fn close(&self, why: WaitError) {
        self.waits.lock().closed.get_or_insert(why);
        self.rouse();
    }

    /// From now on each begin of a run of `key` is counted for whoever waits for it.
    pub(super) fn watch<'a>(self: &'a Arc<Self>, key: &K) -> Watching<'a, K> {
        Watching::new(self, key.clone())
    }

    /// Blocks until `holds`, which is called under a lock. Each call of [`settle`](Self::settle) wakes it, and the end of the
    /// controller.
    pub(super) fn wait_until(self: &Arc<Self>, deadline: Nanos, holds: impl Fn() -> bool) -> Result<(), WaitError> {
        // Before anything is looked at: from here on it is woken.
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
            self.settled.wait(&mut waits, |waits| &mut waits.sleepers, &self.clock, deadline, waker);
        }
    }
}

impl<K: Key> Wake for Book<K> {
    fn wake(&self) {
        self.rouse();
    }
}

/// Somebody waits for a key.
pub(super) struct Watching<'a, K: Key> {
    book: &'a Arc<Book<K>>,
    key: K,
    /// How many runs had begun.
    before: u64,
}

impl<'a, K: Key> Watching<'a, K> {
    fn new(book: &'a Arc<Book<K>>, key: K) -> Self {
        let own = key.clone();
        let before = {
            let mut waits = book.waits.lock();
            let awaited = waits.keys.entry(own).or_default();
            awaited.waiting += 1;
            awaited.begun
        };
        // Before anything is looked at: from here on each begin of a run and each end of a claim is told.
        book.waiting.fetch_add(1, SeqCst);
        Self { book, key, before }
    }

    /// Blocks until `is_idle`, which is called under a lock. The end of a claim wakes it, and the end of the controller.
    pub(super) fn wait(self, deadline: Nanos, is_idle: impl Fn() -> bool) -> Result<Option<RunOutcome>, WaitError> {
        self.book.look_until(deadline, |waits| {
            if !is_idle() {
                return None;
            }
            let ended = waits.keys.get(&self.key).and_then(|awaited| awaited.ended.clone());
            let outcome = ended.filter(|(number, _)| *number > self.before).map(|(_, outcome)| outcome);
            // An idle key of a controller that has ended may have lost its run.
            (outcome.is_some() || waits.closed.is_none()).then_some(outcome)
        })
    }

    fn leave(&self) {
        let mut waits = self.book.waits.lock();
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

impl<K: Key> Drop for Watching<'_, K> {
    fn drop(&mut self) {
        // It looks the key up, and a panic of the key's own code may be what ends the wait.
        shielded("the end of a wait for a key", || self.leave());
        self.book.waiting.fetch_sub(1, SeqCst);
    }
}

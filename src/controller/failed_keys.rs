//! The failed keys of a controller: keys with a failed last run.
//!
//! Errors are kept for a bounded number of parked keys and of failing keys: the latest failures. Other failing keys are
//! only counted: the queue keeps them too. Other parked keys are forgotten, so that they take no memory.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::base::clock::Clock;
use crate::base::sync::atomic::AtomicUsize;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::text::{MOST, boundary};
use crate::queue::{FastState, Key};

/// Marks a truncated text.
const MARK: &str = "…";

/// A key with a failed last run.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, Exponential, WorkerPool};
/// use std::time::Duration;
///
/// let pool = WorkerPool::builder().start()?;
/// let reconcile = |_cx: &Context, vm: &&str| -> Result<Action, BoxError> { Err(format!("{vm}: no answer").into()) };
/// let never = Exponential::default().max_retries(0);
/// let vms = Controller::builder("vm", reconcile).retry(never).build()?.start(&pool)?;
/// vms.enqueue("vm-1");
/// vms.wait(&"vm-1", Duration::from_secs(10))?;
/// let parked = vms.parked();
/// assert_eq!((parked[0].key, parked[0].error.as_str(), parked[0].failures), ("vm-1", "vm-1: no answer", 1));
/// # Ok::<_, BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedKey<K> {
    /// The key.
    pub key: K,
    /// The error with its sources, at most 1,024 bytes. A longer text is truncated and ends with `…`.
    pub error: String,
    /// The number of failed runs in a row.
    pub failures: u32,
    /// The end of the last failed run.
    pub since: Instant,
    /// The end of the first of these failed runs. If that failure was not kept, the end of the earliest kept one.
    pub failing_since: Instant,
    /// The time of the next try. `None` if the key is parked, ready to run or running.
    pub next_try: Option<Instant>,
    /// Whether the key is parked: no retry is scheduled, because the policy gave up or the error is terminal. A new
    /// request runs it again.
    pub parked: bool,
}

impl<K> FailedKey<K> {
    pub(super) fn with_key<J>(self, show: impl FnOnce(&K) -> J) -> FailedKey<J> {
        let Self { key, error, failures, since, failing_since, next_try, parked } = self;
        FailedKey { key: show(&key), error, failures, since, failing_since, next_try, parked }
    }
}

/// The failed keys of one controller.
pub(super) struct FailedKeys<K> {
    clock: Clock,
    table: Mutex<FailedKeyTable<K>>,
    /// The number of failed keys. While it is zero, successful runs take no lock here.
    count: AtomicUsize,
}

impl<K: Key> FailedKeys<K> {
    /// Keeps the errors of at most `most` parked keys and `most` failing keys.
    pub(super) fn new(clock: Clock, most: usize) -> Self {
        Self { clock, table: Mutex::new(FailedKeyTable::new(most)), count: AtomicUsize::new(0) }
    }

    fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    pub(super) fn add(&self, failed: FailedKey<K>) {
        let mut table = self.table.lock();
        let removed = table.add(failed);
        self.unlock(table, removed);
    }

    /// Forgets a key after a run without failure.
    pub(super) fn forget(&self, key: &K) {
        if self.is_empty() {
            return;
        }
        let mut table = self.table.lock();
        let removed = table.remove(key);
        self.unlock(table, removed);
    }

    /// Forgets a parked key, or a failing key if `cancel` prevents its retry. Returns whether the key was forgotten.
    pub(super) fn dismiss(&self, key: &K, cancel: impl FnOnce() -> bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut table = self.table.lock();
        // Under the lock: a failed run adds its key here before the key waits for its backoff.
        let dismissed = match table.is_parked(key) {
            Some(true) => true,
            Some(false) => cancel(),
            None => false,
        };
        let removed = if dismissed { table.remove(key) } else { RemovedKeys::default() };
        self.unlock(table, removed);
        dismissed
    }

    /// Forgets a failing key with a cancelled retry, unless the key was requested since (`is_idle` returns false).
    pub(super) fn cancel(&self, key: &K, is_idle: impl FnOnce() -> bool) {
        if self.is_empty() {
            return;
        }
        let mut table = self.table.lock();
        if table.is_parked(key) == Some(false) && is_idle() {
            let removed = table.remove(key);
            self.unlock(table, removed);
        }
    }

    /// Updates the count, and drops removed keys outside the lock.
    fn unlock(&self, table: MutexGuard<'_, FailedKeyTable<K>>, removed: RemovedKeys<K>) {
        self.count.store(table.len(), SeqCst);
        drop(table);
        drop(removed);
    }

    /// Returns the parked or the failing keys with their errors, the oldest failure first.
    pub(super) fn list(&self, parked: bool) -> Vec<FailedKey<K>> {
        self.table.lock().list(parked)
    }

    /// Returns all failed keys, including failing keys without kept errors.
    pub(super) fn keys(&self) -> Vec<K> {
        let mut keys = self.table.lock().keys();
        self.clock.arrange(&mut keys, |key| key);
        keys
    }

    /// Returns the numbers of parked and of failing keys.
    pub(super) fn counts(&self) -> (usize, usize) {
        self.table.lock().counts()
    }
}

/// The failed keys of one controller, as a plain value.
struct FailedKeyTable<K> {
    /// The number of each key's last failure, and whether the key is parked.
    known: HashMap<K, (u64, bool), FastState>,
    failing: KeptErrors<K>,
    parked: KeptErrors<K>,
    /// The number of failures so far.
    number: u64,
    /// The number of errors that each of the two kinds keeps.
    most: usize,
}

/// The parked or the failing keys.
struct KeptErrors<K> {
    count: usize,
    /// The kept errors, by the number of the failure. The oldest failure has the lowest number.
    failed: BTreeMap<u64, FailedKey<K>>,
}

/// Keys that were removed from the table, to be dropped outside the lock.
type RemovedKeys<K> = ([Option<K>; 2], [Option<FailedKey<K>>; 2]);

impl<K: Key> FailedKeyTable<K> {
    fn new(most: usize) -> Self {
        let kept = || KeptErrors { count: 0, failed: BTreeMap::new() };
        Self { known: HashMap::default(), failing: kept(), parked: kept(), number: 0, most }
    }

    fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns the numbers of parked and of failing keys.
    fn counts(&self) -> (usize, usize) {
        (self.parked.count, self.failing.count)
    }

    /// Returns whether a key is parked. `None` if its last run did not fail.
    fn is_parked(&self, key: &K) -> Option<bool> {
        self.known.get(key).map(|(_, parked)| *parked)
    }

    fn add(&mut self, mut failed: FailedKey<K>) -> RemovedKeys<K> {
        // User code runs before any change.
        let key = failed.key.clone();
        self.number += 1;
        let (number, parked, most) = (self.number, failed.parked, self.most);
        // `insert` alone would drop one of two equal keys under the lock.
        let before = if let Some(known) = self.known.get_mut(&key) {
            Some(std::mem::replace(known, (number, parked)))
        } else {
            self.known.insert(key.clone(), (number, parked));
            None
        };
        let before = before.and_then(|(number, parked)| self.kept(parked).remove(number));
        if let Some(before) = before.as_ref().filter(|_| failed.failures > 1) {
            failed.failing_since = before.failing_since;
        }
        let oldest = self.kept(parked).add(number, failed, most);
        let mut forgotten = None;
        if let Some(oldest) = oldest.as_ref().filter(|_| parked) {
            forgotten = self.known.remove_entry(&oldest.key).map(|(key, _)| key);
            self.parked.count -= 1;
        }
        ([Some(key), forgotten], [before, oldest])
    }

    fn remove(&mut self, key: &K) -> RemovedKeys<K> {
        match self.known.remove_entry(key) {
            Some((key, (number, parked))) => ([Some(key), None], [self.kept(parked).remove(number), None]),
            None => RemovedKeys::default(),
        }
    }

    /// Returns the parked or the failing keys with their errors, the oldest failure first.
    fn list(&self, parked: bool) -> Vec<FailedKey<K>> {
        let kept = if parked { &self.parked } else { &self.failing };
        kept.failed.values().cloned().collect()
    }

    fn keys(&self) -> Vec<K> {
        self.known.keys().cloned().collect()
    }

    fn kept(&mut self, parked: bool) -> &mut KeptErrors<K> {
        if parked { &mut self.parked } else { &mut self.failing }
    }
}

impl<K> KeptErrors<K> {
    /// Adds a key. Returns the oldest one if there are more than `most`.
    fn add(&mut self, number: u64, failed: FailedKey<K>, most: usize) -> Option<FailedKey<K>> {
        self.count += 1;
        self.failed.insert(number, failed);
        if self.failed.len() > most { self.failed.pop_first().map(|(_, oldest)| oldest) } else { None }
    }

    fn remove(&mut self, number: u64) -> Option<FailedKey<K>> {
        self.count -= 1;
        self.failed.remove(&number)
    }
}

/// Truncates a text so that it has at most [`MOST`] bytes together with its mark.
pub(super) fn bounded(mut text: String) -> String {
    if text.len() > MOST {
        text.truncate(boundary(&text, MOST - MARK.len()));
        text.push_str(MARK);
        text.shrink_to_fit();
    }
    text
}

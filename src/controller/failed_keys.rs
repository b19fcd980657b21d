//! The failed keys of a controller: keys with a failed last run.
//!
//! Errors are kept for a bounded number of parked keys and of failing keys: the latest failures. Other failing keys are
//! only counted: the queue keeps them too. Other parked keys are forgotten, so that they take no memory.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::base::clock::Clock;
use crate::base::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::base::sync::{Mutex, MutexGuard};
use crate::queue::{FastState, Key};

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
    /// The error with its sources. A text of more than 1,024 bytes is truncated, and its end says how many are missing.
    pub error: String,
    /// The number of failed runs since the last success. Unlike [`Context::attempt`](crate::Context::attempt), it also
    /// counts the runs before the key was parked.
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
        let kept = [BTreeMap::new(), BTreeMap::new()];
        let table = FailedKeyTable { known: HashMap::default(), counts: [0; 2], kept, number: 0, most };
        Self { clock, table: Mutex::new(table), count: AtomicUsize::new(0) }
    }

    pub(super) fn add(&self, failed: FailedKey<K>) {
        let mut table = self.table.lock();
        let removed = table.add(failed);
        self.unlock(table, removed);
    }

    /// Forgets a key if `decide` returns true. It is told whether the key is parked. Returns whether the key was
    /// forgotten.
    ///
    /// Under the lock: a failed run adds its key here before the key waits for its backoff.
    pub(super) fn forget_if(&self, key: &K, decide: impl FnOnce(bool) -> bool) -> bool {
        if self.count.load(SeqCst) == 0 {
            return false;
        }
        let mut table = self.table.lock();
        let is_forgotten = table.known.get(key).is_some_and(|(_, parked)| decide(*parked));
        if is_forgotten {
            let removed = table.remove(key);
            self.unlock(table, removed);
        }
        is_forgotten
    }

    /// Updates the count, and drops removed keys outside the lock.
    fn unlock(&self, table: MutexGuard<'_, FailedKeyTable<K>>, removed: RemovedKeys<K>) {
        self.count.store(table.known.len(), SeqCst);
        drop(table);
        drop(removed);
    }

    /// Returns the parked or the failing keys with their errors, the oldest failure first.
    pub(super) fn list(&self, parked: bool) -> Vec<FailedKey<K>> {
        self.table.lock().kept[usize::from(parked)].values().cloned().collect()
    }

    /// Returns all failed keys, including failing keys without kept errors.
    pub(super) fn keys(&self) -> Vec<K> {
        let mut keys: Vec<_> = self.table.lock().known.keys().cloned().collect();
        self.clock.arrange(&mut keys, |key| key);
        keys
    }

    /// Returns the numbers of failing and of parked keys.
    pub(super) fn counts(&self) -> [usize; 2] {
        self.table.lock().counts
    }
}

/// The failed keys of one controller, as a plain value. An array has an entry for failing keys, then one for parked
/// keys.
struct FailedKeyTable<K> {
    /// The number of each key's last failure, and whether the key is parked.
    known: HashMap<K, (u64, bool), FastState>,
    counts: [usize; 2],
    /// The kept errors, by the number of the failure. The oldest failure has the lowest number.
    kept: [BTreeMap<u64, FailedKey<K>>; 2],
    /// The number of failures so far.
    number: u64,
    /// The number of errors that each of the two kinds keeps.
    most: usize,
}

/// Keys that were removed from the table, to be dropped outside the lock.
type RemovedKeys<K> = ([Option<K>; 2], [Option<FailedKey<K>>; 2]);

impl<K: Key> FailedKeyTable<K> {
    fn add(&mut self, mut failed: FailedKey<K>) -> RemovedKeys<K> {
        // User code runs before any change.
        let key = failed.key.clone();
        self.number += 1;
        let (last, parked) = ((self.number, failed.parked), failed.parked);
        // `insert` alone would drop one of two equal keys under the lock.
        let before = if let Some(known) = self.known.get_mut(&key) {
            Some(std::mem::replace(known, last))
        } else {
            self.known.insert(key.clone(), last);
            None
        };
        let before = before.and_then(|last| self.take(last));
        if let Some(before) = &before {
            failed.failing_since = before.failing_since;
            failed.failures = failed.failures.max(before.failures.saturating_add(1));
        }
        self.counts[usize::from(parked)] += 1;
        let kept = &mut self.kept[usize::from(parked)];
        kept.insert(self.number, failed);
        let oldest = if kept.len() > self.most { kept.pop_first().map(|(_, oldest)| oldest) } else { None };
        let mut forgotten = None;
        if let Some(oldest) = oldest.as_ref().filter(|_| parked) {
            forgotten = self.known.remove_entry(&oldest.key).map(|(key, _)| key);
            self.counts[1] -= 1;
        }
        ([Some(key), forgotten], [before, oldest])
    }

    fn remove(&mut self, key: &K) -> RemovedKeys<K> {
        match self.known.remove_entry(key) {
            Some((key, last)) => ([Some(key), None], [self.take(last), None]),
            None => RemovedKeys::default(),
        }
    }

    /// Stops counting a failure. Returns its error, if it was kept.
    fn take(&mut self, (number, parked): (u64, bool)) -> Option<FailedKey<K>> {
        self.counts[usize::from(parked)] -= 1;
        self.kept[usize::from(parked)].remove(&number)
    }
}

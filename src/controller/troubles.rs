//! The keys of a controller that have failed: a plain value.
//!
//! Every failed key is counted. The errors are kept of a bounded number of parked keys, and of as many failing keys: of those
//! that failed last.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::queue::{FastState, Key};

/// The longest text of an error that is kept, in bytes.
const LONGEST_TEXT: usize = 1024;

/// Stands for what has been cut off.
const MARK: &str = "…";

/// A key whose last run has failed.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, WorkerPool};
/// use homeostat::run::NoRetry;
/// use std::time::Duration;
///
/// let pool = WorkerPool::builder().start()?;
/// let reconcile = |_cx: &Context, vm: &&str| -> Result<Action, BoxError> { Err(format!("{vm}: no answer").into()) };
/// let vms = Controller::builder("vm", reconcile).retry(NoRetry).build()?.start(&pool)?;
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
    /// The error with its sources, at most 1,024 bytes: a longer text is cut and ends with `…`.
    pub error: String,
    /// How many runs in a row have failed.
    pub failures: u32,
    /// When the last of them ended.
    pub since: Instant,
    /// Whether nothing will run it again until something names it: the policy has given it up, or the error says that no try will
    /// mend it.
    pub parked: bool,
}

impl<K> FailedKey<K> {
    pub(super) fn with_key<J>(self, show: impl FnOnce(&K) -> J) -> FailedKey<J> {
        let Self { key, error, failures, since, parked } = self;
        FailedKey { key: show(&key), error, failures, since, parked }
    }
}

/// All failed keys.
pub(super) struct Troubles<K> {
    /// The number of each failed key, and whether the key is parked.
    known: HashMap<K, (u64, bool), FastState>,
    failing: Kept<K>,
    parked: Kept<K>,
    /// How many failures have been noted so far.
    number: u64,
    /// How many keys are kept with their errors in each of the two.
    most: usize,
}

/// The failed keys of one kind.
struct Kept<K> {
    count: usize,
    /// By number, so the oldest failure is the first.
    troubles: BTreeMap<u64, FailedKey<K>>,
}

/// What is no longer known, to be dropped outside the lock.
pub(super) type Forgotten<K> = (Option<K>, [Option<FailedKey<K>>; 2]);

impl<K: Key> Troubles<K> {
    pub(super) fn new(most: usize) -> Self {
        let kept = || Kept { count: 0, troubles: BTreeMap::new() };
        Self { known: HashMap::default(), failing: kept(), parked: kept(), number: 0, most }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// How many keys are parked, and how many will be tried again.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.parked.count, self.failing.count)
    }

    /// Whether a key is parked; `None` if its last run has not failed.
    pub(super) fn is_parked(&self, key: &K) -> Option<bool> {
        self.known.get(key).map(|(_, parked)| *parked)
    }

    /// The key has failed, perhaps again.
    pub(super) fn add(&mut self, trouble: FailedKey<K>) -> Forgotten<K> {
        // User code comes before any change.
        let key = trouble.key.clone();
        self.number += 1;
        let (number, parked, most) = (self.number, trouble.parked, self.most);
        // Not by `insert` alone: it drops one of two equal keys, under the lock.
        let before = if let Some(known) = self.known.get_mut(&key) {
            Some(std::mem::replace(known, (number, parked)))
        } else {
            self.known.insert(key.clone(), (number, parked));
            None
        };
        let before = before.and_then(|(number, parked)| self.kept(parked).remove(number));
        let oldest = self.kept(parked).add(number, trouble, most);
        (Some(key), [before, oldest])
    }

    /// The key has not failed any more.
    pub(super) fn remove(&mut self, key: &K) -> Forgotten<K> {
        match self.known.remove_entry(key) {
            Some((key, (number, parked))) => (Some(key), [self.kept(parked).remove(number), None]),
            None => (None, [None, None]),
        }
    }

    /// The keys that are parked, or those that will be tried again, with their errors; the oldest failure first.
    pub(super) fn list(&self, parked: bool) -> Vec<FailedKey<K>> {
        let kept = if parked { &self.parked } else { &self.failing };
        kept.troubles.values().cloned().collect()
    }

    /// All failed keys.
    pub(super) fn keys(&self) -> Vec<K> {
        self.known.keys().cloned().collect()
    }

    fn kept(&mut self, parked: bool) -> &mut Kept<K> {
        if parked { &mut self.parked } else { &mut self.failing }
    }
}

impl<K> Kept<K> {
    /// Returns the oldest one if there are too many.
    fn add(&mut self, number: u64, trouble: FailedKey<K>, most: usize) -> Option<FailedKey<K>> {
        self.count += 1;
        self.troubles.insert(number, trouble);
        if self.troubles.len() > most { self.troubles.pop_first().map(|(_, oldest)| oldest) } else { None }
    }

    fn remove(&mut self, number: u64) -> Option<FailedKey<K>> {
        self.count -= 1;
        self.troubles.remove(&number)
    }
}

/// The text, cut to the longest that is kept.
pub(super) fn bounded(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        let most = LONGEST_TEXT - MARK.len();
        text.truncate((0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default());
        text.push_str(MARK);
        text.shrink_to_fit();
    }
    text
}

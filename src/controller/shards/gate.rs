//! The keys of one controller that are divided among processes.
//!
//! # Invariants
//!
//! - A key that is to run here soon is remembered under the lock under which it was refused, and a change of the division looks for such
//!   keys afterwards. Either the key sees the change, or the change sees the key.
//! - Keys of other processes leave the queue without a run. Their recent events are remembered: if this process becomes their owner
//!   soon, they run for them, although the earlier owner may have handled them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{ShardEntry, ShardHash, ShardPlace, Shards};
use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::time::Nanos;
use crate::queue::{Enqueue, EnqueueMethod, EnqueueRequest, FastState, Key, Reasons, WorkQueue};
use crate::run::permit::Admission;

/// Returns the hash of a key.
pub(crate) type ShardHashOf<K> = Arc<dyn Fn(&K) -> ShardHash + Send + Sync>;

/// The most events of keys of other processes that are remembered.
const MOST_REFUSED: usize = 100_000;

/// The keys of one controller.
pub(crate) struct ShardGate<K: Key> {
    shards: Shards,
    hash: ShardHashOf<K>,
    clock: Clock,
    queue: WorkQueue<K>,
    kept: Mutex<KeptKeys<K>>,
}

struct KeptKeys<K> {
    /// The keys that are to run here soon, and were put aside in the queue.
    soon: HashSet<K, FastState>,
    /// The keys of other processes that had an event, the time of the last one, and all its reasons.
    refused: HashMap<K, (Nanos, Reasons), FastState>,
}

impl<K: Key> ShardGate<K> {
    pub(crate) fn new(shards: Shards, hash: ShardHashOf<K>, clock: Clock, queue: WorkQueue<K>) -> Self {
        let kept = Mutex::new(KeptKeys { soon: HashSet::default(), refused: HashMap::default() });
        Self { shards, hash, clock, queue, kept }
    }

    pub(crate) fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Returns whether this process may run a key now.
    pub(crate) fn owns(&self, key: &K) -> bool {
        self.shards.owns((self.hash)(key))
    }

    /// Decides about a key that was taken.
    pub(crate) fn admit(&self, controller: &str, key: &K, reasons: Reasons) -> Admission
    where
        K: fmt::Debug,
    {
        let hash = (self.hash)(key);
        let mut kept = self.kept.lock();
        match self.shards.enter(hash) {
            ShardEntry::Run(permit) => Admission::RunWith(Box::new(permit)),
            ShardEntry::HereSoon => {
                kept.soon.insert(key.clone());
                drop(kept);
                log::debug!(controller, key:?; "{controller}: {key:?} waits until its earlier owner hands it over");
                Admission::PutAside(Duration::MAX)
            }
            ShardEntry::Elsewhere => {
                // Reasons that come again with each listing are not remembered.
                let repeated = Reasons::POLL | Reasons::RESYNC | Reasons::SECONDARY;
                if reasons.is_empty() || !repeated.contains(reasons) {
                    self.remember(&mut kept, key, reasons);
                }
                drop(kept);
                log::trace!(controller, key:?; "{controller}: {key:?} belongs to another process");
                Admission::Refuse
            }
        }
    }

    /// Remembers the event of a key of another process. If there are too many, forgets the old ones first, and then only remembers
    /// deletions.
    fn remember(&self, kept: &mut KeptKeys<K>, key: &K, reasons: Reasons) {
        let now = self.clock.nanos();
        if kept.refused.len() >= MOST_REFUSED && !kept.refused.contains_key(key) {
            kept.refused.retain(|_, (since, _)| now.since(*since) <= self.shards.0.memory);
            if kept.refused.len() >= MOST_REFUSED && !reasons.contains(Reasons::DELETED) {
                return;
            }
        }
        let known = kept.refused.entry(key.clone()).or_insert((now, Reasons::NONE));
        *known = (now, known.1 | reasons);
    }

    /// Looks again at a key that was refused, once its claim has ended: the division may have changed before, and a resync ignores a
    /// key with a claim.
    pub(crate) fn look_again(&self, key: K, reasons: Reasons) {
        if self.shards.place((self.hash)(&key)) != ShardPlace::Elsewhere {
            self.queue.request(key, EnqueueRequest::new(EnqueueMethod::EnqueueNow).because(reasons));
        }
    }

    /// Lets the remembered keys run that belong to this process now. `is_new` is false if only keys were handed over.
    pub(crate) fn divided(&self, is_new: bool) {
        let (soon, refused) = {
            let mut kept = self.kept.lock();
            let refused = if is_new { std::mem::take(&mut kept.refused) } else { HashMap::default() };
            (std::mem::take(&mut kept.soon), refused)
        };
        let mut soon: Vec<_> = soon.into_iter().collect();
        self.clock.arrange(&mut soon, |key| key);
        for key in &soon {
            self.queue.bring_back(key);
        }
        let now = self.clock.nanos();
        let mut refused: Vec<_> =
            refused.into_iter().filter(|(_, (since, _))| now.since(*since) <= self.shards.0.memory).collect();
        self.clock.arrange(&mut refused, |(key, _)| key);
        let mut others = Vec::new();
        for (key, (since, reasons)) in refused {
            if self.shards.place((self.hash)(&key)) == ShardPlace::Elsewhere {
                others.push((key, (since, reasons)));
            } else {
                self.queue.request(key, EnqueueRequest::new(EnqueueMethod::EnqueueNow).because(reasons));
            }
        }
        let mut kept = self.kept.lock();
        for (key, (since, reasons)) in others {
            // An event that was refused meanwhile is younger.
            let known = kept.refused.entry(key).or_insert((since, Reasons::NONE));
            known.1 |= reasons;
        }
    }
}

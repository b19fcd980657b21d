//! The keys of one controller that are divided among processes.
//!
//! # Invariants
//!
//! - A key that is to run here soon is remembered under the lock under which it was refused, and a change of the division looks for such
//!   keys afterwards. Either the key sees the change, or the change sees the key.
//! - Keys of other processes leave the queue without a run. Their recent events are remembered: if this process becomes their owner
//!   soon, they run for them, although the earlier owner may have handled them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{ShardEntry, ShardHash, ShardPlace, Shards};
use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::time::Nanos;
use crate::queue::{Enqueue, EnqueueMethod, EnqueueRequest, Key, Reasons, WorkQueue};
use crate::run::runner::Admission;

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
    soon: Vec<K>,
    /// The keys of other processes that had an event, and when.
    refused: VecDeque<(Nanos, K, Reasons)>,
}

impl<K: Key> ShardGate<K> {
    pub(crate) fn new(shards: Shards, hash: ShardHashOf<K>, clock: Clock, queue: WorkQueue<K>) -> Self {
        let kept = Mutex::new(KeptKeys { soon: Vec::new(), refused: VecDeque::new() });
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
            ShardEntry::Run(permit) => Admission::RunWith(permit),
            ShardEntry::HereSoon => {
                kept.soon.push(key.clone());
                drop(kept);
                log::debug!(controller, key:?; "{controller}: {key:?} waits until its earlier owner hands it over");
                Admission::PutAside(Duration::MAX)
            }
            ShardEntry::Elsewhere => {
                let mut unused = Vec::new();
                // These reasons come again with each listing.
                if !(Reasons::POLL | Reasons::RESYNC).contains(reasons) {
                    self.remember(&mut kept, key, reasons, &mut unused);
                }
                drop(kept);
                log::trace!(controller, key:?; "{controller}: {key:?} belongs to another process");
                Admission::Refuse
            }
        }
    }

    /// Remembers the event of a key of another process, and forgets the oldest ones.
    fn remember(&self, kept: &mut KeptKeys<K>, key: &K, reasons: Reasons, unused: &mut Vec<(Nanos, K, Reasons)>) {
        let now = self.clock.nanos();
        let is_old = |since: Nanos| now.since(since) > self.shards.0.memory;
        while kept.refused.len() >= MOST_REFUSED || kept.refused.front().is_some_and(|(since, ..)| is_old(*since)) {
            unused.extend(kept.refused.pop_front());
        }
        kept.refused.push_back((now, key.clone(), reasons));
    }

    /// Lets the remembered keys run that belong to this process now.
    pub(crate) fn divided(&self) {
        let (soon, refused) = {
            let mut kept = self.kept.lock();
            (std::mem::take(&mut kept.soon), std::mem::take(&mut kept.refused))
        };
        for key in &soon {
            self.queue.bring_back(key);
        }
        let (mine, others): (VecDeque<_>, VecDeque<_>) =
            refused.into_iter().partition(|(_, key, _)| self.shards.place((self.hash)(key)) != ShardPlace::Elsewhere);
        let now = self.clock.nanos();
        for (since, key, reasons) in mine {
            if now.since(since) <= self.shards.0.memory {
                self.queue.request(key, EnqueueRequest::new(EnqueueMethod::EnqueueNow).because(reasons));
            }
        }
        let mut kept = self.kept.lock();
        // Events that were refused meanwhile are younger.
        let younger = std::mem::replace(&mut kept.refused, others);
        kept.refused.extend(younger);
    }
}

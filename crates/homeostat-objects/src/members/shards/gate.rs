//! Decides which keys of one controller this process may run, because the keys are divided among processes.
//!
//! # Invariants
//!
//! - If a refused key may run here soon, it is remembered under the same lock, and a change of the assignment looks for
//!   such keys afterwards. Either the key sees the change, or the change sees the key.
//! - Keys of other processes leave the queue without a run, but their recent events are remembered. If this process
//!   becomes their owner soon, the keys run for these events, although the earlier owner may have handled them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::moves::Moves;
use super::{ShardEntry, ShardHash, ShardListener, ShardPlace, Shards};
use crate::sync::Mutex;
use homeostat::base::Clock;
use homeostat::queue::{Enqueue, EnqueueMethod, EnqueueRequest, FastState, Key, Reasons, WorkQueue};
use homeostat::rt::{Nanos, shielded};
use homeostat::run::{Admission, Gate, GateKey, Release, ResyncForGates};

/// The user code that may panic, for log lines.
const KEY: &str = "the key of a controller";

/// How many events of other processes' keys are remembered.
const MOST_REFUSED: usize = 100_000;

/// The keys of one controller.
pub(crate) struct ShardGate<K: Key> {
    shards: Shards,
    hash: Box<dyn Fn(&K) -> ShardHash + Send + Sync>,
    clock: Clock,
    queue: WorkQueue<K>,
    resync: ResyncForGates,
    kept: Mutex<KeptKeys<K>>,
    moves: Mutex<Moves>,
}

struct KeptKeys<K> {
    /// The deferred keys that may run here soon, with their releases.
    soon: HashMap<K, Release, FastState>,
    /// The keys of other processes that had an event.
    refused: RefusedKeys<K>,
}

/// The keys of other processes that had an event.
struct RefusedKeys<K> {
    /// Each key with the time of its last event, and the reasons of all its events.
    keys: HashMap<K, (Nanos, Reasons), FastState>,
    /// The time from which a search for old keys may pay off. A search visits all keys.
    search_at: Nanos,
}

/// While there are too many keys, `memory` divided by this passes between two searches for old keys.
const SEARCHES: u32 = 16;

impl<K: Key> RefusedKeys<K> {
    fn new() -> Self {
        Self { keys: HashMap::default(), search_at: Nanos::ZERO }
    }

    /// Remembers an event at `now`. If there are too many keys, forgets each key without an event in the last `memory`,
    /// and then remembers only deletions of further keys. Returns the forgotten keys, to be dropped without a lock.
    fn remember(&mut self, key: &K, reasons: Reasons, now: Nanos, memory: Duration) -> Vec<K> {
        if let Some(known) = self.keys.get_mut(key) {
            *known = (now, known.1 | reasons);
            return Vec::new();
        }
        let is_full = self.keys.len() >= MOST_REFUSED;
        let forgotten = if is_full && self.is_to_search(now) { self.forget_old(now, memory) } else { Vec::new() };
        if self.keys.len() < MOST_REFUSED || reasons.contains(Reasons::DELETED) {
            self.keys.insert(key.clone(), (now, reasons));
        }
        forgotten
    }

    fn is_to_search(&self, now: Nanos) -> bool {
        now >= self.search_at
    }

    fn forget_old(&mut self, now: Nanos, memory: Duration) -> Vec<K> {
        let mut oldest = now;
        let is_old = |since: Nanos| now.since(since) > memory;
        let old = self.keys.extract_if(|_, (since, _)| {
            if !is_old(*since) {
                oldest = oldest.min(*since);
            }
            is_old(*since)
        });
        let old = old.map(|(key, _)| key).collect();
        // Keys that are added later are younger. The pause bounds the cost if the ages of the keys differ.
        self.search_at = oldest.after(memory).max(now.after(memory / SEARCHES));
        old
    }
}

impl<K: Key + Sync + fmt::Debug> ShardGate<K> {
    pub(crate) fn new(
        shards: &Shards,
        hash: impl Fn(&K) -> ShardHash + Send + Sync + 'static,
        queue: WorkQueue<K>,
        resync: ResyncForGates,
    ) -> Arc<Self> {
        let kept = Mutex::new(KeptKeys { soon: HashMap::default(), refused: RefusedKeys::new() });
        let (shards, hash, clock) = (shards.clone(), Box::new(hash), queue.clock());
        let gate = Arc::new(Self { shards, hash, clock, queue, resync, kept, moves: Mutex::new(Moves::new()) });
        gate.shards.listen(Arc::downgrade(&gate) as Weak<dyn ShardListener>);
        gate.record();
        gate
    }

    /// Returns whether this process may run a key now.
    pub(crate) fn owns(&self, key: &K) -> bool {
        self.shards.owns((self.hash)(key))
    }

    /// Records the current assignment.
    fn record(&self) {
        let mut moves = self.moves.lock();
        moves.record(self.shards.assignment());
    }

    /// Lets the remembered keys run that now belong to this process. If a key panics, it delays no other key.
    ///
    /// `is_new` is false if only keys were handed over.
    fn run_kept(&self, is_new: bool) {
        let (soon, refused) = {
            let mut kept = self.kept.lock();
            let refused = if is_new { std::mem::take(&mut kept.refused.keys) } else { HashMap::default() };
            (std::mem::take(&mut kept.soon), refused)
        };
        let mut soon: Vec<_> = soon.into_iter().collect();
        self.clock.arrange(&mut soon, |(key, _)| key);
        for (_key, release) in soon {
            release();
        }
        let now = self.clock.nanos();
        let mut refused: Vec<_> =
            refused.into_iter().filter(|(_, (since, _))| now.since(*since) <= self.shards.0.memory).collect();
        self.clock.arrange(&mut refused, |(key, _)| key);
        let mut others = Vec::new();
        for (key, (since, reasons)) in refused {
            shielded(KEY, || {
                if self.shards.place((self.hash)(&key)) == ShardPlace::Elsewhere {
                    others.push((key, (since, reasons)));
                } else {
                    self.queue.request(key, EnqueueRequest::new(EnqueueMethod::EnqueueNow).because(reasons));
                }
            });
        }
        // Drop these without the lock.
        let mut known_keys = Vec::new();
        let mut kept = self.kept.lock();
        for (key, (since, reasons)) in others {
            shielded(KEY, || match kept.refused.keys.get_mut(&key) {
                // An event that was refused in between is younger.
                Some(known) => {
                    known.1 |= reasons;
                    known_keys.push(key);
                }
                None => drop(kept.refused.keys.insert(key, (since, reasons))),
            });
        }
    }
}

impl<K: Key + Sync + fmt::Debug> Gate for ShardGate<K> {
    fn admit(&self, key: &dyn GateKey, reasons: Reasons) -> Admission {
        let Some(own) = key.as_any().downcast_ref::<K>() else { return Admission::Run };
        let (controller, hash) = (key.controller(), (self.hash)(own));
        let mut kept = self.kept.lock();
        match self.shards.enter(hash) {
            ShardEntry::Run(permit) => Admission::RunWith(permit),
            ShardEntry::HereSoon => {
                if !kept.soon.contains_key(own) {
                    kept.soon.insert(own.clone(), key.releaser());
                }
                drop(kept);
                log::debug!(controller, key:?; "{controller}: {key:?} waits until its earlier owner hands it over");
                Admission::Defer(Duration::MAX)
            }
            ShardEntry::Elsewhere => {
                // Do not remember reasons that every listing repeats.
                let repeated = Reasons::POLL | Reasons::RESYNC | Reasons::SECONDARY;
                let mut forgotten = Vec::new();
                if reasons.is_empty() || !repeated.contains(reasons) {
                    forgotten = kept.refused.remember(own, reasons, self.clock.nanos(), self.shards.0.memory);
                }
                drop(kept);
                drop(forgotten);
                log::trace!(controller, key:?; "{controller}: {key:?} belongs to another process");
                Admission::Refuse
            }
        }
    }

    /// The assignment may have changed before, and a resync ignores a key with a claim.
    fn refused(&self, key: &dyn GateKey, reasons: Reasons) {
        if let Some(key) = key.as_any().downcast_ref::<K>()
            && self.shards.place((self.hash)(key)) != ShardPlace::Elsewhere
        {
            self.queue.request(key.clone(), EnqueueRequest::new(EnqueueMethod::EnqueueNow).because(reasons));
        }
    }

    /// Selects the keys that have moved to or from this process since the last resync of moved keys.
    fn selects(&self, key: &dyn GateKey) -> bool {
        // If the code of the key panics, it counts as moved.
        let mut has_moved = true;
        shielded(KEY, || {
            if let Some(key) = key.as_any().downcast_ref::<K>() {
                let hash = (self.hash)(key);
                has_moved = self.moves.lock().has_moved(hash);
            }
        });
        has_moved
    }

    fn resync_begins(&self, is_last_done: bool) {
        self.moves.lock().begin_resync(is_last_done);
    }

    fn status(&self) -> Option<String> {
        Some(self.shards.status().to_string())
    }
}

impl<K: Key + Sync + fmt::Debug> ShardListener for ShardGate<K> {
    fn divided(&self, is_new: bool) {
        self.record();
        shielded(KEY, || self.run_kept(is_new));
        if is_new {
            (self.resync)();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::convert::Infallible;
    use std::hash::{Hash, Hasher};

    use super::super::{EarlierMember, ShardStatus, ShardTable};
    use super::*;
    use crate::ControllerExt;
    use crate::sync::atomic::Ordering::SeqCst;
    use crate::sync::atomic::{AtomicBool, AtomicUsize};
    use crate::until::until;
    use homeostat::queue::KeyState;
    use homeostat::run::Fence;
    use homeostat::{Action, Context, Controller, WorkerPool};

    const MEMORY: Duration = Duration::from_secs(45);

    #[test]
    fn locks_that_are_taken_against_the_order_panic() {
        let (moves, shards) = (Mutex::new(Moves::new()), Shards::new(MEMORY));
        let in_order = || {
            let _moves = moves.lock();
            drop(shards.0.state.lock());
        };
        in_order();
        let against = || {
            let _state = shards.0.state.lock();
            drop(moves.lock());
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(against)).is_err());
        in_order();
    }

    /// Each search visits all keys.
    #[test]
    fn too_many_refused_keys_are_searched_rarely_and_the_old_ones_are_forgotten() {
        let mut refused = RefusedKeys::new();
        let mut searches = 0;
        // There are too many keys before the first one is old. From then on, one key becomes old each time another one
        // is added.
        let step = MEMORY * 3 / 2 / 200_000;
        let mut now = Nanos::ZERO;
        for key in 0..200_000_u32 {
            now = now.after(step);
            let is_full = refused.keys.len() >= MOST_REFUSED;
            searches += u32::from(is_full && refused.is_to_search(now));
            refused.remember(&key, Reasons::CREATED, now, MEMORY);
            assert!(searches <= 2 * SEARCHES, "{searches} searches until key {key}");
        }
        assert!(searches > 0 && refused.keys.len() <= MOST_REFUSED);
        assert!(refused.keys.values().all(|(since, _)| now.since(*since) <= MEMORY * 5 / 4));

        // Deletions are remembered beyond the limit, and all keys have one age.
        let mut refused = RefusedKeys::new();
        let limit = u32::try_from(MOST_REFUSED).unwrap_or(u32::MAX);
        for key in 0..limit {
            refused.remember(&key, Reasons::CREATED, now, MEMORY);
        }
        refused.remember(&limit, Reasons::CREATED, now, MEMORY);
        assert_eq!(refused.keys.len(), MOST_REFUSED);
        assert!(!refused.is_to_search(now.after(MEMORY / 2)));
        refused.remember(&limit, Reasons::DELETED, now, MEMORY);
        assert_eq!(refused.keys.len(), MOST_REFUSED + 1);
        let later = now.after(2 * MEMORY);
        refused.remember(&(limit + 1), Reasons::CREATED, later, MEMORY);
        assert_eq!(refused.keys.len(), 1);
    }

    /// Whether the next hash of a [`Hostile`] key panics.
    static NEXT_HASH_PANICS: AtomicBool = AtomicBool::new(false);

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Hostile(u32);

    impl Hash for Hostile {
        fn hash<H: Hasher>(&self, state: &mut H) {
            assert!(!NEXT_HASH_PANICS.swap(false, SeqCst), "the hash of a key");
            self.0.hash(state);
        }
    }

    #[test]
    fn a_key_that_panics_when_it_is_handed_over_delays_no_other_key() {
        let (shards, fence) = (Shards::new(MEMORY), Fence::unlimited(None));
        let [me, other] = ["me", "other"].map(|name| ShardHash::of([name]));
        let divide = |has_left: bool| {
            let earlier = vec![vec![EarlierMember { member: other, has_left }]];
            let table = ShardTable { number: 1, me: Some(me), members: vec![me], earlier };
            shards.divide(table, ShardStatus::default(), Some(fence.clone()));
        };
        divide(false);
        let reconcile = |_: &Context, _: &Hostile| Ok::<_, Infallible>(Action::await_change());
        let controller = Controller::builder("vm", reconcile).shards(&shards, |_| ShardHash::of(["key"]));
        let controller = controller.build().unwrap();
        let handle = controller.handle();
        for key in [1, 2] {
            handle.enqueue(Hostile(key));
        }
        let pool = WorkerPool::builder().threads(1).start().unwrap();
        let _running = controller.start(&pool).unwrap();
        let states = || [1, 2].map(|key| handle.queue().state(&Hostile(key)));
        until("both keys wait", || states() == [KeyState::Delayed(None); 2]);
        NEXT_HASH_PANICS.store(true, SeqCst);
        divide(true);
        assert!(!NEXT_HASH_PANICS.load(SeqCst), "no hash has panicked");
        until("one key has run", || states().contains(&KeyState::Idle));
        assert!(states().contains(&KeyState::Delayed(None)), "{:?}", states());
    }

    /// The assignment may have changed while a claim refused a key. The gate checks that once the claim holds the next
    /// key.
    #[test]
    fn a_key_of_another_process_that_panics_fails_no_other_key() {
        let calls = AtomicUsize::new(0);
        let hash = move |key: &char| {
            assert!(*key != 'a' || calls.fetch_add(1, SeqCst) != 1, "the hash of a key");
            ShardHash::of([key.to_string()])
        };
        let reconcile = |_: &Context, _: &char| Ok::<_, Infallible>(Action::await_change());
        let controller = Controller::builder("vm", reconcile).shards(&Shards::new(MEMORY), hash).build().unwrap();
        let handle = controller.handle();
        for key in ['a', 'b'] {
            handle.enqueue(key);
        }
        let pool = WorkerPool::builder().threads(1).start().unwrap();
        let _running = controller.start(&pool).unwrap();
        let is_busy = || handle.queue().metrics().depth() + handle.queue().metrics().processing > 0;
        while is_busy() {
            std::thread::yield_now();
        }
        assert_eq!(['a', 'b'].map(|key| handle.queue().state(&key)), [KeyState::Idle; 2]);
    }
}

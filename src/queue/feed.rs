//! Requests to a queue, and the [`Enqueue`] trait.
//!
//! Most requests are for a key that is already queued, or for a new key that is ready at once. They take a fast path
//! under the lock.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::records::{Effects, Wanted};
use super::report::{KeyState, Tally};
use super::request::{BATCH, EnqueueMethod, EnqueueOutcome, EnqueueRequest};
use super::shared::{Locked, QueueShared};
use super::state::Phase;
use super::{Key, WorkQueue};
use crate::base::sync::MutexGuard;
use crate::base::thread::shielded;

/// A queue, or a view of a queue, that takes keys.
///
/// Only [`request`](Self::request) is required. The methods differ in how they treat a key that is already pending. The
/// table at [`WorkQueue`] shows the effect of the basic methods in each state.
///
/// # Examples
///
/// A feeder that accepts a queue or a view:
///
/// ```
/// use homeostat::{Enqueue, EnqueueOutcome, Priority, WorkQueue};
///
/// fn feed(to: &dyn Enqueue<u64>) -> EnqueueOutcome {
///     to.enqueue(7)
/// }
///
/// let queue = WorkQueue::new();
/// assert_eq!(feed(&queue), EnqueueOutcome::Queued);
/// assert_eq!(feed(&queue), EnqueueOutcome::Merged);
/// assert_eq!(feed(&queue.at(Priority::High)), EnqueueOutcome::Merged);
/// ```
pub trait Enqueue<K> {
    /// Applies a request to a key. The other methods call this one.
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome;

    /// Applies the request to each key. The iterator runs without a lock.
    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        let mut tally = Tally::default();
        for key in keys {
            tally.add(self.request(key, request), 1);
        }
        tally
    }

    /// Makes an idle key ready, and leaves any other key as it is ("still there"). For a feeder that will repeat the
    /// request, such as a poll.
    fn enqueue_if_absent(&self, key: K) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueIfAbsent.into())
    }

    /// Guarantees a run that starts after this call ("changed"). A pending delay decides when the run starts.
    ///
    /// A key gets no run if it is cancelled, discarded at shutdown, or has a delay that never ends.
    fn enqueue(&self, key: K) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::Enqueue.into())
    }

    /// Ends a pending delay, except a cool-down, and guarantees a run like [`enqueue`](Self::enqueue) ("changed"). In a
    /// backoff, the key waits at least for the floor.
    fn enqueue_now(&self, key: K) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueNow.into())
    }

    /// Schedules a run `delay` from now, unless a run is already scheduled. A delay of [`Duration::MAX`] never ends.
    /// With a delay of zero, this is [`enqueue`](Self::enqueue).
    fn enqueue_after(&self, key: K, delay: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueAfter(delay).into())
    }

    /// Schedules the next run `delay` from now. Replaces any scheduled run.
    fn reschedule(&self, key: K, delay: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::Reschedule(delay).into())
    }

    /// Schedules a run after `quiet` without another such request. The delay ends at most `max_wait` after the first of
    /// these requests. Delays of other methods are not extended.
    fn enqueue_debounced(&self, key: K, quiet: Duration, max_wait: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueDebounced { quiet, max_wait }.into())
    }

    /// Schedules a run after `quiet` without another such request, and at most `max_wait` after this one.
    ///
    /// A longer delay of another method ends, as with [`enqueue_now`](Self::enqueue_now); only a cool-down and the
    /// floor of a backoff remain. A shorter delay stays, and its run serves this request too. If the key is being
    /// processed, its pending rerun waits for the end of this delay, at most `max_wait`.
    ///
    /// ```
    /// use homeostat::{Enqueue, ManualClock, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let queue = WorkQueue::builder().clock(clock.clock()).build();
    /// queue.enqueue_after("vm-1", Duration::from_secs(3600));
    /// queue.enqueue_now_debounced("vm-1", Duration::from_secs(2), Duration::from_secs(10));
    /// clock.advance(Duration::from_secs(2));
    /// assert_eq!(*queue.try_dequeue()?, "vm-1");
    /// # Ok::<_, homeostat::queue::DequeueError>(())
    /// ```
    fn enqueue_now_debounced(&self, key: K, quiet: Duration, max_wait: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueNowDebounced { quiet, max_wait }.into())
    }

    /// Runs the key again although nothing has changed, as a resync does. Ends the delay of a requeue.
    ///
    /// Does nothing ([`EnqueueOutcome::Ignored`]) if the key is ready, being processed, backing off after a failure,
    /// debounced, or deferred by its controller.
    ///
    /// ```
    /// use homeostat::{Enqueue, EnqueueOutcome, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::new();
    /// queue.enqueue("vm-1");
    /// queue.dequeue()?.requeue_after(Duration::from_secs(3600));
    /// assert_eq!(queue.enqueue_resync("vm-1"), EnqueueOutcome::Queued);
    /// queue.dequeue()?.retry_after(Duration::from_secs(3600));
    /// assert_eq!(queue.enqueue_resync("vm-1"), EnqueueOutcome::Ignored);
    /// # Ok::<_, homeostat::queue::DequeueError>(())
    /// ```
    fn enqueue_resync(&self, key: K) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueResync.into())
    }
}

/// Forwards requests through references and smart pointers.
impl<K, P: Deref<Target: Enqueue<K>>> Enqueue<K> for P {
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome {
        (**self).request(key, request)
    }

    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        (**self).request_all(keys, request)
    }
}

impl<K: Key, S: BuildHasher> Enqueue<K> for WorkQueue<K, S> {
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics. The queue is then unchanged.
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome {
        if request.method == EnqueueMethod::EnqueueSelected && !self.selects(&key) {
            return EnqueueOutcome::Ignored;
        }
        self.request_one(key, &request)
    }

    // These three methods are compiled on their own, each with a constant request.
    fn enqueue_if_absent(&self, key: K) -> EnqueueOutcome {
        self.request_one(key, &EnqueueMethod::EnqueueIfAbsent.into())
    }

    fn enqueue(&self, key: K) -> EnqueueOutcome {
        self.request_one(key, &EnqueueMethod::Enqueue.into())
    }

    fn enqueue_now(&self, key: K) -> EnqueueOutcome {
        self.request_one(key, &EnqueueMethod::EnqueueNow.into())
    }

    /// Hashes up to 1,024 keys at a time, then takes the lock once for them.
    ///
    /// # Panics
    ///
    /// If the iterator or a key's `Hash` or `Eq` panics. Earlier keys may have been enqueued.
    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        if request.method == EnqueueMethod::EnqueueSelected {
            return self.request_selected(keys, request);
        }
        self.request_in_batches(keys, &request)
    }
}

impl<K: Key, S: BuildHasher> WorkQueue<K, S> {
    /// Applies a request to a borrowed key. Only a new key is converted to an owned one, so a duplicate allocates
    /// nothing.
    ///
    /// # Panics
    ///
    /// If the key's `Hash`, `Eq` or `From` panics. The queue is then unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::queue::EnqueueMethod;
    /// use homeostat::{EnqueueOutcome, WorkQueue};
    ///
    /// let queue = WorkQueue::<String>::new();
    /// assert_eq!(queue.request_ref("vm-1", EnqueueMethod::Enqueue.into()), EnqueueOutcome::Queued);
    /// assert_eq!(queue.request_ref("vm-1", EnqueueMethod::Enqueue.into()), EnqueueOutcome::Merged);
    /// ```
    #[inline(always)]
    pub fn request_ref<'q, Q>(&self, key: &'q Q, request: EnqueueRequest) -> EnqueueOutcome
    where
        K: Borrow<Q> + From<&'q Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shared.request(key, self.hash(key), &request, |known, key| known.borrow() == *key, K::from)
    }

    #[cold]
    fn selects(&self, key: &K) -> bool {
        self.shared.hooks.selects.as_ref().is_none_or(|selects| selects(key))
    }

    /// Applies the request to the selected keys, and ignores the others.
    #[cold]
    fn request_selected(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        let mut ignored = 0;
        let mut selected = keys.filter(|key| {
            let is_selected = self.selects(key);
            ignored += usize::from(!is_selected);
            is_selected
        });
        let request = EnqueueRequest { method: EnqueueMethod::EnqueueResync, ..request };
        let mut tally = self.request_in_batches(&mut selected, &request);
        tally.add(EnqueueOutcome::Ignored, ignored);
        tally
    }

    #[inline(always)]
    fn request_one(&self, key: K, request: &EnqueueRequest) -> EnqueueOutcome {
        let hash = self.hash(&key);
        self.shared.request(key, hash, request, |known, key| known == key, |key| key)
    }

    fn request_in_batches(&self, keys: &mut dyn Iterator<Item = K>, request: &EnqueueRequest) -> Tally {
        let mut tally = Tally::default();
        let Some(first) = keys.next() else { return tally };
        if keys.size_hint().1 == Some(0) {
            tally.add(self.request_one(first, request), 1);
            return tally;
        }
        let hashed = |key| {
            let hash = self.hash(&key);
            (Some(key), hash)
        };
        let mut batch: Vec<(Option<K>, u32)> = Vec::with_capacity((keys.size_hint().0 + 1).min(BATCH as usize));
        batch.push(hashed(first));
        let mut room = BATCH as usize - 1;
        loop {
            batch.extend(keys.take(room).map(hashed));
            if batch.is_empty() {
                return tally;
            }
            // Some iterators return further items after their end, so an ended iterator is not called again.
            let ended = batch.len() < BATCH as usize;
            self.shared.with_lock(|section| {
                let (records, effects, now) = section.parts();
                for (key, hash) in &mut batch {
                    let wanted = Wanted { key, hash: *hash, request };
                    tally.add(records.request(wanted, |known, key| known == key, |key| key, &now, effects), 1);
                }
            });
            // Keys that the queue already knew are still in the batch. They drop without the lock.
            batch.clear();
            room = BATCH as usize;
            if ended {
                return tally;
            }
        }
    }
}

impl<K: Key> QueueShared<K> {
    /// Applies a request to one key. A fast path serves a record that stays in its list, and a new key that is ready at
    /// once. Otherwise the record's rule decides.
    ///
    /// This repeats the steps of `Records::request`: one shared function takes 5 to 27 % more instructions.
    #[inline(always)]
    pub(super) fn request<Q>(
        self: &Arc<Self>,
        key: Q,
        hash: u32,
        request: &EnqueueRequest,
        same: impl Fn(&K, &Q) -> bool,
        own: impl FnOnce(Q) -> K,
    ) -> EnqueueOutcome {
        // A key that the queue already knows drops after the guard, without the lock.
        let mut guard = self.locked.lock();
        if guard.restless {
            return self.request_and_wake(guard, key, hash, request, same, own);
        }
        let index = match guard.records.look_up(hash, |known| same(known, &key)) {
            Ok(index) => match guard.records.absorb(index, request) {
                Some(outcome) => return outcome,
                None => index,
            },
            Err(vacancy) => {
                let (key, mut effects) = (own(key), Effects::default());
                let (index, ready) = guard.records.insert(vacancy, key, hash, request);
                if ready {
                    guard.records.line_up(index, request.priority, &|| self.now(), &mut effects);
                    if self.is_awaited(&guard, &effects) {
                        self.finish(guard, effects);
                    }
                    return EnqueueOutcome::Queued;
                }
                index
            }
        };
        self.transition(guard, index, request)
    }

    /// Applies a request to one key of a queue that is shut down or was refused its timer thread.
    #[cold]
    fn request_and_wake<Q>(
        self: &Arc<Self>,
        guard: MutexGuard<'_, Locked<K>>,
        key: Q,
        hash: u32,
        request: &EnqueueRequest,
        same: impl Fn(&K, &Q) -> bool,
        own: impl FnOnce(Q) -> K,
    ) -> EnqueueOutcome {
        let mut slot = Some(key);
        self.with_guard(guard, |section| {
            let (records, effects, now) = section.parts();
            records.request(Wanted { key: &mut slot, hash, request }, same, own, &now, effects)
        })
    }

    /// Applies a request that may move the record.
    #[cold]
    fn transition(
        self: &Arc<Self>,
        guard: MutexGuard<'_, Locked<K>>,
        index: u32,
        request: &EnqueueRequest,
    ) -> EnqueueOutcome {
        self.with_guard(guard, |section| {
            let (records, effects, now) = section.parts();
            records.transition(index, request, &now, effects)
        })
    }
}

impl<K: Key, S: BuildHasher> WorkQueue<K, S> {
    /// Cancels the scheduled run of a key, and returns the previous state. A current run continues.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics. The queue is then unchanged.
    pub fn cancel<Q>(&self, key: &Q) -> KeyState
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (hash, hook) = (self.hash(key), self.shared.hooks.on_cancel.as_ref());
        let mut reported = None;
        let (state, gone) = self.shared.with_lock(|section| {
            let (records, effects, now) = section.parts();
            let Some(index) = records.find(hash, |known| known.borrow() == key) else { return (KeyState::Idle, None) };
            let state = self.key_state(records.state(index));
            if hook.is_some() && !matches!(state, KeyState::Processing(_)) {
                reported = Some(records.key(index).clone());
            }
            (state, records.cancel(index, &now, effects))
        });
        if let (Some(key), Some(hook)) = (reported, hook) {
            shielded("the report of a cancelled key", || hook(&key));
        }
        drop(gone);
        state
    }

    /// Cancels the scheduled run of a key that is not being processed. Returns whether the key now has no scheduled or
    /// current run, and a key to drop.
    pub(crate) fn cancel_unless_processing(&self, key: &K) -> (bool, Option<K>) {
        let hash = self.hash(key);
        self.shared.with_lock(|section| {
            let (records, effects, now) = section.parts();
            match records.find(hash, |known| known == key) {
                None => (true, None),
                Some(index) if matches!(records.state(index).phase, Phase::Processing(_)) => (false, None),
                Some(index) => (true, records.cancel(index, &now, effects)),
            }
        })
    }

    /// Makes a deferred key ready. If the current claim defers the key later, the key is then ready at once. Any other
    /// key stays as it is.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics. The queue is then unchanged.
    pub(crate) fn release(&self, key: &K) {
        let hash = self.hash(key);
        self.shared.with_lock(|section| {
            let (records, effects, now) = section.parts();
            if let Some(index) = records.find(hash, |known| known == key) {
                records.release(index, &now, effects);
            }
        });
    }
}

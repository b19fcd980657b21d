//! How keys get into a queue: the methods, the trait that every feeder takes, and the wrappers around a queue.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use super::records::Wanted;
use super::report::Tally;
use super::request::{BATCH, EnqueueMethod, EnqueueOutcome, EnqueueRequest};
use super::{Key, WorkQueue};
use crate::base::clock::Clock;

/// What takes keys: a queue, a view of one, or something put around one.
///
/// Only [`request`](Self::request) must be written. The methods differ in how sure the feeder is that a run is wanted; what
/// each does to a key in each state is the table in the documentation of [`WorkQueue`].
///
/// # Examples
///
/// A feeder takes any of them:
///
/// ```
/// use homeostat::{Enqueue, EnqueueOutcome, WorkQueue};
///
/// fn feed(to: &dyn Enqueue<u64>) -> EnqueueOutcome {
///     to.enqueue(7)
/// }
///
/// let queue = WorkQueue::new();
/// assert_eq!(feed(&queue), EnqueueOutcome::Queued);
/// assert_eq!(feed(&queue), EnqueueOutcome::Merged);
/// assert_eq!(feed(&queue.clone().filter(|id| *id != 7)), EnqueueOutcome::Ignored);
/// ```
pub trait Enqueue<K> {
    /// One request for one key. The methods below are this.
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome;

    /// The same request for each of many keys. The iterator runs outside any lock.
    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        let mut tally = Tally::default();
        for key in keys {
            tally.count(self.request(key, request));
        }
        tally
    }

    /// The clock that feeders of this go by. A queue answers with its own; by default the system's.
    fn clock(&self) -> Clock {
        Clock::system()
    }

    /// "Still there": puts the key in line if nothing is known of it. For a feeder that will say it again.
    fn enqueue_if_absent(&self, key: K) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueIfAbsent.into())
    }

    /// "Changed": a run that starts after this call is guaranteed, unless it is cancelled, discarded at shutdown, or held
    /// by a delay that never ends. A delay that stands decides when.
    fn enqueue(&self, key: K) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::Enqueue.into())
    }

    /// As [`enqueue`](Self::enqueue), and no delay holds it back (but for the floor of a backoff, and a cool-down).
    fn enqueue_now(&self, key: K) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueNow.into())
    }

    /// A run `delay` from now, if no wake is pending; a wake that stands absorbs it. [`Duration::MAX`] is legal and never
    /// comes; zero makes it [`enqueue`](Self::enqueue).
    fn enqueue_after(&self, key: K, delay: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueAfter(delay).into())
    }

    /// The wake is now `delay` from now, whatever it was.
    fn reschedule(&self, key: K, delay: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::Reschedule(delay).into())
    }

    /// A run once `quiet` has passed without another such request, at the latest `max_wait` after the first. It pushes its
    /// own delay out, and no other.
    fn enqueue_debounced(&self, key: K, quiet: Duration, max_wait: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueDebounced { quiet, max_wait }.into())
    }

    /// Runs the key once `quiet` has passed without another such request, and at the latest `max_wait` after this one. Ends
    /// any other delay that is longer, as [`enqueue_now`](Self::enqueue_now) does: only the floor of a backoff and a cool-down
    /// still hold. A delay that ends sooner stands, and its run serves this request too. If the key is being processed, any
    /// rerun that it already waits for is put off to the end of this delay, at most by `max_wait`.
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
    /// # Ok::<_, homeostat::queue::TryDequeueError>(())
    /// ```
    fn enqueue_now_debounced(&self, key: K, quiet: Duration, max_wait: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueNowDebounced { quiet, max_wait }.into())
    }

    /// Runs the key again although nothing has changed, as a resync does. Ends a delay that waits for a requeue. Adds nothing
    /// ([`EnqueueOutcome::Ignored`]) while the key is in line, is being processed, backs off after a failure, or waits for the end
    /// of a debounce.
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

    /// This, for the keys that `keep` accepts; the others are [`EnqueueOutcome::Ignored`].
    fn filter<F>(self, keep: F) -> Filter<Self, F>
    where
        Self: Sized,
        F: Fn(&K) -> bool,
    {
        Filter { to: self, keep }
    }

    /// Takes another kind of key and maps it to this one's.
    fn map<J, F>(self, to_key: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(J) -> K,
    {
        Map { to: self, to_key }
    }

    /// This and `other`: both get every key. What this one answers is the answer.
    fn tee<E>(self, other: E) -> Tee<Self, E>
    where
        Self: Sized,
        K: Clone,
        E: Enqueue<K>,
    {
        Tee { first: self, second: other }
    }
}

impl<K, E: Enqueue<K> + ?Sized> Enqueue<K> for &E {
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome {
        (**self).request(key, request)
    }

    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        (**self).request_all(keys, request)
    }

    fn clock(&self) -> Clock {
        (**self).clock()
    }
}

impl<K, E: Enqueue<K> + ?Sized> Enqueue<K> for Arc<E> {
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome {
        (**self).request(key, request)
    }

    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        (**self).request_all(keys, request)
    }

    fn clock(&self) -> Clock {
        (**self).clock()
    }
}

/// See [`Enqueue::filter`].
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, EnqueueOutcome, WorkQueue};
///
/// let ours = WorkQueue::new().filter(|name: &String| name.starts_with("prod-"));
/// assert_eq!(ours.enqueue("test-1".to_owned()), EnqueueOutcome::Ignored);
/// ```
#[derive(Clone, Copy)]
pub struct Filter<E, F> {
    to: E,
    keep: F,
}

impl<E: fmt::Debug, F> fmt::Debug for Filter<E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("to", &self.to).finish_non_exhaustive()
    }
}

impl<K, E: Enqueue<K>, F: Fn(&K) -> bool> Enqueue<K> for Filter<E, F> {
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome {
        if (self.keep)(&key) { self.to.request(key, request) } else { EnqueueOutcome::Ignored }
    }

    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        let mut refused = Tally::default();
        let mut kept = keys.filter(|key| {
            let keep = (self.keep)(key);
            if !keep {
                refused.count(EnqueueOutcome::Ignored);
            }
            keep
        });
        let tally = self.to.request_all(&mut kept, request);
        tally + refused
    }

    fn clock(&self) -> Clock {
        self.to.clock()
    }
}

/// See [`Enqueue::map`].
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, WorkQueue};
///
/// let queue = WorkQueue::<u64>::new();
/// let by_name = queue.clone().map(|name: &str| name.len() as u64);
/// by_name.enqueue("vm-1");
/// assert!(queue.contains(&4));
/// ```
#[derive(Clone, Copy)]
pub struct Map<E, F> {
    to: E,
    to_key: F,
}

impl<E: fmt::Debug, F> fmt::Debug for Map<E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("to", &self.to).finish_non_exhaustive()
    }
}

impl<J, K, E: Enqueue<K>, F: Fn(J) -> K> Enqueue<J> for Map<E, F> {
    fn request(&self, key: J, request: EnqueueRequest) -> EnqueueOutcome {
        self.to.request((self.to_key)(key), request)
    }

    fn request_all(&self, keys: &mut dyn Iterator<Item = J>, request: EnqueueRequest) -> Tally {
        self.to.request_all(&mut keys.map(&self.to_key), request)
    }

    fn clock(&self) -> Clock {
        self.to.clock()
    }
}

/// See [`Enqueue::tee`].
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, WorkQueue};
///
/// let (disks, networks) = (WorkQueue::new(), WorkQueue::new());
/// disks.clone().tee(networks.clone()).enqueue("vm-1");
/// assert!(disks.contains("vm-1") && networks.contains("vm-1"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tee<A, B> {
    first: A,
    second: B,
}

impl<K: Clone, A: Enqueue<K>, B: Enqueue<K>> Enqueue<K> for Tee<A, B> {
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome {
        self.second.request(key.clone(), request);
        self.first.request(key, request)
    }

    /// Hands both a batch of up to 1,024 keys at a time.
    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        let mut tally = Tally::default();
        loop {
            let batch: Vec<K> = keys.take(BATCH as usize).collect();
            // An iterator that has ended is not asked again: not every one stays ended.
            let ended = batch.len() < BATCH as usize;
            self.second.request_all(&mut batch.iter().cloned(), request);
            tally = tally + self.first.request_all(&mut batch.into_iter(), request);
            if ended {
                return tally;
            }
        }
    }

    fn clock(&self) -> Clock {
        self.first.clock()
    }
}

impl<K: Key, S: BuildHasher> Enqueue<K> for WorkQueue<K, S> {
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` does; the queue is then as it was.
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome {
        let hash = self.hash(&key);
        // A key that is known already drops after the hold.
        let mut slot = Some(key);
        self.shared.with_lock(|section| {
            let (records, effects, now) = section.parts();
            let wanted = Wanted { key: &mut slot, hash, request: &request };
            records.request(wanted, |known, key| known == key, |key| key, &now, effects)
        })
    }

    /// Collects and hashes up to 1,024 keys at a time, then takes the lock once for them.
    ///
    /// # Panics
    ///
    /// If the iterator or a key's `Hash` or `Eq` does. Keys before it may have been admitted.
    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        self.request_in_batches(keys, request, |key| self.hash(key), |known, key| known == key, |key| key)
    }

    fn clock(&self) -> Clock {
        self.shared.config.clock.clone()
    }
}

impl<K: Key, S: BuildHasher> WorkQueue<K, S> {
    /// The same for keys of another form: `hash`, `same` and `own` stand in for a key's own `Hash`, `Eq` and value.
    pub(super) fn request_in_batches<Q>(
        &self,
        keys: &mut dyn Iterator<Item = Q>,
        request: EnqueueRequest,
        hash: impl Fn(&Q) -> u64,
        same: impl Fn(&K, &Q) -> bool,
        own: impl Fn(Q) -> K,
    ) -> Tally {
        let mut tally = Tally::default();
        let mut batch: Vec<(Option<Q>, u64)> = Vec::with_capacity(keys.size_hint().0.min(BATCH as usize));
        loop {
            batch.extend(keys.take(BATCH as usize).map(|key| {
                let hash = hash(&key);
                (Some(key), hash)
            }));
            if batch.is_empty() {
                return tally;
            }
            // An iterator that has ended is not asked again: not every one stays ended.
            let ended = batch.len() < BATCH as usize;
            self.shared.with_lock(|section| {
                let (records, effects, now) = section.parts();
                for (key, hash) in &mut batch {
                    let wanted = Wanted { key, hash: *hash, request: &request };
                    tally.count(records.request(wanted, &same, &own, &now, effects));
                }
            });
            // Keys that the queue already knew are still in the batch. They drop without the lock.
            batch.clear();
            if ended {
                return tally;
            }
        }
    }
}

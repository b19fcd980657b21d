//! The [`Enqueue`] trait, and the wrappers around a queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::report::Tally;
use super::request::{BATCH, EnqueueMethod, EnqueueOutcome, EnqueueRequest};

/// A queue, a view of a queue, or a wrapper around one, that takes keys.
///
/// Only [`request`](Self::request) is required. The methods differ in how they treat a key that is already pending. The table
/// at [`WorkQueue`](super::WorkQueue) has the effect of the basic ones in each state.
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
    /// Applies a request to a key. The other methods are short forms.
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome;

    /// Applies the request to each key. The iterator runs without a lock.
    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        let mut tally = Tally::default();
        for key in keys {
            tally.count(self.request(key, request));
        }
        tally
    }

    /// "Still there": makes an idle key ready and leaves any other key as it is. For a feeder that will repeat the request, such
    /// as a poll.
    fn enqueue_if_absent(&self, key: K) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueIfAbsent.into())
    }

    /// "Changed": guarantees a run that starts after this call, unless the key is cancelled, discarded at shutdown, or has a
    /// delay that never ends. A pending delay decides when the run starts.
    fn enqueue(&self, key: K) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::Enqueue.into())
    }

    /// "Changed", like [`enqueue`](Self::enqueue), and ends a pending delay, except a cool-down. In a backoff, waits at least for
    /// the floor.
    fn enqueue_now(&self, key: K) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueNow.into())
    }

    /// Schedules a run `delay` from now, unless a run is already scheduled. [`Duration::MAX`] never ends. A delay of zero is
    /// [`enqueue`](Self::enqueue).
    fn enqueue_after(&self, key: K, delay: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueAfter(delay).into())
    }

    /// Schedules the next run `delay` from now. Replaces any scheduled run.
    fn reschedule(&self, key: K, delay: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::Reschedule(delay).into())
    }

    /// Schedules a run once no such request has come for `quiet`, at most `max_wait` after the first of them. Extends only its
    /// own delay.
    fn enqueue_debounced(&self, key: K, quiet: Duration, max_wait: Duration) -> EnqueueOutcome {
        self.request(key, EnqueueMethod::EnqueueDebounced { quiet, max_wait }.into())
    }

    /// Schedules a run once no such request has come for `quiet`, at most `max_wait` after this one.
    ///
    /// Ends a longer delay of another method, as [`enqueue_now`](Self::enqueue_now) does; only the floor of a backoff and a
    /// cool-down remain. A shorter delay stays, and its run serves this request too. If the key is being processed, its pending
    /// rerun waits for the end of this delay, at most `max_wait`.
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

    /// Runs the key again although nothing has changed, as a resync does. Ends the delay of a requeue.
    ///
    /// Does nothing ([`EnqueueOutcome::Ignored`]) if the key is ready, being processed, backing off after a failure, or
    /// debounced.
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

    /// Passes only keys for which `keep` returns true. Other requests return [`EnqueueOutcome::Ignored`].
    fn filter<F>(self, keep: F) -> Filter<Self, F>
    where
        Self: Sized,
        F: Fn(&K) -> bool,
    {
        Filter { to: self, keep }
    }

    /// Takes keys of another type and converts them with `to_key`.
    fn map<J, F>(self, to_key: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(J) -> K,
    {
        Map { to: self, to_key }
    }

    /// Passes every key to this queue and to `other`. Returns the outcome of this queue.
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
}

impl<K, E: Enqueue<K> + ?Sized> Enqueue<K> for Arc<E> {
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome {
        (**self).request(key, request)
    }

    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        (**self).request_all(keys, request)
    }
}

/// A queue behind a filter. Made by [`Enqueue::filter`].
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
}

/// A queue with a key conversion. Made by [`Enqueue::map`].
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
}

/// Two queues that get the same keys. Made by [`Enqueue::tee`].
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

    /// Passes batches of up to 1,024 keys to both.
    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        let mut tally = Tally::default();
        loop {
            let batch: Vec<K> = keys.take(BATCH as usize).collect();
            // Not every iterator stays ended, so an ended iterator is not called again.
            let ended = batch.len() < BATCH as usize;
            self.second.request_all(&mut batch.iter().cloned(), request);
            tally = tally + self.first.request_all(&mut batch.into_iter(), request);
            if ended {
                return tally;
            }
        }
    }
}

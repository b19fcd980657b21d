//! The [`Enqueue`] trait.

use std::sync::Arc;
use std::time::Duration;

use super::report::Tally;
use super::request::{EnqueueMethod, EnqueueOutcome, EnqueueRequest};

/// A queue, or a view of a queue, that takes keys.
///
/// Only [`request`](Self::request) is required. The methods differ in how they treat a key that is already pending. The
/// table at [`WorkQueue`](super::WorkQueue) shows the effect of the basic methods in each state.
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
            tally.count(self.request(key, request));
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
    /// # Ok::<_, homeostat::queue::TryDequeueError>(())
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

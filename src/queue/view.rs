//! A queue with a priority, reasons, or borrowed keys.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::feed::Enqueue;
use super::report::Tally;
use super::request::{EnqueueMethod, EnqueueOutcome, EnqueueRequest, Priority, Reasons};
use super::{Key, WorkQueue};

/// A queue that gives its requests a priority, and adds reasons to them.
///
/// Made by [`WorkQueue::at`] and [`WorkQueue::because`]. Use it through [`Enqueue`].
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, Priority, Reasons, WorkQueue};
///
/// let queue = WorkQueue::new();
/// let resync = queue.at(Priority::Low).because(Reasons::RESYNC);
/// resync.enqueue_if_absent("vm-1");
/// resync.enqueue_if_absent("vm-2");
/// assert_eq!(queue.try_dequeue()?.priority(), Priority::Low);
/// # Ok::<_, homeostat::queue::TryDequeueError>(())
/// ```
#[derive(Debug)]
pub struct View<'a, K: Key, S> {
    queue: &'a WorkQueue<K, S>,
    /// The priority of all requests; `None` leaves each its own.
    priority: Option<Priority>,
    reasons: Reasons,
}

impl<'a, K: Key, S> View<'a, K, S> {
    pub(super) fn new(queue: &'a WorkQueue<K, S>) -> Self {
        Self { queue, priority: None, reasons: Reasons::NONE }
    }

    /// Returns the same view with this priority.
    #[must_use]
    pub fn at(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Returns the same view with these reasons added.
    #[must_use]
    pub fn because(mut self, reasons: Reasons) -> Self {
        self.reasons |= reasons;
        self
    }

    /// Returns the same view for borrowed keys.
    #[must_use]
    pub fn by_ref(self) -> ByRef<'a, K, S> {
        ByRef(self)
    }

    fn with_defaults(&self, request: EnqueueRequest) -> EnqueueRequest {
        let request = request.because(self.reasons);
        match self.priority {
            Some(priority) => request.at(priority),
            None => request,
        }
    }
}

impl<K: Key, S> Clone for View<'_, K, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Key, S> Copy for View<'_, K, S> {}

impl<K: Key, S: BuildHasher> Enqueue<K> for View<'_, K, S> {
    fn request(&self, key: K, request: EnqueueRequest) -> EnqueueOutcome {
        self.queue.request(key, self.with_defaults(request))
    }

    fn request_all(&self, keys: &mut dyn Iterator<Item = K>, request: EnqueueRequest) -> Tally {
        self.queue.request_all(keys, self.with_defaults(request))
    }
}

/// A queue that takes borrowed keys. Only a new key is converted to an owned one, so a duplicate allocates nothing. Made by
/// [`WorkQueue::by_ref`].
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, EnqueueOutcome, WorkQueue};
///
/// let queue = WorkQueue::<String>::new();
/// assert_eq!(queue.by_ref().enqueue("vm-1"), EnqueueOutcome::Queued);
/// assert_eq!(queue.by_ref().enqueue("vm-1"), EnqueueOutcome::Merged);
/// ```
#[derive(Debug)]
pub struct ByRef<'a, K: Key, S>(View<'a, K, S>);

impl<K: Key, S> Clone for ByRef<'_, K, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Key, S> Copy for ByRef<'_, K, S> {}

impl<K: Key, S: BuildHasher> ByRef<'_, K, S> {
    #[inline(always)]
    fn request_one<'q, Q>(&self, key: &'q Q, request: EnqueueRequest) -> EnqueueOutcome
    where
        K: Borrow<Q> + From<&'q Q>,
        Q: Hash + Eq + ?Sized,
    {
        let View { queue, .. } = self.0;
        let request = self.0.with_defaults(request);
        queue.shared.request(key, queue.hash(key), &request, |known, key| known.borrow() == *key, K::from)
    }
}

impl<'q, K, Q, S> Enqueue<&'q Q> for ByRef<'_, K, S>
where
    K: Key + Borrow<Q> + From<&'q Q>,
    Q: Hash + Eq + ?Sized,
    S: BuildHasher,
{
    /// # Panics
    ///
    /// If the key's `Hash`, `Eq` or `From` panics. The queue is then unchanged.
    fn request(&self, key: &'q Q, request: EnqueueRequest) -> EnqueueOutcome {
        self.request_one(key, request)
    }

    // These three have a copy of their own, in which the method is constant.
    fn enqueue_if_absent(&self, key: &'q Q) -> EnqueueOutcome {
        self.request_one(key, EnqueueMethod::EnqueueIfAbsent.into())
    }

    fn enqueue(&self, key: &'q Q) -> EnqueueOutcome {
        self.request_one(key, EnqueueMethod::Enqueue.into())
    }

    fn enqueue_now(&self, key: &'q Q) -> EnqueueOutcome {
        self.request_one(key, EnqueueMethod::EnqueueNow.into())
    }

    /// Hashes up to 1,024 keys at a time, then takes the lock once for them.
    fn request_all(&self, keys: &mut dyn Iterator<Item = &'q Q>, request: EnqueueRequest) -> Tally {
        let View { queue, .. } = self.0;
        let hash = |key: &&'q Q| queue.hash(*key);
        queue.request_in_batches(
            keys,
            self.0.with_defaults(request),
            hash,
            |known, key| known.borrow() == *key,
            K::from,
        )
    }
}

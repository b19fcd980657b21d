//! Views of a queue, which set a priority or add reasons.

use std::hash::BuildHasher;

use super::feed::Enqueue;
use super::report::Tally;
use super::request::{EnqueueOutcome, EnqueueRequest, Priority, Reasons};
use super::{Key, WorkQueue};

/// A view of a queue that sets the priority of requests, and adds reasons to them.
///
/// Created by [`WorkQueue::at`] and [`WorkQueue::because`]. Use it through [`Enqueue`].
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
/// # Ok::<_, homeostat::queue::DequeueError>(())
/// ```
#[derive(Debug)]
pub struct View<'a, K: Key, S> {
    queue: &'a WorkQueue<K, S>,
    /// The priority of all requests; `None` keeps the priority of each request.
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

//! A key in the hands of one worker.

use std::fmt;
use std::mem;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::Key;
use super::records::Taken;
use super::request::{Priority, Reasons};
use super::shared::{NoClaim, Shared};
use super::state::Ending;
use crate::base::thread::{drop_each, shielded};
use crate::base::time::Nanos;
use crate::queue::error::TryDequeueError;

/// A key that one worker processes: until the claim ends, the queue gives the key to nobody else.
///
/// A claim is ended by one of its methods, each of which consumes it, so a second or stray ending cannot be written. A
/// claim that is dropped without one, by a panic say, ends as [`retry`](Self::retry). It derefs to the key, may outlive
/// all handles of its queue and may move to another thread.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, WorkQueue};
///
/// let queue = WorkQueue::new();
/// queue.enqueue("vm-1");
/// let claim = queue.dequeue()?;
/// assert_eq!(claim.len(), 4);
/// claim.done();
/// # Ok::<_, homeostat::queue::DequeueError>(())
/// ```
///
/// ```compile_fail,E0382
/// # use homeostat::{Enqueue, WorkQueue};
/// # let queue = WorkQueue::new();
/// # queue.enqueue("vm-1");
/// let claim = queue.dequeue().unwrap();
/// claim.done();
/// claim.done(); // the first one has consumed it
/// ```
#[must_use = "a claim that is dropped counts as a failed run"]
pub struct Claim<K: Key> {
    shared: Arc<Shared<K>>,
    taken: Taken<K>,
    ended: bool,
}

impl<K: Key> Claim<K> {
    #[inline]
    pub(crate) fn new(shared: Arc<Shared<K>>, taken: Taken<K>) -> Self {
        Self { shared, taken, ended: false }
    }

    /// The run has succeeded. A wish that came meanwhile decides what follows; without one the queue forgets the key.
    #[inline]
    pub fn done(self) {
        self.end(Ending::Done);
    }

    /// As [`done`](Self::done), and the key, if it is wanted meanwhile, is ready no sooner than `delay` from now,
    /// whatever verb wants it.
    pub fn cool_down(self, delay: Duration) {
        self.end(Ending::CoolDown(delay));
    }

    /// The run has succeeded and wants another one `delay` from now. A wish for a sooner time wins; `enqueue` during the
    /// run is held by this delay, `enqueue_now` is not. A delay of zero puts the key at the tail of the line.
    pub fn requeue_after(self, delay: Duration) {
        self.end(Ending::RequeueAfter(delay));
    }

    /// The run has failed: the key runs again after the queue's own backoff, and its count of failures rises (unless the
    /// run was an early one: a request had ended the backoff before it).
    pub fn retry(mut self) {
        self.end_as_failed();
    }

    /// The run has failed: the key runs again `backoff` from now. Otherwise as [`retry`](Self::retry).
    pub fn retry_after(self, backoff: Duration) {
        self.end(Ending::Retry(backoff));
    }

    /// As [`done`](Self::done), and takes the next key under the same hold of the lock. The ended key is placed first, so
    /// it may be the next. Does not block.
    ///
    /// # Errors
    ///
    /// As [`try_dequeue`](crate::WorkQueue::try_dequeue).
    #[inline]
    pub fn done_and_next(mut self) -> Result<Self, TryDequeueError> {
        match catch_unwind(AssertUnwindSafe(|| self.turn(Ending::Done, || false))) {
            Ok(Ok(())) => Ok(self),
            Ok(Err(no_claim)) => Err(NoClaim::of_try(no_claim)),
            Err(panic) => {
                // The drop of this claim may panic as well: only one panic may unwind.
                shielded("the drop of a key", || drop(self));
                resume_unwind(panic);
            }
        }
    }

    /// As [`done_and_next`](Self::done_and_next), with any ending, and where it stands: a worker's loop would move the claim in
    /// and out for more than much of what is done in between. Without a next key this claim is over, and only holds the old one.
    ///
    /// # Panics
    ///
    /// If the next key's `Clone` panics, or the drop of the old one. Whoever lets that unwind has to see to it that the drop of
    /// this claim, whose key may panic too, does not join it.
    #[inline]
    pub(crate) fn turn(&mut self, ending: Ending, stop: impl FnOnce() -> bool) -> Result<(), NoClaim> {
        self.ended = true;
        let (mut gone, mut next) = (None, Err(NoClaim::Empty));
        let taking = || next = self.shared.end_and_take(self.taken.index, ending, &mut gone, stop);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(taking)) {
            // The next key's `Clone`.
            shielded("the drop of a key", || drop(gone));
            resume_unwind(panic);
        }
        let ended = mem::replace(&mut self.taken, next?);
        self.ended = false;
        if mem::needs_drop::<K>() {
            drop_each([gone, Some(ended.key)]);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn end(mut self, ending: Ending) {
        self.ended = true;
        let gone = self.shared.end(self.taken.index, ending);
        self.drop_with(gone);
    }

    #[cold]
    fn end_as_failed(&mut self) {
        self.ended = true;
        self.shared.retry(self.taken.index);
    }

    /// Drops the queue's copy of the key and this claim's own. Either may panic; the second must not do so while the
    /// first unwinds.
    #[inline]
    fn drop_with(self, gone: Option<K>) {
        if mem::needs_drop::<K>() {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(gone)));
            drop(self);
            if let Err(panic) = dropped {
                resume_unwind(panic);
            }
        }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.taken.key
    }

    /// How many runs of this key in a row have failed before this one; early ones are not counted.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.taken.failures
    }

    /// The count of failures if this run fails too.
    pub(crate) fn failures_if_retried(&self) -> u32 {
        super::state::failures_if_retried(self.taken.failures, self.taken.early)
    }

    /// The number of the key's record, while this claim lasts.
    pub(crate) fn record(&self) -> u32 {
        self.taken.index
    }

    /// Whether others were in line as the key was taken.
    #[inline]
    pub(crate) fn leaves_more(&self) -> bool {
        self.taken.more
    }

    /// Why this run is called.
    #[must_use]
    pub fn reasons(&self) -> Reasons {
        self.taken.reasons
    }

    /// The lane the key was taken from.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.taken.priority
    }

    /// How long the key was in line; `None` where the queue does not measure it
    /// (see [`QueueBuilder::timing`](crate::queue::QueueBuilder::timing)).
    #[must_use]
    pub fn queued_for(&self) -> Option<Duration> {
        match self.taken.queued_for {
            Nanos::NEVER => None,
            Nanos(nanos) => Some(Duration::from_nanos(nanos)),
        }
    }
}

impl<K: Key> Deref for Claim<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.taken.key
    }
}

impl<K: Key> Drop for Claim<K> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            self.end_as_failed();
        }
    }
}

impl<K: Key + fmt::Debug> fmt::Debug for Claim<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("key", &self.taken.key)
            .field("failures", &self.taken.failures)
            .field("reasons", &self.taken.reasons)
            .field("priority", &self.taken.priority)
            .finish_non_exhaustive()
    }
}

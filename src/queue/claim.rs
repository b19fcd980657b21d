//! Taking keys from the queue, and ending their claims.
//!
//! # Invariants
//!
//! - A consumer that stops waiting for another reason passes its wakeup on.

use std::fmt;
use std::mem;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Key;
use super::report::DequeueError;
use super::request::{Priority, Reasons};
use super::section::LockedSection;
use super::shared::{Locked, QueueShared};
use super::slab::Taken;
use super::state::{Ending, failures_if_retried};
use crate::base::sync::MutexGuard;
use crate::base::time::Nanos;

/// A key that one worker processes. Until the claim ends, no other worker gets the key.
///
/// Every method that ends a claim consumes it, so a claim ends once. A claim that is dropped without an ending, for
/// example by a panic, ends as [`retry`](Self::retry). A claim derefs to its key. It may outlive all handles of its
/// queue, and may move to another thread.
///
/// The [guide](crate::guide::errors#when-the-key-runs-again) compares the endings.
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
/// claim.done(); // the first call has consumed the claim
/// ```
#[must_use = "a claim that is dropped counts as a failed run"]
pub struct Claim<K: Key> {
    shared: Arc<QueueShared<K>>,
    taken: Taken<K>,
}

impl<K: Key> Claim<K> {
    #[inline]
    fn new(shared: Arc<QueueShared<K>>, taken: Taken<K>) -> Self {
        Self { shared, taken }
    }

    /// Ends a successful run. A pending rerun runs next; otherwise the queue forgets the key.
    #[inline(always)]
    pub fn done(self) {
        self.end(Ending::Done);
    }

    /// Ends a successful run like [`done`](Self::done), and starts a cool-down: for `delay` from now, no request makes
    /// the key ready.
    pub fn cool_down(self, delay: Duration) {
        self.end(Ending::CoolDown(delay));
    }

    /// Ends a successful run and schedules the next one `delay` from now. An earlier pending rerun runs at its own
    /// time.
    ///
    /// The delay also applies to an `enqueue` during the run, but not to an `enqueue_now`. A delay of zero makes the
    /// key ready, behind all keys of its level.
    pub fn requeue_after(self, delay: Duration) {
        self.end(Ending::RequeueAfter(delay));
    }

    /// Ends a failed run. The key runs again after the queue's own backoff.
    ///
    /// The count of failures rises, unless a request started this run before the end of the previous backoff.
    pub fn retry(mut self) {
        self.end_as_failed();
    }

    /// Ends a failed run. The key runs again `backoff` from now. Counts failures as [`retry`](Self::retry) does.
    pub fn retry_after(self, backoff: Duration) {
        self.end(Ending::Retry(backoff));
    }

    /// Ends the claim like [`done`](Self::done) and takes the next key, under one lock. Does not block.
    ///
    /// The ended key is put back first, so it may be the next key.
    ///
    /// # Errors
    ///
    /// As [`try_dequeue`](crate::WorkQueue::try_dequeue). The claim has ended nevertheless.
    ///
    /// # Panics
    ///
    /// If the `Clone` of the next key panics. That key backs off like a failed one.
    #[inline]
    pub fn done_and_next(mut self) -> Result<Self, DequeueError> {
        self.turn(Ending::Done, || false)?;
        Ok(self)
    }

    /// Ends the claim and replaces it in place with a claim of the next key. Moving claims would cost a worker's loop
    /// more than the rest of its work. If there is no next key, the ended claim stays and only holds the old key.
    ///
    /// # Panics
    ///
    /// If the `Clone` of the next key panics.
    #[inline]
    pub(crate) fn turn(&mut self, ending: Ending, stop: impl FnOnce() -> bool) -> Result<(), DequeueError> {
        let index = self.taken.end();
        // Dropped after the lock.
        let mut gone = None;
        let mut guard = self.shared.locked.lock();
        if !guard.restless {
            gone = guard.records.end_at_once(index, ending);
        }
        let stopped = stop();
        let next = if gone.is_some() && !stopped { self.shared.take_front(&mut guard) } else { None };
        if let Some(taken) = next {
            drop(guard);
            self.taken = taken;
        } else {
            let ending = if gone.is_none() { Some(ending) } else { None };
            self.taken = self.shared.turn_and_wake(guard, index, ending, stopped)?;
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn end(mut self, ending: Ending) {
        let index = self.taken.end();
        // The key drops after the lock.
        let mut gone = None;
        let mut guard = self.shared.locked.lock();
        if !guard.restless {
            gone = guard.records.end_at_once(index, ending);
        }
        if gone.is_none() {
            drop(self.shared.end_and_wake(guard, index, ending));
        }
    }

    /// Ends the claim as failed, with the queue's own backoff.
    #[cold]
    fn end_as_failed(&mut self) {
        let index = self.taken.end();
        self.shared.with_lock(|section| {
            let failures = section.guard.records.state(index).failures_if_retried();
            let backoff = section.backoff(failures);
            // No key is returned: its record stays, or the report of the shutdown names the key.
            section.end(index, Ending::Retry(backoff));
        });
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.taken.key
    }

    /// Returns how many runs of this key in a row failed before this one. A run that a request started during a backoff
    /// does not count.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.taken.failures()
    }

    /// Returns the count of failures if this run fails too.
    pub(crate) fn failures_if_retried(&self) -> u32 {
        failures_if_retried(self.taken.failures(), self.taken.is_early())
    }

    /// Returns the number of the key's record, valid until the claim ends.
    pub(crate) fn record(&self) -> u32 {
        self.taken.index()
    }

    /// Returns whether more keys were ready when this one was taken.
    #[inline]
    pub(crate) fn leaves_more(&self) -> bool {
        self.taken.leaves_more()
    }

    /// Returns the reasons for this run.
    #[must_use]
    pub fn reasons(&self) -> Reasons {
        self.taken.reasons()
    }

    /// Returns the priority level that the key was taken from.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.taken.priority()
    }

    /// Returns how long the key was ready; `None` if the queue does not measure it
    /// (see [`WorkQueueBuilder::timing`](crate::queue::WorkQueueBuilder::timing)).
    #[must_use]
    pub fn queued_for(&self) -> Option<Duration> {
        (self.taken.queued_for != Nanos::NEVER).then(|| Duration::from_nanos(self.taken.queued_for.0))
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
        if !self.taken.has_ended() {
            self.end_as_failed();
        }
    }
}

impl<K: Key + fmt::Debug> fmt::Debug for Claim<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("key", &self.taken.key)
            .field("failures", &self.taken.failures())
            .field("reasons", &self.taken.reasons())
            .field("priority", &self.taken.priority())
            .finish_non_exhaustive()
    }
}

/// How often a consumer that finds a busy queue empty looks again before it sleeps. See `BUSY`.
const LOOKS: u32 = if cfg!(loom) { 2 } else { 8 };
/// The number of keys taken between two empty looks that marks a queue as busy. It limits the cost of looking again to
/// half a look per key.
pub(super) const BUSY: usize = 16;

impl<K: Key> QueueShared<K> {
    /// Takes the next key. If `stop` holds, takes none, as if the queue were empty.
    #[inline(always)]
    pub(crate) fn try_dequeue(self: &Arc<Self>, stop: impl FnOnce() -> bool) -> Result<Claim<K>, DequeueError> {
        let mut guard = self.locked.lock();
        let stopped = stop();
        if !stopped
            && !guard.restless
            && let Some(taken) = self.take_front(&mut guard)
        {
            drop(guard);
            return Ok(Claim::new(Arc::clone(self), taken));
        }
        let taken = self.take_and_wake(guard, stopped)?;
        Ok(Claim::new(Arc::clone(self), taken))
    }

    /// Takes the next key, if a key is ready.
    #[inline(always)]
    fn take_front(self: &Arc<Self>, guard: &mut MutexGuard<'_, Locked<K>>) -> Option<Taken<K>> {
        let index = guard.records.front()?;
        let unclonable = Unclonable { shared: self, guard, index };
        let key = unclonable.guard.records.key(index).clone();
        mem::forget(unclonable);
        Some(guard.records.take(index, key, &|| self.now()))
    }

    /// The slow path of [`try_dequeue`](Self::try_dequeue): no key is ready, or the section may wake other threads.
    #[cold]
    fn take_and_wake(
        self: &Arc<Self>,
        guard: MutexGuard<'_, Locked<K>>,
        stopped: bool,
    ) -> Result<Taken<K>, DequeueError> {
        self.with_guard(guard, |section| section.take_unless(stopped))
    }

    /// Ends a claim that may wake other threads. Returns the key if the queue forgets it.
    #[cold]
    fn end_and_wake(self: &Arc<Self>, guard: MutexGuard<'_, Locked<K>>, index: u32, ending: Ending) -> Option<K> {
        self.with_guard(guard, |section| section.end(index, ending))
    }

    /// Ends a claim, unless it has already ended, and takes the next key.
    #[cold]
    fn turn_and_wake(
        self: &Arc<Self>,
        guard: MutexGuard<'_, Locked<K>>,
        index: u32,
        ending: Option<Ending>,
        stopped: bool,
    ) -> Result<Taken<K>, DequeueError> {
        // Dropped after the lock.
        let mut gone = None;
        self.with_guard(guard, |section| {
            gone = ending.and_then(|ending| section.end(index, ending));
            section.take_unless(stopped)
        })
    }

    /// Takes the next key. Blocks until a key is ready, the queue is over, `stop` holds, or the deadline passes.
    #[inline]
    pub(crate) fn dequeue(
        self: &Arc<Self>,
        deadline: Nanos,
        stop: impl Fn() -> bool,
    ) -> Result<Claim<K>, DequeueError> {
        match self.try_dequeue(&stop) {
            Err(DequeueError::Empty) => self.wait_and_dequeue(deadline, stop),
            other => other,
        }
    }

    #[cold]
    fn wait_and_dequeue(self: &Arc<Self>, deadline: Nanos, stop: impl Fn() -> bool) -> Result<Claim<K>, DequeueError> {
        let taken = self.with_lock(|section| {
            let mut looks = self.looks(section.guard);
            loop {
                if stop() {
                    // The wakeup of this consumer may be for a key: another consumer gets it.
                    section.effects.readied += usize::from(section.guard.records.has_ready());
                    return Err(DequeueError::Empty);
                }
                match section.take() {
                    Err(DequeueError::Empty) => {}
                    other => return other,
                }
                if self.config.clock.reached(deadline) {
                    return Err(DequeueError::Empty);
                }
                if looks > 0 {
                    // Under load, the next key often arrives before a consumer could fall asleep and wake up.
                    looks -= 1;
                    section.unlocked(thread::yield_now);
                    continue;
                }
                if self.retry_timer(section.guard) {
                    section.unlocked(|| self.start_timer());
                    continue;
                }
                section.wait_for_key(deadline.min(section.guard.retry_timer_at()));
            }
        })?;
        Ok(Claim::new(Arc::clone(self), taken))
    }

    /// Returns how often a consumer looks again before it sleeps. Zero if consumers sleep between single keys, and on a
    /// held clock, which counts sleeping threads.
    fn looks(&self, locked: &mut Locked<K>) -> u32 {
        let taken = locked.records.taken();
        let busy = taken.wrapping_sub(mem::replace(&mut locked.taken_at_wait, taken)) >= BUSY;
        if busy && !self.config.clock.is_held() { LOOKS } else { 0 }
    }
}

impl<K: Key> LockedSection<'_, '_, K> {
    /// Ends a claim. Returns the key if the queue forgets it; it must drop without the lock.
    fn end(&mut self, index: u32, ending: Ending) -> Option<K> {
        let (records, effects, now) = self.parts();
        records.end(index, ending, &now, effects)
    }

    fn take_unless(&mut self, stopped: bool) -> Result<Taken<K>, DequeueError> {
        if stopped { Err(DequeueError::Empty) } else { self.take() }
    }

    fn take(&mut self) -> Result<Taken<K>, DequeueError> {
        match self.shared.take_front(self.guard) {
            Some(taken) => {
                // If this section made a key ready, it takes one too: one consumer fewer to wake.
                self.effects.readied = self.effects.readied.saturating_sub(1);
                Ok(taken)
            }
            None if self.guard.records.is_over() => Err(DequeueError::Closed),
            None => Err(DequeueError::Empty),
        }
    }

    /// Backs the next key off like a failed one, because its `Clone` panicked. Other keys are still served.
    fn fail_front(&mut self, index: u32) {
        let failures = self.guard.records.state(index).failures_if_retried();
        let backoff = self.backoff(failures);
        let (records, effects, now) = self.parts();
        records.fail_front(backoff, &now, effects);
        // This consumer leaves without a key. Another one may take the next.
        effects.readied += usize::from(records.has_ready());
    }
}

/// A drop guard that calls [`LockedSection::fail_front`] if the `Clone` of the next key panics.
struct Unclonable<'s, 'g, K: Key> {
    shared: &'s Arc<QueueShared<K>>,
    guard: &'s mut MutexGuard<'g, Locked<K>>,
    index: u32,
}

impl<K: Key> Drop for Unclonable<'_, '_, K> {
    #[cold]
    fn drop(&mut self) {
        let mut section = LockedSection::new(self.shared, self.guard);
        section.fail_front(self.index);
        section.wake_unlocked();
    }
}

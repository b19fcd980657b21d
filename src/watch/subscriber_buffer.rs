//! The buffer between a watch and one subscriber, and the rule that decides which thread delivers from it.
//!
//! A watch appends events under its own lock, in the order in which it stores changes. Then, without that lock, it
//! calls [`deliver`](SubscriberBuffer::deliver). At most one thread delivers at a time:
//!
//! - Without an own thread, the first caller of `deliver` delivers until the buffer is empty. Other callers, and
//!   mappings that push, return at once. The delivering thread checks the buffer and gives up its role in one locked
//!   section, so it cannot miss their events.
//! - With an own thread, that thread delivers, and `deliver` wakes it.
//!
//! No lock is held while a mapping or a predicate runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use super::delivery::Delivery;
use super::event_buffer::{EventBuffer, NextEvent, StoredChange};
use crate::base::clock::Clock;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::thread::{Panic, ThreadId, current_thread};
use crate::base::wait::{AutoResetEvent, Latch, Progress};
use crate::queue::{FastState, Key};

pub(super) struct SubscriberBuffer<K, T> {
    /// Guards the events, the state of the subscription, and the role of the delivering thread.
    state: Mutex<BufferState<K, T>>,
    /// Set once the whole initial list has been delivered; given up if the subscription ends first.
    pub(super) synced: Arc<Latch>,
    /// Whether the subscriber also gets the items that a listing finds unchanged.
    pub(super) with_unchanged: bool,
    /// Called whenever entries have been handled, and when the subscription ends.
    progress: OnceLock<Progress>,
}

struct BufferState<K, T> {
    events: EventBuffer<K, T, FastState>,
    /// The number of the first entry that has not been completely handled.
    handled: usize,
    /// Whether the watch has stopped. The subscription ends once the buffer is empty.
    stopped: bool,
    /// Whether the subscription has ended or was stopped. No other event is delivered.
    left: bool,
    deliverer: Deliverer<K, T>,
}

/// The thread that delivers.
enum Deliverer<K, T> {
    /// No thread. The next caller of `deliver` takes the role.
    Idle(Box<Delivery<K, T>>),
    /// The thread with this id, until the buffer is empty.
    Busy(ThreadId),
    /// The subscriber's own thread, which this event wakes.
    OwnThread(Arc<AutoResetEvent>),
    /// No thread: the subscription has ended.
    Ended,
}

/// The next step of the delivering thread.
pub(super) enum NextStep<K, T> {
    Deliver(NextEvent<K, T>),
    /// Wait: the buffer is empty.
    Wait,
    /// End: no event will follow.
    Finish,
}

/// The outcome of appending a change.
pub(super) struct AppendOutcome<T> {
    /// Whether the caller must call `deliver`, without a lock.
    pub(super) deliver: bool,
    /// Whether the subscription has ended. Then nothing was appended.
    pub(super) has_left: bool,
    /// Values for the caller to drop without a lock.
    pub(super) unused: [Option<Arc<T>>; 2],
}

impl<K: Key + Sync, T: Send + Sync + 'static> SubscriberBuffer<K, T> {
    /// Creates the buffer of a subscriber. With `own_thread`, `deliver` sets that event to wake the subscriber's
    /// thread. Without it, the caller has the role of the delivering thread and must call
    /// [`deliver_as`](Self::deliver_as).
    pub(super) fn new(clock: &Clock, with_unchanged: bool, own_thread: Option<Arc<AutoResetEvent>>) -> Arc<Self> {
        let deliverer = own_thread.map_or_else(|| Deliverer::Busy(current_thread()), Deliverer::OwnThread);
        let events = EventBuffer::new();
        Arc::new(Self {
            state: Mutex::new(BufferState { events, handled: 0, stopped: false, left: false, deliverer }),
            synced: Latch::new(clock.clone()),
            with_unchanged,
            progress: OnceLock::new(),
        })
    }

    /// Sets the callback for progress. Only the first call counts.
    pub(super) fn on_progress(&self, progress: Progress) {
        let _ = self.progress.set(progress);
    }

    fn report_progress(&self) {
        if let Some(progress) = self.progress.get() {
            progress();
        }
    }

    /// Returns the number of the entry after the last one.
    pub(super) fn accepted(&self) -> usize {
        self.state.lock().events.end()
    }

    /// Returns whether all entries before this number have been handled or dropped.
    pub(super) fn has_handled(&self, accepted: usize) -> bool {
        let state = self.state.lock();
        let left = accepted.wrapping_sub(state.handled);
        let all = state.events.end().wrapping_sub(state.handled);
        // Entry numbers wrap: a handled entry appears to be further ahead than all unhandled ones.
        state.left || left == 0 || left > all
    }

    pub(super) fn append(&self, key: &K, change: StoredChange<T>) -> AppendOutcome<T> {
        let mut state = self.state.lock();
        if state.left {
            return AppendOutcome { deliver: false, has_left: true, unused: [None, None] };
        }
        // In a buffer with entries, the thread that appended the first one delivers all.
        let deliver = state.events.is_empty();
        let unused = state.events.add(key, change);
        AppendOutcome { deliver, has_left: false, unused }
    }

    /// Appends the end of the initial list.
    pub(super) fn append_synced(&self) {
        let mut state = self.state.lock();
        if !state.left {
            state.events.add_synced();
        }
    }

    /// Marks the watch as stopped.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
    }

    /// Delivers the buffered events unless another thread is delivering, or wakes the subscriber's own thread. Call it
    /// without a lock.
    pub(super) fn deliver(&self) {
        let mut state = self.state.lock();
        if let Deliverer::OwnThread(event) = &state.deliverer {
            let event = Arc::clone(event);
            drop(state);
            event.set();
        } else if matches!(state.deliverer, Deliverer::Idle(_))
            && let Deliverer::Idle(delivery) =
                std::mem::replace(&mut state.deliverer, Deliverer::Busy(current_thread()))
        {
            self.deliver_from(state, delivery);
        }
    }

    /// Delivers until the buffer is empty. The caller must have the role of the delivering thread.
    pub(super) fn deliver_as(&self, delivery: Box<Delivery<K, T>>) {
        self.deliver_from(self.state.lock(), delivery);
    }

    /// Delivers until the buffer is empty, then gives up the role of the delivering thread in the same locked section.
    fn deliver_from<'a>(&'a self, mut state: MutexGuard<'a, BufferState<K, T>>, delivery: Box<Delivery<K, T>>) {
        let mut role = Some(delivery);
        loop {
            let taken = self.take_next(state, |state| {
                let is_over = state.is_over();
                state.deliverer = match role.take_if(|_| !is_over) {
                    Some(delivery) => Deliverer::Idle(delivery),
                    None => Deliverer::Ended,
                };
            });
            let Some(delivery) = &mut role else { return };
            match taken {
                Ok(Some(next)) => delivery.deliver(&next),
                Ok(None) => return self.leave(),
                Err(panic) => self.skip(delivery, &panic),
            }
            state = self.state.lock();
        }
    }

    /// Takes the next event for the subscriber's own thread.
    pub(super) fn next_step(&self, delivery: &Delivery<K, T>) -> NextStep<K, T> {
        loop {
            let mut is_over = false;
            match self.take_next(self.state.lock(), |state| is_over = state.is_over()) {
                Ok(Some(next)) => return NextStep::Deliver(next),
                Ok(None) if is_over => return NextStep::Finish,
                Ok(None) => return NextStep::Wait,
                Err(panic) => self.skip(delivery, &panic),
            }
        }
    }

    /// Takes the next event. All events taken before count as handled. If the buffer is empty, calls `at_end` in the
    /// same locked section. Returns the panic if the `Clone` of a key panics.
    fn take_next(
        &self,
        mut state: MutexGuard<'_, BufferState<K, T>>,
        at_end: impl FnOnce(&mut BufferState<K, T>),
    ) -> Result<Option<NextEvent<K, T>>, Panic> {
        let first = state.events.first();
        let progressed = std::mem::replace(&mut state.handled, first) != first;
        let taken = catch_unwind(AssertUnwindSafe(move || {
            let taken = state.events.take();
            if taken.is_none() {
                at_end(&mut state);
            }
            taken
        }));
        if progressed {
            self.report_progress();
        }
        taken
    }

    /// Skips the events of the first key, after its `Clone` has panicked.
    fn skip(&self, delivery: &Delivery<K, T>, panic: &Panic) {
        delivery.report_key_panic(panic);
        let skipped = self.state.lock().events.pop();
        drop(skipped);
    }

    /// Ends the subscription and drops its buffered events.
    pub(super) fn leave(&self) {
        let events = {
            let mut state = self.state.lock();
            state.left = true;
            std::mem::replace(&mut state.events, EventBuffer::new())
        };
        drop(events);
        self.synced.set(false);
        self.report_progress();
        self.deliver();
    }

    pub(super) fn has_left(&self) -> bool {
        self.state.lock().left
    }

    /// Returns whether the current thread is delivering: the caller is a mapping, or was called by one.
    pub(super) fn is_delivering_here(&self) -> bool {
        matches!(self.state.lock().deliverer, Deliverer::Busy(thread) if thread == current_thread())
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().events.len()
    }
}

impl<K, T> BufferState<K, T> {
    /// Returns whether the subscription ends once the buffer is empty.
    fn is_over(&self) -> bool {
        self.stopped || self.left
    }
}

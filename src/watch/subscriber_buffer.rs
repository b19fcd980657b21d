//! The buffer between a watch and one subscriber, and the rule that decides which thread delivers from it.
//!
//! A watch appends events under its own lock, in the order in which it stores changes. Then, without that lock, it
//! calls [`wake`](SubscriberBuffer::wake). At most one thread delivers at a time, until the buffer is empty:
//!
//! - Without an own thread, the caller of `wake` delivers. If another thread is delivering, or if a mapping pushes,
//!   `wake` returns at once. The delivering thread checks the buffer and gives up its role in one locked section, so it
//!   cannot miss their events.
//! - With an own thread, that thread delivers, and `wake` wakes it.
//!
//! No lock is held while a mapping or a predicate runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::event::EventKind;
use super::event_buffer::{EventBuffer, NextEvent, StoredChange};
use super::source_state::SourceProgress;
use super::subscriber::Subscriber;
use crate::base::clock::Clock;
use crate::base::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::task::Next;
use crate::base::thread::{Panic, ThreadId, current_thread, panic_message};
use crate::base::time::Nanos;
use crate::base::wait::{AutoResetEvent, Latch};
use crate::queue::{FastState, Key};

pub(super) struct SubscriberBuffer<K, T> {
    /// Guards the events, the state of the subscription, and the role of the delivering thread.
    state: Mutex<BufferState<K, T>>,
    /// Wakes the subscriber's own thread, if it has one.
    own_thread: Option<Arc<AutoResetEvent>>,
    /// Whether the subscriber also gets the items that a listing finds unchanged.
    pub(super) with_unchanged: bool,
    pub(super) delivery: Arc<Delivery>,
}

/// The deliveries to a subscriber.
pub(super) struct Delivery {
    /// The name of the subscription.
    pub(super) name: String,
    pub(super) delivered: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) panics: AtomicU64,
    /// Set once the whole initial list has been delivered; given up if the subscription ends first.
    pub(super) synced: Arc<Latch>,
    /// Counts the entries of the buffer. Entries that are dropped count as enqueued.
    pub(super) progress: SourceProgress,
}

struct BufferState<K, T> {
    events: EventBuffer<K, T, FastState>,
    /// Whether the watch has stopped. The subscription ends once the buffer is empty.
    stopped: bool,
    /// Whether the subscription has ended or was stopped. No other event is delivered.
    left: bool,
    deliverer: Deliverer<K, T>,
}

/// The thread that delivers.
enum Deliverer<K, T> {
    /// No thread. The next one takes the role.
    Idle(Box<Subscriber<K, T>>),
    /// The thread with this id, until the buffer is empty.
    Busy(ThreadId),
    /// No thread: the subscription has ended.
    Ended,
}

impl<K: Key + Sync, T: Send + Sync + 'static> SubscriberBuffer<K, T> {
    /// Creates the buffer of a subscriber. The caller has the role of the delivering thread and must call
    /// [`begin`](Self::begin).
    pub(super) fn new(
        name: String,
        clock: &Clock,
        with_unchanged: bool,
        own_thread: Option<Arc<AutoResetEvent>>,
    ) -> Arc<Self> {
        let deliverer = Deliverer::Busy(current_thread());
        let delivery = Arc::new(Delivery {
            name,
            delivered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            synced: Latch::new(clock.clone()),
            progress: SourceProgress::default(),
        });
        let state = BufferState { events: EventBuffer::new(), stopped: false, left: false, deliverer };
        Arc::new(Self { state: Mutex::new(state), own_thread, with_unchanged, delivery })
    }

    /// Gives the buffer its subscriber, and delivers the existing events. The subscriber's own thread delivers them, if
    /// it has one.
    pub(super) fn begin(&self, subscriber: Subscriber<K, T>) {
        let (mut state, subscriber) = (self.state.lock(), Box::new(subscriber));
        if self.own_thread.is_some() {
            state.deliverer = Deliverer::Idle(subscriber);
        } else {
            self.deliver_from(state, subscriber, false);
        }
    }

    /// Appends a change, unless the subscription has ended. Returns values for the caller to drop without a lock.
    pub(super) fn append(&self, key: &K, change: StoredChange<T>) -> [Option<Arc<T>>; 2] {
        let mut state = self.state.lock();
        if state.left {
            return [change.old, change.new];
        }
        let before = state.events.len();
        let unused = state.events.add(key, change);
        if state.events.len() > before {
            self.delivery.progress.accept();
        }
        unused
    }

    /// Appends the end of the initial list.
    pub(super) fn append_synced(&self) {
        let mut state = self.state.lock();
        if !state.left {
            state.events.add_synced();
            self.delivery.progress.accept();
        }
    }

    /// Marks the watch as stopped.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
    }

    /// Delivers the buffered events unless another thread is delivering, or wakes the subscriber's own thread. Call it
    /// without a lock.
    pub(super) fn wake(&self) {
        match &self.own_thread {
            Some(event) => event.set(),
            None => drop(self.deliver(false)),
        }
    }

    /// Delivers until the buffer is empty, with `one` at most one event, unless another thread is delivering. Returns
    /// when the caller must call this again.
    pub(super) fn deliver(&self, one: bool) -> Next {
        let mut state = self.state.lock();
        if let Deliverer::Idle(_) = state.deliverer
            && let Deliverer::Idle(subscriber) =
                std::mem::replace(&mut state.deliverer, Deliverer::Busy(current_thread()))
        {
            return self.deliver_from(state, subscriber, one);
        }
        if let Deliverer::Ended = state.deliverer { Next::Finished } else { Next::At(Nanos::NEVER) }
    }

    /// Delivers as the delivering thread. Gives up the role in the locked section that finds the buffer empty.
    fn deliver_from<'a>(
        &'a self,
        mut state: MutexGuard<'a, BufferState<K, T>>,
        mut subscriber: Box<Subscriber<K, T>>,
        one: bool,
    ) -> Next {
        loop {
            let handled = self.delivery.progress.accepted() - state.events.len() as u64;
            let is_over = state.stopped || state.left;
            let taken = catch_unwind(AssertUnwindSafe(|| state.events.take()));
            if let Ok(None) = taken {
                if !is_over {
                    state.deliverer = Deliverer::Idle(subscriber);
                    drop(state);
                    self.delivery.progress.advance_to(handled);
                    return Next::At(Nanos::NEVER);
                }
                state.deliverer = Deliverer::Ended;
            }
            drop(state);
            self.delivery.progress.advance_to(handled);
            match taken {
                Ok(Some(next)) => self.delivery.deliver(&mut subscriber, &next),
                Ok(None) => {
                    self.leave();
                    return Next::Finished;
                }
                Err(panic) => {
                    self.delivery.key_panicked(&panic);
                    let skipped = self.state.lock().events.pop();
                    drop(skipped);
                }
            }
            state = self.state.lock();
            if one {
                state.deliverer = Deliverer::Idle(subscriber);
                return Next::At(Nanos::ZERO);
            }
        }
    }

    /// Ends the subscription and drops its buffered events.
    pub(super) fn leave(&self) {
        let events = {
            let mut state = self.state.lock();
            state.left = true;
            std::mem::replace(&mut state.events, EventBuffer::new())
        };
        drop(events);
        self.delivery.synced.set(false);
        self.delivery.progress.advance_to(u64::MAX);
        self.wake();
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

impl Delivery {
    /// Passes an event to the predicates and the mapping. A panic in them is logged and counted, and skips only this
    /// event.
    fn deliver<K: Key + Sync, T: Send + Sync + 'static>(
        &self,
        subscriber: &mut Subscriber<K, T>,
        next: &NextEvent<K, T>,
    ) {
        let (name, kind) = (self.name.as_str(), next.event.kind());
        match catch_unwind(AssertUnwindSafe(|| subscriber.deliver(next))) {
            Ok(Some(tally)) => {
                let keys = tally.total();
                log::trace!(subscription = name, event:% = kind, keys; "{name}: an event ({kind}) was delivered, keys: {keys}");
                self.delivered.fetch_add(1, SeqCst);
            }
            Ok(None) => drop(self.refused.fetch_add(1, SeqCst)),
            Err(panic) => {
                let message = panic_message(&*panic);
                log::error!(
                    subscription = name, event:% = kind, panic = message;
                    "{name}: the subscriber panicked at an event ({kind}), which is skipped: {message}"
                );
                self.panics.fetch_add(1, SeqCst);
            }
        }
        if kind == EventKind::Synced {
            self.synced.set(true);
        }
    }

    /// Logs and counts a panic in the `Clone` of a key. The events of that key are skipped.
    fn key_panicked(&self, panic: &Panic) {
        let (subscription, message) = (self.name.as_str(), panic_message(&**panic));
        log::error!(
            subscription, panic = message;
            "{subscription}: a key panicked when it was cloned, its events are skipped: {message}"
        );
        self.panics.fetch_add(1, SeqCst);
    }
}

//! Between a watch and one subscriber: what it has not been told yet, under a lock that is held for one entry.

use std::sync::{Arc, OnceLock};

use super::backlog::{Backlog, Change, Told};
use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::thread::shielded;
use crate::base::wait::{AutoResetEvent, Latch, Progress};
use crate::queue::{FastState, Key};

/// The line to one subscriber. A watch adds to it, the subscriber's thread takes from it; neither waits for the other.
pub(super) struct Line<K, T> {
    /// Guards what is to be told, and who is still there to tell it or to be told.
    state: Mutex<State<K, T>>,
    /// Set when there is something to take after there was nothing.
    pub(super) signal: Arc<AutoResetEvent>,
    /// Open once the subscriber has been told of the whole initial list.
    pub(super) synced: Arc<Latch>,
    /// Whether it is also told of what a relist finds unchanged.
    pub(super) with_unchanged: bool,
    /// Called after each event that the subscriber has handled, and when it leaves.
    progress: OnceLock<Progress>,
}

struct State<K, T> {
    backlog: Backlog<K, T, FastState>,
    /// The number of the first place of the backlog that the subscriber has not handled to the end.
    handled: usize,
    /// The watch has stopped: nothing more is added.
    stopped: bool,
    /// The subscriber has gone: nothing more is taken.
    gone: bool,
}

/// What a subscriber's thread does next.
pub(super) enum Take<K, T> {
    Tell(Told<K, T>),
    /// Wait for the signal.
    Wait,
    /// Nothing comes any more.
    Finish,
}

/// What came of adding to a line.
pub(super) struct Added<T> {
    /// The signal is to be set, once no lock is held.
    pub(super) wake: bool,
    /// Values to be dropped, once no lock is held.
    pub(super) forgotten: [Option<Arc<T>>; 2],
}

impl<K: Key, T> Line<K, T> {
    pub(super) fn new(clock: &Clock, with_unchanged: bool) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { backlog: Backlog::new(), handled: 0, stopped: false, gone: false }),
            signal: AutoResetEvent::new(clock.clone()),
            synced: Latch::new(clock.clone()),
            with_unchanged,
            progress: OnceLock::new(),
        })
    }

    /// Has `progress` called after each event from now on. The first call counts.
    pub(super) fn on_progress(&self, progress: Progress) {
        let _ = self.progress.set(progress);
    }

    /// The subscriber may have handled an event. No lock is held.
    pub(super) fn tell_progress(&self) {
        if let Some(progress) = self.progress.get() {
            progress();
        }
    }

    /// How far the line reaches now, for [`has_handled`](Self::has_handled).
    pub(super) fn accepted(&self) -> usize {
        self.state.lock().backlog.end()
    }

    /// Whether the subscriber has handled all events that the line held when [`accepted`](Self::accepted) returned this number,
    /// or will handle none of them any more.
    pub(super) fn has_handled(&self, accepted: usize) -> bool {
        let state = self.state.lock();
        let (left, all) = (accepted.wrapping_sub(state.handled), state.backlog.end().wrapping_sub(state.handled));
        // The numbers wrap: one that has been handled is far ahead of all that are left.
        state.gone || left == 0 || left > all
    }

    pub(super) fn add(&self, key: &K, change: Change<T>) -> Added<T> {
        let mut state = self.state.lock();
        if state.gone {
            return Added { wake: false, forgotten: [None, None] };
        }
        let wake = state.backlog.is_empty();
        let forgotten = state.backlog.add(key, change);
        Added { wake, forgotten }
    }

    /// The initial list ends here.
    pub(super) fn add_synced(&self) {
        let mut state = self.state.lock();
        if !state.gone {
            state.backlog.add_synced();
        }
    }

    /// The watch has stopped.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
    }

    /// The next event for the subscriber, which has handled those that it has taken before.
    pub(super) fn take(&self) -> Take<K, T> {
        let mut state = self.state.lock();
        state.handled = state.backlog.first();
        match state.backlog.take() {
            Some(told) => Take::Tell(told),
            None if state.stopped || state.gone => Take::Finish,
            None => Take::Wait,
        }
    }

    /// Takes the next key out, without any code of it, and tells nothing of it.
    pub(super) fn skip(&self) {
        let skipped = self.state.lock().backlog.skip();
        if let Some((key, values)) = skipped {
            discard(key, values);
        }
    }

    /// The subscriber has gone. What it has not been told is dropped.
    pub(super) fn leave(&self) {
        let mut backlog = {
            let mut state = self.state.lock();
            state.gone = true;
            std::mem::replace(&mut state.backlog, Backlog::new())
        };
        while let Some((key, values)) = backlog.skip() {
            discard(key, values);
        }
        self.synced.settle(false);
        self.tell_progress();
    }

    pub(super) fn is_gone(&self) -> bool {
        self.state.lock().gone
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().backlog.len()
    }
}

/// Drops what an event holds, part by part: any of them may be the last, whose drop is user code.
pub(super) fn discard<K, T>(key: Option<K>, values: impl IntoIterator<Item = Option<Arc<T>>>) {
    for value in values {
        shielded("the drop of a value", || drop(value));
    }
    shielded("the drop of a key", || drop(key));
}

//! A source of keys, as a controller uses it.

use std::sync::OnceLock;
use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::base::wait::Progress;
use crate::queue::EnqueueMethod;

/// A controller's view of a source of keys: the state of a poller, or a subscription.
pub(crate) trait KeySource: Send + Sync {
    /// Returns the numbers of accepted and enqueued changes.
    fn progress(&self) -> &SourceProgress;

    /// Returns whether the caller is in the source's listing or mapping.
    fn is_current(&self) -> bool;

    /// Stops the source, and with `abort` cancels its listing. Drops user code, so call it without a lock.
    fn end(&self, abort: bool);

    /// Returns the number of buffered entries. A poller has no buffer.
    fn buffered(&self) -> usize {
        0
    }

    /// Enqueues all keys by `method`. A poller does nothing. Runs user code, so call it without a lock.
    fn resync(&self, _method: EnqueueMethod) {}

    /// Lists all keys now, if the source polls.
    fn trigger(&self) {}

    /// Sets the period. Returns false if the source has none.
    fn set_period(&self, _period: Duration) -> bool {
        false
    }
}

/// The numbers of changes that a source has accepted and enqueued.
#[derive(Default)]
pub(crate) struct SourceProgress {
    accepted: AtomicU64,
    enqueued: AtomicU64,
    callback: OnceLock<Progress>,
}

impl SourceProgress {
    /// Sets a callback, which runs each time keys have been enqueued, and at the end. Only the first call counts.
    pub(crate) fn on_change(&self, callback: Progress) {
        let _ = self.callback.set(callback);
    }

    /// Returns the number of changes that the source has accepted by now.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(SeqCst)
    }

    /// Returns whether the first `accepted` changes have been enqueued, or never will be.
    pub(crate) fn has_enqueued(&self, accepted: u64) -> bool {
        self.enqueued.load(SeqCst) >= accepted
    }

    /// Records an accepted change.
    pub(super) fn accept(&self) {
        self.accepted.fetch_add(1, SeqCst);
    }

    /// Records that the first `enqueued` changes have been enqueued, or never will be. Call it without a lock.
    pub(super) fn advance_to(&self, enqueued: u64) {
        if self.enqueued.fetch_max(enqueued, SeqCst) < enqueued
            && let Some(callback) = self.callback.get()
        {
            callback();
        }
    }
}

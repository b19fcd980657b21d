//! Counters without atomic additions.

use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter with a single writer and any number of readers.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Two concurrent calls could lose one.
    #[inline]
    pub(crate) fn count(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    /// Adds a number. The same restriction applies as for [`count`](Self::count).
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
